"""The partition that one task reads, for batches and for micro-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from embedbk.spark import reading, rows
from embedbk.spark.archive_first import read_archive_first
from embedbk.spark.options import SourceOptions
from embedbk.spark.reading import LedgerRange, LogPoint

__all__ = ["RangePartition", "logs_of", "read_partition", "split"]


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """The entries that one task reads, and the pin that keeps them from being truncated: its name, its place, when it
    was made."""

    range: LedgerRange
    pin_name: str = ""
    pin_offset: int = 0
    pinned_s: float = 0.0


def logs_of(options: SourceOptions) -> tuple[str, ...]:
    return options.names or tuple(reading.names(options.place, options.prefix))


def read_partition(options: SourceOptions, part: RangePartition) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, whole, or an error. Its pin is renewed where a quarter of its time is over."""
    if part.pin_name and abs(time.time() - part.pinned_s) > options.pin_s / 4:
        reading.pin(options.place, part.range.log, part.pin_name, LogPoint(part.pin_offset), options.pin_s)
    for batch in read_archive_first(options.place, part.range):
        yield rows.record_batch(part.range.log, batch, options.columns, is_text=options.is_text)


def split(whole: LedgerRange, rows_max: int) -> Iterator[LedgerRange]:
    """The range in parts of at most rows_max entries, as even as they can be."""
    parts = -(-whole.entry_count // rows_max)
    for part in range(parts):
        begin = whole.entry_count * part // parts
        end = whole.entry_count * (part + 1) // parts
        yield replace(whole, first_entry=whole.first_entry + begin, last_entry=whole.first_entry + end - 1)
