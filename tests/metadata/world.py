"""A small world for the metadata cores: one member on a journal in memory, clients, links, and one clock.

Messages pass through their encoded form. Links keep order and lose everything when they go down, as a transport
does. Everything happens when the test says so.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from embedbk.codec.messages import Control, decode_message, encode_message
from embedbk.codec.metadata_messages import (
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    Operation,
    Record,
    Result,
    WatchEvents,
)
from embedbk.host.snapshotting import Snapshotting
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.catalog import DEFAULT_LIMITS, Limits
from embedbk.metadata.client import Client
from embedbk.metadata.intake import Intake
from embedbk.metadata.member import Member
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_vocabulary import Durable, LeaderChanged, Persist, SnapshotSaved
from embedbk.metadata.vocabulary import (
    Cancelled,
    Closed,
    CloseRequested,
    Completed,
    Connected,
    Dial,
    Disconnected,
    Halted,
    HangUp,
    JournalFailed,
    LinkLost,
    MemberStarted,
    MessageReceived,
    Remark,
    Reply,
    Requested,
    RequestReceived,
    Send,
    SendEvents,
    SessionLost,
    SessionReady,
    SessionRefused,
    Tick,
    TurnEnded,
    WatchCancelled,
    WatchChanged,
    WatchPutOff,
    WatchRequested,
)
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.memory_journal import MemoryJournal, MemoryRecord
from embedbk.storage.metadata_store import MemberIdentity, MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles

MS = 1_000_000
SECOND = 1_000 * MS
TOKEN = b"cluster token 01"


def through_the_wire(control: Control) -> Any:
    return decode_message(b"".join(bytes(piece) for piece in encode_message(0, control))).control


@dataclass
class Peer:
    """A client with its link, and what its host has seen."""

    name: str
    client: Client
    link: int | None = None
    to_member: deque[MetadataRequest] = field(default_factory=deque)
    to_client: deque[MetadataReply | WatchEvents] = field(default_factory=deque)
    results: dict[Any, Result] = field(default_factory=dict)
    views: dict[Any, dict[str, Record]] = field(
        default_factory=dict
    )  # By applying WatchChanged, as a host does.
    changes: dict[Any, list[Record]] = field(default_factory=dict)  # Every change of a watch, in order.
    sessions: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # Why no session was opened.
    put_off: list[tuple[Any, str]] = field(default_factory=list)  # Watches, with the reason.
    sent: list[MetadataRequest] = field(default_factory=list)
    is_closed: bool = False
    request_count: int = 0
    at: str = ""  # The address that was dialled.
    dials: list[tuple[int, str]] = field(default_factory=list)  # When, and whom.


class World:
    def __init__(
        self,
        *,
        seed: int = 1,
        limits: Limits = DEFAULT_LIMITS,
        has_intake: bool = False,
        **store_settings: int,
    ) -> None:
        """has_intake: requests are read first and run when `run_request` says so, as in a member's place."""
        self.now_ns = 100 * SECOND
        self.random = random.Random(seed)
        self.limits = limits
        self.store_settings = store_settings
        self.peers: dict[str, Peer] = {}
        self.links: dict[int, Peer] = {}
        self.link_count = 0
        self.is_committing = True  # False: the disk is slow; call `commit`.
        self.halted: str | None = None
        self.disk = MemoryDisk()  # Of the snapshots.
        self.has_intake = has_intake
        self.start_member(())

    # --- The member --------------------------------------------------------------------------------------

    def start_member(self, survivors: Iterable[MemoryRecord]) -> None:
        self.intake = Intake()
        self.journal = MemoryJournal(tuple(survivors))
        self.disk.crash()
        self.store = MetadataStore(
            self.journal,
            self.journal.first_token(),
            limits=self.limits,
            new_identity=MemberIdentity(TOKEN, b"incarnation 0001"),
            snapshots=SnapshotFiles("snapshots", io=self.disk),
            **self.store_settings,
        )
        begun = self.store.beginning
        raft = Raft(
            self.store.boot,
            begun.log,
            term=begun.term,
            vote=begun.vote,
            now_ns=self.now_ns,
            chance=self.random,
        )
        self.log = self.log_around(raft)
        self.snapshotting = Snapshotting(self.store, raft.log)
        self.member = Member(
            begun.catalog,
            log=self.log,
            now_ns=self.now_ns,
            cluster_token=self.store.identity.cluster_token,
            chance=self.random,
        )
        self.member_step(MemberStarted(self.now_ns))
        self.member_step(Tick(self.now_ns))

    def log_around(self, raft: Raft) -> AgreedLog:
        return AgreedLog(raft)

    def restart_member(self) -> None:
        """Power off and on: what was not durable is gone, and every link."""
        for peer in self.peers.values():
            self.disconnect(peer)
        self.start_member(self.journal.crash())

    def commit(self, count: int | None = None) -> None:
        self.journal.commit(count)
        self.member_step(Durable(self.now_ns, self.store.durable()))
        saved = self.store.saved()
        if saved is not None:
            self.member_step(SnapshotSaved(self.now_ns, *saved))

    def fail_disk(self) -> None:
        self.journal.fail("EIO")
        self.member_step(JournalFailed(self.now_ns, "EIO"))

    def member_step(self, event: Any) -> None:
        effects = self.member.step(event)
        if self.log.has_gathered and (not self.has_intake or self.random.random() < 0.5):
            effects += self.member.step(TurnEnded(self.now_ns))  # Else what comes next goes in behind it.
        for effect in effects:
            match effect:
                case Persist():
                    self.store.persist(effect)
                case LeaderChanged() | Remark():
                    pass
                case Reply(link, reply):
                    self.answered(link, reply)
                    if link in self.links:
                        self.links[link].to_client.append(through_the_wire(reply))
                case SendEvents(link, events):
                    if link in self.links:
                        self.links[link].to_client.append(through_the_wire(events))
                case Halted(reason):
                    self.halted = reason
                case _:
                    raise AssertionError(effect)
        self.snapshotting.step(self.member, self.now_ns)

    # --- Clients -----------------------------------------------------------------------------------------

    def peer(self, name: str, *, ttl_ms: int = 10_000, connect: bool = True) -> Peer:
        peer = self.peers[name] = Peer(name, Client(ttl_ms=ttl_ms, label=name))
        if connect:
            self.connect(peer)
            self.settle()
        return peer

    def connect(self, peer: Peer) -> None:
        self.disconnect(peer)
        self.link_count += 1
        peer.link = self.link_count
        self.links[self.link_count] = peer
        self.step(peer, Connected(self.now_ns))

    def dial(self, peer: Peer, endpoint: str) -> None:
        """A client that looks for the leader by itself begins a link (for worlds of several members)."""
        raise AssertionError(endpoint)

    def hang_up(self, peer: Peer) -> None:
        self.disconnect(peer)

    def disconnect(self, peer: Peer) -> None:
        if peer.link is None:
            return
        link, peer.link = peer.link, None
        del self.links[link]
        peer.to_member.clear()
        peer.to_client.clear()
        if self.has_intake:
            self.intake.end_link(LinkLost(self.now_ns, link))
        else:
            self.member_step(LinkLost(self.now_ns, link))
        self.step(peer, Disconnected(self.now_ns))

    def ask(self, peer: Peer, operation: Operation) -> int:
        peer.request_count += 1
        self.step(peer, Requested(self.now_ns, peer.request_count, operation))
        return peer.request_count

    def do(self, peer: Peer, operation: Operation) -> Result:
        """Ask, and let everything run until it is quiet; the outcome."""
        token = self.ask(peer, operation)
        self.settle()
        return peer.results[token]

    def cancel(self, peer: Peer, token: Any) -> None:
        self.step(peer, Cancelled(self.now_ns, token))

    def watch(self, peer: Peer, prefix: str) -> None:
        self.step(peer, WatchRequested(self.now_ns, prefix, prefix))

    def unwatch(self, peer: Peer, prefix: str) -> None:
        self.step(peer, WatchCancelled(self.now_ns, prefix))

    def close(self, peer: Peer) -> None:
        self.step(peer, CloseRequested(self.now_ns))

    def step(self, peer: Peer, event: Any) -> None:
        for effect in peer.client.step(event):
            match effect:
                case Send(request):
                    assert peer.link is not None
                    peer.sent.append(request)
                    peer.to_member.append(through_the_wire(request))
                case Completed(token, result):
                    assert token not in peer.results, "completed twice"
                    peer.results[token] = result
                case WatchChanged(token, records, _, is_first):
                    assert is_first == (token not in peer.views)
                    view = peer.views.setdefault(token, {})
                    peer.changes.setdefault(token, []).extend(records)
                    for record in records:
                        if record.value is None:
                            view.pop(record.key, None)
                        else:
                            view[record.key] = record
                case WatchPutOff(token, reason):
                    peer.put_off.append((token, reason))
                case SessionReady(session):
                    peer.sessions.append(session)
                case SessionLost(session):
                    peer.lost.append(session)
                case SessionRefused(reason):
                    peer.refused.append(reason)
                case Closed():
                    peer.is_closed = True
                case Dial(endpoint):
                    peer.at = endpoint
                    peer.dials.append((self.now_ns, endpoint))
                    self.dial(peer, endpoint)
                case HangUp():
                    self.hang_up(peer)
                case _:
                    raise AssertionError(effect)

    # --- Time and delivery -------------------------------------------------------------------------------

    def deliver_request(self, peer: Peer) -> None:
        assert peer.link is not None
        received = RequestReceived(self.now_ns, peer.link, peer.to_member.popleft())
        request = received.request
        if not self.has_intake or isinstance(request.operation, KeepAlive):
            self.member_step(received)
            return
        refusal = self.intake.put(received)
        if refusal is not None:
            reply = MetadataReply(request.session, request.sequence, refusal)
            self.answered(peer.link, reply)
            peer.to_client.append(through_the_wire(reply))

    def run_request(self) -> bool:
        """Run what the intake gives next."""
        event = self.intake.take(self.now_ns)
        if event is not None:
            self.member_step(event)
        return event is not None

    def answered(self, link: int, reply: MetadataReply) -> None:
        """An answer left the member (for worlds that look at them)."""

    def deliver_answer(self, peer: Peer) -> None:
        self.step(peer, MessageReceived(self.now_ns, peer.to_client.popleft()))

    def settle(self) -> None:
        """Deliver and sync until nothing moves; no time passes."""
        is_moving = True
        while is_moving:
            is_moving = False
            for peer in self.peers.values():
                while peer.to_member:
                    self.deliver_request(peer)
                    is_moving = True
                while peer.to_client:
                    self.deliver_answer(peer)
                    is_moving = True
            while self.run_request():
                is_moving = True
            if self.is_committing and self.journal.pending:
                self.commit()
                is_moving = True
            if self.tick_what_is_due():
                is_moving = True

    def tick_what_is_due(self) -> bool:
        is_due = False
        if (at := self.member.deadline_ns) is not None and at <= self.now_ns:
            self.member_step(Tick(self.now_ns))
            is_due = True
        for peer in self.peers.values():
            if (at := peer.client.deadline_ns) is not None and at <= self.now_ns:
                self.step(peer, Tick(self.now_ns))
                is_due = True
        return is_due

    def advance(self, ns: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        until = self.now_ns + ns
        while True:
            self.settle()
            deadlines = [self.member.deadline_ns, *(peer.client.deadline_ns for peer in self.peers.values())]
            due = [at for at in deadlines if at is not None and at <= until]
            if not due:
                break
            self.now_ns = max(self.now_ns, min(due))
        self.now_ns = until
        self.settle()
