"""The list of a log with ledgers in front again that truncation had taken off (P8.15). Pure functions.

Decides which ledgers stood directly in front of a list, and how its pages name them again. `client.undeleting` asks
bookies what they hold, and makes the transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_list import LogList, LogPages, LogSegment
from embedbk.codec.log_pages import LogPage
from embedbk.core.log_paging import end_of
from embedbk.ids import NO_ENTRY

__all__ = ["Front", "front_of", "run_before", "with_front"]

_PAGE_LEDGERS = 256  # A page that is made has as many as one round of truncation takes off.


class Front(NamedTuple):
    """What stood in front of a list, oldest first, and under which number of a page it is named again."""

    segments: tuple[LogSegment, ...]
    number: int
    is_there: bool  # The page is there already, and skips these.
    is_mixed: bool  # Ids do not rise along the pages with these.


def run_before(first_offset: int, places: Iterable[LogSegment]) -> tuple[LogSegment, ...]:
    """Of these ledgers those that end at the offset, each where the next one begins; oldest first. Empty ones are left
    out, as no reader misses anything in them. Where two end at one offset nothing says which of them stood there."""
    whole = [
        each for each in places if each.first_offset is not None and each.last_entry not in (None, NO_ENTRY)
    ]
    counts = Counter(end_of(each) for each in whole)
    by_end = {end_of(each): each for each in whole}
    run: list[LogSegment] = []
    while counts[first_offset] == 1 and len(run) < _PAGE_LEDGERS:
        run.append(by_end[first_offset])
        assert run[-1].first_offset is not None
        first_offset = run[-1].first_offset
    return tuple(reversed(run))


def front_of(log_list: LogList, oldest: LogPage | None, places: Iterable[LogSegment]) -> Front | None:
    """What can be named in front of a list again; None: nothing.

    oldest: its oldest page, where it has one. places: what was noted of ledgers that truncation took off.
    """
    pages = log_list.pages
    if pages is None:
        return None
    if oldest is not None and pages.skipped:
        return Front(oldest.segments[: pages.skipped], pages.first, is_there=True, is_mixed=pages.is_mixed)
    run = run_before(log_list.first_offset, places)
    if not run or not pages.first:
        return None
    listed = {each.ledger_id for each in log_list.segments}
    if listed.intersection(each.ledger_id for each in run):
        return None
    behind = oldest.segments[:1] if oldest is not None else ()
    has_order = all(one.ledger_id < other.ledger_id for one, other in pairwise((*run, *behind)))
    return Front(run, pages.first - 1, is_there=False, is_mixed=pages.is_mixed or not has_order)


def with_front(log_list: LogList, front: Front, count: int) -> tuple[LogList, LogPage | None]:
    """The list with the newest `count` of these in front of it, and the page that is to be written; None: it is there.
    A page has all that stood there, and those that do not come back now are skipped, as truncated ones are."""
    pages = log_list.pages
    assert pages is not None
    back = front.segments[len(front.segments) - count :]
    first_offset = back[0].first_offset
    assert first_offset is not None
    new: LogPages = replace(
        pages,
        first=front.number,
        skipped=len(front.segments) - count,
        first_offset=first_offset,
        ledgers=pages.ledgers + count,
        length=pages.length + sum(each.length or 0 for each in back),
        is_mixed=front.is_mixed,
    )
    page = None if front.is_there else LogPage(METADATA_VERSION, front.segments)
    return replace(log_list, pages=new), page
