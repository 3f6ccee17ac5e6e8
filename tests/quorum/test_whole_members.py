"""Whole members under every fault at once: what clients are told stays, is told once, and is never old."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.metadata_messages import ABSENT, AllocIds, Compare, Get, Operation, Put, Txn
from embedbk.metadata.quorum import Policy
from embedbk.metadata.raft_vocabulary import TransferRequested
from tests.quorum.whole_world import WholeWorld

STEPS = 100
PARTS = 6
KEYS = [f"/k/{n}" for n in range(4)]


def operation(world: WholeWorld, name: str, chance: random.Random) -> Operation:
    key = chance.choice(KEYS)
    draw = chance.random()
    if draw < 0.35:
        return Get(key)
    if draw < 0.45:
        return AllocIds(chance.randint(1, 5))
    value = f"{name} {world.now_ns} {chance.random()}".encode()
    return Txn([Compare(key, ABSENT)] if draw < 0.5 else [], [Put(key, value)])


def act(world: WholeWorld, chance: random.Random) -> None:
    """One thing that users, networks or disks do."""
    node = chance.choice(list(world.nodes.values()))
    draw = chance.random()
    if draw < 0.55:
        for _ in range(chance.choice([1, 1, 3, 20])):
            peer = chance.choice(world.peers)
            peer.ask(operation(world, peer.name, chance))
    elif draw < 0.62:
        if node.core is not None:
            node.crash()
    elif draw < 0.72:
        for each in world.nodes.values():
            if each.core is None and chance.random() < 0.7:
                each.start()
    elif draw < 0.77:
        world.cut(node.name, chance.choice(list(world.nodes)), both=chance.random() < 0.6)
    elif draw < 0.80:
        world.isolate((world.leader() or node).name)
    elif draw < 0.82:
        world.cut(node.name, chance.choice(world.peers).name, both=chance.random() < 0.6)
    elif draw < 0.88:
        world.is_cut.clear()
    elif draw < 0.91:
        node.paused_until_ms = world.now_ms + chance.uniform(1, 3000)
    elif draw < 0.94:
        node.sync_ms = chance.choice([0.5, 1, 5, 300, 3000])
    elif draw < 0.97:
        node.save_snapshot()
    elif draw < 0.99:
        leader = world.leader()
        if leader is not None:
            leader.step(TransferRequested(world.now_ns, node.own))
    else:
        world.loss = chance.choice([0, 0.1, 0.4])


def let_it_end(world: WholeWorld) -> None:
    """L5, L8: the faults end; whatever was asked is answered, and all members hold the same."""
    world.is_cut.clear()
    world.loss = 0
    for node in world.nodes.values():
        node.sync_ms, node.paused_until_ms = 1, 0
        if node.core is None:
            node.start()
    world.run(20_000)
    for peer in world.peers:
        peer.ask(Get("/k/0"))
        peer.ask(Txn([], [Put("/last", peer.name.encode())]))
    world.run(10_000)
    for peer in world.peers:
        assert len(peer.results) == peer.count, "L8: a request has no outcome"
    world.judge.end(world)


def one_world(seed: int) -> WholeWorld:
    chance = random.Random(seed * 7919)
    names = chance.choice(["a", "abc", "abc", "abcde"])
    world = WholeWorld(seed, names, chance.choice([Policy.MAJORITY, Policy.MAJORITY, Policy.ROLLBACK_1]))
    for name in "xyz":
        world.peer(name, chance.choice([1_000, 10_000]))
    world.run(3_000)
    for _ in range(STEPS):
        act(world, chance)
        world.run(chance.choice([0.1, 1, 20, 200, 800]))
    let_it_end(world)
    return world


@pytest.mark.parametrize("part", range(PARTS))
def test_what_clients_are_told_stays(part: int, pytestconfig: pytest.Config) -> None:
    """I65, I72 to I75, I82, L5, L6, L8: crashes, cuts, pauses, slow disks, snapshots, with real clients."""
    for seed in range(part, pytestconfig.getoption("--whole-seeds"), PARTS):
        one_world(seed)


def test_an_old_leader_that_is_cut_off_shows_nothing_older() -> None:
    """I75: while it still believes that it leads, another one commits; a client that only the old one hears asks it."""
    met = 0
    for seed in range(12):
        world = WholeWorld(seed, "abc")
        reader, writer = world.peer("x"), world.peer("y")
        world.run(5_000)
        old = world.leader()
        assert old is not None
        for other in world.nodes.values():
            if other is not old:
                world.cut(reader.name, other.name)
        world.isolate(old.name)
        for _ in range(2_000):
            world.run(1)
            new = world.leader()
            if new is not None and new is not old:
                break
        writer.go_to(new.name if new is not None else "")
        written = writer.ask(Txn([], [Put("/k/0", f"new {seed}".encode())]))
        for _ in range(40):
            world.run(10)
            if written in writer.results and old.is_leading:
                met += 1
                reader.ask(Get("/k/0"))
        world.run(3_000)
        let_it_end(world)
    assert met, "no world had two that believe that they lead"
