"""Reading a log, for both faces: ledger behind ledger (P6.6).

Decides which log a name is, which list of it is the present one, and when reading proceeds to the next ledger: only
when the current one is CLOSED and read to its end. Leaves each ledger to `reading`, what a place means to `log_places`,
walking through the list to `log_pages`, what comes then to `log_following`, and when entries were made to
`entry_times`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from embedbk.client.batches import Segment
from embedbk.client.compression import plain
from embedbk.client.log_identity import claim, find
from embedbk.client.log_pages import ListWalk, PageGone, Place
from embedbk.client.log_places import LogPlaces, Start, begins_at, ends_in, first_in, placed
from embedbk.client.password import Password
from embedbk.client.reading import Frames, LedgerReading
from embedbk.client.runtime import Runtime
from embedbk.codec.log_identity import LogId
from embedbk.codec.log_list import LogList, LogSegment, decode_log_list, log_key_path
from embedbk.codec.metadata_messages import Compare
from embedbk.config import check_flag
from embedbk.errors import (
    MetadataConflict,
    NoSuchLedger,
    Truncated,
)
from embedbk.ids import NO_ENTRY

__all__ = ["LogReading"]

_ROUNDS_MAX = 20  # Tries while the list loses the pages that are looked for.


T = TypeVar("T")


class LogReading:
    """One log, for reading."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.runtime = runtime
        self.given = name
        self.name = name  # Its id, once it is found.
        self.password = password
        self.walk = ListWalk(runtime, name)
        self.places = LogPlaces(self.walk)

    @classmethod
    def of_id(cls, runtime: Runtime, log_id: str, name: str, password: Password) -> LogReading:
        """The log of this id, whatever it is called by now; `name` for people."""
        reading = cls(runtime, name, password)
        reading._bind(LogId(log_id, name))
        return reading

    async def found(self) -> None:
        """Find where the name leads; from then on this is the log of that id, also when it is renamed (P8.12). A name
        without a pointer is looked up again, until there is a log of it.

        Raises NoSuchLedger: the name led to a log once, and leads to none now."""
        if isinstance(self.name, LogId):
            return
        log_id = await find(self.runtime, self.name)
        if log_id is None:
            raise self.missing()
        if isinstance(log_id, LogId):
            self._bind(log_id)

    async def claimed(self, *, creates: bool = True) -> tuple[Compare, ...]:
        """Find the log of the name, or make it, for a writer that takes it over; returns what its takeover compares.

        Raises NoSuchLedger: there is none, and creates is False."""
        claimed = await claim(self.runtime, self.given, creates=creates)
        if claimed is None:
            raise self.missing()
        if isinstance(self.name, LogId) and self.name != claimed.log_id:
            raise NoSuchLedger(f"log {self.name!r} was renamed or deleted", hint="open it by its new name")
        self._bind(claimed.log_id)
        return claimed.guard

    async def log_id(self) -> str:
        await self.listed()  # That there is such a log.
        return str(self.name)

    def _bind(self, log_id: LogId) -> None:
        self.name = self.walk.name = log_id

    def missing(self) -> NoSuchLedger:
        return NoSuchLedger(
            f"there is no log {self.name!r}", hint="check the name; its first writer makes it"
        )

    async def listed(self) -> LogList:
        """The log's list, without its pages; raises NoSuchLedger when nobody ever wrote to the log."""
        return (await self.listed_at())[0]

    async def listed_at(self) -> tuple[LogList, int]:
        """As `listed`, with its revision."""
        await self.found()
        value, revision = await self.runtime.get(
            log_key_path(self.name), f"reading the list of log {self.name!r}"
        )
        if value is None:
            raise self.missing()
        if not isinstance(self.name, LogId):
            self._bind(
                LogId(self.name, self.name)
            )  # Below the level, or not carried over yet: that is its id.
        return decode_log_list(value, self.name), revision

    async def offset_of(self, place: Start) -> int:
        """The dense offset of a place; of a position, by the list. For a position below the log's start whose ledger is
        not known any more it is that start."""
        try:
            return await self.looked_up(lambda now: self.places.offset_in(now, place))
        except Truncated as gone:
            if gone.first_offset is None:
                raise
            return gone.first_offset

    async def looked_up(self, step: Callable[[LogList], Awaitable[T]]) -> T:
        """The result of `step` on the present list."""
        for _ in range(_ROUNDS_MAX):
            try:
                return await step(await self.listed())
            except PageGone:
                continue  # Truncated, or deleted and begun anew, since the list was read.
        raise MetadataConflict(
            f"log {self.name!r}: its list changed {_ROUNDS_MAX} times while it was read, or names a page that is not "
            "there"
        )

    async def segments(self, start: Start = None) -> list[Segment]:
        """The ledgers in order, from the one that holds `start`, without one whose place is not known yet because the
        ledger before it is still written (P8.2)."""
        found: list[Segment] = []
        following: int | None = None
        log_list, place, _ = await self.looked_up(lambda now: self.places.located(now, start))
        while place is not None:
            segment = placed(place.segment, following)
            if segment is None:
                break
            first_offset, last_entry, length, is_closed = (
                begins_at(segment),
                segment.last_entry,
                segment.length,
                True,
            )
            if last_entry is None:
                ends = await self._end_now(segment)
                if ends is not None:
                    last_entry, length, is_closed = ends
            following = first_offset
            if last_entry is not None:
                found.append(Segment(segment.ledger_id, first_offset, last_entry, is_closed, length))
                following = first_offset + last_entry + 1 if is_closed else None
            log_list, place = await self.next_ledger(log_list, place, segment, last_entry)
        return found

    async def _end_now(self, segment: LogSegment) -> tuple[int, int | None, bool] | None:
        """(how far a ledger may be read whose end the list does not record, the bytes up to there, whether it ends
        there); None: it has left the list."""
        ledger = await self.open_ledger(segment)
        if ledger is None:
            return None
        try:
            limit = await self._limit(ledger, segment)
            return None if limit is None else (limit[0], ledger.length_at(limit[0]), limit[1])
        finally:
            ledger.close()

    async def _limit(
        self, ledger: LedgerReading, segment: LogSegment, first: int = 0
    ) -> tuple[int, bool] | None:
        """(how far it may be read, whether it ends there) of a ledger that is open here."""
        try:
            last_entry = await ledger.limit()
        except NoSuchLedger:
            await self.check_left(segment, NO_ENTRY, first)
            return None
        return last_entry, ledger.is_closed and last_entry == ledger.metadata.last_entry

    async def next_ledger(
        self, log_list: LogList, place: Place, segment: LogSegment, seen: int | None
    ) -> tuple[LogList, Place | None]:
        """The ledger that follows one read to its end, in the list as it was read, or as it is now where the next pages
        were removed meanwhile."""
        try:
            return log_list, await self.walk.after(place, log_list)
        except PageGone:
            return await self.looked_up(
                lambda now: self.places.behind(now, segment, NO_ENTRY if seen is None else seen)
            )

    async def end(self) -> int:
        """The dense offset behind the last entry that may be read now."""
        return await self.looked_up(self._end_in)

    async def _end_in(self, log_list: LogList) -> int:
        if not log_list.segments:
            return log_list.first_offset
        _, segment = await self.newest(log_list)
        ends = await self._end_now(segment)
        return begins_at(segment) + (0 if ends is None else ends[0] + 1)

    async def read(
        self, start: Start, end: Start, *, skip_lost: bool = False, is_stored: bool = False
    ) -> Frames:
        """From start (included) to end (left out), as far as may be read when each ledger is reached. start None: where
        the log begins when its first ledger is reached, as it may be truncated meanwhile. is_stored: entries as they
        are stored, none of them unpacked.

        Raises Lost where entries were given up (P11.5); with skip_lost it goes on behind them."""
        check_flag(skip_lost, "skip_lost")
        has_read, rounds = False, 0
        while True:
            try:
                async with aclosing(self._read(start, end, skip_lost=skip_lost)) as frames:
                    async for located in frames:
                        has_read = True
                        for each in (located,) if is_stored else plain(located):
                            yield each
                return
            except Truncated as gone:
                rounds += 1
                has_moved = gone.first_offset is not None  # Otherwise only a ledger of the list is gone.
                if start is not None or has_read or not has_moved or rounds == _ROUNDS_MAX:
                    raise

    async def _read(self, start: Start, end: Start, *, skip_lost: bool) -> Frames:
        log_list, place, first = await self.looked_up(lambda now: self.places.located(now, start))
        begins: int | None = None
        if end is not None:  # Refuse at once a place that this log does not have.
            end, begins = await self.looked_up(lambda now: self.places.ending(now, end))
        following = None if place is None else place.segment.first_offset
        is_first = True
        while place is not None:
            segment = placed(place.segment, following)
            assert segment is not None  # What follows one that is read to its end has a place.
            first_offset = following = begins_at(segment)
            if not is_first:
                first = first_in(segment, start)
            is_first, seen = False, NO_ENTRY
            until = ends_in(segment, first_offset, end, begins)
            if until is not None and until <= 0:
                return
            ledger = await self.open_ledger(segment, first)
            if ledger is not None:
                try:
                    limit = await self._limit(ledger, segment, first)
                    if limit is not None:
                        seen, is_whole = limit
                        last = seen if until is None else min(seen, until - 1)
                        if first <= last:
                            try:
                                async for located in ledger.frames(
                                    first, last, first_offset, skip_lost=skip_lost
                                ):
                                    yield located
                            except NoSuchLedger:  # Deleted while it was read: truncated, or with its log.
                                await self.check_left(segment, first - 1)
                                raise
                        if not is_whole:
                            return  # Entries that may follow in this ledger come before the next one (P6.6).
                finally:
                    ledger.close()
            following = first_offset + seen + 1
            log_list, place = await self.next_ledger(log_list, place, segment, seen)

    async def newest(self, log_list: LogList) -> tuple[Place, LogSegment]:
        """The last ledger whose place is known. The one before a later one may be closed and not recorded so yet
        (P8.2)."""
        segments = log_list.segments
        newest = Place(segments, len(segments) - 1)
        if newest.segment.first_offset is not None:
            return newest, newest.segment
        before = Place(segments, len(segments) - 2)
        ledger = await self.open_ledger(before.segment)
        if ledger is None:
            return before, before.segment
        try:
            last = ledger.metadata.last_entry
        finally:
            ledger.close()
        following = None if last is None else begins_at(before.segment) + last + 1
        segment = placed(newest.segment, following)
        return (before, before.segment) if segment is None else (newest, segment)

    async def open_ledger(self, segment: LogSegment, first: int = 0) -> LedgerReading | None:
        """None: it closed without an entry from `first` on, left the list and was deleted since the list was read
        (P8.3)."""
        try:
            return await LedgerReading.open(self.runtime, segment.ledger_id, self.password, recover=False)
        except NoSuchLedger:
            await self.check_left(segment, NO_ENTRY, first)
            return None

    async def check_left(self, segment: LogSegment, seen: int, first: int = 0) -> None:
        """A ledger of the list is gone: raise, unless the list shows that the reader has seen all its entries from
        `first` on."""
        await self.looked_up(lambda now: self.places.behind(now, segment, seen, first, is_gone=True))
