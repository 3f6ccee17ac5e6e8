"""When entries of a log were made, and which entry was made when (P8.11): an entry has the time of the last one at or
in front of it that carries one.

Decides which entries are looked at: a few, as every ledger has times at regular places, and times never fall along a
log. Leaves opening the log's ledgers to `log_reading`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from embedbk.client.log_pages import PageGone
from embedbk.client.log_places import Start, begins_at, placed
from embedbk.client.log_reading import LogReading
from embedbk.client.reading import LedgerReading
from embedbk.codec.attributes import last_time_in
from embedbk.codec.log_list import Begun, LogList, LogSegment
from embedbk.codec.packing import TIME_EVERY
from embedbk.errors import EntryUnreadable, NoSuchEntry, NoSuchLedger, NotEnoughBookies, Truncated
from embedbk.ids import NO_ENTRY

__all__ = ["first_at", "last_time", "time_at", "times_at"]


async def last_time(log: LogReading, log_list: LogList, end: int) -> int:
    """The time of the entry in front of the offset `end`, in ms since 1970; NO_ENTRY: there is none, or it has none
    (P8.11)."""
    if end <= log_list.first_offset:
        return NO_ENTRY
    with contextlib.closing(_Times(log)) as times:
        try:
            time_ms = await times.in_list(log_list, end - 1)
        except PageGone:
            time_ms = await times.at(end - 1)
    return NO_ENTRY if time_ms is None else time_ms


async def time_at(log: LogReading, place: Start) -> int | None:
    """The time of the entry at a place, in ms since 1970; None: it is from before entries had times (P8.11).

    Raises NoSuchEntry where nothing stands yet, and what reading raises."""
    with contextlib.closing(_Times(log)) as times:
        return await times.at(await log.offset_of(place))


async def times_at(log: LogReading, offsets: Iterable[int]) -> dict[int, int | None]:
    """As `time_at`, of several; entries that are gone have None. If one cannot be read just now, it and all behind
    it are left out."""
    found: dict[int, int | None] = {}
    with contextlib.closing(_Times(log)) as times:
        for offset in sorted({*offsets}):
            try:
                found[offset] = await times.at(offset)
            except (NoSuchEntry, Truncated):
                found[offset] = None
            except (EntryUnreadable, NotEnoughBookies):
                break  # Each of the others would take as long.
    return found


async def first_at(log: LogReading, time_ms: int) -> int:
    """The dense offset of the first entry at or behind a time; `end` where there is none. Times never fall along a
    log, so each look halves the range (P8.11)."""
    with contextlib.closing(_Times(log)) as times:
        begin, end = (await log.listed()).first_offset, await log.end()
        while begin < end:
            middle = (begin + end) // 2
            try:
                found = await times.at(middle)
            except Truncated as gone:
                if gone.first_offset is None:
                    raise
                begin = max(begin, gone.first_offset)
                continue
            if found is None or found < time_ms:
                begin = middle + 1
            else:
                end = middle
        return max(begin, end)


class _Times:
    """Looks for the times of entries; keeps what it opened until it is closed."""

    def __init__(self, log: LogReading) -> None:
        self._log = log
        self._opened: dict[int, LedgerReading] = {}

    async def at(self, offset: int) -> int | None:
        return await self._log.looked_up(lambda now: self.in_list(now, offset))

    async def in_list(self, log_list: LogList, offset: int) -> int | None:
        log_list, place, entry_id = await self._log.places.located(log_list, offset)
        following: int | None = None
        while place is not None:
            segment = placed(place.segment, following)
            assert segment is not None  # The ledger behind one that has ended has a place.
            following = begins_at(segment)
            if segment.begun == Begun.SPLICE:  # Its entries came to the log all at once (P8.5).
                return segment.created_ms
            ledger = self._opened.get(segment.ledger_id) or await self._log.open_ledger(segment)
            if ledger is None:  # It closed empty and left the list: what is wanted stands behind it.
                log_list, place = await self._log.next_ledger(log_list, place, segment, NO_ENTRY)
                continue
            self._opened[segment.ledger_id] = ledger
            last = ledger.metadata.last_entry
            if last is None or entry_id <= last:
                return await self._in_ledger(ledger, segment, entry_id)
            entry_id -= last + 1  # The next one's place is not recorded yet.
            following += last + 1
            log_list, place = await self._log.next_ledger(log_list, place, segment, last)
        raise NoSuchEntry(f"log {self._log.name!r} has nothing at offset {offset} yet")

    async def _in_ledger(self, ledger: LedgerReading, segment: LogSegment, entry_id: int) -> int | None:
        """The last entry with a time, searched from an entry on that certainly has one."""
        if entry_id > ledger.lac and entry_id > await ledger.limit():
            raise NoSuchEntry(
                f"log {self._log.name!r}: ledger {ledger.ledger_id} has no entry {entry_id} yet"
            )
        found: int | None = None
        try:
            # An entry that is lost counts as made when the one before it was.
            begin = entry_id - entry_id % TIME_EVERY
            async for located in ledger.frames(begin, entry_id, skip_lost=True):
                told = last_time_in(located.frame)
                found = found if told is None else told
        except NoSuchLedger:
            await self._log.check_left(segment, entry_id - 1)
            raise
        return found

    def close(self) -> None:
        for ledger in self._opened.values():
            ledger.close()
