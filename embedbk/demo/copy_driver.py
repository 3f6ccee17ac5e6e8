"""The process of the first driver that copies the log (`copying`): a Spark of its own, started and killed by the demo.

Its sink is the ordinary one but for one micro-batch: behind the sink's own commit it reports that, and never returns,
so that Spark cannot commit. It is told the cluster, the checkpoint, the rows and the number of that micro-batch, a line
each on standard input.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from embedbk.demo.copying import begin_copy
from embedbk.demo.writer import die_with_starter
from embedbk.spark.session import SHORT_LIVED, session
from embedbk.spark.sink import EmbedbkStreamWriter
from embedbk.spark.source import EmbedbkSource

__all__ = ["main"]


def holding_source(fifo: str, held: int) -> type[EmbedbkSource]:
    """The format with a sink that does not return from its commit of one micro-batch. Classes of a function: Spark's
    workers get them whole, with both values."""

    class HoldingWriter(EmbedbkStreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            super().commit(messages, batchId)
            if batchId == held:
                Path(fifo).write_text("committed\n")
                while True:  # Its end comes with that of the JVM.
                    signal.pause()

    class HoldingSource(EmbedbkSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> EmbedbkStreamWriter:  # noqa: N802
            return HoldingWriter(super().streamWriter(schema, overwrite).options)

    return HoldingSource


def main(fifo: str) -> None:
    die_with_starter()
    spark = session("embedbk demo, copy", config=SHORT_LIVED)
    words = [sys.stdin.readline().rstrip("\n") for _ in range(4)]
    if not words[-1]:
        return  # Not needed.
    url, checkpoint, rows_per_batch, held = words
    spark.dataSource.register(holding_source(fifo, int(held)))
    begin_copy(spark, url, Path(checkpoint), int(rows_per_batch)).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
