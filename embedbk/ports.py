"""What a host is built from: transport, journal, entry store, metadata store. Contracts only; no code of their own.

Real, in-memory and simulated implementations stand behind the same words. Nothing here reads a clock: the
caller passes `now_ns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from embedbk.codec.answers_twin import Counting
from embedbk.codec.frame import Frame
from embedbk.codec.messages import Digests
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.parked import ParkedPolls
from embedbk.core.upkeep_words import EntryLogKeeper, LogFacts
from embedbk.core.witness import Met
from embedbk.errors import StorageError

__all__ = [
    "AddPath",
    "AddSeat",
    "AddSending",
    "AddTerms",
    "DurableBookie",
    "EntriesFound",
    "EntryStore",
    "Identity",
    "Journal",
    "LinkDown",
    "LinkUp",
    "MemoryRefused",
    "Near",
    "OwedFrame",
    "RebuildLeft",
    "RebuildPiece",
    "Received",
    "ScrubDamage",
    "ScrubPiece",
    "SentAdds",
    "SentFacts",
    "Transport",
    "TransportEvent",
    "WaitEnd",
    "WaitTerms",
]

Buffer = bytes | bytearray | memoryview


# --- Transport -------------------------------------------------------------------------------------------


class Identity(Struct, frozen=True):
    """What a peer says of itself in Hello (P7.2). cluster_token is empty for a peer that has not learnt it yet."""

    role: str  # "bookie", "metadata" or "client"
    node_id: str
    incarnation: bytes  # 16 bytes: disk incarnation of a bookie or member, random per start for a client.
    cluster_token: bytes
    # Random number of a bookie's or member's start, by which two that claim one identity are told apart (P7.9).
    start: bytes = b""
    # The newest level that its build knows, sent along with its start (P10.8); 0: not sent.
    level: int = 0


class LinkUp(Struct, frozen=True):
    """Hello was exchanged both ways; bodies may be sent. `link` numbers are never re-used by one transport."""

    link: int
    peer: Identity


WRONG_INCARNATION = "wrong incarnation"  # How the reason begins where a peer is not the one that was dialled.


class LinkDown(Struct, frozen=True):
    """The link is gone, with everything that was on its way; nothing will be sent again by the transport."""

    link: int
    reason: str

    def is_of_other_disk(self, node_id: str) -> bool:
        """Whether it ended because this node has another incarnation than the one that was dialled (P4.6, P7.2)."""
        return self.reason.startswith(WRONG_INCARNATION) and f", found {node_id}/" in self.reason


class Received(Struct, frozen=True):
    """One body, whole, as its sender gave it. The memoryview stays valid as long as it is referenced."""

    link: int
    body: memoryview


TransportEvent = LinkUp | LinkDown | Received


class AddPath(Protocol):
    """The shortcut for the common add, beside the core and with its rules (native/SHORTCUTS.md). It stores and queues,
    and keeps the answers until they may leave."""

    @property
    def handle(self) -> Any:
        """The struct of native/road/add_path.h, for a transport that offers from C."""
        ...

    @property
    def parked(self) -> ParkedPolls:
        """Polls of readers; it parks and wakes them as well as the core."""
        ...

    def begin(self, now_ns: int, *, takes_polls: bool) -> None:
        """A turn begins. takes_polls: also readers' polls and writers' hints are common now."""
        ...

    def reader_answers(self, room_of: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
        """(link, message) of the answers to readers' polls and to hints. room_of(link): bytes that it can take now."""
        ...

    def settled(self) -> Iterator[int]:
        """Links with a poll that the core parked, and that was answered here."""
        ...

    def take(self, link: int, head: Buffer, tail: Buffer = b"") -> bool:
        """Offer a message, `head` then `tail`: the body of its frame, where it does not stand in `head`. False: it is
        not common, nothing was changed, and it is the core's. All earlier messages of its link were decided."""
        ...

    def taken(self) -> int:
        """How many records it has queued, ever: frames, and LACs of idle writers."""
        ...

    def answers(self, durable: int, now_ns: int) -> Iterator[tuple[int, int, bytes]]:
        """(link, how many answers, their message) for what was taken and is durable up to this token. Exhaust it
        before the next `take`."""
        ...

    def due(self) -> Iterator[tuple[int, int, bytes]]:
        """The rest of the last `answers`."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when the journal has news, and for no other reason."""
        ...

    def stop(self, status: int) -> Iterator[tuple[int, int, bytes]]:
        """Take nothing from now on; answer everything that waits with this status (P7.6)."""
        ...


