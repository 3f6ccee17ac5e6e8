"""What every handle does that reads a log, whichever face shows it: ledger behind ledger, and the tail (P6.6).

Decides where reading begins, and when it goes on to the next ledger: only when the one it reads is CLOSED and read to
its end. Leaves each ledger to `reading`. The log's list is followed by watch, never polled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from msgspec.structs import replace

from embedbk.client.batches import Located, Segment
from embedbk.client.password import Password
from embedbk.client.reading import Frames, LedgerReading
from embedbk.client.runtime import Followed, Runtime
from embedbk.codec.ledger_metadata import LogSegment, decode_log_list, log_key_path
from embedbk.errors import NoSuchEntry, NoSuchLedger, Truncated, UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY, Position

__all__ = ["LogReading", "Start"]

_BEHIND_ALL = LEDGER_ID_MAX // 2  # An entry behind all that a ledger can have.

Start = Position | int | None  # A position, or a dense offset.


class LogReading:
    """One log, for reading."""

    def __init__(self, runtime: Runtime, name: str, password: Password) -> None:
        self.runtime = runtime
        self.name = name
        self.password = password

    async def listed(self) -> tuple[LogSegment, ...]:
        """The log's list of ledgers; raises NoSuchLedger when nobody ever wrote to the log."""
        value, _ = await self.runtime.get(log_key_path(self.name), f"reading the list of log {self.name!r}")
        if value is None:
            raise NoSuchLedger(
                f"there is no log {self.name!r}", hint="check the name; its first writer makes it"
            )
        return decode_log_list(value, self.name).segments

    async def segments(self) -> list[Segment]:
        """In order, without one whose place is not known yet, as the one before it is still written (P8.2)."""
        found: list[Segment] = []
        following: int | None = None
        for listed in await self.listed():
            segment = _placed(listed, following)
            if segment is None:
                break
            first_offset, last_entry, is_closed = _offset(segment), segment.last_entry, True
            if last_entry is None:
                ledger = await self._open(segment)
                if ledger is None:
                    following = first_offset
                    continue
                try:
                    last_entry = await ledger.limit()
                    is_closed = ledger.is_closed and last_entry == ledger.metadata.last_entry
                except NoSuchLedger:
                    await self._check_left(segment, NO_ENTRY)
                    following = first_offset
                    continue
                finally:
                    ledger.close()
            found.append(Segment(segment.ledger_id, first_offset, last_entry, is_closed))
            following = first_offset + last_entry + 1 if is_closed else None
        return found

    async def read(self, start: Start, end: Start) -> Frames:
        """From start (included) to end (left out), as far as may be read when each ledger is reached."""
        segments = await self.listed()
        index, first = _locate(self.name, segments, start)
        if end is not None:
            _locate(self.name, segments, end)  # Refused at once, if it is no place of this log.
        following = segments[index].first_offset if index < len(segments) else None
        for number in range(index, len(segments)):
            segment = _placed(segments[number], following)
            assert segment is not None  # What follows one that is read to its end has a place.
            first_offset = following = _offset(segment)
            if number > index:
                first = _first_in(segment, start)
            until = _until(segments, number, first_offset, end)
            if until is not None and until <= 0:
                return
            ledger = await self._open(segment)
            if ledger is None:
                continue
            try:
                try:
                    last = await ledger.limit()
                    is_whole = ledger.is_closed and last == ledger.metadata.last_entry
                except NoSuchLedger:
                    await self._check_left(segment, NO_ENTRY)
                    continue
                following = first_offset + last + 1
                if until is not None:
                    last = min(last, until - 1)
                if first <= last:
                    async for located in ledger.frames(first, last, first_offset):
                        yield located
            finally:
                ledger.close()
            if not is_whole:
                return  # What may follow in this ledger comes before the next one (P6.6).

    async def tail(self, start: Start, idle_s: float | None) -> Frames:
        """From start on, and everything that comes; start None: what comes from now on. Ends only after idle_s: bookies
        that are away for a while end no tail."""
        followed = await self.runtime.follow(log_key_path(self.name))
        try:
            segment = await self._next_listed(followed, None, idle_s)
            if segment is None:
                return
            segments = _segments(self.name, followed)
            if start is None:
                stands = _Standing(await self._newest(segments), None)
            else:
                index, first = _locate(self.name, segments, start)
                stands = _Standing(segments[min(index, len(segments) - 1)], first)
            while True:
                async for located in self._tail_ledger(stands, idle_s):
                    if located is None:
                        return
                    yield located
                segment = await self._next_listed(followed, stands, idle_s)
                if segment is None:
                    return
                stands = _Standing(segment, _first_in(segment, start))
        finally:
            followed.end()

    async def _newest(self, segments: tuple[LogSegment, ...]) -> LogSegment:
        """The last ledger whose place is known: the one before it may be closed already, and not recorded so (P8.2)."""
        if segments[-1].first_offset is not None:
            return segments[-1]
        before = segments[-2]
        ledger = await self._open(before)
        if ledger is None:
            return before
        try:
            last = ledger.metadata.last_entry
        finally:
            ledger.close()
        placed = _placed(segments[-1], None if last is None else _offset(before) + last + 1)
        return before if placed is None else placed

    async def _tail_ledger(
        self, stands: _Standing, idle_s: float | None
    ) -> AsyncGenerator[Located | None, None]:
        """Its entries from first on until it is closed and read to its end; None: idle for too long."""
        ledger = await self._open(stands.segment)
        if ledger is None:
            return
        first, first_offset = stands.first, _offset(stands.segment)
        try:
            limit = await ledger.limit_in_time(idle_s, is_exact=first is None)
            if limit is None:
                yield None
                return
            if first is None:
                first = limit + 1
            while True:
                if first <= limit:
                    async for located in ledger.frames_in_time(first, limit, first_offset, idle_s):
                        yield located
                    first = limit + 1
                stands.seen = limit
                now_limit = await ledger.wait_beyond(first - 1, idle_s)
                if now_limit is None:
                    break
                if now_limit < first:
                    stands.seen = now_limit
                    return  # CLOSED, and read to its end (P6.6).
                limit = now_limit
            yield None
        except NoSuchLedger:
            await self._check_left(stands.segment, stands.seen)
        finally:
            ledger.close()

    async def _next_listed(
        self, followed: Followed, after: _Standing | None, idle_s: float | None
    ) -> LogSegment | None:
        """The segment behind `after` (None: the first), as soon as the list names one; None after idle_s."""
        while True:
            self.runtime.check()
            segments, revision = _segments(self.name, followed), followed.revision
            number = 0
            if after is not None:
                ids = [segment.ledger_id for segment in segments]
                if after.segment.ledger_id in ids:
                    number = ids.index(after.segment.ledger_id) + 1
                else:
                    number = _behind(self.name, segments, after.segment, after.seen)
            if number < len(segments):
                following = None if after is None else _offset(after.segment) + after.seen + 1
                segment = _placed(segments[number], following)
                assert segment is not None  # What follows one that is read to its end has a place.
                return segment
            if not await followed.beyond(revision, idle_s):
                return None

    async def _open(self, segment: LogSegment) -> LedgerReading | None:
        """None: it closed empty, left the list and was deleted since the list was read (P8.3)."""
        try:
            return await LedgerReading.open(self.runtime, segment.ledger_id, self.password, recover=False)
        except NoSuchLedger:
            await self._check_left(segment, NO_ENTRY)
            return None

    async def _check_left(self, segment: LogSegment, seen: int) -> None:
        """A ledger of the list is gone: raise unless the list says that nothing of the log was in it but what was
        seen."""
        segments = await self.listed()
        if segment.ledger_id in (each.ledger_id for each in segments):
            raise Truncated(
                f"log {self.name!r}: ledger {segment.ledger_id} of its list was deleted",
                hint="read on from the start of the log",
            )
        _behind(self.name, segments, segment, seen)


