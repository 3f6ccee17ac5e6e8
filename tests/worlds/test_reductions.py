"""What the reductions of small worlds leave out makes no difference: with and without them the same things happen."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.core.recovery import Recovery
from tests.spec.explore import explore
from tests.worlds.small_world import Bounds, SmallWorld, State

SMALL = [
    Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1),
    Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1, closes=False),
    Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1, lazy_sync=True),
]
LARGER = [
    Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1),
    Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1, deaths=1),
    Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1, failures=1),
    Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1, lazy_sync=True),
]


class Shown(SmallWorld):
    """Keeps what promises are about: metadata, what the writer was told, ends that recoverers know, disks."""

    def __init__(self, bounds: Bounds, *, reduces: bool) -> None:
        super().__init__(bounds, reduces=reduces)
        self.shown: set[Any] = set()

    def broken(self, state: State) -> str | None:
        ends = []
        for client in range(1, self._clients):
            core: Recovery | None = self.states[state[1 + client]]
            ends.append(core.metadata.last_entry if core is not None and core.metadata.is_closed else None)
        disks = [self.states[number] for number in state[self._first_bookie : self._open]]
        self.shown.add(
            (
                self.states[state[0]],
                self.states[state[1]].lac,
                tuple(sorted(map(str, ends))),
                tuple(disk.stable for disk in disks),
            )
        )
        return super().broken(state)


def compare(bounds: Bounds) -> None:
    whole, reduced = Shown(bounds, reduces=False), Shown(bounds, reduces=True)
    all_of_them, fewer = explore(whole), explore(reduced)
    assert all_of_them.is_whole
    assert fewer.is_whole
    assert fewer.distinct < all_of_them.distinct // 2
    assert reduced.shown == whole.shown


@pytest.mark.parametrize("bounds", SMALL)
def test_reduced_worlds_show_the_same(bounds: Bounds) -> None:
    """Point 14: fewer states, and not one outcome less or more."""
    compare(bounds)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bounds", LARGER)
def test_larger_reduced_worlds_show_the_same(bounds: Bounds, request: pytest.FixtureRequest) -> None:
    """The same with a death, and with requests that fail or come late."""
    if not request.config.getoption("--worlds-full"):
        pytest.skip("a minute long: --worlds-full")
    compare(bounds)
