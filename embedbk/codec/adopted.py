"""The record beside a ledger that was taken back into the metadata from the copies on its bookies (P10.5): which
operator did it, when, and what could not be known.

No reader of the ledger needs it. It stays when the ledger is deleted: entries that were given up stay given up.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN, NO_ENTRY

__all__ = [
    "ADOPTED_PREFIX",
    "ADOPTED_VERSION",
    "LOST_RANGES_MAX",
    "AdoptedLedger",
    "adopted_path",
    "decode_adopted",
    "encode_adopted",
]

ADOPTED_VERSION = 1
ADOPTED_PREFIX = "/adopted/"
LOST_RANGES_MAX = 1024  # One adoption gives up no more than these.
_BY_CHARS = 200

# Bounds of these fields, which every client may write; msgspec refuses the rest while it decodes.
_Number = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_LastEntry = Annotated[int, msgspec.Meta(ge=NO_ENTRY, le=LEDGER_ID_MAX // 2)]
_BookieId = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_By = Annotated[str, msgspec.Meta(max_length=_BY_CHARS)]


class AdoptedLedger(msgspec.Struct, frozen=True, array_like=True):
    version: int
    ledger_id: _Number
    adopted_ms: _Number  # By the adopting operator's clock.
    by: _By  # For people.
    lac: _LastEntry  # The highest that any bookie returned: everything up to there was acknowledged.
    # Bookies that an operator decided not to wait for: entries that they alone have count as lost.
    gone: tuple[tuple[_BookieId, _Incarnation], ...]
    # Entries first..last that were acknowledged and that no bookie has.
    lost: Annotated[tuple[tuple[_Number, _Number], ...], msgspec.Meta(max_length=LOST_RANGES_MAX)]
    copied: _Number  # Copies that were made for it.
    heard: tuple[_BookieId, ...]  # All bookies that reported what they have.


_decoder = msgspec.msgpack.Decoder(AdoptedLedger)


def adopted_path(ledger_id: int) -> str:
    return f"{ADOPTED_PREFIX}{ledger_id:016x}"


def encode_adopted(value: AdoptedLedger) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_adopted(data: bytes) -> AdoptedLedger:
    """Raises StorageError for bytes that say nothing of an adopted ledger in a version this code knows."""
    value = unpack(_decoder, data, StorageError, f"these {len(data)} bytes say nothing of an adopted ledger")
    if value.version != ADOPTED_VERSION:
        raise StorageError(
            f"what is said of an adopted ledger has version {value.version}; this embedbk knows {ADOPTED_VERSION}"
        )
    return value
