"""Entries as Arrow record batches: a column stands on the buffers that a `Batch` has anyway, no value is copied.

The only file beside the Spark source that needs pyarrow (`pip install embedbk[arrow]`); readers import it on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from embedbk.client.batches import Batch

__all__ = ["SCHEMA", "columns", "record_batch", "stream"]

# A row is a record: an entry, or a part of an atomic batch. `offset` is dense in the log it was read from.
SCHEMA = pa.schema(
    [("ledgerId", pa.int64()), ("entryId", pa.int64()), ("offset", pa.int64()), ("value", pa.binary())]
)


def record_batch(batch: Batch) -> pa.RecordBatch:
    """The rows of a batch; they keep its buffers alive."""
    return pa.RecordBatch.from_arrays(columns(batch), schema=SCHEMA)


def stream(batches: Iterator[pa.RecordBatch], requested_schema: object) -> Any:
    """A capsule of the Arrow C stream interface, which takes the batches as it is read."""
    return pa.RecordBatchReader.from_batches(SCHEMA, batches).__arrow_c_stream__(requested_schema)


def columns(batch: Batch) -> list[pa.Array]:
    """Those of SCHEMA: `entryId` and `value` are the batch's own bytes, constants and offsets are made."""
    count = len(batch.ids)
    ids = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(batch.ids)])
    values = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(batch.ends), pa.py_buffer(batch.data)]
    )
    ledger_id = pa.repeat(pa.scalar(batch.ledger_id, pa.int64()), count)
    return [ledger_id, ids, pc.add(ids, batch.first_offset), values]