class WaitTerms(Struct, frozen=True):
    """The terms of a wait in which a bookie only takes and answers common adds."""

    add_path: AddPath
    filenos: Sequence[
        int
    ]  # All others on the loop: one that is ready ends the wait. The same object while they are.
    until_ns: int  # By the loop's clock.
    duties_ns: int  # Once something was taken or answered, the wait ends so much later at the latest.
    durable: int  # The token up to which the host knows of durability ..
    awaits_journal: bool  # .. and whether others than the add path wait for the journal to pass it.
    bytes_max: int  # After so many bytes taken the storage has something to do.


class WaitEnd(Struct, frozen=True):
    """What ended a wait. In all cases the next `receive` returns what else came."""

    ready: Sequence[int]  # Those of the others' filenos that are ready.
    unsent: (
        tuple[int, bytes] | None
    )  # An answer, with its link, that is the host's to send; others may be due behind it.


class Near(Protocol):
    """A bookie as writers on the same loop reach it, past all messages (native/SHORTCUTS.md, "Near seats")."""

    def show(self, *, is_open: bool, is_told: bool) -> None:
        """After each step of its node. is_open: common adds are taken; is_told: the node wants every rise of
        `durable`, else only those that concern it."""
        ...

    def leave(self) -> None:
        """Its storage is about to close."""
        ...


class AddSeat(Struct, frozen=True):
    """A receiver of each frame of a handle: over a link, or as a bookie of the same loop."""

    link: int
    seating: int  # As its answers name it (P3.8).
    control: bytes  # The control part of each request, encoded.
    slot: int  # Where the table of frames counts what it answers.
    near: Near | None = None  # Then the link and what is said over it are not used.


class AddTerms(Struct, frozen=True):
    """What one writing handle passes to `open_adds`."""

    packer: Any  # The one in C (codec/packer.py).
    table: Any  # The handle's frames in flight, in C (`core.frame_table.AnyFrameTable`).
    ledger_id: int
    ledger_key: bytes
    nonce: int
    ack_quorum: int
    lac: int
    lac_length: int
    bytes_max: int  # Bound of frames that are not acknowledged.
    behind_max: int  # Bound of acknowledged ones kept for seats that are behind, with their price.


class SentFacts(Struct, frozen=True):
    """What became of the adds of one handle."""

    lac: int
    lac_length: int
    pending: int  # Frames that are not acknowledged.
    is_ending: bool  # Nothing more goes this way.
    oldest_sent_ns: int | None  # When the oldest frame that a seat has not answered was sent.
    longest_ns: int  # The longest time of an answer since the last report; 0: there was none.
    followed: int = 0  # A bit for each seat that said since then that a reader waits there (P6.2).
    heard_ns: tuple[int, ...] = ()  # By seat: when it was seen last that it had answered; 0: never.
    is_pressed: bool = False  # So much is kept for seats that are behind that nothing is sealed.
    # Then, by seat: since when it has answered nothing of what it owes; 0: it owes nothing.
    silent_ns: tuple[int, ...] = ()
    answered_ns: tuple[
        int, ...
    ] = ()  # By seat: when the newest was sent of what it has answered; 0: nothing.


class OwedFrame(NamedTuple):
    """A frame that was sent this way and is owed an answer; a bit for each seat that owes it."""

    first_entry: int
    first_request: int  # Request id of seat 0; those of the others follow.
    asked: int  # Seats whose request is on its way.
    unsent: int  # Seats whose link took nothing of it, or near ones that have it not durable yet.


class SentAdds(Protocol):
    """The adds of one writing handle, sealed and sent in C (native/SHORTCUTS.md, "Adds in C").

    is_followed: readers wait for what is acknowledged, so nothing is reported late.
    """

    is_followed: bool

    def tell(self, now_ns: int) -> SentFacts:
        """Return what happened since the last call."""
        ...

    def fail(self, seat: int) -> None:
        """Note that this seat failed: nothing is kept for it any more, and no further frame is sealed."""
        ...

    def end(self) -> list[OwedFrame]:
        """End the sending; from now on the host gets the answers to the frames returned here, in entry order."""
        ...

    def close(self) -> None:
        """The table is not used any more; waiting threads return, as nothing comes this way. Threads may still ask."""
        ...

    def lac(self) -> tuple[int, int]:
        """Any thread: what is acknowledged, told or not, and the length of the ledger up to there at least."""
        ...

    def wait(self, entry_id: int, *, is_alone: bool) -> bool:
        """Any thread: block until the entry is acknowledged. False: it will not be this way. is_alone: no other
        waiter needs the LAC in Python, so it may be published a little later."""
        ...


