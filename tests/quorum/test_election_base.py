"""The election base by an entry of the log, from what was measured (RAFT.md, 8)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.basing import BASE_RULES, next_base
from embedbk.metadata.calibration import BASE_MS_MAX
from embedbk.metadata.quorum import BASE_MS_FIRST, BaseChange, MemberId
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import BaseRequested, Heartbeat, Timing, TimingMeasured
from tests.quorum.whole_world import Node, WholeWorld
from tests.quorum.world import MS, Member, World

HOUR_MS = 3_600_000
KNOWN = Timing(0, BASE_RULES.stalls, 0, BASE_RULES.syncs, 0, BASE_RULES.round_trips, BASE_RULES.measured_ns)
A, B = MemberId("a", b"a" * 16), MemberId("b", b"b" * 16)


def stalls(ms: int) -> Timing:
    return replace(KNOWN, stall_ns=ms * MS)


def settled(names: str = "abc", base_ms: int = BASE_MS_FIRST, seed: int = 3) -> World:
    world = World(seed, names, base_ms=base_ms)
    world.run(6 * base_ms)
    return world


def raft_of(member: Member) -> Raft:
    assert member.raft is not None
    return member.raft


def leader_of(world: World) -> Member:
    leader = world.leader()
    assert leader is not None
    return leader


def bases(world: World) -> list[int]:
    return [
        each.raft.configuration.election_base_ms for each in world.members.values() if each.raft is not None
    ]


def measure(world: World, timing: Timing, besides: dict[str, Timing] | None = None) -> None:
    """Every process measures this, followers first, and tells it with its heartbeats' answers."""
    told = {member.member.name: timing for member in world.members.values()} | (besides or {})
    for member in sorted(world.members.values(), key=lambda each: each is world.leader()):
        member.step(TimingMeasured(world.now_ns, told[member.member.name], 1000))
        if member is not world.leader():
            world.run(world.leader() is not None and 2.2 * raft_of(leader_of(world)).leased_ns / MS)
    world.run(600)


def fix(world: World, base_ms: int) -> str:
    leader = leader_of(world)
    token, expected = world.token(), raft_of(leader).log.configuration_index
    leader.step(BaseRequested(world.now_ns, token, expected, base_ms, 7))
    world.run(2000)
    return world.changes[-1]


# --- When, and how far --------------------------------------------------------------------------------------------


def test_all_members_change_together_by_one_entry_and_nobody_is_elected() -> None:
    """RAFT.md, 8: proposed by the leader, applied as a config entry; raised at once."""
    world = settled()
    term, leader = raft_of(leader_of(world)).term, leader_of(world)
    measure(world, stalls(20), {"b": stalls(120)})
    assert bases(world) == [1200] * 3
    change = raft_of(leader).configuration.base_change
    assert change == BaseChange(False, 1000, leader.member.name, "10 x a stall of 120 ms of b")
    world.run(60_000)
    assert world.leader() is leader and raft_of(leader).term == term


@pytest.mark.parametrize(
    ("base_ms", "stall_ms", "becomes"),
    [
        (500, 55, None),  # Less than a fifth more is no reason.
        (500, 60, 600),
        (500, 2000, BASE_MS_MAX),
        (9000, 1000, BASE_MS_MAX),  # The cap is a reason, however near.
        (2000, 1, 1500),  # By a quarter at most.
        (2000, 160, None),
        (650, 1, BASE_MS_FIRST),
        (BASE_MS_FIRST, 1, None),  # Never below, by itself.
        (200, 1, BASE_MS_FIRST),  # An operator's word was given back.
    ],
)
def test_a_base_is_raised_at_once_and_lowered_slowly(
    base_ms: int, stall_ms: int, becomes: int | None
) -> None:
    """RAFT.md, 8: raised at once, lowered slowly; floor and cap."""
    found = next_base(base_ms, {A: stalls(stall_ms), B: stalls(0)})
    assert (found[0] if found is not None else None) == becomes


def test_syncs_and_round_trips_count_too() -> None:
    """RAFT.md, 8: 20 x (round trip + sync), of the slowest."""
    found = next_base(500, {A: replace(KNOWN, sync_ns=40 * MS), B: replace(KNOWN, round_trip_ns=10 * MS)})
    assert found == (1000, "20 x a round trip of 10 ms of b and a sync of 40 ms of a")


