"""A whole cluster in one process under one seed: production nodes on the simulated network, disks in memory.

The driver owns time. A turn moves it to the next thing that happens anywhere, steps the nodes that it concerns, and
looks whether a disk has something to sync. Ghost state beside the cluster (what was given, what was acknowledged)
is what the checks at the end compare with.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import Quorum
from embedbk.core.log import LogTakeover, TakenOver
from embedbk.core.machine import Machine
from embedbk.core.writer import Writer, WriterOptions
from embedbk.host.bookie_node import BookieNode
from embedbk.host.client_node import ClientNode
from embedbk.host.metadata_node import MetadataNode
from embedbk.host.operations import OneResult, Writing
from embedbk.metadata.client import Client
from embedbk.ports import Identity
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_journal import MemoryJournal
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.transports.sim import CALM, Faults, SimNetwork

MS = 1_000_000
SECOND = 1_000 * MS
METADATA = "sim://metadata"
KEY = bytes(16)
DEFAULT = Quorum(3, 3, 2)
SESSION_MS = 2_000
STEPS_MAX = 400_000  # Of one run: a protocol that spins is a failure, not a slow test.


@dataclass
class Log:
    """A log's writer in a client, as a process would hold it."""

    client: str
    taken: OneResult
    writing: Writing | None = None
    base: int = 0  # Dense offset of entry 0 of its ledger.
    sent: list[bytes] = field(default_factory=list)


