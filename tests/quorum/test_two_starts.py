"""Two processes on copies of one directory that start at one moment, each linked with others: what can be told of them,
and what cannot (RAFT.md, 12)."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from embedbk.metadata.quorum import Configuration, MemberId, Policy, sizes_of
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import Boot, Durable, Message, Persist, Received, Send, Tick

MS = 1_000_000
VOTERS = tuple(MemberId(name, name.encode() * 16) for name in "abcdefg")


class Side:
    """Members that hear each other and nobody else, on disks that are always in time."""

    def __init__(self, configuration: Configuration, members: list[MemberId], copy: str) -> None:
        self.rafts = {
            member: Raft(
                Boot(member, f"{copy} {member.name}".encode()),
                RaftLog(configuration),
                term=0,
                vote=None,
                now_ns=0,
                chance=random.Random(1),
            )
            for member in members
        }

    def elect(self, candidate: MemberId) -> Raft:
        """Let this one stand, and carry everything that is said."""
        raft, now_ns = self.rafts[candidate], 2000 * MS
        waiting = [(raft, Tick(now_ns))]
        while waiting:
            who, event = waiting.pop(0)
            for effect in who.step(event):  # type: ignore[arg-type]
                if isinstance(effect, Persist):
                    waiting.insert(0, (who, Durable(now_ns, effect.sequence)))  # type: ignore[arg-type]
                elif isinstance(effect, Send) and effect.message.receiver in self.rafts:
                    waiting.append(self._carried(effect.message, now_ns))
            if raft.role is Role.LEADER:
                break
        return raft

    def _carried(self, message: Message, now_ns: int) -> tuple[Raft, Tick]:
        return self.rafts[message.receiver], Received(now_ns, message)  # type: ignore[return-value]


def sides(count: int) -> list[tuple[list[MemberId], list[MemberId]]]:
    """Every way to part the other voters between the two copies of the first one."""
    copied, others = VOTERS[0], VOTERS[1:count]
    return [
        ([copied, *some], [copied, *(other for other in others if other not in some)])
        for size in range(1, len(others))
        for some in combinations(others, size)
    ]


def both_lead(count: int, policy: Policy) -> list[tuple[Raft, Raft]]:
    """Of all ways to part them, those in which each side elects a leader of term 1."""
    configuration = Configuration(VOTERS[:count], policy=policy, outgoing_policy=policy)
    found = []
    for one, other in sides(count):
        leaders = [
            Side(configuration, side, copy).elect(side[1])
            for side, copy in ((one, "first"), (other, "second"))
        ]
        if all(raft.role is Role.LEADER for raft in leaders):
            found.append((leaders[0], leaders[1]))
    return found


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_majority_is_parted_by_two_copies_that_nobody_hears_together(count: int) -> None:
    """RAFT.md, 12: known, and why it cannot be told: to each side the other one is a member that is away, and its own
    copy is the member started again. Who refused its vote would elect nobody when one is away and one restarts."""
    parted = both_lead(count, Policy.MAJORITY)
    assert parted, "this is the accident that the page tells"
    assert all(one.term == other.term == 1 for one, other in parted)
    assert sizes_of(Policy.MAJORITY, count).forgetful == 0


@pytest.mark.parametrize(
    ("count", "policy"),
    [
        (count, policy)
        for count in range(3, 8)
        for policy in (Policy.SUPERMAJORITY, Policy.ROLLBACK_1)
        if sizes_of(policy, count).forgetful
    ],
)
def test_a_policy_that_bears_a_forgetful_voter_bears_two_copies(count: int, policy: Policy) -> None:
    """RAFT.md, 12; C2: two copies are a voter that votes twice, which is what these sizes are for."""
    assert both_lead(count, policy) == []


@pytest.mark.parametrize(("count", "policy"), [(count, policy) for count in range(3, 8) for policy in Policy])
def test_two_copies_are_one_forgetful_voter_and_no_more(count: int, policy: Policy) -> None:
    """RAFT.md, 12; C1: what one side commits with the first copy, a leader that the second one elects may lack, exactly
    where the policy bears no forgetful voter."""
    configuration = Configuration(VOTERS[:count], policy=policy, outgoing_policy=policy)
    is_lost = any(
        configuration.has_commit_quorum(one) and configuration.has_elected(other)
        for both in sides(count)
        for one, other in (both, both[::-1])
    )
    sizes = sizes_of(policy, count)
    if sizes.forgetful:
        assert not is_lost
    else:
        assert is_lost == (sizes.commit + sizes.elect <= count + 1)
