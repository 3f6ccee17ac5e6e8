"""The sizes of quorums, checked over every set of voters there can be (RAFT.md, section 2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from embedbk.errors import UsageError
from embedbk.metadata.quorum import Configuration, MemberId, Policy, Sizes, sizes_of, why_unsafe

VOTERS = tuple(MemberId(name, b"") for name in "abcdefg")


@pytest.mark.parametrize(
    ("policy", "voters", "commit", "elect", "forgetful"),
    [
        (Policy.MAJORITY, 1, 1, 1, 0),
        (Policy.MAJORITY, 3, 2, 2, 0),
        (Policy.MAJORITY, 4, 3, 3, 0),
        (Policy.MAJORITY, 5, 3, 3, 0),
        (Policy.MAJORITY, 7, 4, 4, 0),
        (Policy.SUPERMAJORITY, 3, 3, 3, 2),
        (Policy.SUPERMAJORITY, 4, 3, 3, 1),
        (Policy.SUPERMAJORITY, 5, 4, 4, 2),
        (Policy.SUPERMAJORITY, 7, 5, 5, 2),
        (Policy.ROLLBACK_1, 3, 2, 3, 1),
        (Policy.ROLLBACK_1, 4, 3, 3, 1),
        (Policy.ROLLBACK_1, 5, 3, 4, 1),
        (Policy.ROLLBACK_1, 7, 4, 5, 1),
    ],
)
def test_sizes_are_those_of_the_page(
    policy: Policy, voters: int, commit: int, elect: int, forgetful: int
) -> None:
    """RAFT.md, section 2: the table of policies."""
    assert sizes_of(policy, voters) == Sizes(voters, commit, elect, forgetful)


def quorums(
    configuration: Configuration, has_quorum: str, voters: tuple[MemberId, ...]
) -> Iterator[frozenset[MemberId]]:
    """The smallest sets that the production function takes for a quorum."""
    for size in range(len(voters) + 1):
        found = [
            frozenset(some)
            for some in combinations(voters, size)
            if getattr(configuration, has_quorum)(dict.fromkeys(some))
        ]
        if found:
            yield from found
            return


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("count", range(1, 8))
def test_any_two_quorums_share_a_voter_that_remembers(policy: Policy, count: int) -> None:
    """C1: an elected leader asked one that holds each committed entry. C2: two leaders of one term asked
    one voter. C4: who confirmed a read would know of a newer leader. Whoever may forget is left out of each meeting."""
    voters = VOTERS[:count]
    configuration = Configuration(voters, policy=policy)
    forgetful = sizes_of(policy, count).forgetful
    commit, elect, confirm = (
        list(quorums(configuration, name, voters))
        for name in ("has_commit_quorum", "has_elected", "has_confirmed")
    )
    assert commit
    assert elect
    assert confirm
    for elected in elect:
        for other in (*commit, *elect, *confirm):
            assert len(elected & other) > forgetful, (sorted(elected), sorted(other))


@pytest.mark.parametrize("count", range(1, 8))
def test_committed_index_is_what_a_commit_quorum_holds(count: int) -> None:
    """I69: by every way in which some voters have the entry and the others have not."""
    voters = VOTERS[:count]
    for policy in Policy:
        configuration = Configuration(voters, policy=policy)
        for size in range(count + 1):
            for some in combinations(voters, size):
                index = configuration.committed_index(lambda voter, some=some: 7 if voter in some else 3)
                assert (index == 7) == configuration.has_commit_quorum(dict.fromkeys(some))


def test_joint_needs_both_halves() -> None:
    """I76: while two sets of voters share power, neither can do anything alone."""
    old, new = VOTERS[:3], VOTERS[2:5]
    joint = Configuration(new, outgoing=old)
    only_old, only_new = dict.fromkeys(old), dict.fromkeys(new)
    for has in (joint.has_commit_quorum, joint.has_elected, joint.has_confirmed):
        assert not has(only_old)
        assert not has(only_new)
        assert has(dict.fromkeys((*old[:2], *new[1:])))
    assert joint.committed_index(lambda voter: 9 if voter in old else 0) == 0


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (Sizes(3, 2, 2, 1), "C1"),
        (Sizes(3, 3, 2, 1), "C2"),
        (Sizes(4, 3, 2, 1), "C1"),
        (Sizes(5, 3, 3, 1), "C1"),
        (Sizes(5, 4, 3, 1), "C2"),
        (Sizes(5, 2, 4, 1), "C1"),
        (Sizes(3, 0, 3, 0), "0 to commit"),
        (Sizes(3, 2, 4, 0), "4 to elect"),
    ],
)
def test_sizes_that_lose_something_are_named(sizes: Sizes, reason: str) -> None:
    """The pairs that a model of the protocol broke, each with the rule that it breaks."""
    assert reason in why_unsafe(sizes)


def test_every_policy_is_safe() -> None:
    for policy in Policy:
        for count in range(1, 8):
            assert not why_unsafe(sizes_of(policy, count))


@pytest.mark.parametrize("count", [0, 8])
def test_too_many_voters_are_refused(count: int) -> None:
    with pytest.raises(UsageError, match="allowed are 1 to 7"):
        sizes_of(Policy.MAJORITY, count)
