"""Putting ledgers that truncation let go back in front of their log (P8.15), for both faces.

Decides which of them come back: from the newest to the oldest, each only where bookies say that a quorum holds it. One
transaction compares the tombstones, the list and the placements. `core.fronting` decides how the list names them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from embedbk.client.bookie_reports import registered_now
from embedbk.client.deleting import placements_now
from embedbk.client.log_pages import ListWalk, PageGone
from embedbk.client.log_places import Start
from embedbk.client.log_reading import LogReading
from embedbk.client.repair_state import ask_bookies
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import (
    LogList,
    LogSegment,
    decode_ledgers_left,
    encode_log_list,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.log_pages import LogPage, decode_log_page, encode_log_page, log_page_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.codec.tombstone import DELETED_PREFIX, Tombstone, decode_tombstone, tombstone_path
from embedbk.core.dropping import Dropping
from embedbk.core.fronting import Front, front_of, with_front
from embedbk.core.quorum import residues_of, write_set_mask
from embedbk.errors import MetadataConflict, NoSuchLedger, StorageError, UsageError
from embedbk.ids import Member, Position
from embedbk.metadata.levels import LEVEL_OF_FRONTS
from embedbk.metadata.limits import DEFAULT_LIMITS
from embedbk.repair.holdings import Checked
from embedbk.repair.owed import owed_up_to

__all__ = ["Undeletion", "listed_again", "oldest_page", "undelete", "why_not_held"]

_ROUNDS_MAX = 20  # The log changed so often, one time after the other, while its ledgers were put back.
_BATCH = 8  # Ledgers of one transaction.
_BATCH_BYTES = 256 << 10  # Bytes of their metadata.


class Undeletion(NamedTuple):
    """The result of putting ledgers back in front of a log (P8.15). Ledgers come back whole."""

    asked: int | None  # The offset from which on all was to come back; None: as far as it can be had.
    began: int  # Where the log began before.
    reached: int  # Where it begins now.
    ledgers: int  # That came back.
    ledger_id: int | None  # The first one that did not, where it is known.
    why: str  # Why it went no further; "" where all that was asked for is there.


class _Stone(NamedTuple):
    stone: Tombstone
    revision: int


class _Step(NamedTuple):
    """What one transaction does, and why it goes no further; ledgers 0: there is nothing to do."""

    when: list[Compare]
    then: list[Put | Delete]
    ledgers: int
    ledger_id: int | None = None
    why: str = ""


async def undelete(reading: LogReading, from_: Start) -> Undeletion:
    runtime = reading.runtime
    runtime.check()
    if not runtime.has_level(LEVEL_OF_FRONTS):
        raise UsageError(
            f"log {reading.name!r}: the cluster's level is below {LEVEL_OF_FRONTS}, and truncation does not note where "
            "its ledgers stood; nothing was changed",
            hint="embedbk quorum raise, for truncations to come; bk.undelete_ledger() brings one back by itself",
        )
    await reading.found()
    what = f"putting ledgers back in front of log {reading.name!r}"
    # Each ledger that truncation took off has its tombstone then.
    grace_ms = int(runtime.settings.delete_grace_s * 1000)
    await runtime.run(Dropping(reading.name, runtime.wall_ms(), grace_ms), what)
    stones = await _stones(runtime, reading.name, what)
    log_list, revision = await reading.listed_at()
    began, count, refused = log_list.first_offset, 0, 0
    asked = await _asked(reading, log_list, stones, from_)
    while refused < _ROUNDS_MAX:
        reached = log_list.first_offset
        if reached <= (asked or 0):
            return Undeletion(asked, began, reached, count, None, "")
        try:
            step = await _step(reading, log_list, revision, stones, asked or 0, what)
        except PageGone:
            step = None
        if step is not None and not step.ledgers:
            if not count:
                raise NoSuchLedger(
                    f"log {reading.name!r}: no ledger was put back; it still begins at offset {reached}: {step.why}",
                    hint="bk.deleted_ledgers() lists those that were deleted and have their tombstones",
                )
            return Undeletion(asked, began, reached, count, step.ledger_id, step.why)
        if step is not None and await runtime.transact(step.when, step.then, what):
            count, refused = count + step.ledgers, 0
        else:
            refused += 1
            stones = await _stones(runtime, reading.name, what)
        log_list, revision = await reading.listed_at()
    raise MetadataConflict(
        f"log {reading.name!r} changed {_ROUNDS_MAX} times while ledgers were put back; {count} of them are there",
        hint="call it again: it goes on from there",
    )


async def _stones(runtime: Runtime, name: str, what: str) -> dict[int, _Stone]:
    """The tombstones of ledgers that truncation took off this log, by their ids."""
    found: dict[int, _Stone] = {}
    for record in await runtime.list_keys(DELETED_PREFIX, what):
        try:
            stone = decode_tombstone(record.value or b"")
            if stone.segment is None or record.key != tombstone_path(stone.ledger_id):
                continue
            metadata = decode_ledger_metadata(stone.metadata, stone.ledger_id)
        except StorageError:
            continue  # It stays as it is (P2.5).
        if metadata.custom.get("log") == name.encode() and stone.segment.ledger_id == stone.ledger_id:
            found[stone.ledger_id] = _Stone(stone, record.revision)
    return found


async def _asked(
    reading: LogReading, log_list: LogList, stones: Mapping[int, _Stone], from_: Start
) -> int | None:
    if from_ is None:
        return None
    if not isinstance(from_, Position):
        return await reading.offset_of(from_)
    found = stones.get(from_.ledger_id)
    if found is not None and found.stone.segment is not None:
        return (found.stone.segment.first_offset or 0) + max(0, from_.entry_id)
    if await ListWalk(reading.runtime, reading.name).holding(log_list, from_.ledger_id) is None:
        raise NoSuchLedger(
            f"log {reading.name!r}: ledger {from_.ledger_id} is not in its list, and no tombstone says where it stood; "
            "nothing was changed",
            hint="give an offset, or a Position of a ledger that bk.deleted_ledgers() lists",
        )
    return await reading.offset_of(from_)


async def _step(
    reading: LogReading,
    log_list: LogList,
    revision: int,
    stones: Mapping[int, _Stone],
    asked: int,
    what: str,
) -> _Step:
    """The next transaction: the newest ledgers in front of the list that can be had. Raises PageGone."""
    runtime, name = reading.runtime, reading.name
    front = front_of(log_list, await oldest_page(runtime, name, log_list, what), _places(stones))
    if front is None:
        return _Step([], [], 0, None, _why_none(log_list, stones))
    left, left_revision = await runtime.get(log_truncated_path(name), what)
    leaving = decode_ledgers_left(left).ledger_ids if left is not None else ()
    wanted = [each for each in reversed(front.segments) if _end(each) > asked][:_BATCH]
    ledgers, ledger_id, why = _fitting(reading, wanted, stones, leaving)
    registered = await registered_now(runtime, what)
    there = frozenset(Member(each, one.incarnation) for each, one in registered.items())
    checked = await ask_bookies(runtime, ledgers, there, what)
    placements: dict[str, Compare] = {}
    raised: dict[str, Put] = {}
    when = [
        Compare(log_key_path(name), revision),
        Compare(log_truncated_path(name), ABSENT if left is None else left_revision),
    ]
    then: list[Put | Delete] = []
    count = 0
    for each, metadata in ledgers.items():
        lack = why_not_held(metadata, checked)
        if lack:
            ledger_id, why = each, lack
            break
        compared, puts = await placements_now(runtime, metadata, what)
        more = {compare.key: compare for compare in compared}
        # Where a placement changed between two ledgers the earlier compare stays, and the transaction is refused.
        operations = len(when) + len(then) + len(placements) + len(more) + len(raised) + len(puts) + 8
        if count and operations > DEFAULT_LIMITS.txn_operations_max:
            break
        for path, compare in more.items():
            placements.setdefault(path, compare)
        for put in puts:
            raised.setdefault(put.key, put)
        found = stones[each]
        when += [Compare(tombstone_path(each), found.revision), Compare(ledger_key_path(each), ABSENT)]
        then += [Delete(tombstone_path(each)), Put(ledger_key_path(each), found.stone.metadata)]
        count += 1
    if not count:
        return _Step([], [], 0, ledger_id, why)
    listed, more_when, more_then = listed_again(name, log_list, front, count)
    when += [*more_when, *placements.values()]
    then += [*more_then, Put(log_key_path(name), encode_log_list(listed)), *raised.values()]
    return _Step(when, then, count)


def _places(stones: Mapping[int, _Stone]) -> list[LogSegment]:
    return [each.stone.segment for each in stones.values() if each.stone.segment is not None]


def _end(segment: LogSegment) -> int:
    return (segment.first_offset or 0) + (segment.last_entry or 0) + 1


async def oldest_page(runtime: Runtime, name: str, log_list: LogList, what: str) -> LogPage | None:
    """Raises PageGone: the list has changed since it was read."""
    pages = log_list.pages
    if pages is None or not log_list.has_pages:
        return None
    value, _ = await runtime.get(log_page_path(name, pages, pages.first), what)
    if value is None:
        raise PageGone
    return decode_log_page(value, name, pages.first)


def _why_none(log_list: LogList, stones: Mapping[int, _Stone]) -> str:
    ends = [each.ledger_id for each in _places(stones) if _end(each) == log_list.first_offset]
    if len(ends) > 1:
        named = ", ".join(str(each) for each in sorted(ends))
        return f"the tombstones of several ledgers say that they stood there ({named})"
    if ends:
        return f"the list has no number of a page left in front for ledger {ends[0]}"
    return (
        f"no tombstone names a ledger that ended there, at offset {log_list.first_offset}: its grace is over, it was "
        "brought back by itself, or it was truncated below the level that notes this"
    )


def _fitting(
    reading: LogReading, wanted: list[LogSegment], stones: Mapping[int, _Stone], leaving: tuple[int, ...]
) -> tuple[dict[int, LedgerMetadata], int | None, str]:
    """The metadata of those that fit, newest first, up to the first one that does not, and why that one does not.

    Raises WrongPassword: the log's ledgers have another one; nothing was changed.
    """
    fitting: dict[int, LedgerMetadata] = {}
    size = 0
    for segment in wanted:
        ledger_id = segment.ledger_id
        found = stones.get(ledger_id)
        if found is None or ledger_id in leaving:
            return (
                fitting,
                ledger_id,
                f"ledger {ledger_id} has no tombstone: its grace is over, or it is back",
            )
        metadata = decode_ledger_metadata(found.stone.metadata, ledger_id)
        reading.password.check(metadata)
        size += len(found.stone.metadata)
        if fitting and size > _BATCH_BYTES:
            return fitting, None, ""
        if metadata.freed is not None:
            return (
                fitting,
                ledger_id,
                (
                    f"ledger {ledger_id} is in files of the archive in {metadata.freed.path!r}: embedbk spark restore "
                    "LOG --truncated puts it back by them"
                ),
            )
        if not metadata.is_closed or metadata.last_entry != segment.last_entry:
            ended = f"ends at {metadata.last_entry}, and the list had {segment.last_entry}"
            return fitting, ledger_id, f"ledger {ledger_id} {ended}"
        fitting[ledger_id] = metadata
    return fitting, None, ""


def why_not_held(metadata: LedgerMetadata, checked: Checked) -> str:
    """Why it is not certain that bookies hold a good copy of each entry on an ack quorum of its seats; "": it is."""
    ledger_id = metadata.ledger_id
    if checked.conflicts.get(ledger_id):
        return f"ledger {ledger_id}: copies of its entries differ, and each is whole by itself"
    short, untold = checked.short.get(ledger_id, {}), checked.untold.get(ledger_id, {})
    unlike = {each.bookie_id for each in checked.unlike.get(ledger_id, ())}
    for number, fragment in enumerate(metadata.fragments):
        first, last = fragment.first_entry, owed_up_to(metadata, number)
        if last < first:
            continue
        sure = sum(
            1 << seat
            for seat, (bookie_id, _) in enumerate(fragment.ensemble)
            if bookie_id not in short and bookie_id not in untold and bookie_id not in unlike
        )
        for residue in residues_of(first, last, metadata.quorum):
            if (write_set_mask(residue, metadata.quorum) & sure).bit_count() < metadata.ack_quorum:
                lacks = [f"{each} lacks {one.copies} entries" for each, one in sorted(short.items())]
                lacks += [f"{each} does not say: {why}" for each, why in sorted(untold.items())]
                lacks += [f"{each} has other bytes than were written" for each in sorted(unlike)]
                return (
                    f"ledger {ledger_id}: fewer than {metadata.ack_quorum} bookies are known to hold its entries from "
                    f"{first} on ({'; '.join(lacks)})"
                )
    return ""


def listed_again(
    name: str, log_list: LogList, front: Front, count: int
) -> tuple[LogList, list[Compare], list[Put | Delete]]:
    """The list with the newest `count` of these in front of it, and what its page needs beside it."""
    listed, page = with_front(log_list, front, count)
    if page is None or listed.pages is None:
        return listed, [], []
    key = log_page_path(name, listed.pages, front.number)
    return listed, [Compare(key, ABSENT)], [Put(key, encode_log_page(page))]
