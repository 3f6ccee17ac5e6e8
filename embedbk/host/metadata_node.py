"""A metadata member in its place: carries out what its core asks for on transport and store.

Decides nothing of the protocol. Effects are carried out in list order, and what became durable is told to the core
before anything else of the turn, so that no answer can leave early. Keep-alives are answered as they are read; other
requests are run in turns of the links, a slice in each turn of the loop (`metadata.intake`). A slice of a snapshot is
cut between two steps (snapshotting.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence

from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import GENERATION_BITS, KeepAlive, MetadataReply, MetadataRequest
from embedbk.errors import EmbedbkError, PeerError, StorageError
from embedbk.host.snapshotting import Snapshotting
from embedbk.metadata.command_log import FIRST_TERM, SoloLog
from embedbk.metadata.intake import Intake
from embedbk.metadata.member import Member, MemberEffect, MemberEvent
from embedbk.metadata.raft_vocabulary import Entry, Persist
from embedbk.metadata.vocabulary import (
    Halted,
    JournalAppend,
    JournalDurable,
    JournalFailed,
    LinkLost,
    MemberStarted,
    Reply,
    RequestReceived,
    SendEvents,
    Tick,
)
from embedbk.ports import LinkDown, LinkUp, Received, Transport
from embedbk.storage.metadata_store import MetadataStore

__all__ = ["MetadataNode"]

logger = logging.getLogger(__name__)

REQUESTS_PER_STEP = 64  # Run in one turn of the loop: some milliseconds.


class MetadataNode:
    """A quorum of one: core, log, and the links of its clients."""

    def __init__(
        self,
        store: MetadataStore,
        transport: Transport,
        listen: Sequence[str],
        *,
        now_ns: int,
        chance: random.Random | None = None,
        requests_waiting_max: int | None = None,
    ) -> None:
        """listen: endpoints to bind; what was bound stands in `endpoints`. chance: the system's own unless given, so
        that nobody guesses another's session. requests_waiting_max: read and not run; more are put off."""
        self.store = store
        self.transport = transport
        self.endpoints = [transport.listen(endpoint) for endpoint in listen]
        self.core = Member(
            store.catalog,
            log=SoloLog(store.index),
            now_ns=now_ns,
            cluster_token=store.identity.cluster_token,
            chance=chance or random.SystemRandom(),
        )
        self.failure: EmbedbkError | None = None  # Why this member must not serve: shown to whoever runs it.
        self._durable_index = store.index
        self._links: dict[int, None] = {}
        self._intake = Intake(requests_waiting_max)
        self._snapshotting = Snapshotting(store)
        # Told of each step of the core, before its effects are carried out (testing).
        self.on_step: Callable[[Member, MemberEvent, list[MemberEffect]], None] | None = None
        self._step_core(MemberStarted(now_ns, store.begins_generation))
        logger.info(
            "metadata member serves at %s: revision %d, %d sessions, record %d of its log",
            ", ".join(self.endpoints),
            self.core.catalog.revision,
            len(self.core.catalog.sessions),
            store.index,
        )
        if store.begins_generation:
            generation = (self.core.catalog.revision >> GENERATION_BITS) + 1  # When its command is durable.
            logger.warning("metadata begins generation %d, by its owner's word", generation)

    def step(self, now_ns: int) -> None:
        self._tell_durable(now_ns)
        for event in self.transport.receive(now_ns):
            if isinstance(event, Received):
                self._take_body(now_ns, event)
            elif isinstance(event, LinkUp):
                self._take_link(event)
            else:
                assert isinstance(event, LinkDown)
                self._links.pop(event.link, None)
                self._intake.end_link(LinkLost(now_ns, event.link))
        for _ in range(REQUESTS_PER_STEP):
            next_one = self._intake.take(now_ns)
            if next_one is None:
                break
            self._step_core(next_one)
        deadline = self.core.deadline_ns
        if deadline is not None and now_ns >= deadline:
            self._step_core(Tick(now_ns))
        if self.failure is None:
            self._snapshotting.step(self.core, now_ns)

    def has_news(self) -> bool:
        return self.transport.has_events()

    def deadline_ns(self) -> int | None:
        if len(self._intake):
            return 0  # At once.
        deadlines = [self.core.deadline_ns, self.transport.deadline_ns(), self._snapshotting.deadline_ns()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def filenos(self) -> list[int]:
        return [*self.transport.filenos(), *self.store.filenos()]

    def close(self, failure: BaseException | None = None) -> None:
        """Serve no more and make everything durable; sessions live on for the next start."""
        self.transport.close()
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

    def _take_body(self, now_ns: int, event: Received) -> None:
        if event.link not in self._links:
            return  # Dropped; this was on its way.
        try:
            message = decode_message(event.body)
            if not isinstance(message.control, MetadataRequest) or message.frames:
                raise PeerError(f"a {type(message.control).__name__} is not for a metadata member")
        except PeerError as broken:
            logger.warning("metadata member drops a link: %s", broken)
            self._drop(event.link, str(broken))
            return
        request = message.control
        received = RequestReceived(now_ns, event.link, request)
        if isinstance(request.operation, KeepAlive):
            self._step_core(received)
            return
        refusal = self._intake.put(received)
        if refusal is not None:
            reply = MetadataReply(request.session, request.sequence, refusal)
            self._send(event.link, encode_message(reply.sequence, reply))

    def _tell_durable(self, now_ns: int) -> None:
        durable_index = self.store.durable()
        if durable_index > self._durable_index:
            self._durable_index = durable_index
            self._step_core(JournalDurable(now_ns, durable_index))
        reason = self.store.failed()
        if reason is not None and self.failure is None:
            self._step_core(JournalFailed(now_ns, reason))

    def _step_core(self, event: MemberEvent) -> None:
        effects = self.core.step(event)
        if self.on_step is not None:
            self.on_step(self.core, event, effects)
        for effect in effects:
            match effect:
                case JournalAppend(index, body, said):
                    self._append(index, body, event.now_ns)
                    if said:
                        logger.info("metadata %s", said)
                case Reply(link, reply):
                    self._send(link, encode_message(reply.sequence, reply))
                case SendEvents(link, events):
                    self._send(link, encode_message(0, events))
                case Halted(reason):
                    self._fail(StorageError(reason))

    def _append(self, index: int, body: bytes, now_ns: int) -> None:
        if self.failure is not None:
            return
        try:
            entry = Entry(index, FIRST_TERM, body)
            self.store.persist(Persist(index, FIRST_TERM, None, index - 1, (entry,)))
        except StorageError as failed:
            # The log has a gap: this member cannot go on (P7.6).
            self._step_core(JournalFailed(now_ns, str(failed)))

    def _send(self, link: int, pieces: Sequence[bytes | memoryview]) -> None:
        if link in self._links and not self.transport.send(link, pieces):
            self._drop(link, "its queue is full")  # Nothing is lost: its client asks again over another link.

    def _drop(self, link: int, reason: str) -> None:
        self._links.pop(link, None)
        self.transport.drop(link, reason)

    def _fail(self, failure: StorageError) -> None:
        logger.critical("metadata member stops serving: %s", failure)
        self.failure = failure
        for link in list(self._links):
            self._drop(link, "this metadata member has failed")
