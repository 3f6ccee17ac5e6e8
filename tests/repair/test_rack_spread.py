"""Health says on how many racks the copies of each entry are, at least (AR06), and of what time it speaks."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
)
from embedbk.ids import Member
from embedbk.repair.rack_spread import fewest_racks
from embedbk.testing import Cluster
from tests.repair.healed import Healed
from tests.repair.test_repaired import closed

RACKS = {"b1": "z/1", "b2": "z/1", "b3": "z/2", "b4": "z/3", "b5": ""}


def ledger(*ensembles: str, write_quorum: int) -> LedgerMetadata:
    """ensembles: "123" is b1 b2 b3; one fragment for each."""
    fragments = tuple(
        Fragment(10 * number, 0, tuple(tuple(Member(f"b{digit}", bytes(16))) for digit in names))  # type: ignore[misc]
        for number, names in enumerate(ensembles)
    )
    size = len(ensembles[0])
    state = (LedgerState.CLOSED, 99, 990)
    return LedgerMetadata(
        METADATA_VERSION, 7, size, write_quorum, write_quorum, *state, bytes(16), 0, {}, fragments
    )


@pytest.mark.parametrize(
    ("ledgers", "racks"),
    [
        ([], 0),
        ([ledger("123", write_quorum=3)], 2),
        ([ledger("134", write_quorum=3)], 3),
        ([ledger("12", write_quorum=2)], 1),
        ([ledger("134", "123", write_quorum=3)], 2),
        ([ledger("134", write_quorum=3), ledger("12", write_quorum=2)], 1),
        ([ledger("134", write_quorum=3), ledger("125", write_quorum=3)], 0),
        ([ledger("139", write_quorum=3)], 0),
        # Striped: entries 0, 3, ... are on the first two seats, 1, 4, ... on the next two, and so on.
        ([ledger("134", write_quorum=2)], 2),
        ([ledger("123", write_quorum=2)], 1),
        ([ledger("132", write_quorum=2)], 1),
        ([ledger("1324", write_quorum=2)], 2),
    ],
)
def test_the_fewest_racks_of_any_write_set_count(ledgers: list[LedgerMetadata], racks: int) -> None:
    """AR06: whether an ensemble spans what it should is judged write set by write set."""
    assert fewest_racks(ledgers, RACKS) == racks


def test_health_says_it_and_of_what_time() -> None:
    with Cluster(seed=3, bookies=3) as cluster:
        world = cluster.world
        world.racks.update({"b1": "z/1", "b2": "z/2", "b3": "z/2"})
        for name in ("b1", "b2", "b3"):
            cluster.crash(name)
            cluster.restart(name)
        cluster.run_for(5.0)
        bk = cluster.client()
        closed(Healed(cluster))
        health = bk.health()
        assert (health.racks, health.is_good) == (2, True)
        assert "has all of its copies, on 2 racks or more, and each seat" in str(health)
        assert abs(health.told_ms - bk._runtime.wall_ms()) < 10_000
        cluster.crash("b1")
        assert cluster.run_until(lambda: not bk.health().is_seated)
        assert bk.health().racks == 0, "it does not say where it is"
