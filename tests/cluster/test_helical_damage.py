"""Real processes: each entry is bad on two of its three bookies, on other ones from entry to entry, and is healed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.demo.copies import count_copies
from tests.faces.test_rot import spoil

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = Settings(open_timeout_s=60.0, repair_bytes_per_s=0, operation_timeout_s=60.0, audit_s=1.0)
ENTRIES = 300
LIMIT_S = 120.0


def test_an_entry_that_is_bad_on_two_of_three_bookies_gets_three_good_copies_again(tmp_path: Path) -> None:
    """D17, I5, RP32, P11.4: "healed to three good copies": what a reader finds bad is put right from the copy that is
    good, though no bookie is a good source of all of it. Scrubbers would find it a minute behind their start."""
    entries = [b"entry %d " % number * 10 for number in range(ENTRIES)]
    with (
        Cluster(tmp_path / "c", bookies=3, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
        bk.log("orders").writer() as orders,
    ):
        orders.append_many(entries)
    for keeps, name in enumerate(("b1", "b2", "b3")):
        (entry_log,) = (tmp_path / "c" / name / "entries").glob("*.elog")
        assert spoil(entry_log, keeps) == ENTRIES * 2 // 3
    with (
        Cluster(tmp_path / "c", bookies=3, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
    ):
        assert count_copies(bk, "orders") == {1: ENTRIES}
        assert [bytes(entry) for entry in bk.log("orders").read()] == entries
        until = time.monotonic() + LIMIT_S
        while (copies := count_copies(bk, "orders")) != {3: ENTRIES} and time.monotonic() < until:
            time.sleep(0.2)
        assert copies == {3: ENTRIES}
        while not (health := bk.health()).is_good and time.monotonic() < until:
            time.sleep(0.2)
        assert health.is_good
        assert [bytes(entry) for entry in bk.log("orders").read()] == entries
