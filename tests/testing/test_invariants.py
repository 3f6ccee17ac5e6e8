"""The invariants on histories of the real cores: none of them may cry where all is well."""

from __future__ import annotations

import random

import pytest

from embedbk.config import Quorum
from tests.rules.world import World
from tests.scenarios.watched import scene


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(5, 3, 2), Quorum(2, 2, 1), Quorum(4, 2, 2)])
def test_a_quiet_life_breaks_nothing(quorum: Quorum) -> None:
    """S2: add, change ensemble, close, read: every check runs and none fails."""
    scenery = scene(quorum, 7)
    world = scenery.world
    for number in range(30):
        scenery.add(*(b"x" * (number + part) for part in range(1 + number % 4)))
        world.settle()
    world.close(scenery.writer)
    world.run()
    world.end(scenery.ledger_id)
    reached = world.invariants.sometimes.reached
    assert reached["add acknowledged"] == 30
    assert reached["closed by its writer"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_trouble_breaks_nothing(seed: int) -> None:
    """S2: bookies crash and come back, a recoverer interferes, deliveries come in any order; no check fails."""
    chance = random.Random(f"invariants {seed}")
    quorum = chance.choice([Quorum(3, 3, 2), Quorum(4, 3, 2), Quorum(3, 2, 2)])
    scenery = scene(quorum, 6)
    world = scenery.world
    recovery = None
    for _ in range(400):
        act = chance.random()
        writer = scenery.writer
        if act < 0.15 and writer.failure is None and not writer.has_ended and not writer.is_gone:
            if writer.core.wants_frame(is_full=True):
                scenery.add(*(bytes([chance.randrange(256)]) * 9 for _ in range(chance.randint(1, 3))))
        elif act < 0.75 and world.wire:
            world.deliver(chance.choice(world.wire))
        elif act < 0.9:
            for node in world.nodes.values():
                if node.is_up:
                    node.sync()
        elif act < 0.95 and world.catalog.waiting:
            world.catalog.answer(chance.choice(world.catalog.waiting))
        elif act < 0.96:
            node = chance.choice(list(world.nodes.values()))
            for packet in [p for p in world.wire if p.bookie_id == node.bookie_id]:
                world.fail(packet)
            node.crash()
            node.restart()
        elif act > 0.99 and recovery is None:
            recovery = world.recovery(scenery.ledger_id)
            recovery.start()
    world.run(seconds=30)
    world.end(scenery.ledger_id)


def test_the_world_without_watchers_is_the_same() -> None:
    """S2: the checks change nothing of what they look at."""
    assert issubclass(type(scene().world), World)
