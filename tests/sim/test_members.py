"""Several metadata members in whole clusters: production members, their stores and their links (METADATA.md, RAFT.md).

The stories of the plan for the quorum (1, 2, 3, 10 to 13, 23), and planted faults that the checks of all seeds find.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from msgspec.structs import replace

from embedbk.codec.metadata_messages import (
    Allocated,
    AllocIds,
    Get,
    Operation,
    Put,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.errors import StorageError
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.leading import Leading
from embedbk.metadata.lifetimes import Lifetimes
from embedbk.metadata.member import Member
from embedbk.metadata.quorum import Policy
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.members import DIGEST_ENTRIES
from embedbk.testing.members_liveness import agree_at_last, has_leader
from embedbk.testing.plan import make_plan
from embedbk.testing.promises import Promises
from embedbk.testing.run import observers, run_plan
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

BASE_NS = 500 * MS


class Quorum:
    """A world of members, two bookies and a client that asks."""

    def __init__(self, seed: int, members: int, policy: Policy = Policy.MAJORITY) -> None:
        self.seen: Counter[str] = Counter()
        self.world = World(
            seed, bookies=2, members=members, policy=policy, observers=[Promises(), *observers(self.seen)]
        )
        self.world.sometimes = self.seen
        self.members = self.world.members
        has_leader(self.world)
        self.client = self.world.start_client("w")
        assert self.world.run_until(lambda: self.client.metadata.session != 0, 20 * SECOND)

    def ask(self, operation: Operation) -> list[Result]:
        """Asked now; the answer comes into the list."""
        answers: list[Result] = []
        self.client.metadata.request(
            self.world.now_of("w"), operation, lambda now_ns, result: answers.append(result)
        )
        self.world.wake("w")
        return answers

    def put(self, key: str, within_ns: int = 20 * SECOND) -> bool:
        answers = self.ask(Txn([], [Put(key, b"x")]))
        self.world.run_until(lambda: bool(answers), within_ns)
        return bool(answers) and isinstance(answers[0], TxnDone) and answers[0].is_done

    def has(self, key: str) -> bool:
        answers = self.ask(Get(key))
        assert self.world.run_until(lambda: bool(answers), 20 * SECOND)
        assert isinstance(answers[0], Value)
        return answers[0].record is not None

    @property
    def leader(self) -> str:
        has_leader(self.world)
        assert self.members.leader is not None
        return self.members.leader

    def is_led_within(self, bases: int) -> bool:
        return self.world.run_until(lambda: self.members.leader is not None, bases * BASE_NS)


@pytest.mark.parametrize("order", list(itertools.permutations("ac")))
@pytest.mark.parametrize("is_early", [False, True])
def test_a_member_with_a_wiped_disk_never_helps_to_forget(order: tuple[str, ...], is_early: bool) -> None:
    """Story 1, I79: A and B have a change, C was down; A loses its disk. A and C elect nobody; with B nothing is
    lost."""
    quorum = Quorum(1, 3)
    world, members = quorum.world, quorum.members
    c = next(name for name in members.names if name != quorum.leader)
    world.crash(c)
    assert quorum.put("/a/change")
    a, b = (name for name in members.names if name != c)
    if is_early:
        world.crash(b)
    members.wipe(a)
    if not is_early:
        world.crash(b)
    for name in order:
        members.start({"a": a, "c": c}[name])
    assert not quorum.is_led_within(40)
    members.start(b)
    assert quorum.has("/a/change")
    assert members.leader in (b, c)
    agree_at_last(world)
    world.close()


def rolled_back(policy: Policy, count: int, seed: int) -> str:
    """The story with a disk that kept its identity: an older image of A. What is found; empty: nothing is lost."""
    quorum = Quorum(seed, count, policy)
    world, members = quorum.world, quorum.members
    a = quorum.leader
    b, c, *_ = (name for name in members.names if name != a)
    before = members.copy(a)
    world.crash(c)
    assert quorum.put("/a/change")
    world.crash(a)
    world.crash(b)
    try:
        members.put(a, before)
        members.start(c)
        quorum.is_led_within(40)
        quorum.put("/another/change", 10 * SECOND)
        members.start(b)
        has_leader(world)
        agree_at_last(world)
        found = "" if quorum.has("/a/change") else "lost"
    except Violation as broken:
        found = broken.invariant
    world.close()
    return found


def test_an_older_disk_under_a_majority_is_found_out_by_the_checks() -> None:
    """Story 2: with w = 0 this loss is known; the checks of every seed must see it."""
    assert {rolled_back(Policy.MAJORITY, 3, seed) for seed in range(4)} - {""}


@pytest.mark.parametrize(
    ("policy", "count"),
    [(Policy.ROLLBACK_1, 3), (Policy.ROLLBACK_1, 5), (Policy.ROLLBACK_1, 7), (Policy.SUPERMAJORITY, 5)],
)
def test_an_older_disk_loses_nothing_where_the_policy_bears_it(policy: Policy, count: int) -> None:
    """Story 3, C1 and C2."""
    assert {rolled_back(policy, count, seed) for seed in range(2)} == {""}


def majority_graphs(count: int) -> list[tuple[tuple[int, int], ...]]:
    """Edges of all graphs on so many members in which some majority is fully connected."""
    pairs = list(itertools.combinations(range(count), 2))
    graphs = []
    for size in range(len(pairs) + 1):
        for edges in itertools.combinations(pairs, size):
            has_majority = any(
                all(pair in edges for pair in itertools.combinations(some, 2))
                for some in itertools.combinations(range(count), count // 2 + 1)
            )
            if has_majority:
                graphs.append(edges)
    return graphs


@pytest.mark.parametrize(("count", "every"), [(3, 1), (5, 40)])
def test_whatever_links_are_cut_a_connected_majority_has_a_leader_that_stays(count: int, every: int) -> None:
    """Story 10, L5: within five election bases behind the silence that is noticed, and terms
    do not grow."""
    quorum = Quorum(count, count)
    world, names = quorum.world, quorum.members.names
    for edges in majority_graphs(count)[::every]:
        for one, other in itertools.combinations(range(count), 2):
            if (one, other) not in edges:
                world.network.partition([names[one]], [names[other]])
        world.run_for(5 * BASE_NS)
        has_leader(world)
        term = quorum.members.term
        world.run_for(8 * BASE_NS)
        assert quorum.members.term == term, edges
        assert quorum.put(f"/graph/{len(edges)}"), edges
        world.network.heal()
        world.run_for(2 * BASE_NS)
    agree_at_last(world)
    world.close()


@pytest.mark.parametrize("pause_s", [1, 3, 30])
def test_a_leader_that_stood_still_ends_no_session_that_another_renewed(pause_s: int) -> None:
    """Story 11: bookies and the client go over to the next leader; what the old one says when it goes on counts no
    more."""
    quorum = Quorum(pause_s, 3)
    world = quorum.world
    session, old = quorum.client.metadata.session, quorum.leader
    assert world.run_until(lambda: all(world.nodes[name].is_registered for name in world.disks), 20 * SECOND)
    world.pause(old)
    for number in range(pause_s):
        assert quorum.put(f"/while/{number}")
        world.run_for(SECOND)
    world.resume(old)
    world.run_for(5 * SECOND)
    assert quorum.members.leader != old
    assert quorum.client.metadata.session == session
    assert quorum.seen["session expired"] == 0
    agree_at_last(world)
    world.close()


def test_members_that_all_stood_still_for_a_minute_end_no_session() -> None:
    """Story 12: nobody could be heard meanwhile, so nobody was silent."""
    quorum = Quorum(12, 3)
    world = quorum.world
    assert world.run_until(lambda: all(world.nodes[name].is_registered for name in world.disks), 20 * SECOND)
    session = quorum.client.metadata.session
    for name in quorum.members.names:
        world.pause(name)
    world.run_for(60 * SECOND)
    for name in quorum.members.names:
        world.resume(name)
    leader = world.nodes[quorum.leader]
    world.run_for(SECOND)
    assert (
        session in leader.core.catalog.sessions
    )  # Though its client, which could renew nothing, has another.
    assert quorum.seen["session expired"] == 0
    assert quorum.put("/after")
    world.close()


@pytest.mark.parametrize("seed", range(12))
def test_what_is_asked_again_over_failovers_is_done_once(seed: int) -> None:
    """Story 13, I74: three leaders are killed while ids are asked for; every answer is another id, and none is
    skipped while the session lives. (Two members of three are never down for as long as a session lives: what was
    asked in a session that ended is asked once more in the next.)"""
    quorum = Quorum(seed, 3)
    world, answers = quorum.world, list[list[Result]]()
    for number in range(60):
        answers.append(quorum.ask(AllocIds(1)))
        if number % 20 == 10:
            leader = quorum.leader
            world.crash(leader)
            world.after((300 + 10 * number) * MS, lambda leader=leader: quorum.members.start(leader))  # type: ignore[misc]
        world.run_for(world.chance.randint(0, 30) * MS)
    assert world.run_until(lambda: all(answers), 60 * SECOND)
    ids = []
    for (answer,) in answers:
        assert isinstance(answer, Allocated)
        ids.append(answer.first_id)
    assert sorted(ids) == list(range(min(ids), min(ids) + 60))
    agree_at_last(world)
    world.close()


def several(first_seed: int, count: int) -> list[str]:
    """What so many seeds with several members break; the first one ends it."""
    plans = (plan for seed in itertools.count(first_seed) if (plan := make_plan(seed)).members > 1)
    for plan in itertools.islice(plans, count):
        outcome = run_plan(plan)
        if outcome.violation:
            return [outcome.invariant]
    return []


@pytest.mark.parametrize("seed", range(3))
def test_a_member_whose_state_differs_is_found_and_stops_serving(seed: int) -> None:
    """Story 23, I72: divergence in one member's store is found at the next comparison; the others go on."""
    quorum = Quorum(seed, 3)
    assert quorum.put("/a")
    wrong = next(name for name in quorum.members.voters if name != quorum.leader)
    catalog = quorum.world.nodes[wrong].core.catalog
    assert quorum.world.run_until(lambda: catalog.get("/a").record is not None, 20 * SECOND)
    catalog.key_space._delete(
        "/a", catalog.revision
    )  # As if it had applied something else: no command did it.
    for number in range(3 * DIGEST_ENTRIES):
        assert quorum.put(f"/k/{number}")
    found = quorum.world.nodes[wrong].failure
    assert isinstance(found, StorageError) and "state was" in str(found)
    assert all(quorum.world.nodes[name].failure is None for name in quorum.members.voters if name != wrong)
    assert quorum.has("/a")


