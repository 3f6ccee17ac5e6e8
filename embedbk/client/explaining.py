"""Why a ledger is as it is: what each bookie answered, which rule applies, which quorum is missing, what is safe to do
next.

Changes nothing and fences no ledger. The result is data for programs, and text for people.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from embedbk.client.ledger_ids import check_ledger_id
from embedbk.client.runtime import Runtime
from embedbk.codec.adopted import AdoptedLedger, adopted_path, decode_adopted
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, decode_ledger_metadata, ledger_key_path
from embedbk.codec.lost_entries import is_lost, lost_count
from embedbk.codec.repair_state import Unrepairable, decode_unrepairable, unrepairable_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.config import Quorum
from embedbk.core.quorum import has_ack_quorum, has_coverage, residues_of, write_set
from embedbk.core.status_query import SeatStatus, StatusQuery
from embedbk.ids import NO_ENTRY

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`str()` of it is the text."""

    ledger_id: int
    state: str  # OPEN, IN_RECOVERY, CLOSED, DELETED (can be brought back), ABSENT.
    quorum: Quorum | None = None
    last_entry: int | None = None
    lac: int | None = None  # The highest LAC reported, of a ledger that is not closed.
    fragment_count: int = 0
    seats: tuple[SeatStatus, ...] = ()  # The ensemble of the last fragment.
    rules: tuple[str, ...] = ()  # The rules that apply, and what they mean here.
    missing: tuple[str, ...] = ()  # Write sets that lack a quorum, and the bookies that could fill it.
    next_step: str = ""

    def __str__(self) -> str:
        lines = [f"ledger {self.ledger_id}: {self.state}" + self._size()]
        for seat in self.seats:
            fenced = ", fenced" if seat.is_fenced else ""
            holds = {True: ", holds the last entry", False: ", lacks the last entry", None: ""}[
                seat.holds_last
            ]
            lines.append(
                f"  seat {seat.seat}  {seat.bookie_id}: {seat.status}, LAC {seat.lac}{fenced}{holds}"
            )
        lines += [f"  rule: {rule}" for rule in self.rules]
        lines += [f"  missing: {missing}" for missing in self.missing]
        return "\n".join([*lines, f"  next: {self.next_step}"])

    def _size(self) -> str:
        if self.quorum is None:
            return ""
        end = f"last entry {self.last_entry}" if self.last_entry is not None else f"LAC heard {self.lac}"
        e, w, a = self.quorum.ensemble_size, self.quorum.write_quorum, self.quorum.ack_quorum
        return f", E {e} Qw {w} Qa {a}, {self.fragment_count} fragments, {end}"


async def explain(runtime: Runtime, ledger_id: int) -> Explanation:
    check_ledger_id(ledger_id)
    what = f"explaining ledger {ledger_id}"
    value, _ = await runtime.get(ledger_key_path(ledger_id), what)
    if value is None:
        return await _explain_absent(runtime, ledger_id, what)
    metadata = decode_ledger_metadata(value, ledger_id)
    if metadata.freed is not None:
        return _explain_freed(metadata, metadata.freed)
    seats: tuple[SeatStatus, ...] = await runtime.run(StatusQuery(metadata), what)
    told = conclude(metadata, seats)
    stopped, _ = await runtime.get(unrepairable_path(ledger_id), what)
    if stopped is not None:
        told = _with_stopped(told, decode_unrepairable(stopped))
    kept, _ = await runtime.get(adopted_path(ledger_id), what)
    return told if kept is None else replace(told, rules=(*told.rules, _adopted(decode_adopted(kept))))


def _with_stopped(told: Explanation, found: Unrepairable) -> Explanation:
    """What keeps repair from making all of its copies."""
    rule = f"P11.2: repair stopped in the fragment from entry {found.first_entry} on, until something changes"
    if found.entry_id == NO_ENTRY:
        return replace(told, rules=(*told.rules, rule), missing=(*told.missing, found.why))
    return replace(
        told,
        rules=(*told.rules, rule),
        missing=(*told.missing, f"a good copy of entry {found.entry_id}: {found.why}"),
        next_step=f"bring back a bookie that has a good copy of entry {found.entry_id}; the other entries are read "
        "and copied as ever",
    )


def _adopted(record: AdoptedLedger) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.adopted_ms / 1000))
    gone = f"; not waited for: {', '.join(name for name, _ in record.gone)}" if record.gone else ""
    lost = ", ".join(f"{first} to {last}" for first, last in record.lost)
    given_up = f"; acknowledged entries that were given up: {lost}" if lost else ""
    return f"P10.5: adopted from what bookies hold, by {record.by} at {when}{gone}{given_up}"


