"""The demo's Spark: SQL over the log, its copy and its archive, and the jobs; executors read the bookies.

A JVM takes seconds to start, so both start beside everything else, one after the other: the session's own, and that of
the driver which copies the log and is killed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from embedbk.demo.copying import CopyDriver, begin_copy
from embedbk.errors import EmbedbkError

__all__ = ["SparkAct", "SparkGroup", "SeenRows", "spark_errors", "why_no_spark"]

SAID_MAX = 2000  # Characters of an error that are shown: the rest is Java's stack.

# Rows are the same, in the same order, where as many have the same fingerprint: each has its offset in its hash.
ROWS = """
SELECT ledgerId, min(offset), count(*), sum(octet_length(value)), bit_xor(xxhash64(offset, value))
FROM rows GROUP BY ledgerId ORDER BY ledgerId
"""
# Bytes that are no text are letters of ISO 8859-1, which has one for each.
WORDS = """
SELECT word, count(*) AS lines FROM (
  SELECT explode(array_distinct(split(decode(value, 'ISO-8859-1'), '[^A-Za-z_]+'))) AS word FROM rows
) WHERE length(word) >= 4 GROUP BY word ORDER BY lines DESC, word LIMIT 3
"""


class SparkGroup(NamedTuple):
    """One ledger of a log, as Spark sees it."""

    ledger_id: int
    first_offset: int
    entries: int
    byte_count: int
    fingerprint: int


class SeenRows(NamedTuple):
    """All rows of one place."""

    groups: list[SparkGroup]

    @property
    def row_count(self) -> int:
        return sum(group.entries for group in self.groups)

    @property
    def byte_count(self) -> int:
        return sum(group.byte_count for group in self.groups)

    @property
    def fingerprint(self) -> int:
        together = 0
        for group in self.groups:
            together ^= group.fingerprint
        return together


def why_no_spark() -> str:
    """What is missing on this machine, and how to get it; empty: nothing."""
    from embedbk.spark.java import JAVA_MIN, find_java

    if find_spec("pyspark") is None:
        return "Spark is not installed (pip install 'embedbk[spark]' brings it)"
    if find_java() is None:
        return (
            f"Spark needs Java {JAVA_MIN} or newer, and there is none (pip install 'embedbk[jdk]' brings one)"
        )
    return ""


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """What Spark and its gateway raise, which have no class in common, as an error of ours: its first lines."""
    try:
        yield
    except EmbedbkError:
        raise
    except Exception as failed:
        raise EmbedbkError(f"Spark: {str(failed)[:SAID_MAX]}") from failed


class SparkAct:
    """directory: for the pipe to the driver that copies."""

    def __init__(self, directory: Path) -> None:
        self._closes = threading.Event()
        self._thread = ThreadPoolExecutor(1, "spark-start")
        self._session: Future[Any] = self._thread.submit(_start)
        self._driver: Future[CopyDriver | None] = self._thread.submit(self._start_driver, directory)

    def _start_driver(self, directory: Path) -> CopyDriver | None:
        return None if self._closes.is_set() else CopyDriver(directory)

    @property
    def session(self) -> Any:
        """Waited for."""
        return self._session.result()

    @property
    def driver(self) -> CopyDriver:
        """The one that copies first; waited for."""
        driver = self._driver.result()
        assert driver is not None
        return driver

    def begin_copy(self, url: str, checkpoint: Path, rows_per_batch: int) -> Any:
        """The query (`copying.begin_copy`). Spark looks up the format of a stream's sink in the session that is active
        in the calling thread, which is the one that made it."""
        return self._thread.submit(begin_copy, self.session, url, checkpoint, rows_per_batch).result()

    def rows(self, url: str, log: str) -> SeenRows:
        """The rows of a log."""
        frame = self.session.read.format("embedbk").option("cluster", url).option("log", log).load()
        return self._rows_of(frame)

    def archived_rows(self, place: Path) -> SeenRows:
        """The rows of Parquet files, which Spark reads without us."""
        return self._rows_of(self.session.read.parquet(str(place)))

    def _rows_of(self, frame: Any) -> SeenRows:
        frame.createOrReplaceTempView("rows")
        return SeenRows([SparkGroup(*row) for row in self.session.sql(ROWS).collect()])

    def commonest_words(self, url: str, log: str) -> list[tuple[str, int]]:
        """Words that stand in the most lines, and in how many."""
        frame = self.session.read.format("embedbk").option("cluster", url).option("log", log).load()
        frame.createOrReplaceTempView("rows")
        return [(row.word, row.lines) for row in self.session.sql(WORDS).collect()]

    def close(self) -> None:
        """Also while it still starts: a JVM must not outlive the demo."""
        self._closes.set()
        self._thread.shutdown()
        if self._driver.exception() is None and (driver := self._driver.result()) is not None:
            driver.close()
        if self._session.exception() is None:
            spark = self._session.result()
            gateway = spark.sparkContext._gateway
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # What the JVM lives for.
            gateway.proc.wait()


def _start() -> Any:
    from embedbk.spark.session import SHORT_LIVED, session

    return session("embedbk demo", config=SHORT_LIVED)
