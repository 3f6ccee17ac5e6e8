"""SQLite in this process: write-ahead log, synchronous=FULL, one copy. `many` commits 100 entries at a time."""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
import time
from pathlib import Path

from benchmarks.peers.peer import Peer

__all__ = ["Sqlite"]

BATCH = 100
BYTES = 48 << 20  # Payload of one `many`.
COUNT = 1000  # Appends in one `depth1`.


class Sqlite(Peer):
    copies = 1

    def __init__(self, directory: Path) -> None:
        self.name = f"sqlite {sqlite3.sqlite_version} one copy, WAL FULL"
        directory.mkdir(parents=True)
        self._base = sqlite3.connect(directory / "log.db", isolation_level=None)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=FULL")
        self._base.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, data BLOB)")

    def many(self, size: int) -> float:
        rows = [(os.urandom(size),)] * BATCH
        rounds = max(1, BYTES // size // BATCH)
        begin = time.perf_counter()
        for _ in range(rounds):
            self._base.execute("BEGIN")
            self._base.executemany("INSERT INTO log (data) VALUES (?)", rows)
            self._base.execute("COMMIT")
        return rounds * BATCH / (time.perf_counter() - begin)

    def depth1(self, size: int) -> float:
        data = os.urandom(size)
        times = [time.perf_counter_ns()]
        for _ in range(COUNT):
            self._base.execute("INSERT INTO log (data) VALUES (?)", (data,))
            times.append(time.perf_counter_ns())
        return statistics.median(after - before for before, after in itertools.pairwise(times)) / 1000

    def close(self) -> None:
        self._base.close()
