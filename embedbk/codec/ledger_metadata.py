"""Ledger metadata and log lists as values of the metadata quorum (P2.1, P8): what they hold, and their bytes.

The bytes are MessagePack arrays behind one version number; fields are only ever appended (WIRE.md section 4).
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from embedbk.codec.digest import DigestType
from embedbk.codec.freed_ledger import LOG_OF_LEDGER, Freed
from embedbk.codec.living import LIVING_PATTERN
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

METADATA_VERSION = 1
LEDGERS_PREFIX = "/ledgers/"
SEAL_REASON_MAX = 200  # Characters.

# Bounds of these fields, which every client may write; msgspec refuses the rest while it decodes.
_LedgerId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
# Half of the range of entry ids, as of a LAC: a request for ids behind it still has possible ids.
_EntryId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX // 2)]
_LastEntry = Annotated[int, msgspec.Meta(ge=NO_ENTRY, le=LEDGER_ID_MAX // 2)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
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

    first_entry: _EntryId
    # Payload bytes of the ledger before first_entry: the length when recovery finds nothing more.
    length_before: _Count
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

    first_entry: _EntryId
    last_entry: _EntryId
    digests: Annotated[tuple[_Digest, ...], msgspec.Meta(min_length=1, max_length=ENSEMBLE_SIZE_MAX)]


_quorum_of = lru_cache(maxsize=256)(Quorum)


# gc=False: no cycle can lead through it, and of very many open ledgers each has one for the garbage collector to walk.
class LedgerMetadata(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything that the cluster knows of a ledger (P2.1). Replaced whole, by compare-and-set on its revision
    (P2.2)."""

    version: int
    ledger_id: _LedgerId
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: int
    last_entry: _LastEntry | None  # None unless CLOSED; NO_ENTRY when it closed empty.
    length: _Count | None
    password_verifier: bytes  # A digest of the ledger key, never the password (CL05, CL34).
    created_ms: _Count
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


class Begun(enum.IntEnum):
    """Why a ledger of a log was begun (P8.6). Numbers are on disk: never re-used."""

    UNKNOWN = 0  # By a build that did not say.
    TAKEOVER = 1
    REQUEST = 2
    BYTES = 3
    ENTRIES = 4
    AGE = 5
    FAILURE = 6
    SETTINGS = 7
    SPLICE = 8  # It was ready-made, and spliced in then (P8.5).


class LogSegment(msgspec.Struct, frozen=True, array_like=True):
    """One ledger of a log's list. last_entry is None until the list records that the ledger is closed (P8.1)."""

    ledger_id: _LedgerId
    # Dense position in the log of the ledger's entry 0; from closed lengths. None while the ledger before it is not
    # recorded as closed: its owner prepared it, or writes to it already (P8.2).
    first_offset: _Count | None
    last_entry: _LastEntry | None
    created_ms: _Count = 0  # Since 1970; 0: unknown.
    begun: int = Begun.UNKNOWN
    length: _Count | None = (
        None  # Payload bytes; None until the list records the end, or as no build said it.
    )


class LogPages(msgspec.Struct, frozen=True, array_like=True):
    """Where the older ledgers of a log are listed, under keys of their own (`log_pages`): pages `first` to `end` - 1.
    The first `skipped` ledgers of the oldest page were truncated (P8.3, P8.6)."""

    series: _LedgerId  # Names the keys: of the first ledger that was ever put there, so no two logs have the same.
    first: _Count
    end: _Count
    skipped: _Count
    first_offset: _Count  # Offset of the oldest ledger of the log: everything before it was truncated.
    ledgers: _Count  # In these pages, without those that are skipped.
    length: _Count  # Their payload bytes, as far as they were recorded.
    last: tuple[_LedgerId, _EntryId] | None = None  # The last entry in front of the list's own ledgers.
    is_mixed: bool = False  # Ids do not rise along them, as ready-made ledgers stand among them (P8.5).


