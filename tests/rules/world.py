"""A small world for the cores: bookies on storage in memory, a metadata store, clients, and the wire between them.

Nothing happens by itself. A request stays on the wire until a test delivers it, a record is not durable until its
bookie syncs, a metadata operation has no outcome until it is given one. `settle` does all of that until nothing
moves; what it shall not touch is held. Requests and answers pass through the codec, so bytes are what travels.

The world also remembers what was promised (`acked`, `sent`, every version of every ledger's metadata) and
checks it after each step: a test that only moves messages is a test of these promises too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedbk.codec.add_messages import AddAnswer, FenceAnswer, FenceRequest, is_final
from embedbk.codec.bookie_fields import Status
from embedbk.codec.copy_decision import CopyDecision
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import Frame, FrameHeader, encode_frame_header, frame_of, iter_entries, split
from embedbk.codec.journal_records import RecordKind
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Durability,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.messages import Control, decode_message, encode_message
from embedbk.codec.metadata_messages import ABSENT, ANY, Compare, Delete, Put, Told
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.codec.registration import placement_path
from embedbk.config import Quorum
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import (
    BlocksNumbered,
    CountEntries,
    DecisionsRead,
    DropEntries,
    EntriesCounted,
    EntriesRead,
    JournalAppend,
    JournalDurable,
    JournalFailed,
    LimboListed,
    NumberBlocks,
    OlderMetadata,
    ReadDecisions,
    ReadEntries,
    Reply,
    RequestReceived,
    ShareTold,
    StoreFrame,
)
from embedbk.core.client_words import (
    AddFailed,
    Answered,
    BookieInfo,
    BookiesChanged,
    Confirmed,
    Consumed,
    EntriesReady,
    FrameSealed,
    Send,
    SendFailed,
)
from embedbk.core.limbo import is_named, share_of
from embedbk.core.machine import Effect, Event, Machine
from embedbk.core.metadata_words import (
    AllocateIds,
    IdsAllocated,
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.quorum import write_set
from embedbk.core.reader import RangeRead
from embedbk.core.recovery import Recovery
from embedbk.core.upkeep_words import AskMetadata, MetadataTold
from embedbk.core.vocabulary import CloseRequested, Ended, Started, Tick
from embedbk.core.writer import Writer
from embedbk.host.reading import looked_up
from embedbk.ids import NO_ENTRY, Member
from embedbk.storage.memory import MemoryBookieStorage, Survivors

__all__ = ["KEY", "MS", "THREE", "Client", "Hold", "Node", "Operation", "Packet", "Pen", "World", "member"]

MS = 1_000_000
THREE = Quorum(3, 3, 2)
KEY = bytes(range(16))
TOLD = Told(bytes(16), 1, bytes(16), 1, 1)  # What metadata says of itself; no core here reads it.
STEPS_MAX = 100_000  # A world that still moves after so many steps goes in a circle.


def member(bookie_id: str, disk: int = 0) -> Member:
    """The bookie in its n-th disk incarnation."""
    return Member(bookie_id, bookie_id.encode().ljust(15, b".") + bytes([disk]))


@dataclass(slots=True, eq=False)
class Packet:
    """One request or answer on its way."""

    number: int
    client: Client
    member: Member
    tag: Any
    control: Control
    frames: list[tuple[FrameHeader, memoryview]]
    is_request: bool

    @property
    def bookie_id(self) -> str:
        return self.member.bookie_id

    def __repr__(self) -> str:
        arrow = "->" if self.is_request else "<-"
        return f"<{self.number} {self.client.name} {arrow} {self.bookie_id} {self.tag} {self.control}>"


@dataclass(slots=True, eq=False)
class Operation:
    """One metadata operation without an outcome yet."""

    client: Client
    effect: ReadKey | Transact | AllocateIds


Hold = Callable[[Packet], bool]


def nothing(_: Packet) -> bool:
    return False


class Client:
    """One core outside a bookie, and what it told its user."""

    def __init__(self, world: World, name: str, core: Machine) -> None:
        self.world, self.name, self.core = world, name, core
        self.told: list[Effect] = []  # Confirmed, AddFailed, EntriesReady, Ended ...
        self.is_gone = False  # Killed: hears nothing any more.
        self.is_unsure = False  # It was told that an outcome cannot be told.

    def step(self, event: Event) -> list[Effect]:
        """One event; requests go on the wire, the rest is what the user hears."""
        if self.is_gone:
            return []
        ended_before = self.has_ended
        told = self.world.perform(self, self.core.step(event))
        assert not (ended_before and told), f"{self.name} goes on after its end: {told}"
        self.told += told
        self.world.check()
        return told

    def start(self) -> list[Effect]:
        return self.step(Started(self.world.now_ns))

    @property
    def ended(self) -> Ended:
        """The end of the core; fails when it has not ended."""
        (end,) = [effect for effect in self.told if isinstance(effect, Ended)]
        return end

    @property
    def has_ended(self) -> bool:
        return any(isinstance(effect, Ended) for effect in self.told)

    @property
    def is_over(self) -> bool:
        """Ended, or killed."""
        return self.is_gone or self.has_ended

    @property
    def confirmed(self) -> int:
        """The highest entry that the user was told is done."""
        return max((effect.lac for effect in self.told if isinstance(effect, Confirmed)), default=NO_ENTRY)

    @property
    def failure(self) -> Exception | None:
        return next((effect.error for effect in self.told if isinstance(effect, AddFailed)), None)

    @property
    def read(self) -> list[tuple[int, bytes]]:
        """(entry id, payload) of everything that was read."""
        frames = [effect.frame for effect in self.told if isinstance(effect, EntriesReady)]
        return [(entry.entry_id, bytes(entry.data)) for frame in frames for entry in iter_entries(frame)]


class Pen:
    """Makes the entries of one ledger as its writer would."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id, self.next_entry, self.length = ledger_id, 0, 0

    def frame(self, *payloads: bytes, lac: int = NO_ENTRY, lac_length: int = 0) -> Frame:
        entries = []
        for payload in payloads:
            self.length += len(payload)
            entries.append(
                encode_entry(self.ledger_id, self.next_entry, self.length, payload, lac, lac_length)
            )
            self.next_entry += 1
        return frame_of(memoryview(b"".join(entries)))


