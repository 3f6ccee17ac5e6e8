"""Garbage collection in whole simulated clusters, on both kinds of disk, watched by every invariant (P7.7, I35)."""

from __future__ import annotations

import pytest

import embedbk
from embedbk.client.waiting import run_blocking
from embedbk.codec.metadata_messages import ANY, Compare, Delete
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.collector import CollectorOptions
from embedbk.errors import EmbedbkError
from embedbk.testing import Cluster
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.invariants import Invariants

SOON = CollectorOptions(interval_ns=SECOND, pace_ns=10 * MS, page_ledgers=3)


def rows(cluster: Cluster, name: str) -> list[int]:
    """Ledgers that the bookie keeps something of, dropped ones apart."""
    table = cluster.world.nodes[name].storage.table
    return [ledger_id for ledger_id in table.ids() if not table.get(ledger_id).is_dropped]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_deleted_goes_and_what_can_come_back_stays(seed: int, native: bool) -> None:
    """Rule P7.7, ST42: a deleted ledger's data stays while its tombstone does, then every bookie drops it, also one
    that was down; nobody writes to it any more, also after restarts (I34)."""
    with Cluster(seed=seed, bookies=4, native=native, observers=[Invariants()]) as cluster:
        cluster.world.collector = SOON
        for name in ("b1", "b2", "b3", "b4"):
            cluster.crash(name)
            cluster.restart(name)
        bk = cluster.client()
        ledger_ids = []
        for number in range(8):
            with bk.create_ledger() as writer:
                writer.add(b"ledger %d" % number)
                ledger_ids.append(writer.ledger_id)
        gone, kept = ledger_ids[:5], ledger_ids[5:]
        for ledger_id in gone:
            bk.delete_ledger(ledger_id)
        cluster.run_for(5)
        assert all(set(rows(cluster, f"b{n}")) & set(gone) for n in range(1, 5)), "a tombstone keeps the data"
        cluster.crash("b2")
        forget(cluster, bk, gone)
        cluster.run_for(5)
        cluster.restart("b2")
        assert cluster.run_until(
            lambda: not any(set(rows(cluster, f"b{n}")) & set(gone) for n in range(1, 5))
        )
        for ledger_id in kept:
            assert len(list(bk.open_ledger(ledger_id).read())) == 1
        for name in ("b1", "b2", "b3", "b4"):
            cluster.crash(name)
            cluster.restart(name)
        cluster.run_for(5)
        assert not any(set(rows(cluster, f"b{n}")) & set(gone) for n in range(1, 5))
        with pytest.raises(EmbedbkError):
            bk.open_ledger(gone[0])
        for ledger_id in kept:
            assert len(list(bk.open_ledger(ledger_id).read())) == 1


def forget(cluster: Cluster, bk: embedbk.Client, ledger_ids: list[int]) -> None:
    """Take the tombstones away, as `forget_deleted` does when their grace is over."""
    for ledger_id in ledger_ids:
        key = tombstone_path(ledger_id)
        steps = bk._runtime.transact([Compare(key, ANY)], [Delete(key)], "forgetting")
        assert run_blocking(steps, "forget")
