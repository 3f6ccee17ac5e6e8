"""What do reading, writing and archiving a log by Spark cost beyond Spark? Three bookies, digests checked, `local[2]`.

What is read goes to Spark's `noop` sink, every row and column, which throws it away in the JVM. The ceiling is a source
that yields record batches from memory (`_bare_arrow.py`): as many rows of the same columns and bytes, in as many tasks
and in batches as large. `_spark_jobs.py` and `_spark_streams.py` have the other rows. Both sides take turns in one
session; a row is the pair with the median ratio. Reads, writes and micro-batches come once more, beside Kafka
(`_spark_peer.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._spark_jobs import TASKS, archive_row, digests_row, paired, write_row
from benchmarks._spark_peer import SparkPeer, spark_peer
from benchmarks._spark_streams import microbatch_row
from embedbk.cluster import Cluster
from embedbk.config import FRAME_BYTES_MAX

__all__ = ["BESIDE_PEER", "WORKS", "measure"]

WRITE, MICROBATCH, ARCHIVE, DIGESTS = (
    "spark/write/1KiB",
    "spark/microbatch",
    "spark/archive",
    "spark/scrub_digests",
)
SIZES = {"spark/read/100B": (100, 4_000_000), "spark/read/1KiB": (1 << 10, 600_000)}
BESIDE_PEER = (*SIZES, WRITE, MICROBATCH)
WORKS = (*BESIDE_PEER, ARCHIVE, DIGESTS)


def measure() -> Iterator[Row]:
    if is_wanted(DIGESTS):
        yield digests_row(DIGESTS)
    if not is_wanted(*BESIDE_PEER, ARCHIVE):
        return
    from benchmarks._bare_arrow import BareSource

    with (
        workplace("spark") as directory,
        spark_peer(directory, is_wanted=is_wanted(*BESIDE_PEER)) as peer,
        Cluster(directory / "zmq", bookies=3) as cluster,
    ):
        spark = embedbk.spark.session("embedbk bench", master="local[2]", config=peer.config)
        try:
            spark.dataSource.register(BareSource)
            for work in filter(is_wanted, SIZES):
                yield from read_rows(spark, cluster, peer, work)
            if is_wanted(WRITE):
                row = write_row(spark, cluster, WRITE)
                yield from peer.rows(row, lambda work: peer.write(spark, cluster, work))
            if is_wanted(MICROBATCH):
                row = microbatch_row(spark, cluster, directory, MICROBATCH)
                yield from peer.rows(row, lambda work: peer.microbatch(spark, cluster, work))
            if is_wanted(ARCHIVE):
                yield archive_row(spark, cluster, directory, ARCHIVE)
        finally:
            spark.stop()


def read_rows(spark: Any, cluster: Cluster, peer: SparkPeer, work: str) -> Iterator[Row]:
    size, rows = SIZES[work]
    log_rows = filled(spark, cluster, size, rows)
    row = read_row(spark, log_rows, work, size, rows)
    yield from peer.rows(row, lambda work: peer.read(spark, log_rows, rate, size, rows, work))


def filled(spark: Any, cluster: Cluster, size: int, rows: int) -> Any:
    """A reader of a log that has so many entries of this size."""
    log = f"entries-{size}"
    with embedbk.open(cluster.url) as bk, bk.log(log).writer() as writer:
        for _ in range(20):
            writer.append_many([os.urandom(size)] * (rows // 20))
    log_rows = spark.read.format("embedbk").option("cluster", cluster.url).option("log", log)
    return log_rows.option("maxRowsPerPartition", str(rows // TASKS))


def read_row(spark: Any, log_rows: Any, work: str, size: int, rows: int) -> Row:
    per_batch = FRAME_BYTES_MAX // (size + 36)
    bare = spark.read.format("bare_arrow").option("rows", str(rows)).option("size", str(size))
    bare = bare.option("tasks", str(TASKS)).option("rowsPerBatch", str(per_batch))
    return paired(work, "rows/s", lambda: rate(log_rows, rows), lambda: rate(bare, rows), rows)


def rate(reader: Any, rows: int) -> float:
    frame = reader.load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - began)
