"""Settings of a log, kept with it (P8.7), as a value of the metadata quorum. What is nil is as usual."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from embedbk.codec.digest import DigestType
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.log_archives import ArchivePlace
from embedbk.codec.unpacking import unpack
from embedbk.config import CUSTOM_BYTES_MAX, Quorum
from embedbk.errors import StorageError, UsageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "NO_SETTINGS",
    "SETTINGS_KEY",
    "AtBound",
    "Compression",
    "RollRecord",
    "SettingsRecord",
    "decode_log_settings",
    "encode_log_settings",
    "log_settings_path",
    "properties_bytes",
]

SETTINGS_KEY = "settings"  # Follows the log's id in the key.

_FIRST_FIELDS = 10  # The fields up to the properties.
_Count = Annotated[int, msgspec.Meta(ge=1, le=LEDGER_ID_MAX)]


class AtBound(enum.IntEnum):
    """What happens when a log has as many bytes as it may have. Numbers are on disk: never re-used."""

    REFUSE = 0  # Appends are refused, until something is truncated.
    LET_GO = 1  # The oldest ledgers go, also past cursors that hold them; never past a pin.


class Compression(enum.IntEnum):
    """The method by which entries are compressed. Numbers are on disk: never re-used."""

    ZSTD = 1


class RollRecord(msgspec.Struct, frozen=True, array_like=True):
    """When a ledger is as large or old as it may be; nil: no such bound."""

    bytes: _Count | None
    entries: _Count | None
    age_ms: _Count | None


class SettingsRecord(msgspec.Struct, frozen=True, array_like=True):
    """Settings of all writers of a log. E, Qw and Qa are set together or not at all."""

    version: int
    ensemble_size: _Count | None = None
    write_quorum: _Count | None = None
    ack_quorum: _Count | None = None
    durability: int | None = None
    digest: int | None = None
    roll: RollRecord | None = None
    # The owner truncates entries that are older and beyond so many payload bytes: both must allow it (P8.8). nil: no
    # bound.
    retention_ms: _Count | None = None
    retention_bytes: Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)] | None = None
    properties: dict[str, bytes] = {}
    archive: ArchivePlace | None = None  # Only from LEVEL_OF_ARCHIVES on.
    # Payload bytes that the log may have, and what happens then, an AtBound (P8.8). Only from LEVEL_OF_BOUNDS on.
    bytes_max: _Count | None = None
    at_bytes_max: int | None = None
    compression: int | None = None  # Only from LEVEL_OF_COMPRESSION on.

    @property
    def quorum(self) -> Quorum | None:
        if self.ensemble_size is None or self.write_quorum is None or self.ack_quorum is None:
            return None
        return Quorum(self.ensemble_size, self.write_quorum, self.ack_quorum)

    @property
    def has_retention(self) -> bool:
        return self.retention_ms is not None or self.retention_bytes is not None


NO_SETTINGS = SettingsRecord(METADATA_VERSION)


def log_settings_path(name: str) -> str:
    return f"/logs/{name}/{SETTINGS_KEY}"


def properties_bytes(properties: dict[str, bytes]) -> int:
    return sum(len(name.encode()) + len(value) for name, value in properties.items())


def encode_log_settings(value: SettingsRecord) -> bytes:
    """Encode settings. Without the later fields they are as earlier builds wrote them (P10.8)."""
    fields = msgspec.structs.astuple(value)
    while len(fields) > _FIRST_FIELDS and fields[-1] is None:
        fields = fields[:-1]
    return msgspec.msgpack.encode(fields)


def decode_log_settings(data: bytes, name: str = "") -> SettingsRecord:
    """Raises StorageError for bytes that are no settings of a version this code knows, or that no log can have."""
    what = f"log {name!r}" if name else "a log"
    value = unpack(_decoder, data, StorageError, f"{what}: these {len(data)} bytes are no settings")
    if value.version != METADATA_VERSION:
        raise StorageError(
            f"{what}: its settings have version {value.version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )
    given = (value.ensemble_size, value.write_quorum, value.ack_quorum)
    try:
        is_whole = (value.quorum is not None) or given == (None, None, None)
    except UsageError as impossible:
        raise StorageError(f"{what}: its settings: {impossible}") from impossible
    if not is_whole:
        raise StorageError(f"{what}: its settings have a part of E, Qw and Qa: {given}")
    if value.durability not in (None, *Durability) or value.digest not in (None, *DigestType):
        raise StorageError(
            f"{what}: its settings have durability {value.durability} and digest {value.digest}, of which one is not "
            "known here"
        )
    if value.at_bytes_max not in (None, *AtBound) or (value.bytes_max is None) != (
        value.at_bytes_max is None
    ):
        raise StorageError(
            f"{what}: its settings have a bound of {value.bytes_max} bytes, and {value.at_bytes_max} is to happen, "
            "which is not known here"
        )
    if value.compression not in (None, *Compression):
        raise StorageError(
            f"{what}: its settings have compression {value.compression}, which is not known here"
        )
    if properties_bytes(value.properties) > CUSTOM_BYTES_MAX:
        raise StorageError(f"{what}: its properties have more than {CUSTOM_BYTES_MAX} bytes")
    return value


_decoder = msgspec.msgpack.Decoder(SettingsRecord)
