"""A bookie's events and effects: requests, its journal, its entry store, what metadata says of its ledgers (P7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from embedbk.codec.copy_decision import CopyDecision
from embedbk.codec.frame import Frame, FrameHeader
from embedbk.codec.holdings_messages import LedgerBlock
from embedbk.codec.messages import Control
from embedbk.codec.metadata_messages import Told
from embedbk.codec.read_messages import ReadClass, ReadRange

__all__ = [
    "AddsTaken",
    "CollectionBegun",
    "BlocksNumbered",
    "CountEntries",
    "DecisionsRead",
    "CountSettled",
    "DropAllowed",
    "DropEntries",
    "EntriesCounted",
    "EntriesRead",
    "JournalAppend",
    "JournalDurable",
    "JournalFailed",
    "LimboListed",
    "LinkLost",
    "LossFound",
    "OlderMetadata",
    "SharePart",
    "ReadBoundsSet",
    "NumberBlocks",
    "ReadDecisions",
    "ReadEntries",
    "Reply",
    "RequestReceived",
    "ServeAlone",
    "ShareTold",
    "StoreFrame",
    "TellKeepers",
    "TellLogs",
    "WritableSet",
]


class SharePart(NamedTuple):
    """Entries first..last with id % modulus in residues (bit r for residue r)."""

    first_entry: int
    last_entry: int
    modulus: int
    residues: int


class AddsTaken(Struct):
    """The add path stored common adds since the last event, and answers them (native/SHORTCUTS.md): the rows have
    changed as this core would have changed them, and the journal continues with this token."""

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


class OlderMetadata(Struct):
    """The metadata that answers is older than what this bookie met, or is not any more (P10.5)."""

    now_ns: int
    is_older: bool


class ServeAlone(Struct):
    """Metadata cannot be reached: what the bookie holds is served all the same, and nothing else (P7.9)."""

    now_ns: int


class LossFound(Struct):
    """Metadata knows of more than these directories hold: something acknowledged may be gone (P7.9)."""

    now_ns: int


class LimboListed(Struct):
    """The ledgers that name this bookie, by a linearizable listing made after it started (P7.4); and those that name
    others. told: how far metadata was before the listing; None: that is not known."""

    now_ns: int
    not_closed: list[int]
    closed: list[int]
    elsewhere: list[int] = field(default_factory=list)  # CLOSED.
    open_elsewhere: list[int] = field(default_factory=list)
    told: Told | None = None


class ShareTold(Struct):
    """A ledger in limbo is CLOSED, and these are the entries that this bookie should hold of it (P7.4)."""

    now_ns: int
    ledger_id: int
    parts: list[SharePart]


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
    # (frame, absent) of each of the other ranges; None: it was not looked up, since the others left no room for it.
    others: Sequence[tuple[Frame | None, list[tuple[int, int]]] | None] = ()


class EntriesCounted(Struct):
    """Outcome of CountEntries; count None: not known."""

    now_ns: int
    read_id: int
    count: int | None
    lacking: list[tuple[int, int]]
    digests: list[int | None] = []


class BlocksNumbered(Struct):
    """Outcome of NumberBlocks: the number of each block, None where damage is known in one of its ledgers; and the
    highest token of a record that was queued for one of them."""

    now_ns: int
    read_id: int
    numbers: list[int | None]
    last_token: int


class DecisionsRead(Struct):
    """Outcome of ReadDecisions, the newest decision last; None: not known."""

    now_ns: int
    read_id: int
    decisions: tuple[CopyDecision, ...] | None


class WritableSet(Struct):
    """Normal adds are taken, or refused, from now on (P7.8)."""

    now_ns: int
    is_writable: bool


class ReadBoundsSet(Struct):
    """From now on reads of each class are bounded to so many bytes per second; 0: not at all (P6.7)."""

    now_ns: int
    bytes_per_s: Sequence[int]


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
    """Look entries up; every StoreFrame before this effect counts as held. bytes_max is for all ranges together."""

    read_id: int
    ledger_id: int
    first_entry: int
    last_entry: int
    bytes_max: int
    modulus: int = 1
    residues: int = 1
    # The answer goes to this link at once, so the lookup may wait until the link has room.
    link: int | None = None
    reads_as: ReadClass = ReadClass.TAIL
    others: Sequence[ReadRange] = ()  # Looked up behind it, as far as there is room.
    from_memory: bool = False  # What the last flush wrote may be answered from the write cache.


class CountEntries(Struct):
    """Count what is held of a range; every StoreFrame before this effect counts as held."""

    read_id: int
    ledger_id: int
    first_entry: int
    last_entry: int
    modulus: int
    residues: int
    cuts: Sequence[int] = ()
    wants: int = 0  # Digests.


class NumberBlocks(Struct):
    """Make one number for the ledgers of each block; every record before this effect counts."""

    read_id: int
    blocks: Sequence[LedgerBlock]


class ReadDecisions(Struct):
    """Read what operators decided about the copies of this entry (P11.5)."""

    read_id: int
    ledger_id: int
    entry_id: int


class TellLogs(Struct):
    """Answer this request with the entry logs whose ids are above `after`: nothing of the protocol depends on them."""

    link: int
    request_id: int
    after: int


class TellKeepers(Struct):
    """Answer this request with the ledgers above `after` that keep this entry log: nothing depends on them either."""

    link: int
    request_id: int
    log_id: int
    after: int


class DropEntries(Struct):
    """The DROP record of this ledger is durable: its entries may go, from memory now and from disk when it suits."""

    ledger_id: int
