"""What a log is and what it is called (P8.12), as values of the metadata quorum: its id, which never changes, and the
name that points to it.

An id is one of two kinds. A log that is made from LEVEL_OF_LOG_IDS on has a minted one, which no name can look like.
One from before has the name under which it was made: its keys and its ledgers say that already, so it is carried over
by putting a pointer and an identity beside them.
"""

from __future__ import annotations

import enum
import re
from typing import Annotated

import msgspec

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX, NAME_PATTERN

__all__ = [
    "IDENTITIES_PREFIX",
    "LOG_ID_BITS",
    "NAMES_PREFIX",
    "LogIdentityState",
    "LogId",
    "LogIdentity",
    "LogPointer",
    "decode_log_identity",
    "decode_log_pointer",
    "encode_log_identity",
    "encode_log_pointer",
    "is_log_id",
    "is_minted",
    "log_deleted_path",
    "log_identity_path",
    "log_name_path",
    "minted",
]

NAMES_PREFIX = "/log-names/"
IDENTITIES_PREFIX = "/log-ids/"
LOG_ID_BITS = 64  # Random bits in a minted id.

_MINTED = re.compile(r"\A~[0-9a-f]{16}\Z")
_LOG_ID = re.compile(rf"{NAME_PATTERN}|{_MINTED.pattern}")

_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_LogIdText = Annotated[str, msgspec.Meta(pattern=_LOG_ID.pattern)]


class LogId(str):
    """The id of a log, as keys and ledgers have it. What people read in a message is the name by which it was found,
    which is its repr."""

    __slots__ = ("called",)
    called: str

    def __new__(cls, log_id: str, called: str = "") -> LogId:
        made = super().__new__(cls, log_id)
        made.called = called or log_id
        return made

    def __repr__(self) -> str:
        return repr(self.called)


class LogIdentityState(enum.IntEnum):
    """What has become of a log. Numbers are on disk: never re-used."""

    NAMED = 1  # Exactly one name points to it.
    DELETED = 2  # None does; it can be brought back (P8.13).
    ENDING = 3  # Its grace is over: its list is gone, and its ledgers are being deleted.
    GONE = 4  # Its ledgers are gone, too. Kept for an id that is a name, so that no other log ever has it.


class LogIdentity(msgspec.Struct, frozen=True, array_like=True):
    """The value under the id of a log; it changes with the log's name. A takeover of the log compares it."""

    version: int
    name: _Name  # The name that points to it; for a deleted log, the last that did.
    state: int
    deleted_ms: _Count = 0  # Since 1970, for people.
    until_ms: _Count = 0  # Until then it can be brought back for certain; after it until it is forgotten.
    is_forced: bool = False  # It was deleted although its last ledger was not closed.


class LogPointer(msgspec.Struct, frozen=True, array_like=True):
    """The value under a name: the log that it points to."""

    version: int
    log_id: _LogIdText


def log_name_path(name: str) -> str:
    return NAMES_PREFIX + name


def log_identity_path(log_id: str) -> str:
    return IDENTITIES_PREFIX + log_id


def log_deleted_path(log_id: str) -> str:
    """The key of a deleted log's list, which stands there byte for byte until it is brought back or its ledgers go
    (P8.13)."""
    return f"/logs/{log_id}/deleted"


def minted(bits: int) -> str:
    """A new id of LOG_ID_BITS random bits."""
    return f"~{bits:016x}"


def is_minted(log_id: str) -> bool:
    return _MINTED.match(log_id) is not None


def is_log_id(text: str) -> bool:
    return _LOG_ID.match(text) is not None


def encode_log_identity(value: LogIdentity) -> bytes:
    return msgspec.msgpack.encode(value)


def encode_log_pointer(value: LogPointer) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_log_identity(data: bytes, log_id: str) -> LogIdentity:
    """Raises StorageError for bytes that are no identity of a version and a state that this code knows."""
    what = f"the identity of log {log_id}"
    value = unpack(_identity_decoder, data, StorageError, f"{what}: these {len(data)} bytes are none")
    _check_version(value.version, what)
    if value.state not in tuple(LogIdentityState):
        raise StorageError(f"{what}: its state {value.state} is not known here")
    return value


def decode_log_pointer(data: bytes, name: str) -> LogPointer:
    """Raises StorageError for bytes that point to no log, or are of a version to come."""
    what = f"what the log name {name!r} points to"
    value = unpack(_pointer_decoder, data, StorageError, f"{what}: these {len(data)} bytes do not say it")
    _check_version(value.version, what)
    return value


def _check_version(version: int, what: str) -> None:
    if version != METADATA_VERSION:
        raise StorageError(
            f"{what} has version {version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )


_identity_decoder = msgspec.msgpack.Decoder(LogIdentity)
_pointer_decoder = msgspec.msgpack.Decoder(LogPointer)
