"""The rows of `spark.py` beside Kafka: its connector reads and writes topics of one broker in the same session.

A topic has as many rows of the same bytes as the log, in one order. What is read goes to the same sink, in as many
tasks. Both sides have the settings that they ship with. They take turns, each of which begins on a disk at rest
(`_settle.py`): what Kafka leaves in the page cache is nobody's to pay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import Row
from benchmarks._settle import settle
from benchmarks._spark_jobs import TASKS, WRITE_ROWS, log_sink, paired, rows_to_write, seconds
from benchmarks._spark_streams import BATCH_ROWS, STREAM_ROWS, STREAM_SIZE, batch_ms, log_stream
from benchmarks.peers.kafka import Kafka, connector_jars
from benchmarks.peers.peer import Absent
from embedbk.cluster import Cluster

__all__ = ["SparkPeer", "spark_peer"]

Rate = Callable[[Any, int], float]
WARM_UP = 4  # Turns of each side: the compilers of the broker and of the connector want to have seen them.


class SparkPeer:
    """The broker beside our cluster, or why there is none."""

    def __init__(self, directory: Path, kafka: Kafka | None, jars: Path | None, absent: str) -> None:
        self.directory, self.absent = directory, absent
        self._kafka, self._jars = kafka, jars

    @property
    def config(self) -> dict[str, str]:
        """What a session needs from its start on."""
        return {} if self._jars is None else {"spark.driver.extraClassPath": f"{self._jars}/*"}

    def rows(self, row: Row, beside: Callable[[str], Row]) -> Iterator[Row]:
        """The row that stands alone, then the one beside the peer; without a peer the first says why."""
        if self._kafka is None:
            yield dataclasses.replace(row, peer=f"kafka ({self.absent})")
            return
        yield row
        pair = beside(row.work)
        yield dataclasses.replace(pair, ceiling=None, peer=self._kafka.name, peer_value=pair.ceiling)

    def read(self, spark: Any, log_rows: Any, rate: Rate, size: int, rows: int, work: str) -> Row:
        topic = f"entries-{size}"
        self._fill(spark, topic, size, rows)
        theirs = self._options(spark.read).option("subscribe", topic).option("minPartitions", str(TASKS))
        assert theirs.load().count() == rows
        return self._paired(work, "rows/s", lambda: rate(log_rows, rows), lambda: rate(theirs, rows), rows)

    def write(self, spark: Any, cluster: Cluster, work: str) -> Row:
        values = rows_to_write(spark)
        self._make(spark, "written")
        theirs = self._options(values.write).option("topic", "written")
        return self._paired(
            work,
            "rows/s",
            lambda: WRITE_ROWS / seconds(log_sink(values, cluster.url).save),
            lambda: WRITE_ROWS / seconds(theirs.save),
            WRITE_ROWS,
        )

    def microbatch(self, spark: Any, cluster: Cluster, work: str) -> Row:
        self._fill(spark, "microbatches", STREAM_SIZE, STREAM_ROWS)
        theirs = self._options(spark.readStream).option("subscribe", "microbatches")
        theirs = theirs.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH_ROWS))
        ours = log_stream(spark, cluster.url)
        one = partial(batch_ms, directory=self.directory)
        return self._paired(work, "ms", lambda: one(ours), lambda: one(theirs))

    def _paired(
        self,
        work: str,
        unit: str,
        ours: Callable[[], float],
        theirs: Callable[[], float],
        entries: int | None = None,
    ) -> Row:
        return paired(work, unit, ours, theirs, entries, lambda: settle(self.directory), WARM_UP)

    def _make(self, spark: Any, topic: str) -> None:
        """A topic that is written before it is there loses some of its first batches, which are sent again for long."""
        assert self._kafka is not None
        java = spark.sparkContext._jvm
        settings = java.java.util.HashMap()
        settings.put("bootstrap.servers", self._kafka.address)
        clients = java.org.apache.kafka.clients.admin
        one, default = java.java.util.Optional.of(1), java.java.util.Optional.empty()
        admin = clients.Admin.create(settings)
        try:
            admin.createTopics(java.java.util.List.of(clients.NewTopic(topic, one, default))).all().get()
        finally:
            admin.close()

    def _fill(self, spark: Any, topic: str, size: int, rows: int) -> None:
        self._make(spark, topic)
        made = spark.read.format("bare_arrow").option("rows", str(rows)).option("size", str(size))
        made = made.option("tasks", str(TASKS)).option("rowsPerBatch", str(BATCH_ROWS))
        self._options(made.load().select("value").write).option("topic", topic).save()

    def _options(self, side: Any) -> Any:
        assert self._kafka is not None
        return side.format("kafka").option("kafka.bootstrap.servers", self._kafka.address)


@contextmanager
def spark_peer(directory: Path, *, is_wanted: bool) -> Iterator[SparkPeer]:
    """The broker is started before the session, which needs its connector, and ended behind it."""
    if not is_wanted:
        yield SparkPeer(directory, None, None, "")
        return
    try:
        jars = connector_jars()
        kafka = Kafka(directory / "kafka")
    except Absent as absent:
        yield SparkPeer(directory, None, None, str(absent))
        return
    try:
        yield SparkPeer(directory, kafka, jars, "")
    finally:
        kafka.close()
