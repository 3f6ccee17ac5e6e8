"""What really happened, seen from outside: the ghost state that invariants compare the cluster with.

Decides nothing and judges nothing. No node can see it; it is fed by the world's hooks (`Observer`), one event
at a time, and never walks through what it holds. Names in capitals are those of the project's list of ghost state:

    SENT, ACKED, RACKED, READ, META, CLOSED    of a ledger       `LedgerGhost`
    STABLE, FACK, NEG, LOSTDISK                of a bookie       `BookieGhost`, and `LedgerGhost.stable` as bits
    KNOWN-LAC                                  of a reader       `Ghost.known_lac`, by handle
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState
from embedbk.codec.metadata_messages import Compare
from embedbk.core.limbo import is_named
from embedbk.core.quorum import write_set
from embedbk.ids import NO_ENTRY, Member

__all__ = [
    "BookieGhost",
    "Ghost",
    "HandleGhost",
    "LedgerGhost",
    "SentChange",
    "RecoveryGhost",
    "WriterGhost",
]

Range = tuple[int, int]  # first..last, both included.


@dataclass(slots=True, eq=False)
class LedgerGhost:
    """One ledger, across all its writers, recoverers and readers."""

    ledger_id: int
    sent: list[bytes] = field(default_factory=list)  # SENT: by entry id, the entry as its writer made it.
    given: dict[int, bytes] = field(default_factory=dict)  # Payloads as the application gave them.
    length: list[int] = field(default_factory=list)  # Payload bytes up to and including the entry.
    acked: int = NO_ENTRY  # ACKED: everything up to here was acknowledged to the application.
    # The same by the process that received it, while it lives.
    acked_to: dict[str, int] = field(default_factory=dict)
    failed: int | None = None  # The application got an error for entries from here on.
    racked: int = NO_ENTRY  # RACKED: the highest entry that a recovery saw written back to an ack quorum.
    read: dict[int, bytes] = field(default_factory=dict)  # READ: payloads ever given to a reader.
    read_last: int = NO_ENTRY  # The highest of them that was given as confirmed.
    # Given to readers since faults stopped. Asked, not walked.
    read_healed: set[int] = field(default_factory=set)
    # Since all healed, a recovery or a read of it was refused: too much was destroyed.
    is_refused: bool = False
    versions: list[tuple[int, LedgerMetadata]] = field(default_factory=list)  # META, with revisions.
    closed: LedgerMetadata | None = None  # CLOSED: the first such version.
    # The last OPEN version: what a creator's acknowledgements are judged by.
    open: LedgerMetadata | None = None
    deleted: int | None = None  # The revision that removed it; None again once it was brought back.
    has_tombstone: bool = False  # It can be brought back.
    tombstone_gone: int = 0  # The revision that took its tombstone away.
    is_marked: bool = False  # It is being repaired: some bookie may be getting copies that no fragment names.
    unmarked_step: int = -1  # When a collector's check last found no mark.
    copied: dict[int, int] = field(default_factory=dict)
    # Above: entry -> bits of bookies that said OK to it since its present, or else its last, repair mark was put.
    stable: dict[int, int] = field(default_factory=dict)  # Entry -> bits of bookies whose disk holds it.
    damaged: dict[int, int] = field(default_factory=dict)  # Entry -> bits of bookies whose copy turned bad.
    top: int = NO_ENTRY  # The highest entry that any bookie ever took.

    @property
    def metadata(self) -> LedgerMetadata | None:
        """The metadata as last committed."""
        return self.versions[-1][1] if self.versions else None

    @property
    def revision(self) -> int:
        return self.versions[-1][0] if self.versions else 0

    @property
    def closed_last(self) -> LedgerMetadata | None:
        """As committed last, if it was closed then."""
        metadata = self.metadata
        return metadata if metadata is not None and metadata.is_closed else None


@dataclass(slots=True, eq=False)
class BookieGhost:
    """One bookie in one disk incarnation."""

    member: Member
    bit: int
    queued: deque[tuple[int, int, tuple[int, ...]]] = field(default_factory=deque)
    # Above: journal records not durable yet: (token, ledger, entries); a promise has () and stands in `promises`.
    promises: dict[int, int] = field(default_factory=dict)  # Token of a fence, limbo or drop -> its ledger.
    stable_fences: set[int] = field(default_factory=set)  # Ledgers whose fence is on the disk.
    # FACK: ledger -> the step of the first acknowledgement.
    fences: dict[int, int] = field(default_factory=dict)
    # NEG: entries that recovery reads got as absent.
    negatives: dict[int, list[Range]] = field(default_factory=dict)
    # Token of a record -> ledgers that are gone, and fenced by it.
    gone: dict[int, range] = field(default_factory=dict)
    # Ledger -> entries that a drop gave up, and that are there until it is carried out.
    given_up: dict[int, list[int]] = field(default_factory=dict)
    # Token of a record that takes a drop back before it was carried out -> ledger, what it keeps.
    kept: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    # (link, request id) -> the request's event.
    asked: dict[tuple[int, int], Any] = field(default_factory=dict)
    # Lookup -> the request that waits for it, and the ledgers that are looked into.
    looks: dict[int, tuple[Any, list[int]]] = field(default_factory=dict)
    lacs: dict[int, int] = field(default_factory=dict)  # Ledger -> the LAC its row showed last.
    # Ledger -> when metadata began to be asked about it.
    collected: dict[int, int] = field(default_factory=dict)
    found_absent: dict[tuple[int, int, int], list[Range]] = field(default_factory=dict)
    # Above: as `asked`, and by ledger: what the lookup for a read found absent; the answer may wait for its fence.
    # How many questions the bookie put to metadata for what it is to deny, and the last of them whose answer said that
    # metadata is not older (P10.5).
    questions: int = 0
    known_by: int = 0
    # As `asked`: how many questions had been put when the request came.
    asked_behind: dict[tuple[int, int], int] = field(default_factory=dict)
    is_lost: bool = False  # LOSTDISK.
    is_fresh: bool = False  # Restarted, and not looked at since.
    traces: set[int] = field(default_factory=set)  # Ledgers that the last start found something of.
    owed_limbo: list[int] | None = None
    # Above: after an unclean start, until it or a later one serves: ledgers that named it and were not closed at that
    # start.
    other_owes: list[int] | None = None  # As `owed_limbo`: what a start on the other copy of its disk owes.
    # What the start on the other copy owes that lists its ledgers, and the same of the one that took the place.
    listed_by_other: list[int] | None = None
    listed: list[int] | None = None


@dataclass(slots=True, eq=False)
class HandleGhost:
    """A creator's or a recoverer's handle: what it asked for and was answered, frame by frame."""

    ledger: LedgerGhost
    node: str
    frames: dict[int, Any] = field(default_factory=dict)  # First entry -> frame, not confirmed yet.
    asked: dict[tuple[int, int], tuple[Member, int]] = field(default_factory=dict)
    # Above: (seating, first entry of the part) -> whom, and the frame's first entry.
    # Frame -> seating -> the member's bit.
    confirmed: dict[int, dict[int, int]] = field(default_factory=dict)


class SentChange(NamedTuple):
    """A change of a ledger: the revision of the ledger's key that it compares, what it would publish, and what else it
    compares."""

    revision: int
    proposed: LedgerMetadata
    others: tuple[Compare, ...]


@dataclass(slots=True, eq=False)
class WriterGhost(HandleGhost):
    # Compare-and-sets without an outcome, by tag.
    proposals: dict[Any, SentChange] = field(default_factory=dict)
    failed: bool = False
    # Numbers of the seatings that had failed at its last step.
    failed_seats: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class RecoveryGhost(HandleGhost):
    round: int = -1
    base: LedgerMetadata | None = None  # The version it started from.
    fenced: int = 0  # Bits of members that said their fence is durable.
    lac: int = NO_ENTRY  # The highest LAC among those answers.
    floor: int | None = None  # Once it reads: the last entry that it takes as given.
    reads: dict[Any, tuple[Member, int, int]] = field(default_factory=dict)  # Tag -> whom, first, last.
    negatives: dict[Member, list[Range]] = field(default_factory=dict)
    # Entries of which a valid copy was shown. Asked, not walked.
    copies: set[int] = field(default_factory=set)
    end: int | None = None  # The last entry that it decided on.
    is_over: bool = False


class Ghost:
    """All ghost state of one run."""

    def __init__(self) -> None:
        self.step = 0  # Steps seen; only orders what happened.
        self.ledgers: dict[int, LedgerGhost] = {}
        self.bookies: dict[str, BookieGhost] = {}  # The present incarnation of each bookie, by name.
        self.members: dict[Member, BookieGhost] = {}  # Every incarnation ever seen.
        self.writers: dict[Any, WriterGhost] = {}  # Writers, by core.
        self.recoveries: dict[Any, RecoveryGhost] = {}
        self.placements: dict[str, int] = {}  # Their revisions, by key.
        self.known_lac: dict[Hashable, int] = {}  # KNOWN-LAC: (client, ledger, handle) -> what it was shown.
        self.lost = 0  # LOSTDISK as bits.
        self.up: set[str] = set()  # Asked, not walked.
        self.paused: set[str] = set()
        # The last time of each node's own clock; no two clocks show the same.
        self.clocks: dict[str, int] = {}
        self.healed: dict[str, int] | None = None
        # The time of each when faults stopped, as far as a time of it came since; None: they have not stopped.
        self._masks: dict[Any, tuple[int, ...]] = {}

    def ledger(self, ledger_id: int) -> LedgerGhost:
        found = self.ledgers.get(ledger_id)
        if found is None:
            found = self.ledgers[ledger_id] = LedgerGhost(ledger_id)
        return found

    @property
    def is_healed(self) -> bool:
        """Nothing fails any more."""
        return self.healed is not None

    def note_clock(self, node: str, shown_ns: int) -> None:
        if self.healed is not None and node not in self.healed:
            # Its first time since then: that is as long ago as by the others.
            since_ns = max((self.clocks[other] - at for other, at in self.healed.items()), default=0)
            self.healed[node] = shown_ns - since_ns
        self.clocks[node] = shown_ns

    def since_healed_ns(self, node: str) -> int:
        """How long nothing has failed, by the clock of this node, of which a time came."""
        return self.clocks[node] - self.healed[node] if self.healed is not None else 0

    def bit(self, member: Member) -> int:
        return self.member(member).bit

    def member(self, member: Member) -> BookieGhost:
        found = self.members.get(member)
        if found is None:
            found = self.members[member] = BookieGhost(member, 1 << len(self.members))
        return found

    def bookie(self, node: str, incarnation: bytes) -> BookieGhost:
        found = self.bookies.get(node)
        if found is None or found.member.incarnation != incarnation:
            found = self.bookies[node] = self.member(Member(node, incarnation))
        return found

    def write_mask(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """Bits of the bookies that should hold the entry by this version."""
        if metadata.freed is not None:
            return 0
        fragments = metadata.fragments
        fragment = fragments[-1] if fragments[-1].first_entry <= entry_id else metadata.fragment_of(entry_id)
        key = (fragment.ensemble, metadata.write_quorum)
        masks = self._masks.get(key)
        if masks is None:
            bits = [self.bit(member) for member in fragment.members]
            quorum = metadata.quorum
            masks = self._masks[key] = tuple(
                sum(bits[seat] for seat in write_set(residue, quorum))
                for residue in range(quorum.ensemble_size)
            )
        return masks[entry_id % metadata.ensemble_size]

    def copies(self, ledger: LedgerGhost, metadata: LedgerMetadata, entry_id: int) -> tuple[int, int]:
        """(good stable copies in the entry's write set, copies there that the test itself destroyed)."""
        wanted = self.write_mask(metadata, entry_id)
        bad = (self.lost | ledger.damaged.get(entry_id, 0)) & wanted
        return (ledger.stable.get(entry_id, 0) & wanted & ~bad).bit_count(), bad.bit_count()

    def is_void(self, sent: SentChange) -> bool:
        """Whether it never comes to pass: a placement that it compares has changed since (P10.6)."""
        return any(self.placements.get(each.key, each.revision) != each.revision for each in sent.others)

    # The content of the disks.

    def take_durable(self, bookie: BookieGhost, token: int) -> None:
        queued, bit = bookie.queued, bookie.bit
        while queued and queued[0][0] <= token:
            number, ledger_id, entries = queued.popleft()
            if number in bookie.promises:
                bookie.stable_fences.add(bookie.promises.pop(number))
            bookie.stable_fences.update(bookie.gone.pop(number, ()))
            kept_of, kept = bookie.kept.pop(number, (ledger_id, []))
            for entry_id in kept:  # Also an unreadable one, which is no better by this.
                self.ledgers[kept_of].stable[entry_id] |= bit
            if entries:
                ledger = self.ledgers[ledger_id]
                stable, damaged = ledger.stable, ledger.damaged
                for entry_id in entries:
                    stable[entry_id] = stable.get(entry_id, 0) | bit
                    if entry_id in damaged:
                        damaged[entry_id] &= ~bit

    def drop(self, bookie: BookieGhost, ledger: LedgerGhost) -> None:
        """The bookie gives up its data of this ledger, also entries on their way to the disk. Those on the disk are
        removed when the drop is carried out (`carry_out_drop`), or stay if it is taken back before
        (`take_back_drop`)."""
        given_up = [entry_id for entry_id, bits in ledger.stable.items() if bits & bookie.bit]
        bookie.given_up[ledger.ledger_id] = given_up
        for entry_id in given_up:
            ledger.stable[entry_id] &= ~bookie.bit
        for entry_id in ledger.copied:
            ledger.copied[entry_id] &= ~bookie.bit
        bookie.lacs.pop(ledger.ledger_id, None)
        bookie.queued = deque(
            (token, ledger_id, () if ledger_id == ledger.ledger_id else entries)
            for token, ledger_id, entries in bookie.queued
        )

    def carry_out_drop(self, bookie: BookieGhost, ledger_id: int) -> None:
        bookie.given_up.pop(ledger_id, None)

    def take_back_drop(self, bookie: BookieGhost, ledger_id: int, token: int) -> None:
        """It holds the ledger again by the record `token`: what is still there counts when that is durable."""
        if given_up := bookie.given_up.pop(ledger_id, None):
            bookie.kept[token] = ledger_id, given_up

    def restart(self, node: str, incarnation: bytes, last_token: int) -> BookieGhost:
        """The start read records up to last_token; those above count as gone. Records that were durable before still
        count, whatever the start read: they may have been promised. This start, even a clean one, owes what an unclean
        start owed that served no client: limbo was durable by then, or comes now."""
        bookie = self.bookie(node, incarnation)
        self.take_durable(bookie, last_token)
        bookie.queued.clear()
        bookie.promises.clear()
        bookie.gone.clear()
        bookie.given_up.clear()
        bookie.kept.clear()
        bookie.asked.clear()
        bookie.looks.clear()
        bookie.found_absent.clear()
        bookie.traces.clear()
        bookie.is_fresh = True
        return bookie

    def forget(self, bookie: BookieGhost) -> None:
        """It started, and anything that it held may be gone; what is there after all is reported next."""
        bookie.stable_fences.clear()
        bookie.owed_limbo = self.owing(bookie) if bookie.listed is None else bookie.listed
        bookie.listed = None
        for ledger in self.ledgers.values():
            for entry_id, bits in ledger.stable.items():
                if bits & bookie.bit:
                    ledger.stable[entry_id] = bits & ~bookie.bit
                    ledger.damaged[entry_id] = ledger.damaged.get(entry_id, 0) | bookie.bit

    def owing(self, bookie: BookieGhost) -> list[int]:
        """The ledgers that a bookie which may have lost something has to bring into limbo, as they are now."""
        return [
            ledger.ledger_id
            for ledger in self.ledgers.values()
            if ledger.metadata is not None
            and ledger.deleted is None
            and not ledger.metadata.is_closed
            and is_named(ledger.metadata, bookie.member.bookie_id)
        ]

    def doubt(self, bookie: BookieGhost) -> None:
        """Its copies count no more. Limbo renews its fences, but for ledgers that do not name it, on which nothing
        depends: there it may forget what it promised."""
        bookie.is_lost = True
        self.lost |= bookie.bit
        for promised in (bookie.fences, bookie.negatives):
            for ledger_id in list(promised):
                metadata = self.ledger(ledger_id).metadata
                if metadata is None or not is_named(metadata, bookie.member.bookie_id):
                    del promised[ledger_id]

    def take_metadata(self, ledger: LedgerGhost, revision: int, new: LedgerMetadata | None) -> None:
        if new is None:
            ledger.deleted = revision
            return
        ledger.deleted = None  # It was brought back, if it was deleted.
        ledger.versions.append((revision, new))
        for bookie in self.bookies.values():
            # Taken out of it while it starts, and without a trace: no listing shows it, and what it is given from now
            # on, if it gets a seat again, is behind all that may be lost (core/PROTOCOL.md, P7.4).
            is_out = not is_named(new, bookie.member.bookie_id) and ledger.ledger_id not in bookie.traces
            for owed in (bookie.owed_limbo, bookie.other_owes, bookie.listed_by_other):
                if is_out and owed is not None and ledger.ledger_id in owed:
                    owed.remove(ledger.ledger_id)
        if new.state == LedgerState.OPEN:
            ledger.open = new
        elif new.is_closed and ledger.closed is None:
            ledger.closed = new