def test_one_change_an_hour_whoever_leads() -> None:
    """RAFT.md, 8: at most once an hour."""
    world = settled()
    measure(world, stalls(100))
    assert bases(world) == [1000] * 3
    measure(world, stalls(300))
    other = next(each for each in world.members.values() if each is not world.leader())
    world.transfer(other)
    world.run(5000)
    assert world.leader() is other
    measure(world, stalls(300))
    assert bases(world) == [1000] * 3
    assert "less than 60 minutes" in raft_of(other).why_base_stays()
    world.now_ms += HOUR_MS
    world.run(5000)
    measure(world, stalls(300))
    assert bases(world) == [3000] * 3


def test_a_process_that_began_since_the_last_change_waits_as_long() -> None:
    """RAFT.md, 8: at most once an hour; a process knows of no earlier change than its own start."""
    world = settled()
    measure(world, stalls(100))
    for member in list(world.members.values()):
        world.crash(member)
    for member in world.members.values():
        member.start()
    world.run(10_000)
    measure(world, stalls(300))
    assert bases(world) == [1000] * 3


@pytest.mark.parametrize(
    "lacks",
    [
        {"stalls": BASE_RULES.stalls - 1},
        {"syncs": BASE_RULES.syncs - 1},
        {"measured_ns": BASE_RULES.measured_ns - 1},
    ],
)
def test_every_voter_has_measured_enough(lacks: dict[str, int]) -> None:
    """RAFT.md, 8: only with enough samples from every voter; not by its first minutes."""
    world = settled()
    measure(world, stalls(300), {"b": replace(KNOWN, **lacks)})
    assert bases(world) == [BASE_MS_FIRST] * 3
    measure(world, stalls(300))
    assert bases(world) == [3000] * 3