class AddSending(Protocol):
    """Belongs to one transport, or to a loop with bookies on it. On the host's thread, but for `wake_adds`."""

    def open_adds(self, terms: AddTerms, seats: Sequence[AddSeat]) -> SentAdds | None:
        """From now on what this packer has is sealed and sent while the host waits. Returns None: not over these
        links."""
        ...

    def send_adds(self, now_ns: int) -> None:
        """Give these adds a turn, for a host that does not wait by `listen_for`."""
        ...

    def wake_adds(self) -> None:
        """From any thread: a packer has something. The host's wait ends, or takes it into account."""
        ...


class NearWait(AddSending, Protocol):
    """The wait of a loop with bookies on it."""

    def fileno(self) -> int:
        """Ready when adds have news for their cores."""
        ...


class Transport(Protocol):
    """Carries bodies between identified peers over links; all calls from the host's thread.

    A link delivers bodies in order, each at most once, or goes down. After a reconnect it is another link with
    another nonce; nothing of the old one is delivered or sent again.

    `offer`, `wait`, `count` and `listen_for` only save work: a derived class need not have them.
    """

    def listen(self, endpoint: str) -> str:
        """Accept links; returns the endpoint with the port or path that was bound.

        Raises UsageError when the address is in use, is not loopback without being allowed, or is not understood.
        """
        ...

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        """Begin a link; LinkUp or LinkDown follows. expect: refuse (LinkDown) a peer with another node_id or
        incarnation (empty fields are not compared). A link that goes down is not dialled again by the transport.

        Raises UsageError: the endpoint is not allowed, or no link or descriptor is left; later there may be."""
        ...

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        """Send the pieces as one body. False: the link's queue is full or the link is down, and nothing was sent.
        The pieces are borrowed only during the call unless the transport keeps its own reference to them."""
        ...

    def has_room(self, link: int, size: int) -> bool:
        """Whether `send` would take a body of so many bytes now; False for a link that is down. When there is
        room again, the host is woken, or finds it at its next look."""
        ...

    def drop(self, link: int, reason: str) -> None:
        """End a link (a peer that breaks the protocol); LinkDown follows here, and the peer is informed if possible."""
        ...

    def offer(self, add_path: AddPath | None) -> None:
        """Offer the bodies of links that were accepted to this add path first; what it takes is no event. For the next
        `receive` only. A transport need not: then all of them are events."""
        return

    def wait(self, terms: WaitTerms) -> WaitEnd | None:
        """Wait in the host's place for anything but common adds, which are taken and, once durable, answered meanwhile.
        Call it after an empty `receive`, and only while the add path would be offered. Returns None: not here, or not
        now; the host waits by itself."""
        return None

    def count(self, answers: Counting) -> None:
        """Offer the bodies of links that were dialled to this first, from now on; what it takes is no event. A
        transport need not: then all of them are events, which their host offers."""
        return

    def listen_for(self, filenos: Sequence[int], until_ns: int, untold_ns: int) -> Sequence[int] | None:
        """Wait in the host's place for anything but answers that are counted and no news, as `Counting` has it; no
        longer than untold_ns from when one is untold. Behind `deadline_ns`, while nothing but `count` is offered.

        filenos: of all on the loop; the same object while they are the same. Returns those of others that are ready;
        in all cases the next `receive` returns what came. Returns None: not here, or not now; the host waits by
        itself."""
        return None

    def adds(self) -> AddSending | None:
        """What sends frames of a writing handle and counts their answers while `listen_for` waits. None: not here, or
        not yet. Once it is not None it stays the same object."""
        return None

    def receive(self, now_ns: int) -> list[TransportEvent]:
        """What happened since the last call, in order; also does what is due by time (heartbeats, timeouts)."""
        ...

    def has_events(self) -> bool:
        """Whether `receive` would give something that is here already, which no descriptor may show. Costs
        nothing; check it before waiting."""
        ...

    def deadline_ns(self) -> int | None:
        """When `receive` must be called again even if nothing arrives."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `receive` has something to do, the same from open to close; empty for
        simulated transports."""
        ...

    def close(self) -> None: ...


