"""Real processes: a bookie is drained while a log is written, decommissioned, and refused as itself (P11.3)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.errors import EmbedbkError

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = Settings(open_timeout_s=60.0, repair_grace_s=2.0, session_ttl_ms=5_000, operation_timeout_s=60.0)


def ask(cluster: Cluster, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "embedbk", *arguments, "--at", cluster.url],
        capture_output=True,
        text=True,
        input=typed,
        timeout=180,
        check=False,
    )


def command(cluster: Cluster, *arguments: str, code: int = 0, typed: str = "") -> str:
    done = ask(cluster, *arguments, typed=typed)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout if not code else done.stderr


def test_a_bookie_is_drained_under_load_and_decommissioned_and_every_entry_is_read_back(
    tmp_path: Path,
) -> None:
    """P11.3, I5: of four bookies one goes, with what it has, while a log is appended to without one failure."""
    with (
        Cluster(tmp_path / "c", bookies=4, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
    ):
        old: list[int] = []
        while len(old) < 6:
            with bk.create_ledger() as made:
                made.add_many([b"kept %d" % number for number in range(500)])
            old.append(made.ledger_id)
        is_over = threading.Event()
        acknowledged: list[bytes] = []

        def load() -> None:
            with bk.log("orders").writer(roll=embedbk.Roll(entries=300)) as orders:
                while not is_over.is_set():
                    many = [b"order %d" % (len(acknowledged) + number) for number in range(20)]
                    orders.append_many(many)
                    acknowledged.extend(many)

        writer = threading.Thread(target=load)
        writer.start()
        try:
            command(cluster, "bookie", "decommission", "b2", "--yes", code=1)
            said = json.loads(
                command(cluster, "bookie", "drain", "b2", "--why", "its disk", "--wait-s", "120", "--json")
            )
            assert (said["is_empty"], said["is_draining"], said["why"]) == (True, True, "its disk")
        finally:
            is_over.set()
            writer.join()
        assert len(acknowledged) > 20
        assert bk.health().is_seated
        assert "not its id" in command(cluster, "bookie", "decommission", "b2", code=1, typed="b3\n")
        command(cluster, "bookie", "decommission", "b2", typed="b2\n")
        assert [each.split(":")[0] for each in command(cluster, "bookie", "list").splitlines()] == [
            "b1",
            "b3",
            "b4",
        ]
        assert cluster.processes["b2"].wait(60)
        found = [bytes(entry) for entry in bk.log("orders").read()]
        assert found == acknowledged
        for ledger_id in old:
            reader = bk.open_ledger(ledger_id)
            assert [bytes(each) for each in reader.read()] == [b"kept %d" % number for number in range(500)]
            assert not any(name == "b2" for each in reader.metadata.fragments for name, _ in each.ensemble)
        with pytest.raises(EmbedbkError, match="b2 was decommissioned by"):
            cluster.restart("b2")
        until_said(
            cluster, "b1: yes\n", "cluster", "can-stop", "b1"
        )  # A copy beyond the ack quorum may come late.
        assert "bookie list" in command(cluster, "cluster", "can-stop", "b1", "b2", code=1)


def until_said(cluster: Cluster, wanted: str, *arguments: str) -> None:
    """Ask again while entries that were acknowledged a moment ago have fewer copies than they will have."""
    until = time.monotonic() + 120
    while (found := ask(cluster, *arguments).stdout) != wanted:
        assert "wait until they are repaired" in found, "it is refused for no other reason"
        assert time.monotonic() < until, found


def test_a_bookie_with_new_disks_takes_the_place_of_its_former_self(tmp_path: Path) -> None:
    """P7.2, P11.3: refused until an operator says it; then it joins, empty, and what the old disks had is copied."""
    with (
        Cluster(tmp_path / "c", bookies=4, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
    ):
        old: list[int] = []
        for _ in range(6):
            with bk.create_ledger() as made:
                made.add_many([b"kept %d" % number for number in range(300)])
            old.append(made.ledger_id)
        cluster.kill("b2")
        shutil.rmtree(cluster.directory / "b2")
        with pytest.raises(EmbedbkError, match="known to the cluster with other directories") as refused:
            cluster.restart("b2")
        assert "embedbk bookie replace b2" in str(refused.value)
        until = time.monotonic() + 120
        while {each.bookie_id: each.state for each in bk.bookies()}["b2"] != "away":
            assert time.monotonic() < until
        command(cluster, "bookie", "replace", "b2", "--why", "burnt", typed="b2\n")
        cluster.restart("b2")
        while not bk.health().is_seated:
            assert time.monotonic() < until, str(bk.health())
        states = {each.bookie_id: each.state for each in bk.bookies()}
        assert states == {f"b{number}": "writable" for number in (1, 2, 3, 4)}
        for ledger_id in old:
            read = [bytes(each) for each in bk.open_ledger(ledger_id).read()]
            assert read == [b"kept %d" % number for number in range(300)]
