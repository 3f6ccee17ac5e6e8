"""The metadata has no quorum for a while: what is open goes on, what needs it waits and ends with it (P10.4, L8)."""

from __future__ import annotations

from collections import Counter

import pytest

from embedbk.config import Quorum
from embedbk.host.bookie_node import BookieNode
from embedbk.testing.clocks import SECOND
from embedbk.testing.promises import Promises
from embedbk.testing.run import observers
from embedbk.testing.violation import Violation
from embedbk.testing.without_quorum import goes_on_without_quorum
from embedbk.testing.world import World

SEEDS = range(1, 9)  # Among them each way to lose it.


def run(seed: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    world = World(seed, observers=[Promises(), *observers(seen)])
    world.sometimes = seen
    ways: list[str] = []
    world.on_note = lambda text: ways.append(text.split()[2]) if text.startswith("no quorum") else None
    for name in ("w", "r"):
        world.start_client(name)
    actor = world.spawn("w", goes_on_without_quorum(world, "w", "r", Quorum(3, 3, 2)))
    over = world.run_until(lambda: actor.is_over, 120 * SECOND)
    world.close()
    assert over
    if actor.error is not None:
        raise actor.error
    return Counter(ways) + seen


def test_what_is_open_goes_on_and_what_waits_ends_with_the_quorum() -> None:
    """P10.4: losing the quorum stops creation, opening, closing and ensemble changes, and nothing else."""
    seen = sum((run(seed) for seed in SEEDS), Counter[str]())
    assert seen["went on without a quorum"] == len(SEEDS)
    assert {"crash", "pause", "cut"} <= set(seen)


def test_a_bookie_that_serves_only_beside_its_metadata_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.4: the promise above sees what it is there for."""
    step = BookieNode.step

    def tied(self: BookieNode, now_ns: int) -> None:
        self.core.is_writable = self.metadata.is_up
        step(self, now_ns)

    monkeypatch.setattr(BookieNode, "step", tied)
    with pytest.raises(Violation, match=r"P10\.4"):
        sum((run(seed) for seed in SEEDS), Counter[str]())