class Simulation:
    """Nodes by name. A node that is not in `nodes` is down; what it had made durable is in `survivors`."""

    def __init__(self, seed: int, bookies: int = 4, faults: Faults = CALM) -> None:
        self.seed = seed
        self.chance = random.Random(f"simulation {seed}")
        self.network = SimNetwork(seed, faults)
        self.nodes: dict[str, Any] = {}
        self.storages: dict[str, MemoryBookieStorage] = {}
        self.survivors: dict[str, Any] = {}
        self.paused: set[str] = set()
        self.sync_due: dict[str, int] = {}
        self.steps = 0
        self.incarnations = 0
        self.metadata_journal = MemoryJournal()
        self.start_metadata()
        for number in range(1, bookies + 1):
            self.start_bookie(f"b{number}")
        self.acked: dict[
            tuple[int, int], bytes
        ] = {}  # (ledger, entry) -> payload, told to an application (ACKED).
        self.sent: dict[tuple[int, int], bytes] = {}

    # Starting and stopping.

    def _identity(self, role: str, name: str, incarnation: bytes) -> Identity:
        return Identity(role, name, incarnation, b"")

    def fresh(self) -> bytes:
        self.incarnations += 1
        return self.incarnations.to_bytes(16, "big")

    def start_metadata(self) -> None:
        identity = MemberIdentity(bytes(15) + b"\x01", bytes(15) + b"\x02")
        store = MetadataStore(
            self.metadata_journal, self.metadata_journal.first_token(), new_identity=identity
        )
        self.metadata_journal.commit()  # Nobody may hear of an identity that a crash could take back.
        transport = self.network.transport(self._identity("metadata", "metadata", self.fresh()))
        self.nodes["metadata"] = MetadataNode(
            store, transport, [METADATA], now_ns=self.network.now_ns, chance=self.chance
        )

    def start_bookie(self, name: str) -> None:
        survivors = self.survivors.pop(name, None) or Survivors(self.fresh())
        storage = MemoryBookieStorage(survivors)
        transport = self.network.transport(self._identity("bookie", name, storage.incarnation))
        client = Client(ttl_ms=SESSION_MS, label=name)
        self.storages[name] = storage
        self.nodes[name] = BookieNode(name, storage, transport, [f"sim://{name}"], [METADATA], client)

    def start_client(self, name: str) -> ClientNode:
        transport = self.network.transport(self._identity("client", name, self.fresh()))
        node = ClientNode(transport, [METADATA], Client(ttl_ms=SESSION_MS, label=name))
        self.nodes[name] = node
        self.run_until(lambda: node.is_ready and len(node.bookies) > 0)
        return node

    def crash(self, name: str) -> None:
        """The process ends without a word: what was not synced is gone."""
        self.network.crash(name)
        del self.nodes[name]
        self.sync_due.pop(name, None)
        self.paused.discard(name)
        if name in self.storages:
            self.survivors[name] = self.storages.pop(name).crash()
        elif name == "metadata":
            self.metadata_journal = MemoryJournal(self.metadata_journal.crash())

    def pause(self, name: str) -> None:
        self.paused.add(name)
        self.network.pause(name)

    def resume(self, name: str) -> None:
        self.paused.discard(name)
        self.network.resume(name)

    # Time.

    def run_until(self, is_reached: Callable[[], bool], within_ns: int = 60 * SECOND) -> None:
        """Run until the fact holds; fail with the seed when it does not in virtual time."""
        give_up = self.network.now_ns + within_ns
        while not is_reached():
            if self.network.now_ns > give_up:
                raise AssertionError(
                    f"seed {self.seed}: not reached within {within_ns / SECOND:g} virtual seconds"
                )
            self.turn(give_up + 1)

    def run_for(self, duration_ns: int) -> None:
        end = self.network.now_ns + duration_ns
        while self.network.now_ns < end:
            self.turn(end)

    def turn(self, latest_ns: int) -> None:
        now = self.network.now_ns
        due = [latest_ns]
        for name, node in self.nodes.items():
            deadline = node.deadline_ns()
            if deadline is not None and name not in self.paused:
                due.append(deadline)
        due += [when for name, when in self.sync_due.items() if name not in self.paused]
        arrival = self.network.next_event_ns()
        if arrival is not None:
            due.append(arrival)
        now = max(now, min(due))
        self.network.advance(now)
        for name in [name for name, when in self.sync_due.items() if when <= now and name not in self.paused]:
            del self.sync_due[name]
            self._sync(name)
            self._step(name, now)
        for name in list(self.nodes):
            deadline = self.nodes[name].deadline_ns() if name not in self.paused else None
            if deadline is not None and deadline <= now:
                self._step(name, now)

    def _step(self, name: str, now: int) -> None:
        self.steps += 1
        assert self.steps < STEPS_MAX, f"seed {self.seed}: the cluster does not come to rest"
        self.nodes[name].step(now)
        if name not in self.sync_due and self._has_pending(name):
            self.sync_due[name] = now + self.chance.randint(50_000, 2 * MS)

    def _has_pending(self, name: str) -> bool:
        if name == "metadata":
            return self.metadata_journal.queued_bytes() > 0
        return name in self.storages and bool(self.storages[name].pending)

    def _sync(self, name: str) -> None:
        if name == "metadata":
            self.metadata_journal.commit()
        else:
            self.storages[name].commit()

    # What applications do.

    def result(self, client: str, core: Machine, within_ns: int = 60 * SECOND) -> Any:
        """Run a core in a client to its end; its result, or its error raised."""
        operation = self.start(client, core)
        self.run_until(operation.future.done, within_ns)
        return operation.future.result()

    def start(self, client: str, core: Machine) -> OneResult:
        operation = OneResult(core)
        self.nodes[client].run(self.network.now_ns, operation)
        return operation

    def takeover_core(self, client: str, log: str, quorum: Quorum) -> LogTakeover:
        node = self.nodes[client]
        return LogTakeover(log, client.encode(), quorum, KEY, b"", 0, node.bookies, self.chance)

    def take_over(self, client: str, log: str = "orders", quorum: Quorum = DEFAULT) -> Writing:
        taken: TakenOver = self.result(client, self.takeover_core(client, log, quorum))
        return self.open_writing(client, taken)

    def open_writing(self, client: str, taken: TakenOver) -> Writing:
        node = self.nodes[client]
        core = Writer(
            taken.metadata, taken.revision, KEY, self.chance.getrandbits(63), node.bookies, self.chance,
            WriterOptions(add_timeout_ns=1 * SECOND),
        )  # fmt: skip
        writing = Writing(core, TwinPacker(taken.metadata.ledger_id), node.wake_writing)
        node.run(self.network.now_ns, writing)
        return writing

    def append(self, client: str, writing: Writing, payload: bytes) -> int | None:
        """Queue one entry as an application would; None when the handle is over. Acknowledgements: `note_acks`."""
        if writing.error is not None:
            return None
        entry_id = writing.try_append(payload)
        self.sent[writing.core.ledger_id, entry_id] = payload
        self._step(client, self.network.now_ns)
        return entry_id

    def note_acks(self, writing: Writing) -> None:
        """Put into the ghost state what the application has been told so far."""
        ledger_id = writing.core.ledger_id
        for entry_id in range(writing.lac + 1):
            self.acked.setdefault((ledger_id, entry_id), self.sent[ledger_id, entry_id])
