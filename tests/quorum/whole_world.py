"""Whole metadata members in one process: Raft, log and catalog on disks that sync late, and real clients over links.

A member's host is here what it is in production: it carries out what a step asks for, in order, and ends its turns a
little later, so that several events come between a proposal and the flush. Clients find the leader by trying. What must
hold is looked at against the one history that all members apply.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from embedbk.codec.metadata_messages import (
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    Operation,
    Result,
)
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.client import Client
from embedbk.metadata.levels import LEVEL_FIRST
from embedbk.metadata.loading import load
from embedbk.metadata.member import Member
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_vocabulary import (
    Boot,
    Durable,
    Entry,
    FetchSnapshot,
    InstallSnapshot,
    Message,
    Persist,
    Received,
    SnapshotFetched,
    SnapshotGivenUp,
    SnapshotSaved,
)
from embedbk.metadata.raft_vocabulary import LeaderChanged as Elected
from embedbk.metadata.raft_vocabulary import Send as ToPeer
from embedbk.metadata.vocabulary import (
    CatalogReplaced,
    Completed,
    Connected,
    Disconnected,
    DropLinks,
    LinkLost,
    MemberStarted,
    MessageReceived,
    Reply,
    Requested,
    RequestReceived,
    Send,
    SendEvents,
    SessionLost,
    SessionReady,
    Tick,
    TurnEnded,
    WatchChanged,
    WatchRequested,
)
from tests.quorum.whole_judge import WholeJudge

MS = 1_000_000
TOKEN = b"cluster token 01"


@dataclass(frozen=True)
class Saved:
    """The state after entry `index`."""

    index: int
    term: int
    configuration: Configuration
    state: tuple[bytes, ...]  # The pieces of its snapshot.


def pieces_of(catalog: Catalog) -> tuple[bytes, ...]:
    cut = catalog.cut()
    found = tuple(iter(cut.next_piece, None))
    catalog.end_cut()
    return found


class Node:
    """One directory, and the process on it while there is one."""

    def __init__(self, world: WholeWorld, own: MemberId, genesis: Saved) -> None:
        self.world = world
        self.own = own
        self.name = own.name
        self.snapshot = genesis
        self.term, self.vote = 0, None  # type: int, Boot | None
        self.entries: list[Entry] = []  # On the disk, behind the snapshot.
        self.unsynced: list[Persist | tuple[Saved, bool]] = []
        self.core: Member | None = None
        self.sync_ms = 1.0
        self.is_syncing = False
        self.paused_until_ms = 0.0
        self.starts = 0
        self.begins_generation = False
        self.links: dict[int, Peer] = {}
        self.fetched: dict[int, Saved] = {}
        self.is_turn_open = False
        self.notices: list[object] = []

    @property
    def log(self) -> AgreedLog:
        assert self.core is not None
        assert isinstance(self.core.log, AgreedLog)
        return self.core.log

    @property
    def is_leading(self) -> bool:
        return self.core is not None and self.log.term > 0

    def start(self) -> None:
        world, saved = self.world, self.snapshot
        self.starts += 1
        self.is_syncing = self.is_turn_open = False
        log = RaftLog(
            saved.configuration,
            snapshot_index=saved.index,
            snapshot_term=saved.term,
            configuration_index=saved.index,
            entries=self.entries,
        )
        self.boot = Boot(self.own, world.chance.randbytes(8))
        raft = Raft(
            self.boot, log, term=self.term, vote=self.vote, now_ns=world.now_ns,
            chance=random.Random(world.chance.getrandbits(32)),
        )  # fmt: skip
        catalog = load(saved.state)
        self.fetched = {saved.index: saved}
        self.core = Member(
            catalog, log=AgreedLog(raft), now_ns=world.now_ns, cluster_token=TOKEN,
            chance=random.Random(world.chance.getrandbits(32)),
        )  # fmt: skip
        self.step(MemberStarted(world.now_ns, self.begins_generation))

    def crash(self) -> None:
        """Some of what was not synced is on the disk all the same; never something behind what is not."""
        for record in self.unsynced[: self.world.chance.randrange(len(self.unsynced) + 1)]:
            self._write(record)
        self.unsynced, self.core = [], None
        for link in list(self.links):
            self.world.end_link(link)

    def step(self, event: Any) -> None:
        if self.core is None:
            return
        world = self.world
        effects = self.core.step(event)
        for effect in effects:
            match effect:
                case Persist():
                    self._queue(effect)
                case ToPeer(message):
                    world.carry(message)
                case Reply(link, reply):
                    if link in self.links:
                        world.to_client(self.links[link], link, reply)
                case SendEvents(link, events):
                    if link in self.links:
                        world.to_client(self.links[link], link, events)
                case DropLinks():
                    for link in list(self.links):
                        world.end_link(link)
                case FetchSnapshot(source, index, _):
                    self._fetch(source, index)
                case InstallSnapshot(index, _, keeps):
                    saved = self.fetched[index]
                    self._queue((saved, keeps))
                    world.later(0.5, partial(self._install, self.boot, saved))
                case Elected():
                    pass
                case _:
                    self.notices.append(effect)
        world.judge.look(self)
        if self.log.deadline_ns == 0 and not self.is_turn_open:
            self.is_turn_open = True
            boot = self.boot
            world.later(world.chance.choice([0, 0, 0.05, 0.3]), lambda: self._end_turn(boot))

    def _end_turn(self, boot: Boot) -> None:
        if self.core is None or self.boot != boot:
            return
        if self.paused_until_ms > self.world.now_ms:
            self.world.later(self.paused_until_ms - self.world.now_ms, lambda: self._end_turn(boot))
            return
        self.is_turn_open = False
        self.step(
            TurnEnded(self.world.now_ns) if self.world.chance.random() < 0.8 else Tick(self.world.now_ns)
        )

    # --- The disk ------------------------------------------------------------------------------------------

    def _queue(self, record: Persist | tuple[Saved, bool]) -> None:
        self.unsynced.append(record)
        if not self.is_syncing:
            self.is_syncing = True
            boot = self.boot
            after_ms = self.sync_ms * self.world.chance.uniform(0.5, 2)
            self.world.later(after_ms, lambda: self._sync(boot))

    def _sync(self, boot: Boot) -> None:
        if self.core is None or self.boot != boot:
            return
        if self.paused_until_ms > self.world.now_ms:
            self.world.later(self.paused_until_ms - self.world.now_ms, lambda: self._sync(boot))
            return
        records, self.unsynced, self.is_syncing = self.unsynced, [], False
        for record in records:
            self._write(record)
        sequences = [record.sequence for record in records if isinstance(record, Persist)]
        if sequences:
            self.step(Durable(self.world.now_ns, sequences[-1]))

    def _write(self, record: Persist | tuple[Saved, bool]) -> None:
        if isinstance(record, Persist):
            self.term, self.vote = record.term, record.vote
            del self.entries[max(0, record.keep_index - self.snapshot.index) :]
            self.entries.extend(entry for entry in record.entries if entry.index > self.snapshot.index)
        else:
            saved, keeps = record
            gone = saved.index - self.snapshot.index
            self.entries = self.entries[gone:] if keeps else []
            self.snapshot = saved

    def save_snapshot(self) -> None:
        core = self.core
        if (
            core is None
            or core.applied_index <= self.snapshot.index
            or self.unsynced
            or not core.is_caught_up
        ):
            return
        raft, index = self.log.raft, core.applied_index
        term = raft.log.term_at(index)
        assert term is not None
        saved = Saved(index, term, raft.log.configuration_at(index), pieces_of(core.catalog))
        self._write((saved, True))
        self.fetched = {index: saved}
        self.step(
            SnapshotSaved(
                self.world.now_ns, index, self.world.chance.randint(raft.log.first_index, index + 1)
            )
        )

    def _fetch(self, source: Boot, index: int) -> None:
        boot, world = self.boot, self.world

        def arrive() -> None:
            if self.core is None or self.boot != boot:
                return
            holder = world.nodes[source.member.name]
            saved = holder.fetched.get(index) if holder.core is not None else None
            if saved is None:
                self.step(SnapshotGivenUp(world.now_ns))
                return
            self.fetched[index] = saved
            self.step(SnapshotFetched(world.now_ns, index, saved.term, saved.configuration))

        world.later(world.chance.uniform(1, 1000), arrive)

    def _install(self, boot: Boot, saved: Saved) -> None:
        if self.core is not None and self.boot == boot:
            self.world.met["snapshot installed"] = True
            self.step(CatalogReplaced(self.world.now_ns, saved.index, load(saved.state)))


class Peer:
    """A client, its link, and what its host has seen. It finds the leader by trying."""

    def __init__(self, world: WholeWorld, name: str, ttl_ms: int, prefix: str) -> None:
        self.world = world
        self.name = name
        self.prefix = prefix  # Of what it watches.
        self.is_dead = False
        self.client = Client(ttl_ms=ttl_ms, label=name)
        self.link: int | None = None
        self.results: dict[int, Result] = {}
        self.view: dict[str, Any] = {}
        self.sessions: list[int] = []
        self.lost: list[int] = []
        self.count = 0
        self.hint = ""

    def connect(self) -> None:
        """To whoever was named last, or to anybody."""
        world = self.world
        if self.link is not None or self.is_dead:
            return
        name, self.hint = self.hint or world.chance.choice(list(world.nodes)), ""
        node = world.nodes[name]
        if node.core is None or (self.name, name) in world.is_cut:
            world.later(world.chance.uniform(5, 50), self.connect)
            return
        world.link_count += 1
        self.link = world.link_count
        node.links[self.link] = self
        world.node_of[self.link] = node
        self.step(Connected(world.now_ns))

    def kill(self) -> None:
        """Its process ends without a word; its session lives on until it expires."""
        self.is_dead = True
        self.world.peers.remove(self)
        if self.link is not None:
            self.world.end_link(self.link)

    def go_to(self, leader: str) -> None:
        self.hint = leader
        if self.link is not None:
            self.world.end_link(self.link, 1 if leader else self.world.chance.uniform(5, 50))

    def ask(self, operation: Operation) -> int:
        self.count += 1
        self.world.judge.asked(self, self.count, operation)
        self.step(Requested(self.world.now_ns, self.count, operation))
        return self.count

    def step(self, event: Any) -> None:
        world = self.world
        if self.is_dead:
            return
        for effect in self.client.step(event):
            match effect:
                case Send(request):
                    assert self.link is not None
                    world.to_member(self.link, request)
                case Completed(token, result):
                    assert token not in self.results, "completed twice"
                    self.results[token] = result
                    world.judge.completed(self, token, result)
                case WatchChanged(_, records, _, is_first):
                    if is_first:
                        self.view.clear()
                    for record in records:
                        if record.value is None:
                            self.view.pop(record.key, None)
                        else:
                            self.view[record.key] = record
                case SessionReady(session):
                    self.sessions.append(session)
                case SessionLost(session):
                    self.lost.append(session)


class WholeWorld:
    """Virtual milliseconds; the next thing that is due happens next."""

    def __init__(
        self,
        seed: int,
        names: str = "abc",
        policy: Policy = Policy.MAJORITY,
        base_ms: int = 500,
        level: int = LEVEL_FIRST,
    ) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 100_000.0
        self.nodes: dict[str, Node] = {}
        self.peers: list[Peer] = []
        self.link_count = 0
        self.node_of: dict[int, Node] = {}
        self.is_cut: dict[tuple[str, str], None] = {}  # (from, to).
        self.loss = 0.0
        self.delay_ms = (0.1, 2.0)
        self.met: dict[str, bool] = {}
        self._last_of: dict[
            tuple[int, bool], float
        ] = {}  # When the last message of a link arrives, by direction.
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        voters = tuple(MemberId(name, self.chance.randbytes(4)) for name in names)
        configuration = Configuration(voters, policy=policy, outgoing_policy=policy, election_base_ms=base_ms)
        catalog = Catalog()
        catalog.level = level
        genesis = Saved(0, 0, configuration, pieces_of(catalog))
        self.judge = WholeJudge(load(genesis.state))
        for voter in voters:
            self.nodes[voter.name] = Node(self, voter, genesis)
        for node in self.nodes.values():
            node.start()

    @property
    def now_ns(self) -> int:
        return int(self.now_ms * MS)

    def peer(self, name: str, ttl_ms: int = 10_000, prefix: str = "/") -> Peer:
        peer = Peer(self, name, ttl_ms, prefix)
        self.peers.append(peer)
        peer.connect()
        peer.step(WatchRequested(self.now_ns, "/", prefix))
        return peer

    def leader(self) -> Node | None:
        """Of the newest term, if its process lives."""
        leaders = [node for node in self.nodes.values() if node.is_leading]
        return max(leaders, key=lambda node: node.log.term, default=None)

    # --- What is carried -----------------------------------------------------------------------------------

    def carry(self, message: Message) -> None:
        way = (message.sender.member.name, message.receiver.name)
        if way not in self.is_cut and self.chance.random() >= self.loss:
            self.later(self.chance.uniform(*self.delay_ms), lambda: self._receive(message))

    def _receive(self, message: Message) -> None:
        node = self.nodes[message.receiver.name]
        if node.paused_until_ms > self.now_ms:
            self.later(node.paused_until_ms - self.now_ms, lambda: self._receive(message))
        else:
            node.step(Received(self.now_ns, message))

    def to_member(self, link: int, request: MetadataRequest) -> None:
        peer, node = self.node_of[link].links[link], self.node_of[link]
        if (peer.name, node.name) not in self.is_cut:
            self._in_order(link, True, lambda: self._run(link, request))

    def _run(self, link: int, request: MetadataRequest) -> None:
        node = self.node_of.get(link)
        if node is None:
            return
        if node.paused_until_ms > self.now_ms:
            self.later(node.paused_until_ms - self.now_ms, lambda: self._run(link, request))
            return
        if isinstance(request.operation, KeepAlive):
            self.met["kept alive"] = True
        node.step(RequestReceived(self.now_ns, link, request))

    def to_client(self, peer: Peer, link: int, message: Any) -> None:
        if (self.node_of[link].name, peer.name) in self.is_cut:
            return

        def arrive() -> None:
            if peer.link != link:
                return
            if isinstance(message, MetadataReply) and isinstance(message.result, NotLeader):
                self.met["sent away"] = True
                peer.go_to(message.result.leader)
            else:
                peer.step(MessageReceived(self.now_ns, message))

        self._in_order(link, False, arrive)

    def _in_order(self, link: int, is_request: bool, act: Callable[[], None]) -> None:
        at = max(self.now_ms + self.chance.uniform(*self.delay_ms), self._last_of.get((link, is_request), 0))
        self._last_of[link, is_request] = at
        self.later(at - self.now_ms, act)

    def end_link(self, link: int, again_ms: float | None = None) -> None:
        """Both ends hear of it; what is on its way is lost. The client tries again."""
        node = self.node_of.pop(link)
        peer = node.links.pop(link)
        node.step(LinkLost(self.now_ns, link))
        peer.link = None
        peer.step(Disconnected(self.now_ns))
        self.later(self.chance.uniform(1, 30) if again_ms is None else again_ms, peer.connect)

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        self.is_cut[one, other] = None
        if both:
            self.is_cut[other, one] = None

    def isolate(self, name: str) -> None:
        """From the other members; clients reach it all the same."""
        for other in self.nodes:
            if other != name:
                self.cut(name, other)

    # --- Time ------------------------------------------------------------------------------------------------

    def later(self, after_ms: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self.now_ms + max(after_ms, 0), self._count, act))

    def _due(self) -> tuple[float, Node | Peer | None]:
        """The next that is to be woken by its own deadline."""
        found: tuple[float, Node | Peer | None] = (float("inf"), None)
        for node in self.nodes.values():
            deadline_ns = node.core.deadline_ns if node.core is not None else None
            if deadline_ns is not None and not (node.is_turn_open and deadline_ns == 0):
                at = max(self.now_ms, deadline_ns / MS + 0.001, node.paused_until_ms)
                if at < found[0]:
                    found = at, node
        for peer in self.peers:
            if (deadline_ns := peer.client.deadline_ns) is not None:
                at = max(self.now_ms, deadline_ns / MS + 0.001)
                if at < found[0]:
                    found = at, peer
        return found

    def run(self, for_ms: float) -> None:
        end_ms = self.now_ms + for_ms
        while True:
            at, who = self._due()
            if self._agenda and self._agenda[0][0] <= at:
                at, who = self._agenda[0][0], None
            if at > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, at)
            if who is not None:
                who.step(Tick(self.now_ns))
            else:
                heapq.heappop(self._agenda)[2]()
            self.judge.leases(self)