@dataclass(slots=True)
class _Standing:
    """Where a tailing reader stands."""

    segment: LogSegment
    first: int | None  # Where it begins in this ledger; None: behind what is there now.
    seen: int = (
        NO_ENTRY  # The last entry of the ledger that it has read, or that stands before where it began.
    )


def _behind(name: str, segments: tuple[LogSegment, ...], left: LogSegment, seen: int) -> int:
    """The index of what the list names behind a ledger that it names no more, if nothing between them is missing:
    offsets are dense and never move (I93), so where the next begins says what the reader has not seen."""
    number = next((i for i, each in enumerate(segments) if each.ledger_id > left.ledger_id), None)
    if number is None:
        raise NoSuchLedger(
            f"log {name!r} was deleted: ledger {left.ledger_id} was part of it",
            hint="its next writer begins a new log under this name",
        )
    # No ledger without an offset stands behind one that is gone: that one was the last recorded as closed (P8.2).
    offset, wanted = _offset(segments[number]), _offset(left) + seen + 1
    if offset < wanted:
        raise NoSuchLedger(
            f"log {name!r} was deleted and begun anew: ledger {left.ledger_id} was part of the former",
            hint="read the new one from its start",
        )
    if offset > wanted:
        raise Truncated(
            f"log {name!r}: ledger {left.ledger_id} is below the start of its list now",
            hint="read on from the start of the log",
        )
    return number


