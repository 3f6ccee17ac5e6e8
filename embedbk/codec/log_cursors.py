"""Durable cursors of a log (P8.8), as values of the metadata quorum: the list of cursors, and the position of each.

One value of the log lists the cursors and which of them hold the log against truncation, so that a truncation compares
all of them by comparing that value. The position of each is under a key of its own: an advance changes nothing else.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX, NAME_PATTERN

__all__ = [
    "CURSORS_MAX",
    "CursorRecord",
    "CursorHold",
    "LogCursors",
    "NamedCursor",
    "cursor_lease_name",
    "cursor_path",
    "decode_cursor",
    "decode_log_cursors",
    "encode_cursor",
    "encode_log_cursors",
    "log_cursors_path",
]

CURSORS_MAX = 100  # Cursors of one log: one transaction can compare or delete all of them.

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]


class CursorHold(enum.IntEnum):
    """Whether a cursor holds the log against truncation. Numbers are on disk: never re-used."""

    NONE = 0
    HOLDS = 1
    ENDED_BY_TIME = 2  # It held the log, and was not moved for the given time.
    ENDED_BY_BYTES = 3  # It held the log, and lagged by more than the given bytes.
    ENDED_BY_FORCE = 4  # It held the log, and a forced truncation passed it.
    # It held the log, and the log's own bound passed it. Only from LEVEL_OF_BOUNDS on.
    ENDED_BY_BOUND = 5


class NamedCursor(msgspec.Struct, frozen=True, array_like=True):
    """A cursor that is there, and what it holds."""

    name: _Name
    hold: int
    # The hold ends when the cursor was not moved for so long, or lags by more payload bytes. With None it does not end.
    idle_ms: _Count | None = None
    bytes_behind: _Count | None = None


class LogCursors(msgspec.Struct, frozen=True, array_like=True):
    version: int
    cursors: tuple[NamedCursor, ...]


class CursorRecord(msgspec.Struct, frozen=True, array_like=True):
    """Where a cursor stands: everything before this offset was consumed."""

    version: int
    offset: _Count
    epoch: _Count  # Epoch of the consumer that committed it; 0: it was set by hand.
    moved_ms: _Count  # Since 1970.


def log_cursors_path(name: str) -> str:
    return f"/logs/{name}/cursors"


def cursor_path(log: str, name: str) -> str:
    """The key of a cursor: not under /logs, so that a listing of the logs meets no cursors."""
    return f"/log-cursors/{log}/{name}"


def cursor_lease_name(log: str, name: str) -> str:
    """The lock that its one consumer holds. A name has no ':', so no application has a lock of this name."""
    return f"cursor:{log}:{name}"


def encode_log_cursors(value: LogCursors) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_log_cursors(data: bytes, name: str = "") -> LogCursors:
    """Raises StorageError for bytes that are no cursors of a version this code knows, or that name one twice."""
    what = f"log {name!r}" if name else "a log"
    value = unpack(_named_decoder, data, StorageError, f"{what}: these {len(data)} bytes name no cursors")
    _check_version(value.version, f"{what}: what names its cursors")
    if len({each.name for each in value.cursors}) != len(value.cursors):
        raise StorageError(f"{what}: a cursor of it stands there twice")
    unknown = next((each for each in value.cursors if each.hold not in tuple(CursorHold)), None)
    if unknown is not None:
        raise StorageError(
            f"{what}: what its cursor {unknown.name!r} holds, {unknown.hold}, is not known here"
        )
    return value


def encode_cursor(value: CursorRecord) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_cursor(data: bytes, log: str = "", name: str = "") -> CursorRecord:
    """Raises StorageError for bytes that are no cursor of a version this code knows."""
    what = f"cursor {name!r} of log {log!r}" if name else "a cursor"
    value = unpack(_cursor_decoder, data, StorageError, f"{what}: these {len(data)} bytes are none")
    _check_version(value.version, what)
    return value


def _check_version(version: int, what: str) -> None:
    if version != METADATA_VERSION:
        raise StorageError(
            f"{what} has version {version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )


_named_decoder = msgspec.msgpack.Decoder(LogCursors)
_cursor_decoder = msgspec.msgpack.Decoder(CursorRecord)
