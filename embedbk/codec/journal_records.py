"""The kinds of records in a bookie's journal, and the bodies of those that are not frames (P7.3, P7.5).

The journal itself carries kind, ledger id and body and looks inside none of them; their order is the order in which
the bookie decided. Replay takes them into ledger table and entry store again (storage/bookie_storage.py).
"""

from __future__ import annotations

import enum
import struct

from embedbk.codec.frame import LEDGER_KEY_BYTES
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "HELD_AGAIN",
    "LIMBO_BEGINS",
    "LIMBO_ENDS",
    "RecordKind",
    "decode_explicit_lac",
    "decode_gone",
    "decode_key",
    "encode_explicit_lac",
    "encode_gone",
]


class RecordKind(enum.IntEnum):
    """Numbers are on disk: never re-used."""

    FRAME = 1  # Body: the entries of the accepted frame, verbatim.
    FENCE = 2  # Body: the ledger key, or empty for a fence that binds none (P3.5).
    EXPLICIT_LAC = 3  # Body: lac and lac_length (P6.2).
    BIRTH = 4  # Body: the ledger key. Stands before the ledger's first frame (P3.2).
    LIMBO = 5  # Body: one byte, LIMBO_ENDS, LIMBO_BEGINS or HELD_AGAIN (P7.3, P7.4).
    DROP = 6  # Body empty: the data may go, fence and limbo stay (P7.3).
    GONE = 7  # Body: the last of the ledgers from this one on that are gone; those without a row are as dropped (P7.4).


LIMBO_ENDS = b"\0"
LIMBO_BEGINS = b"\1"
HELD_AGAIN = b"\2"  # A dropped ledger gets entries again, by recovery: dropped no more, in limbo as before.

_LAC = struct.Struct("<qQ")
_LAST = struct.Struct("<Q")


def encode_explicit_lac(lac: int, lac_length: int) -> bytes:
    return _LAC.pack(lac, lac_length)


def decode_explicit_lac(body: bytes | memoryview) -> tuple[int, int]:
    """(lac, lac_length); raises StorageError for a body that is none."""
    if len(body) != _LAC.size:
        raise StorageError(f"explicit LAC record of {len(body)} bytes, want {_LAC.size}")
    lac, lac_length = _LAC.unpack(body)
    if lac < NO_ENTRY:
        raise StorageError(f"explicit LAC record with the impossible LAC {lac}")
    return lac, lac_length


def encode_gone(last: int) -> bytes:
    return _LAST.pack(last)


def decode_gone(first: int, body: bytes | memoryview) -> int:
    """The last ledger of a GONE record that begins at `first`; StorageError for a body that is none."""
    if len(body) != _LAST.size:
        raise StorageError(f"record of ledgers that are gone with {len(body)} bytes, want {_LAST.size}")
    last: int = _LAST.unpack(body)[0]
    if not first <= last <= LEDGER_ID_MAX:
        raise StorageError(f"record of ledgers that are gone, from {first} to {last}")
    return last


def decode_key(body: bytes | memoryview) -> bytes | None:
    """The ledger key of a FENCE or BIRTH record, None where it is empty; StorageError for another size."""
    if len(body) not in (0, LEDGER_KEY_BYTES):
        raise StorageError(f"record with a ledger key of {len(body)} bytes, want {LEDGER_KEY_BYTES} or none")
    return bytes(body) if len(body) else None