@pytest.mark.parametrize("members", [1, 3])
def test_a_record_that_changed_where_it_lay_is_found_by_the_next_snapshot(members: int) -> None:
    """I72: a bit that flips in memory is in no sum; each snapshot sums up what it cuts, and the member ends."""
    quorum = Quorum(1, members)
    assert quorum.put("/a")
    wrong = quorum.members.voters[0]
    catalog = quorum.world.nodes[wrong].core.catalog
    assert quorum.world.run_until(lambda: catalog.get("/a").record is not None, 20 * SECOND)
    record = catalog._records.get("/a")
    assert record is not None
    catalog._records.put(replace(record, value=b"y"))
    for number in range(400):
        if quorum.world.nodes[wrong].failure is not None or not quorum.put(f"/k/{number}", 5 * SECOND):
            break
    assert "not as it was put" in str(quorum.world.nodes[wrong].failure)
    if members > 1:
        assert quorum.put("/last") and quorum.has("/a")


def test_seeds_with_several_members_keep_everything() -> None:
    """RAFT.md, 1."""
    assert several(1, 3) == []


def read_of_a_deposed_leader() -> None:
    """A client asks a leader that was cut off and does not know it, and another client has written meanwhile."""
    quorum = Quorum(3, 3)
    world, old = quorum.world, quorum.leader
    others = [name for name in quorum.members.names if name != old]
    assert quorum.put("/before")  # Over a link with the old leader, which stays up.
    world.network.partition([old], [*others, *world.disks])
    world.start_client("other")
    world.network.partition([old], ["other"])
    link = world.nodes["other"].metadata
    written: list[Result] = []
    assert world.run_until(lambda: link.session != 0, 20 * SECOND)
    link.request(
        world.now_of("other"),
        Txn([], [Put("/meanwhile", b"x")]),
        lambda now_ns, result: written.append(result),
    )
    world.wake("other")
    for _ in range(400):
        quorum.ask(Get("/meanwhile"))
        world.run_for(10 * MS)
    assert written
    world.close()