class Node:
    """A bookie: its core, its storage, and whether it is up."""

    def __init__(self, world: World, bookie_id: str) -> None:
        self.world, self.bookie_id = world, bookie_id
        self.disk = 0
        self.is_up = True
        self.holds_reads = False  # Lookups in the entry store wait for `finish_reads`.
        self.holds_syncs = False  # `settle` does not sync it.
        self.holds_questions = False  # Which metadata there is, it hears by `tell_metadata`.
        self.asked: dict[int, Packet] = {}  # Request id -> the request it answers.
        self.fences_told: set[int] = set()  # Ledgers for which a durable fence was promised.
        self.boot(Survivors(self.member.incarnation))

    @property
    def member(self) -> Member:
        return member(self.bookie_id, self.disk)

    def boot(self, survivors: Survivors, *, may_have_lost: bool = False) -> None:
        self.storage = MemoryBookieStorage(survivors, may_have_lost=may_have_lost)
        self.core = Bookie(
            survivors.incarnation,
            self.storage.table,
            self.storage.next_token(),
            may_have_lost=self.storage.may_have_lost,
        )
        self.reads: list[ReadEntries] = []
        self.questions: list[AskMetadata] = []
        self.told_durable = self.storage.durable()
        self.told_failure = False
        self.lacs: dict[int, int] = {}  # As last seen, to see that they never fall.
        self.durable_frames: dict[tuple[int, int], bytes] = {}
        self.records_seen = 0

    def crash(self) -> None:
        """A power cut: everything that was not synced is gone."""
        survivors = self.storage.crash()
        self.is_up = False
        self.asked.clear()
        self.boot(survivors)

    def lose(self, records: int | None = None, *, entry_logs: int = 0) -> None:
        """A crash that also took durable records, and the restart after it: nothing is served before limbo (P7.4)."""
        survivors = self.storage.lose(records, entry_logs=entry_logs)
        self.asked.clear()
        self.boot(survivors)
        self.world.disks_lost += 1

    def enter_limbo(self) -> None:
        """What the host does: list the ledgers, and hand over those that may have been lost."""
        ledgers = [decode_ledger_metadata(value) for value, _ in self.world.catalog.values.values()]
        named = [metadata for metadata in ledgers if is_named(metadata, self.bookie_id)]
        listed = LimboListed(
            self.world.now_ns,
            [metadata.ledger_id for metadata in named if not metadata.is_closed],
            [metadata.ledger_id for metadata in named if metadata.is_closed],
            [metadata.ledger_id for metadata in ledgers if metadata.is_closed and metadata not in named],
        )
        self.perform(self.core.step(listed))

    def look_for_share(self, ledger_id: int) -> None:
        """What the host does once the ledger is closed; until nothing more is looked for."""
        metadata, _ = self.world.catalog.metadata(ledger_id)
        self.perform(self.core.step(ShareTold(self.world.now_ns, ledger_id, share_of(metadata, self.member))))
        while (due_ns := self.core.limbo.due_ns) is not None:
            self.world.now_ns = max(self.world.now_ns, due_ns)
            self.perform(self.core.step(Tick(self.world.now_ns)))

    def restart(self) -> None:
        self.is_up = True

    def lose_disk(self) -> None:
        """Come back under the same name with empty directories, which is another incarnation (P7.2)."""
        self.disk += 1
        self.asked.clear()
        self.fences_told.clear()
        self.is_up = True
        self.boot(Survivors(self.member.incarnation))

    def receive(self, packet: Packet) -> None:
        self.asked[packet.number] = packet
        self.perform(
            self.core.step(
                RequestReceived(self.world.now_ns, 1, packet.number, packet.control, packet.frames)
            )
        )

    def sync(self, count: int | None = None) -> bool:
        """One journal sync, of the first `count` records or all; False when there was nothing to sync or to tell."""
        durable = self.storage.commit(count)
        if (failure := self.storage.failed()) is not None:
            told, self.told_failure = self.told_failure, True
            if not told:
                self.perform(self.core.step(JournalFailed(self.world.now_ns, failure)))
            return not told
        if durable == self.told_durable:
            return False
        self.told_durable = durable
        self.perform(self.core.step(JournalDurable(self.world.now_ns, durable)))
        return True

    def finish_reads(self) -> bool:
        reads, self.reads = self.reads, []
        for read in reads:
            self._look_up(read)
        return bool(reads)

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StoreFrame):
                assert self.storage.put_frame(effect.frame) == effect.token
            elif isinstance(effect, JournalAppend):
                token = self.storage.append(effect.kind, effect.ledger_id, effect.body)
                assert token == effect.token
            elif isinstance(effect, ReadEntries):
                if self.holds_reads:
                    self.reads.append(effect)
                else:
                    self._look_up(effect)
            elif isinstance(effect, CountEntries):
                self._count(effect)
            elif isinstance(effect, NumberBlocks):
                blocks = [(each.first_ledger, each.mask) for each in effect.blocks]
                told = self.storage.block_numbers(blocks)
                self.perform(self.core.step(BlocksNumbered(self.world.now_ns, effect.read_id, *told)))
            elif isinstance(effect, ReadDecisions):
                told = self.world.decided.get((effect.ledger_id, effect.entry_id), ())
                self.perform(self.core.step(DecisionsRead(self.world.now_ns, effect.read_id, told)))
            elif isinstance(effect, AskMetadata):
                self.questions.append(effect)
                if not self.holds_questions:
                    self.tell_metadata()
            elif isinstance(effect, DropEntries):
                self.storage.drop(effect.ledger_id)
            else:
                assert isinstance(effect, Reply)
                self.world.answer(self, effect)
        self.world.check()

    def tell_metadata(self, *, doubt: str = "") -> None:
        """It hears which metadata there is, as it asked."""
        questions, self.questions = self.questions, []
        for each in questions:
            if doubt:
                self.perform(self.core.step(OlderMetadata(self.world.now_ns, True)))
            self.perform(self.core.step(MetadataTold(self.world.now_ns, each.tag, TOLD, doubt)))

    def _look_up(self, look: ReadEntries) -> None:
        found, others = looked_up(self.storage, look)
        self.perform(self.core.step(EntriesRead(self.world.now_ns, look.read_id, *found, others)))

    def _count(self, look: CountEntries) -> None:
        asked = (look.ledger_id, look.first_entry, look.last_entry, look.modulus, look.residues)
        held = self.storage.held(*asked, look.cuts, look.wants)
        told = (None, [], []) if held is None else (held.count, held.lacking, held.digests)
        self.perform(self.core.step(EntriesCounted(self.world.now_ns, look.read_id, *told)))

    def durable_entries(self) -> dict[tuple[int, int], bytes]:
        """What would survive a power cut now, by (ledger, entry)."""
        for record in self.storage.records[self.records_seen :]:
            if record.kind == RecordKind.FRAME:
                frame = frame_of(memoryview(record.body))
                for entry_id, raw in split(frame):
                    if (frame.ledger_id, entry_id) not in self.storage.store.unreadable:
                        self.durable_frames[frame.ledger_id, entry_id] = bytes(raw)
        self.records_seen = len(self.storage.records)
        return self.durable_frames

    def holds(self, ledger_id: int) -> list[int]:
        """Ids of the ledger's entries here, durable or not."""
        return list(self.storage.store.ids.get(ledger_id, []))


