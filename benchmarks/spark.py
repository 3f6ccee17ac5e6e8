"""What do reading, writing and archiving a log by Spark cost beyond Spark? Three bookies, digests checked, `local[2]`.

What is read goes to Spark's `noop` sink, every row and column, which throws it away in the JVM. The ceiling is a source
that yields record batches from memory (`_bare_arrow.py`): as many rows of the same columns and bytes, in as many tasks
and in batches as large. `_spark_jobs.py` has the other rows. Both sides take turns in one session; a row is the pair
with the median ratio.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._load import Load
from benchmarks._spark_jobs import archive_row, digests_row, write_row
from embedbk.cluster import Cluster
from embedbk.config import FRAME_BYTES_MAX

__all__ = ["measure"]

WRITE, ARCHIVE, DIGESTS = "spark/write/1KiB", "spark/archive", "spark/scrub_digests"
SIZES = {"spark/read/100B": (100, 4_000_000), "spark/read/1KiB": (1 << 10, 600_000)}
TASKS = 8
PAIRS = 5


def measure() -> Iterator[Row]:
    if is_wanted(DIGESTS):
        yield digests_row(DIGESTS)
    if not is_wanted(*SIZES, WRITE, ARCHIVE):
        return
    from benchmarks._bare_arrow import BareSource

    with workplace("spark") as directory, Cluster(directory / "zmq", bookies=3) as cluster:
        spark = embedbk.spark.session("embedbk bench", master="local[2]")
        try:
            spark.dataSource.register(BareSource)
            for work, (size, rows) in SIZES.items():
                if is_wanted(work):
                    yield read_row(spark, cluster, work, size, rows)
            if is_wanted(WRITE):
                yield write_row(spark, cluster, WRITE)
            if is_wanted(ARCHIVE):
                yield archive_row(spark, cluster, directory, ARCHIVE)
        finally:
            spark.stop()


def read_row(spark: Any, cluster: Cluster, work: str, size: int, rows: int) -> Row:
    log = f"entries-{size}"
    with embedbk.open(cluster.url) as bk, bk.log(log).writer() as writer:
        for _ in range(20):
            writer.append_many([os.urandom(size)] * (rows // 20))
    log_rows = spark.read.format("embedbk").option("cluster", cluster.url).option("log", log)
    log_rows = log_rows.option("maxRowsPerPartition", str(rows // TASKS))
    per_batch = FRAME_BYTES_MAX // (size + 36)
    bare = spark.read.format("bare_arrow").option("rows", str(rows)).option("size", str(size))
    bare = bare.option("tasks", str(TASKS)).option("rowsPerBatch", str(per_batch))
    rate(log_rows, rows)  # Workers are started, links dialled.
    rate(bare, rows)
    pairs = []
    for _ in range(PAIRS):
        with Load(has_tree=True) as spent:
            value = rate(log_rows, rows)
        pairs.append((value, rate(bare, rows), spent))
    value, most, spent = sorted(pairs, key=lambda each: each[0] / each[1])[PAIRS // 2]
    cpu_us = round(spent.cpu_s * 1e6 / rows, 2)
    return Row(work, round(value), "rows/s", round(most), cpu_us, foreign=round(spent.foreign, 3))


def rate(reader: Any, rows: int) -> float:
    frame = reader.load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - began)
