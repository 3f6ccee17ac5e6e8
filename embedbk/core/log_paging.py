"""When the older ledgers of a log's list go to pages of their own, and how one of them is found there (P8.6).

Pure functions. Pages are written in the transaction that lists one more ledger, and everything that changes the list
compares the list's own key, so that alone is compared. A writer that only appends needs no page.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_list import LogList, LogPages, LogSegment
from embedbk.codec.log_pages import LogPage
from embedbk.ids import NO_ENTRY

__all__ = ["Cut", "cut", "end_of", "last_position", "recorded_bytes", "rises", "search"]

# Pages of one transaction. A list that a build before let grow to its bound moves there in several.
_MOVED_MAX = 16


class Cut(NamedTuple):
    """A list without what goes to pages, and the pages to be written, by their numbers."""

    segments: tuple[LogSegment, ...]
    pages: LogPages | None
    moved: tuple[tuple[int, LogPage], ...]


def cut(segments: tuple[LogSegment, ...], pages: LogPages | None, page_ledgers: int) -> Cut:
    """Move whole pages of ledgers, all recorded as closed, from the front of the list; the newest closed one stays,
    because a reader at the end of the log comes from there. page_ledgers 0: none may be moved."""
    if not page_ledgers:
        return Cut(segments, pages, ())
    closed = next((i for i, each in enumerate(segments) if each.last_entry is None), len(segments))
    count = min(max(0, closed - 1) // page_ledgers, _MOVED_MAX)
    moved: list[tuple[int, LogPage]] = []
    for begin in range(0, count * page_ledgers, page_ledgers):
        ours = segments[begin : begin + page_ledgers]
        if pages is None:
            pages = LogPages(ours[0].ledger_id, 0, 0, 0, 0, 0, 0)
        first_offset = ours[0].first_offset if pages.first == pages.end else pages.first_offset
        assert first_offset is not None  # It is closed.
        is_mixed = not rises(ours, pages)
        moved.append((pages.end, LogPage(METADATA_VERSION, ours)))
        pages = replace(
            pages,
            end=pages.end + 1,
            first_offset=first_offset,
            ledgers=pages.ledgers + len(ours),
            length=pages.length + sum(each.length or 0 for each in ours),
            last=last_position(ours, pages),
            is_mixed=is_mixed,
        )
    return Cut(segments[count * page_ledgers :], pages, tuple(moved))


def rises(segments: tuple[LogSegment, ...], pages: LogPages | None) -> bool:
    """Whether ids rise along the pages and these, which stand behind them: as long as nothing is spliced (P8.5)."""
    if pages is not None and pages.is_mixed:
        return False
    last = pages.last if pages is not None else None
    is_behind = last is None or not segments or last[0] < segments[0].ledger_id
    return is_behind and all(one.ledger_id < other.ledger_id for one, other in pairwise(segments))


def last_position(segments: tuple[LogSegment, ...], pages: LogPages | None) -> tuple[int, int] | None:
    """(ledger, entry) of the last entry of these, which are closed, or of what stands before them."""
    for segment in reversed(segments):
        assert segment.last_entry is not None
        if segment.last_entry != NO_ENTRY:
            return segment.ledger_id, segment.last_entry
    return pages.last if pages is not None else None


def recorded_bytes(log_list: LogList) -> int:
    """The payload bytes of a log's closed ledgers, as far as their lengths were recorded."""
    older = log_list.pages.length if log_list.pages is not None else 0
    return older + sum(each.length or 0 for each in log_list.segments)


def end_of(segment: LogSegment) -> int:
    """The offset behind a ledger that is recorded as closed."""
    assert segment.first_offset is not None
    assert segment.last_entry is not None
    return segment.first_offset + segment.last_entry + 1


def search(
    pages: LogPages, is_at_or_before: Callable[[LogSegment], bool]
) -> Generator[int, LogPage, tuple[int, LogPage]]:
    """The last page whose first ledger is at or before what is looked for, or the oldest, as (number, page). Yields the
    number of each page that is to be read, which is sent in: as many as the logarithm of their number.

    is_at_or_before: true of the ledgers of the log up to one, and of none behind it.
    """
    low, high = pages.first, pages.end
    assert low < high
    found: LogPage | None = None
    while high - low > 1:
        middle = (low + high) // 2
        page = yield middle
        if is_at_or_before(page.segments[0]):
            low, found = middle, page
        else:
            high = middle
    if found is None:
        found = yield low
    return low, found