def _segments(name: str, followed: Followed) -> tuple[LogSegment, ...]:
    assert followed.state is not None
    value = followed.state[0]
    return decode_log_list(value, name).segments if value is not None else ()


def _offset(segment: LogSegment) -> int:
    assert segment.first_offset is not None
    return segment.first_offset


def _placed(segment: LogSegment, following: int | None) -> LogSegment | None:
    """The segment with its place: as recorded, or where the one before it ended, as the reader saw; None: not known."""
    if segment.first_offset is not None:
        return segment
    return None if following is None else replace(segment, first_offset=following)


def _locate(name: str, segments: tuple[LogSegment, ...], start: Start) -> tuple[int, int]:
    """(index of the segment, entry in it) where reading begins; an index past the end: nothing is there yet. In front
    of a ledger whose place is not recorded yet it begins behind all entries of the one before, whose end tells it."""
    if start is None or not segments:
        return 0, 0
    front = _offset(segments[0])
    if isinstance(start, Position):
        for index, segment in enumerate(segments):
            if segment.ledger_id == start.ledger_id:
                return (
                    (index, start.entry_id) if segment.first_offset is not None else (index - 1, _BEHIND_ALL)
                )
        behind = sum(segment.ledger_id < start.ledger_id for segment in segments)
        was_empty = start.entry_id <= 0 and (behind or front == 0)
        if behind < len(segments) and was_empty:
            return (
                behind,
                0,
            )  # Of a ledger that left the list, as it closed empty: the next one follows (P8.3).
        if not behind:
            raise Truncated(
                f"log {name!r}: ledger {start.ledger_id} is below its start, ledger {segments[0].ledger_id}",
                hint="read from the start of the log",
            )
        raise NoSuchEntry(f"log {name!r} has no ledger {start.ledger_id}")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise UsageError(f"{start!r} is no place in a log: a Position, or an offset from 0 on")
    if start < front:
        raise Truncated(
            f"log {name!r}: offset {start} is below its start, offset {front}",
            hint="read from the start of the log",
        )
    placed = [
        i for i, each in enumerate(segments) if each.first_offset is not None and each.first_offset <= start
    ]
    return placed[-1], start - _offset(segments[placed[-1]])


def _first_in(segment: LogSegment, start: Start) -> int:
    """Where reading begins in a segment behind the one it began in: above 0 only for a place still ahead."""
    if isinstance(start, Position):
        return max(0, start.entry_id) if start.ledger_id == segment.ledger_id else 0
    return max(0, start - _offset(segment)) if start is not None else 0


def _until(segments: tuple[LogSegment, ...], number: int, first_offset: int, end: Start) -> int | None:
    """The entry of this segment at which reading ends, if it does: at most 0 where it ends before the segment."""
    if end is None:
        return None
    if isinstance(end, Position):
        index, entry_id = _end_of(segments, end)
        return entry_id if index == number else None if index > number else 0
    return end - first_offset


def _end_of(segments: tuple[LogSegment, ...], end: Position) -> tuple[int, int]:
    for index, segment in enumerate(segments):
        if segment.ledger_id == end.ledger_id:
            return index, end.entry_id
    return sum(segment.ledger_id < end.ledger_id for segment in segments), 0
