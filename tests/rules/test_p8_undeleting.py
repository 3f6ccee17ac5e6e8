"""P8.15: which ledgers stood in front of a list, how it names them again, and when a quorum is known to hold one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from embedbk.client.undeleting import why_not_held
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LedgersLeft,
    LogList,
    LogPages,
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    encode_log_list,
)
from embedbk.codec.log_pages import LogPage
from embedbk.codec.tombstone import Tombstone, decode_tombstone, encode_tombstone
from embedbk.core.fronting import front_of, run_before, with_front
from embedbk.core.truncation import without
from embedbk.repair.holdings import Checked, Shortage
from embedbk.repair.published import Unlike
from tests.repair.test_auditor import ledger

OLD = tuple(LogSegment(10 + n, 2 * n, 1, 100 + n, 3, 5) for n in range(6))  # Two entries and five bytes each.
LAST = LogSegment(20, 12, None)


def test_a_run_ends_at_the_list_and_at_the_first_gap() -> None:
    """P8.15: "each ledger where the next one begins"; no other is taken in a place; empty ones are left out."""
    empty = LogSegment(30, 12, -1)
    assert run_before(12, [*reversed(OLD), empty]) == OLD
    assert run_before(12, [*OLD[:3], *OLD[4:]]) == OLD[4:]
    assert run_before(11, OLD) == () and run_before(0, OLD) == ()
    assert run_before(12, [*OLD, LogSegment(31, 8, 1)]) == OLD[5:]  # Two say that they ended at 10.


def test_what_a_truncation_takes_off_the_list_itself_has_a_page_kept_for_it() -> None:
    """P8.15: "a truncation that takes ledgers off a list without pages keeps one for them"."""
    log_list = LogList(METADATA_VERSION, 1, (*OLD, LAST))
    assert without(log_list, log_list.segments, 6).pages == LogPages(10, 0, 0, 0, 12, 0, 0, (15, 1))
    cut = without(log_list, log_list.segments, 6, reserves=True)
    assert cut.pages == LogPages(10, 1, 1, 0, 12, 0, 0, (15, 1))
    front = front_of(cut, None, OLD)
    assert front is not None and (front.segments, front.number, front.is_mixed) == (OLD, 0, False)
    some, page = with_front(cut, front, 2)
    assert page == LogPage(METADATA_VERSION, OLD)
    assert some.pages == LogPages(10, 0, 1, 4, 8, 2, 10, (15, 1)) and some.segments == (LAST,)
    assert decode_log_list(encode_log_list(some)) == some
    rest = front_of(some, page, ())
    assert rest is not None and rest.is_there and rest.segments == OLD[:4]
    whole, none = with_front(some, rest, 4)
    assert none is None and whole.pages == LogPages(10, 0, 1, 0, 0, 6, 30, (15, 1))


def test_nothing_comes_back_without_a_free_number_or_beside_itself() -> None:
    """P8.15: "Where none is free, as for what went below the level, nothing comes back"."""
    bare = LogList(METADATA_VERSION, 1, (LAST,), LogPages(10, 0, 0, 0, 12, 0, 0))
    assert front_of(bare, None, OLD) is None
    assert front_of(replace(bare, pages=None), None, OLD) is None
    twice = LogList(METADATA_VERSION, 1, (replace(LAST, ledger_id=15),), LogPages(10, 1, 1, 0, 12, 0, 0))
    assert front_of(twice, None, OLD) is None


def test_ids_that_do_not_rise_are_known_as_such() -> None:
    """P8.10: "Its pages say whether ids rise along them": a search by an id relies on it."""
    pages = LogPages(10, 3, 4, 0, 12, 1, 5)
    behind = LogPage(METADATA_VERSION, (LogSegment(20, 12, 1),))
    log_list = LogList(METADATA_VERSION, 1, (LogSegment(40, 14, None),), pages)
    for places, is_mixed in ((OLD, False), ((*OLD[:5], replace(OLD[5], ledger_id=21)), True)):
        front = front_of(log_list, behind, places)
        assert front is not None and front.number == 2 and front.is_mixed == is_mixed
        assert with_front(log_list, front, 1)[0].pages == LogPages(10, 2, 4, 5, 10, 2, 10, None, is_mixed)


@pytest.mark.parametrize(
    ("lacking", "silent", "other", "is_held"),
    [
        ((), (), (), True),
        (("b1",), (), (), True),
        ((), ("b1",), (), True),
        (("b1",), ("b2",), (), False),
        (("b1", "b2"), (), (), False),
        ((), ("b1", "b2"), (), False),
        ((), ("b1",), ("b2",), False),
    ],
)
def test_a_bookie_that_does_not_say_so_holds_nothing(
    lacking: tuple[str, ...], silent: tuple[str, ...], other: tuple[str, ...], is_held: bool
) -> None:
    """P8.15: "one that is away, does not answer, lacks an entry or has other bytes than were written counts as
    none"."""
    metadata = ledger(7, 1, 2, 3)
    ledger_id = metadata.ledger_id
    checked = Checked(
        {ledger_id: {each: Shortage(1) for each in lacking}},
        {ledger_id: dict.fromkeys(silent, "it is not there")},
        9,
        {},
        {ledger_id: [Unlike(each, 0, 1, 1, 0) for each in other]},
    )
    why = why_not_held(metadata, checked)
    assert (why == "") == is_held
    assert all(each in why for each in (*lacking, *silent, *other) if not is_held)


def test_values_without_places_are_written_as_builds_before_write_them() -> None:
    """P10.8: what is noted comes at the end, and only where there is something."""
    left = LedgersLeft(METADATA_VERSION, (10, 11), (), OLD[:2])
    stone = Tombstone(1, 10, 5, 6, b"metadata", OLD[0])
    assert decode_ledgers_left(encode_ledgers_left(left)) == left
    assert decode_tombstone(encode_tombstone(stone)) == stone
    assert encode_ledgers_left(replace(left, segments=())) == b"\x92\x01\x92\x0a\x0b"
    assert encode_tombstone(replace(stone, segment=None)) == b"\x95\x01\x0a\x05\x06\xc4\x08metadata"
