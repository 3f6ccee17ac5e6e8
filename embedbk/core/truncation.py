"""How much of a log's front may go, and the list without it (P8.3, P8.8). Pure functions; `core.truncating` carries it
out.

A ledger goes whole: when it is recorded as closed, is not the last of the list, and each of its entries is before what
was asked for, before every pin, and before every cursor that holds the log. Force ends the hold of a cursor, never a
pin; so does a bound that the cursor was given, or that the log has and at which it lets go of cursors.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.codec.log_cursors import CursorHold
from embedbk.codec.log_list import Begun, LogList, LogPages, LogSegment
from embedbk.codec.log_pins import PinRecord
from embedbk.core.log_paging import end_of, last_position
from embedbk.ids import LEDGER_ID_MAX

__all__ = ["Held", "HoldingCursor", "Terms", "TruncationVerdict", "ended_ms", "judge", "live_pins", "without"]


class Held(enum.Enum):
    """Why a log is not truncated further."""

    REACHED = "reached"  # The next ledger holds entries that are not to go.
    OPEN = "open"  # The next ledger is not recorded as closed yet.
    LAST = "last"  # The next ledger is the last one.
    PIN = "pin"
    CURSOR = "cursor"


class Terms(NamedTuple):
    """The bounds that were asked for; a ledger goes only where each bound that is given allows it."""

    before: int | None = None  # Entries below this offset.
    # Entries appended before this time, by the list's times of its ledgers.
    begun_before_ms: int | None = None
    keep_bytes: int | None = None  # So many payload bytes stay, as far as lengths are recorded.
    is_forced: bool = False  # Past cursors that hold the log.
    # Only as long as more payload bytes than this are there, as far as lengths are recorded, and past cursors that hold
    # the log: its own bound says so (`AtBound.LET_GO`).
    fits_bytes: int | None = None
    # The revision of the log's settings that ask for this, which the transaction compares; None: a caller asks.
    settings_at: int | None = None


class HoldingCursor(NamedTuple):
    """A cursor that holds the log from its offset on."""

    name: str
    offset: int
    is_idle: bool  # It was not moved for as long as its hold lasts.
    bytes_behind: int | None  # Its hold ends when more payload bytes are behind it.


class TruncationVerdict(NamedTuple):
    going: int  # So many of the oldest ledgers go.
    held: Held | None  # None: all that were looked at go, and more may.
    by: str = ""  # The name of the pin or cursor that held.
    ended: tuple[tuple[str, CursorHold], ...] = ()  # Cursors whose hold ends with these ledgers, and why.


def live_pins(pins: Sequence[PinRecord], now_ms: int) -> tuple[PinRecord, ...]:
    return tuple(pin for pin in pins if pin.until_ms > now_ms)


def judge(
    window: tuple[LogSegment, ...],
    count: int,
    terms: Terms,
    pins: Sequence[PinRecord],
    bytes_behind: int,
    holders: Sequence[HoldingCursor] = (),
    *,
    has_more: bool,
    now_ms: int = LEDGER_ID_MAX,
) -> TruncationVerdict:
    """Whether each of the first `count` ledgers of the log may go.

    window: these, and the ones behind them; has_more: others follow the window. bytes_behind: payload bytes of the
    whole log, as far as they were recorded. holders: the cursors that hold it. now_ms: as `ended_ms` takes it.
    """
    lowest = min(pins, key=lambda pin: (pin.offset, pin.name), default=None)
    in_order = sorted(holders, key=lambda each: (each.offset, each.name))
    ended: dict[str, CursorHold] = {}
    for index in range(count):
        segment = window[index]
        if terms.before is not None and (segment.first_offset or 0) >= terms.before:
            return TruncationVerdict(index, Held.REACHED, "", tuple(ended.items()))
        if index + 1 == len(window) and not has_more:
            return TruncationVerdict(index, Held.LAST, "", tuple(ended.items()))
        if segment.last_entry is None:
            return TruncationVerdict(index, Held.OPEN, "", tuple(ended.items()))
        end = end_of(segment)
        if terms.fits_bytes is not None and bytes_behind <= terms.fits_bytes:
            return TruncationVerdict(index, Held.REACHED, "", tuple(ended.items()))
        bytes_behind -= segment.length or 0
        if not _is_wanted(terms, end, ended_ms(window, index, now_ms), bytes_behind, segment):
            return TruncationVerdict(index, Held.REACHED, "", tuple(ended.items()))
        if lowest is not None and end > lowest.offset:
            return TruncationVerdict(index, Held.PIN, lowest.name, tuple(ended.items()))
        passed: dict[str, CursorHold] = {}
        for holder in in_order:
            if holder.offset >= end:
                break
            why = _why_ended(holder, bytes_behind, terms)
            if why is None and holder.name not in ended:
                return TruncationVerdict(index, Held.CURSOR, holder.name, tuple(ended.items()))
            if why is not None:
                passed[holder.name] = why
        ended = {**passed, **ended}
    if not window:
        return TruncationVerdict(0, Held.LAST)  # The log has no ledger yet.
    return TruncationVerdict(count, None, "", tuple(ended.items()))


def _why_ended(holder: HoldingCursor, bytes_behind: int, terms: Terms) -> CursorHold | None:
    """Why a cursor does not hold a ledger behind which so many payload bytes are; None: it does."""
    if holder.is_idle:
        return CursorHold.ENDED_BY_TIME
    if holder.bytes_behind is not None and bytes_behind > holder.bytes_behind:
        return CursorHold.ENDED_BY_BYTES
    if terms.fits_bytes is not None:
        return CursorHold.ENDED_BY_BOUND
    return CursorHold.ENDED_BY_FORCE if terms.is_forced else None


def _is_wanted(terms: Terms, end: int, ended_ms: int | None, bytes_behind: int, segment: LogSegment) -> bool:
    if terms.before is not None and end > terms.before:
        return False
    if terms.begun_before_ms is not None and (ended_ms is None or ended_ms > terms.begun_before_ms):
        return False
    return terms.keep_bytes is None or (segment.length is not None and bytes_behind >= terms.keep_bytes)


def ended_ms(window: tuple[LogSegment, ...], index: int, now_ms: int) -> int | None:
    """A time behind all appends to a ledger, as clocks agree; None: the list has none. A takeover begins its
    ledger behind the end of the one before, and what is ready-made is spliced behind it. An owner lists its next one
    while it still appends, but the one after that only when the end of this one is recorded (P8.2 iv).

    now_ms: by the clock on the wall. A time after it, or below that of the ledger itself, is of a clock that was wrong,
    and the next ledger's time tells it instead: each later one was begun behind that end, too."""
    begun_ms = window[index].created_ms
    floor_ms = begun_ms if begun_ms <= now_ms else 0
    for place in range(index + 1, len(window)):
        later = window[place]
        is_behind = place > index + 1 or later.begun in (Begun.TAKEOVER, Begun.SPLICE)
        if is_behind and later.created_ms and floor_ms <= later.created_ms <= now_ms:
            return later.created_ms
    return None


def without(
    log_list: LogList, front: tuple[LogSegment, ...], count: int, *, reserves: bool = False
) -> LogList:
    """The list without the first `count` of its oldest ledgers: of its oldest page, or of its own. front: all
    ledgers of that page, or of the list. reserves: a list without a page keeps the number of one for those that go, in
    front of all pages to come, so that they can be put back (P8.15)."""
    gone, rest = front[:count], front[count:]
    pages = log_list.pages
    if pages is None or not log_list.has_pages:
        first_offset = rest[0].first_offset  # The last one never goes.
        assert first_offset is not None
        if pages is None:
            pages = LogPages(front[0].ledger_id, 0, 0, 0, first_offset, 0, 0)
        number = pages.end + 1 if reserves else pages.end
        pages = replace(
            pages, first=number, end=number, first_offset=first_offset, last=last_position(gone, pages)
        )
        return replace(log_list, segments=rest, pages=pages)
    pages = replace(
        pages,
        first=pages.first if rest else pages.first + 1,
        skipped=pages.skipped + count if rest else 0,
        first_offset=end_of(gone[-1]),
        ledgers=pages.ledgers - count,
        length=pages.length - sum(each.length or 0 for each in gone),
    )
    return replace(log_list, pages=pages)
