"""Journal records back into ledger table and entry store, one by one, in journal order (P7.3, P7.5, I44).

The same lines serve the disk and the simulator. Taking a record in twice gives the same state as once, since a
flush may have brought records into an entry log that stand above its mark.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.frame import Frame, frame_of
from embedbk.codec.journal_records import (
    HELD_AGAIN,
    LIMBO_ENDS,
    RecordKind,
    decode_explicit_lac,
    decode_gone,
    decode_key,
)
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.errors import PeerError, StorageError

__all__ = ["lac_of", "replay_record"]

_PAYLOAD_SIZE = struct.Struct("<4xI")


def replay_record(
    table: AnyLedgerTable,
    put: Callable[[Frame], object],
    token: int,
    kind: int,
    ledger_id: int,
    body: memoryview,
) -> None:
    """Take one journal record into the table, and a frame's entries into the store by `put`.

    Raises:
        StorageError: the record is of an unknown kind, or its body is not what its kind says.
    """
    try:
        kind = RecordKind(kind)
    except ValueError as unknown:
        raise StorageError(
            f"journal record {token} has kind {kind}, which this version does not know",
            hint="start the bookie with the version that wrote its journal, or a later one",
        ) from unknown
    if kind == RecordKind.GONE:
        # Other records describe ledgers that have a row by now: also those of another journal, read before or after.
        table.drop_range(ledger_id, decode_gone(ledger_id, body))
        return
    row = table.get(ledger_id) or table.create(ledger_id, from_reserve=True)
    if kind == RecordKind.FRAME:
        try:
            frame = frame_of(body, ledger_id)
        except PeerError as broken:
            raise StorageError(
                f"journal record {token} holds no frame of ledger {ledger_id}: {broken}"
            ) from broken
        # Frees the entries that were put before the drop; entries that came back since follow a HELD_AGAIN record.
        if not row.is_dropped:
            row.last_entry = max(row.last_entry, frame.last_entry)
            _raise_lac(row, *lac_of(frame))
            put(frame)
    elif kind in (RecordKind.FENCE, RecordKind.BIRTH):
        key = decode_key(body)
        if key is not None and table.key(row) is None:
            table.set_key(row, key)
        if kind == RecordKind.FENCE:
            row.is_fenced = 1
    elif kind == RecordKind.EXPLICIT_LAC:
        _raise_lac(row, *decode_explicit_lac(body))
    elif kind == RecordKind.LIMBO:
        row.in_limbo = 1 if bytes(body) != LIMBO_ENDS else 0
        if bytes(body) == HELD_AGAIN:
            row.is_dropped = 0
    else:
        assert kind == RecordKind.DROP
        row.is_fenced = row.in_limbo = row.is_dropped = 1
    row.last_token = token
    table.mark_dirty(row)


def lac_of(frame: Frame) -> tuple[int, int]:
    """The LAC pair in the last entry of a checked frame: the highest that its writer knew."""
    offset, end = 0, len(frame.body)
    while True:
        size = ENTRY_OVERHEAD_BYTES + _PAYLOAD_SIZE.unpack_from(frame.body, offset)[0]
        if offset + size == end:
            fields = ENTRY_HEADER.unpack_from(frame.body, offset)
            return fields[7], fields[8]
        offset += size


def _raise_lac(row: AnyLedgerRow, lac: int, lac_length: int) -> None:
    row.lac, row.lac_length = max((row.lac, row.lac_length), (lac, lac_length))
