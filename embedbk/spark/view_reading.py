"""`option("view", NAME)`: what the metadata says, as rows of Spark (views/VIEWS.md). One task reads all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StringType, StructType

from embedbk.errors import UsageError
from embedbk.spark.clients import client_of
from embedbk.spark.options import cluster_of
from embedbk.spark.saying import briefly
from embedbk.views.tables import MetadataView, view

__all__ = ["ViewReader", "view_in", "view_schema"]

ENTRIES = "entries"  # What is read without the option.
_BATCH_ROWS = 10_000
_TYPES: dict[type, tuple[DataType, pa.DataType]] = {
    int: (LongType(), pa.int64()),
    str: (StringType(), pa.string()),
    bool: (BooleanType(), pa.bool_()),
    float: (DoubleType(), pa.float64()),
}


def view_in(options: Mapping[str, str]) -> MetadataView | None:
    """The view that the options ask for; None: the entries of logs. Raises UsageError: there is no such view, or an
    option beside it says nothing of it."""
    given = {name.lower(): value for name, value in options.items()}
    wanted = given.get("view", ENTRIES)
    if wanted == ENTRIES:
        return None
    found = view(wanted)
    if others := sorted(given.keys() - {"view", "cluster"}):
        raise UsageError(f"options {', '.join(others)} beside view={wanted!r}: allowed is cluster alone")
    return found


def view_schema(wanted: MetadataView) -> StructType:
    schema = StructType()
    for name, kind in wanted.columns:
        schema = schema.add(name, _TYPES[kind][0])
    return schema


class ViewReader(DataSourceReader):
    """Reads the rows in one task, as they stand when it runs."""

    def __init__(self, options: Mapping[str, str], wanted: MetadataView) -> None:
        self.cluster = cluster_of({name.lower(): value for name, value in options.items()})
        self.name = wanted.name

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    @briefly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted = view(self.name)
        rows: list[tuple[Any, ...]] = wanted.rows(client_of(self.cluster))
        schema = pa.schema([(name, _TYPES[kind][1]) for name, kind in wanted.columns])
        for begin in range(0, len(rows), _BATCH_ROWS):
            columns = list(zip(*rows[begin : begin + _BATCH_ROWS], strict=True))
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
