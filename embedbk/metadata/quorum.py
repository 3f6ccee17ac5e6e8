"""How many voters commit, elect and confirm, and for which set of voters that is safe (RAFT.md, section 2; P10.3).

Decides nothing about time or messages. The three sizes of a configuration are computed here and nowhere else, and a
pair of sizes that could lose a committed entry, or give one term two leaders, has no name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from enum import StrEnum
from functools import cache

from msgspec import Struct

from embedbk.errors import UsageError

__all__ = [
    "BASE_MS_FIRST",
    "VOTERS_MAX",
    "BaseChange",
    "Configuration",
    "MemberId",
    "Policy",
    "Sizes",
    "sizes_of",
    "why_unsafe",
]

VOTERS_MAX = 7
BASE_MS_FIRST = 500  # The base of a new cluster.


class MemberId(Struct, frozen=True, order=True, array_like=True):
    """A voter or learner: its name, and 16 random bytes that were minted together with its empty log. A member that
    lost the log is another member, though the name is the same (P10.3)."""

    name: str
    incarnation: bytes


class Policy(StrEnum):
    """How large quorums are. A voter that kept its identity and lost what it promised (an older image of its disk, a
    disk that lies about flushes) is forgetful. One that crashed or whose disk was wiped is not: the latter has another
    incarnation."""

    MAJORITY = "majority"  # No forgetful voter.
    SUPERMAJORITY = "supermajority"  # More than two thirds for everything.
    ROLLBACK_1 = "rollback-1"  # One forgetful voter; commits by a majority, so only elections need one more.


class Sizes(Struct, frozen=True):
    voters: int
    commit: int  # Voters that must hold an entry durably.
    elect: int  # Votes that make a leader.
    forgetful: int  # Voters that may have forgotten, between two repairs.

    @property
    def confirm(self) -> int:
        """How many voters must answer that they know no newer leader: then none can have been elected (C4)."""
        return self.voters - self.elect + 1 + self.forgetful


@cache
def sizes_of(policy: Policy, voters: int) -> Sizes:
    """The sizes of a policy.

    Raises:
        UsageError: voters is not in 1..7.
    """
    if not 1 <= voters <= VOTERS_MAX:
        raise UsageError(f"a quorum of {voters} voters: allowed are 1 to {VOTERS_MAX}")
    if voters == 1:
        return Sizes(1, 1, 1, 0)
    majority = voters // 2 + 1
    if policy is Policy.MAJORITY:
        return Sizes(voters, majority, majority, 0)
    if policy is Policy.SUPERMAJORITY:
        size = voters * 2 // 3 + 1
        return Sizes(voters, size, size, 2 * size - voters - 1)
    return Sizes(voters, majority, voters + 2 - majority, 1)


def why_unsafe(sizes: Sizes) -> str:
    """Why these sizes could lose an entry or elect two leaders in one term; empty: they cannot.

    C1: of `commit` holders at least `commit - forgetful` remember, so a candidate without the entry gathers at most
    `voters - commit + forgetful` votes. C2: a forgetful voter votes twice.
    """
    n, w = sizes.voters, sizes.forgetful
    if not 1 <= sizes.commit <= n or not 1 <= sizes.elect <= n:
        return f"{sizes.commit} to commit and {sizes.elect} to elect, of {n} voters"
    if sizes.commit + sizes.elect < n + w + 1:
        return (
            f"{sizes.commit} to commit and {sizes.elect} to elect of {n} voters, {w} forgetful: a leader could be "
            "elected without a committed entry (C1)"
        )
    if 2 * sizes.elect < n + w + 1:
        return f"{sizes.elect} to elect of {n} voters, {w} forgetful: two leaders in one term (C2)"
    return ""


class BaseChange(Struct, frozen=True, array_like=True):
    """How the election base came to be what it is."""

    is_fixed: bool  # An operator set it: no leader proposes another until an operator allows it.
    unix_ms: int  # By the leader's clock. For people only; no decision depends on it.
    by: str  # The leader that proposed it, or an operator.
    why: str


class Configuration(Struct, frozen=True, array_like=True):
    """The voters, the learners, and how large quorums are. Between two sets of voters both count (joint): an entry
    is committed and a leader elected by quorums of `voters` and of `outgoing`."""

    voters: tuple[MemberId, ...]
    outgoing: tuple[MemberId, ...] = ()  # The earlier voters, while the change to `voters` is under way.
    learners: tuple[MemberId, ...] = ()  # They receive the log and count nowhere.
    policy: Policy = Policy.MAJORITY
    outgoing_policy: Policy = Policy.MAJORITY
    election_base_ms: int = BASE_MS_FIRST
    retired: tuple[MemberId, ...] = ()  # Former members, never to come back: their promises may be forgotten.
    addresses: tuple[tuple[MemberId, tuple[str, ...]], ...] = ()  # Addresses of members that have any.
    base_change: BaseChange | None = None  # The newest change; None: the base is the first one.

    @property
    def is_joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def members(self) -> tuple[MemberId, ...]:
        """All that receive the log, each once, in a fixed order."""
        return tuple(dict.fromkeys((*self.voters, *self.outgoing, *self.learners)))

    def endpoints_of(self, member: MemberId) -> tuple[str, ...]:
        """The addresses where it listens; empty: unknown."""
        return dict(self.addresses).get(member, ())

    def is_voter(self, member: MemberId) -> bool:
        return member in self.voters or member in self.outgoing

    def halves(self) -> Iterator[tuple[tuple[MemberId, ...], Sizes]]:
        yield self.voters, sizes_of(self.policy, len(self.voters))
        if self.outgoing:
            yield self.outgoing, sizes_of(self.outgoing_policy, len(self.outgoing))

    def committed_index(self, durable_index: Callable[[MemberId], int]) -> int:
        """The highest index that a commit quorum of each half holds durably."""
        if not self.outgoing:
            voters = self.voters
            return sorted(map(durable_index, voters))[-sizes_of(self.policy, len(voters)).commit]
        return min(
            sorted(map(durable_index, voters), reverse=True)[sizes.commit - 1]
            for voters, sizes in self.halves()
        )

    def confirmed_round(self, answered_round: Callable[[MemberId], int]) -> int:
        """The newest round of questions that enough of each half answered, or a later one (C4)."""
        return min(
            sorted(map(answered_round, voters), reverse=True)[sizes.confirm - 1]
            for voters, sizes in self.halves()
        )

    def has_commit_quorum(self, members: Container[MemberId]) -> bool:
        return all(_count(voters, members) >= sizes.commit for voters, sizes in self.halves())

    def has_elected(self, granted: Container[MemberId]) -> bool:
        return all(_count(voters, granted) >= sizes.elect for voters, sizes in self.halves())

    def has_confirmed(self, answered: Container[MemberId]) -> bool:
        return all(_count(voters, answered) >= sizes.confirm for voters, sizes in self.halves())


def _count(voters: tuple[MemberId, ...], members: Container[MemberId]) -> int:
    return sum(voter in members for voter in voters)
