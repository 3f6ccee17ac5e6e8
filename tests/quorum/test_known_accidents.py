"""Accidents that other systems had, each as one story of a quorum with every invariant judged (scenarios 68 to 84)."""

from __future__ import annotations

import pytest

from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_state import Role
from tests.quorum.test_scenarios import BASE_MS, commit, lead, settled
from tests.quorum.world import Image, Member, Snapshot, World


def newcomers(world: World, names: str) -> list[Member]:
    """Learners of these names."""
    known = next(iter(world.members.values())).disk.snapshot.configuration
    fresh = [
        Member(world, MemberId(name, 16 * name.encode()), Image(Snapshot(0, 0, known, ()))) for name in names
    ]
    for each in fresh:
        world.members[each.member] = each
        each.start()
    world.admit(*fresh)
    world.run(2 * BASE_MS)
    return fresh


def lose_power(world: World, *members: Member) -> None:
    """Whatever is not synced is gone, of all of them."""
    for member in members:
        if member.raft is not None:
            member.unsynced.clear()
            world.crash(member)


def votes_of(member: Member) -> set[str]:
    """Who counts, as this member has it in its log."""
    assert member.raft is not None
    return {voter.name for voter in member.raft.configuration.voters}


@pytest.mark.parametrize("after_ms", [1, 5, 20, 100])
def test_a_state_never_runs_ahead_of_its_own_log(after_ms: int) -> None:
    """Scenario 65, I72: etcd 10508, 20426. A follower hears that entries are committed long before its own disk has
    them; it applies none of them, and when the power goes it starts with less and gets the same again."""
    world = settled(seed=after_ms)
    lead(world, "a")
    b = world.named("b")
    b.sync_ms = 10_000
    before = len(b.state)
    tokens = commit(world, 5)
    world.run(after_ms)
    assert b.raft is not None
    assert b.raft.log.last_index == len(world.judge.committed), "it was told of all of them"
    assert len(b.state) == before, "it shows what its disk does not have"
    lose_power(world, b)
    b.sync_ms = 1
    b.start()
    world.run(4 * BASE_MS)
    commit(world)
    assert {world.judge.bodies[token] for token in tokens} <= set(b.state)
    world.judge.end()


def test_of_two_snapshots_in_quick_succession_the_newer_one_stands() -> None:
    """Scenario 68: etcd 18055. While C loads one, the leader cuts a newer one and has the first no more."""
    world = settled()
    a, c = lead(world, "a"), world.named("c")
    world.crash(c)
    begun: list[int] = []
    fetch = world.fetch

    def fetch_late(member: Member, source, index: int) -> None:  # type: ignore[no-untyped-def]
        begun.append(index)
        world.later(2_000, lambda: fetch(member, source, index))

    world.fetch = fetch_late  # type: ignore[method-assign]
    for start in (True, False):
        commit(world, 5)
        for name in "ab":
            member = world.named(name)
            member.save_snapshot()
            assert member.raft is not None
            member.raft.log.let_go(member.raft.log.snapshot_index, member.raft.log.snapshot_index + 1)
        if start:
            c.start()
            world.run(BASE_MS)
    world.run(20_000)
    assert len(set(begun)) == 2, "one of the two was never asked for"
    assert c.state == a.state
    world.judge.end()


def test_a_snapshot_from_before_a_removal_does_not_undo_it_nor_do_it_twice() -> None:
    """Scenario 69: etcd 13466. Each starts on a snapshot that knows five voters, with the change to three behind it."""
    world = settled("abcde")
    a = lead(world, "a")
    commit(world, 3)
    for name in "abc":
        world.named(name).save_snapshot()
    world.change(*(world.named(name) for name in "abc"))
    world.run(2 * BASE_MS)
    assert world.changes[-1] == ""
    for name in "abcde":
        world.crash(world.named(name))
    assert len(a.disk.snapshot.configuration.voters) == 5
    for name in "abc":
        world.named(name).start()
        assert votes_of(world.named(name)) == {"a", "b", "c"}
    world.run(4 * BASE_MS)
    commit(world)
    for name in "abc":
        assert votes_of(world.named(name)) == {"a", "b", "c"}
    world.judge.end()


@pytest.mark.parametrize("after_ms", range(0, 40, 2))
def test_what_a_new_leader_was_told_is_durable_survives_a_power_cut_of_all(after_ms: int) -> None:
    """Scenario 71: ZK-3911. Disks of the followers are slow; whatever was acknowledged when power went is there."""
    world = settled(seed=after_ms + 1)
    lead(world, "b")
    for name in "ac":
        world.named(name).sync_ms = 15
    for _ in range(5):
        world.propose()
    world.run(after_ms)
    lose_power(world, *world.members.values())
    acknowledged = list(world.judge.acknowledged)
    for name in "abc":
        world.named(name).start()
    world.run(6 * BASE_MS)
    commit(world)
    leader = world.leader()
    assert leader is not None
    assert {world.judge.bodies[token] for token in acknowledged} <= set(leader.state)
    world.judge.end()


