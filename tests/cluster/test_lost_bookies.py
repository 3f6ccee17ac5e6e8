"""Real processes: bookies are killed and their disks wiped, one after another, with repair between (P11.2)."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.demo.copies import count_copies
from embedbk.repair.health import Health

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = Settings(
    open_timeout_s=60.0,
    repair_grace_s=1.0,
    session_ttl_ms=2_000,
    repair_bytes_per_s=0,
    operation_timeout_s=60.0,
)
LIMIT_S = 90.0


def until_healed(bk: embedbk.Client, victim: str) -> None:
    """The bookie is known to be away, no ledger names it, none is marked, and every bookie has all that it owes."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        states = {each.bookie_id: each.state for each in bk.bookies()}
        if states[victim] == "away" and bk.health().is_good:
            return
        time.sleep(0.1)
    raise AssertionError(f"{victim}: {bk.health()}")


def test_three_bookies_are_lost_one_after_another_and_nothing_is(tmp_path: Path) -> None:
    """P11.2, I5: of six bookies three are killed and wiped; a log is written meanwhile, and every acknowledged entry is
    read back from the three that are left. Two copies at once would be lost without repair."""
    with (
        Cluster(tmp_path / "c", bookies=6, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
    ):
        secret = bk.create_ledger(password=b"secret")
        secret.add_many([b"kept %d" % number for number in range(3_000)])
        secret.close()
        with bk.log("orders").writer() as orders:
            acknowledged = 0
            for victim in ("b1", "b2", "b3"):
                orders.append_many(
                    [b"order %d" % number for number in range(acknowledged, acknowledged + 2_000)]
                )
                acknowledged += 2_000
                cluster.kill(victim)
                shutil.rmtree(cluster.directory / victim)
                orders.append_many(
                    [b"order %d" % number for number in range(acknowledged, acknowledged + 2_000)]
                )
                acknowledged += 2_000
                until_healed(bk, victim)
        found = [bytes(entry) for entry in bk.log("orders").read()]
        assert found == [b"order %d" % number for number in range(acknowledged)]
        reader = bk.open_ledger(secret.ledger_id, password=b"secret")
        assert [bytes(each) for each in reader.read()] == [b"kept %d" % number for number in range(3_000)]
        assert {name for each in reader.metadata.fragments for name, _ in each.ensemble} == {"b4", "b5", "b6"}


def until_good(bk: embedbk.Client) -> Health:
    until = time.monotonic() + LIMIT_S
    while not (health := bk.health()).is_good and time.monotonic() < until:
        time.sleep(0.1)
    return health


def test_a_recovery_to_two_of_three_is_not_good_and_then_it_is(tmp_path: Path) -> None:
    """P11.4, P5.2d: recovery writes back to an ack quorum; the third copy is counted as missing, and made."""
    settings = replace(SETTINGS, repair_grace_s=20.0)  # The third bookie comes back in time: it is not lost.
    with (
        Cluster(tmp_path / "c", bookies=3, settings=settings) as cluster,
        embedbk.open(cluster.url, settings=settings) as bk,
    ):
        bk.stop_repair("so that it can be seen")
        with embedbk.open(cluster.url, settings=settings) as other:
            orders = other.log("orders").writer()
            orders.append_many([b"order %d" % number for number in range(1_000)])
            cluster.kill("b3")
            orders.append_many([b"order %d" % number for number in range(1_000, 2_000)])
            with bk.log("orders").writer() as heir:  # Recovers what the other one wrote, to b1 and b2.
                heir.append(b"last")
        assert not bk.health().is_good
        cluster.restart("b3")
        until = time.monotonic() + LIMIT_S
        while not (health := bk.health()).is_seated and time.monotonic() < until:
            time.sleep(0.1)
        assert health.is_seated
        assert not health.is_good
        assert health.entries >= 1_000
        assert {name for each in health.ledgers for name, _ in each.lacking} == {"b3"}
        bk.start_repair()
        bk.trigger_audit()
        assert until_good(bk).is_good
        copies = count_copies(bk, "orders")
        assert copies == {3: 2_001}
