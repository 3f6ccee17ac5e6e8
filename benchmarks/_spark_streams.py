"""What a micro-batch costs: `spark/microbatch`, the median wait for one of 1,000 rows of 100 B, one behind the other.

From the moment when Spark looks for new rows until it has written down that the micro-batch is done: its planning, one
task that reads, a sink that throws the rows away, and both notes in the checkpoint. The ceiling is the same of
`_bare_arrow.py`, whose rows are in memory. There a smaller value is better.
"""

from __future__ import annotations

import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import embedbk
from benchmarks import Row
from benchmarks._spark_jobs import paired
from embedbk.cluster import Cluster

__all__ = ["BATCH_ROWS", "STREAM_ROWS", "STREAM_SIZE", "batch_ms", "log_stream", "microbatch_row"]

STREAM_SIZE = 100
BATCH_ROWS = 1_000
BATCHES = 24
FIRST = 4  # Those before it start processes, and do not count.
STREAM_ROWS = BATCHES * BATCH_ROWS
LOG = "microbatches"


def microbatch_row(spark: Any, cluster: Cluster, directory: Path, work: str) -> Row:
    with embedbk.open(cluster.url) as bk, bk.log(LOG).writer() as writer:
        writer.append_many([os.urandom(STREAM_SIZE)] * STREAM_ROWS)
    bare = spark.readStream.format("bare_arrow").option("rows", str(STREAM_ROWS))
    bare = bare.option("size", str(STREAM_SIZE)).option("rowsPerBatch", str(BATCH_ROWS))
    ours = log_stream(spark, cluster.url)
    return paired(work, "ms", lambda: batch_ms(ours, directory), lambda: batch_ms(bare, directory))


def log_stream(spark: Any, url: str) -> Any:
    rows = spark.readStream.format("embedbk").option("cluster", url).option("log", LOG)
    return rows.option("startingOffsets", "earliest").option("maxRowsPerTrigger", str(BATCH_ROWS))


def batch_ms(stream: Any, directory: Path) -> float:
    """The median of a query that reads all there is, from a checkpoint of its own."""
    checkpoint = directory / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    sink = stream.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [each for each in query.recentProgress if each.numInputRows]
    assert [each.numInputRows for each in batches] == [BATCH_ROWS] * BATCHES
    return statistics.median(each.durationMs["triggerExecution"] for each in batches[FIRST:])
