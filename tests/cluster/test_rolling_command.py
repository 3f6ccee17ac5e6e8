"""Real processes: what operators type to restart a cluster, and to give up what is lost (P11.3, P11.5).

The commands run as processes of their own; whoever started the peers restarts one where COMMAND asks it to."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.errors import EmbedbkError, Lost
from tests.cluster.test_draining import command

pytestmark = pytest.mark.xdist_group("processes")

SETTINGS = Settings(open_timeout_s=60.0, repair_grace_s=5.0, session_ttl_ms=5_000, operation_timeout_s=120.0)
ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
    link.sendall(sys.argv[2].encode() + b"\\n")
    said = link.makefile().read()
sys.exit(said or 0)
"""


@contextmanager
def restarter(cluster: Cluster) -> Iterator[tuple[int, list[str]]]:
    """The port at which a node's name is taken, and the nodes that were restarted. What is answered is why not."""
    restarted: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                link, _ = server.accept()
                with link:
                    name = link.makefile().readline().strip()
                    if not name:
                        return
                    try:
                        cluster.restart(name)
                        restarted.append(name)
                    except EmbedbkError as refused:
                        link.sendall(str(refused).encode())

        port = server.getsockname()[1]
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield port, restarted
        finally:
            with socket.create_connection(("127.0.0.1", port)):
                pass
            thread.join()


def test_each_node_is_restarted_by_the_command_while_a_log_is_written(tmp_path: Path) -> None:
    """Issue 15, 4: "no append lost or failed", of three bookies, each of which every ledger names, and three members.
    The log rolls meanwhile: a bookie that was away lacks entries of closed ledgers then, and the next is not stopped
    before it has them (P11.3)."""
    acknowledged: list[bytes] = []
    failed: list[EmbedbkError] = []
    is_over = threading.Event()
    with (
        Cluster(tmp_path / "c", bookies=3, members=3, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
        restarter(cluster) as (port, restarted),
    ):

        def load() -> None:
            try:
                with bk.log("orders").writer(roll=embedbk.Roll(entries=400)) as orders:
                    while not is_over.wait(0.01):
                        payload = b"order %d" % len(acknowledged)
                        orders.append(payload)
                        acknowledged.append(payload)
            except EmbedbkError as error:
                failed.append(error)

        writer = threading.Thread(target=load)
        writer.start()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "embedbk", "cluster", "rolling", "--at", cluster.url, "--json", "--",
                 sys.executable, "-c", ASK, str(port), "{node}"],
                capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
        finally:
            is_over.set()
            writer.join()
        assert failed == []
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["done"] == restarted
        assert sorted(restarted) == sorted(cluster.processes)
        assert [name.startswith("b") for name in restarted] == [True] * 3 + [False] * 3
        found = [bytes(entry) for entry in bk.log("orders").read()]
        assert found == acknowledged
        assert len(found) > 100


def test_what_a_deleted_directory_alone_had_is_given_up_by_the_command_and_readers_are_told(
    tmp_path: Path,
) -> None:
    """P11.5: a bookie's directory is gone for good; of a ledger with one copy of each entry a third is lost. Until the
    words are said nothing is given up; then a reader gets exactly those gaps, and health counts them apart."""
    with (
        Cluster(tmp_path / "c", bookies=3, members=3, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
    ):
        with bk.create_ledger(ensemble_size=3, write_quorum=1, ack_quorum=1) as thin:
            thin.add_many([b"thin %d" % number for number in range(30)])
        with bk.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2) as thick:
            thick.add_many([b"thick %d" % number for number in range(30)])
        shown = json.loads(command(cluster, "bookie", "show", "b1", "--json"))
        give_up = ("ledger", "give-up", str(thin.ledger_id), "--why", "its disk burnt", "--yes")
        cluster.kill("b1")
        shutil.rmtree(cluster.directory / "b1")
        command(cluster, *give_up, code=1)  # It may come back, as far as anybody knows.
        gone = ("bookie", "gone", "b1", "--incarnation", shown["incarnation"], "--why", "burnt", "--yes")
        _until_away(bk)
        assert "--accept-loss" in command(cluster, *gone, code=1)
        command(cluster, *gone, "--accept-loss")
        said = json.loads(command(cluster, *give_up, "--json"))
        assert (said["given_up"], said["count"]) == (True, 10)
        given, lost = _read(bk, thin.ledger_id)
        assert len(lost) == 10 and len(given) == 20
        assert sorted([*given, *lost]) == list(range(30))
        assert {each % 3 for each in lost} == {lost[0] % 3}
        reader = bk.open_ledger(thick.ledger_id)
        assert [bytes(each) for each in reader.read()] == [b"thick %d" % number for number in range(30)]
        health = bk.health()
        assert (health.lost, health.lost_ledgers) == (10, 1)
        assert "; 10 entries of 1 ledgers were given up for ever" in str(health)


def _until_away(bk: embedbk.Client) -> None:
    until = time.monotonic() + 60
    while {each.bookie_id: each.state for each in bk.bookies()}["b1"] != "away":
        assert time.monotonic() < until


def _read(bk: embedbk.Client, ledger_id: int) -> tuple[list[int], list[int]]:
    """Ids that are read, and ids of gaps that are told."""
    given: list[int] = []
    lost: list[int] = []
    reader = bk.open_ledger(ledger_id)
    place = 0
    while place <= reader.last_entry:
        try:
            given.extend(entry.entry_id for entry in reader.read(place, reader.last_entry))
            break
        except Lost as gap:
            lost += range(gap.first_entry, gap.last_entry + 1)
            place = gap.next_offset
    return given, lost
