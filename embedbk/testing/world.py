"""A whole cluster in one process under one seed: production nodes on the simulated network, disks in memory.

The world has the processes by name: it starts, ends, crashes and pauses them. It decides nothing of the protocol and
judges nothing: it notifies observers (observer.py), which judge. Its time is in `turns`, its applications in `actors`.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from embedbk.archive.manifest import Manifest
from embedbk.config import BEHIND_BYTES_MAX, LOG_PAGE_LEDGERS
from embedbk.core.backlog import FRAME_PRICE
from embedbk.core.collector import CollectorOptions
from embedbk.core.machine import Machine
from embedbk.errors import StorageError
from embedbk.host.bookie_node import USUAL_COLLECTION, BookieNode
from embedbk.host.client_node import SEAT_GRACE_NS, ClientNode
from embedbk.host.operations import OneResult, Operation
from embedbk.host.writing import Writing
from embedbk.ids import START_ID_BYTES
from embedbk.metadata.basing import BASE_RULES, BaseRules
from embedbk.metadata.client import Client
from embedbk.metadata.intake import REQUESTS_WAITING_MAX
from embedbk.metadata.levels import LEVEL, LEVEL_FIRST
from embedbk.metadata.limits import DEFAULT_LIMITS, Limits
from embedbk.metadata.quorum import Policy
from embedbk.ports.links import Identity
from embedbk.testing.actors import Actor, Actors, Steps
from embedbk.testing.bookie_processes import SESSION_MS, run_bookie, tell_started
from embedbk.testing.clocks import MS, SECOND, TRUE, Clock
from embedbk.testing.course_watch import CourseWatch
from embedbk.testing.disks import BookieDisk, MetadataCopy
from embedbk.testing.impatience import Impatience
from embedbk.testing.member_directories import CLUSTER_TOKEN
from embedbk.testing.member_names import member_names
from embedbk.testing.members import Members
from embedbk.testing.native_disk import NativeDisk
from embedbk.testing.near_loops import NearLoops
from embedbk.testing.observer import Observer
from embedbk.testing.process_names import bookie_of
from embedbk.testing.turns import WorldTurns
from embedbk.testing.twin_disk import TwinDisk
from embedbk.testing.twins import Twins
from embedbk.transports.in_flight import SharedBacklog, table_in_c
from embedbk.transports.sim import SimNetwork
from embedbk.transports.sim_faults import CALM, Faults

__all__ = ["KEPT_FRAME_BYTES", "World"]

KEPT_FRAME_BYTES = FRAME_PRICE + 200  # A usual one of these small worlds.
_HOOKS = [name for name in vars(Observer) if name.startswith(("on_", "at_"))]


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
        self.turns = WorldTurns(self)
        self.near = NearLoops(
            lambda client: self.writings.get(client, ()),
            self.tell,
            self.now_of,
            lambda bookie: bookie in self.paused,
            self.wake,
            self.turns.plan_sync,
            self._note_met,
        )
        self.disks: dict[str, BookieDisk] = {}
        self.twins = Twins(self)
        self.endpoints: dict[str, str] = {}  # Endpoints of bookies that are not at the place of their name.
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
        self.sometimes: Counter[str] = Counter()
        self.archived: dict[
            tuple[str, int, bytes], bytes
        ] = {}  # Files, by log, ledger and hash of the manifest.
        self.manifests: dict[tuple[str, int, bytes], Manifest] = {}  # These name the files.
        self.history_changes = 0  # Changes that members keep for watches that resume; 0: as usual.
        self.goes_back = False  # At the end the metadata goes back to an older copy.
        self.truncations_begun = self.truncations_under_way = 0  # Counts of truncations by applications.
        self.faults_done: Counter[str] = Counter()
        # How far each handle was reported, by client; -2: failed, and reported.
        self.writings: dict[str, dict[Writing, int]] = {}
        self.actors = Actors(self)
        self.not_begun: set[Coroutine[Any, Any, None]] = set()  # To begin beside the step under way.
        # Receives the lines that a trace writes between the messages.
        self.on_note: Callable[[str], None] | None = None
        self.on_body: Callable[[int, str, str, bytes], None] | None = None
        self._hash = hashlib.blake2b(digest_size=16)
        self._incarnations = self._starts = 0
        self.members = Members(self, members, policy, election_base_ms, first_members, base_rules)
        self.metadata_copy: MetadataCopy | None = None  # Taken on the way, for what comes behind the run.
        self.hooks: dict[str, list[Callable[..., None]]] = {}  # Of observers, by their names.
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
                self.hooks.setdefault(hook, []).append(getattr(observer, hook))
        for name, node in getattr(self, "nodes", {}).items():
            node.on_step = self._step_hook(name)

    def mute(self) -> None:
        """Notify observers of nothing more: what follows is no history that they could judge."""
        self.hooks.clear()
        for name, node in self.nodes.items():
            node.on_step = self._step_hook(name)

    def tell(self, hook: str, *arguments: Any) -> None:
        for told in self.hooks.get(hook, ()):
            told(*arguments)

    def _step_hook(self, name: str) -> Callable[..., None] | None:
        told = self.hooks.get("on_step", [])
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

    def start_id(self) -> bytes:
        """One that no other start of a bookie has."""
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
            tell_started(self, name, may_have_lost=storage.may_have_lost or disk.is_less)
        self.turns.plan_turn(name, self.network.now_ns)

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
        return run_bookie(self, name, disk)

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
        node.on_wake = partial(self.wake, name)
        node.is_sending_watched = self.network.has_adds
        if self.has_near and name in self.near_clients:
            self.near.join(name, node, [self.nodes[each] for each in self.disks if each in self.nodes])
        self.writings[name] = {}
        self.enter(name, "client", node)
        return node

    def wake(self, name: str) -> None:
        """Something was asked of this node, between its turns."""
        self.turns.plan_turn(name, self.network.now_ns)

    def crash(self, name: str) -> None:
        """The process ends without a word: what was not synced is gone, as far as the disk is not ahead."""
        self.twins.on_trouble(name)
        self.note(f"{name} crashes")
        self.network.crash(name)
        self.near.leave_bookie(name, self.nodes[name])
        self.near.leave_client(name)
        disk = self.turns.disk_of(name)
        if disk is not None and self.nodes[name].core.is_settled:
            disk.is_less = False  # It has found out, and was in limbo.
        node = self.nodes.pop(name)
        self.turns.forget(name)
        self.paused.discard(name)
        self.writings.pop(name, None)
        self._courses.forget(name)
        self.actors.on_crash(name)
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
        self.near.on_durable(name, node, token)

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
        self.turns.forget(name)
        self.paused.discard(name)
        self.writings.pop(name, None)
        self._courses.forget(name)
        node.close()
        self.near.leave_client(name)
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

    def pause(self, name: str) -> None:
        """SIGSTOP: it is not stepped, and its actors stand still, while the world goes on."""
        self.twins.on_trouble(name, stops=False)
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
        self.actors.on_resumed(name)
        self.turns.plan_turn(name, self.network.now_ns)
        if self.turns.has_pending(name):
            self.turns.plan_sync(name)

    def change_places(self, one: str, other: str) -> None:
        """Swap the names of two processes from now on; what is planned for a name stays with it."""
        self.endpoints.setdefault(one, f"sim://{one}")
        self.endpoints.setdefault(other, f"sim://{other}")
        named: list[dict[str, Any]] = [self.nodes, self.clocks, self.endpoints]
        for by_name in named:
            found = {name: by_name.pop(name) for name in (one, other) if name in by_name}
            by_name.update({other if name == one else one: what for name, what in found.items()})
        paused = [name for name in (one, other) if name in self.paused]
        self.paused.difference_update(paused)
        self.paused.update(other if name == one else one for name in paused)
        self.network.change_places(one, other)
        for name in (one, other):
            self.turns.forget(name)
            if name in self.nodes:
                self.nodes[name].on_step = self._step_hook(name)
                self.turns.plan_turn(name, self.network.now_ns)
            if name in self.nodes and name not in self.paused and self.turns.has_pending(name):
                self.turns.plan_sync(name)

    def close(self) -> None:
        """Let everything go; a world with native disks must be closed."""
        self.actors.close()
        for steps in self.not_begun:
            steps.close()
        self.near.close()
        self.twins.end_all()
        for disk in self.disks.values():
            disk.close()

    # Time.

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def at(self, when_ns: int, act: Callable[[], object]) -> None:
        """Do this when the world's time is when_ns."""
        self.turns.at(when_ns, act)

    def after(self, delay_ns: int, act: Callable[[], object]) -> None:
        self.turns.at(self.network.now_ns + delay_ns, act)

    def run_until(self, is_reached: Callable[[], bool], within_ns: int = 60 * SECOND) -> bool:
        """Run until the fact holds; False when it does not within that time."""
        return self.turns.run_until(is_reached, within_ns)

    def run_for(self, duration_ns: int) -> None:
        self.turns.run_for(duration_ns)

    def step(self, name: str) -> None:
        """One turn of a node, now."""
        self.turns.step(name)

    def committed(self, prefix: str) -> dict[str, bytes]:
        """Committed keys under a prefix, as an all-knowing watcher sees them; of ledgers those that are some."""
        return self.members.agreed.under(prefix)

    # Applications.

    def spawn(self, client: str, steps: Steps) -> Actor:
        """Run an application's steps in a client's process."""
        return self.actors.spawn(client, steps)

    def run(self, client: str, operation: Operation) -> None:
        """Start an operation in a client, now."""
        self.nodes[client].run(self.now_of(client), operation)
        self.turn_soon(client)

    def start(self, client: str, core: Machine) -> OneResult:
        operation = OneResult(core)
        self.run(client, operation)
        return operation

    def turn_soon(self, client: str) -> None:
        """Something was asked of this client: plan its next turn again."""
        self.turns.plan_deadline(client, self.nodes[client], self.clock(client))
