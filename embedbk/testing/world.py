"""A whole cluster in one process under one seed: production nodes on the simulated network, disks in memory.

The world owns time. A turn moves it to the next thing that happens anywhere, and steps only the nodes that it concerns;
disks sync when the world decides. It decides nothing of the protocol and judges nothing: it notifies observers
(observer.py), which judge.

    network ── something arrived ──▶ step its node ──▶ its disk has something ──▶ sync later
    timers ── deadline of a node, sync of a disk, an actor that sleeps, a fault of the plan
    actors ── generators: what an application does, waiting for facts about its client's node
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from embedbk.archive.manifest import Manifest
from embedbk.codec.frame import iter_entries
from embedbk.codec.ledger_metadata import Begun, LedgerMetadata
from embedbk.codec.packer import Packer
from embedbk.codec.packer_twin import Packing, TwinPacker
from embedbk.config import BEHIND_BYTES_MAX, FRAME_BYTES_MAX, LOG_PAGE_LEDGERS, Quorum
from embedbk.core.backlog import FRAME_PRICE
from embedbk.core.collector import CollectorOptions
from embedbk.core.compactor import CompactorOptions
from embedbk.core.lateness import LateTerms
from embedbk.core.leaving import Leaving
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.machine import Machine
from embedbk.core.truncating import Dropping
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import EmbedbkError, StorageError
from embedbk.host.bookie_node import USUAL_COLLECTION, BookieNode
from embedbk.host.client_node import SEAT_GRACE_NS, ClientNode
from embedbk.host.operations import OneResult, Operation, Writing
from embedbk.host.rebuild_pace import RebuildPace
from embedbk.host.scrub_pace import ScrubPace
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY, START_ID_BYTES
from embedbk.metadata.basing import BASE_RULES, BaseRules
from embedbk.metadata.client import Client
from embedbk.metadata.intake import REQUESTS_WAITING_MAX
from embedbk.metadata.levels import LEVEL, LEVEL_FIRST, LEVEL_OF_LOGS, LEVEL_OF_PAGES, LEVEL_OF_SUMS
from embedbk.metadata.limits import DEFAULT_LIMITS, Limits
from embedbk.metadata.quorum import Policy
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.links import Identity
from embedbk.testing.clocks import TRUE, Clock
from embedbk.testing.course_watch import CourseWatch
from embedbk.testing.disks import BookieDisk, MetadataCopy, NativeDisk, TwinDisk
from embedbk.testing.impatience import Impatience
from embedbk.testing.member_names import member_names
from embedbk.testing.members import CLUSTER_TOKEN, Members
from embedbk.testing.near_loops import NearLoops
from embedbk.testing.observer import Observer
from embedbk.testing.twins import Twins, bookie_of
from embedbk.testing.violation import Violation
from embedbk.transports.in_flight import SharedBacklog, table_in_c
from embedbk.transports.sim import CALM, Faults, SimNetwork

__all__ = ["KEY", "MS", "SECOND", "Actor", "Sleep", "Steps", "Until", "World"]

MS = 1_000_000
SECOND = 1_000 * MS
KEY = bytes(16)
SESSION_MS = 2_000
STEPS_MAX = 2_000_000  # The bound of one run: a protocol that spins is a failure, not a slow run (L14).
SAME_TIME_MAX = 100_000  # Timers at one moment: more are a wait that begins itself again (L14).
KEPT_FRAME_BYTES = FRAME_PRICE + 200  # A usual one of these small worlds.
WAITING_BYTES_MAX = 2 << 10  # The bound of a bookie that has no room: little, so that it soon answers BUSY.
COMPACTION = CompactorOptions(
    look_ns=2 * SECOND,
    minor_ns=4 * SECOND,
    major_ns=9 * SECOND,
    major_share=0.9,
    gain_bytes_min=4096,
    slice_bytes=64 << 10,
)  # Often, and in several slices: a short run passes a few (native disks).
SYNC_NS = (50_000, 2 * MS)
# The scrubbing of each bookie: a run sees a few passes over its small store (I55).
SCRUB_BYTES_PER_S, SCRUB_START_NS, SCRUB_PAUSE_NS = 1 << 20, SECOND, 3 * SECOND
# Lost indexes are made again so slowly that requests meet what is dark until then (ST38).
REBUILD_BYTES_PER_S, REBUILD_SLICE_BYTES = 8 << 10, 1 << 10

_HOOKS = [name for name in vars(Observer) if name.startswith(("on_", "at_"))]


@dataclass(frozen=True, slots=True)
class Sleep:
    """An actor yields this to continue later, by its client's own clock."""

    duration_ns: int


