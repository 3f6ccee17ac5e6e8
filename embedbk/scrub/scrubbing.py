"""The course of a scrub: what is read in which order, what is judged again, what is reported (SCRUB.md).

Decides which ledgers are read up to where, what counts as changed meanwhile, and what is handed to repair. The reads
themselves run in this client (`repair/copy_check.py`), or wherever the caller's `check` runs them, for which they are
grouped by bookie. A coroutine, so that a simulated cluster can bring its own time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedbk.client.client import Client
from embedbk.client.log_checking import LOG_OF_A_LEDGER, check_log, known_ledgers
from embedbk.client.log_names import log_names
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import FutureResult, Moved, run_blocking
from embedbk.codec.digest import DigestType
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.log_identity import IDENTITIES_PREFIX
from embedbk.codec.metadata_messages import Tell, Told
from embedbk.codec.repair_mark import is_missing_set, repair_mark_path
from embedbk.codec.repair_messages import REPAIRS_MAX, MarkRepairs, RepairsMarked
from embedbk.codec.repair_state import CONTROL_KEY, decode_repair_control
from embedbk.core.machine import Machine
from embedbk.core.status_query import SeatStatus, StatusQuery
from embedbk.errors import MetadataConflict, NoSuchLedger, PeerError, StorageError, UsageError, WrongPassword
from embedbk.host.operations import OneResult
from embedbk.host.signal import Signal
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.levels import LEVEL_OF_COPIES
from embedbk.repair.copy_check import CopiesCheck, CopyBlock, CopyCheckOptions, CopyTask
from embedbk.repair.holdings import Checked, CheckOptions, HoldingCheck
from embedbk.scrub.archive_files import FilesOfArchives
from embedbk.scrub.archived import (
    ArchivedLedger,
    ArchiveFiles,
    Copies,
    archived_ledgers,
    compare_with_archive,
)
from embedbk.scrub.judging import (
    CopyFinding,
    Unit,
    differing_entries,
    judge_copies,
    strays,
    strays_found,
    tasks_by_entry,
    tasks_of,
    units_of,
)
from embedbk.scrub.options import ScrubOptions, ScrubResult
from embedbk.scrub.since import closed_before
from embedbk.scrub.state import ScrubProgress

__all__ = ["CheckCopies", "check_here", "scrub", "scrub_cluster"]

USUAL = ScrubOptions()
BATCH_UNITS = 256
BATCH_IDS = 1 << 18
STATUS_AT_ONCE = 64
_WHAT = "scrubbing"

CheckCopies = Callable[[list[CopyTask]], Coroutine[Any, Any, list[CopyBlock]]]
OnFinding = Callable[[CopyFinding], None]
Untold = dict[tuple[int | None, str], str]


def scrub(client: Client, options: ScrubOptions = USUAL, on_finding: OnFinding | None = None) -> ScrubResult:
    """Check every entry of every ledger on every bookie that should hold it. Nothing is changed, but for marks of
    repair where options ask for them. on_finding: called with each finding as soon as it is certain.

    Raises:
        UsageError: the state file is of another cluster or level; or repair is asked for below the level that has it.
        StorageError: the state file cannot be read or written.
        MetadataUnavailable: no member answers.
    """
    return run_blocking(scrub_cluster(client._runtime, options, on_finding=on_finding), "embedbk spark scrub")


async def scrub_cluster(
    runtime: Runtime,
    options: ScrubOptions,
    check: CheckCopies | None = None,
    on_finding: OnFinding | None = None,
    files: ArchiveFiles | None = None,
) -> ScrubResult:
    """As `scrub`. check: runs the reads, as `check_here` does. files: what reads archives; None: from their places."""
    runtime.check()
    if options.queues_repair and not runtime.has_level(LEVEL_OF_COPIES):
        raise UsageError(
            f"repair needs level {LEVEL_OF_COPIES} of the cluster; nothing was scrubbed",
            hint="raise it when all nodes run this build: embedbk quorum raise",
        )
    told = await runtime.ask(Tell(0), _WHAT)
    if not isinstance(told, Told):
        raise PeerError(f"{_WHAT}: the metadata member answered with a {type(told).__name__}")
    state = ScrubProgress(options.state, told.cluster_token, options.level)
    reads = check or check_here(runtime, check_options(options))
    found = on_finding or (lambda _: None)
    return await _Scrub(runtime, options, reads, state, found, files or FilesOfArchives()).run()


def check_options(options: ScrubOptions) -> CopyCheckOptions:
    return CopyCheckOptions(
        bytes_per_s=math.ceil(options.mbps_max * 1e6),  # A bound is never 0, which says that there is none.
        tells_bookies=options.queues_repair,
        is_independent=options.is_independent,
    )


def check_here(runtime: Runtime, options: CopyCheckOptions) -> CheckCopies:
    """Reads by this client, from all bookies at once."""

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        blocks: list[CopyBlock] = await runtime.run_to_its_end(CopiesCheck(tasks, options), _WHAT)
        return blocks

    return check


@dataclass(slots=True)
class _Judged:
    """What was found in one ledger, under one value of its key. last: the entry up to which it was read."""

    value: bytes
    last: int = NO_ENTRY
    findings: list[CopyFinding] = field(default_factory=list)
    untold: dict[str, str] = field(default_factory=dict)  # By bookie; "": the ledger as a whole.
    units: list[Unit] = field(default_factory=list)  # In which something is not sound.
    sound_to: int = NO_ENTRY
    blocks: list[CopyBlock] = field(default_factory=list)  # They are kept where the ledger is archived.
    unarchived: str = ""  # Why it could not be compared with its archive.
    compared: ArchivedLedger | None = None  # The archive whose files hold what the copies do.

    @property
    def is_sound(self) -> bool:
        return not self.findings and not self.untold and not self.unarchived

    def is_as(self, other: _Judged) -> bool:
        """Whatever the order in which bookies answered."""
        same = (self.value, set(self.findings), self.untold.keys(), bool(self.unarchived))
        return same == (other.value, set(other.findings), other.untold.keys(), bool(other.unarchived))


class _Scrub:
    def __init__(
        self,
        runtime: Runtime,
        options: ScrubOptions,
        check: CheckCopies,
        state: ScrubProgress,
        on_finding: OnFinding,
        files: ArchiveFiles,
    ) -> None:
        self.runtime, self.options, self.check, self.state = runtime, options, check, state
        self.files = files
        self.on_finding = on_finding
        self.password = Password(options.password)
        self.result = ScrubResult()
        self.suspects: dict[int, _Judged] = {}
        self.archived: dict[int, ArchivedLedger] = {}

    async def run(self) -> ScrubResult:
        known: dict[int, bytes] = {}
        for record in await self.runtime.list_keys(LEDGERS_PREFIX, _WHAT):
            ledger_id = ledger_of_key(record.key)
            if ledger_id is not None:
                known[ledger_id] = record.value or b""
        if self.options.compares:
            self.archived = await archived_ledgers(self.runtime, _WHAT)
        for part in _parts(list((await self._new(known)).items()), STATUS_AT_ONCE):
            self._take(await self._judge(dict(part)))
            self.state.save()
        orphans = await self._orphans(known)
        await self._judge_again()
        await self._check_lists(orphans)
        if self.options.queues_repair:
            await self._queue()
        if self.result.is_complete:
            self.state.finish()
        return self.result

    async def _new(self, known: dict[int, bytes]) -> dict[int, bytes]:
        """Without the ledgers that were closed before the time from which on all are read."""
        if self.options.since_ms is None:
            return known
        names = await log_names(self.runtime, "")
        old = await closed_before(self.runtime, names, self.options.since_ms, _WHAT)
        self.result.passed = len(old & known.keys())
        return {ledger_id: value for ledger_id, value in known.items() if ledger_id not in old}

    def _take(self, judged: dict[int, _Judged]) -> None:
        for ledger_id, found in judged.items():
            self.result.ledgers += 1
            if found.sound_to > NO_ENTRY:
                self.state.note(ledger_id, found.value, found.sound_to)
            if not found.is_sound:
                self.suspects[ledger_id] = found

    # Judging ledgers.

    async def _judge(
        self, values: dict[int, bytes], before: dict[int, _Judged] | None = None
    ) -> dict[int, _Judged]:
        """before: of the same ledgers; where the value is the same, only what was not sound is looked at again."""
        judged: dict[int, _Judged] = {}
        views: dict[int, LedgerMetadata] = {}
        for ledger_id, value in values.items():
            judged[ledger_id] = _Judged(value)
            try:
                views[ledger_id] = decode_ledger_metadata(value, ledger_id)
            except StorageError as unread:
                judged[ledger_id].untold[""] = str(unread)
        if self.options.level == "meta":
            await self._count(views, judged)
            return judged
        await self._find_ends(views, judged)
        units: list[Unit] = []
        for ledger_id, metadata in views.items():
            was = before.get(ledger_id) if before is not None else None
            mine = judged[ledger_id]
            if was is not None and was.value == mine.value and was.last > NO_ENTRY:
                units += was.units
                mine.last, mine.untold = was.last, {k: why for k, why in was.untold.items() if not k}
                continue
            done = NO_ENTRY if before is not None else self.state.done_up_to(ledger_id, mine.value)
            self.result.skipped += done > NO_ENTRY and done >= mine.last
            mine.sound_to = done
            units += units_of(metadata, mine.last, done + 1)
        for batch in _batches(units):
            await self._judge_units(batch, judged)
        for ledger_id, metadata in views.items():
            await self._compare_with_archive(metadata, judged[ledger_id], before)
        return judged

    async def _compare_with_archive(
        self, metadata: LedgerMetadata, mine: _Judged, before: dict[int, _Judged] | None
    ) -> None:
        """Of a closed ledger that is archived, and not freed: its copies, and what its files hold."""
        archived = self.archived.get(metadata.ledger_id)
        if archived is None or not metadata.is_closed or metadata.freed is not None:
            return
        was = before.get(metadata.ledger_id) if before is not None else None
        if was is not None and was.value == mine.value and was.compared == archived:
            mine.compared = archived
            return
        if before is None and mine.sound_to == mine.last and not mine.blocks:
            return  # An earlier scrub of the same state file has compared it.
        copies = Copies(self._there, self._blocks)
        found, mine.unarchived = await compare_with_archive(
            metadata, archived, self.files, mine.blocks, copies
        )
        mine.findings += found
        mine.blocks = []
        if found or mine.unarchived:
            mine.sound_to = NO_ENTRY
        else:
            mine.compared = archived

    def _there(self, tasks: Iterable[CopyTask]) -> list[CopyTask]:
        there = {info.member for info in self.runtime.bookies}
        return [task for task in tasks if task.member in there]

    async def _find_ends(self, views: dict[int, LedgerMetadata], judged: dict[int, _Judged]) -> None:
        """The last entry of closed ledgers; of others the highest LAC that one of the last fragment tells."""
        open_ones = [each for each in views.values() if not each.is_closed]
        for metadata in views.values():
            if metadata.last_entry is not None:
                judged[metadata.ledger_id].last = metadata.last_entry
        statuses = await self._all(StatusQuery(each) for each in open_ones)
        for metadata, seats in zip(open_ones, statuses, strict=True):
            found: tuple[SeatStatus, ...] = seats
            mine = judged[metadata.ledger_id]
            told = [seat.lac for seat in found if seat.has_answered]
            mine.last = max(told, default=NO_ENTRY)
            if not told:
                mine.untold[""] = "no bookie of its last fragment tells its LAC"
            mine.last = max(mine.last, metadata.fragments[-1].first_entry - 1)

    async def _all(self, cores: Iterable[Machine]) -> list[Any]:
        running = [OneResult(core) for core in cores]
        for each in running:
            self.runtime.start(each)
        limit = self.runtime.settings.operation_timeout_s
        return [await FutureResult(each.future, limit, _WHAT) for each in running]

    def _tags_of(self, metadata: LedgerMetadata, judged: _Judged) -> tuple[int, bytes]:
        """(digest whose tags are checked, key for them)."""
        if metadata.digest != DigestType.HMAC:
            return metadata.digest, b""
        if self.options.level == "mac":
            try:
                self.password.check(metadata)
                return metadata.digest, self.password.mac_key
            except WrongPassword:
                judged.untold[""] = "it has another password, so its tags cannot be checked"
        return DigestType.CRC32C, b""

    async def _judge_units(self, units: Sequence[Unit], judged: dict[int, _Judged]) -> None:
        there = {info.member.bookie_id: info.member for info in self.runtime.bookies}
        tasks: list[CopyTask] = []
        for unit in units:
            mine = judged[unit.ledger_id]
            for task in tasks_of(unit, *self._tags_of(unit.metadata, mine)):
                if there.get(task.member.bookie_id) == task.member:
                    tasks.append(task)
                else:
                    mine.untold[task.member.bookie_id] = "it is away"
        blocks = await self._blocks(tasks)
        by_unit = _by_unit(units, blocks)
        found = {_key(unit): judge_copies(unit, by_unit[_key(unit)]) for unit in units}
        if self.options.compares:
            again = [task for unit in units for task in tasks_by_entry(by_unit[_key(unit)])]
            if again:
                closer = _by_unit(units, await self._blocks(again))
                for unit in units:
                    found[_key(unit)] += differing_entries(unit, closer[_key(unit)])
        looked_for = [task for unit in units for task in strays(unit, found[_key(unit)], there)]
        if looked_for:
            others = _by_unit(units, await self._blocks(looked_for))
            for unit in units:
                found[_key(unit)] += strays_found(unit, others[_key(unit)])
        for unit in units:
            mine = judged[unit.ledger_id]
            if unit.ledger_id in self.archived:
                mine.blocks += by_unit[_key(unit)]
            untold = {b.task.member.bookie_id: b.untold for b in by_unit[_key(unit)] if b.untold}
            mine.untold |= untold
            mine.findings += found[_key(unit)]
            if found[_key(unit)] or untold or self._is_away(unit, there):
                mine.units.append(unit)
            elif mine.sound_to == unit.first - 1 and "" not in mine.untold:
                mine.sound_to = unit.last

    def _is_away(self, unit: Unit, there: dict[str, Member]) -> bool:
        members = {member for fragment in unit.metadata.fragments for member in fragment.members}
        return any(there.get(member.bookie_id) != member for member in members)

    async def _blocks(self, tasks: list[CopyTask]) -> list[CopyBlock]:
        blocks = await self.check(tasks) if tasks else []
        read = {block.task for block in blocks}
        blocks += [CopyBlock(task, untold="it was not read") for task in tasks if task not in read]
        self.result.copies += sum(each.given for each in blocks)
        self.result.bytes_read += sum(each.bytes_read for each in blocks)
        return blocks

    async def _count(self, views: dict[int, LedgerMetadata], judged: dict[int, _Judged]) -> None:
        """Level meta: what bookies know by their indexes (P11.4), of closed ledgers."""
        closed = {ledger_id: each for ledger_id, each in views.items() if each.is_closed}
        there = frozenset(info.member for info in self.runtime.bookies)
        options = CheckOptions(is_brief=False)
        checked: Checked = await self.runtime.run_to_its_end(HoldingCheck(closed, there, options), _WHAT)
        for ledger_id, metadata in closed.items():
            assert metadata.last_entry is not None
            mine = judged[ledger_id]
            members = {each.bookie_id: each for part in metadata.fragments for each in part.members}
            blocks = [
                CopyBlock(CopyTask(ledger_id, members[bookie_id], owed), missing=tuple(lacking))
                for bookie_id, shortage in checked.short.get(ledger_id, {}).items()
                for owed, lacking in shortage.parts
            ]
            unit = Unit(metadata, 0, max(0, metadata.last_entry))
            mine.findings = judge_copies(unit, blocks)
            for conflict in checked.conflicts.get(ledger_id, ()):
                text = ", ".join(f"{name}: {digest:016x}" for name, digest in conflict.copies)
                entry_id = conflict.entry_id
                mine.findings.append(
                    CopyFinding("replicas-differ", ledger_id, entry_id, entry_id, 1, "", text)
                )
            mine.untold |= checked.untold.get(ledger_id, {})
            # Entries that are named say more.
            for each in () if ledger_id in checked.conflicts else checked.unlike.get(ledger_id, ()):
                text = f"{each.bookie_id}: not what their writer published"
                mine.findings.append(
                    CopyFinding("replicas-differ", ledger_id, each.first, each.last, 1, each.bookie_id, text)
                )
            for member in members.values():
                if member not in there:
                    mine.untold.setdefault(member.bookie_id, "it is away")
            mine.last = metadata.last_entry
            mine.sound_to = metadata.last_entry if mine.is_sound else NO_ENTRY

    # Judging again.

    async def _judge_again(self) -> None:
        """What does not stay as it was found, beside an unchanged key, is no finding."""
        for number in range(self.options.rounds):
            if not self.suspects:
                return
            await Moved(Signal(), lambda: False, self.options.settle_s)
            values: dict[int, bytes] = {}
            for ledger_id in list(self.suspects):
                value, _ = await self.runtime.get(ledger_key_path(ledger_id), _WHAT)
                if value is None:
                    del self.suspects[ledger_id]  # It was deleted, or truncated.
                else:
                    values[ledger_id] = value
            is_last = number + 1 == self.options.rounds
            if self.options.compares:
                self.archived = await archived_ledgers(self.runtime, _WHAT)
            now = await self._judge(values, self.suspects)
            for ledger_id, found in now.items():
                was = self.suspects.pop(ledger_id)
                if found.is_sound:
                    continue
                in_repair = await self._is_in_repair(ledger_id)
                if found.is_as(was) and (is_last or not in_repair):
                    self._report(ledger_id, found, "; it is marked for repair" if in_repair else "")
                elif is_last:
                    found.findings = [each for each in found.findings if each in was.findings]
                    found.untold.setdefault("", "it kept changing while it was scrubbed")
                    self._report(ledger_id, found, "")
                else:
                    self.suspects[ledger_id] = found

    async def _is_in_repair(self, ledger_id: int) -> bool:
        mark, _ = await self.runtime.get(repair_mark_path(ledger_id), _WHAT)
        if mark is None:
            return False
        control, _ = await self.runtime.get(CONTROL_KEY, _WHAT)
        try:
            return control is None or not decode_repair_control(control).is_stopped
        except StorageError:
            return False

    def _report(self, ledger_id: int, judged: _Judged, more: str) -> None:
        for finding in judged.findings:
            said = finding._replace(text=finding.text + more)
            self.result.findings.append(said)
            self.on_finding(said)
        for bookie_id, why in judged.untold.items():
            self.result.untold[ledger_id, bookie_id] = why
        if judged.unarchived:
            self.result.untold.setdefault((ledger_id, ""), judged.unarchived)

    # Lists of logs.

    async def _orphans(self, known: dict[int, bytes]) -> dict[int, str]:
        """Ledgers that name a log which is not there, and was not deleted either."""
        logs = {record.key.removeprefix(IDENTITIES_PREFIX) for record in await self._identities()}
        logs |= set(await log_names(self.runtime, ""))
        found: dict[int, str] = {}
        for ledger_id, value in known.items():
            try:
                name = decode_ledger_metadata(value, ledger_id).custom.get(LOG_OF_A_LEDGER)
            except StorageError:
                continue
            if name is not None and name.decode(errors="replace") not in logs:
                found[ledger_id] = name.decode(errors="replace")
        return found

    async def _identities(self) -> list[Any]:
        return list(await self.runtime.list_keys(IDENTITIES_PREFIX, _WHAT))

    async def _check_lists(self, orphans: dict[int, str]) -> None:
        found: list[CopyFinding] = []
        names = await log_names(self.runtime, "")
        known = await known_ledgers(self.runtime, _WHAT) if names else None
        for name in names:
            try:
                findings = await check_log(self.runtime, name, known)
            except NoSuchLedger:
                continue  # It was deleted meanwhile.
            except (MetadataConflict, StorageError) as untold:
                self.result.untold[None, ""] = str(untold)
                continue
            for each in findings:
                kind = "orphan-ledger" if each.is_unlisted else "dangling-segment"
                found.append(CopyFinding(kind, each.ledger_id, None, None, 0, "", each.text, name))
        if orphans:
            there: dict[int, bytes] = {}
            for ledger_id in orphans:
                value, _ = await self.runtime.get(ledger_key_path(ledger_id), _WHAT)
                if value is not None:
                    there[ledger_id] = value
            for ledger_id, log in (await self._orphans(there)).items():
                text = f"it names log {log!r}, which is not there"
                found.append(CopyFinding("orphan-ledger", ledger_id, None, None, 0, "", text, log))
        for finding in found:
            self.result.findings.append(finding)
            self.on_finding(finding)

    # Repair.

    async def _queue(self) -> None:
        """Mark ledgers with copies that are missing or bad, as the auditor does (P11.1)."""
        lacking: dict[int, set[str]] = defaultdict(set)
        for each in self.result.findings:
            if each.kind in ("missing", "crc") and each.ledger_id is not None:
                lacking[each.ledger_id].add(each.bookie)
        marks: list[tuple[int, tuple[str, ...]]] = []
        for ledger_id, bookies in sorted(lacking.items()):
            named = tuple(sorted(bookies))
            while not is_missing_set(named):
                named = named[:-1]
            marks.append((ledger_id, named))
        for part in _parts(marks, REPAIRS_MAX):
            answer = await self.runtime.ask(MarkRepairs(tuple(part), self.runtime.wall_ms()), _WHAT)
            left = answer.left if isinstance(answer, RepairsMarked) else ()
            self.result.queued += len(part) - len(left)


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def _batches(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    batch: list[Unit] = []
    ids = 0
    for unit in units:
        batch.append(unit)
        ids += unit.last - unit.first + 1
        if len(batch) >= BATCH_UNITS or ids >= BATCH_IDS:
            yield batch
            batch, ids = [], 0
    if batch:
        yield batch


def _key(unit: Unit) -> tuple[int, int]:
    return unit.ledger_id, unit.first


def _by_unit(units: Sequence[Unit], blocks: Iterable[CopyBlock]) -> dict[tuple[int, int], list[CopyBlock]]:
    """Blocks that have ids of a unit; one that has ids of two belongs to both."""
    by_ledger: dict[int, list[CopyBlock]] = defaultdict(list)
    for block in blocks:
        by_ledger[block.task.ledger_id].append(block)
    return {
        _key(unit): [
            each
            for each in by_ledger[unit.ledger_id]
            if each.task.owed.first <= unit.last and each.task.owed.last >= unit.first
        ]
        for unit in units
    }