def test_a_follower_that_missed_something_in_between_never_hands_on_the_hole() -> None:
    """Scenario 72: ZK-4925. C hears the first and the third append; then it leads, and nobody has a gap."""
    world = settled()
    lead(world, "a")
    commit(world)
    world.propose()
    world.run(5)
    world.cut("a", "c")
    world.propose()
    world.run(5)
    world.heal()
    world.propose()
    world.run(5)
    world.pause(world.named("a"), 6 * BASE_MS)
    world.cut("b", "a")
    world.run(5 * BASE_MS)
    world.heal()
    lead(world, "c")
    world.run(4 * BASE_MS)
    commit(world)
    states = [world.named(name).state for name in "abc"]
    assert states[0] == states[1] == states[2]
    world.judge.end()


@pytest.mark.parametrize("keeps", ["a", "ac"])
def test_a_transfer_to_a_voter_that_leaves_is_over(keeps: str) -> None:
    """Who is left alone has no ticks: it waited for the one that had left, and took nothing more, for ever (seed
    64001044)."""
    world = settled("abc")
    lead(world, "a")
    b = world.named("b")
    world.cut("a", "b")
    world.transfer(b)
    world.change(*(world.named(name) for name in keeps), allows_even=True)
    world.run(0.9 * BASE_MS)
    assert world.changes[-1] == ""
    commit(world)
    world.judge.end()


def test_a_leader_changes_no_voters_before_it_has_committed_in_its_own_term() -> None:
    """Scenario 79: Raft 2015. Elected, and cut off before its first entry reached anybody, it is asked for a change."""
    world = settled("abcde")
    lead(world, "a")
    b = world.named("b")
    world.transfer(b)
    for _ in range(400):
        world.run(0.25)
        assert b.raft is not None
        if b.raft.role is Role.LEADER:
            break
    assert b.raft is not None
    assert b.raft.role is Role.LEADER
    assert b.raft.log.term_at(b.raft.commit_index) != b.raft.term, "its own entry is committed already"
    last = b.raft.log.last_index
    world.change(*(world.named(name) for name in "abc"))
    assert "has not committed an entry of its own yet" in world.changes[-1]
    assert b.raft.log.last_index == last
    world.run(2 * BASE_MS)
    world.change(*(world.named(name) for name in "abc"))
    world.run(2 * BASE_MS)
    assert world.changes[-1] == ""


def test_who_was_wiped_and_who_slept_through_the_change_elect_nobody() -> None:
    """Scenario 80: raft-tlaplus, a name used again. A is cut off with the voters A B C; they become C D E; B comes back
    empty under its old name, and A returns: the two of them are no quorum of anything."""
    world = settled()
    c = lead(world, "c")
    fresh = newcomers(world, "de")
    for name in "bcde":
        world.cut("a", name)
    world.change(c, *fresh)
    world.run(4 * BASE_MS)
    assert world.changes[-1] == ""
    tokens = commit(world, 3)
    a, b = world.named("a"), world.wipe(world.named("b"))
    for name in "cde":
        world.crash(world.named(name))
    world.heal()
    assert votes_of(a) == {"a", "b", "c"}
    b.start()
    world.run(20 * BASE_MS)
    assert world.leader() is None
    for name in "cde":
        world.named(name).start()
    world.run(6 * BASE_MS)
    leader = world.leader()
    assert leader is not None
    assert leader.member.name in "cde"
    assert {world.judge.bodies[token] for token in tokens} <= set(leader.state)
    commit(world)
    world.judge.end()


def test_a_leader_that_lost_what_it_had_not_synced_does_not_lead_on() -> None:
    """Scenario 84: openraft 1385. Its disk stood while the others committed; it starts without those entries, hears
    messages of its own term, and follows until it is elected by what it has then."""
    world = settled()
    a = lead(world, "a")
    a.sync_ms = 10_000
    tokens = [world.propose() for _ in range(3)]
    world.run(20)
    assert a.raft is not None
    led, held = a.raft.term, a.raft.log.last_index
    assert a.raft.commit_index == held, "the others have not committed it"
    lose_power(world, a)
    a.sync_ms = 1
    a.start()
    assert a.raft.role is Role.FOLLOWER
    assert a.raft.log.last_index < held
    world.run(6 * BASE_MS)
    leader = world.leader()
    assert leader is not None
    assert leader.raft is not None
    assert leader.raft.term > led
    commit(world)
    assert {world.judge.bodies[token] for token in tokens} <= set(a.state)
    world.judge.end()


def test_a_copy_of_a_directory_adds_nothing_to_a_quorum() -> None:
    """Story 6, RAFT.md, 11: a cloned disk. Beside the living C a second process starts on a copy of its
    directory, and hears all that C hears. With B gone, and C in the next moment, A and the copy commit
    nothing until C was silent for an election base; then the copy is C."""
    world = settled()
    a, b, c = lead(world, "a"), world.named("b"), world.named("c")
    commit(world, 3)
    copy = Member(world, c.member, c.disk.copy())
    world.members[MemberId("copy of c", c.member.incarnation)] = copy
    copy.start()
    world.run(2 * BASE_MS)
    assert world.leader() is a
    world.crash(b)
    commit(world, 3)
    c.crash()  # In silence: nobody hears that its links are gone.
    token = world.propose()
    world.run(BASE_MS / 4)
    assert token not in world.judge.acknowledged, "the copy was counted for C, who was heard just now"
    world.run(6 * BASE_MS)
    commit(world, 3)  # By A and the copy, which is C by now.
    b.start()
    world.run(6 * BASE_MS)
    commit(world)
    world.judge.end()
