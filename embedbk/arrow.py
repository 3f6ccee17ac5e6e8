"""Entries as Arrow record batches: a column stands on the buffers that a `Batch` has anyway, no value is copied.

The only file beside the Spark source that needs pyarrow (`pip install embedbk[arrow]`); readers import it on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from embedbk.client.batches import Batch

__all__ = ["SCHEMA", "SCHEMA_WITH_RECORDS", "columns", "record_batch", "record_columns", "slots", "stream"]

# A row is a record: an entry, or a part of an atomic batch. `offset` is dense in the log it was read from.
SCHEMA = pa.schema(
    [("ledgerId", pa.int64()), ("entryId", pa.int64()), ("offset", pa.int64()), ("value", pa.binary())]
)

# What a record has beside its value; null where it has not. timestamp: ms since 1970, as its application gave it.
_RECORD_FIELDS = {
    "key": pa.binary(),
    "timestamp": pa.int64(),
    "headers": pa.map_(pa.string(), pa.binary()),
}
SCHEMA_WITH_RECORDS = pa.schema([*SCHEMA, *(pa.field(*field) for field in _RECORD_FIELDS.items())])


def record_batch(batch: Batch, *, with_records: bool = False) -> pa.RecordBatch:
    """The rows of a batch; they keep its buffers alive."""
    if not with_records:
        return pa.RecordBatch.from_arrays(columns(batch), schema=SCHEMA)
    beside = record_columns(batch, tuple(_RECORD_FIELDS))
    return pa.RecordBatch.from_arrays([*columns(batch), *beside], schema=SCHEMA_WITH_RECORDS)


def stream(batches: Iterator[pa.RecordBatch], schema: pa.Schema, requested_schema: object) -> Any:
    """A capsule of the Arrow C stream interface, which takes the batches as it is read."""
    return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(requested_schema)


def record_columns(batch: Batch, names: Sequence[str]) -> list[pa.Array]:
    """The columns key, timestamp and headers, as far as they are named. A Python object is made for a row only where a
    record of the batch has any of them."""
    records = batch.records()
    if records is None:
        return [pa.nulls(len(batch.ids), _RECORD_FIELDS[name]) for name in names]
    made: dict[str, list[Any]] = {name: [] for name in _RECORD_FIELDS}
    for record in records:
        made["key"].append(record.key)
        made["timestamp"].append(record.timestamp)
        made["headers"].append(list(record.headers.items()) or None)
    return [pa.array(made[name], _RECORD_FIELDS[name]) for name in names]


def columns(batch: Batch) -> list[pa.Array]:
    """The columns of SCHEMA: `entryId` and `value` are the batch's own bytes, constants and offsets are made."""
    count = len(batch.ids)
    ids = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(batch.ids)])
    values = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(batch.ends), pa.py_buffer(batch.data)]
    )
    ledger_id = pa.repeat(pa.scalar(batch.ledger_id, pa.int64()), count)
    return [ledger_id, ids, pc.add(ids, batch.first_offset), values]


def slots(entry_ids: pa.Array) -> pa.Array:
    """For each row, how many rows before it have the same entry; entries stand in order."""
    count = len(entry_ids)
    if count == 0 or entry_ids[-1].as_py() - entry_ids[0].as_py() + 1 == count:
        return pa.repeat(pa.scalar(0, pa.int32()), count)
    number = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int32()), count))
    first = pc.index_in(entry_ids, value_set=entry_ids)
    return pc.subtract(pc.subtract(number, pa.scalar(1, pa.int32())), first)
