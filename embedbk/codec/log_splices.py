"""Ready-made ledgers of a log: which are staged for it, and what was spliced (P8.5), as values of the metadata quorum.

A staged ledger has a key of its own beside its metadata, made in the transaction that makes the ledger. The transaction
that splices it takes that key away, and so does the one that gives the ledger up: one of the two comes to pass.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "APPLICATIONS_MAX",
    "APPLICATION_MAX",
    "ONCE_KEPT",
    "LogSplices",
    "SpliceRequest",
    "SplicedRecord",
    "StagedRecord",
    "decode_log_splices",
    "decode_splice_request",
    "decode_staged",
    "encode_log_splices",
    "encode_splice_request",
    "encode_staged",
    "log_splices_path",
    "owner_of",
    "splice_request_path",
    "splice_requests_prefix",
    "staged_path",
    "staged_prefix",
]

APPLICATION_MAX = 200  # Characters.
_JOB_BYTES = 64
APPLICATIONS_MAX = 400  # Applications of one log whose newest version is known.
ONCE_KEPT = 100  # Beside them, the newest of the transactions that will not be run again.

_LedgerId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Application = Annotated[str, msgspec.Meta(min_length=1, max_length=APPLICATION_MAX)]
_Job = Annotated[bytes, msgspec.Meta(min_length=1, max_length=_JOB_BYTES)]


class StagedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A ledger that waits to be spliced, by one transaction (application, number) of the log whose key this is."""

    version: int
    ledger_id: _LedgerId
    application: _Application
    number: _Count  # The transaction's version; the versions of one application rise.
    job: _Job  # One attempt at the transaction, which made this ledger.
    expires_ms: _Count  # By the wall clock; after it the sweeper gives the ledger up.


class SplicedRecord(msgspec.Struct, frozen=True, array_like=True):
    """The newest transaction of an application: where its entries stand."""

    application: _Application
    number: _Count
    job: _Job
    first_offset: _Count
    end: _Count  # The offset behind its last entry.
    ledgers: _Count
    spliced_ms: _Count
    is_once: bool = (
        False  # The application runs no other transaction; this one is kept only to report its outcome.
    )


class LogSplices(msgspec.Struct, frozen=True, array_like=True):
    """The transactions that were spliced into a log, in its order."""

    version: int
    spliced: tuple[SplicedRecord, ...]

    def of(self, application: str) -> SplicedRecord | None:
        return next((each for each in self.spliced if each.application == application), None)


class SpliceRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request to the log's owner to splice staged ledgers. The client that deletes it decides whether it is done."""

    version: int
    application: _Application
    number: _Count
    job: _Job
    ledger_ids: Annotated[tuple[_LedgerId, ...], msgspec.Meta(min_length=1, max_length=1000)]
    is_once: bool
    spliced_ms: _Count  # When it comes to the log, by the asking client's clock.
    answer: str | None = None  # The owner's: why it is not spliced; "": it owns the log no more.
    # With the answer: the log has so many payload bytes, of so many that it may have (P8.8).
    reached: tuple[_Count, _Count] | None = None


def staged_prefix(name: str) -> str:
    return f"/log-staging/{name}/"


def staged_path(name: str, ledger_id: int) -> str:
    return f"{staged_prefix(name)}{ledger_id:016x}"


def log_splices_path(name: str) -> str:
    return f"/logs/{name}/splices"


def splice_requests_prefix(living: str) -> str:
    return f"/splice-requests/{living}/"


def splice_request_path(living: str, name: str) -> str:
    """A request about a log that this client owns: it is deleted with the asker's session, or by the client that
    answers."""
    return f"{splice_requests_prefix(living)}{name}"


def owner_of(owner: bytes) -> str | None:
    """The client that put this owner of a log, by its name (`living`); None: the owner's value names none."""
    found = _LIVING.search(owner)
    return found[1].decode() if found else None


_LIVING = re.compile(rb" living=([0-9a-f]{16})")


def encode_staged(record: StagedRecord) -> bytes:
    return msgspec.msgpack.encode(record)


def encode_log_splices(value: LogSplices) -> bytes:
    return msgspec.msgpack.encode(value)


def encode_splice_request(value: SpliceRequest) -> bytes:
    """Encode a request. Without a bound that was reached it is as earlier builds wrote it (P10.8)."""
    return msgspec.msgpack.encode(value if value.reached is not None else msgspec.structs.astuple(value)[:-1])


def decode_staged(data: bytes, name: str, ledger_id: int) -> StagedRecord:
    """Raises StorageError for bytes that are no such record of a version this code knows, or of another ledger."""
    what = f"what ledger {ledger_id} is staged for in log {name!r}"
    record = unpack(_staged_decoder, data, StorageError, f"{what}: these {len(data)} bytes do not say it")
    _check_version(record.version, what)
    if record.ledger_id != ledger_id:
        raise StorageError(f"{what}: ledger {record.ledger_id} stands there")
    return record


def decode_log_splices(data: bytes, name: str) -> LogSplices:
    """Raises StorageError for bytes that are no such value of a version this code knows, or name one twice."""
    what = f"what was spliced into log {name!r}"
    value = unpack(_splices_decoder, data, StorageError, f"{what}: these {len(data)} bytes do not say it")
    _check_version(value.version, what)
    if len({each.application for each in value.spliced}) != len(value.spliced):
        raise StorageError(f"{what}: an application stands there twice")
    if any(each.end < each.first_offset for each in value.spliced):
        raise StorageError(f"{what}: an end stands in front of its beginning")
    return value


def decode_splice_request(data: bytes, name: str) -> SpliceRequest:
    """Raises StorageError for bytes that are no such request of a version this code knows."""
    what = f"what the owner of log {name!r} is asked to splice"
    value = unpack(_request_decoder, data, StorageError, f"{what}: these {len(data)} bytes do not say it")
    _check_version(value.version, what)
    return value


def _check_version(version: int, what: str) -> None:
    if version != METADATA_VERSION:
        raise StorageError(
            f"{what} has version {version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )


_staged_decoder = msgspec.msgpack.Decoder(StagedRecord)
_splices_decoder = msgspec.msgpack.Decoder(LogSplices)
_request_decoder = msgspec.msgpack.Decoder(SpliceRequest)
