"""Where a log is archived, and how far each of its ledgers is, as values of the metadata quorum (P8.14).

Each ledger has a key of its own under the log, so that a job changes one without comparing the others. What an archive
holds stands in files; here stands only which manifest counts, by its hash, and whether another epoch has verified it.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.freed_ledger import ARCHIVE_ID_BYTES, ARCHIVE_PATH_MAX, MANIFEST_HASH_BYTES
from embedbk.codec.ledger_metadata import ledger_of_key
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "ARCHIVES_PREFIX",
    "ARCHIVE_ID_BYTES",
    "ARCHIVE_PATH_MAX",
    "MANIFEST_HASH_BYTES",
    "ArchivePlace",
    "ArchiveRecord",
    "ArchiveState",
    "archive_lock_name",
    "archive_path",
    "archive_prefix",
    "archived_ledger",
    "decode_archive_record",
    "encode_archive_record",
]

ARCHIVES_PREFIX = "/log-archives/"
_LedgerId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]


class ArchiveState(enum.IntEnum):
    """States of the archive of one ledger. Numbers are on disk: never re-used."""

    COPYING = 1  # Files may be there; none of them counts.
    COPIED = 2  # The manifest names all files; nobody but their writer has looked at them.
    VERIFIED = 3  # A job of another epoch has read all of them.


class ArchivePlace(msgspec.Struct, frozen=True, array_like=True):
    """A directory with archives, part of a log's settings. The id stands in a file there, too: a directory without that
    id is another one, or is not mounted."""

    archive_id: Annotated[bytes, msgspec.Meta(min_length=ARCHIVE_ID_BYTES, max_length=ARCHIVE_ID_BYTES)]
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=ARCHIVE_PATH_MAX)]


class ArchiveRecord(msgspec.Struct, frozen=True, array_like=True):
    """How far the archive of one ledger is."""

    version: int
    ledger_id: _LedgerId
    state: int
    epoch: _Count  # Epoch of the job that copies, or copied.
    slice_entries: Annotated[
        int, msgspec.Meta(ge=1, le=LEDGER_ID_MAX)
    ]  # In a file; the last has what is left.
    last_entry: _Count  # The ledger's last entry; it is closed.
    manifest: Annotated[
        bytes, msgspec.Meta(max_length=MANIFEST_HASH_BYTES)
    ]  # Its hash; empty while it is copied.
    verified_epoch: _Count  # Epoch of the job that verified it last; 0: none did.
    changed_ms: _Count  # By the wall clock of the process that changed it.


def archive_prefix(log_id: str) -> str:
    return f"{ARCHIVES_PREFIX}{log_id}/"


def archive_path(log_id: str, ledger_id: int) -> str:
    return f"{archive_prefix(log_id)}{ledger_id:016x}"


def archived_ledger(key: str, log_id: str) -> int | None:
    """The ledger whose key this is; None for any other key, which every client may put there."""
    return ledger_of_key(key, archive_prefix(log_id))


def archive_lock_name(log_id: str) -> str:
    """The lock of the one job that works on a log's archive. No lock of users has such a name."""
    return f"archive:{log_id}"


def encode_archive_record(value: ArchiveRecord) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_archive_record(data: bytes, ledger_id: int) -> ArchiveRecord:
    """Raises StorageError for bytes that are no record of this ledger in a version that this code knows, and for values
    that no ledger can have."""
    what = f"the archive of ledger {ledger_id}"
    value = unpack(_decoder, data, StorageError, f"{what}: these {len(data)} bytes are no record of it")
    if value.version != METADATA_VERSION or value.state not in tuple(ArchiveState):
        raise StorageError(
            f"{what}: its record has version {value.version} and state {value.state}; this embedbk knows version "
            f"{METADATA_VERSION} and states 1 to {max(ArchiveState)}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )
    if value.ledger_id != ledger_id:
        raise StorageError(f"{what}: the record of ledger {value.ledger_id} stands in its place")
    if len(value.manifest) != (0 if value.state == ArchiveState.COPYING else MANIFEST_HASH_BYTES):
        raise StorageError(
            f"{what}: {ArchiveState(value.state).name}, with a hash of {len(value.manifest)} bytes"
        )
    if value.state == ArchiveState.VERIFIED and value.verified_epoch <= value.epoch:
        raise StorageError(
            f"{what}: verified under epoch {value.verified_epoch}, not behind epoch {value.epoch}, which wrote it"
        )
    return value


_decoder = msgspec.msgpack.Decoder(ArchiveRecord)
