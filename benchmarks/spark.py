"""What does reading a log by Spark cost beyond Spark? One log on three bookies, digests checked, in `local[2]`.

Every row and column goes to Spark's `noop` sink, which throws it away in the JVM. The ceiling is a source that yields
record batches from memory (`_bare_arrow.py`): as many rows of the same columns and bytes, in as many tasks and in
batches as large. Both sides take turns in one session; a row is the pair with the median ratio.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._load import Load
from embedbk.cluster import Cluster
from embedbk.config import FRAME_BYTES_MAX

__all__ = ["measure"]

SIZES = {"spark/read/100B": (100, 4_000_000), "spark/read/1KiB": (1 << 10, 600_000)}
TASKS = 8
PAIRS = 5


def measure() -> Iterator[Row]:
    if not is_wanted(*SIZES):
        return
    from benchmarks._bare_arrow import BareSource

    with workplace("spark") as directory, Cluster(directory / "zmq", bookies=3) as cluster:
        spark = embedbk.spark.session("embedbk bench", master="local[2]")
        try:
            spark.dataSource.register(BareSource)
            for work, (size, rows) in SIZES.items():
                if is_wanted(work):
                    yield read_row(spark, cluster, work, size, rows)
        finally:
            spark.stop()


def read_row(spark: Any, cluster: Cluster, work: str, size: int, rows: int) -> Row:
    log = f"entries-{size}"
    with embedbk.open(cluster.url) as bk, bk.log(log).writer() as writer:
        for _ in range(20):
            writer.append_many([os.urandom(size)] * (rows // 20))
    ours = spark.read.format("embedbk").option("cluster", cluster.url).option("log", log)
    ours = ours.option("maxRowsPerPartition", str(rows // TASKS))
    per_batch = FRAME_BYTES_MAX // (size + 36)
    bare = spark.read.format("bare_arrow").option("rows", str(rows)).option("size", str(size))
    bare = bare.option("tasks", str(TASKS)).option("rowsPerBatch", str(per_batch))
    rate(ours, rows)  # Workers are started, links dialled.
    rate(bare, rows)
    pairs = []
    for _ in range(PAIRS):
        with Load(pids=[*descendants(os.getpid())]) as spent:
            value = rate(ours, rows)
        pairs.append((value, rate(bare, rows), spent))
    value, most, spent = sorted(pairs, key=lambda each: each[0] / each[1])[PAIRS // 2]
    cpu_us = round(spent.cpu_s * 1e6 / rows, 2)
    return Row(work, round(value), "rows/s", round(most), cpu_us, foreign=round(spent.foreign, 3))


def descendants(pid: int) -> Iterator[int]:
    """The peers, the JVM and its workers."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def rate(reader: Any, rows: int) -> float:
    frame = reader.load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - began)
