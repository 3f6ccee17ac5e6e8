"""Rows of Arrow as records of a log: for files of other programs, and for Spark's sink; needs no Spark.

Rows of values alone go in as Arrow, without an object for each; the others are made records one by one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from embedbk.client.ledger import LedgerWriter
from embedbk.codec.entry_records import NO_HEADERS, EntryRecord
from embedbk.errors import UsageError

__all__ = ["VALUE", "append_rows"]

VALUE = "value"
_BESIDE = ("key", "timestamp", "headers")


def append_rows(writer: LedgerWriter, batch: pa.RecordBatch) -> None:
    """Append each row of a batch as an entry, in order; all of them are durable when this returns. Of its columns
    `value`, and where they are there `key`, `timestamp` (ms, or an Arrow timestamp) and `headers`.

    Raises UsageError: a row can be no entry, and which.
    """
    there = [name for name in _BESIDE if name in batch.schema.names]
    if not there:
        writer.append_arrow(batch, VALUE)
        return
    values = batch.column(VALUE)
    if values.null_count:
        raise UsageError(f"a row has no {VALUE}; nothing was written", hint="leave out rows without one")
    count = batch.num_rows
    keys, headers = (
        batch.column(name).to_pylist() if name in there else [None] * count for name in ("key", "headers")
    )
    times = _ms_of(batch.column("timestamp")).to_pylist() if "timestamp" in there else [None] * count
    writer.add_many(
        [
            EntryRecord(_bytes(value), _bytes(key), at, _headers(named))
            for value, key, at, named in zip(values.to_pylist(), keys, times, headers, strict=True)
        ]
    )


def _ms_of(column: pa.Array) -> pa.Array:
    """A column of numbers is ms since 1970 already; one of times is told so, fractions of a ms left off."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column


def _headers(named: list[tuple[str, Any]] | None) -> Any:
    if not named:
        return NO_HEADERS
    if any(value is None for _, value in named):
        raise UsageError("a header has no value; nothing was written", hint="leave out headers that are null")
    return {name: _bytes(value) for name, value in named}


def _bytes(value: bytes | str | None) -> Any:
    return value.encode() if isinstance(value, str) else value
