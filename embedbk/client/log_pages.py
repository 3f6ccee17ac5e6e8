"""Walks through a log's list to find a place in it: page by page, then the list's own ledgers (P8.6).

Decides which pages are read: as many as the logarithm of their number to find a ledger, and each page once to walk on.
`log_places` decides what a place means to a reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from embedbk.client.runtime import Runtime
from embedbk.codec.log_list import LogList, LogPages, LogSegment
from embedbk.codec.log_pages import LogPage, decode_log_page, log_page_path
from embedbk.core.log_paging import search

__all__ = ["ListWalk", "PageGone", "Place"]


class PageGone(Exception):
    """A page that a list names is not there: the list has changed since it was read, or its log was deleted."""


@dataclass(frozen=True, slots=True)
class Place:
    """One ledger of a list, and its page; None: it is among the list's own."""

    # The ledgers of that page, without the truncated ones, or of the list itself.
    segments: tuple[LogSegment, ...]
    index: int
    number: int | None = None
    series: int = 0  # The series to which the pages belong.

    @property
    def segment(self) -> LogSegment:
        return self.segments[self.index]


class ListWalk:
    """The list of one log. Every method raises PageGone if the given list is outdated."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.runtime = runtime
        self.name = name

    async def first(self, log_list: LogList) -> Place | None:
        if log_list.pages is not None and log_list.has_pages:
            return await self._in_page(log_list.pages, log_list.pages.first)
        return Place(log_list.segments, 0) if log_list.segments else None

    async def last(self, log_list: LogList, is_at_or_before: Callable[[LogSegment], bool]) -> Place | None:
        """The last ledger for which this holds, as it does for all before it; None: not even for the first.

        It is asked of ledgers without an offset as well (P8.2)."""
        own = _last_of(log_list.segments, is_at_or_before)
        pages = log_list.pages
        if own is not None or pages is None or not log_list.has_pages:
            return None if own is None else Place(log_list.segments, own)
        steps = search(pages, is_at_or_before)
        wanted = next(steps)
        while True:
            try:
                wanted = steps.send(await self._page(pages, wanted))
            except StopIteration as found:
                number, page = found.value
                break
        segments = _listed(pages, number, page)
        index = _last_of(segments, is_at_or_before)
        return None if index is None else Place(segments, index, number, pages.series)

    async def holding(self, log_list: LogList, ledger_id: int) -> Place | None:
        """The ledger of this id, wherever it stands; None: the list does not name it. Ids come in any order (P8.5):
        where they rise along the pages, as few pages are read as by `last`; elsewhere all in the worst case, newest
        first."""
        segments, pages = log_list.segments, log_list.pages
        own = next((i for i, each in enumerate(segments) if each.ledger_id == ledger_id), None)
        if own is not None:
            return Place(segments, own)
        if pages is None or not log_list.has_pages:
            return None
        if not pages.is_mixed:
            only_pages = replace(log_list, segments=())
            place = await self.last(only_pages, lambda each: each.ledger_id <= ledger_id)
            return place if place is not None and place.segment.ledger_id == ledger_id else None
        for number in reversed(range(pages.first, pages.end)):
            listed = _listed(pages, number, await self._page(pages, number))
            for index, each in enumerate(listed):
                if each.ledger_id == ledger_id:
                    return Place(listed, index, number, pages.series)
        return None

    async def after(self, place: Place | None, log_list: LogList) -> Place | None:
        """The ledger that follows it in this list, which is not older than the place; None: none yet. place None: the
        first. A place in the list's own part is valid for the same list only. If the ledgers behind a page were
        truncated meanwhile, the next ones do not follow it; dense offsets show that (I93)."""
        if place is None:
            return await self.first(log_list)
        if place.index + 1 < len(place.segments):
            return Place(place.segments, place.index + 1, place.number, place.series)
        if place.number is None:
            return None
        pages = log_list.pages
        if pages is None or pages.series != place.series or not pages.first <= place.number + 1 <= pages.end:
            raise PageGone
        is_paged = place.number + 1 < pages.end
        found = await self._in_page(pages, place.number + 1) if is_paged else Place(log_list.segments, 0)
        if not _follows(place.segment, found.segment):
            raise PageGone
        return found

    async def _in_page(self, pages: LogPages, number: int) -> Place:
        return Place(_listed(pages, number, await self._page(pages, number)), 0, number, pages.series)

    async def _page(self, pages: LogPages, number: int) -> LogPage:
        key = log_page_path(self.name, pages, number)
        value, _ = await self.runtime.get(key, f"reading the list of log {self.name!r}, page {number}")
        if value is None:
            raise PageGone
        return decode_log_page(value, self.name, number)


def _follows(before: LogSegment, segment: LogSegment) -> bool:
    """Whether this ledger directly follows one in a page, whose end is recorded."""
    assert before.first_offset is not None and before.last_entry is not None
    return segment.first_offset in (None, before.first_offset + before.last_entry + 1)


def _listed(pages: LogPages, number: int, page: LogPage) -> tuple[LogSegment, ...]:
    """The ledgers of a page, without the truncated ones."""
    listed = page.segments[pages.skipped :] if number == pages.first else page.segments
    if not listed:
        raise PageGone  # No build writes that: such a list does not fit its pages.
    return listed


def _last_of(segments: tuple[LogSegment, ...], is_at_or_before: Callable[[LogSegment], bool]) -> int | None:
    low, high = -1, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if is_at_or_before(segments[middle]):
            low = middle
        else:
            high = middle
    return low if low >= 0 else None
