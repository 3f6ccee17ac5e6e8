"""The words between a core and its host: events told, effects asked for. Plain data, made fresh, not changed after.

A tag is the core's own plain name for a request; the host hands it back with the outcome and never looks inside.
Every Send is followed by exactly one final `Answered` or `SendFailed`, unless the core ended meanwhile; a deferred add
may be `Answered` once before it (codec.messages.is_final). One that wants no answer has no outcome
(codec.messages.is_answered).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from embedbk.codec.frame import Frame, FrameHeader
from embedbk.codec.messages import Control
from embedbk.codec.metadata_messages import Compare, Delete, Put, Told
from embedbk.errors import EmbedbkError
from embedbk.ids import Member

__all__ = [
    "AddFailed",
    "AddedNearby",
    "AddsAnswered",
    "AddsTaken",
    "AllocateIds",
    "AllowDrop",
    "Answered",
    "AskMetadata",
    "BeginCollection",
    "BookieInfo",
    "BookiesChanged",
    "CloseRequested",
    "CollectionBegun",
    "Confirmed",
    "Consumed",
    "CopyFailed",
    "CopyLogs",
    "CopySlice",
    "CountSettled",
    "DropAllowed",
    "DropEntries",
    "Ended",
    "EntriesRead",
    "EnsembleChanged",
    "EntriesReady",
    "Effect",
    "Event",
    "FrameSealed",
    "FrameSent",
    "HeldListed",
    "IdsAllocated",
    "JournalAppend",
    "JournalDurable",
    "JournalFailed",
    "KeepMet",
    "KeyRead",
    "KeysListed",
    "LimboListed",
    "LinkLost",
    "ListHeld",
    "ListKeys",
    "ListLogs",
    "LogFacts",
    "LogsListed",
    "LossFound",
    "MetKept",
    "MetadataChanged",
    "MetadataDoubted",
    "MetadataFailed",
    "MetadataTold",
    "NameUnread",
    "OperatorAsked",
    "Part",
    "ReadEntries",
    "ReadKey",
    "Received",
    "Reply",
    "RequestReceived",
    "RetryWrites",
    "Send",
    "SendFailed",
    "SetWritable",
    "ShareTold",
    "StoreFrame",
    "SliceCopied",
    "SpaceSeen",
    "Started",
    "Tag",
    "ServeAlone",
    "Tick",
    "Transact",
    "TransactRefused",
    "TransactUnknown",
    "Transacted",
    "WritableSet",
]

Tag = Any  # Plain and hashable: a string, or a tuple of strings and numbers.


class BookieInfo(NamedTuple):
    """A registered bookie as a client sees it."""

    member: Member
    is_writable: bool
    location: str = ""  # "zone/rack", or nothing.
    free_bytes: int = 0
    is_quarantined: bool = False  # Failed often lately: chosen only where nobody else is left (RP45).
    placement: int | None = (
        None  # What naming it compares (P10.6); None: an older build, nothing is compared.
    )


# --- Events of clients -----------------------------------------------------------------------------------


class Started(Struct):
    """The first event of a core that acts by itself; a passive one (writer, bookie) needs none."""

    now_ns: int


class Tick(Struct):
    now_ns: int


class HintDue(Struct):
    """A writer's LAC stood still for a moment: its bookies get it now, in memory (P6.2)."""

    now_ns: int


class Answered(Struct):
    """A bookie answered a Send. frames are (header, unchecked body) pairs."""

    now_ns: int
    tag: Tag
    member: Member
    control: Control
    frames: list[tuple[FrameHeader, memoryview]] = field(default_factory=list)


class AddsAnswered(Struct):
    """Bookies said OK to all of these adds, each exactly as it was asked and where it was asked (P3.8): as so many
    `Answered`, which nobody had to be told one by one.

    followed: seatings of which an answer said that a reader waits there, also to adds that went past this core.
    """

    now_ns: int
    answers: list[tuple[Member, Tag]]
    followed: tuple[int, ...] = ()


class SendFailed(Struct):
    """No answer will come: not registered, other incarnation, no link, link lost, queue full. Says nothing of
    whether the request was carried out.

    is_other_disk: the bookie itself, or its registration, says that it has another incarnation than the one asked for.
    """

    now_ns: int
    tag: Tag
    member: Member
    reason: str
    is_other_disk: bool = False


class KeyRead(Struct):
    """Outcome of ReadKey, linearizable. value None: the key is absent."""

    now_ns: int
    tag: Tag
    value: bytes | None
    revision: int


class Transacted(Struct):
    """Outcome of Transact: done at revision, or refused (a comparison failed; nothing changed)."""

    now_ns: int
    tag: Tag
    is_done: bool
    revision: int


class TransactUnknown(Struct):
    """The transaction's outcome cannot be told; it is still in flight (P2.2)."""

    now_ns: int
    tag: Tag


class IdsAllocated(Struct):
    now_ns: int
    tag: Tag
    first_id: int


class MetadataFailed(Struct):
    """A ReadKey or AllocateIds got no answer; nothing was changed by it."""

    now_ns: int
    tag: Tag
    reason: str


