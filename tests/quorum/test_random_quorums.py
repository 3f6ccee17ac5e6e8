"""Random quorums under every fault at once: nothing committed is lost, and when the faults end everything goes on."""

from __future__ import annotations

import random

import pytest

from embedbk.metadata.quorum import Policy
from tests.quorum.world import World

STEPS = 120
PARTS = 6


def act(world: World, chance: random.Random) -> None:
    """One thing that users, operators, networks or disks do."""
    members = list(world.members.values())
    member = chance.choice(members)
    living = [each for each in members if each.raft is not None]
    draw = chance.random()
    if draw < 0.45:
        world.propose(chance.choice(living) if living and chance.random() < 0.2 else None)
    elif draw < 0.55:
        world.read(chance.choice(world.all_leaders()) if world.all_leaders() else None)
    elif draw < 0.62:
        if member.raft is not None:
            world.crash(member)
    elif draw < 0.72:
        for each in members:
            if each.raft is None and chance.random() < 0.7:
                each.start()
    elif draw < 0.77:
        world.cut(member.member.name, chance.choice(members).member.name, both=chance.random() < 0.6)
    elif draw < 0.82:
        world.heal()
    elif draw < 0.85:
        world.pause(member, chance.uniform(1, 3000))
    elif draw < 0.88:
        member.sync_ms = chance.choice([0.5, 1, 5, 300, 3000])
    elif draw < 0.93:
        member.save_snapshot()
    elif draw < 0.95:
        world.transfer(member)
    elif draw < 0.97:
        change_members(world, chance)
    else:
        world.loss, world.doubling = chance.choice([(0, 0), (0.1, 0.1), (0.4, 0)])


def change_members(world: World, chance: random.Random) -> None:
    leader = world.leader()
    if leader is None or leader.raft is None:
        return
    configuration = leader.raft.configuration
    learners = [world.members[each] for each in configuration.learners if each in world.members]
    voters = [world.members[each] for each in configuration.voters if each in world.members]
    outside = [each for each in world.members.values() if each.member not in configuration.members]
    if outside and not learners and chance.random() < 0.7:
        world.admit(*outside)
    elif learners and len(voters) + len(learners) <= 5:
        world.change(*voters, *learners, allows_even=True)
    elif len(voters) > 1:
        world.change(*chance.sample(voters, chance.choice([1, len(voters) - 1])), allows_even=True)


def let_it_end(world: World) -> None:
    """The faults end; a quorum that has all its disks goes on (L5, L8)."""
    world.heal()
    world.loss = world.doubling = 0
    for member in world.members.values():
        member.sync_ms, member.paused_until_ms = 1, 0
        if member.raft is None:
            member.start()
    world.run(12_000)
    token = world.propose()
    world.read()
    world.run(3_000)
    assert token in world.judge.acknowledged, "L8: nothing is committed though all are there"
    leader = world.leader()
    assert leader is not None
    assert leader.raft is not None
    for each in leader.raft.configuration.members:
        assert world.members[each].state == leader.state, "L6: a member stays behind"
    world.judge.end()


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_committed_stays(part: int, pytestconfig: pytest.Config) -> None:
    """I60 to I72, I75 to I78, L5, L6, L8: crashes, cuts, pauses, slow disks, snapshots, transfers, changes."""
    for seed in range(part, pytestconfig.getoption("--quorum-seeds"), PARTS):
        one_world(seed)


def one_world(seed: int) -> World:
    chance = random.Random(seed * 7919)
    names = chance.choice(["a", "abc", "abc", "abcde"])
    policy = chance.choice([Policy.MAJORITY, Policy.MAJORITY, Policy.SUPERMAJORITY, Policy.ROLLBACK_1])
    world = World(seed, names, policy)
    for _ in range(STEPS):
        act(world, chance)
        world.run(chance.choice([0.1, 1, 20, 200, 800]))
    let_it_end(world)
    return world
