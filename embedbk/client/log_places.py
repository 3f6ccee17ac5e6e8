"""Where a place stands in a log's list (P6.6, P8.5): a dense offset, or a position in one of its ledgers.

Decides with which ledger and entry reading begins and ends, which ledger follows one that is gone, and what a place
means that the list does not have: truncated, never there, or not known yet. Leaves to `log_pages` which pages are read,
and to `log_reading` which list is the present one.
"""

from __future__ import annotations

from msgspec.structs import replace

from embedbk.client.log_pages import ListWalk, Place
from embedbk.codec.log_list import LogList, LogSegment
from embedbk.core.log_paging import end_of, rises
from embedbk.errors import NoSuchEntry, NoSuchLedger, Truncated, UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY, Position

__all__ = ["BEHIND_ALL", "LogPlaces", "Start", "begins_at", "ends_in", "first_in", "placed"]

Start = Position | int | None  # A position, or a dense offset.

BEHIND_ALL = LEDGER_ID_MAX // 2  # An entry behind all that a ledger can have.


class LogPlaces:
    """The places of one log. Every method raises PageGone if the given list is outdated."""

    def __init__(self, walk: ListWalk) -> None:
        self.walk = walk

    @property
    def name(self) -> str:
        return self.walk.name

    async def offset_in(self, log_list: LogList, place: Start) -> int:
        """The dense offset of a place, which may be kept as it is: by a pin, or a cursor."""
        if not isinstance(place, Position):
            if not _is_number(place, 0):
                raise UsageError(f"{place!r} is no place in a log: a Position, or an offset from 0 to 2^63-1")
            assert isinstance(place, int)
            return place
        found, entry_id = await self._by_ledger(log_list, place)
        if found is None or entry_id == BEHIND_ALL:
            raise NoSuchEntry(f"log {self.name!r}: where ledger {place.ledger_id} begins is not known yet")
        offset = begins_at(found.segment) + entry_id
        if offset > LEDGER_ID_MAX:
            raise UsageError(f"{place!r} is no place in a log: there is no offset beyond 2^63-1")
        return offset

    async def located(self, log_list: LogList, start: Start) -> tuple[LogList, Place | None, int]:
        """(list, place, entry in it) where reading begins; no place: there is no ledger yet. In front of a ledger whose
        place is not recorded yet it begins behind all entries of the one before, whose end determines it."""
        if start is None or not log_list.segments:
            return log_list, await self.walk.first(log_list), 0
        if isinstance(start, Position):
            return log_list, *await self._by_ledger(log_list, start)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise UsageError(f"{start!r} is no place in a log: a Position, or an offset from 0 on")
        place = await self.walk.last(log_list, lambda each: _is_at_or_before(each, start))
        if start < log_list.first_offset or place is None:
            raise self._truncated(f"offset {start} is", log_list)
        return log_list, place, start - begins_at(place.segment)

    async def ending(self, log_list: LogList, end: Start) -> tuple[Start, int | None]:
        """An end as the list names it, and, of a position, where its ledger begins; None: that is not known yet."""
        _, place, entry_id = await self.located(log_list, end)
        if not isinstance(end, Position) or place is None or entry_id == BEHIND_ALL:
            return end, None
        return Position(place.segment.ledger_id, entry_id), place.segment.first_offset

    async def _by_ledger(self, log_list: LogList, start: Position) -> tuple[Place | None, int]:
        if not all(_is_number(each, NO_ENTRY) for each in start):
            raise UsageError(
                f"{start!r} is no place in a log: whole numbers of a ledger and an entry are allowed, up to 2^63-1"
            )
        found = await self.walk.holding(log_list, start.ledger_id)
        if found is not None:
            if found.segment.first_offset is not None:
                return found, start.entry_id
            return Place(found.segments, found.index - 1), BEHIND_ALL
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

    async def behind(
        self, log_list: LogList, left: LogSegment, seen: int, first: int = 0, *, is_gone: bool = False
    ) -> tuple[LogList, Place | None]:
        """The ledger that the list names behind one that was read up to `seen`, if nothing between them is missing from
        its entry `first` on, with which the reader began: offsets are dense and never move (I93), so the start of the
        next shows what the reader has not seen. is_gone: the ledger was deleted, so the list must not name it."""
        # By its place, as ids stand in any order (P8.5); several may begin there, if all but the last are empty.
        begins = begins_at(left)
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
            raise self.deleted(left)
        # No ledger without an offset stands behind one that is gone: that one was the last recorded as closed (P8.2).
        offset, wanted = begins_at(behind.segment), begins + seen + 1
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

    def deleted(self, left: LogSegment) -> NoSuchLedger:
        return NoSuchLedger(
            f"log {self.name!r} was deleted: ledger {left.ledger_id} was part of it",
            hint="its next writer begins a new log under this name",
        )


def _is_number(given: object, low: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and low <= given <= LEDGER_ID_MAX


def begins_at(segment: LogSegment) -> int:
    assert segment.first_offset is not None
    return segment.first_offset


def placed(segment: LogSegment, following: int | None) -> LogSegment | None:
    """The segment with its place: as recorded, or where the one before it ended, as the reader saw; None: not known."""
    if segment.first_offset is not None:
        return segment
    return None if following is None else replace(segment, first_offset=following)


def first_in(segment: LogSegment, start: Start) -> int:
    """Where reading begins in a segment behind the one it began in: above 0 only for a place still ahead."""
    if isinstance(start, Position):
        return max(0, start.entry_id) if start.ledger_id == segment.ledger_id else 0
    return max(0, start - begins_at(segment)) if start is not None else 0


def ends_in(segment: LogSegment, first_offset: int, end: Start, begins: int | None) -> int | None:
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


def _is_at_or_before(segment: LogSegment, offset: int) -> bool:
    return segment.first_offset is not None and segment.first_offset <= offset


def _begins_before(segment: LogSegment, offset: int, *, unplaced: bool = False) -> bool:
    """unplaced: the message for one whose place is not recorded."""
    return unplaced if segment.first_offset is None else segment.first_offset < offset


def _ends_at(segment: LogSegment, offset: int) -> bool:
    return segment.last_entry is not None and end_of(segment) == offset
