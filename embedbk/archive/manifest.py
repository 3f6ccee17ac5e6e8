"""The manifest of one ledger's archive: which files it has, and what stands in them.

Decides its bytes and its name. The metadata says which manifest counts, by the hash of these bytes (P8.14), which cover
the hashes of all files. It is JSON, so that anybody can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.freed_ledger import LOG_OF_LEDGER, Freed
from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX
from embedbk.repair.published import published_total

__all__ = [
    "MANIFEST_VERSION",
    "MANIFEST_BYTES_MAX",
    "MANIFEST_PREFIX",
    "FilePart",
    "Manifest",
    "decode_manifest",
    "encode_manifest",
    "file_name",
    "ledger_facts",
    "manifest_hash",
    "manifest_name",
    "metadata_of",
    "why_not_as_written",
]

MANIFEST_VERSION = 1
MANIFEST_BYTES_MAX = 64 << 20
MANIFEST_PREFIX = "_manifest-"
_NAME_HEX = 12  # Hex digits of a digest in file names.

_Id = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_Sha = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
_FileName = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]+-[0-9]+-[0-9a-f]{12}\.parquet\Z")]


class FilePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: the entries first_entry..last_entry, both included."""

    name: _FileName
    bytes: _Id
    sha256: _Sha
    first_entry: _Id
    last_entry: _Id
    rows: _Id
    payload_bytes: _Id
    digest: _Digest  # The sum of the entries' digests.


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is archived of one ledger, in order and without a gap."""

    version: int
    log_id: str
    log_name: str  # The log's name at that time.
    ledger_id: _Id
    first_offset: _Id
    last_entry: _Id
    ledger: dict[str, Any]  # Its metadata, for people and for a restore.
    files: tuple[FilePart, ...]


def file_name(first_entry: int, last_entry: int, digest: int) -> str:
    return f"{first_entry}-{last_entry}-{digest:016x}"[: -(16 - _NAME_HEX)] + ".parquet"


def ledger_facts(metadata: LedgerMetadata) -> dict[str, Any]:
    """The metadata for JSON: bytes as hex digits; what the user attached as text where it is text."""
    facts: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(
            {name: getattr(metadata, name) for name in metadata.__struct_fields__}, enc_hook=str
        )
    )
    facts["custom"] = {name: value.decode(errors="replace") for name, value in metadata.custom.items()}
    facts.pop("password_verifier")  # A reader of the files does not need it.
    facts["fragments"] = [
        {"first_entry": each.first_entry, "bookies": [member.bookie_id for member in each.members]}
        for each in metadata.fragments
    ]
    return facts


def metadata_of(manifest: Manifest, password_verifier: bytes, freed: Freed) -> LedgerMetadata:
    """The metadata of this ledger as a freed one, with one fragment: where the others began the manifest does not say
    whole, and no bookie holds anything of it.

    Raises StorageError: the manifest has no such metadata, or something attached to the ledger was no text.
    """
    facts, what = manifest.ledger, f"the manifest of ledger {manifest.ledger_id} of log {manifest.log_id!r}"
    try:
        custom = {str(name): str(value).encode() for name, value in facts["custom"].items()}
        made = LedgerMetadata(
            METADATA_VERSION,
            manifest.ledger_id,
            facts["ensemble_size"],
            facts["write_quorum"],
            facts["ack_quorum"],
            LedgerState.CLOSED,
            manifest.last_entry,
            sum(part.payload_bytes for part in manifest.files),
            password_verifier,
            facts["created_ms"],
            custom,
            (Fragment(0, 0, ()),),
            facts["durability"],
            facts["digest"],
            freed=freed,
        )
        decode_ledger_metadata(encode_ledger_metadata(made), manifest.ledger_id)
    except (KeyError, TypeError, AttributeError, ValueError, StorageError) as strange:
        raise StorageError(
            f"{what}: the ledger's metadata cannot be made from it: {type(strange).__name__}: {strange}"
        ) from strange
    if made.custom.get(LOG_OF_LEDGER) != manifest.log_id.encode() or any(
        "\N{REPLACEMENT CHARACTER}" in str(value) for value in facts["custom"].values()
    ):
        raise StorageError(f"{what}: it names another log, or what was attached to the ledger was no text")
    if facts.get("lost"):
        raise StorageError(f"{what}: entries of the ledger were given up, and its files have not all")
    return made


def why_not_as_written(metadata: LedgerMetadata, files: Sequence[FilePart]) -> str:
    """Why the entries in all files of a ledger are not those that its writer published (P11.4); empty: they are, or
    nobody can tell."""
    wanted, found = published_total(metadata), sum(int(each.digest, 16) for each in files) & DIGEST_MASK
    if wanted in (None, found):
        return ""
    return f"the digest of its entries is {found:016x}, and {wanted:016x} is what its writer published"


def encode_manifest(value: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def manifest_hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def manifest_name(sha256: bytes) -> str:
    return f"{MANIFEST_PREFIX}{sha256.hex()[:_NAME_HEX]}.json"


def decode_manifest(data: bytes, log_id: str, ledger_id: int) -> Manifest:
    """Raises StorageError: these bytes are no manifest of this ledger, or its files do not cover the whole ledger."""
    what = f"the manifest of ledger {ledger_id} of log {log_id!r}"
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as unread:
        raise StorageError(f"{what}: these {len(data)} bytes are none: {unread}") from unread
    if value.version != MANIFEST_VERSION:
        raise StorageError(f"{what}: it has version {value.version}; this embedbk knows {MANIFEST_VERSION}")
    if (value.log_id, value.ledger_id) != (log_id, ledger_id):
        raise StorageError(
            f"{what}: that of ledger {value.ledger_id} of log {value.log_id!r} stands in its place"
        )
    following = 0
    for part in value.files:
        named = file_name(part.first_entry, part.last_entry, int(part.digest, 16))
        if part.first_entry != following or part.last_entry < part.first_entry or part.name != named:
            raise StorageError(f"{what}: {part.name!r} is not what follows entry {following - 1}")
        following = part.last_entry + 1
    if following != value.last_entry + 1:
        raise StorageError(
            f"{what}: its files end at entry {following - 1}, and the ledger at {value.last_entry}"
        )
    return value


_decoder = msgspec.json.Decoder(Manifest)