def test_round_trips_of_all_leaders_are_enough_together() -> None:
    """RAFT.md, 8: only with enough samples; each process measures round trips only while it leads."""
    world = settled()
    few = replace(KNOWN, stall_ns=100 * MS, round_trips=BASE_RULES.round_trips // 3)
    measure(world, few)
    assert bases(world) == [BASE_MS_FIRST] * 3
    measure(world, few, {"c": replace(few, round_trips=BASE_RULES.round_trips)})
    assert bases(world) == [1000] * 3


def test_nothing_is_changed_while_a_voter_is_silent() -> None:
    """RAFT.md, 8: every voter: what a silent one would need nobody knows."""
    world = settled()
    measure(world, stalls(10))
    away = next(each for each in world.members.values() if each is not world.leader())
    world.crash(away)
    world.run(2000)
    measure(world, stalls(300))
    assert set(bases(world)) == {BASE_MS_FIRST}
    assert f"nothing is heard of {away.member.name}" in raft_of(leader_of(world)).why_base_stays()
    away.start()  # Another process of it has measured nothing, whatever the one before said.
    world.run(2000)
    leader_of(world).step(TimingMeasured(world.now_ns, stalls(300), 1))
    world.run(600)
    assert set(bases(world)) == {BASE_MS_FIRST}


def test_nothing_is_changed_beside_another_change() -> None:
    """RAFT.md, 8; I77: not while another change of the configuration is under way."""
    world = settled()
    measure(world, stalls(10))
    leader = leader_of(world)
    others = [each for each in world.members.values() if each is not leader]
    for other in others:
        world.cut(leader.member.name, other.member.name)
    world.admit(world.wipe(others[0]))
    before = raft_of(leader).log.configuration_index
    leader.step(TimingMeasured(world.now_ns, stalls(300), 1))
    assert raft_of(leader).log.configuration_index == before
    assert "under way" in raft_of(leader).why_base_stays()


def test_a_leader_that_has_just_begun_changes_nothing() -> None:
    """What the leader before it renewed by a longer base must be over."""
    world = settled(base_ms=4000)
    measure(world, stalls(1))
    measured = raft_of(leader_of(world)).configuration.election_base_ms
    assert measured == 3000
    world.now_ms += HOUR_MS
    world.run(10_000)
    other = next(each for each in world.members.values() if each is not world.leader())
    world.transfer(other)
    while world.leader() is not other or not raft_of(other).has_committed:
        world.run(10)
    world.run(400)
    other.step(TimingMeasured(world.now_ns, stalls(1), 1))
    assert "just begun" in raft_of(other).why_base_stays()
    assert raft_of(other).configuration.election_base_ms == 3000


def test_who_votes_alone_changes_nothing() -> None:
    """Nobody else elects it, and an operator is told so."""
    world = settled("a")
    measure(world, stalls(900))
    assert bases(world) == [BASE_MS_FIRST]
    assert "alone" in fix(world, 900)
    assert bases(world) == [BASE_MS_FIRST]


# --- An operator's word ---------------------------------------------------------------------------------------------


def test_a_fixed_base_stays_and_is_given_back() -> None:
    """RAFT.md, 8: a fixed override is kept; what the estimator would use is known beside it."""
    world = settled()
    assert fix(world, 800) == ""
    measure(world, stalls(300))
    world.now_ms += 2 * HOUR_MS
    world.run(5000)
    measure(world, stalls(300))
    leader = raft_of(leader_of(world))
    assert bases(world) == [800] * 3
    assert leader.suited_base() == (3000, "10 x a stall of 300 ms of a")
    assert leader.why_base_stays() == "an operator has fixed it"
    world.change(*world.members.values(), policy=None)
    world.run(3000)
    change = leader.configuration.base_change
    assert change is not None and change.is_fixed, "a change of the voters keeps it"
    assert fix(world, 0) == ""
    assert bases(world) == [800] * 3
    world.now_ms += 2 * HOUR_MS
    world.run(5000)
    measure(world, stalls(300))
    assert bases(world) == [3000] * 3


@pytest.mark.parametrize("base_ms", [1, 149, BASE_MS_MAX + 1])
def test_a_base_that_no_quorum_may_have_is_refused(base_ms: int) -> None:
    """Bad input: with what is allowed."""
    world = settled()
    assert "allowed are 150 to 10000" in fix(world, base_ms)
    assert bases(world) == [BASE_MS_FIRST] * 3


# --- What follows from it -------------------------------------------------------------------------------------------


def test_heartbeats_follow_and_a_follower_without_the_entry_hears_them_as_before() -> None:
    """All timing takes the new value without an election: who has not the entry yet goes by the old base."""
    world = settled()
    leader = leader_of(world)
    other = next(each for each in world.members.values() if each is not leader)
    measure(world, stalls(10))
    world.cut(leader.member.name, other.member.name, both=False)
    leader.step(BaseRequested(world.now_ns, 1, raft_of(leader).log.configuration_index, BASE_MS_MAX, 7))
    world.run(120)
    world.heal()
    for _ in range(400):
        world.run(5)
        assert raft_of(other).leader == leader.member
        assert raft_of(other).role is Role.FOLLOWER
    assert bases(world) == [BASE_MS_MAX] * 3
    world.run(5000)
    assert beats(world, leader, 10_000) == 10


def beats(world: World, leader: Member, for_ms: int) -> int:
    rounds: set[int] = set()
    carry = world.carry

    def note(message: object) -> None:
        body = message.body  # type: ignore[attr-defined]
        if isinstance(body, Heartbeat):
            rounds.add(body.round)
        carry(message)  # type: ignore[arg-type]

    world.carry = note  # type: ignore[method-assign]
    world.run(for_ms)
    return len(rounds)


def test_a_follower_waits_by_the_new_base_from_the_entry_on() -> None:
    """All members change together: also what it waits for since it heard the entry."""
    world = settled()
    leader = leader_of(world)
    other = next(each for each in world.members.values() if each is not leader)
    leader.step(BaseRequested(world.now_ns, 1, raft_of(leader).log.configuration_index, 8000, 7))
    while raft_of(other).configuration.election_base_ms != 8000:
        world.run(0.5)
    assert raft_of(other).deadline_ns is not None
    assert raft_of(other).deadline_ns >= world.now_ns + 7900 * MS  # type: ignore[operator]


def test_a_leader_renews_by_the_shorter_base_until_the_longer_one_is_committed() -> None:
    """I74: whoever is elected without the entry gives every session one old base more, and no longer one."""
    world = settled()
    leader = leader_of(world)
    log = AgreedLog(raft_of(leader))
    for other in world.members.values():
        if other is not leader:
            world.cut(leader.member.name, other.member.name)
    assert log.may_renew(world.now_ns)
    leader.step(BaseRequested(world.now_ns, 1, raft_of(leader).log.configuration_index, 8000, 7))
    assert raft_of(leader).configuration.election_base_ms == 8000
    assert raft_of(leader).leased_ns == 250 * MS
    assert not log.may_renew(world.now_ns + 400 * MS)
    world.heal()
    world.run(4000)
    assert raft_of(leader_of(world)).leased_ns in (250 * MS, 4000 * MS)


def test_a_shorter_base_holds_for_renewals_at_once() -> None:
    """I74: whoever has the entry gives one short base more."""
    world = settled(base_ms=4000)
    leader = leader_of(world)
    for other in world.members.values():
        if other is not leader:
            world.cut(leader.member.name, other.member.name)
    leader.step(BaseRequested(world.now_ns, 1, raft_of(leader).log.configuration_index, 800, 7))
    assert raft_of(leader).leased_ns == 400 * MS


def test_a_shorter_base_deposes_nobody() -> None:
    """All timing takes the new value without an election: what was heard by the longer one is young enough."""
    for seed in range(20):
        world = settled(base_ms=6000, seed=seed)
        world.run(seed * 37)
        leader, term = leader_of(world), raft_of(leader_of(world)).term
        assert fix(world, 1500) == ""
        world.run(20_000)
        assert world.leader() is leader
        assert raft_of(leader).term == term


def test_what_a_process_measured_is_told_with_its_answers() -> None:
    """RAFT.md, 8: the receiver reports in heartbeat answers, so a new leader knows at once."""
    world = settled()
    measure(world, stalls(40))
    other = next(each for each in world.members.values() if each is not world.leader())
    world.transfer(other)
    world.run(1500)
    assert world.leader() is other
    assert raft_of(other).suited_base() == (BASE_MS_FIRST, "nothing measured needs more")
    assert raft_of(other).why_base_stays() == ""


# --- Sessions -------------------------------------------------------------------------------------------------------


def test_a_session_lives_for_three_bases_at_least() -> None:
    """RAFT.md, 8: a shorter ttl that was asked for is raised, by the base that holds."""
    world = WholeWorld(5)
    world.run(3000)
    peer = world.peer("short", ttl_ms=300)
    world.run(1000)
    leader = world.leader()
    assert leader is not None and leader.core is not None
    sessions = leader.core.catalog.sessions
    assert sessions[peer.sessions[-1]].ttl_ms == 3 * BASE_MS_FIRST
    leader.step(BaseRequested(world.now_ns, 1, leader.log.raft.log.configuration_index, 2000, 7))
    world.run(1000)
    later = world.peer("later", ttl_ms=300)
    world.run(3000)
    assert sessions[later.sessions[-1]].ttl_ms == 6000
    assert sessions[peer.sessions[-1]].ttl_ms == 3 * BASE_MS_FIRST, "that one keeps what it was told"
    assert not peer.lost


@pytest.mark.parametrize(("base_ms", "ttl_ms"), [(150, 6000), (2000, 6000), (10_000, 60_000)])
def test_a_change_of_the_base_loses_no_session(base_ms: int, ttl_ms: int) -> None:
    """I74: also when the leader dies while the entry is on its way, or soon behind it."""
    for seed in range(5):
        world, leader = changing(seed, base_ms, ttl_ms)
        world.run(2 + 40 * seed)
        leader.crash()
        world.run(60_000)
        assert world.leader() not in (None, leader)
        assert not [peer.name for peer in world.peers if peer.lost], seed


def test_a_longer_base_that_is_never_committed_renews_nobody_too_long() -> None:
    """I74: its leader is cut off from the other members, and its clients are not; the judge looks at leases."""
    for seed in range(5):
        world, leader = changing(seed, 10_000, 6000, isolated=True)
        world.run(30_000)
        assert world.leader() not in (None, leader)
        assert not [peer.name for peer in world.peers if peer.lost], seed


def changing(seed: int, base_ms: int, ttl_ms: int, *, isolated: bool = False) -> tuple[WholeWorld, Node]:
    """A leader with clients that has just proposed this base."""
    world = WholeWorld(seed)
    world.run(3000)
    for number in range(3):
        world.peer(f"p{number}", ttl_ms)
    world.run(2000 + 13 * seed)
    leader = world.leader()
    assert leader is not None
    if isolated:
        world.isolate(leader.name)
    leader.step(BaseRequested(world.now_ns, 1, leader.log.raft.log.configuration_index, base_ms, 7))
    return world, leader
