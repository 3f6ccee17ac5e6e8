"""The rows of a batch for Spark: which columns there are, their types on both sides, and how a batch becomes them.

Spark compares the first record batch with its own Arrow schema exactly: order, type (no large_string) and nullability.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from embedbk import arrow
from embedbk.client.batches import Batch
from embedbk.errors import EntryUnreadable
from embedbk.spark.options import RECORD_COLUMNS

__all__ = ["arrow_schema", "record_batch", "spark_schema"]

_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "log": (StringType(), pa.string()),
    "ledgerId": (LongType(), pa.int64()),
    "entryId": (LongType(), pa.int64()),
    "slot": (
        IntegerType(),
        pa.int32(),
    ),  # The number of a record in its atomic batch; any other entry is one record.
    "offset": (LongType(), pa.int64()),
    "value": (BinaryType(), pa.binary()),
    "key": (BinaryType(), pa.binary()),
    "timestamp": (LongType(), pa.int64()),
    "headers": (MapType(StringType(), BinaryType()), pa.map_(pa.string(), pa.binary())),
}


def spark_schema(columns: Sequence[str], *, is_text: bool) -> StructType:
    schema = StructType()
    for name in columns:
        schema = schema.add(name, StringType() if is_text and name == "value" else _TYPES[name][0])
    return schema


def arrow_schema(columns: Sequence[str], *, is_text: bool) -> pa.Schema:
    return pa.schema(
        [(name, pa.string() if is_text and name == "value" else _TYPES[name][1]) for name in columns]
    )


def record_batch(log: str, batch: Batch, columns: Sequence[str], *, is_text: bool) -> pa.RecordBatch:
    """The columns stand on the buffers of `batch` (embedbk/arrow.py); no Python object is made for a row, but where a
    record has a key, a timestamp or headers and they are asked for.

    Raises EntryUnreadable where text was asked for and a value is none.
    """
    ledger_ids, entry_ids, offsets, values = arrow.columns(batch)
    beside = [name for name in columns if name in RECORD_COLUMNS]
    of_records = dict(zip(beside, arrow.record_columns(batch, beside), strict=True)) if beside else {}
    made = []
    for name in columns:
        if name == "log":
            made.append(pa.repeat(pa.scalar(log, pa.string()), len(entry_ids)))
        elif name == "slot":
            made.append(arrow.slots(entry_ids))
        elif name == "value":
            made.append(_text(log, batch, values) if is_text else values)
        elif name in of_records:
            made.append(of_records[name])
        else:
            made.append({"ledgerId": ledger_ids, "entryId": entry_ids, "offset": offsets}[name])
    return pa.RecordBatch.from_arrays(made, schema=arrow_schema(columns, is_text=is_text))


def _text(log: str, batch: Batch, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as not_text:
        raise EntryUnreadable(
            f"log {log!r}, ledger {batch.ledger_id}: a value among the entries {batch.ids[0]}..{batch.ids[-1]} is no "
            "text in UTF-8",
            definite=True,
            hint='read it as bytes: without option("payload", "string")',
        ) from not_text
