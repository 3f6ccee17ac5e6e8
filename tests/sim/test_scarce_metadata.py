"""Metadata that has no room, in a whole cluster: what it refuses for good, and what it puts off (P2.2)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from embedbk.config import Quorum
from embedbk.core.log import LogTakeover
from embedbk.errors import MetadataUnavailable
from embedbk.host.writing import Writing
from embedbk.testing import faults, scarcity, workload
from embedbk.testing.actors import Actor, Steps
from embedbk.testing.clocks import SECOND
from embedbk.testing.promises import Promises
from embedbk.testing.run import observers
from embedbk.testing.workload import is_ready, recover, result_of
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, close_writing, open_writing, takeover_core

THREE = Quorum(3, 3, 2)


@pytest.fixture
def seen() -> Counter[str]:
    return Counter()


def scarce(seen: Counter[str]) -> World:
    world = World(
        5,
        observers=[Promises(), *observers(seen)],
        metadata_limits=scarcity.LITTLE_ROOM,
        requests_waiting_max=scarcity.FEW_REQUESTS,
    )
    world.sometimes = seen
    world.start_client("w1")
    return world


def done(world: World, client: str, steps: Steps) -> Actor:
    actor = world.spawn(client, steps)
    assert world.run_until(lambda: actor.is_over, 60 * SECOND)
    return actor


def test_who_writes_recovers_and_takes_over_beside_a_full_catalog_is_told(seen: Counter[str]) -> None:
    """P2.2, P4.5: what is open goes on without the bookie that failed; all else ends within a second with what is
    full; when there is room again, everything acknowledged is there."""
    world = scarce(seen)
    began: list[Writing] = []

    def take_over(client: str) -> Steps:
        yield from is_ready(world, client)
        core = takeover_core(world, client, workload.LOG, THREE)
        assert isinstance(core, LogTakeover)
        taken = yield from result_of(world, client, core)
        began.append(open_writing(world, client, taken))

    assert done(world, "w1", take_over("w1")).error is None
    (writing,) = began
    for number in range(200):  # A close takes room only where its last entry is a longer number than none.
        assert append(world, "w1", writing, b"%d" % number) == number
    assert world.run_until(lambda: writing.lac == 199)

    assert scarcity.fill_catalog(world, "full", 600 * SECOND, random.Random(1))
    assert world.run_until(lambda: not scarcity.has_room(world))
    world.crash(writing.core.metadata.fragments[0].members[0].bookie_id)
    assert append(world, "w1", writing, b"one more") == 200
    assert world.run_until(lambda: writing.lac == 200)
    world.run_for(20 * SECOND)
    assert 1 <= seen["change refused for good"] <= 5
    close_writing(world, "w1", writing)
    assert world.run_until(lambda: writing.error is not None, SECOND)
    assert isinstance(writing.error, MetadataUnavailable)
    assert "the catalog holds" in str(writing.error)
    assert seen["close refused for good"] == 1

    world.start_client("r1")
    for what, steps in (("recovery", recover), ("takeover", None)):
        ledger_id = writing.core.ledger_id
        actor = done(world, "r1", recover(world, "r1", ledger_id) if steps else take_over("r1"))
        assert isinstance(actor.error, MetadataUnavailable), what
        assert actor.error.definite
    assert seen["recovery refused for good"] >= 1

    faults.heal(world)
    assert world.run_until(lambda: scarcity.has_room(world), 60 * SECOND)
    assert done(world, "r1", take_over("r1")).error is None
    closed = done(world, "r1", recover(world, "r1", writing.core.ledger_id))
    assert closed.error is None
    world.close()


def test_a_crowd_is_put_off_and_answered_in_the_end(seen: Counter[str]) -> None:
    """METADATA.md 5: BUSY is no answer; each node asks again, and every request is answered once."""
    world = scarce(seen)
    assert world.run_until(lambda: world.nodes["w1"].is_ready)
    assert scarcity.crowd(world)
    assert world.run_until(lambda: seen["crowd answered"] == 1, 30 * SECOND)
    assert seen["metadata put off"] == 1
    world.close()