def _explain_freed(metadata: LedgerMetadata, freed: Freed) -> Explanation:
    """Explain a freed ledger. No bookie is asked, because none has to have a copy."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(freed.freed_ms / 1000))
    files = f"files of the archive {freed.archive_id.hex()} in {freed.path!r}, of the manifest {freed.manifest.hex()}"
    rules = (
        "P2.3: its last entry never changes",
        f"P8.14: its copies are {files}; its bookies gave theirs up for them at {when}, by {freed.by}",
        "P7.7: no fragment names a bookie, so each that has copies still drops them",
    )
    return Explanation(
        metadata.ledger_id,
        LedgerState(metadata.state).name,
        metadata.quorum,
        metadata.last_entry,
        None,
        len(metadata.fragments),
        (),
        rules,
        next_step="read it, where that archive is mounted; verify-archive says whether its files are sound, and "
        "embedbk spark restore LOG --in-place brings it back to bookies",
    )


async def _explain_absent(runtime: Runtime, ledger_id: int, what: str) -> Explanation:
    stone, _ = await runtime.get(tombstone_path(ledger_id), what)
    if stone is not None:
        rules = (
            "CL32: a deleted ledger is gone for all, and can be brought back while its tombstone stands",
        )
        return Explanation(
            ledger_id, "DELETED", rules=rules, next_step=f"undelete_ledger({ledger_id}), or nothing"
        )
    rules = ("P2.2: a key that is gone counts as CLOSED; an id is never used again",)
    return Explanation(
        ledger_id, "ABSENT", rules=rules, next_step="nothing; check the id: ledgers() lists those that exist"
    )


def conclude(metadata: LedgerMetadata, seats: tuple[SeatStatus, ...]) -> Explanation:
    """The conclusions from the metadata and from what the bookies answered."""
    quorum = metadata.quorum
    answered = sum(1 << seat.seat for seat in seats if seat.has_answered)
    rules: list[str] = []
    missing: list[str] = []
    if metadata.is_closed:
        next_step = _conclude_closed(metadata, seats, rules, missing)
    else:
        need = quorum.write_quorum - quorum.ack_quorum + 1
        covers = has_coverage(answered, quorum)
        verb = "is" if covers else "is not"
        rules.append(
            f"P5.2b: recovery needs {need} of every write set to confirm a fence; that {verb} to be had now"
        )
        if not covers:
            missing += _short_sets(metadata, seats, answered, need)
        if metadata.state == LedgerState.OPEN:
            residues = residues_of(0, quorum.ensemble_size - 1, quorum)
            can = has_ack_quorum(answered & ~_fenced(seats), residues, quorum)
            rules.append(
                f"P4.5: its writer needs {quorum.ack_quorum} of every write set"
                + ("; they are there" if can else ", or replaces who is missing; it has too few of them now")
            )
            rules.append("P6.2: it is read up to its LAC without disturbing its writer")
        else:
            rules.append("P5.2: somebody began its recovery; any number of clients may, and all end alike")
        safe = "open_ledger(recover=True) closes it, and fences its writer if there is one still"
        wait = "bring back the bookies named above; recovery without them would be inconclusive, and lose nothing"
        next_step = safe if covers else wait
    return Explanation(
        metadata.ledger_id,
        LedgerState(metadata.state).name,
        quorum,
        metadata.last_entry,
        None if metadata.is_closed else max((seat.lac for seat in seats), default=-1),
        len(metadata.fragments),
        seats,
        tuple(rules),
        tuple(missing),
        next_step,
    )


def _conclude_closed(
    metadata: LedgerMetadata, seats: tuple[SeatStatus, ...], rules: list[str], missing: list[str]
) -> str:
    rules.append("P2.3: its last entry never changes")
    if metadata.lost:
        rules.append(
            f"P11.5: {lost_count(metadata.lost)} of its entries were given up for ever; readers get Lost there"
        )
    if metadata.last_entry == -1:
        return "nothing: it is empty"
    rules.append("P6.1: any entry is read from any good copy of its write set")
    if metadata.last_entry is None or metadata.last_entry < metadata.fragments[-1].first_entry:
        return "read it; the last fragment holds no entry"
    if is_lost(metadata.lost, metadata.last_entry):
        return "read it, with skip_lost=True behind what was given up: its last entry is part of that"
    owing = write_set(metadata.last_entry, metadata.quorum)
    good = [seats[seat].bookie_id for seat in owing if seats[seat].holds_last]
    others = [
        f"{seats[seat].bookie_id} ({seats[seat].status})" for seat in owing if not seats[seat].holds_last
    ]
    if not others:
        return "read it: every copy of its last entry is there"
    missing.append(f"{len(others)} of {len(owing)} copies of its last entry: {', '.join(others)}")
    if good:
        return f"read it: {', '.join(good)} hold its end; a reader writes a missing copy again (RP32)"
    return "bring one of these bookies back: nobody who answers holds its end"


def _short_sets(
    metadata: LedgerMetadata, seats: tuple[SeatStatus, ...], answered: int, need: int
) -> list[str]:
    found = []
    for residue in residues_of(0, metadata.ensemble_size - 1, metadata.quorum):
        in_set = write_set(residue, metadata.quorum)
        have = sum(answered >> seat & 1 for seat in in_set)
        if have < need:
            silent = ", ".join(
                f"{seats[seat].bookie_id} ({seats[seat].status})"
                for seat in in_set
                if not answered >> seat & 1
            )
            found.append(f"{need - have} more of {silent}")
    return list(dict.fromkeys(found))


def _fenced(seats: tuple[SeatStatus, ...]) -> int:
    return sum(1 << seat.seat for seat in seats if seat.is_fenced)
