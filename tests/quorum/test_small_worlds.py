"""Small quorums of the production core, every order of elections, replications and crashes (RAFT.md, section 10)."""

from __future__ import annotations

import pytest

from embedbk.metadata.quorum import Policy
from tests.quorum.small_world import Bounds, explore

MAJORITY, SUPERMAJORITY, ROLLBACK_1 = Policy.MAJORITY, Policy.SUPERMAJORITY, Policy.ROLLBACK_1

WHOLE = (
    Bounds(3, MAJORITY, terms=1, entries=2, crashes=1),
    Bounds(3, MAJORITY, terms=2, entries=1),
    Bounds(3, SUPERMAJORITY, terms=2, entries=0, forgets=1),
    Bounds(3, ROLLBACK_1, terms=2, entries=0, forgets=1),
)
LARGE = (
    Bounds(3, MAJORITY, terms=2, entries=2),
    Bounds(3, MAJORITY, terms=2, entries=1, crashes=1),
    Bounds(3, SUPERMAJORITY, terms=2, entries=1, forgets=1),
    Bounds(3, ROLLBACK_1, terms=2, entries=1, forgets=1),
)


def described(bounds: Bounds) -> str:
    return f"{bounds.policy.value}-{bounds.terms}-{bounds.entries}-{bounds.crashes}-{bounds.forgets}"


@pytest.mark.parametrize("bounds", WHOLE, ids=described)
def test_no_order_breaks_a_promise(bounds: Bounds) -> None:
    """I60, I65, I66, in every state that there is."""
    found = explore(bounds)
    assert not found.broken, (found.broken, *found.story)
    assert found.is_whole


@pytest.mark.parametrize("bounds", LARGE, ids=described)
def test_no_order_of_a_larger_world_breaks_a_promise(bounds: Bounds, pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--quorum-worlds"):
        pytest.skip("minutes long: --quorum-worlds")
    test_no_order_breaks_a_promise(bounds)


def test_a_majority_with_a_forgetful_voter_is_broken_in_three_steps() -> None:
    """C2, w = 1, 2 of 3: it votes twice. The search finds what the policy does not promise, with the shortest story."""
    found = explore(Bounds(3, MAJORITY, terms=1, entries=1, forgets=1))
    assert found.broken.startswith("I60")
    assert found.story == ("elect a by b", "a forgets all but 0 entries, term 0", "elect a by c")
