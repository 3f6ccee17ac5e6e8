"""Rows of Arrow as records of a log: for files of other programs, and for Spark's sink; needs no Spark."""

from __future__ import annotations

import pyarrow as pa

from embedbk.client.ledger import LedgerWriter

__all__ = ["VALUE", "append_rows"]

VALUE = "value"
_BESIDE = ("key", "timestamp", "headers")


def append_rows(writer: LedgerWriter, batch: pa.RecordBatch) -> None:
    """Append each row of a batch as an entry, in order; all of them are durable when this returns. Of its columns
    `value`, and where they are there `key`, `timestamp` (ms, or an Arrow timestamp) and `headers`.

    Raises UsageError: a row cannot be an entry; the message names it.
    """
    there = [name for name in _BESIDE if name in batch.schema.names]
    key, timestamp, headers = (name if name in there else None for name in _BESIDE)
    if timestamp and pa.types.is_integer((times := batch.column(timestamp)).type):
        batch = batch.set_column(batch.schema.get_field_index(timestamp), timestamp, times.cast(pa.int64()))
    writer.append_arrow(batch, VALUE, key, timestamp, headers)
