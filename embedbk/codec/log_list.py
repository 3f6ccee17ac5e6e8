"""The list of a log as a value of the metadata quorum (P8), and that of ledgers that left it: their values and bytes.

The bytes are MessagePack arrays behind one version number; fields are only ever appended (WIRE.md section 4). The older
ledgers of a long list stand in pages: `log_pages`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec

from embedbk.codec.field_types import METADATA_VERSION, Count, EntryId, LastEntry, LedgerId
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError

__all__ = [
    "SEAL_REASON_MAX",
    "Begun",
    "LedgersLeft",
    "LogList",
    "LogPages",
    "LogSeal",
    "LogSegment",
    "decode_ledgers_left",
    "decode_log_list",
    "encode_ledgers_left",
    "encode_log_list",
    "log_deleting_path",
    "log_key_path",
    "log_left_path",
    "log_owner_path",
    "log_truncated_path",
]

SEAL_REASON_MAX = 200  # Characters.


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

    ledger_id: LedgerId
    # Dense position in the log of the ledger's entry 0; from closed lengths. None while the ledger before it is not
    # recorded as closed: its owner prepared it, or writes to it already (P8.2).
    first_offset: Count | None
    last_entry: LastEntry | None
    created_ms: Count = 0  # Since 1970; 0: unknown.
    begun: int = Begun.UNKNOWN
    length: Count | None = None  # Payload bytes; None until the list records the end, or as no build said it.


class LogPages(msgspec.Struct, frozen=True, array_like=True):
    """Where the older ledgers of a log are listed, under keys of their own (`log_pages`): pages `first` to `end` - 1.
    The first `skipped` ledgers of the oldest page were truncated (P8.3, P8.6)."""

    # Names the keys: of the first ledger that was ever put there, so no two logs have the same.
    series: LedgerId
    first: Count
    end: Count
    skipped: Count
    first_offset: Count  # Offset of the oldest ledger of the log: everything before it was truncated.
    ledgers: Count  # In these pages, without those that are skipped.
    length: Count  # Their payload bytes, as far as they were recorded.
    last: tuple[LedgerId, EntryId] | None = None  # The last entry in front of the list's own ledgers.
    is_mixed: bool = False  # Ids do not rise along them, as ready-made ledgers stand among them (P8.5).


class LogSeal(msgspec.Struct, frozen=True, array_like=True):
    """Nothing is ever appended to the log any more (P8.9)."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=SEAL_REASON_MAX)]
    sealed_ms: Count  # Since 1970.
    by: Annotated[str, msgspec.Meta(max_length=512)]  # For people.


class LogList(msgspec.Struct, frozen=True, array_like=True):
    """A log's ordered list of ledgers under one key (P1, P8); epoch is its present owner's fencing token (P9). A long
    list has only the newest ledgers here; the older ones stand in pages."""

    version: int
    epoch: Count
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
    ledger_ids: tuple[LedgerId, ...]
    pages: tuple[LogPages, ...] = ()  # Lists of deleted logs; their ledgers are to be deleted, too.
    # What the list said of ledgers that truncation took off, so that they can be put back. It is written only from
    # LEVEL_OF_FRONTS on.
    segments: tuple[LogSegment, ...] = ()


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


_list_decoder = msgspec.msgpack.Decoder(LogList)
_left_decoder = msgspec.msgpack.Decoder(LedgersLeft)
