"""Ledger metadata and log lists as values of the metadata quorum (P2.1, P8): what they hold, and their bytes.

The bytes are MessagePack arrays behind one version number; fields are only ever appended (WIRE.md section 4).
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from embedbk.codec.digest import DigestType
from embedbk.config import Quorum
from embedbk.errors import StorageError
from embedbk.ids import Member

__all__ = [
    "LEDGERS_PREFIX",
    "METADATA_VERSION",
    "Durability",
    "Fragment",
    "LedgerMetadata",
    "LedgerState",
    "LedgersLeft",
    "LogList",
    "LogSegment",
    "decode_ledger_metadata",
    "decode_ledgers_left",
    "decode_log_list",
    "encode_ledger_metadata",
    "encode_ledgers_left",
    "encode_log_list",
    "first_fragments",
    "ledger_key_path",
    "log_key_path",
    "log_left_path",
    "log_owner_path",
]

METADATA_VERSION = 1
LEDGERS_PREFIX = "/ledgers/"


class LedgerState(enum.IntEnum):
    """OPEN -> IN_RECOVERY -> CLOSED or OPEN -> CLOSED, never back (P2.3). Numbers are on disk: never re-used."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Durability(enum.IntEnum):
    """What an append of the ledger waits for (P3.2). Numbers are on disk: never re-used."""

    SYNCED = 0  # On the disks of Qa bookies.
    DEFERRED = 1  # In the memory of Qa bookies; the LAC follows when they have synced it.


class Fragment(msgspec.Struct, frozen=True, array_like=True):
    """The ensemble that holds the entries from first_entry on, up to the next fragment's first (P1)."""

    first_entry: int
    length_before: (
        int  # Payload bytes of the ledger before first_entry: the length when recovery finds nothing more.
    )
    ensemble: tuple[tuple[str, bytes], ...]  # E distinct (bookie id, incarnation) in seat order.

    @property
    def members(self) -> tuple[Member, ...]:
        return _members_of(self.ensemble)


# Very many ledgers share few ensembles and quorums: one object for all that are equal.


@lru_cache(maxsize=4096)
def _members_of(ensemble: tuple[tuple[str, bytes], ...]) -> tuple[Member, ...]:
    return tuple(Member(*seat) for seat in ensemble)


@lru_cache(maxsize=4096)
def first_fragments(members: tuple[Member, ...]) -> tuple[Fragment, ...]:
    """The fragments of a new ledger whose seats these have."""
    return (Fragment(0, 0, members),)


_quorum_of = lru_cache(maxsize=256)(Quorum)


# gc=False: no cycle can lead through it, and of very many open ledgers each has one for the garbage collector to walk.
class LedgerMetadata(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All the cluster knows of a ledger (P2.1). Replaced whole, by compare-and-set on its revision (P2.2)."""

    version: int
    ledger_id: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: int
    last_entry: int | None  # None unless CLOSED; NO_ENTRY when it closed empty.
    length: int | None
    password_verifier: bytes  # A digest of the ledger key, never the password (CL05, CL34).
    created_ms: int
    custom: dict[str, bytes]
    fragments: tuple[Fragment, ...]
    durability: int = Durability.SYNCED
    digest: int = DigestType.CRC32C

    @property
    def quorum(self) -> Quorum:
        return _quorum_of(self.ensemble_size, self.write_quorum, self.ack_quorum)

    @property
    def is_closed(self) -> bool:
        return self.state == LedgerState.CLOSED

    def fragment_of(self, entry_id: int) -> Fragment:
        """The fragment that entry_id belongs to; an entry belongs to exactly one."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry <= entry_id:
                return fragment
        raise AssertionError(f"entry {entry_id} is below the first fragment")

    def with_changes(self, **changes: Any) -> LedgerMetadata:
        """A copy with some fields replaced."""
        return msgspec.structs.replace(self, **changes)


class LogSegment(msgspec.Struct, frozen=True, array_like=True):
    """One ledger of a log's list. last_entry is None until the list records that the ledger is closed (P8.1)."""

    ledger_id: int
    first_offset: int  # Dense position in the log of the ledger's entry 0; from closed lengths.
    last_entry: int | None


class LogList(msgspec.Struct, frozen=True, array_like=True):
    """A log's ordered list of ledgers under one key (P1, P8); epoch is its present owner's fencing token (P9)."""

    version: int
    epoch: int
    segments: tuple[LogSegment, ...]


class LedgersLeft(msgspec.Struct, frozen=True, array_like=True):
    """Ledgers that left a log's list and are to be deleted (P8.3). In the transaction that takes them off the list they
    are put here, so that a crash loses none of them; no reader of the log looks here."""

    version: int
    ledger_ids: tuple[int, ...]


def ledger_key_path(ledger_id: int) -> str:
    return f"{LEDGERS_PREFIX}{ledger_id:016x}"


def log_key_path(name: str) -> str:
    return f"/logs/{name}/list"


def log_owner_path(name: str) -> str:
    return f"/logs/{name}/owner"


def log_left_path(name: str) -> str:
    return f"/logs/{name}/left"


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    return msgspec.msgpack.encode(metadata)


def encode_log_list(value: LogList) -> bytes:
    return msgspec.msgpack.encode(value)


def encode_ledgers_left(value: LedgersLeft) -> bytes:
    return msgspec.msgpack.encode(value)


def decode_ledger_metadata(data: bytes) -> LedgerMetadata:
    """Raises StorageError for bytes that are not ledger metadata of a version this code knows."""
    metadata = _decode(data, LedgerMetadata, "ledger metadata")
    if metadata.durability not in tuple(Durability):
        raise StorageError(
            f"ledger {metadata.ledger_id}: its durability {metadata.durability} is not known here"
        )
    if metadata.digest not in tuple(DigestType):
        raise StorageError(f"ledger {metadata.ledger_id}: its digest {metadata.digest} is not known here")
    starts = [fragment.first_entry for fragment in metadata.fragments]
    if not starts or starts[0] != 0 or any(a >= b for a, b in zip(starts, starts[1:], strict=False)):
        raise StorageError(
            f"ledger {metadata.ledger_id}: its fragments start at {starts}, want 0 and rising (P2.4)"
        )
    for fragment in metadata.fragments:
        if (
            len(set(fragment.ensemble)) != metadata.ensemble_size
            or len(fragment.ensemble) != metadata.ensemble_size
        ):
            raise StorageError(
                f"ledger {metadata.ledger_id}: a fragment does not hold E distinct bookies (P2.4)"
            )
    return metadata


def decode_log_list(data: bytes) -> LogList:
    """Raises StorageError for bytes that are not a log list of a version this code knows."""
    return _decode(data, LogList, "log list")


def decode_ledgers_left(data: bytes) -> LedgersLeft:
    """Raises StorageError for bytes that are no such list of a version this code knows."""
    return _decode(data, LedgersLeft, "list of ledgers that left their log")


_Value = TypeVar("_Value", LedgerMetadata, LogList, LedgersLeft)


def _decode(data: bytes, kind: type[_Value], what: str) -> _Value:
    try:
        value = msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as broken:
        raise StorageError(f"these {len(data)} bytes are no {what}: {broken}") from broken
    if value.version != METADATA_VERSION:
        raise StorageError(f"{what} has version {value.version}; this embedbk knows {METADATA_VERSION}")
    return value
