"""Ledger metadata as values of the metadata quorum (P2.1): what they hold, and their bytes. Lists of logs are
`log_list`'s.

The bytes are MessagePack arrays behind one version number; fields are only ever appended (WIRE.md section 4).
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from embedbk.codec.digest import DigestType
from embedbk.codec.field_types import METADATA_VERSION, Count, EntryId, LastEntry, LedgerId
from embedbk.codec.freed_ledger import LOG_OF_LEDGER, Freed
from embedbk.codec.living import LIVING_PATTERN
from embedbk.codec.log_list import (
    SEAL_REASON_MAX,
    Begun,
    LedgersLeft,
    LogList,
    LogPages,
    LogSeal,
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    encode_log_list,
    log_deleting_path,
    log_key_path,
    log_left_path,
    log_owner_path,
    log_truncated_path,
)
from embedbk.codec.lost_entries import LOSSES_MAX, Losses
from embedbk.codec.unpacking import unpack
from embedbk.config import ENSEMBLE_SIZE_MAX, Quorum
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN, NO_ENTRY, Member

__all__ = [
    "LEDGERS_PREFIX",
    "METADATA_VERSION",
    "SEAL_REASON_MAX",
    "Begun",
    "Durability",
    "PublishedSums",
    "Fragment",
    "LedgerMetadata",
    "LedgerState",
    "LedgersLeft",
    "LogList",
    "LogPages",
    "LogSeal",
    "LogSegment",
    "decode_changed_metadata",
    "decode_ledger_metadata",
    "decode_ledgers_left",
    "decode_log_list",
    "encode_ledger_metadata",
    "encode_ledgers_left",
    "encode_log_list",
    "first_fragments",
    "ledger_key_path",
    "ledger_of_key",
    "log_deleting_path",
    "log_key_path",
    "log_left_path",
    "log_owner_path",
    "log_truncated_path",
]

LEDGERS_PREFIX = "/ledgers/"

# msgspec bounds no number above 2^63 - 1; the format has none above 2^64 - 1.
_Digest = Annotated[int, msgspec.Meta(ge=0)]
_BookieId = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]


class LedgerState(enum.IntEnum):
    """OPEN -> IN_RECOVERY -> CLOSED or OPEN -> CLOSED, never back (P2.3). Numbers are on disk: never re-used."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Durability(enum.IntEnum):
    """What an append to the ledger waits for (P3.2). Numbers are on disk: never re-used."""

    SYNCED = 0  # On the disks of Qa bookies.
    DEFERRED = 1  # In the memory of Qa bookies; the LAC follows when they have synced it.


class Fragment(msgspec.Struct, frozen=True, array_like=True):
    """The ensemble that holds the entries from first_entry on, up to the next fragment's first (P1)."""

    first_entry: EntryId
    # Payload bytes of the ledger before first_entry: the length when recovery finds nothing more.
    length_before: Count
    # E distinct (bookie id, incarnation) in seat order; of a ledger that was freed none.
    ensemble: tuple[tuple[_BookieId, _Incarnation], ...]

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


class PublishedSums(msgspec.Struct, frozen=True, array_like=True):
    """The sums of the digests of entries first_entry..last_entry, modulo 2^64, by residue of their ids (P11.4): what
    their writer made, said by it when they were acknowledged."""

    first_entry: EntryId
    last_entry: EntryId
    digests: Annotated[tuple[_Digest, ...], msgspec.Meta(min_length=1, max_length=ENSEMBLE_SIZE_MAX)]


_quorum_of = lru_cache(maxsize=256)(Quorum)


