"""All interleavings of small worlds over the production cores: nothing acknowledged is lost, a ledger has one end."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.core import add_storing, forward_reading
from embedbk.core.quorum import Verdict
from tests.spec.explore import Explored, explore
from tests.worlds.small_world import Bounds, SmallWorld, State

# Explored whole, with the number of distinct states when it was last looked at.
WHOLE = [
    (Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1), 1_293),
    (Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1, lazy_sync=True), 4_407),
    (Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1, deaths=1), 7_493),
    (Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1, deaths=1), 10_187),
    (Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1, failures=1), 6_968),
    # A writer short of bookies tries again, with each of those that are listed (P4.5).
    (Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1, failures=1), 20_831),
    (Bounds(bookies=3, ack_quorum=2, entries=1, recoverers=1, deaths=1), 23_785),
    (Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=2), 19_499),
]

# Explored up to a bound in the ordinary run.
BOUNDED = [
    Bounds(bookies=2, ack_quorum=1, entries=2, recoverers=1, deaths=1),
    Bounds(bookies=3, ack_quorum=2, entries=2, recoverers=2, failures=1, deaths=1),
]

TROUBLE: list[dict[str, Any]] = [{}, {"lazy_sync": True}, {"deaths": 1}, {"failures": 1}]
LARGE = [
    Bounds(bookies, ack_quorum, entries, recoverers, **trouble)
    for recoverers in (1, 2)
    for bookies in (2, 3)
    for entries in (1, 2)
    for ack_quorum in (1, 2)
    for trouble in TROUBLE
]
LARGE += [
    Bounds(bookies, ack_quorum, 1, 1, failures=1, deaths=1) for bookies in (2, 3) for ack_quorum in (1, 2)
]


def told(found: Explored[State]) -> str:
    return "\n".join([f"broken: {found.broken}", *found.path])


@pytest.mark.parametrize(("bounds", "distinct"), WHOLE)
def test_every_interleaving_of_a_small_world_is_safe(bounds: Bounds, distinct: int):
    """I2, I3, I4, I6, I7, I18, I19, I21, I28 in every state, until no new state is left."""
    found = explore(SmallWorld(bounds), states_max=2 * distinct)
    assert found.broken is None, told(found)
    assert found.is_whole  # A change of the cores may change the count; twice as many must be understood.
    assert found.distinct > distinct // 2


@pytest.mark.parametrize("bounds", BOUNDED)
def test_the_beginning_of_a_larger_world_is_safe(bounds: Bounds):
    found = explore(SmallWorld(bounds), states_max=20_000)
    assert found.broken is None, told(found)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", LARGE)
def test_a_larger_world_is_safe(bounds: Bounds, request: pytest.FixtureRequest):
    """Point 14 whole: failures, a dead bookie, three clients; says how far it came."""
    if not request.config.getoption("--worlds-full"):
        pytest.skip("minutes long: --worlds-full")
    world = SmallWorld(bounds)
    found = explore(world, states_max=request.config.getoption("--worlds-states"))
    print(f"{bounds}: {found.distinct} distinct, {found.generated} generated, depth {found.depth}, ")
    print(
        f"whole: {found.is_whole}; {len(world.states)} machine states by {world.machine_steps} machine steps"
    )
    assert found.broken is None, told(found)


def test_a_verdict_on_one_negative_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The checker checks itself: recovery that believes one "no" of two truncates (P5.2c)."""
    monkeypatch.setattr(forward_reading, "recovery_verdict", _one_negative_ends)
    found = explore(SmallWorld(Bounds(bookies=2, ack_quorum=1, entries=1, recoverers=1)))
    assert found.broken == "no truncation", told(found)


def _one_negative_ends(entry_id: int, positive: int, negative: int, quorum: object) -> Verdict:
    return Verdict.NOT_THERE if negative else Verdict.UNDECIDED


def test_a_fence_that_adds_ignore_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The checker checks itself (P3.4a, I21)."""
    monkeypatch.setattr(add_storing, "refusal_of", lambda row: None)
    found = explore(SmallWorld(Bounds(bookies=2, ack_quorum=2, entries=1, recoverers=1)))
    assert found.broken == "fenced means fenced", told(found)
