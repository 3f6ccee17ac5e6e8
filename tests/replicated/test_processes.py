"""A replicated database kept by processes that are killed and stopped: nothing that one was told is lost or doubled."""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.replicated import ReplicatedSqlite

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(open_timeout_s=60.0, operation_timeout_s=60.0)
LINE_S = 240.0  # No process is silent for so long.

KEEPER = """
import sys
import embedbk
from embedbk.config import Settings
from embedbk.replicated import ReplicatedSqlite

url, path, name = sys.argv[1:]
number = 0
settings = Settings(open_timeout_s=60.0, operation_timeout_s=60.0)
with embedbk.open(url, settings=settings) as bk, ReplicatedSqlite(bk, "moves", path) as db:
    while True:
        try:
            with db.lead():
                with db.transaction() as execute:
                    execute("CREATE TABLE IF NOT EXISTS moves (who TEXT, number INTEGER)")
                while True:
                    number += 1
                    print("tries", name, number, flush=True)
                    with db.transaction() as execute:
                        execute("INSERT INTO moves VALUES (?, ?)", (name, number))
                    print("done", name, number, flush=True)
                    if number % 20 == 0:
                        db.leader.checkpoint()
        except embedbk.EmbedbkError as error:
            print("lost", name, type(error).__name__, flush=True)
"""


class Keeper:
    """A process with a copy of its own; what it says comes by a queue."""

    def __init__(self, url: str, path: Path, name: str, said: queue.Queue[list[str]]) -> None:
        self.path, self.name = path, name
        self.process = subprocess.Popen(
            [sys.executable, "-c", KEEPER, url, str(path), name], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(said,))
        self._reader.start()

    def _read(self, said: queue.Queue[list[str]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # What a killed process said last may be cut: that it did not say.
                said.put(line.split())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_nothing_is_lost_or_doubled_while_leaders_are_killed_and_stopped(tmp_path: Path) -> None:
    """P8.1: "a new leader has every acknowledged transaction and no other", through SIGKILL and SIGSTOP."""
    said: queue.Queue[list[str]] = queue.Queue()
    tried, done, lost = set[tuple[str, int]](), set[tuple[str, int]](), list[str]()

    def hear(count: int, *names: str) -> str:
        """Until so many transactions more are done by one of these; the name of the last."""
        while True:
            kind, name, what = said.get(timeout=LINE_S)
            if kind == "lost":
                lost.append(what)
            else:
                (tried if kind == "tries" else done).add((name, int(what)))
            if kind == "done" and name in names:
                count -= 1
                if count <= 0:
                    return name

    with Cluster(tmp_path / "data", bookies=3, settings=PATIENT) as cluster:
        keepers = {each: Keeper(cluster.url, tmp_path / f"{each[0]}.db", each, said) for each in ("a0", "b0")}
        try:
            for round_ in range(4):
                leader = keepers.pop(hear(15, *keepers))
                (other,) = keepers
                if round_ % 2:
                    leader.process.send_signal(signal.SIGSTOP)
                    hear(10, other)
                    leader.process.send_signal(signal.SIGCONT)
                    keepers[leader.name] = leader
                    keepers[other].process.send_signal(signal.SIGSTOP)
                    hear(10, leader.name)  # It leads again, with what the other has done.
                    keepers[other].process.send_signal(signal.SIGCONT)
                else:
                    leader.kill()
                    hear(10, other)
                    name = f"{leader.name[0]}{round_ + 1}"
                    keepers[name] = Keeper(cluster.url, leader.path, name, said)
        finally:
            for keeper in keepers.values():
                keeper.kill()
        while not said.empty():
            kind, name, what = said.get()
            if kind != "lost":
                (tried if kind == "tries" else done).add((name, int(what)))
        found = []
        with embedbk.open(cluster.url, settings=PATIENT) as bk:
            with bk.log("moves").writer():
                pass  # Whatever the last leader left is recovered.
            for name in ("a", "b", "new"):
                with ReplicatedSqlite(bk, "moves", tmp_path / f"{name}.db") as db:
                    db.follow()
                    found.append(db.read("SELECT who, number FROM moves ORDER BY rowid"))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(set(found[0])), "nothing was done twice"
    assert done <= set(found[0]) <= tried
    assert "LedgerFenced" in lost, "who was stopped was told"


def test_the_file_is_an_ordinary_one(tmp_path: Path) -> None:
    """Anybody may read it beside its keeper, by SQLite's own means."""
    with embedbk.open(tmp_path / "data", bookies=1) as bk, ReplicatedSqlite(bk, "t", tmp_path / "t.db") as db:
        with db.lead(), db.transaction() as execute:
            execute("CREATE TABLE t AS SELECT 7 AS seven")
        with closing(sqlite3.connect(tmp_path / "t.db")) as other:
            assert other.execute("SELECT seven FROM t").fetchall() == [(7,)]
    assert os.path.exists(tmp_path / "t.db")