# --- Storage ---------------------------------------------------------------------------------------------


class Journal(Protocol):
    """An append-only sequence of records made durable by group commit. Tokens rise by one per record, for ever."""

    def next_token(self) -> int:
        """The token that the next append will get; token 1 is the first of an empty journal."""
        ...

    def append(
        self, kind: int, ledger_id: int, body: Buffer, *, borrowed: bool = False, kick: bool = True
    ) -> int:
        """Queue one record; returns its token. borrowed: body stays unchanged and alive until the token is durable.
        kick: wake the journal's thread; else call `kick()` soon.

        Raises StorageError when the journal has failed (it never works again) or is closed.
        """
        ...

    def kick(self) -> None:
        """Wake the journal's thread for what was appended with kick=False. Raises StorageError: it is closed."""
        ...

    def durable(self) -> int:
        """Every record up to this token is on the device. Never falls. Clears the descriptor's readiness."""
        ...

    def wait(self, token: int) -> None:
        """Block until the token is durable; at a start or a stop only. Raises StorageError: it will not be."""
        ...

    def queued_bytes(self) -> int:
        """Bytes queued and not yet durable, for back pressure."""
        ...

    def failed(self) -> str | None:
        """Why the journal stopped for good, or None (P7.6)."""
        ...

    def fileno(self) -> int: ...

    def replay(self, after: int) -> Iterator[tuple[int, int, int, memoryview]]:
        """(token, kind, ledger_id, body) of the records above `after`, in order, before the first append."""
        ...

    def trim(self, token: int) -> None:
        """Records up to token are in entry logs and index, synced (P7.5): their space may be used again."""
        ...

    def close(self) -> None: ...


class EntriesFound(Struct):
    """A verdict per id: in frame = held; in absent (first, last ranges, both included) = proven not held;
    neither = unreadable, or beyond what fitted."""

    frame: Frame | None
    absent: list[tuple[int, int]] = field(default_factory=list)


class EntriesHeld(Struct):
    """How many of the entries that were asked for are held; and ranges (first, last), both included, of whose asked ids
    none is: the first ones, as far as they were listed. Nothing of it proves that an entry never was here (P7.1).
    digests: where they were asked for, part by part one for each residue, ascending; None: they are not known just
    now."""

    count: int
    lacking: list[tuple[int, int]] = field(default_factory=list)
    digests: list[int | None] = field(default_factory=list)


class EntrySums(Struct):
    """The digests of entries that are held (codec/entry_digest.py), one sum for each residue, ascending; None: too
    much would have to be read, or something of it is bad. bad: the first ids whose bytes were read and are not what the
    index says. bytes_read: what it cost."""

    digests: list[int] | None
    bad: list[int] = field(default_factory=list)
    bytes_read: int = 0


class ScrubDamage(Struct, frozen=True):
    """Something that was stored and is not there any more as it was (I55)."""

    path: str
    offset: int
    what: str
    ledger_id: int | None = None
    first_entry: int | None = None  # With last_entry: which entries, both included.
    last_entry: int | None = None


class ScrubPiece(Struct, frozen=True):
    """What was read of everything that is stored, since the piece before."""

    bytes_read: int
    damages: tuple[ScrubDamage, ...] = ()
    is_pass_end: bool = False  # Everything was read once; the next piece begins anew.


class RebuildLeft(NamedTuple):
    """What is left to be looked through of entry logs of which no index is whole: so many of them, so many bytes."""

    logs: int
    bytes_left: int


class RebuildPiece(Struct, frozen=True):
    """What became of the piece that was begun. has_more: a part of what was found is taken in, and the rest of this
    says nothing yet. is_log_over: all of its log was looked through; is_whole: and nothing is hidden in it."""

    bytes_read: int
    has_more: bool = False
    is_log_over: bool = False
    is_whole: bool = False


class MemoryRefused(StorageError):
    """The system gave no memory for this call, which changed nothing and may be made again."""


class DeviceFull(StorageError):
    """A flush found no room on the device (I53)."""


