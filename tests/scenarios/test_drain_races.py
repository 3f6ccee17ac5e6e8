"""A bookie is drained while somebody is about to name it: in either order nothing is lost, and it comes to be empty
(P11.3, P10.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from embedbk.client.draining import cancel_drain, drain
from embedbk.codec.registration import PLACEMENTS_PREFIX
from embedbk.core.creation import Creation
from embedbk.core.metadata_words import Transact
from embedbk.core.recovery import Recovery
from embedbk.core.writer import Writer
from embedbk.repair.ledger_repair import LedgerRepair
from embedbk.testing import Cluster
from embedbk.testing.actors import Steps
from embedbk.testing.invariants import Invariants
from embedbk.testing.observer import Observer
from embedbk.testing.sim_runtime import SimRuntime, awaited
from tests.repair.healed import Healed
from tests.repair.test_draining import empty

MS = 1_000_000
KINDS = (Creation, Writer, Recovery, LedgerRepair)


class Racing(Observer):
    """Whom the first transaction of this core newly names is drained: while that is held back, or just behind it."""

    def __init__(self, kind: type, *, is_first: bool, then_cancels: bool = False) -> None:
        self.kind, self.is_first, self.then_cancels = kind, is_first, then_cancels
        self.cluster: Cluster | None = None
        self.victim = ""
        self.is_drained = False

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        if self.victim or self.cluster is None or type(core) is not self.kind:
            return
        keys = [each.key for effect in effects if type(effect) is Transact for each in effect.when]
        named = [key.removeprefix(PLACEMENTS_PREFIX) for key in keys if key.startswith(PLACEMENTS_PREFIX)]
        if not named:
            return
        world, self.victim = self.cluster.world, named[0]
        if self.is_first:
            world.network.block(node, "metadata")
            world.after(800 * MS, lambda: world.network.unblock(node, "metadata"))
        world.after((5 if self.is_first else 200) * MS, lambda: world.spawn("operator", self._drain()))

    def _drain(self) -> Steps:
        assert self.cluster is not None
        world = self.cluster.world
        runtime = SimRuntime(world, "operator", world.nodes["operator"])
        yield from awaited(runtime, drain(runtime, self.victim))
        if self.then_cancels:
            yield from awaited(runtime, cancel_drain(runtime, self.victim))
        self.is_drained = True


def race(kind: type, *, is_first: bool, then_cancels: bool = False) -> tuple[Cluster, Racing, Invariants]:
    racing, seen = Racing(kind, is_first=is_first, then_cancels=then_cancels), Invariants()
    return Cluster(seed=3, bookies=6, observers=[racing, seen]), racing, seen


def play(story: Healed, racing: Racing, kind: type) -> int:
    """The ledger that is made, changed, recovered or repaired meanwhile."""
    cluster = story.cluster
    cluster.client("operator")
    one, two = cluster.client("one"), cluster.client()
    racing.cluster = cluster if kind is Creation else None
    writer = one.create_ledger()
    writer.add(b"zero")
    lost = sorted(story.named(writer.ledger_id))[0]
    racing.cluster = cluster
    if kind is Writer:
        cluster.crash(lost)
        writer.add(b"one")
    elif kind is Recovery:
        cluster.crash(lost)
        cluster.crash("one")
        two.open_ledger(writer.ledger_id, recover=True)
    elif kind is LedgerRepair:
        writer.close()
        story.repairer()
        cluster.crash(lost)
    assert cluster.run_until(lambda: racing.is_drained), racing.victim
    if kind in (Creation, Writer):
        writer.close()
    return writer.ledger_id


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_either_order_of_a_drain_and_who_names_the_bookie(kind: type, *, is_first: bool) -> None:
    """P10.6: behind the raise it is not named, and before it what it was given moves off it."""
    opened, racing, seen = race(kind, is_first=is_first)
    with opened as cluster:
        story = Healed(cluster)
        ledger_id = play(story, racing, kind)
        if is_first:
            assert seen.sometimes.reached["placement was another"] or kind is LedgerRepair
            assert racing.victim not in story.named(ledger_id)
        if kind is not LedgerRepair:
            story.repairer()
        empty(story, racing.victim, within_s=120)
        cluster.client().decommission_bookie(racing.victim)
        found = cluster.client().open_ledger(ledger_id)
        assert bytes(next(found.read())) == b"zero"


@pytest.mark.parametrize("kind", KINDS)
def test_a_drain_that_is_cancelled_beside_who_names_the_bookie_hinders_nobody(kind: type) -> None:
    """P10.6: the placement is another one twice; then the bookie is listed with the newest."""
    opened, racing, _ = race(kind, is_first=True, then_cancels=True)
    with opened as cluster:
        story = Healed(cluster)
        ledger_id = play(story, racing, kind)
        assert cluster.run_until(lambda: all(each.state != "draining" for each in cluster.client().bookies()))
        while racing.victim not in story.named(cluster.client().create_ledger().ledger_id):
            pass
        assert bytes(next(cluster.client().open_ledger(ledger_id).read())) == b"zero"
