"""The bookies as a client sees them, without a node: what the list says, and what is shown of it."""

from __future__ import annotations

import pytest

from embedbk.codec.metadata_messages import Record
from embedbk.codec.registration import (
    REGISTRATION_VERSION,
    Registration,
    encode_registration,
    registration_path,
)
from embedbk.core.quarantine import ERRORS_MAX
from embedbk.host.listed_bookies import ListedBookies
from embedbk.host.unread import Unread
from embedbk.ids import Member

S = 1_000_000_000
GRACE_NS = 30 * S


@pytest.fixture
def listed() -> ListedBookies:
    return ListedBookies(Unread("the client"), GRACE_NS)


def record(bookie_id: str, *, is_leaving: bool = False) -> Record:
    registration = Registration(
        REGISTRATION_VERSION, bookie_id, bookie_id.encode() * 8, ["tcp://127.0.0.1:1"], True, 0,
        is_leaving=is_leaving,
    )  # fmt: skip
    return Record(registration_path(bookie_id), encode_registration(registration), 1, 1)


def gone(bookie_id: str) -> Record:
    return Record(registration_path(bookie_id), None, 1, 2)


def names(listed: ListedBookies) -> list[str]:
    return [info.member.bookie_id for info in listed.bookies]


def test_a_whole_list_replaces_what_was_known_and_a_change_adds_to_it(listed: ListedBookies) -> None:
    known = listed.registrations  # Others hold it: it stays this object.
    listed.take([record("b2"), record("b1")], is_first=True)
    listed.show(0)
    assert names(listed) == ["b1", "b2"]
    listed.take([record("b3"), gone("b1")], is_first=False)
    assert names(listed) == ["b1", "b2"], "not shown yet"
    listed.show(0)
    assert names(listed) == ["b2", "b3"]
    listed.take([record("b4")], is_first=True)
    listed.show(0)
    assert names(listed) == list(known) == ["b4"]


def test_who_cannot_be_read_is_left_out_and_named(
    listed: ListedBookies, caplog: pytest.LogCaptureFixture
) -> None:
    """P7.7: every client may write there; who was known before is not known any more."""
    listed.take([record("b1"), record("b2")], is_first=True)
    listed.take([Record(registration_path("b1"), b"strange", 1, 2)], is_first=False)
    listed.show(0)
    assert names(listed) == ["b2"]
    assert registration_path("b1") in caplog.text


def test_who_failed_often_is_shown_as_held_until_it_registers_again(listed: ListedBookies) -> None:
    """RP45."""
    listed.take([record("b1"), record("b2")], is_first=True)
    assert [listed.quarantine.note_error("b1", 0) for _ in range(ERRORS_MAX)][-1]
    listed.show(0)
    assert [info.is_quarantined for info in listed.bookies] == [True, False]
    listed.take([record("b1")], is_first=False)
    listed.show(0)
    assert [info.is_quarantined for info in listed.bookies] == [False, False]


def test_what_is_shown_says_who_is_away_and_who_leaves(listed: ListedBookies) -> None:
    """P4.1, P11.3: as it is shown, not as it is taken; the earliest of what is due is its deadline."""
    listed.take([record("b1"), record("b2")], is_first=True)
    listed.show(5 * S)
    assert listed.deadline_ns is None
    listed.take([gone("b1")], is_first=False)
    assert listed.deadline_ns is None
    listed.show(7 * S)
    assert listed.deadline_ns == 7 * S + GRACE_NS
    listed.take([record("b2", is_leaving=True)], is_first=False)
    listed.show(8 * S)
    assert listed.deadline_ns == 8 * S, "its writers are looked for at once"
    assert listed.bookies[0].member == Member("b2", b"b2" * 8) and listed.bookies[0].is_leaving