def test_a_leader_that_was_cut_off_answers_no_read() -> None:
    """I75: nobody confirms that it leads."""
    read_of_a_deposed_leader()


def test_a_leader_that_wakes_up_answers_no_read_that_lay_there() -> None:
    """Scenario 66, I75: it stood still with a read in front of it, while another was elected and wrote."""
    quorum = Quorum(4, 3)
    world, old = quorum.world, quorum.leader
    world.slow_ns[old] = 50 * MS
    answers = quorum.ask(Get("/meanwhile"))
    world.run_for(10 * MS)
    world.pause(old)
    assert not answers
    other = world.start_client("other").metadata
    written: list[Result] = []
    assert world.run_until(lambda: other.session != 0, 20 * SECOND)
    put = Txn([], [Put("/meanwhile", b"x")])
    other.request(world.now_of("other"), put, lambda now_ns, result: written.append(result))
    world.wake("other")
    assert world.run_until(lambda: bool(written), 20 * SECOND)
    world.slow_ns.clear()
    world.resume(old)
    assert world.run_until(lambda: bool(answers), 20 * SECOND)
    agree_at_last(world)
    world.close()


def test_a_leader_that_reads_without_asking_anybody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I75: the checks of every seed see a stale read, from a leader that never steps down either."""
    monkeypatch.setattr(AgreedLog, "read_index", lambda self, token, effects: self.raft.commit_index)
    monkeypatch.setattr(Leading, "_check_quorum", lambda self: None)
    with pytest.raises(Violation, match="I75"):
        read_of_a_deposed_leader()


def test_an_expiry_by_a_leader_that_hears_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was told that it lives does not end before its time."""
    monkeypatch.setattr(Lifetimes, "hear", lambda self, session, now_ns: None)
    monkeypatch.setattr(Member, "_may_renew", lambda self, session, now_ns: True)
    quorum = Quorum(5, 3)
    with pytest.raises(Violation, match="expires"):
        quorum.world.run_for(10 * SECOND)
    quorum.world.close()


def test_a_member_that_is_made_in_the_place_of_one_that_was_taken_out_starts_as_nobody_that_ran_before() -> (
    None
):
    """A start's nonce is its own (RAFT.md): with that of an earlier start, whoever lets members in took the new one for
    the old one, which was taken out, and no change of voters ended (seed 22006165, L7)."""
    quorum = Quorum(7, 3)
    nonces = [quorum.world.nodes[name].store.boot.nonce for name in quorum.members.names[:3]]
    quorum.members.remove("m3")
    quorum.members.make("m3")
    quorum.members.start("m3")
    nonces.append(quorum.world.nodes["m3"].store.boot.nonce)
    assert len(set(nonces)) == 4