class TransactRefused(Struct):
    """A transaction was not run and never will be: something is full, or it passes a bound (P2.2). Says nothing of an
    earlier one whose outcome is unknown. For cores that ask for transactions of their own accord."""

    now_ns: int
    tag: Tag
    reason: str


class BookiesChanged(Struct):
    """The registered bookies, from the watch; sorted by id."""

    now_ns: int
    bookies: tuple[BookieInfo, ...]


class FrameSealed(Struct):
    """The packer's next frame: a run of entries that continues the one before."""

    now_ns: int
    frame: Frame


class AddedNearby(Struct):
    """Everything up to last_entry was sealed, stored by every seat or sent to it, and is durable at an ack quorum, past
    this core (host/courses.py). is_idle: nothing more is under way there."""

    now_ns: int
    last_entry: int
    length: int  # Payload bytes of the ledger up to and including last_entry.
    is_idle: bool
    longest_ns: int = 0  # That an answer took of those since the last such event; 0: there were none.


class FrameSent(Struct):
    """A frame was sealed and sent to every seat (host/link_adds.py), and is not acknowledged by this core, or owed an
    answer by a seat. Behind an `AddedNearby` of all that is acknowledged; in entry order."""

    now_ns: int
    frame: Frame
    sent_ns: int
    answered: tuple[int, ...]  # Numbers of the seatings whose OK came.
    unsent: tuple[int, ...]  # Of those whose links took nothing of it.
    heard_ns: tuple[int, ...]  # By seat: when it answered last, any of these; 0: never.


class CloseRequested(Struct):
    now_ns: int


class Consumed(Struct):
    """The reader's user took this many bytes of what EntriesReady gave; as many more may be read ahead."""

    now_ns: int
    byte_count: int


class MetadataChanged(Struct):
    """The watch shows newer metadata of the ledger; value None: it was deleted."""

    now_ns: int
    value: bytes | None
    revision: int


# --- Effects of clients ----------------------------------------------------------------------------------


class Send(Struct):
    """Send a request to a bookie in one incarnation. frames: (encoded frame header, frame) pairs."""

    member: Member
    control: Control
    tag: Tag
    frames: Sequence[tuple[bytes, Frame]] = ()


class ReadKey(Struct):
    tag: Tag
    key: str


class Transact(Struct):
    tag: Tag
    when: list[Compare]
    then: list[Put | Delete]


class AllocateIds(Struct):
    tag: Tag
    count: int


class Confirmed(Struct):
    """Every entry up to lac is acknowledged (P3.3)."""

    lac: int
    length: int


class Received(Struct):
    """Deferred sync: every entry up to this one is held by Qa bookies of its write set, at least in memory (P3.2)."""

    entry_id: int
    length: int


class AddFailed(Struct):
    """The writing handle failed: every add above the LAC ends with this error, only close remains (P3.6)."""

    error: EmbedbkError


class EnsembleChanged(Struct):
    """A new ensemble was published for entries from first_entry on."""

    first_entry: int
    ensemble: tuple[Member, ...]


class EntriesReady(Struct):
    """The next entries of a read, checked, in order, without gaps."""

    frame: Frame


class Ended(Struct):
    """The core is over. error None: it reached what it was asked for, `result` says with what."""

    error: EmbedbkError | None = None
    result: Any = None


class Part(NamedTuple):
    """Entries first..last with id % modulus in residues (bit r for residue r)."""

    first_entry: int
    last_entry: int
    modulus: int
    residues: int


# --- Events and effects of a bookie ----------------------------------------------------------------------


class AddsTaken(Struct):
    """The add path stored common adds since the last event, and answers them itself (native/NATIVE.md): the rows have
    changed as this core would have changed them, and the journal goes on with this token."""

    now_ns: int
    next_token: int


class RequestReceived(Struct):
    """A request came over a link; frames are (header, unchecked body) pairs. is_beyond_room: no more
    is kept that waits for room, so an add is not stored."""

    now_ns: int
    link: int
    request_id: int
    control: Control
    frames: list[tuple[FrameHeader, memoryview]] = field(default_factory=list)
    is_beyond_room: bool = False


class LinkLost(Struct):
    now_ns: int
    link: int


class JournalDurable(Struct):
    """Every record up to token is on the device."""

    now_ns: int
    token: int


class JournalFailed(Struct):
    """The journal stopped for good (P7.6)."""

    now_ns: int
    reason: str


class CountSettled(Struct):
    """Metadata knows of this start of the bookie, and of no other behind the last one of its directories (P7.9)."""

    now_ns: int


class ServeAlone(Struct):
    """Metadata cannot be reached: what the bookie holds is served all the same, and nothing else (P7.9)."""

    now_ns: int


class LossFound(Struct):
    """Metadata knows of more than these directories hold: something acknowledged may be gone (P7.9)."""

    now_ns: int


class LimboListed(Struct):
    """The ledgers that name this bookie, by a linearizable listing made after it started (P7.4); and those that are
    CLOSED and name others."""

    now_ns: int
    not_closed: list[int]
    closed: list[int]
    elsewhere: list[int] = field(default_factory=list)


