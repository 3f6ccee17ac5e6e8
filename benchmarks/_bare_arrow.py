"""The ceiling of `spark.py`: a data source that has its record batches already, and neither reads nor checks anything.

As many rows, bytes, batches and tasks as the log gives, so that what Spark itself costs is on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from embedbk.spark.options import COLUMN_NAMES
from embedbk.spark.rows import arrow_schema, spark_schema

__all__ = ["BareSource"]

FORMAT = "bare_arrow"


@dataclass(frozen=True)
class Task(InputPartition):
    rows: int
    rows_per_batch: int
    size: int


class BareSource(DataSource):
    """Options: rows, size of a value, rowsPerBatch; without a stream also tasks. A micro-batch is one batch."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(COLUMN_NAMES, is_text=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(*(int(self.options[name]) for name in ("rows", "size", "tasks", "rowsPerBatch")))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return BareStreamReader(*(int(self.options[name]) for name in ("rows", "size", "rowsPerBatch")))


class BareReader(DataSourceReader):
    def __init__(self, rows: int, size: int, tasks: int, rows_per_batch: int) -> None:
        self.rows, self.size, self.tasks, self.rows_per_batch = rows, size, tasks, rows_per_batch

    def partitions(self) -> list[InputPartition]:
        return [Task(self.rows // self.tasks, self.rows_per_batch, self.size) for _ in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return batches_of(partition)


class BareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the count of rows before it. A micro-batch is one task of one batch."""

    def __init__(self, rows: int, size: int, rows_per_batch: int) -> None:
        self.rows, self.size, self.rows_per_batch = rows, size, rows_per_batch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """There is never more."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"rows": min(self.rows, start["rows"] + self.rows_per_batch)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [Task(end["rows"] - start["rows"], self.rows_per_batch, self.size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return batches_of(partition)


def batches_of(task: Task) -> Iterator[pa.RecordBatch]:
    full = batch_of(task.rows_per_batch, task.size)
    for _ in range(task.rows // task.rows_per_batch):
        yield full
    if rest := task.rows % task.rows_per_batch:
        yield full.slice(0, rest)


def batch_of(rows: int, size: int) -> pa.RecordBatch:
    numbers = pa.array(range(rows), pa.int64())
    ends = pa.array(range(0, rows * size + 1, size), pa.int32()).buffers()[1]
    values = pa.Array.from_buffers(pa.binary(), rows, [None, ends, pa.py_buffer(os.urandom(rows * size))])
    name, slots = pa.repeat(pa.scalar("orders"), rows), pa.repeat(pa.scalar(0, pa.int32()), rows)
    columns = {
        "log": name, "ledgerId": numbers, "entryId": numbers, "slot": slots, "offset": numbers, "value": values,
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [columns[each] for each in COLUMN_NAMES], schema=arrow_schema(COLUMN_NAMES, is_text=False)
    )
