"""A metadata member in its place: carries out what its core asks for on transport and store.

Decides nothing of the protocol. Effects are carried out in list order, and the core receives what became durable before
anything else of the turn, so that no answer can leave early. Keep-alives are answered as they are read; other requests
are run link by link, a slice in each turn of the loop (`metadata.intake`). The proposals of a turn are logged at its
end, together. A slice of a snapshot is cut between two steps (snapshotting.py). Links of other members belong to
`member_links.py`.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Sequence

from embedbk.codec.gathering import encode_replies
from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import (
    KeepAlive,
    MetadataReply,
    MetadataRequest,
    MetadataRequests,
    OpenSession,
    Unwatch,
    Watch,
)
from embedbk.codec.quorum_messages import Backup, Governance
from embedbk.errors import EmbedbkError, PeerError, StorageError
from embedbk.host.backing_up import BackingUp
from embedbk.host.filling import Filling
from embedbk.host.installing import Installing
from embedbk.host.loop import unix_ms
from embedbk.host.measuring import Measuring
from embedbk.host.member_links import MemberLinks
from embedbk.host.snapshotting import Snapshotting
from embedbk.host.standing import Standing
from embedbk.member_ports import MemberStore
from embedbk.metadata import raft_vocabulary
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.basing import BASE_RULES, BaseRules
from embedbk.metadata.calibration import Measured, advise
from embedbk.metadata.divergence import DIGEST_ENTRIES
from embedbk.metadata.governing import Governing
from embedbk.metadata.holding import Holding
from embedbk.metadata.intake import Intake
from embedbk.metadata.member import Member, MemberEffect, MemberEvent
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_vocabulary import (
    ChangeEnded,
    Durable,
    FetchSnapshot,
    InstallSnapshot,
    LeaderChanged,
    NoticeDamaged,
    NoticeRetired,
    Persist,
    SnapshotSaved,
    TimingMeasured,
)
from embedbk.metadata.vocabulary import (
    DropLinks,
    Halted,
    JournalFailed,
    LinkLost,
    MemberStarted,
    Remark,
    Reply,
    RequestReceived,
    SendEvents,
    StateDamaged,
    Tick,
    TurnEnded,
)
from embedbk.ports.links import LinkDown, LinkUp, Received
from embedbk.ports.transport import Transport

__all__ = ["MetadataNode"]

logger = logging.getLogger(__name__)

STREAMED = (Watch, Unwatch, KeepAlive)  # Without a session: any member answers them.
REQUESTS_PER_STEP = 64  # Run in one turn of the loop: some milliseconds.


class MetadataNode:
    """Core, log, and the links of its clients and of the other members."""

    def __init__(
        self,
        store: MemberStore,
        transport: Transport,
        listen: Sequence[str],
        *,
        now_ns: int,
        chance: random.Random | None = None,
        requests_waiting_max: int | None = None,
        digest_entries: int = DIGEST_ENTRIES,
        base_rules: BaseRules = BASE_RULES,
        unix_ms: Callable[[], int] = unix_ms,
        seeds: Sequence[str] = (),
    ) -> None:
        """listen: endpoints to bind; what was bound stands in `endpoints`. seeds: where members may be, also this one.
        chance: the system's own unless given, so that no client guesses another's session. requests_waiting_max: read
        and not run; more are put off. base_rules: when the election base changes. unix_ms: the time of day, which is
        shown."""
        self.store = store
        self.transport = transport
        self.endpoints = [transport.listen(endpoint) for endpoint in listen]
        chance, begun = chance or random.SystemRandom(), store.beginning
        raft = Raft(
            store.boot,
            begun.log,
            term=begun.term,
            vote=begun.vote,
            now_ns=now_ns,
            # Only times are drawn with it, one with each message of a leader: no secret is worth a system call each.
            chance=random.Random(chance.getrandbits(64)),
            doubt=begun.doubt,
            base_rules=base_rules,
        )
        self.log = AgreedLog(raft)
        self.core = Member(
            begun.catalog,
            log=self.log,
            now_ns=now_ns,
            cluster_token=store.identity.cluster_token,
            chance=chance,
            digest_entries=digest_entries,
        )
        others = [seed for seed in seeds if seed not in self.endpoints]
        self.members = MemberLinks(
            transport, store.boot, store.identity.cluster_token, store.snapshots, others
        )
        self._governing = Governing(
            store.identity.cluster_token,
            self.endpoints,
            lambda: self.core.catalog,
            self.members.peers.levels,
            self.core.lacking,
            self._measured,
            unix_ms,
            lambda: self._standing.why,
        )
        self._unix_ms = unix_ms
        self._measuring = Measuring(now_ns)
        self._now_ns = now_ns  # The time of the present turn.
        self._due_ns: int | None = None  # When the next turn is due, as it was returned to the host last.
        self._core_due: int | None = None  # The core's deadline, if it is known.
        self._knows_core_due = False
        # Something is queued for the log, and the thread that writes it was not woken for it.
        self._has_queued = False
        self.failure: EmbedbkError | None = None  # Why this member must not serve: shown to its operator.
        self.on_failed: Callable[[], None] = lambda: None  # Called when that is known.
        self._durable_sequence = 0
        self._has_doubt = begun.doubt is not None  # And it is noted so.
        self._links: dict[int, None] = {}
        self.gathered_taken = 0  # Messages with several requests, since this process began.
        self._gathering: dict[int, None] = {}  # Links of clients that take several answers in one message.
        self._gathered: dict[int, list[MetadataReply]] = {}  # By link, what is not sent yet.
        self._intake = Intake(requests_waiting_max)
        self._holding = Holding()
        self._snapshotting = Snapshotting(store, raft.log)
        self._backing_up = BackingUp(store.snapshots)
        self._installing = Installing(store)
        self._filling = Filling(logger, store.identity.name)
        self._standing = Standing(logger, store.identity.name)
        # Called with each step of the core, before its effects are carried out (testing).
        self.on_step: Callable[[Member, MemberEvent, list[MemberEffect]], None] | None = None
        self._step_core(
            MemberStarted(now_ns, store.begins_generation, store.gives_up, store.level, store.is_whole)
        )
        self._end_turn(now_ns)  # A member that is alone leads at once.
        self._send_off()
        logger.info(
            "metadata member %s serves at %s: entry %d of its log",
            store.identity.name,
            ", ".join(self.endpoints),
            store.index,
        )
        if store.begins_generation:
            logger.warning("metadata begins a new generation, by its owner's word")

    def step(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._measuring.turn(now_ns, self._due_ns)
        self._tell_store(now_ns)
        for event in self.transport.receive(now_ns):
            if isinstance(event, Received):
                self._take_body(now_ns, event)
            elif isinstance(event, LinkUp):
                if not self.members.on_link_up(now_ns, event):
                    self._take_link(event)
            else:
                assert isinstance(event, LinkDown)
                self._end_link(now_ns, event)
        if len(self._holding):
            self._let_go(now_ns)
        self._send_off()  # A client that waits for a commit must not wait for requests that come now.
        for _ in range(min(len(self._intake), REQUESTS_PER_STEP)):
            next_one = self._intake.take(now_ns)
            assert next_one is not None
            self._step_core(next_one)
        self._end_turn(now_ns)
        self._send_off()
        raft = self.log.raft
        for found in self.members.step(now_ns, raft.log.configuration, raft.commit_index):
            self._step_core(found)
        if self._filling.is_due(now_ns):
            self._filling.look(now_ns, self.core.fullness())
        if self._standing.is_due(now_ns):
            self._standing.look(now_ns, self._durable_sequence, self.store.why_waiting())
        if self._installing.is_under_way:
            self._install(now_ns)
        elif self.failure is None:
            self._snapshotting.step(self.core, now_ns, self._backing_up.wanted_index)
            if self._backing_up.is_asked:
                not_leader = None if self.log.term else self.log.not_leader
                self._answer(self._backing_up.step(self._snapshotting.failure, raft.is_confirmed, not_leader))
            if self._snapshotting.damage:
                self._step_core(StateDamaged(now_ns, self._snapshotting.damage))
        self._send_off()

    def listen(self, endpoint: str) -> list[str]:
        """Listen there from now on for other processes; returns where. They get no endpoint inside this process.

        Raises UsageError: it cannot be bound; nothing was changed.
        """
        self.endpoints = [self.transport.listen(endpoint)]
        self._governing.listens_at(self.endpoints)
        logger.info(
            "metadata member %s is reached at %s", self.store.identity.name, ", ".join(self.endpoints)
        )
        return self.endpoints

    @property
    def is_known(self) -> bool:
        """Whether the leader knows of this member, and where it listens.

        Its own configuration may never have been committed: a leader sends the entry that lets a learner in before its
            own disk has it, and may lose it. So a learner is known only as long as it receives a leader's messages; a
            voter stands for election instead.
        """
        raft = self.log.raft
        configuration, own = raft.configuration, raft.member
        if own not in configuration.members or configuration.endpoints_of(own) != tuple(self.endpoints):
            return False
        return configuration.is_voter(own) or raft.hears_leader

    def has_news(self) -> bool:
        return self.transport.has_events()

    def deadline_ns(self) -> int | None:
        if len(self._intake):
            self._due_ns = None
            return 0  # At once.
        if len(self._holding) and (self.log.term or not self.log.raft.awaits_leader(self._now_ns)):
            self._due_ns = None
            return 0
        due_ns = self._core_due_ns()
        for deadline in (
            self._holding.due_ns() if len(self._holding) else None,
            self.transport.deadline_ns(),
            self._snapshotting.deadline_ns(),
            self._installing.deadline_ns() if self.failure is None else None,
            self.members.deadline_ns(),
            None if self.log.raft.is_alone else self._measuring.probe_ns,
        ):
            if deadline is not None and (due_ns is None or deadline < due_ns):
                due_ns = deadline
        self._due_ns = due_ns
        return due_ns

    def _core_due_ns(self) -> int | None:
        """The core's deadline: it moves in its steps only."""
        if not self._knows_core_due:
            self._core_due, self._knows_core_due = self.core.deadline_ns, True
        return self._core_due

    def filenos(self) -> list[int]:
        return [*self.transport.filenos(), *self.store.filenos()]

    def close(self, failure: BaseException | None = None) -> None:
        """Serve no more and make everything durable; sessions live on for the next start."""
        self.transport.close()
        self.members.close()
        self.store.close()
        logger.info("metadata member stops at revision %d", self.core.catalog.revision)

    def _take_link(self, event: LinkUp) -> None:
        token = event.peer.cluster_token
        if token and token != self.store.identity.cluster_token:
            self.transport.drop(event.link, "it belongs to another cluster")  # P10.3
            return
        self._links[event.link] = None
        if self.failure is not None:
            self.transport.drop(event.link, "this metadata member has failed")

    def _end_link(self, now_ns: int, event: LinkDown) -> None:
        lost = self.members.on_link_down(now_ns, event)
        if lost is not None:
            self._step_core(lost)
        self._links.pop(event.link, None)
        self._holding.end_link(event.link)
        self._gathering.pop(event.link, None)
        self._gathered.pop(event.link, None)
        self._governing.end_link(event.link)
        self._backing_up.end_link(event.link)
        self._intake.end_link(LinkLost(now_ns, event.link))

    def _end_turn(self, now_ns: int) -> None:
        """Handle what is due by time, then log what was proposed in this turn."""
        deadline = self._core_due_ns()
        if deadline is not None and now_ns >= deadline:
            self._step_core(Tick(now_ns))
        is_due = now_ns >= self._measuring.timing_ns and self.failure is None
        if is_due and not self.log.raft.is_alone:  # One that is alone has no electors.
            timing = self._measuring.timing(now_ns)
            if timing is not None:
                self._step_core(TimingMeasured(now_ns, timing, self._unix_ms()))
        begun = self._governing.begin_level(now_ns, self.log.raft)
        if begun is not None and self.failure is None:
            self._step_core(begun)
        if self.log.has_gathered:
            self._step_core(TurnEnded(now_ns))

    def _take_body(self, now_ns: int, event: Received) -> None:
        is_clients = event.link in self._links
        if not is_clients and not self.members.hears(event.link):
            return  # Dropped; this was on its way.
        try:
            message = decode_message(event.body)
            control, what = message.control, type(message.control).__name__
            if message.frames:
                raise PeerError(f"a {what} with frames is not for a metadata member")
            if not is_clients and self.members.takes(control):
                self._take_members(now_ns, event.link, control)
                return
            if not is_clients or not isinstance(control, MetadataRequest | MetadataRequests):
                raise PeerError(f"a {what} is not for {'a' if is_clients else 'another'} metadata member")
        except PeerError as broken:
            logger.warning("metadata member drops a link: %s", broken)
            self._drop(event.link, str(broken))
            return
        if isinstance(control, MetadataRequest):
            self._take_request(now_ns, event.link, control)
            return
        self.gathered_taken += len(control.requests) > 1
        for request in control.requests:
            if event.link in self._links:  # One before may have ended it.
                self._take_request(now_ns, event.link, request)

    def _take_request(self, now_ns: int, link: int, request: MetadataRequest) -> None:
        operation = request.operation
        if isinstance(operation, KeepAlive | OpenSession) and operation.gathers:
            self._gathering[link] = None
        if isinstance(operation, Governance):
            self._govern(now_ns, link, request)
            return
        asked = RequestReceived(now_ns, link, request)
        if not (self._is_to_be_held(asked) and self._holding.put(asked)):
            self._take_in(asked)

    def _is_to_be_held(self, asked: RequestReceived) -> bool:
        """Whether a request is to be held: a leader is expected soon, or something of this link waits for one. Streams
        that may lag need none."""
        if asked.request.session == 0 and isinstance(asked.request.operation, STREAMED):
            return False
        is_awaited = not self.log.term and self.log.raft.awaits_leader(asked.now_ns)
        return self.failure is None and (is_awaited or asked.link in self._holding)

    def _let_go(self, now_ns: int) -> None:
        """Settle requests that waited for a leader: run them here, send them to the leader, or answer that there is
        none."""
        is_over = bool(self.log.term) or not self.log.raft.awaits_leader(now_ns)
        for requests in self._holding.take(now_ns, is_over=is_over):
            if not self.log.term:
                del requests[1:]  # Its client goes behind the first answer.
            for asked in requests:
                self._take_in(RequestReceived(now_ns, asked.link, asked.request))

    def _take_in(self, asked: RequestReceived) -> None:
        request = asked.request
        if isinstance(request.operation, KeepAlive):
            self._step_core(asked)
            return
        refusal = self._intake.put(asked)
        if refusal is not None:
            self._reply(asked.link, MetadataReply(request.session, request.sequence, refusal))

    def _measured(self) -> Measured:
        fetching = self.members.fetching
        return self._measuring.measured(
            self.store.snapshot_bytes, fetching.patience if fetching is not None else None
        )

    def _take_members(self, now_ns: int, link: int, control: object) -> None:
        received = self.members.on_control(now_ns, link, control)
        if received is not None:
            self._measuring.heard(now_ns, received.message.body)
            self._step_core(received)

    def _govern(self, now_ns: int, link: int, request: MetadataRequest) -> None:
        if isinstance(request.operation, Backup):
            self._answer([self._backing_up.ask(now_ns, link, request, self.core.promised_index)])
            return
        change, reply = self._governing.ask(now_ns, link, request, self.log.raft, self.log.not_leader)
        if change is not None and self.failure is None:
            self._step_core(change)
        self._answer([reply])

    def _answer(self, replies: Sequence[Reply | None]) -> None:
        for each in replies:
            if each is not None:
                self._reply(each.link, each.reply)

    def _reply(self, link: int, reply: MetadataReply) -> None:
        if link in self._gathering:
            self._gathered.setdefault(link, []).append(reply)
        else:
            self._send(link, encode_message(reply.sequence, reply))

    def _send_off(self) -> None:
        """Let go what was queued since the last time: records first, then answers."""
        if self._has_queued:
            self._kick()
        if self._gathered:
            self._send_gathered()

    def _send_gathered(self) -> None:
        """Send the answers since the last time, in one message to each client."""
        while self._gathered:
            link, replies = self._gathered.popitem()
            for pieces in encode_replies(replies):
                self._send(link, pieces)

    def _tell_store(self, now_ns: int) -> None:
        sequence = self.store.durable()
        if sequence > self._durable_sequence:
            self._durable_sequence = sequence
            self._measuring.durable(now_ns, sequence)
            self._step_core(Durable(now_ns, sequence))
        if self._has_doubt and not self.log.raft.has_doubt:
            self._has_doubt = False
            self.store.end_doubt()
        saved = self.store.saved()
        if saved is not None:
            log = self.log.raft.log
            log.retain(advise([self._measured()], log.retained_bytes_max).log_kept_bytes)
            self._step_core(SnapshotSaved(now_ns, *saved))
        reason = self.store.failed()
        if reason is not None and self.failure is None:
            self._step_core(JournalFailed(now_ns, reason))

    def _step_core(self, event: MemberEvent) -> None:
        self._knows_core_due = False
        effects = self.core.step(event)
        if self.on_step is not None:
            self.on_step(self.core, event, effects)
        for effect in effects:
            match effect:
                case Persist():
                    self._persist(effect, event.now_ns)
                case raft_vocabulary.Send(message):
                    self._measuring.sent(event.now_ns, message.body)
                    self.members.send(message)
                case Reply(link, reply):
                    self._reply(link, reply)
                case SendEvents(link, events):
                    if link in self._gathered:
                        self._send_gathered()  # Nothing overtakes an answer.
                    self._send(link, encode_message(0, events))
                case Remark(text):
                    logger.info("metadata %s", text)
                case DropLinks(reason):
                    self._drop_all(reason)
                case Halted(reason):
                    self._fail(StorageError(reason))
                case ChangeEnded():
                    self._answer([self._governing.hear(effect)])
                case LeaderChanged() | NoticeDamaged() | NoticeRetired():
                    self._tell_people(effect)
                case InstallSnapshot():
                    self._begin_install(effect, event.now_ns)
                case FetchSnapshot():
                    self.members.fetch(event.now_ns, effect)

    def _tell_people(self, effect: LeaderChanged | NoticeDamaged | NoticeRetired) -> None:
        own = self.store.identity.name
        match effect:
            case LeaderChanged(term, leader):
                self._measuring.lost_leadership()
                if not self.log.term:
                    self._answer(self._governing.lose(self.log.not_leader))
                if leader is not None:
                    logger.info("metadata member %s leads in term %d, as %s knows", leader.name, term, own)
            case NoticeDamaged(member, known, told):
                logger.error(
                    "metadata member %s has entry %d of the log, and had acknowledged %d: its disk lost something",
                    member.name,
                    told,
                    known,
                )
            case NoticeRetired(by):
                logger.warning(
                    "metadata member %s was taken out, says %s: stop it; its directory is needed no more",
                    own,
                    by.name,
                )

    def _begin_install(self, wanted: InstallSnapshot, now_ns: int) -> None:
        self._snapshotting.let_go(self.core)
        try:
            self._installing.begin(wanted)
            self._measuring.load_began(now_ns)
        except StorageError as failed:
            self._step_core(JournalFailed(now_ns, str(failed)))

    def _install(self, now_ns: int) -> None:
        if self.failure is not None:
            return
        try:
            replaced = self._installing.step(now_ns)
        except StorageError as failed:
            self._step_core(JournalFailed(now_ns, str(failed)))
            return
        if replaced is not None:
            self._measuring.loaded(now_ns, self.store.snapshot_bytes)
            self._step_core(replaced)

    def _persist(self, record: Persist, now_ns: int) -> None:
        if self.failure is not None:
            return
        try:
            self.store.persist(record, kick=False)
            self._has_queued = True
            keep, log = record.keep_index, self.log.raft.log
            size = log.bytes_between(keep + 1, keep + len(record.entries))
            self._measuring.persist(now_ns, record.sequence, size)
        except StorageError as failed:
            # The log has a gap: this member cannot go on (P7.6).
            self._step_core(JournalFailed(now_ns, str(failed)))

    def _kick(self) -> None:
        """Wake the thread that writes the log, once for all that was queued, and behind the messages that need not wait
        for it: others begin to write while this one does."""
        self._has_queued = False
        with contextlib.suppress(StorageError):  # It failed: the next turn finds out.
            self.store.kick()

    def _send(self, link: int, pieces: Sequence[bytes | memoryview]) -> None:
        if link in self._links and not self.transport.send(link, pieces):
            self._drop(link, "its queue is full")  # Nothing is lost: its client asks again over another link.

    def _drop(self, link: int, reason: str) -> None:
        self._links.pop(link, None)
        self._gathering.pop(link, None)
        self._gathered.pop(link, None)
        self.members.drop(link, reason)

    def _fail(self, failure: StorageError) -> None:
        logger.critical("metadata member stops serving: %s", failure)
        self.failure = failure
        self._drop_all("this metadata member has failed")
        self.members.end("this metadata member has failed")
        self.on_failed()

    def _drop_all(self, reason: str) -> None:
        self._send_gathered()
        for link in list(self._links):
            self._drop(link, reason)
