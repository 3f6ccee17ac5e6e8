"""Deferred sync in virtual time: what is received, and what is on disks, are told apart however slow the disks are."""

from __future__ import annotations

from embedbk.testing import Cluster
from embedbk.testing.clocks import SECOND


def test_force_waits_for_the_disks() -> None:
    """Rule P3.2: an add of a deferred ledger returns when it is received; `force` when Qa disks have it."""
    with Cluster(seed=11, bookies=3) as cluster:
        writer = cluster.client().create_ledger(durability="deferred")
        for name in cluster.world.disks:
            cluster.world.sync_ns[name] = (2 * SECOND, 2 * SECOND + 1)
        begun = cluster.now_s
        writer.add(b"zero")
        received = cluster.now_s
        assert received - begun < 1.0
        assert writer.lac == -1
        assert writer.force() == 0
        assert cluster.now_s - received > 0.9
        assert writer.lac == 0
        writer.close()
