"""The simulator's check of repair fails where repair does not do its work (S3, L9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embedbk.core.machine import Effect
from embedbk.metadata.levels import LEVEL_OF_KEEPERS
from embedbk.repair.fragment_copy import CopyResult
from embedbk.repair.seat_fill import SeatFill
from embedbk.testing import Cluster, healers
from embedbk.testing.clocks import SECOND
from embedbk.testing.violation import Violation

HEALED_S = 60


def healed_world(monkeypatch: pytest.MonkeyPatch, damage: Callable[[Cluster, int], None]) -> None:
    """A ledger of which b3 never got an entry; faults stop, and the check of a campaign is made."""
    monkeypatch.setattr(healers, "HEALED_NS", HEALED_S * SECOND)
    with Cluster(seed=3) as cluster:
        writer = cluster.client().create_ledger()
        writer.add(b"one")
        rule = cluster.drop_messages("AddRequest", receiver="b3", ledger_id=writer.ledger_id)
        writer.add(b"two")
        rule()
        writer.close()
        damage(cluster, writer.ledger_id)
        healers.Healers(cluster.world, SECOND).check()
        storage = cluster.world.nodes["b3"].storage
        assert storage.read(writer.ledger_id, 1, 1, 1 << 20).frame is not None


def test_a_copy_that_was_lost_on_the_way_is_there_when_faults_have_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L9, P11.4: Qw copies on every write set."""
    healed_world(monkeypatch, lambda cluster, ledger_id: None)


def test_a_copy_that_nobody_makes_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(self: SeatFill, now_ns: int) -> list[Effect]:
        self.result = CopyResult("done")
        return []

    monkeypatch.setattr(SeatFill, "begin", begin)
    with pytest.raises(Violation, match=r"L9.*b3/.* lacks entry 1 of ledger 1"):
        healed_world(monkeypatch, lambda cluster, ledger_id: None)


def test_what_rotted_is_missed_once_the_scrubber_has_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """I55: found, and replaced by a good copy, while nobody asks for it."""

    def damage(cluster: Cluster, ledger_id: int) -> None:
        storage = cluster.world.nodes["b1"].storage
        storage.begin_flush_if_due(is_due=True)
        storage.finish_flush()
        cluster.damage("b1", ledger_id, 0)
        assert storage.begin_scrub(1 << 20)
        assert storage.finish_scrub().damages

    healed_world(monkeypatch, damage)


@pytest.mark.parametrize("stopped_ms", [2_000, 10 * HEALED_S * 1000])
def test_repair_that_an_operator_stopped_for_a_time_is_done_behind_it(
    monkeypatch: pytest.MonkeyPatch, stopped_ms: int
) -> None:
    """L9, P11.1: the auditor of that time switches it on again; one that never does is found."""
    monkeypatch.setattr(healers, "HEALED_NS", HEALED_S * SECOND)
    with Cluster(seed=3) as cluster:
        world = cluster.world
        writer = cluster.client().create_ledger()
        writer.add(b"one")
        rule = cluster.drop_messages("AddRequest", receiver="b3", ledger_id=writer.ledger_id)
        writer.add(b"two")
        service = healers.Healers(world, SECOND)
        node, *_ = [world.nodes[name] for name in service.services]
        assert world.run_until(lambda: node.metadata.client.cluster_level >= LEVEL_OF_KEEPERS, 5 * SECOND)
        service._stop_for(stopped_ms)
        world.run_for(SECOND)
        rule()
        writer.close()
        if stopped_ms > HEALED_S * 1000:
            with pytest.raises(Violation, match=r"L9.*b3/.* lacks entry 1 of ledger 1"):
                service.check()
        else:
            service.check()
            assert world.sometimes["repair switched on again"] == 1
