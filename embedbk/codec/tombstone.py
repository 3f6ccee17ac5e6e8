"""The tombstone: it replaces a deleted ledger's key while the ledger can be brought back (CL31, CL32).

Clients cannot find a ledger once its key is gone; bookies may delete its bytes only once its tombstone is gone, too.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.log_list import LogSegment
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "DELETED_PREFIX",
    "TOMBSTONE_VERSION",
    "Tombstone",
    "decode_tombstone",
    "encode_tombstone",
    "tombstone_path",
]

TOMBSTONE_VERSION = 1
DELETED_PREFIX = "/deleted/"


_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]  # msgspec refuses the rest while it decodes.


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    version: int
    ledger_id: _Count
    deleted_ms: _Count  # By the deleting client's clock, as the next.
    until_ms: _Count  # From then on the tombstone may be taken away, and with it the ledger for ever.
    metadata: bytes  # The ledger's, as it stood.
    # What the log's list said of it, where truncation took it off (P8.3). Only from LEVEL_OF_FRONTS on.
    segment: LogSegment | None = None


_decoder = msgspec.msgpack.Decoder(Tombstone)


def tombstone_path(ledger_id: int) -> str:
    return f"{DELETED_PREFIX}{ledger_id:016x}"


def encode_tombstone(value: Tombstone) -> bytes:
    if value.segment is not None:
        return msgspec.msgpack.encode(value)
    return msgspec.msgpack.encode(msgspec.structs.astuple(value)[:-1])


def decode_tombstone(data: bytes) -> Tombstone:
    """Raises StorageError for bytes that are not a tombstone of a version this code knows."""
    value = unpack(_decoder, data, StorageError, f"these {len(data)} bytes are no tombstone")
    if value.version != TOMBSTONE_VERSION:
        raise StorageError(f"tombstone has version {value.version}; this embedbk knows {TOMBSTONE_VERSION}")
    return value