@dataclass
class Catalog:
    """The metadata store: keys with revisions that never reset, and the history of every ledger's metadata."""

    values: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    revision: int = 0
    next_id: int = 1
    waiting: list[Operation] = field(default_factory=list)  # Not carried out yet.
    history: dict[str, list[LedgerMetadata]] = field(default_factory=dict)
    is_held: bool = False  # `settle` leaves operations to the test.
    spared: set[int] = field(default_factory=set)  # Ledgers that a lost future may have made.
    stale: set[int] = field(default_factory=set)  # Ledgers that it may have changed.
    refuses: str = ""  # Why it runs no transaction whose comparisons hold; empty: it does.

    def holds(self, when: list[Compare]) -> bool:
        for compare in when:
            _, revision = self.values.get(compare.key, (b"", ABSENT))
            wanted = revision if compare.revision == ANY and revision != ABSENT else compare.revision
            if revision != wanted:
                return False
        return True

    def transact(self, when: list[Compare], then: list[Put | Delete]) -> tuple[bool, int]:
        if not self.holds(when):
            return False, self.revision
        self.revision += 1
        for change in then:
            if isinstance(change, Delete):
                self.values.pop(change.key, None)
            else:
                self.values[change.key] = (change.value, self.revision)
                if change.key.startswith("/ledgers/"):
                    self._note(change.key, decode_ledger_metadata(change.value))
        return True, self.revision

    def _note(self, key: str, new: LedgerMetadata) -> None:
        """Every version of a ledger's metadata is checked against the one before (P2.3, P2.4, I2, I15, I17, I18)."""
        versions = self.history.setdefault(key, [])
        if versions and new.ledger_id not in self.stale:  # Whose seats count for nothing (P10.5).
            old = versions[-1]
            assert new.state >= old.state, "a ledger's state went back"
            assert (new.last_entry is None) == (new.state != LedgerState.CLOSED)
            if old.is_closed:
                assert (new.last_entry, new.length) == (old.last_entry, old.length), (
                    "a closed ledger changed its end"
                )
                assert len(new.fragments) == len(old.fragments), "a closed ledger got another fragment"
            # Repair may seat others in fragments before the last; only the last one's ensemble is the writer's.
            starts = [fragment.first_entry for fragment in old.fragments]
            assert [f.first_entry for f in new.fragments[: len(starts)]] == starts, "a first entry was moved"
            if old.state == new.state == LedgerState.IN_RECOVERY:
                assert new.fragments[-1] == old.fragments[-1], "recovery published before its close (I28)"
        for fragment in new.fragments:
            seats = new.ensemble_size if new.freed is None else 0
            assert len({bookie_id for bookie_id, _ in fragment.ensemble}) == seats
        versions.append(new)

    def metadata(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        value, revision = self.values[ledger_key_path(ledger_id)]
        return decode_ledger_metadata(value), revision

    def placement(self, bookie_id: str) -> int | None:
        """None where it has none, as of an older build."""
        return self.values.get(placement_path(bookie_id), (b"", None))[1]

    def raise_placement(self, bookie_id: str) -> None:
        self.transact([], [Put(placement_path(bookie_id), b"")])

    # Outcomes, as the test chooses.

    def answer(self, operation: Operation) -> list[Effect]:
        """Carry it out and tell: done or refused, by what stands there now."""
        self.waiting.remove(operation)
        effect, now_ns = operation.effect, operation.client.world.now_ns
        if isinstance(effect, Transact) and self.refuses and self.holds(effect.when):
            return operation.client.step(TransactRefused(now_ns, effect.tag, self.refuses))
        if isinstance(effect, Transact) and self._is_not_spared(effect):
            return operation.client.step(TransactRefused(now_ns, effect.tag, "it is spared no more"))
        if isinstance(effect, Transact):
            is_done, revision = self.carry_out(effect)
            return operation.client.step(Transacted(now_ns, effect.tag, is_done, revision))
        if isinstance(effect, AllocateIds):
            first_id, self.next_id = self.next_id, self.next_id + effect.count
            return operation.client.step(IdsAllocated(now_ns, effect.tag, first_id))
        value, revision = self.values.get(effect.key, (None, self.revision))
        return operation.client.step(KeyRead(now_ns, effect.tag, value, revision))

    def tell_unknown(self, operation: Operation, *, lands: bool | None = None) -> list[Effect]:
        """Tell that the outcome cannot be told. lands: now (True), never (False), or by `land` later (None)."""
        assert isinstance(operation.effect, Transact)
        self.waiting.remove(operation)
        if lands:
            self.land(operation)
        operation.client.is_unsure = True
        return operation.client.step(TransactUnknown(operation.client.world.now_ns, operation.effect.tag))

    def land(self, operation: Operation) -> bool:
        """A transaction of unknown outcome arrives at last."""
        assert isinstance(operation.effect, Transact)
        return not self._is_not_spared(operation.effect) and self.carry_out(operation.effect)[0]

    def carry_out(self, effect: Transact) -> tuple[bool, int]:
        done = self.transact(effect.when, effect.then)
        if done[0]:
            self.spared.discard(effect.adopts)
        return done

    def _is_not_spared(self, effect: Transact) -> bool:
        """An adoption whose comparisons hold, of an id that is spared no more."""
        is_adopted = effect.adopts in self.spared or effect.adopts in self.stale
        return bool(effect.adopts) and not is_adopted and self.holds(effect.when)

    def fail(self, operation: Operation) -> list[Effect]:
        """A read or an allocation gets no answer; a transaction's outcome is unknown, and it never lands."""
        if isinstance(operation.effect, Transact):
            return self.tell_unknown(operation, lands=False)
        self.waiting.remove(operation)
        now_ns = operation.client.world.now_ns
        return operation.client.step(MetadataFailed(now_ns, operation.effect.tag, "no answer"))


class World:
    """Bookies b1..bn, a metadata store, clients, a wire and a clock."""

    def __init__(self, bookie_count: int = 3, seed: int = 0) -> None:
        self.now_ns = 0
        self.chance = random.Random(seed)
        self.clients: list[Client] = []
        self.wire: list[Packet] = []
        self.nodes: dict[str, Node] = {}
        self.down: set[str] = set()  # Requests to these fail at once.
        self.catalog = Catalog()
        self.next_packet = 1
        self.next_nonce = 1
        self.acked: dict[int, int] = {}  # Ledger -> highest entry that its writer's user was told is done.
        self.sent: dict[tuple[int, int], bytes] = {}  # (ledger, entry) -> the entry as its writer made it.
        # (ledger, entry) -> what operators decided about its copies; None: that cannot be told now.
        self.decided: dict[tuple[int, int], tuple[CopyDecision, ...] | None] = {}
        self.disks_lost = 0
        self.acked_seen: dict[int, int] = {}  # Ledger -> up to where copies were counted.
        self.nobody = Client(self, "nobody", Machine())  # Who asks in `ask`.
        for number in range(1, bookie_count + 1):
            self.nodes[f"b{number}"] = Node(self, f"b{number}")

    # Making things.

    @property
    def bookies(self) -> tuple[BookieInfo, ...]:
        """What clients see registered."""
        return tuple(
            BookieInfo(node.member, node.core.is_writable, placement=self.catalog.placement(node.bookie_id))
            for node in self.nodes.values()
            if node.bookie_id not in self.down
        )

    def create(
        self,
        quorum: Quorum = THREE,
        ensemble: Iterable[str] = (),
        ledger_id: int | None = None,
        durability: int = Durability.SYNCED,
        digest: int = 0,
    ) -> tuple[LedgerMetadata, int]:
        """An open ledger on the first bookies, or on those named."""
        names = list(ensemble) or list(self.nodes)[: quorum.ensemble_size]
        if ledger_id is None:
            ledger_id, self.catalog.next_id = self.catalog.next_id, self.catalog.next_id + 1
        fragment = Fragment(0, 0, tuple(tuple(self.nodes[name].member) for name in names))
        metadata = LedgerMetadata(
            METADATA_VERSION, ledger_id, quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum,
            LedgerState.OPEN, None, None, bytes(16), 0, {}, (fragment,), durability, digest,
        )  # fmt: skip
        put = Put(ledger_key_path(ledger_id), encode_ledger_metadata(metadata))
        _, revision = self.catalog.transact([], [put])
        return metadata, revision

    def client(self, name: str, core: Machine) -> Client:
        client = Client(self, name, core)
        self.clients.append(client)
        return client

    def nonce(self) -> int:
        self.next_nonce += 1
        return self.next_nonce

    def writer(
        self, metadata: LedgerMetadata, revision: int, name: str = "w", key: bytes = KEY, **options: Any
    ) -> Client:
        core = Writer(metadata, revision, key, self.nonce(), self.bookies, self.chance, **options)
        return self.client(name, core)

    def recovery(self, ledger_id: int, name: str = "r", key: bytes = KEY, **options: Any) -> Client:
        """A recovery from what the metadata says now; not started."""
        metadata, revision = self.catalog.metadata(ledger_id)
        core = Recovery(metadata, revision, key, self.nonce(), self.bookies, self.chance, **options)
        return self.client(name, core)

    def reader(
        self, ledger_id: int, first: int, last: int, name: str = "reader", seat: int = 0, **options: Any
    ) -> Client:
        metadata, _ = self.catalog.metadata(ledger_id)
        return self.client(name, RangeRead(metadata, first, last, seat, **options))

    # Moving things.

    def perform(self, client: Client, effects: Iterable[Effect]) -> list[Effect]:
        """Requests onto the wire and operations to the store; what is left is for the client's user."""
        told = []
        for effect in effects:
            if isinstance(effect, Send):
                body = b"".join(encode_message(self.next_packet, effect.control, effect.frames))
                message = decode_message(body)
                self.wire.append(
                    Packet(
                        self.next_packet,
                        client,
                        effect.member,
                        effect.tag,
                        message.control,
                        message.frames,
                        True,
                    )
                )
                self.next_packet += 1
            elif isinstance(effect, ReadKey | Transact | AllocateIds):
                self.catalog.waiting.append(Operation(client, effect))
            else:
                if isinstance(effect, Confirmed):
                    assert isinstance(client.core, Writer)
                    ledger_id = client.core.ledger_id
                    assert effect.lac > self.acked.get(ledger_id, NO_ENTRY), (
                        "confirmed twice, or out of order"
                    )
                    self.acked[ledger_id] = effect.lac
                told.append(effect)
        return told

    def answer(self, node: Node, reply: Reply) -> None:
        """A bookie's reply goes on the wire; a second one to the same request is nobody's."""
        request = node.asked.get(reply.request_id)
        if is_final(reply.control):
            node.asked.pop(reply.request_id, None)
        if request is None:
            return
        asked, said = request.control, reply.control
        if isinstance(said, AddAnswer) and said.status == Status.OK and not said.recovery:
            assert said.ledger_id not in node.fences_told, "a normal add was taken behind a fence (I21)"
        is_fence = isinstance(asked, FenceRequest) or (isinstance(asked, ReadRequest) and asked.fence)
        if is_fence and isinstance(said, FenceAnswer | ReadAnswer) and said.status == Status.OK:
            node.fences_told.add(said.ledger_id)
        message = decode_message(b"".join(encode_message(reply.request_id, reply.control, reply.frames)))
        self.wire.append(
            Packet(
                request.number,
                request.client,
                request.member,
                request.tag,
                message.control,
                message.frames,
                False,
            )
        )

    def packets(
        self,
        client: Client | None = None,
        to: str | None = None,
        kind: type | None = None,
        *,
        is_request: bool | None = None,
    ) -> list[Packet]:
        """What is on the wire, oldest first."""
        return [
            packet
            for packet in self.wire
            if (client is None or packet.client is client)
            and (to is None or packet.bookie_id == to)
            and (kind is None or isinstance(packet.control, kind))
            and (is_request is None or packet.is_request == is_request)
        ]

    def packet(self, client: Client | None = None, to: str | None = None, kind: type | None = None) -> Packet:
        """The only such packet on the wire."""
        (found,) = self.packets(client, to, kind)
        return found

    def deliver(self, packet: Packet, *, is_kept: bool = False) -> list[Effect]:
        """Hand a packet over; kept: it stays on the wire, to come once more."""
        if not is_kept:
            self.wire.remove(packet)
        if not packet.is_request:
            answered = Answered(self.now_ns, packet.tag, packet.member, packet.control, packet.frames)
            return packet.client.step(answered)
        node = self.nodes[packet.bookie_id]
        if packet.bookie_id in self.down:
            return self._send_failed(packet, "no link")
        if node.is_up:
            node.receive(packet)
        return []

    def ask(
        self,
        bookie_id: str,
        control: Control,
        frame: Frame | Sequence[Frame] | None = None,
        key: bytes = KEY,
    ) -> None:
        """Put one request to a bookie as nobody; what it answers waits on the wire for `heard`."""
        brought = [frame] if isinstance(frame, Frame) else frame or []
        frames = [(encode_frame_header(each, key), each) for each in brought]
        message = decode_message(b"".join(encode_message(self.next_packet, control, frames)))
        node = self.nodes[bookie_id]
        node.receive(
            Packet(
                self.next_packet,
                self.nobody,
                node.member,
                (),
                message.control,
                message.frames,
                is_request=True,
            )
        )
        self.next_packet += 1

    def heard(self) -> list[Any]:
        """What nobody was answered, taken off the wire."""
        answers = self.packets(self.nobody)
        self.wire = [packet for packet in self.wire if packet.client is not self.nobody]
        return [packet.control for packet in answers]

    def lose(self, packet: Packet) -> None:
        """It vanishes without a word."""
        self.wire.remove(packet)

    def fail(self, packet: Packet, reason: str = "link lost") -> list[Effect]:
        """It vanishes, and the client hears that no answer will come."""
        self.wire.remove(packet)
        return self._send_failed(packet, reason)

    def _send_failed(self, packet: Packet, reason: str) -> list[Effect]:
        return packet.client.step(SendFailed(self.now_ns, packet.tag, packet.member, reason))

    def settle(self, hold: Hold = nothing) -> None:
        """Deliver, sync and answer until nothing moves; what `hold` names stays on the wire."""
        for _ in range(STEPS_MAX):
            moving = (packet for packet in self.wire if packet.client is not self.nobody and not hold(packet))
            packet = next(moving, None)
            if packet is not None:
                self.deliver(packet)
                continue
            if any(node.finish_reads() for node in self.nodes.values() if not node.holds_reads):
                continue
            if any(node.sync() for node in self.nodes.values() if node.is_up and not node.holds_syncs):
                continue
            if self.catalog.waiting and not self.catalog.is_held:
                self.catalog.answer(self.catalog.waiting[0])
                continue
            return
        raise AssertionError("the world goes in a circle")

    def tick(self, client: Client, after_ns: int = 0) -> list[Effect]:
        self.now_ns += after_ns
        told = client.step(Tick(self.now_ns))
        deadline_ns = client.core.deadline_ns
        assert deadline_ns is None or deadline_ns > self.now_ns, f"{client.name} wants ticks without end"
        return told

    def run(
        self, until: Callable[[], bool] = lambda: False, *, seconds: float = 60, hold: Hold = nothing
    ) -> None:
        """Settle, let time pass to the next deadline, and again, until it is so or the time is over."""
        end_ns = self.now_ns + int(seconds * 1e9)
        self.settle(hold)
        for _ in range(STEPS_MAX):
            if until():
                return
            live = [client for client in self.clients if not client.is_gone]
            due = [client.core.deadline_ns for client in live if client.core.deadline_ns is not None]
            due += [n.core.deadline_ns for n in self.nodes.values() if n.core.deadline_ns is not None]
            if not due or min(due) > end_ns:
                return
            self.now_ns = max(self.now_ns, min(due))
            for client in live:
                if client.core.deadline_ns is not None and client.core.deadline_ns <= self.now_ns:
                    self.tick(client)
            for node in self.nodes.values():
                if node.core.deadline_ns is not None and node.core.deadline_ns <= self.now_ns:
                    node.perform(node.core.step(Tick(self.now_ns)))
            self.settle(hold)
        raise AssertionError("time passes and nothing ends")

    # What users do.

    def add(self, writer: Client, pen: Pen, *payloads: bytes) -> list[Effect]:
        assert isinstance(writer.core, Writer)
        frame = pen.frame(*payloads, lac=writer.core.lac, lac_length=writer.core.in_flight.done_length)
        for entry_id, raw in split(frame):
            self.sent[frame.ledger_id, entry_id] = bytes(raw)
        return writer.step(FrameSealed(self.now_ns, frame))

    def close(self, writer: Client) -> list[Effect]:
        return writer.step(CloseRequested(self.now_ns))

    def consume(self, reader: Client, byte_count: int) -> list[Effect]:
        return reader.step(Consumed(self.now_ns, byte_count))

    def tell_bookies(self) -> None:
        """The watch shows every client who is registered now."""
        for client in self.clients:
            if not client.has_ended and BookiesChanged in client.core.HANDLERS:
                client.step(BookiesChanged(self.now_ns, self.bookies))

    # What was promised.

    def check(self) -> None:
        """The promises that hold after every single step (I3, I4, I7, I11, I12, I19)."""
        for node in self.nodes.values():
            for ledger_id in node.storage.table:
                row = node.storage.table.get(ledger_id)
                assert row is not None
                assert row.lac >= node.lacs.get(ledger_id, NO_ENTRY), "a bookie's LAC fell (I11)"
                assert row.lac <= self.acked.get(ledger_id, NO_ENTRY), "a LAC that was never true (I12)"
                node.lacs[ledger_id] = row.lac
            for ledger_id in node.fences_told if node.core.is_serving else ():
                row = node.storage.table.get(ledger_id)
                assert row is not None, "a fence was forgotten with its ledger (I19)"
                assert row.is_fenced, "a fence was lifted (I19)"
        for ledger_id, acked in self.acked.items():
            key = ledger_key_path(ledger_id)
            if key not in self.catalog.history:
                continue
            metadata = self.catalog.history[key][-1]
            if metadata.last_entry is not None:
                assert metadata.last_entry >= acked, "an acknowledged entry beyond the end (P5.3, I3)"
            if acked != self.acked_seen.get(ledger_id, NO_ENTRY):
                self.check_copies(metadata, acked)
                self.acked_seen[ledger_id] = acked

    def check_copies(self, metadata: LedgerMetadata, last: int) -> None:
        """Qa members of each write set that the metadata names hold the entry, byte for byte, durably (I4, I7)."""
        for entry_id in range(last + 1):
            raw = self.sent[metadata.ledger_id, entry_id]
            members = metadata.fragment_of(entry_id).members
            copies = 0
            for seat in write_set(entry_id, metadata.quorum):
                node = self.nodes[members[seat].bookie_id]
                if node.member == members[seat]:
                    copies += node.durable_entries().get((metadata.ledger_id, entry_id)) == raw
            wanted = max(metadata.ack_quorum - self.disks_lost, 1)
            assert copies >= wanted, f"entry {entry_id} has {copies} durable copies, promised {wanted}"

    def check_end(self, ledger_id: int) -> LedgerMetadata:
        """The ledger is closed, and a fresh reader gets every acknowledged entry from it, and nothing else (I5)."""
        metadata, _ = self.catalog.metadata(ledger_id)
        assert metadata.is_closed
        assert metadata.last_entry is not None
        assert metadata.last_entry >= self.acked.get(ledger_id, NO_ENTRY)
        if metadata.last_entry >= 0:
            self.check_copies(metadata, metadata.last_entry)
            reader = self.reader(ledger_id, 0, metadata.last_entry)
            reader.start()
            self.run(lambda: reader.has_ended)
            assert reader.ended.error is None
            sent = [
                bytes(entry.data)
                for entry_id in range(metadata.last_entry + 1)
                for entry in iter_entries(frame_of(memoryview(self.sent[ledger_id, entry_id])))
            ]
            assert reader.read == list(enumerate(sent))
            assert metadata.length == sum(map(len, sent))  # I37
        return metadata
