"""Reading a log, for both faces: ledger behind ledger, and the tail (P6.6).

Decides where reading begins, and when it proceeds to the next ledger: only when the current one is CLOSED and read to
its end. Leaves each ledger to `reading`, and walking through the list to `log_pages`. The log's list is followed by
watch, never polled.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from msgspec.structs import replace

from embedbk.client.batches import Located, Segment
from embedbk.client.compression import plain
from embedbk.client.handles import ReaderNote
from embedbk.client.log_identity import claim, find
from embedbk.client.log_pages import ListWalk, PageGone, Place
from embedbk.client.password import Password
from embedbk.client.reading import Frames, LedgerReading
from embedbk.client.runtime import FollowedKey, Runtime
from embedbk.client.waiting import Moved
from embedbk.codec.attributes import last_time_in
from embedbk.codec.ledger_metadata import Begun, LogList, LogSegment, decode_log_list, log_key_path
from embedbk.codec.log_identity import LogId, log_name_path
from embedbk.codec.metadata_messages import Compare
from embedbk.codec.packer_twin import TIME_EVERY
from embedbk.core.log_paging import end_of, rises
from embedbk.errors import (
    EntryUnreadable,
    MetadataConflict,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    Truncated,
    UsageError,
)
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY, Position

__all__ = ["LogReading", "Pull", "Start"]

_BEHIND_ALL = LEDGER_ID_MAX // 2  # An entry behind all that a ledger can have.
_ROUNDS_MAX = 20  # Tries while the list loses the pages that are looked for.

Start = Position | int | None  # A position, or a dense offset.

T = TypeVar("T")


@dataclass(slots=True)
class Pull:
    """What a follower of a log asks for, each time that it asks for more; and where the log begins, which the log
    reports in it."""

    idle_s: float | None = None  # How long to wait while nothing comes; None: without end.
    asks: bool = False  # Ask bookies once for new entries, also if there is no time to wait.
    begins: int | None = None  # The dense offset of the first entry, once that is known.
    note: ReaderNote | None = None  # The note of the handle that follows; None: it is a tail.
    skip_lost: bool = False  # Continue behind entries that were given up (P11.5).


class LogReading:
    """One log, for reading."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.runtime = runtime
        self.given = name
        self.name = name  # Its id, once it is found.
        self.password = password
        self.walk = ListWalk(runtime, name)

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
            return await self._looked_up(lambda now: self.offset_in(now, place))
        except Truncated as gone:
            if gone.first_offset is None:
                raise
            return gone.first_offset

    async def offset_in(self, log_list: LogList, place: Start) -> int:
        """As `offset_of`, in this list; raises PageGone if it is outdated."""
        if not isinstance(place, Position):
            if isinstance(place, bool) or not isinstance(place, int) or place < 0:
                raise UsageError(f"{place!r} is no place in a log: a Position, or an offset from 0 on")
            return place
        found, entry_id = await self._located_by_ledger(log_list, place)
        if found is None or entry_id == _BEHIND_ALL:
            raise NoSuchEntry(f"log {self.name!r}: where ledger {place.ledger_id} begins is not known yet")
        return _offset(found.segment) + entry_id

    async def _looked_up(self, step: Callable[[LogList], Awaitable[T]]) -> T:
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
        log_list, place, _ = await self._looked_up(lambda now: self._located(now, start))
        while place is not None:
            segment = _placed(place.segment, following)
            if segment is None:
                break
            first_offset, last_entry, length, is_closed = (
                _offset(segment),
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
            log_list, place = await self._next(log_list, place, segment, last_entry)
        return found

    async def _end_now(self, segment: LogSegment) -> tuple[int, int | None, bool] | None:
        """(how far a ledger may be read whose end the list does not record, the bytes up to there, whether it ends
        there); None: it has left the list."""
        ledger = await self._open(segment)
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
            await self._check_left(segment, NO_ENTRY, first)
            return None
        return last_entry, ledger.is_closed and last_entry == ledger.metadata.last_entry

    async def _next(
        self, log_list: LogList, place: Place, segment: LogSegment, seen: int | None
    ) -> tuple[LogList, Place | None]:
        """The ledger that follows one read to its end, in the list as it was read, or as it is now where the next pages
        were removed meanwhile."""
        try:
            return log_list, await self.walk.after(place, log_list)
        except PageGone:
            return await self._looked_up(
                lambda now: self._behind(now, segment, NO_ENTRY if seen is None else seen)
            )

    async def end(self) -> int:
        """The dense offset behind the last entry that may be read now."""
        return await self._looked_up(self._end_in)

    async def _end_in(self, log_list: LogList) -> int:
        if not log_list.segments:
            return log_list.first_offset
        _, segment = await self._newest(log_list)
        ends = await self._end_now(segment)
        return _offset(segment) + (0 if ends is None else ends[0] + 1)

    async def last_time(self, log_list: LogList, end: int) -> int:
        """The time of the entry in front of the offset `end`, in ms since 1970; NO_ENTRY: there is none, or it has none
        (P8.11)."""
        if end <= log_list.first_offset:
            return NO_ENTRY
        with contextlib.closing(_Times(self)) as times:
            try:
                time_ms = await times.in_list(log_list, end - 1)
            except PageGone:
                time_ms = await times.at(end - 1)
        return NO_ENTRY if time_ms is None else time_ms

    async def time_at(self, place: Start) -> int | None:
        """The time of the entry at a place, in ms since 1970; None: it is from before entries had times (P8.11).

        Raises NoSuchEntry where nothing stands yet, and what reading raises."""
        with contextlib.closing(_Times(self)) as times:
            return await times.at(await self.offset_of(place))

    async def times_at(self, offsets: Iterable[int]) -> dict[int, int | None]:
        """As `time_at`, of several; entries that are gone have None. If one cannot be read just now, it and all behind
        it are left out."""
        found: dict[int, int | None] = {}
        with contextlib.closing(_Times(self)) as times:
            for offset in sorted({*offsets}):
                try:
                    found[offset] = await times.at(offset)
                except (NoSuchEntry, Truncated):
                    found[offset] = None
                except (EntryUnreadable, NotEnoughBookies):
                    break  # Each of the others would take as long.
        return found

    async def first_at(self, time_ms: int) -> int:
        """The dense offset of the first entry at or behind a time; `end` where there is none. Times never fall along a
        log, so each look halves the range (P8.11)."""
        with contextlib.closing(_Times(self)) as times:
            begin, end = (await self.listed()).first_offset, await self.end()
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

    async def read(
        self, start: Start, end: Start, *, skip_lost: bool = False, is_stored: bool = False
    ) -> Frames:
        """From start (included) to end (left out), as far as may be read when each ledger is reached. start None: where
        the log begins when its first ledger is reached, as it may be truncated meanwhile. is_stored: entries as they
        are stored, none of them unpacked.

        Raises Lost where entries were given up (P11.5); with skip_lost it goes on behind them."""
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
        log_list, place, first = await self._looked_up(lambda now: self._located(now, start))
        begins: int | None = None
        if end is not None:  # Refuse at once a place that this log does not have.
            end, begins = await self._looked_up(lambda now: self._ending(now, end))
        following = None if place is None else place.segment.first_offset
        is_first = True
        while place is not None:
            segment = _placed(place.segment, following)
            assert segment is not None  # What follows one that is read to its end has a place.
            first_offset = following = _offset(segment)
            if not is_first:
                first = _first_in(segment, start)
            is_first, seen = False, NO_ENTRY
            until = _until(segment, first_offset, end, begins)
            if until is not None and until <= 0:
                return
            ledger = await self._open(segment, first)
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
                                await self._check_left(segment, first - 1)
                                raise
                        if not is_whole:
                            return  # Entries that may follow in this ledger come before the next one (P6.6).
                finally:
                    ledger.close()
            following = first_offset + seen + 1
            log_list, place = await self._next(log_list, place, segment, seen)

    async def tail(
        self, start: Start, idle_s: float | None, note: ReaderNote | None = None, *, skip_lost: bool = False
    ) -> Frames:
        """Everything from start on; start None: entries that come from now on. Ends only after idle_s, not because
        bookies are away for a while. note: the note of the handle that it belongs to; None: it makes its own."""
        pull = Pull(idle_s, note=note, skip_lost=skip_lost)
        async with aclosing(self.follow("latest" if start is None else start, pull)) as followed:
            async for located in followed:
                if located is None:
                    return
                yield located

    async def follow(
        self, start: Position | int | Literal["earliest", "latest"], pull: Pull
    ) -> AsyncGenerator[Located | None, None]:
        """Yield everything from start on, without end; None each time that nothing came for `pull.idle_s`, after which
        it continues where it stands. "earliest": from where the log begins; "latest": entries from now on."""
        place_in_list: Start = None if isinstance(start, str) else start
        note = pull.note or ReaderNote("tail", f"log {self.given!r}", self.runtime.clock_s)
        if pull.note is None:
            self.runtime.handles.add(note)
        note.place = start if isinstance(start, int) else None
        followed: FollowedKey | None = None
        try:
            while not await self._is_there(pull.idle_s, note):
                yield None
            followed = await self.runtime.follow(log_key_path(self.name))
            while await self._next_listed(followed, None, pull.idle_s, note) is None:
                yield None
            begun, has_read = followed.revision, False
            stands = await self._begin(followed, place_in_list, is_latest=start == "latest")
            while True:
                note.ledger_id = stands.segment.ledger_id
                try:
                    async for located in self._tail_ledger(stands, pull, note):
                        has_read |= located is not None
                        yield located
                except Truncated as gone:
                    if start != "earliest" or has_read or gone.first_offset is None:
                        raise
                    await self._moves_on(followed, begun)  # The log begins elsewhere by now.
                    begun, pull.begins = followed.revision, None
                    stands = await self._begin(followed, None, is_latest=False)
                    continue
                while (place := await self._next_listed(followed, stands, pull.idle_s, note)) is None:
                    yield None
                segment = _placed(place.segment, _offset(stands.segment) + stands.seen + 1)
                assert segment is not None  # What follows one that is read to its end has a place.
                stands = _Standing(place, segment, _first_in(segment, place_in_list))
        finally:
            if pull.note is None:
                self.runtime.handles.discard(note)
            if followed is not None:
                followed.end()

    async def _is_there(self, idle_s: float | None, note: ReaderNote) -> bool:
        """Wait until the name leads to a log, with a pointer or, below the level, without; False: not in time."""
        if isinstance(self.name, LogId):
            return True
        pointer = await self.runtime.follow(log_name_path(self.name))
        listed: FollowedKey | None = None
        try:
            listed = await self.runtime.follow(log_key_path(self.name), pointer.signal)
            while True:
                seen = pointer.revision, listed.revision
                with contextlib.suppress(NoSuchLedger):  # It is renamed or deleted: that may change again.
                    await self.listed_at()
                    return True
                stands = Moved(
                    pointer.signal,
                    partial(_has_moved, pointer, listed, seen, self.runtime),
                    idle_s,
                )
                note.waits(
                    "P8.12", "a log of this name", partial(_has_moved, pointer, listed, seen, self.runtime)
                )
                if not await stands:
                    return False
                note.goes_on()
                self.runtime.check()
        finally:
            note.goes_on()
            pointer.end()
            if listed is not None:
                listed.end()

    def _shown(self, followed: FollowedKey) -> LogList | None:
        """The list as its watch shows it; None: there is none."""
        assert followed.state is not None
        value = followed.state[0]
        return None if value is None else decode_log_list(value, self.name)

    async def _begin(self, followed: FollowedKey, start: Start, *, is_latest: bool) -> _Standing:
        """Where a tail begins in a list that is there, as its watch shows it."""
        while True:
            shown, revision = self._shown(followed), followed.revision
            if shown is None or not shown.segments:
                raise NoSuchLedger(f"log {self.name!r} was deleted")
            if is_latest:
                return _Standing(*await self._newest(shown), None)
            try:
                _, place, first = await self._located(shown, start)
            except PageGone:
                await self._moves_on(followed, revision)
                continue
            if place is None:
                place = Place(shown.segments, len(shown.segments) - 1)
            return _Standing(place, place.segment, first)

    async def _moves_on(self, followed: FollowedKey, revision: int) -> None:
        """Wait until the watch shows a newer list: a page is gone that the list named at this revision."""
        limit_s = self.runtime.settings.operation_timeout_s
        is_newer = await followed.beyond(revision, limit_s)
        self.runtime.check()
        if not is_newer:
            raise MetadataConflict(
                f"log {self.name!r}: its list names a page that is not there, for {limit_s:g} s"
            )

    async def _newest(self, log_list: LogList) -> tuple[Place, LogSegment]:
        """The last ledger whose place is known. The one before a later one may be closed and not recorded so yet
        (P8.2)."""
        segments = log_list.segments
        newest = Place(segments, len(segments) - 1)
        if newest.segment.first_offset is not None:
            return newest, newest.segment
        before = Place(segments, len(segments) - 2)
        ledger = await self._open(before.segment)
        if ledger is None:
            return before, before.segment
        try:
            last = ledger.metadata.last_entry
        finally:
            ledger.close()
        following = None if last is None else _offset(before.segment) + last + 1
        placed = _placed(newest.segment, following)
        return (before, before.segment) if placed is None else (newest, placed)

    async def _tail_ledger(
        self, stands: _Standing, pull: Pull, note: ReaderNote
    ) -> AsyncGenerator[Located | None, None]:
        """The ledger's entries from first on until it is closed and read to its end; None: nothing came for too
        long."""
        ledger = await self._open(stands.segment, stands.first or 0)
        if ledger is None:
            return
        ledger.note = note
        first, first_offset = stands.first, _offset(stands.segment)
        try:
            while (limit := await ledger.limit_in_time(pull.idle_s, is_exact=first is None)) is None:
                yield None
            if first is None:
                first = limit + 1
            if first < _BEHIND_ALL:
                note.place = first_offset + first
                if pull.begins is None:
                    pull.begins = note.place
            while True:
                if first <= limit:
                    async for located in ledger.frames_in_time(
                        first, limit, first_offset, pull.idle_s, skip_lost=pull.skip_lost
                    ):
                        for each in plain(located):
                            yield each
                    first = limit + 1
                stands.seen = limit
                while (now_limit := await self._limit_beyond(ledger, first - 1, pull)) is None:
                    yield None
                if now_limit < first:
                    stands.seen = now_limit
                    return  # CLOSED, and read to its end (P6.6).
                limit = now_limit
        except NoSuchLedger:
            await self._check_left(stands.segment, stands.seen, stands.first or 0)
        finally:
            ledger.close()

    async def _limit_beyond(self, ledger: LedgerReading, entry_id: int, pull: Pull) -> int | None:
        if pull.asks and not ledger.is_closed:
            with contextlib.suppress(NotEnoughBookies):
                await ledger.try_limit()
        return await ledger.wait_beyond(entry_id, pull.idle_s)

    async def _next_listed(
        self, followed: FollowedKey, after: _Standing | None, idle_s: float | None, note: ReaderNote
    ) -> Place | None:
        """The ledger that follows `after` (None: the first), as soon as the list names it; None after idle_s."""
        while True:
            self.runtime.check()
            shown, revision = self._shown(followed), followed.revision
            try:
                place = await self._following(shown, after)
            except PageGone:
                await self._moves_on(followed, revision)
                continue
            if place is not None or (shown is not None and shown.seal is not None):
                return place  # None: nothing ever follows the end of a sealed log (P8.9).
            behind = "its first ledger" if after is None else f"the ledger behind {after.segment.ledger_id}"
            note.waits("P6.6", f"{behind} to be listed", partial(_is_beyond, followed, revision))
            try:
                if not await followed.beyond(revision, idle_s):
                    return None
            finally:
                note.goes_on()

    async def _following(self, shown: LogList | None, after: _Standing | None) -> Place | None:
        if after is None:
            return None if shown is None else await self.walk.first(shown)
        if shown is None:
            raise self._deleted(after.segment)
        for index, segment in enumerate(shown.segments):
            if segment.ledger_id == after.segment.ledger_id:
                return Place(shown.segments, index + 1) if index + 1 < len(shown.segments) else None
        if after.place.number is not None:
            with contextlib.suppress(PageGone):
                return await self.walk.after(after.place, shown)
        return (await self._behind(shown, after.segment, after.seen, after.first or 0))[1]

    async def _open(self, segment: LogSegment, first: int = 0) -> LedgerReading | None:
        """None: it closed without an entry from `first` on, left the list and was deleted since the list was read
        (P8.3)."""
        try:
            return await LedgerReading.open(self.runtime, segment.ledger_id, self.password, recover=False)
        except NoSuchLedger:
            await self._check_left(segment, NO_ENTRY, first)
            return None

    async def _check_left(self, segment: LogSegment, seen: int, first: int = 0) -> None:
        """A ledger of the list is gone: raise, unless the list shows that the reader has seen all its entries from
        `first` on."""
        await self._looked_up(lambda now: self._behind(now, segment, seen, first, is_gone=True))

    async def _behind(
        self, log_list: LogList, left: LogSegment, seen: int, first: int = 0, *, is_gone: bool = False
    ) -> tuple[LogList, Place | None]:
        """The ledger that the list names behind one that was read up to `seen`, if nothing between them is missing from
        its entry `first` on, with which the reader began: offsets are dense and never move (I93), so the start of the
        next shows what the reader has not seen. is_gone: the ledger was deleted, so the list must not name it."""
        # By its place, as ids stand in any order (P8.5); several may begin there, if all but the last are empty.
        begins = _offset(left)
        before = await self.walk.last(log_list, lambda each: _begins_before(each, begins))
        place = behind = await self.walk.after(before, log_list)
        while place is not None and _begins_before(place.segment, begins + 1, unplaced=True):
            if place.segment.ledger_id == left.ledger_id:
                if is_gone:
                    raise Truncated(
                        f"log {self.name!r}: ledger {left.ledger_id} of its list was deleted",
                        hint="read on from the start of the log",
                    )
                return log_list, await self.walk.after(place, log_list)
            place = await self.walk.after(place, log_list)
        if behind is None:
            raise self._deleted(left)
        # No ledger without an offset stands behind one that is gone: that one was the last recorded as closed (P8.2).
        offset, wanted = _offset(behind.segment), begins + seen + 1
        if offset < wanted or (before is not None and not _ends_at(before.segment, begins)):
            raise NoSuchLedger(
                f"log {self.name!r} was deleted and begun anew: ledger {left.ledger_id} was part of the former",
                hint="read the new one from its start",
            )
        if offset > max(wanted, begins + first):
            raise self._truncated(f"ledger {left.ledger_id} is", log_list)
        return log_list, behind

    def _truncated(self, what: str, log_list: LogList) -> Truncated:
        error = Truncated(
            f"log {self.name!r}: {what} below its start, offset {log_list.first_offset}",
            hint="read from the start of the log",
        )
        error.first_offset = log_list.first_offset
        return error

    def _deleted(self, left: LogSegment) -> NoSuchLedger:
        return NoSuchLedger(
            f"log {self.name!r} was deleted: ledger {left.ledger_id} was part of it",
            hint="its next writer begins a new log under this name",
        )

    async def _located(self, log_list: LogList, start: Start) -> tuple[LogList, Place | None, int]:
        """(list, place, entry in it) where reading begins; no place: there is no ledger yet. In front of a ledger whose
        place is not recorded yet it begins behind all entries of the one before, whose end determines it."""
        if start is None or not log_list.segments:
            return log_list, await self.walk.first(log_list), 0
        if isinstance(start, Position):
            return log_list, *await self._located_by_ledger(log_list, start)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise UsageError(f"{start!r} is no place in a log: a Position, or an offset from 0 on")
        place = await self.walk.last(log_list, lambda each: _is_at_or_before(each, start))
        if start < log_list.first_offset or place is None:
            raise self._truncated(f"offset {start} is", log_list)
        return log_list, place, start - _offset(place.segment)

    async def _ending(self, log_list: LogList, end: Start) -> tuple[Start, int | None]:
        """An end as the list names it, and, of a position, where its ledger begins; None: that is not known yet."""
        _, place, entry_id = await self._located(log_list, end)
        if not isinstance(end, Position) or place is None or entry_id == _BEHIND_ALL:
            return end, None
        return Position(place.segment.ledger_id, entry_id), place.segment.first_offset

    async def _located_by_ledger(self, log_list: LogList, start: Position) -> tuple[Place | None, int]:
        found = await self.walk.holding(log_list, start.ledger_id)
        if found is not None:
            if found.segment.first_offset is not None:
                return found, start.entry_id
            return Place(found.segments, found.index - 1), _BEHIND_ALL
        if not rises(log_list.segments, log_list.pages):
            raise NoSuchEntry(
                f"log {self.name!r} has no ledger {start.ledger_id}: it was truncated, closed empty, or never was",
                hint="an offset tells which of these: a ledger that is not listed has no place among others (P8.5)",
            )
        place = await self.walk.last(log_list, lambda each: each.ledger_id <= start.ledger_id)
        behind = await self.walk.after(place, log_list)
        if behind is not None and start.entry_id <= 0 and (place is not None or log_list.first_offset == 0):
            return (
                behind,
                0,
            )  # The position of a ledger that left the list, as it closed empty: the next one follows (P8.3).
        if place is None:
            raise self._truncated(f"ledger {start.ledger_id} is", log_list)
        raise NoSuchEntry(f"log {self.name!r} has no ledger {start.ledger_id}")


def _has_moved(pointer: FollowedKey, listed: FollowedKey, seen: tuple[int, int], runtime: Runtime) -> bool:
    return (pointer.revision, listed.revision) != seen or runtime.is_ended


def _is_beyond(followed: FollowedKey, revision: int) -> bool:
    return followed.revision > revision


class _Times:
    """Looks for the times of entries; keeps what it opened until it is closed."""

    def __init__(self, log: LogReading) -> None:
        self._log = log
        self._opened: dict[int, LedgerReading] = {}

    async def at(self, offset: int) -> int | None:
        return await self._log._looked_up(lambda now: self.in_list(now, offset))

    async def in_list(self, log_list: LogList, offset: int) -> int | None:
        log_list, place, entry_id = await self._log._located(log_list, offset)
        following: int | None = None
        while place is not None:
            segment = _placed(place.segment, following)
            assert segment is not None  # The ledger behind one that has ended has a place.
            following = _offset(segment)
            if segment.begun == Begun.SPLICE:  # Its entries came to the log all at once (P8.5).
                return segment.created_ms
            ledger = self._opened.get(segment.ledger_id) or await self._log._open(segment)
            if ledger is None:  # It closed empty and left the list: what is wanted stands behind it.
                log_list, place = await self._log._next(log_list, place, segment, NO_ENTRY)
                continue
            self._opened[segment.ledger_id] = ledger
            last = ledger.metadata.last_entry
            if last is None or entry_id <= last:
                return await self._in_ledger(ledger, segment, entry_id)
            entry_id -= last + 1  # The next one's place is not recorded yet.
            following += last + 1
            log_list, place = await self._log._next(log_list, place, segment, last)
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
            await self._log._check_left(segment, entry_id - 1)
            raise
        return found

    def close(self) -> None:
        for ledger in self._opened.values():
            ledger.close()


@dataclass(slots=True)
class _Standing:
    """Where a tailing reader stands."""

    place: Place
    segment: LogSegment  # With its place in the log.
    first: int | None  # Where it begins in this ledger; None: behind what is there now.
    seen: int = NO_ENTRY  # The last entry of the ledger up to which it has read, or looked.


def _offset(segment: LogSegment) -> int:
    assert segment.first_offset is not None
    return segment.first_offset


def _is_at_or_before(segment: LogSegment, offset: int) -> bool:
    return segment.first_offset is not None and segment.first_offset <= offset


def _begins_before(segment: LogSegment, offset: int, *, unplaced: bool = False) -> bool:
    """unplaced: the message for one whose place is not recorded."""
    return unplaced if segment.first_offset is None else segment.first_offset < offset


def _ends_at(segment: LogSegment, offset: int) -> bool:
    return segment.last_entry is not None and end_of(segment) == offset


def _placed(segment: LogSegment, following: int | None) -> LogSegment | None:
    """The segment with its place: as recorded, or where the one before it ended, as the reader saw; None: not known."""
    if segment.first_offset is not None:
        return segment
    return None if following is None else replace(segment, first_offset=following)


def _first_in(segment: LogSegment, start: Start) -> int:
    """Where reading begins in a segment behind the one it began in: above 0 only for a place still ahead."""
    if isinstance(start, Position):
        return max(0, start.entry_id) if start.ledger_id == segment.ledger_id else 0
    return max(0, start - _offset(segment)) if start is not None else 0


def _until(segment: LogSegment, first_offset: int, end: Start, begins: int | None) -> int | None:
    """The entry of this segment at which reading ends, if it does: at most 0 where it ends before the segment. begins:
    where the ledger of a position begins, which decides what is behind it; ids stand in any order (P8.5)."""
    if isinstance(end, Position):
        if segment.ledger_id == end.ledger_id:
            return end.entry_id
        is_before = begins is None or first_offset < begins
        # Before it in the list there may be one that closed empty; what else begins there comes in place of it.
        is_empty = first_offset == begins and segment.last_entry == NO_ENTRY
        return None if is_before or is_empty else 0
    return None if end is None else end - first_offset
