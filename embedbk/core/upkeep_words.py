"""Events and effects of the upkeep of a bookie: its space, its collector, its compactor, which metadata it met."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from embedbk.codec.metadata_messages import Told
from embedbk.core.vocabulary import Tag

__all__ = [
    "AllowDrop",
    "AskMetadata",
    "BeginCollection",
    "CopyFailed",
    "CopyLogs",
    "CopySlice",
    "HeldListed",
    "KeepMet",
    "ListHeld",
    "ListLogs",
    "LogFacts",
    "EntryLogKeeper",
    "LogsListed",
    "MetKept",
    "MetadataDoubted",
    "MetadataTold",
    "NameUnread",
    "OperatorAsked",
    "RetryWrites",
    "SetWritable",
    "SliceCopied",
    "SpaceSeen",
]


class SpaceSeen(Struct):
    """free_bytes: on the device, None when not known. is_refused: a write found no room, and none succeeded since.
    is_due: it was time to look."""

    now_ns: int
    free_bytes: int | None
    is_refused: bool
    is_due: bool


class OperatorAsked(Struct):
    now_ns: int
    is_read_only: bool


class MetadataDoubted(Struct):
    """is_older: metadata is an older one than this bookie met. is_unkept: it cannot keep which one it is (P10.5)."""

    now_ns: int
    is_older: bool
    is_unkept: bool


class SetWritable(Struct):
    """Tell the bookie: WritableSet."""

    is_writable: bool


class RetryWrites(Struct):
    """Try once more what found no room."""


class HeldListed(Struct):
    """Outcome of ListHeld: ledgers that the bookie knows, ascending."""

    now_ns: int
    tag: Tag
    ledger_ids: list[int]
    has_more: bool


class ListHeld(Struct):
    """Which ledgers above this one does the bookie know, the first `limit` of them?"""

    tag: Tag
    after: int
    limit: int


class MetadataTold(Struct):
    """Outcome of AskMetadata. doubt: why this bookie takes the metadata for an older one than it met; empty: it does
    not."""

    now_ns: int
    tag: Tag
    told: Told
    doubt: str = ""


class AskMetadata(Struct):
    """Which metadata is this, and how far is it? A witness's tag is what it met (a core.witness.Met, or None)."""

    tag: Tag


class KeepMet(Struct):
    """Keep what was met (a core.witness.Met). is_synced: durably, and MetKept reports the outcome; else it may fail."""

    met: Any
    is_synced: bool


class MetKept(Struct):
    """Outcome of a KeepMet that is synced. refused: why it is not kept; empty: it is durable."""

    now_ns: int
    met: Any
    refused: str = ""


class BeginCollection(Struct):
    """Tell the bookie: CollectionBegun. Before any question is sent."""

    ledger_ids: list[int]


class AllowDrop(Struct):
    """Tell the bookie: DropAllowed."""

    ledger_id: int


class NameUnread(Struct):
    """Say once that this key, or its value, cannot be read, and that nothing is done because of it."""

    key: str
    reason: str


class LogFacts(NamedTuple):
    """The size of one entry log on disk, and how many bytes of its entries still count."""

    log_id: int
    file_bytes: int
    entries_bytes: int
    live_bytes: int
    is_damaged: bool  # It is never copied from, and never goes: what it hides may be repaired.
    directory: int = 0  # Number of its ledger directory.
    # A newer log is still looked through: a copy of this one's entries would count as newer than those found there.
    is_held_back: bool = False
    is_rescued: bool = (
        False  # Its index is lost on disk, and all of its entries were found: a copy puts it right.
    )


class EntryLogKeeper(NamedTuple):
    """A ledger that keeps an entry log on the disk: what of it still counts there."""

    ledger_id: int
    live_entries: int
    live_bytes: int


class LogsListed(Struct):
    """Outcome of ListLogs, oldest first."""

    now_ns: int
    logs: list[LogFacts]


class SliceCopied(Struct):
    """Outcome of CopySlice. is_over: everything is in the new log, the sources leave."""

    now_ns: int
    byte_count: int
    is_over: bool


class CopyFailed(Struct):
    """Outcome of CopyLogs or CopySlice: nothing is being copied any more, the logs are as they were."""

    now_ns: int
    reason: str


class ListLogs(Struct):
    """Which entry logs are there, and what lives in them?"""


class CopyLogs(Struct):
    """Plan a new log of what lives in these."""

    log_ids: list[int]


class CopySlice(Struct):
    """Copy about so much of it."""

    byte_count: int
