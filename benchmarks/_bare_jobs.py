"""The ceilings of `_spark_jobs.py`: a sink that takes Arrow batches and keeps nothing, and files of rows from memory.

As many rows, bytes, tasks and files as ours, so that what Spark and Parquet themselves cost is on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from embedbk.archive.columns import SCHEMA
from embedbk.archive.files import ROW_GROUP_BYTES

__all__ = ["BareFile", "BareSink", "write_bare_file"]

ENTRY_BYTES = 52  # Beside its payload: what a row group's size counts.


class BareSink(DataSource):
    """`bare_sink`: rows come in Arrow batches, and are gone."""

    @classmethod
    def name(cls) -> str:
        return "bare_sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BareWriter()


class BareWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class BareFile(NamedTuple):
    """What one task writes: so many rows of so many bytes."""

    path: str
    rows: int
    size: int


def write_bare_file(task: BareFile) -> int:
    """One Parquet file as an archive's (`embedbk/archive/files.py`), synced, with one row group again and again."""
    per_group = min(task.rows, ROW_GROUP_BYTES // (task.size + ENTRY_BYTES))
    full = rows_of(per_group, task.size)
    writer = pq.ParquetWriter(
        task.path, SCHEMA, compression="zstd", write_page_checksum=True, use_dictionary=["log", "ledgerId"]
    )
    left = task.rows
    while left:
        some = full.slice(0, min(left, per_group))
        writer.write_table(some, row_group_size=some.num_rows)
        left -= some.num_rows
    writer.close()
    with Path(task.path).open("rb") as file:
        os.fsync(file.fileno())
    return task.rows


def rows_of(rows: int, size: int) -> pa.Table:
    numbers = pa.array(range(rows), pa.int64())
    ends = pa.array(range(0, rows * size + 1, size), pa.int32()).buffers()[1]
    columns = {
        "log": pa.repeat(pa.scalar("orders"), rows),
        "ledgerId": pa.repeat(pa.scalar(7, pa.int64()), rows),
        "slot": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "value": pa.Array.from_buffers(
            pa.binary(), rows, [None, ends, pa.py_buffer(os.urandom(rows * size))]
        ),
        "time": numbers.cast(SCHEMA.field("time").type),
        "crc32c": pa.Array.from_buffers(pa.uint32(), rows, [None, pa.py_buffer(os.urandom(4 * rows))]),
        "attributes": pa.nulls(rows, pa.binary()),
    }
    return pa.table([columns.get(name, numbers) for name in SCHEMA.names], schema=SCHEMA)