# gc=False: no cycle can lead through it, and of very many open ledgers each has one for the garbage collector to walk.
class LedgerMetadata(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything that the cluster knows of a ledger (P2.1). Replaced whole, by compare-and-set on its revision
    (P2.2)."""

    version: int
    ledger_id: LedgerId
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: int
    last_entry: LastEntry | None  # None unless CLOSED; NO_ENTRY when it closed empty.
    length: Count | None
    password_verifier: bytes  # A digest of the ledger key, never the password (CL05, CL34).
    created_ms: Count
    custom: dict[str, bytes]
    fragments: tuple[Fragment, ...]
    durability: int = Durability.SYNCED
    digest: int = DigestType.CRC32C
    # Only in a CLOSED ledger: entries that operators gave up, the newest decision last (P11.5).
    lost: Annotated[tuple[Losses, ...], msgspec.Meta(max_length=LOSSES_MAX)] = ()
    freed: Freed | None = (
        None  # Only in a CLOSED ledger: files are its copies, and no fragment names a bookie (P8.14).
    )
    # The client that made it, and alone writes to it, by the name under which it shows that it lives (`living`, P11.2).
    # Empty: that cannot be told. Only from LEVEL_OF_WRITERS on.
    writer: Annotated[str, msgspec.Meta(pattern=LIVING_PATTERN)] = ""
    # What the writer published of fragments that ended, ascending. Only from LEVEL_OF_SUMS on.
    sums: tuple[PublishedSums, ...] = ()

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


def ledger_key_path(ledger_id: int) -> str:
    return f"{LEDGERS_PREFIX}{ledger_id:016x}"


def ledger_of_key(key: str, prefix: str = LEDGERS_PREFIX) -> int | None:
    """The ledger whose key this is under a prefix; None for any other key, which every client may put there."""
    digits = key[len(prefix) :]
    if not key.startswith(prefix) or len(digits) != 16 or digits.strip(_HEX_DIGITS):
        return None
    ledger_id = int(digits, 16)
    return ledger_id if ledger_id <= LEDGER_ID_MAX else None


_HEX_DIGITS = "0123456789abcdef"


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """One of which nothing is lost, whose bookies have copies, whose writer is not named, and of which no sums are
    published, is written as earlier builds write it (P10.8)."""
    if metadata.sums:
        return msgspec.msgpack.encode(metadata)
    unused = 1 if metadata.writer else 2 if metadata.freed is not None else 3 if metadata.lost else 4
    return msgspec.msgpack.encode(msgspec.structs.astuple(metadata)[:-unused])


def decode_ledger_metadata(data: bytes, ledger_id: int | None = None) -> LedgerMetadata:
    """The metadata of a ledger: of this one, where one is given.

    Raises StorageError for bytes that are no metadata of a version this code knows, and for values that no ledger can
    have: every user of the result relies on all that is checked here.
    """
    name = "a ledger" if ledger_id is None else f"ledger {ledger_id}"
    metadata = unpack(
        _metadata_decoder, data, StorageError, f"{name}: these {len(data)} bytes are no ledger metadata"
    )
    if metadata.version != METADATA_VERSION:
        raise StorageError(
            f"{name}: its metadata has version {metadata.version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this ledger; nothing of it was changed",
        )
    why = _why_impossible(metadata, ledger_id)
    if why:
        raise StorageError(f"ledger {metadata.ledger_id}: {why}")
    return metadata


def decode_changed_metadata(data: bytes, known: LedgerMetadata) -> LedgerMetadata:
    """As `decode_ledger_metadata`, of a ledger whose earlier metadata is known: fields that never change are as they
    were, the state does not go back, and the end of a closed ledger stays (P2.3). Only one that is CLOSED gets other
    numbers of copies (P2.6)."""
    metadata = decode_ledger_metadata(data, known.ledger_id)
    before, after = _lasting(known), _lasting(metadata)
    if not metadata.is_closed:
        before, after = (known.quorum, *before), (metadata.quorum, *after)
    if before != after:
        raise StorageError(
            f"ledger {known.ledger_id}: {after} stands in its metadata, and it was made with {before}"
        )
    end_before, end = (known.last_entry, known.length), (metadata.last_entry, metadata.length)
    if metadata.state < known.state or (known.is_closed and end_before != end):
        raise StorageError(
            f"ledger {known.ledger_id} went back from {LedgerState(known.state).name} at {end_before} to "
            f"{LedgerState(metadata.state).name} at {end} (P2.3): was metadata put back from an older copy?"
        )
    if metadata.lost[: len(known.lost)] != known.lost:
        raise StorageError(
            f"ledger {known.ledger_id}: entries that were given up are said to be there again (P11.5)"
        )
    return metadata


def _lasting(metadata: LedgerMetadata) -> tuple[Any, ...]:
    return (metadata.password_verifier, metadata.durability, metadata.digest)


def _why_impossible(metadata: LedgerMetadata, ledger_id: int | None) -> str:
    """The fault of these values, which no ledger can have; empty: they are sound."""
    if ledger_id not in (None, metadata.ledger_id):
        return f"its metadata stands in the place of that of ledger {ledger_id}"
    if metadata.durability not in tuple(Durability):
        return f"its durability {metadata.durability} is not known here"
    if metadata.digest not in tuple(DigestType):
        return f"its digest {metadata.digest} is not known here"
    if metadata.state not in tuple(LedgerState):
        return f"its state {metadata.state} is not known here"
    has_end = metadata.last_entry is not None and metadata.length is not None
    has_part = metadata.last_entry is not None or metadata.length is not None
    if has_end != metadata.is_closed or has_part != has_end:
        return f"{LedgerState(metadata.state).name}, with last entry {metadata.last_entry} and length {metadata.length}"
    try:
        quorum = metadata.quorum
    except UsageError as impossible:
        return str(impossible)
    starts = [fragment.first_entry for fragment in metadata.fragments]
    if not starts or starts[0] != 0 or any(a >= b for a, b in zip(starts, starts[1:], strict=False)):
        return f"its fragments start at {starts[:9]}, want 0 and rising (P2.4)"
    seats = 0 if metadata.freed is not None else quorum.ensemble_size
    for fragment in metadata.fragments:
        if not len(set(fragment.ensemble)) == len(fragment.ensemble) == seats:
            return f"a fragment does not hold {seats} distinct bookies (P2.4)"
    return _why_not_freed(metadata) or _why_not_lost(metadata) or _why_no_sums(metadata)


def _why_not_freed(metadata: LedgerMetadata) -> str:
    """The fault of a ledger whose copies are files; empty: that is sound, or bookies have them."""
    if metadata.freed is None:
        return ""
    if metadata.last_entry is None or metadata.last_entry == NO_ENTRY or metadata.lost:
        return "its copies are files, and it is not closed, is empty, or entries of it were given up (P8.14)"
    if LOG_OF_LEDGER not in metadata.custom:
        return "its copies are files, and it is no log's, so that nobody finds them (P8.14)"
    return ""


def _why_no_sums(metadata: LedgerMetadata) -> str:
    """The fault of the sums that it names; empty: they are sound. They may go beyond an end that an operator named
    (P11.5)."""
    before = NO_ENTRY
    for each in metadata.sums:
        if not before < each.first_entry <= each.last_entry:
            return (
                f"sums of entries {each.first_entry} to {each.last_entry}, behind those up to entry {before}"
            )
        before = each.last_entry
    return ""


def _why_not_lost(metadata: LedgerMetadata) -> str:
    """The fault of the losses that it names; empty: they are sound."""
    if not metadata.lost:
        return ""
    if metadata.last_entry is None:
        return f"{LedgerState(metadata.state).name}, and entries of it were given up (P11.5)"
    for word in metadata.lost:
        for first, last, step in word.runs:
            fits = first <= last <= metadata.last_entry and (last - first) % step == 0
            if not fits or step not in (1, metadata.ensemble_size):
                return f"lost entries {first} to {last}, one of {step}, of a ledger that ends at {metadata.last_entry}"
    return ""


_metadata_decoder = msgspec.msgpack.Decoder(LedgerMetadata)
