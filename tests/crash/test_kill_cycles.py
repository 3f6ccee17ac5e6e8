"""SIGKILL of real processes under load, again and again: what was acknowledged is in the log, once, in order (I4, I5).

./run test tests/crash/test_kill_cycles.py --kill-cycles 1000
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from embedbk.errors import EmbedbkError

pytestmark = pytest.mark.xdist_group("kill cycles")

BOOKIES = 4
# Rolls, flushes and trims many times. How long a machine takes to start a process is not what is asked.
SETTINGS = Settings(journal_file_bytes=2 << 20, open_timeout_s=60.0)
SIZES = (1, 100, 1_000, 30_000)


def entry_of(number: int, size: int) -> bytes:
    return b"%d %d " % (number, size) + bytes(size)


def number_of(entry: bytes) -> int:
    """Of an entry that is whole, byte for byte."""
    number, size, _ = entry.split(b" ", 2)
    assert entry == entry_of(int(number), int(size))
    return int(number)


class Load:
    """One application: appends batches, takes its log over again whenever a writer is lost, and remembers numbers: an
    entry has up to 30 kB, and how many there are follows the machine's speed."""

    def __init__(self, bk: embedbk.Client, chance: random.Random) -> None:
        self.acknowledged: list[int] = []  # In order of their acknowledgement.
        self.unknown: set[int] = set()  # Sent, and never heard of.
        self.takeovers = 0
        self._bk, self._chance = bk, chance
        self._is_over = threading.Event()
        self._grown = threading.Condition()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_more(self, count: int) -> None:
        """Until so many more are acknowledged: a kill falls into work that goes on."""
        with self._grown:
            wanted = len(self.acknowledged) + count
            self._grown.wait_for(lambda: len(self.acknowledged) >= wanted or self._failure is not None, 300)
            assert self._failure is None, self._failure
            assert len(self.acknowledged) >= wanted, "five minutes without an acknowledgement"

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            number = 0
            while not self._is_over.is_set():
                try:
                    with self._bk.log("orders").writer() as writer:
                        self.takeovers += 1
                        while not self._is_over.is_set():
                            size = self._chance.choice(SIZES)
                            batch = range(number, number + self._chance.randint(1, 60))
                            number = batch.stop
                            self.unknown.update(batch)
                            writer.append_many([entry_of(each, size) for each in batch], timeout_s=10)
                            with self._grown:
                                self.unknown.difference_update(batch)
                                self.acknowledged += batch
                                self._grown.notify_all()
                except EmbedbkError:
                    continue  # Fenced, or too few bookies for a moment: take over and go on.
        except Exception as failure:  # noqa: BLE001 - Told to the test, whose thread is another.
            with self._grown:
                self._failure = failure
                self._grown.notify_all()


def test_nothing_acknowledged_is_lost(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """I4, I5, I40, I44: one or two of four bookies, sometimes the metadata member, sometimes all at once (P1, P3), in
    every cycle; each comes back on its own directory. No entry acknowledged is missing, none is there twice, none is
    out of order, and nothing is there that was never sent."""
    cycles = pytestconfig.getoption("--kill-cycles")
    chance = random.Random(4)
    with Cluster(tmp_path / "data", bookies=BOOKIES, settings=SETTINGS) as cluster:
        bookies = [name for name in cluster.processes if name != "m1"]
        with embedbk.open(cluster.url, settings=SETTINGS) as bk:
            load = Load(bk, chance)
            try:
                for cycle in range(cycles):
                    load.wait_for_more(chance.randint(1, 300))
                    victims = chance.sample(bookies, chance.choice([1, 1, 1, 2]))
                    if cycle % 5 == 3:
                        victims = ["m1"]
                    elif cycle % 10 == 9:
                        victims = ["m1", *bookies]
                    for name in victims:
                        cluster.kill(name)
                    for name in victims:
                        cluster.restart(name)
                load.wait_for_more(1)
            finally:
                load.end()
            found = [number_of(bytes(entry)) for entry in bk.log("orders").read()]
    kept = set(load.acknowledged)
    assert [entry for entry in found if entry in kept] == load.acknowledged
    assert set(found) - kept <= load.unknown
    assert len(found) == len(set(found))
    assert load.takeovers >= 1
