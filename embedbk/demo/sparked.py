"""The demo's last act: Spark SQL counts and groups the lines of the log, its executors reading the bookies.

The JVM takes seconds to start, so it starts beside everything else.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

__all__ = ["SparkGroup", "SparkAct"]

QUERY = """
SELECT ledgerId, min(offset) AS first_offset, count(*) AS entries, sum(octet_length(value)) AS byte_count
FROM log GROUP BY ledgerId ORDER BY ledgerId
"""


class SparkGroup(NamedTuple):
    """One ledger of the log, as Spark sees it."""

    ledger_id: int
    first_offset: int
    entries: int
    byte_count: int


class SparkAct:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "spark-start")
        self._session: Future[Any] = self._thread.submit(_start)

    def count(self, url: str, log: str) -> list[SparkGroup]:
        """Each ledger of the log, in order; waits for Spark to be there."""
        spark = self._session.result()
        frame = spark.read.format("embedbk").option("cluster", url).option("log", log).load()
        frame.createOrReplaceTempView("log")
        return [SparkGroup(*row) for row in spark.sql(QUERY).collect()]

    def close(self) -> None:
        """Also while it still starts: a JVM must not outlive the demo."""
        self._thread.shutdown()
        if self._session.exception() is None:
            spark = self._session.result()
            gateway = spark.sparkContext._gateway
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # What the JVM lives for.
            gateway.proc.wait()


def _start() -> Any:
    from embedbk.spark import session

    return session("embedbk demo")
