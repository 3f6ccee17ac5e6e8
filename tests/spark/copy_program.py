"""A driver that copies a log by a streaming query, to be killed anywhere: it tells of each commit of the sink, before
and behind it, a line each into a FIFO."""

from __future__ import annotations

import sys
from typing import Any

import embedbk.spark
from embedbk.demo.writer import die_with_starter
from embedbk.spark.session import SHORT_LIVED
from embedbk.spark.sink import EmbedbkStreamWriter
from embedbk.spark.source import EmbedbkSource

ROWS_PER_BATCH = 100


def begin_copy(spark: Any, url: str, checkpoint: str) -> Any:
    """The query that copies what is there by now; small outputs travel in messages, others are staged."""
    stream = spark.readStream.format("embedbk").options(cluster=url, log="long", startingOffsets="earliest")
    stream = stream.options(maxRowsPerTrigger=str(ROWS_PER_BATCH), maxRowsPerPartition="60").load()
    query = stream.select("value").writeStream.format("embedbk").options(cluster=url, log="long-copy")
    query = query.options(inlineMaxBytes="700", checkpointLocation=checkpoint)
    return query.trigger(availableNow=True).start()


def telling_source(fifo: str) -> type[EmbedbkSource]:
    """Classes of a function: Spark's processes get them whole."""

    class TellingWriter(EmbedbkStreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            with open(fifo, "w") as told:
                told.write("commits\n")
            super().commit(messages, batchId)
            with open(fifo, "w") as told:
                told.write("committed\n")

    class TellingSource(EmbedbkSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> EmbedbkStreamWriter:  # noqa: N802
            return TellingWriter(super().streamWriter(schema, overwrite).options)

    return TellingSource


if __name__ == "__main__":
    die_with_starter()
    session = embedbk.spark.session("embedbk copy", master="local[2]", config=SHORT_LIVED)
    session.dataSource.register(telling_source(sys.argv[3]))
    begin_copy(session, sys.argv[1], sys.argv[2]).awaitTermination()