class EntryStore(Protocol):
    """Entries by (ledger, entry): the write cache and the entry logs with their index, as one."""

    def put(self, frame: Frame) -> memoryview:
        """Take the (checked) frame's entries into the write cache; a stored entry of the same id is replaced.
        Returns the copy of frame.body, unchanged and alive until its entries are in an entry log."""
        ...

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound:
        """Entries of first..last with id % modulus in residues, ascending, digests checked, as one frame of at
        most bytes_max (the first entry always fits). from_memory: what the last flush wrote may be answered from
        the write cache while it still stands there; that says nothing about the copy in the entry log."""
        ...

    def held(self, ledger_id: int, first: int, last: int, modulus: int = 1, residues: int = 1) -> EntriesHeld:
        """Which of first..last with id % modulus in residues it holds, as far as the index knows: no entry is read."""
        ...

    def sums(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int,
        residues: int,
        bytes_max: int,
        *,
        by_bytes: bool = False,
    ) -> EntrySums:
        """The digests of what is held of these. At most bytes_max are read where neither index nor write cache knows
        them, but one entry always; by_bytes: all of it is read and checked."""
        ...

    def cached_bytes(self) -> int:
        """Bytes in the write cache that no entry log holds yet."""
        ...

    def close(self) -> None: ...


class AnyStarts(Protocol):
    """Which start of a node's directories a process is, as these know it (P7.9)."""

    @property
    def count(self) -> int:
        """The number of this start: durable, and above that of every earlier one."""
        ...

    @property
    def id(self) -> bytes:
        """A random number of START_ID_BYTES, of this start alone."""
        ...

    def has(self, count: int, start_id: bytes) -> bool:
        """Whether that was a start of these directories, or is this one; False also where they do not remember."""
        ...

    def pass_by(self, count: int) -> None:
        """Count this start above one that these directories know nothing of, durably. Raises StorageError."""
        ...


