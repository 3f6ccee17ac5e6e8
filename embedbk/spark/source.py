"""`spark.read.format("embedbk")`: logs as a table of Arrow record batches, one partition per range of a ledger.

Rows are the confirmed entries at the time of planning: immutable, so a task that runs again reads the same. Reader and
partitions hold plain data only, for Spark pickles them. `streaming` has the other way to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from embedbk.errors import UsageError
from embedbk.spark import reading, rows
from embedbk.spark.archive_first import with_archives
from embedbk.spark.options import OF_BATCH, OF_BOTH, SourceOptions, columns_of, read_options
from embedbk.spark.partitions import RangePartition, logs_of, read_partition, split
from embedbk.spark.pruning import Bounds
from embedbk.spark.saying import briefly
from embedbk.spark.sink import EmbedbkStreamWriter, EmbedbkWriter, batch_writer, stream_writer
from embedbk.spark.sink_options import OF_SINK
from embedbk.spark.streaming import EmbedbkStreamReader
from embedbk.spark.tables import options_for, options_of_writer, with_options
from embedbk.spark.view_reading import ViewReader, view_in, view_schema

__all__ = ["EmbedbkReader", "EmbedbkSource", "PruningReader"]


class EmbedbkSource(DataSource):
    """The format; Spark makes one for every `load()` and `start()`."""

    @classmethod
    def name(cls) -> str:
        return "embedbk"

    @briefly
    def schema(self) -> StructType:
        """Spark asks before it is known whether a batch or a stream is meant: the reader checks all other options."""
        if (wanted := view_in(self.options)) is not None:
            return with_options(view_schema(wanted), self.options)
        columns, is_text = columns_of(self.options)
        return with_options(rows.spark_schema(columns, is_text=is_text), self.options)

    @briefly
    def reader(self, schema: StructType) -> EmbedbkReader | ViewReader:
        given = options_for(self.options, schema, OF_BOTH + OF_BATCH)
        if (wanted := view_in(given)) is not None:
            return ViewReader(given, wanted)
        options = read_options(given, is_stream=False)
        return (PruningReader if options.pushes_down else EmbedbkReader)(options)

    @briefly
    def writer(self, schema: StructType, overwrite: bool) -> EmbedbkWriter:
        given = options_of_writer(self.options, schema, OF_SINK)
        return batch_writer(given, schema, overwrite=overwrite)

    @briefly
    def streamWriter(self, schema: StructType, overwrite: bool) -> EmbedbkStreamWriter:  # noqa: N802
        return stream_writer(self.options, schema)

    @briefly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if view_in(self.options) is not None:
            raise UsageError("option view is one of a batch: what the metadata says is no stream")
        return EmbedbkStreamReader(read_options(self.options, is_stream=True))


class EmbedbkReader(DataSourceReader):
    """Plans on the driver, reads in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.bounds = Bounds()

    @briefly
    def partitions(self) -> list[InputPartition]:
        """A list, as Spark demands; where it is empty Spark reads one partition None."""
        options = self.options
        found: list[InputPartition] = []
        for name in logs_of(options):
            if not self.bounds.has_log(name):
                continue
            start, end, segments = reading.stretch(options.place, name, options.start, options.end)
            # The pin of all reads from there: it ends when the last of them ends, and many reads share one pin.
            pin_name = f"spark-batch-{start.offset}-{options.pin_s:.0f}"
            if start.offset < end.offset:
                reading.pin(options.place, name, pin_name, start, options.pin_s)
            planned = reading.plan(name, segments, start, end)
            if options.is_archive_first:
                planned = with_archives(options.place, name, planned)
            for whole in planned:
                for part in self.bounds.clip(whole):
                    found += [
                        RangePartition(each, pin_name, start.offset, time.time())
                        for each in split(part, options.rows_per_partition)
                    ]
        return found

    @briefly
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):
            yield from read_partition(self.options, partition)


class PruningReader(EmbedbkReader):
    """As `EmbedbkReader`, and Spark passes it the filters of the query. A class of its own: Spark plans with one that
    has `pushFilters` only where its setting for that is on (`embedbk.spark.session` turns it on)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Every filter is applied again by Spark: what is left out here is only what none of them lets through."""
        self.bounds = Bounds.of(filters)
        return filters
