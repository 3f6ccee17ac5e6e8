"""I35 on the bookies' own garbage collection: what it drops is heard, and a drop that it must not make is found."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.collector import Collector
from embedbk.ids import Member
from embedbk.testing import Cluster
from embedbk.testing.actor import Repair
from embedbk.testing.invariants import Invariants
from embedbk.testing.invariants_life import nothing_was_collected
from embedbk.testing.violation import Violation
from embedbk.testing.writing_handles import KEY

ROUND_S = 1_000.0  # A round of collection comes in this time.


def closed_ledger(cluster: Cluster) -> int:
    with cluster.client().create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
        writer.add_many([b"zero", b"one"])
    return writer.ledger_id


def give_away(cluster: Cluster, ledger_id: int, watch: Invariants) -> None:
    """b1's seat goes to the bookie that has none, with all that it owes."""
    metadata: LedgerMetadata | None = watch.ghost.ledger(ledger_id).metadata
    assert metadata is not None
    seated = {name for name, _ in metadata.fragments[0].ensemble}
    members = {name: Member(name, disk.incarnation) for name, disk in cluster.world.disks.items()}
    lost = random.Random(0).choice(sorted(seated))
    (target,) = [member for name, member in members.items() if name not in seated]
    done = cluster.world.start("client", Repair(ledger_id, members[lost], target, KEY, 77))
    assert cluster.run_until(done.future.done)
    assert done.future.result() == 1


def test_what_is_dropped_is_heard_and_allowed() -> None:
    """I35: the seat was given to another bookie; the one that had it drops its copies, and nothing is missed."""
    watch = Invariants()
    with Cluster(seed=35, bookies=4, observers=[watch]) as cluster:
        ledger_id = closed_ledger(cluster)
        give_away(cluster, ledger_id, watch)
        cluster.run_for(ROUND_S)
        assert watch.sometimes.reached["ledger dropped"] == 1
        assert [bytes(e) for e in cluster.client().open_ledger(ledger_id).read()] == [b"zero", b"one"]
        for name, disk in cluster.world.disks.items():
            assert disk.storage is not None
            nothing_was_collected(watch.ghost.bookies[name], watch.ghost.ledger(ledger_id), disk.storage)


def test_a_collector_that_believes_that_all_is_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I35: two reads agree that it is closed, and both forget to look whom it names."""
    monkeypatch.setattr(Collector, "_is_elsewhere", lambda self, ledger_id, value, effects: True)
    with Cluster(seed=35, bookies=3, observers=[Invariants()]) as cluster:
        closed_ledger(cluster)
        with pytest.raises(Violation, match=r"^I35: b\d dropped ledger"):
            cluster.run_for(ROUND_S)