class DurableBookie(Protocol):
    """All of a bookie that outlives it, as one: identity, journal, ledger table, entry store, flush and trim.

    Opening has replayed what was durable into `table` and store. All calls from the host's thread.
    """

    incarnation: bytes
    met: Met | None  # The newest metadata that was met, as it was kept (P10.5).
    place: str  # Where it is, for people.
    replayed: tuple[
        int, ...
    ]  # For each journal, in its own tokens: the last record that its start had (P7.9).

    @property
    def may_have_lost(self) -> bool:
        """Something acknowledged may be gone: limbo comes before serving (P7.4)."""
        ...

    @property
    def starts(self) -> AnyStarts:
        """Which start of its directories this is, counted durably."""
        ...

    @property
    def table(self) -> AnyLedgerTable: ...

    @property
    def add_path(self) -> AddPath | None:
        """None: every add goes through the core."""
        ...

    def note_less(self, reason: str) -> None:
        """It has less than it had: `may_have_lost`, also for the next start, durable when this returns."""
        ...

    def durable_tokens(self) -> tuple[int, ...]:
        """For each journal, in its own tokens: the last that `durable` has returned."""
        ...

    def sync(self) -> None:
        """Wait until everything queued is durable, or will never be; call it before closing."""
        ...

    def end_loss(self) -> None:
        """Everything that may be lost is in durable limbo: `may_have_lost` is over, also for the next start."""
        ...

    def keep_met(self, met: Met, *, is_synced: bool) -> None:
        """Keep the newest metadata that was met; durable when this returns if is_synced. Raises StorageError."""
        ...

    def next_token(self) -> int:
        """The journal token that the next `append` or `put_frame` will get."""
        ...

    def append(self, kind: int, ledger_id: int, body: Buffer) -> int:
        """Queue a record that is not a frame (codec/journal_records.py); returns its token."""
        ...

    def put_frame(self, frame: Frame) -> int:
        """Copy a checked frame's body into the write cache and queue it as one record; returns its token."""
        ...

    def drop(self, ledger_id: int) -> None:
        """The ledger's DROP record is durable: forget its entries; on disk they go when it suits (P7.7)."""
        ...

    def kick(self) -> None:
        """End of a turn: let what was queued be committed. Until then it may wait, so that one sync serves it all."""
        ...

    def durable(self) -> int:
        """Every record up to this token is on the device. Never falls. Clears the descriptors' readiness."""
        ...

    def failed(self) -> str | None:
        """Why nothing more becomes durable, or None (P7.6)."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `durable` rose or a flush is ready; the same from open to close."""
        ...

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound:
        """As EntryStore.read."""
        ...

    def held(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int = 1,
        residues: int = 1,
        cuts: Sequence[int] = (),
        wants: int = Digests.NONE,
    ) -> EntriesHeld | None:
        """As EntryStore.held, without entries that were found damaged and still are. Returns None if too many
        were. wants: digests along with it, of the parts that begin with first and with each of cuts, which
        ascend."""
        ...

    def block_numbers(self, blocks: Sequence[tuple[int, bytes]]) -> tuple[list[int | None], int]:
        """One number of 64 bits for each block (first ledger, mask), and the highest token of a record that was queued
        for a ledger of one of them. mask: bit i % 8 of byte i // 8 chooses ledger first + i.

        A number is another one, but for a chance of 2^-64, once `held` may return something else for one of these
        ledgers, and with each start. None: damage is known in one of them."""
        ...

    def queued_bytes(self) -> int:
        """Bytes queued and not yet durable, for back pressure."""
        ...

    def cached_bytes(self) -> int:
        """Bytes in the write cache that no entry log holds yet, for back pressure."""
        ...

    def begin_flush_if_due(self) -> bool:
        """Start a flush when the write cache or the journal passed its bound and none is running."""
        ...

    def quiet_bytes(self) -> int:
        """How much the add path may take before this storage has something to do that no descriptor tells of; 0: it has
        now."""
        ...

    def finish_flush(self) -> bool:
        """Take a flush in that is ready, and trim the journal below its mark (P7.5); False when none is."""
        ...

    def begin_scrub(self, bytes_max: int) -> bool:
        """Start reading the next piece of what is stored, about bytes_max bytes, to find what has rotted (I55).
        False when there is nothing to be read, or a piece is being read."""
        ...

    def finish_scrub(self) -> ScrubPiece | None:
        """The piece that was begun, when it is read; None while it is not, or none was begun. Raises StorageError: it
        cannot be read now, which says nothing of what is stored; it is the next one again."""
        ...

    def scrub_damages(self) -> list[ScrubDamage]:
        """What is known to be damaged now: of each file what its last reading has found."""
        ...

    def rebuild_left(self) -> RebuildLeft:
        """Entry logs of which no index is whole, and what of them is still to be looked through (ST38). What may stand
        there is unreadable until then, never absent (P7.1)."""
        ...

    def begin_rebuild(self, bytes_max: int) -> bool:
        """Start looking through the next bytes_max bytes of it, or go on with the piece that is under way. False when
        nothing is left. Raises StorageError: not now."""
        ...

    def finish_rebuild(self) -> RebuildPiece | None:
        """What became of the piece that was begun; None while it is being read, or none was begun. Raises StorageError:
        not now, and the piece is to be begun again."""
        ...

    def has_room(self, *, is_urgent: bool = False) -> bool:
        """Whether `put_frame` takes the largest frame without waiting for a flush or a commit. Asked for each request;
        True also where waiting would not help. is_urgent: of a part that normal adds leave free (P7.8)."""
        ...

    def is_full(self) -> bool:
        """Whether a write found no room on the device, and none of its kind went well since (I53). Asked often."""
        ...

    def look_at_directories(self) -> None:
        """Notice a directory that was removed beneath this process, in which nothing is kept any more: from then on
        `failed` says so. Asked now and then."""
        ...

    def read_only_reason(self) -> str | None:
        """Why an operator wants no normal adds taken, perhaps without words; None: no operator does. Asked now and
        then. Raises StorageError: it cannot be told."""
        ...

    def retry_flush(self) -> None:
        """Try a flush that found no room once more, if there is one. Raises StorageError when it cannot be begun."""
        ...

    def log_facts(self) -> list[LogFacts]:
        """Entry logs that could be compacted, oldest first; none where storage is not made of files."""
        ...

    def log_keepers(self, log_id: int, after: int, most: int) -> list[EntryLogKeeper]:
        """Ledgers with ids above `after` that keep this entry log, ascending, at most so many; none: it is not there,
        or nothing of it counts."""
        ...

    def begin_copy(self, log_ids: Sequence[int]) -> None:
        """Plan a new entry log of what lives in these. Raises StorageError."""
        ...

    def copy_slice(self, byte_count: int) -> None:
        """Begin to copy about so much of it, beside the caller where storage has threads. Raises StorageError: nothing
        is copied any more, and nothing changed."""
        ...

    def poll_copy(self) -> tuple[int, bool] | None:
        """For a slice that ended: its bytes, and whether all is copied; then the sources go with the next flush.
        None while none ended. Raises StorageError: nothing is copied any more, and nothing changed."""
        ...

    def close(self) -> None:
        """Make everything durable, flush, release the directory."""
        ...
