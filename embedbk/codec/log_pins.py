"""The pins that hold a log against truncation, under one key of the log (P8.8), as a value of the metadata quorum.

One value has all pins of a log, so that a truncation compares all of them by comparing that value.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX, NAME_PATTERN

__all__ = ["PINS_MAX", "LogPins", "PinRecord", "decode_log_pins", "encode_log_pins", "log_pins_path"]

PINS_MAX = 1_000  # Pins of one log; one value of the metadata holds them.

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]


class PinRecord(msgspec.Struct, frozen=True, array_like=True):
    """Nothing from this offset on is truncated while it stands here, until its time is over."""

    name: _Name
    offset: _Count
    epoch: _Count  # Higher than the epoch of every earlier pin of the log.
    until_ms: _Count  # Since 1970; from then on a truncation deletes the pin, by name.


class LogPins(msgspec.Struct, frozen=True, array_like=True):
    version: int
    pins: tuple[PinRecord, ...]


def log_pins_path(name: str) -> str:
    return f"/logs/{name}/pins"


def encode_log_pins(value: LogPins) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_log_pins(data: bytes, name: str = "") -> LogPins:
    """Raises StorageError for bytes that are no pins of a version this code knows, or name one twice."""
    what = f"log {name!r}" if name else "a log"
    value = unpack(_decoder, data, StorageError, f"{what}: these {len(data)} bytes are no pins")
    if value.version != METADATA_VERSION:
        raise StorageError(
            f"{what}: its pins have version {value.version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )
    if len({pin.name for pin in value.pins}) != len(value.pins):
        raise StorageError(f"{what}: a pin of it stands there twice")
    return value


_decoder = msgspec.msgpack.Decoder(LogPins)