@dataclass(frozen=True, slots=True)
class Until:
    """An actor yields this to continue when a fact about its client's node holds: it is sent True, or False when the
    time was over first."""

    is_reached: Callable[[], bool]
    timeout_ns: int = 60 * SECOND


Steps = Generator[Sleep | Until, Any, None]


class Actor:
    """An application in a client's process: its steps run between the node's turns, and end with the process."""

    def __init__(self, client: str, steps: Steps) -> None:
        self.client = client
        self.steps = steps
        self.waits: Until | None = None
        self.turn = 0  # Tells a timer that it is of an earlier wait.
        self.is_over = False
        self.error: Exception | None = None


class World:
    """Nodes by name. A node that is not in `nodes` is down; its disk is in `disks`."""

    def __init__(
        self,
        seed: int,
        *,
        bookies: int = 5,
        members: int = 1,
        first_members: int = 0,
        policy: Policy = Policy.MAJORITY,
        election_base_ms: int = 500,
        faults: Faults = CALM,
        is_native: bool = False,
        devices: int = 1,
        observers: Sequence[Observer] = (),
        clocks: dict[str, Clock] | None = None,
        collector: CollectorOptions = USUAL_COLLECTION,
        has_courses: bool = False,
        near_clients: Sequence[str] = (),
        kept_frames: int = 0,
        metadata_limits: Limits = DEFAULT_LIMITS,
        requests_waiting_max: int = REQUESTS_WAITING_MAX,
        base_rules: BaseRules = BASE_RULES,
        seat_grace_ns: int = SEAT_GRACE_NS,
        begins_older: bool = False,
        rooms: Mapping[str, int] | None = None,
        racks: Mapping[str, str] | None = None,
    ) -> None:
        """members: of the metadata, all of them voters, or the first ones where first_members says how many; policy,
        election_base_ms: of their quorum. is_native: bookies on the C storage, stepped by hand, instead of its Python
        twin. devices: so many journals and ledger directories of each. has_courses: clients seal, send and count in C
        where they can (native/SHORTCUTS.md, "Adds in C"). near_clients: are on one loop with the bookies, which are
        native, and reach them without messages where they can ("Near seats"). kept_frames: so many a handle keeps for
        seats that are behind, all handles of a client twice as many; 0: as usual. metadata_limits,
        requests_waiting_max: of the metadata's catalog, at all of its starts, and of its members. base_rules: when
        those change their election base. seat_grace_ns: as of `ClientNode`, of all clients. begins_older: all nodes run
        the build before at first, so that the cluster's level is to be raised."""
        self.collector = collector
        self.behind_bytes_max = kept_frames * KEPT_FRAME_BYTES or BEHIND_BYTES_MAX
        self.metadata_limits = metadata_limits
        self.requests_waiting_max = requests_waiting_max
        self.seat_grace_ns = seat_grace_ns
        self.ballast_on_its_way = 0  # Keys that fill the catalog and may still arrive (scarcity).
        self.seed = seed
        self.is_native = is_native
        self.devices = devices
        self.chance = random.Random(f"world {seed}")
        self.archive_chance = random.Random(f"archive {seed}")
        self.network = SimNetwork(seed, faults)
        self.network.on_delivery = self._on_delivery
        self.network.has_adds = has_courses
        self._courses = CourseWatch(lambda client: self.writings.get(client, ()), self.tell)
        self.network.on_add_sent = lambda client, bookie, body: self._courses.on_sent(
            client, bookie_of(bookie), body
        )
        self.nodes: dict[str, Any] = {}
        self.near_clients = frozenset(near_clients if is_native else ())
        self.has_near = bool(self.near_clients)
        self._near = NearLoops(
            lambda client: self.writings.get(client, ()),
            self.tell,
            self.now_of,
            lambda bookie: bookie in self.paused,
            self.wake,
            self._plan_sync,
            self._note_met,
        )
        self.disks: dict[str, BookieDisk] = {}
        self.twins = Twins(self)
        self._endpoints: dict[str, str] = {}  # Endpoints of bookies that are not at the place of their name.
        # Free bytes of devices, and racks, by bookie, as they register; those that are left out say nothing of it.
        self.rooms = dict(rooms or {})
        self.racks = dict(racks or {})
        self.clocks = clocks or {}
        self.paused: set[str] = set()
        # Known by the build of a node, where that is not this one.
        names = [*member_names(members), *(f"b{number}" for number in range(1, bookies + 1))]
        self.levels = dict.fromkeys(names, LEVEL_FIRST) if begins_older else {}
        self.slow_ns: dict[str, int] = {}  # P5: how long after its turn is due a node takes it.
        self.impatience = Impatience()  # P9: applications that interrupt their calls.
        self.sync_ns: dict[str, tuple[int, int]] = {}  # D11: of a disk that is slower or faster than others.
        # Bookies whose disk is gone for good, or damaged so that they refuse it.
        self.lost: dict[str, None] = {}
        # (ledger, entry) of what is stored compressed -> what was appended, and what is stored.
        self.squeezed: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self.features: frozenset[str] = frozenset()  # The features that the applications of this world use.
        self.page_ledgers = LOG_PAGE_LEDGERS  # Ledgers in a page of the lists of logs.
        self.is_healed = False  # Faults have stopped: one that repeats itself ends.
        self.wall_ms = 0  # The time of wall clocks; only the time of creation of a ledger is read from them.
        self.refused: dict[str, StorageError] = {}  # Bookies that would not start on their disks.
        self.steps = 0
        self.sometimes: Counter[str] = Counter()
        self.archived: dict[
            tuple[str, int, bytes], bytes
        ] = {}  # Files, by log, ledger and hash of the manifest.
        self.manifests: dict[tuple[str, int, bytes], Manifest] = {}  # These name the files.
        self.goes_back = False  # At the end the metadata goes back to an older copy.
        self.truncations_begun = self.truncations_under_way = 0  # Counts of truncations by applications.
        self.faults_done: Counter[str] = Counter()
        # How far each handle was reported, by client; -2: failed, and reported.
        self.writings: dict[str, dict[Writing, int]] = {}
        self.actors: list[Actor] = []
        self.not_begun: set[Coroutine[Any, Any, None]] = set()  # To begin beside the step under way.
        # Receives the lines that a trace writes between the messages.
        self.on_note: Callable[[str], None] | None = None
        self.on_body: Callable[[int, str, str, bytes], None] | None = None
        self._hash = hashlib.blake2b(digest_size=16)
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._timer_count = 0
        self._due: dict[str, int] = {}  # The next turn of a node for which a timer stands.
        self._syncing: set[str] = set()
        # Actions of a paused client's actors, put off.
        self._deferred: dict[str, list[Callable[[], None]]] = {}
        self._incarnations = self._starts = 0
        self.members = Members(self, members, policy, election_base_ms, first_members, base_rules)
        self.metadata_copy: MetadataCopy | None = None  # Taken on the way, for what comes behind the run.
        self._tell: dict[str, list[Callable[..., None]]] = {}
        self.observers: list[Observer] = []
        for observer in observers:
            self.watch(observer)
        self.members.start_all()
        for number in range(1, bookies + 1):
            self.start_bookie(f"b{number}")

    # Watchers.

    def watch(self, observer: Observer) -> None:
        """Tell this observer from now on. Best before anything runs."""
        self.observers.append(observer)
        for hook in _HOOKS:
            if getattr(type(observer), hook) is not getattr(Observer, hook):
                self._tell.setdefault(hook, []).append(getattr(observer, hook))
        for name, node in getattr(self, "nodes", {}).items():
            node.on_step = self._step_hook(name)

    def mute(self) -> None:
        """Notify observers of nothing more: what follows is no history that they could judge."""
        self._tell.clear()
        for name, node in self.nodes.items():
            node.on_step = self._step_hook(name)

    def tell(self, hook: str, *arguments: Any) -> None:
        for told in self._tell.get(hook, ()):
            told(*arguments)

    def _step_hook(self, name: str) -> Callable[..., None] | None:
        told = self._tell.get("on_step", [])
        if name in self.members:
            return partial(self.members.on_step, name)
        if bookie_of(name) != name:
            return partial(self.twins.on_step, name)
        if not told:
            return None
        if len(told) == 1:
            return partial(told[0], name)
        return lambda core, event, effects: self.tell("on_step", name, core, event, effects)

    def note(self, text: str) -> None:
        """Into the trace, between the messages."""
        self._hash.update(f"{self.network.now_ns} {text}\n".encode())
        if self.on_note is not None:
            self.on_note(text)

    def _note_met(self, what: str) -> None:
        self.sometimes[what] += 1

    def trace_digest(self) -> str:
        """The digest of everything delivered and noted so far: equal for equal runs, in any process (S1)."""
        return self._hash.copy().hexdigest()

    def _on_delivery(self, now_ns: int, sender: str, receiver: str, body: bytes) -> None:
        self._hash.update(b"%d %s>%s " % (now_ns, sender.encode(), receiver.encode()))
        self._hash.update(body)
        self._courses.on_delivery(bookie_of(sender), receiver, body)
        if self.on_body is not None:
            self.on_body(now_ns, sender, receiver, body)

    # Starting and stopping.

    def fresh(self) -> bytes:
        """16 bytes that no other node of this world has."""
        self._incarnations += 1
        return self._incarnations.to_bytes(16, "big")

    def _start_id(self) -> bytes:
        self._starts += 1
        return self._starts.to_bytes(START_ID_BYTES, "big")

    def clock(self, name: str) -> Clock:
        return self.clocks.get(name, TRUE)

    def now_of(self, name: str) -> int:
        """The time of the node's own clock."""
        return self.clock(name).local(self.network.now_ns)

    def enter(self, name: str, role: str, node: Any, incarnation: bytes = b"") -> None:
        self.nodes[name] = node
        node.on_step = self._step_hook(name)
        self.note(f"{name} starts")
        if role != "bookie":
            self.tell("on_started", name, role, incarnation, 0, False)
        elif bookie_of(name) == name:
            disk, storage = self.disks[name], node.storage
            self.tell_started(name, may_have_lost=storage.may_have_lost or disk.is_less)
        self._plan_turn(name, self.network.now_ns)

    def level_of(self, name: str) -> int:
        """The newest level that the build of this node knows (P10.8)."""
        return self.levels.get(name, LEVEL)

    def start_bookie(self, name: str) -> bool:
        """False: it refused to start on its disk; `refused` has the reason."""
        disk = self.disks.get(name)
        if disk is None:
            incarnation = self.fresh()
            disk = TwinDisk(incarnation)
            if self.is_native:
                disk = NativeDisk(name, incarnation, CLUSTER_TOKEN, self.devices)
            self.disks[name] = disk
        return self.run_bookie(name, disk)

    def run_bookie(self, name: str, disk: BookieDisk) -> bool:
        """As `start_bookie`, on this disk."""
        try:
            storage = disk.start(self._start_id())
        except StorageError as refusal:
            if bookie_of(name) == name:
                self.refused[name] = refusal
            if disk.is_harmed:
                self.sometimes["damaged disk refused"] += 1
            self.note(f"{name} refuses to start: {refusal}")
            return False
        identity = Identity("bookie", bookie_of(name), storage.incarnation, b"", storage.starts.id)
        transport = self.network.transport(identity, place=name)
        client = Client(ttl_ms=SESSION_MS, label=name, level=self.level_of(name))
        node = BookieNode(
            bookie_of(name),
            storage,
            transport,
            [self._endpoints.get(name, f"sim://{name}")],
            self.members.endpoints,
            client,
            free_bytes=partial(self.rooms.__getitem__, bookie_of(name))
            if bookie_of(name) in self.rooms
            else None,
            location=self.racks.get(bookie_of(name), ""),
            scrub=ScrubPace(
                name, storage, SCRUB_BYTES_PER_S, start_ns=SCRUB_START_NS, pass_pause_ns=SCRUB_PAUSE_NS
            ),
            rebuild=RebuildPace(
                name, storage, bytes_per_s=REBUILD_BYTES_PER_S, slice_bytes=REBUILD_SLICE_BYTES
            ),
            collector=self.collector,
            compactor=COMPACTION,
            waiting_bytes_max=WAITING_BYTES_MAX,
        )
        if disk.is_less and storage.may_have_lost:
            self.sometimes["newest file missed"] += 1
        node.registering.may_go_alone = not disk.is_less and bookie_of(name) not in self.twins
        if storage.may_have_lost:
            # It found out by itself, and keeps its word of that until its limbo is durable.
            disk.is_less = False
        if self.has_near and bookie_of(name) == name:
            self._near.let_near(node)
        self.enter(name, "bookie", node)
        return True

    def tell_started(self, name: str, *, may_have_lost: bool) -> None:
        """The bookie of this name is a process that started on what its disk has now."""
        disk = self.disks[name]
        storage = disk.storage
        assert storage is not None
        self.tell("on_started", name, "bookie", storage.incarnation, disk.survived(), may_have_lost)
        self._tell_found(name, storage, "on_found")
        self.tell("on_found_dropped", name, storage.table.ranges())

    def _tell_found(self, name: str, storage: DurableBookie, event: str) -> None:
        """event: `on_found` behind a start, `on_found_late` when an index that was lost is made again."""
        if event not in self._tell:
            return
        for ledger_id in sorted(storage.table):
            row = storage.table.get(ledger_id)
            entry_ids: list[int] = []
            next_entry, has_more = 0, row is not None
            while has_more:
                found = storage.read(ledger_id, next_entry, LEDGER_ID_MAX, FRAME_BYTES_MAX).frame
                has_more = found is not None
                if found is not None:
                    entry_ids += [entry.entry_id for entry in iter_entries(found)]
                    next_entry = found.last_entry + 1
            if row is not None:
                self.tell(event, name, ledger_id, row.is_fenced, entry_ids)

    def start_client(self, name: str) -> ClientNode:
        """A client that dials at once; `is_ready` when it knows the bookies."""
        transport = self.network.transport(Identity("client", name, self.fresh(), b""))
        backlog = SharedBacklog(2 * self.behind_bytes_max)
        node = ClientNode(
            transport,
            self.members.endpoints,
            Client(ttl_ms=SESSION_MS, label=name),
            backlog=backlog,
            table_of=table_in_c,
            seat_grace_ns=self.seat_grace_ns,
        )
        node.on_wake = partial(self._wake, name)
        node.is_sending_watched = self.network.has_adds
        if self.has_near and name in self.near_clients:
            self._near.join(name, node, [self.nodes[each] for each in self.disks if each in self.nodes])
        self.writings[name] = {}
        self.enter(name, "client", node)
        return node

    def wake(self, name: str) -> None:
        """Something was asked of this node, between its turns."""
        self._wake(name)

    def _wake(self, name: str) -> None:
        self._plan_turn(name, self.network.now_ns)

    def crash(self, name: str) -> None:
        """The process ends without a word: what was not synced is gone, as far as the disk is not ahead."""
        self.twins.on_trouble(name)
        self.note(f"{name} crashes")
        self.network.crash(name)
        self._near.leave_bookie(name, self.nodes[name])
        self._near.leave_client(name)
        disk = self._disk(name)
        if disk is not None and self.nodes[name].core.is_settled:
            disk.is_less = False  # It has found out, and was in limbo.
        node = self.nodes.pop(name)
        self._due.pop(name, None)
        self._syncing.discard(name)
        self._deferred.pop(name, None)
        self.paused.discard(name)
        self.writings.pop(name, None)
        self._courses.forget(name)
        for actor in self.actors:
            if actor.client == name and not actor.is_over:
                actor.is_over = True
                actor.turn += 1
                actor.steps.close()
        self.actors = [actor for actor in self.actors if not actor.is_over]
        if name in self.members:
            self.members.end(name, node, self.chance)
        elif disk is not None:
            disk.crash(self.chance)
        self.tell("on_stopped", name)

    def stop(self, name: str) -> None:
        """A bookie's process ends in good order: its last word is answered, or not in time (P7.9)."""
        self.note(f"{name} stops")
        node: BookieNode = self.nodes[name]
        node.leave(self.now_of(name))
        token = node.storage.durable()  # Pending records are synced at once.
        self.tell("on_durable", name, token)
        self._near.on_durable(name, node, token)

        def look() -> None:
            if self.nodes.get(name) is not node or name in self.paused:
                return  # It was killed meanwhile, or is paused.
            if not node.has_left(self.now_of(name)):
                self.wake(name)
                self.after(MS, look)
                return
            self.sometimes["bookie stopped in good order"] += 1
            self.crash(name)

        look()

    def leave(self, name: str) -> None:
        """A client's process ends in good order."""
        self.note(f"{name} leaves")
        node = self.nodes.pop(name)
        self._due.pop(name, None)
        self.paused.discard(name)
        self.writings.pop(name, None)
        self._courses.forget(name)
        node.close()
        self._near.leave_client(name)
        self.tell("on_stopped", name)

    def lose_disk(self, name: str) -> None:
        """The bookie's disk is gone for good (D13); a start of the same name is an empty bookie, which is refused."""
        self.twins.end(name)
        if name in self.nodes:
            self.crash(name)
        self.note(f"{name} loses its disk")
        self.lost[name] = None
        self.disks[name].lose(self.fresh())
        self.tell("on_disk_lost", name)

    def doubt(self, name: str, before: Any = None) -> None:
        """While it is down: its owner declares that something may be lost (P7.4), as when its disk is the older copy
        `before` (D13), or to continue behind damage."""
        self.note(f"{name} may have lost something")
        self.disks[name].doubt(before)
        self.tell("on_disk_doubted", name)

    def restore(self, name: str, before: Any) -> None:
        """While it is down: the older copy `before` replaces its disk, undeclared (D13, P7.9)."""
        self.note(f"{name} has an older disk")
        self.disks[name].restore(before)
        self.tell("on_disk_doubted", name)

    def drop_newest(self, name: str) -> bool:
        """While it is down: the newest file of its journal is gone, undeclared (D12, P7.9)."""
        if not self.disks[name].drop_newest():
            return False
        self.note(f"{name} lost the newest file of its journal")
        self.tell("on_disk_doubted", name)
        return True

    def pause(self, name: str) -> None:
        """SIGSTOP: it is not stepped, and its actors stand still, while the world goes on."""
        self.twins.on_trouble(name)
        self.note(f"{name} is paused")
        self.paused.add(name)
        self.network.pause(name)
        self.tell("on_paused", name, True)

    def resume(self, name: str) -> None:
        self.twins.on_resumed(name)
        self.note(f"{name} goes on")
        self.paused.discard(name)
        self.network.resume(name)
        self.tell("on_paused", name, False)
        for act in self._deferred.pop(name, []):
            self.after(0, act)
        self._plan_turn(name, self.network.now_ns)
        if self._has_pending(name):
            self._plan_sync(name)

    def change_places(self, one: str, other: str) -> None:
        """Swap the names of two processes from now on; what is planned for a name stays with it."""
        self._endpoints.setdefault(one, f"sim://{one}")
        self._endpoints.setdefault(other, f"sim://{other}")
        named: list[dict[str, Any]] = [self.nodes, self.clocks, self._endpoints]
        for by_name in named:
            found = {name: by_name.pop(name) for name in (one, other) if name in by_name}
            by_name.update({other if name == one else one: what for name, what in found.items()})
        paused = [name for name in (one, other) if name in self.paused]
        self.paused.difference_update(paused)
        self.paused.update(other if name == one else one for name in paused)
        self.network.change_places(one, other)
        for name in (one, other):
            self._due.pop(name, None)
            self._syncing.discard(name)
            if name in self.nodes:
                self.nodes[name].on_step = self._step_hook(name)
                self._plan_turn(name, self.network.now_ns)
            if name in self.nodes and name not in self.paused and self._has_pending(name):
                self._plan_sync(name)

    def close(self) -> None:
        """Let everything go; a world with native disks must be closed."""
        for actor in self.actors:
            if not actor.is_over:
                actor.is_over = True
                actor.steps.close()
        for steps in self.not_begun:
            steps.close()
        self._near.close()
        self.twins.end_all()
        for disk in self.disks.values():
            disk.close()

    # Time.

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def at(self, when_ns: int, act: Callable[[], object]) -> None:
        """Do this when the world's time is when_ns."""
        self._timer_count += 1
        heapq.heappush(self._timers, (max(when_ns, self.network.now_ns), self._timer_count, act))

    def after(self, delay_ns: int, act: Callable[[], object]) -> None:
        self.at(self.network.now_ns + delay_ns, act)

    def run_until(self, is_reached: Callable[[], bool], within_ns: int = 60 * SECOND) -> bool:
        """Run until the fact holds; False when it does not within that time."""
        give_up = self.network.now_ns + within_ns
        while not is_reached():
            if self.network.now_ns >= give_up:
                return False
            self.turn(give_up)
        return True

    def run_for(self, duration_ns: int) -> None:
        end = self.network.now_ns + duration_ns
        while self.network.now_ns < end:
            self.turn(end)

    def turn(self, latest_ns: int) -> None:
        """Everything of the next moment at which anything happens, at the latest of latest_ns."""
        when = latest_ns
        if self._timers and self._timers[0][0] < when:
            when = self._timers[0][0]
        arrival = self.network.next_event_ns()
        if arrival is not None and arrival < when:
            when = arrival
        self.network.advance(max(when, self.network.now_ns))
        for name in self.network.take_ready():
            self._turn_of(name)
        timers, fired = self._timers, 0
        while timers and timers[0][0] <= when:
            heapq.heappop(timers)[2]()
            fired += 1
            if fired > SAME_TIME_MAX:
                raise Violation(
                    "L14", f"time stands still at {when} ns: something is begun again without end"
                )

    def _turn_of(self, name: str) -> None:
        """A node has something to do: now, or after a while if it is slow."""
        if name not in self.nodes or name in self.paused:
            return
        slow_ns = self.slow_ns.get(name)
        if slow_ns:
            self._plan_turn(name, self.network.now_ns + slow_ns)
        else:
            self.step(name)

    def step(self, name: str) -> None:
        """One turn of a node, now."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Violation("L14", f"the cluster does not come to rest: {STEPS_MAX} steps")
        node = self.nodes[name]
        clock = self.clocks.get(name, TRUE)
        if self.has_near and name in self.writings:
            self._near.turn(name)  # The loop waited until now.
        # A copy of a bookie that has no place in the list is told of by nobody.
        was_dark = isinstance(node, BookieNode) and bookie_of(name) == name and node.rebuild.is_looking
        node.step(clock.local(self.network.now_ns))
        if was_dark:
            self._tell_found(name, node.storage, "on_found_late")
        if name in self.writings:
            self._near.tell_stored(name)
            self._after_client(name)
            if self.has_near and name in self.writings and self._near.turn(name):
                self._near.tell_stored(name)
        elif name not in self._syncing and self._has_pending(name):
            self._plan_sync(name)
        if self.nodes.get(name) is node:
            self._plan_deadline(name, node, clock)

    def _plan_deadline(self, name: str, node: Any, clock: Clock) -> None:
        if node.transport.has_events():
            self._plan_turn(name, self.network.now_ns)
            return
        deadline = node.deadline_ns()
        if deadline is not None:
            self._plan_turn(name, max(clock.time(deadline), self.network.now_ns))

    def _plan_turn(self, name: str, when_ns: int) -> None:
        due = self._due.get(name)
        if due is not None and due <= when_ns:
            return  # It is stepped before, and asked again then.
        self._due[name] = when_ns
        self.at(when_ns, partial(self._timed_turn, name, when_ns))

    def _timed_turn(self, name: str, when_ns: int) -> None:
        if self._due.get(name) != when_ns:
            return
        del self._due[name]
        if name in self.nodes and name not in self.paused:
            self.step(name)

    # Disks.

    def _has_pending(self, name: str) -> bool:
        if name in self.members:
            return self.members.is_pending(name)
        disk = self._disk(name)
        return disk is not None and disk.is_pending()

    def _disk(self, name: str) -> BookieDisk | None:
        """Under the process of this name."""
        return self.disks.get(name) or self.twins.disk(name)

    def _plan_sync(self, name: str) -> None:
        if name in self._syncing:
            return
        self._syncing.add(name)
        self.after(
            self.chance.randint(*self.sync_ns.get(name, SYNC_NS)), partial(self._sync, name, self.nodes[name])
        )

    def hurry_syncs(self) -> None:
        """Syncs that a slow disk has under way take no longer than on any other from now on."""
        names = sorted(self._syncing)
        self._syncing.clear()
        for name in names:
            self._plan_sync(name)

    def _sync(self, name: str, node: Any) -> None:
        if self.nodes.get(name) is not node:
            return  # The process has crashed since.
        self._syncing.discard(name)
        if name in self.paused:
            return  # Planned again when it continues.
        if name in self.members:
            self.members.sync(name)
        else:
            disk = self._disk(name)
            assert disk is not None
            token = disk.sync()
            if bookie_of(name) == name:
                self.tell("on_durable", name, token)
                self._near.on_durable(name, self.nodes[name], token)
        self.step(name)

    def committed(self, prefix: str) -> dict[str, bytes]:
        """Committed keys under a prefix, as an all-knowing watcher sees them; of ledgers those that are some."""
        return self.members.agreed.under(prefix)

    # Actors.

    def spawn(self, client: str, steps: Steps) -> Actor:
        """Run an application's steps in a client's process."""
        actor = Actor(client, steps)
        self.actors.append(actor)
        self._go_on(actor, actor.turn, None)
        return actor

    def _after_client(self, name: str) -> None:
        """Tell what became of appends, then let the applications of this client go on."""
        for writing, told in list(self.writings[name].items()):
            if writing.lac > told >= -1:
                self.writings[name][writing] = writing.lac
                self.tell("on_acked", name, writing, writing.core.ledger_id, writing.lac)
            if writing.behind is not None and told != -2 and writing.packer.last_entry != NO_ENTRY:
                went = "kept behind a failure" if writing.is_handed_over else "kept behind a roll"
                self.sometimes[went] += 1
            if writing.is_handed_over:
                self.writings[name][writing] = -2  # Entries that are not acknowledged there did not fail.
            elif writing.error is not None and told != -2:
                self.writings[name][writing] = -2
                ledger_id = writing.core.ledger_id
                self.tell("on_failed", name, writing, ledger_id, writing.lac + 1, writing.error)
        for actor in self.actors:
            if actor.client == name and actor.waits is not None and actor.waits.is_reached():
                self._go_on(actor, actor.turn, True)

    def _go_on(self, actor: Actor, turn: int, value: Any) -> None:
        if actor.is_over or actor.turn != turn:
            return
        if actor.client in self.paused:
            self._deferred.setdefault(actor.client, []).append(partial(self._go_on, actor, turn, value))
            return
        actor.turn += 1
        while True:
            actor.waits = None
            try:
                wish = actor.steps.send(value)
            except StopIteration:
                actor.is_over = True
            except (EmbedbkError, TimeoutError) as error:
                actor.is_over, actor.error = True, error
                self.note(f"{actor.client}: ends with {type(error).__name__}: {error}")
            if actor.is_over:
                self.actors = [other for other in self.actors if other is not actor]
                return
            clock = self.clock(actor.client)
            now = self.network.now_ns
            if isinstance(wish, Sleep):
                due = clock.time(clock.local(now) + wish.duration_ns)
                self.at(due, partial(self._go_on, actor, actor.turn, None))
                return
            if not wish.is_reached():
                actor.waits = wish
                due = clock.time(clock.local(now) + wish.timeout_ns)
                self.at(due, partial(self._time_over, actor, actor.turn))
                return
            value = True

    def _time_over(self, actor: Actor, turn: int) -> None:
        if not actor.is_over and actor.turn == turn and actor.waits is not None:
            self._go_on(actor, turn, actor.waits.is_reached())

    # Operations of applications.

    def run(self, client: str, operation: Operation) -> None:
        """Start an operation in a client, now."""
        self.nodes[client].run(self.now_of(client), operation)
        self._turn_soon(client)

    def start(self, client: str, core: Machine) -> OneResult:
        operation = OneResult(core)
        self.run(client, operation)
        return operation

    def _turn_soon(self, client: str) -> None:
        node = self.nodes[client]
        self._plan_deadline(client, node, self.clock(client))

    def takeover_core(self, client: str, log: str, quorum: Quorum) -> LogTakeover:
        node = self.nodes[client]
        chance = random.Random(self.chance.getrandbits(63))
        has_level = node.metadata.client.cluster_level >= LEVEL_OF_LOGS
        has_pages = node.metadata.client.cluster_level >= LEVEL_OF_PAGES
        page_ledgers = self.page_ledgers if has_pages else 0
        new = NewLedger(
            quorum, b"", self.wall_ms, Begun.TAKEOVER, has_level=has_level, page_ledgers=page_ledgers
        )
        return LogTakeover(log, client.encode(), new, KEY, node.bookies, chance)

    def delete_left(self, client: str, log: str, taken: TakenOver) -> None:
        """Delete ledgers that left the list, as after a takeover (P8.3)."""
        listed = frozenset(segment.ledger_id for segment in taken.log_list.segments)
        self.start(client, Leaving(log, taken.list_revision, listed, KEY))
        self.start(client, Dropping(log, self.wall_ms, 1_000))

    def open_writing(self, client: str, taken: TakenOver, add_timeout_ns: int = 1 * SECOND) -> Writing:
        """The writing handle of a log that was taken over."""
        return self.write_ledger(client, taken.metadata, taken.revision, add_timeout_ns)

    def write_ledger(
        self,
        client: str,
        metadata: LedgerMetadata,
        revision: int,
        add_timeout_ns: int = 1 * SECOND,
        key: bytes = KEY,
    ) -> Writing:
        node = self.nodes[client]
        nonce, chance = self.chance.getrandbits(63), random.Random(self.chance.getrandbits(63))
        # A run is short and has few answers: what is late is known sooner than in a long life, and who failed is left
        # alone for less.
        options = WriterOptions(
            add_timeout_ns=add_timeout_ns,
            quorum_wait_ns=add_timeout_ns,
            avoid_ns=2 * add_timeout_ns,
            late=LateTerms(answers_min=6),
            behind_bytes_max=self.behind_bytes_max,
        )
        core = Writer(metadata, revision, key, nonce, node.bookies, chance, options)
        packer: Packing = (
            Packer(metadata.ledger_id)
            if self.network.has_adds or self.has_near
            else TwinPacker(metadata.ledger_id)
        )
        has_sums = node.metadata.client.cluster_level >= LEVEL_OF_SUMS
        writing = Writing(core, packer, node.wake_writing, has_sums=has_sums)
        self.writings[client][writing] = -1
        self.run(client, writing)
        return writing

    def append(self, client: str, writing: Writing, payload: bytes) -> int | None:
        """Queue one entry as an application would; None when the handle is over."""
        if writing.error is not None:
            return None
        entry_id = writing.try_append(payload)
        if entry_id >= 0:
            self.tell("on_sent", client, writing, writing.core.ledger_id, entry_id, payload)
        return entry_id

    def close_writing(self, client: str, writing: Writing) -> None:
        self.nodes[client].close_writing(self.now_of(client), writing)
        self._turn_soon(client)
