"""Small quorums in which every message arrives at any time, never, or again and again (RAFT.md, section 10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedbk.metadata.quorum import Policy
from embedbk.metadata.raft_vocabulary import Persist
from tests.quorum import free_messages
from tests.quorum.free_messages import Free, FreeBounds, explore
from tests.quorum.small_world import Image

MAJORITY = Policy.MAJORITY
STATES = 20_000  # Of those that are too large, in every run.

WHOLE = FreeBounds(3, MAJORITY, terms=1, entries=0)
LARGER = FreeBounds(3, MAJORITY, terms=1, entries=1)
LARGE = (
    FreeBounds(3, MAJORITY, terms=2, entries=1, crashes=1),
    FreeBounds(3, MAJORITY, terms=1, entries=1, crashes=1, beats=1, syncs_apart=True),
)


def described(bounds: FreeBounds) -> str:
    syncs = "-apart" if bounds.syncs_apart else ""
    return f"{bounds.terms}-{bounds.entries}-{bounds.crashes}-{bounds.beats}{syncs}"


def check(found: Free) -> None:
    assert not found.broken, (found.broken, *found.story)


def test_no_order_of_messages_breaks_a_promise_in_one_election() -> None:
    """I60, I61, I65, I66, in every state that there is."""
    found = explore(WHOLE)
    check(found)
    assert found.is_whole


def test_no_order_of_messages_breaks_a_promise_in_one_term(pytestconfig: pytest.Config) -> None:
    """The same with an entry."""
    if not pytestconfig.getoption("--quorum-worlds"):
        pytest.skip("a minute long: --quorum-worlds")
    found = explore(LARGER)
    check(found)
    assert found.is_whole


@pytest.mark.parametrize("bounds", LARGE, ids=described)
def test_no_order_of_messages_breaks_a_promise_as_far_as_it_is_followed(
    bounds: FreeBounds, pytestconfig: pytest.Config
) -> None:
    """I60, I61, I65, I66, and no invariant of the core itself: breadth first, up to a number of states."""
    found = explore(replace(bounds, states=pytestconfig.getoption("--free-messages") or STATES))
    check(found)
    assert not found.is_whole


def test_a_vote_that_is_not_durable_is_found_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """I61: the search sees a second vote in one term, and tells how it came to it."""

    def after(self: Image, record: Persist) -> Image:
        return Image(record.term, None, (*self.entries[: record.keep_index], *record.entries))

    monkeypatch.setattr(Image, "after", after)
    found = explore(replace(WHOLE, crashes=1, states=60_000))
    assert found.broken.startswith("I61")
    assert "c crashes, 0 records stay" in found.story
    assert len(found.story) <= 10


def test_digests_are_a_set() -> None:
    digests = free_messages.Digests()
    numbers = [n * 0x9E3779B97F4A7C15 for n in range(200_000)]
    assert all(map(digests.add, numbers))
    assert not any(map(digests.add, numbers))
    assert digests.count == len(numbers)