class ShareTold(Struct):
    """A ledger in limbo is CLOSED, and these are the entries that this bookie should hold of it (P7.4)."""

    now_ns: int
    ledger_id: int
    parts: list[Part]


class CollectionBegun(Struct):
    """Metadata will be asked from now on whether these ledgers may be dropped (P7.7). Ends what began before."""

    now_ns: int
    ledger_ids: list[int]


class DropAllowed(Struct):
    """Linearizable reads made since `CollectionBegun` say that this bookie owes nothing of the ledger (P7.7)."""

    now_ns: int
    ledger_id: int


class EntriesRead(Struct):
    """Outcome of ReadEntries: a verdict per id, as the entry store gave it."""

    now_ns: int
    read_id: int
    frame: Frame | None
    absent: list[tuple[int, int]]


class Reply(Struct):
    link: int
    request_id: int
    control: Control
    frames: Sequence[tuple[bytes, Frame]] = ()


class StoreFrame(Struct):
    """Put the frame's entries into the write cache and queue them as journal record `token`."""

    token: int
    frame: Frame


class JournalAppend(Struct):
    """Queue a record that is not a frame (fence, birth, explicit LAC ...) as journal record `token`."""

    token: int
    kind: int
    ledger_id: int
    body: bytes


class ReadEntries(Struct):
    """Look entries up; every StoreFrame before this effect counts as held."""

    read_id: int
    ledger_id: int
    first_entry: int
    last_entry: int
    bytes_max: int
    modulus: int = 1
    residues: int = 1
    link: int | None = None  # What is found goes there at once, so it may wait until that link has room.


class DropEntries(Struct):
    """The DROP record of this ledger is durable: its entries may go, from memory now and from disk when it suits."""

    ledger_id: int


class WritableSet(Struct):
    """Normal adds are taken, or refused, from now on (P7.8)."""

    now_ns: int
    is_writable: bool


# --- Events and effects of a bookie's space ----------------------------------------------------------------


class SpaceSeen(Struct):
    """free_bytes: on the device, None when nobody can tell. is_refused: a write found no room, and none went well
    since. is_due: it was time to look."""

    now_ns: int
    free_bytes: int | None
    is_refused: bool
    is_due: bool


class OperatorAsked(Struct):
    now_ns: int
    is_read_only: bool


class MetadataDoubted(Struct):
    """Metadata is an older one than this bookie met, or is not any more (P10.5)."""

    now_ns: int
    is_doubted: bool


class SetWritable(Struct):
    """Tell the bookie: WritableSet."""

    is_writable: bool


class RetryWrites(Struct):
    """Try once more what found no room."""


# --- Events and effects of a bookie's collector -----------------------------------------------------------


class HeldListed(Struct):
    """Outcome of ListHeld: ledgers that the bookie knows, ascending."""

    now_ns: int
    tag: Tag
    ledger_ids: list[int]
    has_more: bool


class KeysListed(Struct):
    """Outcome of ListKeys: (key, value) pairs of one linearizable page, in key order."""

    now_ns: int
    tag: Tag
    records: list[tuple[str, bytes]]
    has_more: bool


class ListHeld(Struct):
    """Which ledgers above this one does the bookie know, the first `limit` of them?"""

    tag: Tag
    after: int
    limit: int


class ListKeys(Struct):
    tag: Tag
    prefix: str
    after: str
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
    """Keep what was met (a core.witness.Met). is_synced: durably, and MetKept tells the outcome; else it may fail."""

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


# --- Events and effects of a bookie's compactor -----------------------------------------------------------


class LogFacts(NamedTuple):
    """What one entry log costs on disk, and how many bytes of its entries still count."""

    log_id: int
    file_bytes: int
    entries_bytes: int
    live_bytes: int
    is_damaged: bool  # It is never copied from, and never goes: what it hides may be repaired.


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


Event = (
    Started | Tick | Answered | AddsAnswered | SendFailed | KeyRead | Transacted | TransactUnknown | IdsAllocated
    | TransactRefused
    | MetadataFailed | BookiesChanged | FrameSealed | AddedNearby | FrameSent | HintDue | CloseRequested | Consumed
    | MetadataChanged
    | RequestReceived | AddsTaken | LinkLost | JournalDurable | JournalFailed
    | EntriesRead | CountSettled | ServeAlone | LossFound | LimboListed | ShareTold | CollectionBegun | DropAllowed
    | HeldListed | KeysListed | MetadataTold | MetKept | LogsListed | SliceCopied | CopyFailed
    | WritableSet | SpaceSeen | OperatorAsked | MetadataDoubted
)  # fmt: skip
Effect = (
    Send | AddFailed | Received | ReadKey | Transact | AllocateIds | Confirmed | EnsembleChanged | EntriesReady | Ended
    | Reply
    | StoreFrame | JournalAppend | ReadEntries | DropEntries
    | ListHeld | ListKeys | AskMetadata | KeepMet | BeginCollection | AllowDrop | NameUnread
    | ListLogs | CopyLogs | CopySlice | SetWritable | RetryWrites
)  # fmt: skip
