"""S2: a run that reaches nothing interesting is blind, and says so."""

from __future__ import annotations

from embedbk.testing import make_plan, run_plan
from embedbk.testing.invariants import Invariants
from embedbk.testing.sometimes import SOMETIMES, Sometimes

# What needs a client or a fault that plans do not draw yet; directed scenarios reach these (tests/scenarios).
_DIRECTED = {
    "add refused in limbo",
    "add to another incarnation",
    "in limbo",
    "ledger deleted",
    "ledger dropped",
    "read unconfirmed",
    "seats repaired",
    "served after an unclean start",
    "unclean start",
    "unknown outcome",
}
# What some hundred seeds reach, and not always a few.
_RARE = {"ensemble changed in recovery", "entry repaired", "last fragment empty", "read answered unknown"}
_RARE |= {
    "recovery inconclusive",
    "fragment replaced",
    "copy damaged",
    "fence survived a restart",
    "disk lost",
}


def test_a_few_seeds_reach_most_of_what_is_interesting() -> None:
    """S2: the invariants look at running clusters in which something happens."""
    seen = Sometimes()
    for seed in range(24):
        outcome = run_plan(
            make_plan(seed, is_native=False), make_observers=lambda _: [Invariants(seen.reached)]
        )
        assert not outcome.violation
    assert set(seen.missed()) <= _DIRECTED | _RARE
    assert len(SOMETIMES) - len(seen.missed()) >= 25


def test_a_run_that_looked_at_nothing_misses_everything() -> None:
    """S2: a blind run is seen as blind."""
    assert Sometimes().missed() == list(SOMETIMES)
