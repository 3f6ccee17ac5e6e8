"""What a space report is made of: the metadata, and how long bookies say that open ledgers are (REPORT.md).

Reads alone. Decides which bookies' word counts for an open ledger: the highest LAC that one tells, with its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from embedbk.client.bookie_states import bookie_states
from embedbk.client.client import Client
from embedbk.client.cursors import cursors
from embedbk.client.entry_logs import BookieLogs, entry_logs, log_keepers
from embedbk.client.log_checking import LOG_OF_A_LEDGER, STAGED
from embedbk.client.log_end import log_end
from embedbk.client.log_names import log_names
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.truncating import pins
from embedbk.client.waiting import FutureResult, Moved, run_blocking
from embedbk.codec.entry_log_messages import EntryLogRow
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_of_key,
)
from embedbk.codec.log_identity import IDENTITIES_PREFIX, LogIdentityState, decode_log_identity
from embedbk.codec.log_list import log_owner_path
from embedbk.codec.tombstone import DELETED_PREFIX, decode_tombstone
from embedbk.core.status_query import SeatStatus, StatusQuery
from embedbk.errors import EmbedbkError, NotEnoughBookies, StorageError, UsageError
from embedbk.host.operations import OneResult
from embedbk.host.signal import Signal
from embedbk.ids import NO_ENTRY
from embedbk.report.figures import (
    KEEPERS_MAX,
    KEPT_MAX,
    BookieRoom,
    KeptLog,
    LedgerSpace,
    ReportedLog,
    SpaceReport,
    figures_of,
)

__all__ = ["gather", "space_report"]

_WHAT = "making a space report"
ASKED_AT_ONCE = 64


def space_report(client: Client, *, sample_s: float = 0.0) -> SpaceReport:
    """Where the space is. sample_s: look at open ledgers again after so long, to see which grow.

    Raises:
        MetadataUnavailable: no member answers. UsageError: sample_s is not 0 to 3600.
    """
    return run_blocking(gather(client._runtime, sample_s), "embedbk spark report")


async def gather(runtime: Runtime, sample_s: float = 0.0) -> SpaceReport:
    """As `space_report`."""
    runtime.check()
    is_number = isinstance(sample_s, int | float) and not isinstance(sample_s, bool)
    if not is_number or not 0 <= sample_s <= 3600:
        raise UsageError(f"sample_s={sample_s!r:.80}: 0 to 3600 are allowed")
    unread: list[str] = []
    ledgers = await _ledgers(runtime, unread)
    ledgers = await _told(runtime, ledgers)
    if sample_s:
        await Moved(Signal(), lambda: False, sample_s)
        later = await _told(runtime, ledgers)
        ledgers = [
            new._replace(was_entries=old.entries, was_length=old.length) if old.is_told else new
            for old, new in zip(ledgers, later, strict=True)
        ]
    logs = await _logs(runtime, unread)
    told = await entry_logs(runtime)
    on_disk = {each.bookie_id: each.logs for each in told if not each.why}
    bookies: list[BookieRoom] = []
    for each in await bookie_states(runtime):
        mine = on_disk.get(each.bookie_id)
        disk, dead = (
            (None, None) if mine is None else (sum(log.file_bytes for log in mine), sum(map(_dead, mine)))
        )
        bookies.append(BookieRoom(each.bookie_id, each.state, each.free_bytes, disk, dead))
    kept = await _kept(runtime, told)
    return figures_of(ledgers, logs, bookies, runtime.wall_ms(), sample_s, unread, kept)


def _dead(log: EntryLogRow) -> int:
    """Bytes of its entries that count no more."""
    return log.entries_bytes - log.live_bytes


async def _kept(runtime: Runtime, told: Iterable[BookieLogs]) -> list[KeptLog]:
    """The entry logs of all bookies that have the most dead bytes, and are kept all the same. A bookie that does not
    tell any more has none."""
    logs = [(_dead(log), each.member, log) for each in told if each.member is not None for log in each.logs]
    worst = sorted((each for each in logs if each[0] and each[2].live_bytes), key=lambda each: -each[0])
    found: list[KeptLog] = []
    for dead, member, log in worst[:KEPT_MAX]:
        try:
            keepers = sorted(
                await log_keepers(runtime, member, log.log_id), key=lambda each: -each.live_bytes
            )
        except NotEnoughBookies:
            continue
        named = tuple((each.ledger_id, "", each.live_bytes) for each in keepers[:KEEPERS_MAX])
        found.append(KeptLog(member.bookie_id, log.log_id, log.file_bytes, dead, len(keepers), named))
    return found


async def _ledgers(runtime: Runtime, unread: list[str]) -> list[LedgerSpace]:
    found: list[LedgerSpace] = []
    for record in await runtime.list_keys(LEDGERS_PREFIX, _WHAT):
        ledger_id = ledger_of_key(record.key)
        if ledger_id is None:
            continue
        try:
            found.append(_space(decode_ledger_metadata(record.value or b"", ledger_id)))
        except StorageError:
            unread.append(record.key)
    for record in await runtime.list_keys(DELETED_PREFIX, _WHAT):
        try:
            stone = decode_tombstone(record.value or b"")
            space = _space(decode_ledger_metadata(stone.metadata, stone.ledger_id))
        except StorageError:
            unread.append(record.key)
            continue
        found.append(space._replace(deleted_until_ms=max(1, stone.until_ms)))
    return found


def _space(metadata: LedgerMetadata) -> LedgerSpace:
    """An open one as far as its metadata knows: up to its last fragment."""
    log = metadata.custom.get(LOG_OF_A_LEDGER, b"").decode(errors="replace")
    last = metadata.fragments[-1]
    if metadata.last_entry is None:
        entries, length = last.first_entry, last.length_before
    else:
        entries, length = metadata.last_entry + 1, metadata.length or 0
    return LedgerSpace(metadata, log, entries, length, is_staged=STAGED in metadata.custom)


async def _told(runtime: Runtime, ledgers: list[LedgerSpace]) -> list[LedgerSpace]:
    """Open ledgers as long as their bookies say."""
    asked = [
        place
        for place, each in enumerate(ledgers)
        if not each.metadata.is_closed and not each.deleted_until_ms
    ]
    told = list(ledgers)
    for begin in range(0, len(asked), ASKED_AT_ONCE):
        part = asked[begin : begin + ASKED_AT_ONCE]
        running = [OneResult(StatusQuery(ledgers[place].metadata)) for place in part]
        for each in running:
            runtime.start(each)
        for place, each in zip(part, running, strict=True):
            seats: tuple[SeatStatus, ...] = await FutureResult(
                each.future, runtime.settings.operation_timeout_s, _WHAT
            )
            told[place] = _with(told[place], seats)
    return told


def _with(ledger: LedgerSpace, seats: Iterable[SeatStatus]) -> LedgerSpace:
    heard = [(seat.lac, seat.lac_length) for seat in seats if seat.has_answered]
    if not heard:
        return ledger._replace(is_told=False)
    lac, length = max(heard)
    if lac == NO_ENTRY or lac + 1 < ledger.entries:
        return ledger
    return ledger._replace(entries=lac + 1, length=max(length, ledger.length))


async def _logs(runtime: Runtime, unread: list[str]) -> dict[str, ReportedLog]:
    """By log id. A log from below the level of ids is its name."""
    logs: dict[str, ReportedLog] = {}
    for record in await runtime.list_keys(IDENTITIES_PREFIX, _WHAT):
        log_id = record.key.removeprefix(IDENTITIES_PREFIX)
        try:
            identity = decode_log_identity(record.value or b"", log_id)
        except StorageError:
            unread.append(record.key)
            continue
        if identity.state != LogIdentityState.GONE:
            is_deleted = identity.state != LogIdentityState.NAMED
            logs[log_id] = ReportedLog(identity.name, is_deleted=is_deleted)
    called = {facts.name for facts in logs.values() if not facts.is_deleted}
    for name in await log_names(runtime, ""):
        if name not in called:
            logs[name] = ReportedLog(name)
    for log_id, facts in list(logs.items()):
        if not facts.is_deleted:
            owner, _ = await runtime.get(log_owner_path(log_id), _WHAT)
            said = (owner or b"").decode(errors="replace")
            consumed = await _consumed(runtime, facts.name)
            logs[log_id] = facts._replace(owner=said, consumed_bytes=consumed)
    return logs


async def _consumed(runtime: Runtime, name: str) -> int | None:
    """Payload bytes before all cursors and pins; None: there are none, or it cannot be told now."""
    reading = LogReading(runtime, name, Password(b""))
    try:
        holding = [each.offset for each in await cursors(reading) if each.holds]
        holding += [each.offset for each in await pins(reading)]
        end = await log_end(reading) if holding else None
    except EmbedbkError:
        return None  # Deleted meanwhile, or with another password.
    if end is None:
        return None
    first, behind = end.bytes_from(0), end.bytes_from(min(holding))
    return None if first is None or behind is None else first - behind
