"""The ceiling of `spark.py`: a data source that has its record batches already, and neither reads nor checks anything.

As many rows, bytes, batches and tasks as the log gives, so that what Spark itself costs is on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
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
    """Options: rows, size of a value, tasks, rowsPerBatch."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(COLUMN_NAMES, is_text=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(*(int(self.options[name]) for name in ("rows", "size", "tasks", "rowsPerBatch")))


class BareReader(DataSourceReader):
    def __init__(self, rows: int, size: int, tasks: int, rows_per_batch: int) -> None:
        self.rows, self.size, self.tasks, self.rows_per_batch = rows, size, tasks, rows_per_batch

    def partitions(self) -> list[InputPartition]:
        return [Task(self.rows // self.tasks, self.rows_per_batch, self.size) for _ in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        full = batch_of(partition.rows_per_batch, partition.size)
        for _ in range(partition.rows // partition.rows_per_batch):
            yield full
        if rest := partition.rows % partition.rows_per_batch:
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