class LogSeal(msgspec.Struct, frozen=True, array_like=True):
    """Nothing is ever appended to the log any more (P8.9)."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=SEAL_REASON_MAX)]
    sealed_ms: _Count  # Since 1970.
    by: Annotated[str, msgspec.Meta(max_length=512)]  # For people.


class LogList(msgspec.Struct, frozen=True, array_like=True):
    """A log's ordered list of ledgers under one key (P1, P8); epoch is its present owner's fencing token (P9). A long
    list has only the newest ledgers here; the older ones stand in pages."""

    version: int
    epoch: _Count
    segments: tuple[LogSegment, ...]
    pages: LogPages | None = None
    seal: LogSeal | None = None

    @property
    def has_pages(self) -> bool:
        return self.pages is not None and self.pages.first < self.pages.end

    @property
    def first_offset(self) -> int:
        """The first offset of the log: its beginning, or where it continues after a truncation."""
        if self.pages is not None and self.pages.first < self.pages.end:
            return self.pages.first_offset
        first_offset = self.segments[0].first_offset if self.segments else 0
        assert first_offset is not None  # The decoder saw to it.
        return first_offset

    @property
    def ledger_count(self) -> int:
        return len(self.segments) + (self.pages.ledgers if self.pages is not None else 0)


class LedgersLeft(msgspec.Struct, frozen=True, array_like=True):
    """Ledgers that left a log's list and are to be deleted (P8.3). In the transaction that takes them off the list they
    are put here, so that a crash loses none of them; no reader of the log looks here."""

    version: int
    ledger_ids: tuple[_LedgerId, ...]
    pages: tuple[LogPages, ...] = ()  # Lists of deleted logs; their ledgers are to be deleted, too.
    # What the list said of ledgers that truncation took off, so that they can be put back. It is written only from
    # LEVEL_OF_FRONTS on.
    segments: tuple[LogSegment, ...] = ()


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


def log_key_path(name: str) -> str:
    return f"/logs/{name}/list"


def log_owner_path(name: str) -> str:
    return f"/logs/{name}/owner"


def log_left_path(name: str) -> str:
    return f"/logs/{name}/left"


def log_truncated_path(name: str) -> str:
    """The key that names the ledgers which truncation took off the list, until they are deleted too (P8.3)."""
    return f"/logs/{name}/truncated"


def log_deleting_path(name: str) -> str:
    """The key that names the ledgers of a deleted log until they are deleted too (P8.3)."""
    return f"/logs/{name}/deleting"


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """One of which nothing is lost, whose bookies have copies, whose writer is not named, and of which no sums are
    published, is written as earlier builds write it (P10.8)."""
    if metadata.sums:
        return msgspec.msgpack.encode(metadata)
    unused = 1 if metadata.writer else 2 if metadata.freed is not None else 3 if metadata.lost else 4
    return msgspec.msgpack.encode(msgspec.structs.astuple(metadata)[:-unused])


def encode_log_list(value: LogList, *, is_whole: bool = True) -> bytes:
    """is_whole: with all fields that LEVEL_OF_LOGS allows; else as earlier builds wrote a list (P10.8). Fields that
    only LEVEL_OF_PAGES and later levels allow are written if the value has them: a list that has pages keeps them, also
    when a client writes it that does not know of the raised level yet."""
    if value.pages is not None:
        whole = (value.version, value.epoch, value.segments, _pages_written(value.pages))
        return msgspec.msgpack.encode(whole if value.seal is None else (*whole, value.seal))
    if value.seal is not None:
        return msgspec.msgpack.encode(value)
    if is_whole:
        written = [_written(each) for each in value.segments]
        return msgspec.msgpack.encode((value.version, value.epoch, written))
    segments = [(each.ledger_id, each.first_offset, each.last_entry) for each in value.segments]
    return msgspec.msgpack.encode((value.version, value.epoch, segments))


def _pages_written(pages: LogPages) -> LogPages | tuple[Any, ...]:
    return pages if pages.is_mixed else msgspec.structs.astuple(pages)[:-1]


def _written(segment: LogSegment) -> LogSegment | tuple[Any, ...]:
    if segment.length is not None:
        return segment
    return (segment.ledger_id, segment.first_offset, segment.last_entry, segment.created_ms, segment.begun)


def encode_ledgers_left(value: LedgersLeft) -> bytes:
    whole = (value.version, value.ledger_ids)
    pages = [_pages_written(each) for each in value.pages]
    if value.segments:
        return msgspec.msgpack.encode((*whole, pages, value.segments))
    return msgspec.msgpack.encode((*whole, pages) if pages else whole)


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


def decode_log_list(data: bytes, name: str = "") -> LogList:
    """Raises StorageError for bytes that are not a log list of a version this code knows, or name a ledger twice."""
    what = f"log {name!r}" if name else "a log"
    value = unpack(_list_decoder, data, StorageError, f"{what}: these {len(data)} bytes are no log list")
    if value.version != METADATA_VERSION:
        raise StorageError(
            f"{what}: its list has version {value.version}; this embedbk knows {METADATA_VERSION}",
            hint="use a newer embedbk for this log; nothing of it was changed",
        )
    if len({segment.ledger_id for segment in value.segments}) != len(value.segments):
        raise StorageError(f"{what}: its list names a ledger twice")
    why = _why_no_pages(value)
    if why:
        raise StorageError(f"{what}: {why}")
    is_told = True  # Where the next ledger begins, by the one before it or by itself.
    for segment in value.segments:
        if segment.first_offset is None and is_told:
            raise StorageError(f"{what}: its list does not tell where ledger {segment.ledger_id} begins")
        is_told = segment.last_entry is not None
    if value.seal is not None and not (value.segments and is_told):
        raise StorageError(f"{what}: its list is sealed, and does not tell where the last ledger ends")
    return value


def _why_no_pages(value: LogList) -> str:
    """The fault of its pages; empty: they are sound."""
    pages = value.pages
    if pages is None:
        return ""
    count = pages.end - pages.first
    if count < 0 or pages.ledgers < count or (count == 0 and (pages.skipped or pages.ledgers)):
        return (
            f"it names pages {pages.first} to {pages.end} of {pages.ledgers} ledgers, {pages.skipped} skipped"
        )
    if not value.segments:
        return "it names pages and no ledger behind them"
    behind = value.segments[0].first_offset
    if behind is not None and count and behind < pages.first_offset:
        return f"its pages begin at offset {pages.first_offset}, behind ledger {value.segments[0].ledger_id}"
    return ""


def decode_ledgers_left(data: bytes) -> LedgersLeft:
    """Raises StorageError for bytes that are no such list of a version this code knows."""
    what = f"these {len(data)} bytes are no list of ledgers that left their log"
    value = unpack(_left_decoder, data, StorageError, what)
    if value.version != METADATA_VERSION:
        raise StorageError(
            f"a list of ledgers that left their log has version {value.version}; this embedbk knows {METADATA_VERSION}"
        )
    return value


_metadata_decoder = msgspec.msgpack.Decoder(LedgerMetadata)
_list_decoder = msgspec.msgpack.Decoder(LogList)
_left_decoder = msgspec.msgpack.Decoder(LedgersLeft)
