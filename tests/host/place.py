"""One place for the host floor's tests: production nodes on links inside the process, disks in memory, time by hand.

A turn steps every node once and syncs every disk that is not held. Nothing waits, nothing reads a clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from embedbk.codec.add_messages import AddAnswers, AddRequest
from embedbk.codec.answers import Answers, Counting
from embedbk.codec.frame import Frame, encode_frame_header
from embedbk.codec.ledger_metadata import Durability
from embedbk.codec.messages import Control, Message, decode_message, encode_message
from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import FRAME_BYTES_MAX, Quorum
from embedbk.core.creation import Creation
from embedbk.core.machine import Machine
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.client_node import ClientNode
from embedbk.host.metadata_node import MetadataNode
from embedbk.host.operations import OneResult
from embedbk.host.waiting import WAITING_BYTES_MAX
from embedbk.host.writing import Writing
from embedbk.metadata.client import Client
from embedbk.metadata.levels import LEVEL
from embedbk.ports.entry_store import EntriesFound, MemoryRefused
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.transports.in_flight import table_in_c
from embedbk.transports.local import LocalTransport

MS = 1_000_000
SECOND = 1000 * MS
KEY = bytes(16)
TOKEN = b"t" * 16
SESSION_MS = 2_000
THREE = Quorum(3, 3, 2)
USUAL = WriterOptions()
TURNS_MAX = 2_000


class DiskStorage(BookieStorage):
    """The storage that ships, on a disk in memory, committed by hand as a place commits its disks."""

    def __init__(
        self,
        disk: MemoryDisk,
        name: str = "b1",
        *,
        flush_bytes: int = 64 << 10,
        cache_bytes_max: int = 2 * FRAME_BYTES_MAX,
        incarnation: bytes = b"d" * 16,
    ) -> None:
        self.disk = disk
        self.refuses_memory = False
        super().__init__(
            "d", name, TOKEN, flush_bytes=flush_bytes, cache_bytes_max=cache_bytes_max,
            journal_file_bytes=2 << 20, ledgers_max=64, threaded=False, io=disk, incarnation=incarnation,
        )  # fmt: skip

    def read(self, ledger_id: int, *asked: Any, from_memory: bool = False) -> EntriesFound:
        if self.refuses_memory:
            raise MemoryRefused(f"read of ledger {ledger_id}: memory was refused")
        return super().read(ledger_id, *asked, from_memory=from_memory)

    def commit(self) -> None:
        try:
            while self.step():
                pass
        except StorageError:
            assert self.failed()


class Place:
    """A metadata member, bookies, clients."""

    def __init__(self, bookies: int = 3) -> None:
        self.now_ns = SECOND
        self.nodes: dict[str, Any] = {}  # By name, in the order of stepping.
        self.disks: dict[str, Any] = {}
        self.held: set[str] = set()  # Names whose disks do not sync.
        self.transports: list[LocalTransport] = []  # Of raw peers.
        self.count = 0
        self.free_bytes: Callable[[], int] | None = None  # Of bookies started from now on.
        self.waiting_bytes_max = WAITING_BYTES_MAX  # Likewise.
        self.chance = random.Random(1)
        journal = self.disks["metadata"] = MemoryJournal()
        store = MetadataStore(journal, 0, new_identity=MemberIdentity(TOKEN, b"m" * 16))
        transport = LocalTransport(Identity("metadata", "metadata", b"m" * 16, TOKEN))
        self.metadata = MetadataNode(store, transport, ["local://*"], now_ns=self.now_ns, chance=self.chance)
        self.nodes["metadata"] = self.metadata
        for number in range(1, bookies + 1):
            self.start_bookie(f"b{number}")
        self.until(lambda: all(self.bookie(name).is_registered for name in self.nodes if name[0] == "b"))

    # Nodes.

    def fresh(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def start_bookie(
        self,
        name: str,
        survivors: Survivors | None = None,
        storage: Any = None,
        level: int = LEVEL,
        **settings: Any,
    ) -> BookieNode:
        storage = storage or MemoryBookieStorage(survivors or Survivors(self.fresh()))
        transport = LocalTransport(
            Identity("bookie", name, storage.incarnation, TOKEN, storage.starts.id), **settings
        )
        client = Client(ttl_ms=SESSION_MS, label=name, cluster_token=TOKEN, level=level)
        node = BookieNode(
            name,
            storage,
            transport,
            ["local://*"],
            self.metadata.endpoints,
            client,
            free_bytes=self.free_bytes,
            waiting_bytes_max=self.waiting_bytes_max,
        )
        self.disks[name] = storage
        self.nodes[name] = node
        return node

    def start_client(
        self, name: str = "c1", *, counting: Callable[[], Counting] | None = Answers, **settings: Any
    ) -> ClientNode:
        transport = LocalTransport(Identity("client", name, self.fresh(), TOKEN), **settings)
        node = ClientNode(
            transport,
            self.metadata.endpoints,
            Client(ttl_ms=SESSION_MS, label=name, cluster_token=TOKEN),
            counting=counting,
            table_of=table_in_c,
        )
        self.nodes[name] = node
        self.until(lambda: node.is_ready)
        return node

    def bookie(self, name: str) -> BookieNode:
        node = self.nodes[name]
        assert isinstance(node, BookieNode)
        return node

    def crash(self, name: str) -> Survivors:
        """The process ends without a word; gives what its disk keeps."""
        self.nodes.pop(name).transport.close()
        survivors = self.disks.pop(name).crash()
        assert isinstance(survivors, Survivors)
        return survivors

    def peer(self, bookie: str, **settings: Any) -> Peer:
        """A raw end of a link to a bookie (or to the metadata member)."""
        return Peer(self, self.nodes[bookie].endpoints[0], **settings)

    # Time.

    def turn(self) -> None:
        for node in list(self.nodes.values()):
            node.step(self.now_ns)
        for name, disk in self.disks.items():
            if name not in self.held:
                disk.commit()

    def turns(self, count: int = 12) -> None:
        """Enough for anything that needs no time to come to rest."""
        for _ in range(count):
            self.turn()

    def until(self, is_reached: Callable[[], bool], step_ns: int = MS) -> None:
        for _ in range(TURNS_MAX):
            if is_reached():
                return
            self.turn()
            self.now_ns += step_ns
        raise AssertionError("not reached")

    def run_for(self, duration_ns: int, step_ns: int = 10 * MS) -> None:
        end = self.now_ns + duration_ns
        while self.now_ns < end:
            self.turns(3)
            self.now_ns += step_ns

    # What applications do.

    def start(self, client: ClientNode, core: Machine) -> OneResult:
        operation = OneResult(core)
        client.run(self.now_ns, operation)
        return operation

    def result(self, client: ClientNode, core: Machine) -> Any:
        operation = self.start(client, core)
        self.until(operation.future.done)
        return operation.future.result()

    def write(
        self,
        client: ClientNode,
        quorum: Quorum = THREE,
        options: WriterOptions = USUAL,
        durability: Durability = Durability.SYNCED,
    ) -> Writing:
        """A new ledger, open for writing."""
        writing = self.unbegun(client, quorum, options, durability)
        client.run(self.now_ns, writing)
        return writing

    def unbegun(
        self,
        client: ClientNode,
        quorum: Quorum = THREE,
        options: WriterOptions = USUAL,
        durability: Durability = Durability.SYNCED,
    ) -> Writing:
        """The handle of a new ledger, which the client has not begun yet."""
        creation = Creation(quorum, b"", 0, {}, client.bookies, self.chance, durability=durability)
        metadata, revision = self.result(client, creation)
        nonce = self.chance.getrandbits(63)
        core = Writer(metadata, revision, KEY, nonce, client.bookies, self.chance, options)
        return Writing(core, TwinPacker(metadata.ledger_id), client.wake_writing)

    def close(self) -> None:
        for name, node in reversed(self.nodes.items()):
            self.disks.pop(name, None)
            node.close()
        for transport in self.transports:
            transport.close()


class Peer:
    """A raw end of a link: says what a test wants to be said."""

    def __init__(
        self, place: Place, endpoint: str, identity: Identity | None = None, **settings: Any
    ) -> None:
        self.place = place
        says = identity or Identity("client", "raw", place.fresh(), TOKEN)
        self.transport = LocalTransport(says, **settings)
        place.transports.append(self.transport)
        self.link = self.transport.connect(endpoint)
        self.messages: list[Message] = []  # Answers to adds one by one, however they came.
        self.bodies = 0  # How many messages came.
        self.down: str | None = None
        self.count = 0
        self.look()
        place.turns(2)
        self.look()

    def look(self) -> None:
        for event in self.transport.receive(self.place.now_ns):
            if isinstance(event, Received):
                self.bodies += 1
                message = decode_message(event.body)
                if isinstance(message.control, AddAnswers):
                    self.messages += [Message(asked, answer) for asked, answer in message.control.unpack()]
                else:
                    self.messages.append(message)
            elif isinstance(event, LinkDown):
                self.down = event.reason
            else:
                assert isinstance(event, LinkUp)

    def send(self, control: Control, frames: Any = ()) -> int:
        self.count += 1
        assert self.transport.send(self.link, encode_message(self.count, control, frames))
        return self.count

    def send_bytes(self, body: bytes) -> bool:
        return self.transport.send(self.link, [body])

    def ask(self, control: Control, frames: Any = ()) -> Control:
        """The answer to one request."""
        request_id = self.send(control, frames)
        for _ in range(20):
            self.place.turn()
            self.look()
            for message in self.messages:
                if message.request_id == request_id:
                    self.messages.remove(message)
                    return message.control
        raise AssertionError(f"{control} was not answered")

    def close(self) -> None:
        self.transport.close()


def frame(ledger_id: int, first: int, payloads: list[bytes], length_before: int = 0) -> Frame:
    """A frame as a writer would seal it."""
    packer = TwinPacker(ledger_id, next_entry=first, length=length_before)
    packer.append_many(payloads)
    sealed = packer.seal()
    assert sealed is not None
    return sealed


def add(incarnation: bytes, sealed: Frame, *, recovery: bool = False, nonce: int = 1) -> tuple[Any, Any]:
    """An add of a frame: control part and frames."""
    return AddRequest(incarnation, nonce, 1, recovery), [(encode_frame_header(sealed, KEY), sealed)]
