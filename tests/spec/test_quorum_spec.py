"""Every step of members in random worlds is one that the rules allow; the trace of a broken core is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from embedbk.errors import EmbedbkError, InvariantError
from embedbk.metadata import membership
from embedbk.metadata.leading import Leading
from embedbk.metadata.quorum import Configuration, Policy
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import RaftState
from tests.quorum import test_random_quorums, test_scenarios, test_whole_members
from tests.quorum.world import World
from tests.spec.quorum_spec import QuorumSpec
from tests.spec.quorum_trace import listen
from tests.spec.trace_spec import NotAllowed

WORLDS: dict[str, Callable[[int], object]] = {
    "quorums": test_random_quorums.one_world,
    "members": test_whole_members.one_world,
}


def judge(
    world: Callable[[int], object], seed: int, break_core: Callable[..., None] | None = None
) -> Counter[str]:
    """Run the seed's world under the specification."""
    spec = QuorumSpec()
    with pytest.MonkeyPatch.context() as patch:
        if break_core is not None:
            break_core(patch)
        listen(patch, spec.take)
        world(seed)
    return Counter(spec.counts)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", WORLDS)
def test_traces_of_members_are_allowed_by_the_rules(kind: str, request: pytest.FixtureRequest) -> None:
    """Crashes, cuts, pauses, slow disks, snapshots, transfers and changes of the voters."""
    met: Counter[str] = Counter()
    if kind == "quorums":  # Nobody joins in these by chance.
        met += judge(lambda _: test_scenarios.test_one_grows_to_three_and_five_and_back(), 0)
    count = request.config.getoption("--quorum-traces")
    # Whole members take four times as long.
    for seed in range(count if kind == "quorums" else -(-count // 4)):
        met += judge(WORLDS[kind], seed)
    # A specification that hears nothing allows everything.
    heard = ["start", "receive", "durable", "persist", "send", "apply", "ready", "commit"]
    if kind == "quorums":  # Only they change who votes, and enough of them leave a member far behind.
        heard += ["install", "trim", "learners", "joint", "left joint"]
    for name in heard:
        assert met[name] > 0, name


def count_an_older_term(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Leading) -> None:
        index = min(self._state.configuration.committed_index(self.durable_index), self._state.log.last_index)
        self._state.commit(max(index, self._state.commit_index))

    patch.setattr(Leading, "_advance_commit", advance)


def vote_for_any_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "is_at_most", lambda self, last_index, last_term: True)


def elect_with_one_fewer(patch: pytest.MonkeyPatch) -> None:
    def has_elected(self: Configuration, granted: Any) -> bool:
        return all(
            sum(each in granted for each in half) >= max(1, sizes.elect - 1) for half, sizes in self.halves()
        )

    patch.setattr(Configuration, "has_elected", has_elected)


def commit_with_one_fewer(patch: pytest.MonkeyPatch) -> None:
    def committed_index(self: Configuration, durable_index: Callable[[Any], int]) -> int:
        return min(
            sorted(map(durable_index, half), reverse=True)[max(0, sizes.commit - 2)]
            for half, sizes in self.halves()
        )

    patch.setattr(Configuration, "committed_index", committed_index)


def acknowledge_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    right = RaftState.send
    patch.setattr(RaftState, "send", lambda self, receiver, body, waits=False: right(self, receiver, body))


def change_the_voters_in_one_step(patch: pytest.MonkeyPatch) -> None:
    right = membership.replace
    patch.setattr(membership, "replace", lambda old, **new: right(old, **{**new, "outgoing": ()}))


def answer_reads_unasked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Configuration, "has_confirmed", lambda self, answered: True)


@dataclass
class StaleReader:
    """An old leader that is cut off while another commits: what random worlds meet seldom."""

    def __call__(self, seed: int) -> None:
        world = World(seed, "abc", Policy.MAJORITY)
        world.run(5_000)
        old = world.leader()
        assert old is not None
        for other in world.members.values():
            if other is not old:
                world.cut(old.member.name, other.member.name)
        chance = random.Random(seed)
        for _ in range(60):
            world.run(chance.uniform(10, 60))
            for leader in world.all_leaders():
                world.propose(leader)
                world.read(leader)
        world.heal()


@pytest.mark.parametrize(
    ("break_core", "world", "seeds", "rule"),
    [
        (count_an_older_term, WORLDS["quorums"], [31, *range(200)], "I70"),
        (vote_for_any_log, WORLDS["quorums"], range(40), "I66"),
        (elect_with_one_fewer, WORLDS["quorums"], range(20), "C1"),
        (commit_with_one_fewer, WORLDS["quorums"], range(20), "I68"),
        (acknowledge_before_it_is_durable, WORLDS["quorums"], range(20), "I69"),
        (change_the_voters_in_one_step, WORLDS["quorums"], range(40), "I77"),
        (answer_reads_unasked, StaleReader(), range(40), "I75"),
    ],
)
def test_the_trace_of_a_broken_member_is_refused(
    break_core: Callable[[pytest.MonkeyPatch], None],
    world: Callable[[int], object],
    seeds: Iterable[int],
    rule: str,
) -> None:
    """The checker checks itself: each defect is named by the rule that it breaks, within this many seeds."""
    found = ""
    for seed in seeds:
        try:
            judge(world, seed, break_core)
        except NotAllowed as refused:
            found = str(refused)
            if found.startswith(rule):
                return
        except (
            AssertionError,
            EmbedbkError,
            InvariantError,
        ) as other:  # What the core or the world has against it comes first in some worlds.
            found = repr(other)
    pytest.fail(f"not seen; last: {found[:300]}")
