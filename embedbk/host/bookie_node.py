"""A bookie in its place: carries out what its core asks for on transport and storage, and keeps it registered.

Decides nothing of the protocol, but what is done in a turn and which requests are taken in it. Leaves to others: the
order in which the core is stepped and its effects are carried out (stepping.py), and each thing beside it that a bookie
does to its module.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import ExplicitLacs, is_answered
from embedbk.codec.messages import Control, decode_message, encode_message, split_bundle
from embedbk.codec.metadata_messages import MetadataReply, MetadataRequest, Operation
from embedbk.codec.quorum_messages import AskHeld, AskMet, HeldTold, MetTold
from embedbk.config import READ_ROOM_BYTES
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import (
    CountEntries,
    DropEntries,
    JournalAppend,
    JournalFailed,
    LinkLost,
    NumberBlocks,
    OlderMetadata,
    ReadDecisions,
    ReadEntries,
    Reply,
    RequestReceived,
    StoreFrame,
    TellKeepers,
    TellLogs,
)
from embedbk.core.collector import CollectorOptions
from embedbk.core.compactor import CompactorOptions
from embedbk.core.machine import Effect, earliest
from embedbk.core.space import SpaceOptions
from embedbk.core.upkeep_words import AskMetadata
from embedbk.core.vocabulary import Tick
from embedbk.errors import EmbedbkError, PeerError, StorageError, UsageError, ensure
from embedbk.host.client_links import ClientLinks
from embedbk.host.collecting import Collecting
from embedbk.host.compacting import Compacting
from embedbk.host.deciding import Deciding
from embedbk.host.limbo import LimboAsking
from embedbk.host.looking_up import LookingUp
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.reading import WaitingReads
from embedbk.host.rebuild_pace import RebuildPace
from embedbk.host.registering import Registering
from embedbk.host.rival import Rival
from embedbk.host.scrub_pace import ScrubPace
from embedbk.host.spacing import Spacing
from embedbk.host.stepping import OnStep, Stepping
from embedbk.host.telling import held_told, keepers_told, logs_told
from embedbk.host.unread import Unread
from embedbk.host.waiting import WAITING_BYTES_MAX, WaitingRequests
from embedbk.host.witnessing import Witnessing
from embedbk.metadata.client import Client
from embedbk.metadata.levels import LEVEL_FIRST
from embedbk.ports.add_path import AddPath, WaitTerms
from embedbk.ports.adds import Near
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.links import LinkDown, LinkUp, Received
from embedbk.ports.transport import Transport

__all__ = ["BookieNode"]

logger = logging.getLogger(__name__)

# Unanswered; a peer that asks for more loses its link, and the bookie no memory.
REQUESTS_PER_LINK_MAX = 1 << 17
USUAL_COLLECTION = CollectorOptions()
DUTIES_NS = 5_000_000  # Work beside adds is not late by more than this.
# The same for a wait in C, which every duty but one (does the journal have room for its next file?) ends by itself.
WAIT_DUTIES_NS = 20_000_000
USUAL_COMPACTION = CompactorOptions()
USUAL_SPACE = SpaceOptions()


class BookieNode:
    """One bookie: core, storage, links of its clients, and its registration with the metadata quorum."""

    def __init__(
        self,
        bookie_id: str,
        storage: DurableBookie,
        transport: Transport,
        listen: Sequence[str],
        metadata_endpoints: Sequence[str],
        client: Client,
        *,
        free_bytes: Callable[[], int] | None = None,
        location: str = "",
        scrub: ScrubPace | None = None,
        rebuild: RebuildPace | None = None,
        collector: CollectorOptions = USUAL_COLLECTION,
        compactor: CompactorOptions = USUAL_COMPACTION,
        space: SpaceOptions = USUAL_SPACE,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        """listen: endpoints to bind; what was bound stands in `endpoints`, and in the registration. scrub: how fast
        what is stored is read for rot; None reads nothing. rebuild: how fast lost indexes are made again; None: as
        usual. waiting_bytes_max: of adds that wait for room."""
        self.bookie_id = bookie_id
        self.storage = storage
        self.transport = transport
        self.endpoints = [transport.listen(endpoint) for endpoint in listen]
        self.core = Bookie(
            storage.incarnation,
            storage.table,
            storage.next_token(),
            may_have_lost=storage.may_have_lost,
            is_settled=False,
            parked=None if storage.add_path is None else storage.add_path.parked,
        )
        self.clients = ClientLinks(bookie_id, transport)
        reads = WaitingReads(transport)
        self.looking_up = LookingUp(bookie_id, storage, reads, self._fail)
        self.steps = Stepping(
            self.core,
            storage,
            self.clients,
            reads,
            self._carry_out,
            self.looking_up.make_next,
        )
        self.metadata = MetadataLink(
            transport,
            metadata_endpoints,
            client,
            on_session=self._on_session,
            on_refused=self._on_refused,
        )
        unread = Unread(f"bookie {bookie_id}")
        self.spacing = Spacing(bookie_id, space, storage, free_bytes, self.steps.step)
        self.witnessing = Witnessing(
            bookie_id,
            storage,
            self.metadata,
            on_judged=lambda now_ns: self.registering.register(now_ns),
            on_doubt=self.spacing.set_doubted,
            on_older=lambda now_ns, is_older: self.steps.step(OlderMetadata(now_ns, is_older)),
        )
        self.limbo = LimboAsking(
            bookie_id,
            storage,
            self.core,
            self.metadata,
            self.steps.step,
            self._on_failure,
            unread,
            self.witnessing.ask,
        )
        self.deciding = Deciding(self.metadata, self.steps.step, unread)
        self.collecting = Collecting(
            bookie_id,
            collector,
            storage.table,
            self.metadata,
            self.witnessing,
            self.steps.step,
            self._may_collect,
            unread,
        )
        self.compacting = Compacting(bookie_id, compactor, storage)
        self.rival = Rival(transport, bookie_id, storage.incarnation, storage.starts.id)
        self.registering = Registering(
            bookie_id,
            self.endpoints,
            location,
            storage,
            self.core,
            self.metadata,
            self.limbo,
            self.rival,
            self.spacing.free_now,
            self.spacing.why,
            lambda: self.rebuild.dark_count,
            self.witnessing,
            self.steps.step,
            on_foreign=self._on_foreign,
        )
        self.failure: EmbedbkError | None = None  # Why this bookie must not serve: shown to its operator.
        self.on_failed: Callable[[], None] = lambda: None  # Called when that is known.
        self.is_leaving = False  # It stops: no add is taken any more.
        self._was_registered = False  # As it was logged last.
        # The storage was told that the cluster has this level.
        self._level = LEVEL_FIRST
        self.scrub = scrub or ScrubPace(bookie_id, storage, 0)
        self.rebuild = rebuild or RebuildPace(bookie_id, storage)
        self.waiting = WaitingRequests(self.has_room, waiting_bytes_max)
        self._is_late = False  # The last turn was one of nothing but adds, which did nothing else.
        # How writers of the same loop reach the add path, if there are any: shown after each step what is taken.
        self.near: Near | None = None
        self.is_near_watched = False  # A watcher of the core also sees adds that come this way.

    @property
    def on_step(self) -> OnStep | None:
        """As `Stepping.on_step`, which each kind of node has."""
        return self.steps.on_step

    @on_step.setter
    def on_step(self, told: OnStep | None) -> None:
        self.steps.on_step = told

    @property
    def is_registered(self) -> bool:
        """Whether clients find it: its key was put under the session that lives now."""
        return self.registering.is_done

    def listen(self, now_ns: int, endpoint: str) -> None:
        """Listen there, too, for other processes, which find it so from now on.

        Raises UsageError: it cannot be bound; nothing was changed.
        """
        self.endpoints = [self.transport.listen(endpoint), *self.endpoints]
        self.registering.listens_at(now_ns, self.endpoints)

    def step(self, now_ns: int) -> None:
        has_told = self._tell_durable(now_ns)
        if self.waiting:
            self._take_waiting(now_ns)
        path = self._offered()
        if self.storage.add_path is not None:
            self.storage.add_path.begin(now_ns, takes_polls=path is not None)
        self.transport.offer(path)
        taken = path.taken() if path is not None else 0
        events = self.transport.receive(now_ns)
        self._tell_readers()
        if (
            not events
            and path is not None
            and now_ns < self.steps.due_ns
            and (has_told or path.taken() != taken)
        ):
            # Nothing but adds, which are nearly everything: all else of a turn waits a little.
            self._is_late = True
            self._end_turn(now_ns)
            return
        for event in events:
            if isinstance(event, Received):
                self._take_body(now_ns, event)
            elif isinstance(event, LinkUp):
                self._on_link_up(now_ns, event)
            else:
                self._on_link_down(now_ns, event)
        self._go_on_reading(now_ns)
        self.metadata.tick(now_ns)
        if self.metadata.client.cluster_level > self._level:
            self._level = self.metadata.client.cluster_level
            self.storage.note_level(self._level)
        self.witnessing.step(now_ns)
        self.registering.step(now_ns)
        self.limbo.step(now_ns)
        self.collecting.step(now_ns)
        if self.failure is None:
            self.spacing.step(now_ns)
        deadline = self.core.deadline_ns
        if deadline is not None and now_ns >= deadline:
            self.steps.step(Tick(now_ns))
        self._end_turn(now_ns)
        if self.failure is None:
            self.compacting.step(now_ns)
        self.scrub.step(now_ns)
        self.rebuild.step(now_ns)
        self._say_registered()
        self._is_late = False
        due_ns = earliest(self._duty_ns(), now_ns + DUTIES_NS)
        assert due_ns is not None
        self.steps.rest_until(due_ns)

    def _end_turn(self, now_ns: int) -> None:
        self.storage.kick()
        if self.failure is None:
            self._flush(now_ns)
        if self.waiting:
            self._take_waiting(now_ns)
            self.storage.kick()
        if self.near is not None:
            is_open = self.steps.on_step is None or self.is_near_watched
            path = self._path_now() if is_open and not self.waiting else None
            self.near.show(is_open=path is not None, is_told=self.core.awaits_journal)

    def _say_registered(self) -> None:
        if self.is_registered != self._was_registered:
            self._was_registered = self.is_registered
            what = "is registered" if self.is_registered else "is not registered any more"
            how = "writable" if self.core.is_writable else "read-only"
            logger.info("bookie %s %s at %s, %s", self.bookie_id, what, ", ".join(self.endpoints), how)

    def _may_collect(self) -> bool:
        return self.is_registered and self.core.is_serving and self.failure is None

    def _on_session(self, now_ns: int, _cluster_token: bytes) -> None:
        self.witnessing.begin(now_ns)

    def _on_failure(self, failure: EmbedbkError) -> None:
        self.failure = failure
        self.on_failed()

    def has_news(self) -> bool:
        return self.transport.has_events()

    def deadline_ns(self) -> int | None:
        return earliest(self.transport.deadline_ns(), self.steps.due_ns if self._is_late else self._duty_ns())

    def _duty_ns(self) -> int | None:
        """When something is due that no message causes."""
        return earliest(
            self.core.deadline_ns,
            self.metadata.deadline_ns(),
            self.witnessing.deadline_ns(),
            self.registering.deadline_ns,
            self.limbo.deadline_ns,
            self.looking_up.deadline_ns,
            self.scrub.deadline_ns,
            self.rebuild.deadline_ns,
            self.collecting.deadline_ns(),
            self.compacting.deadline_ns() if self.failure is None else None,
            self.spacing.deadline_ns() if self.failure is None else None,
        )

    def wait(self, filenos: Sequence[int], until_ns: int) -> Sequence[int] | None:
        """As `host.loop.Waiter`: C takes the turns that `step` would cut short (native/SHORTCUTS.md, "The wait")."""
        path = self._offered()
        bytes_max = self.storage.quiet_bytes() if path is not None and self.failure is None else 0
        if path is None or not bytes_max:
            return None
        terms = WaitTerms(
            path, filenos, until_ns, WAIT_DUTIES_NS, self.steps.durable, self.core.awaits_journal, bytes_max
        )
        end = self.transport.wait(terms)
        if end is None:
            return None
        if end.unsent is not None:
            link, body = end.unsent
            self._tell_taken(until_ns, itertools.chain([(link, 1, body)], path.due()))
        return end.ready

    def filenos(self) -> list[int]:
        return [*self.transport.filenos(), *self.storage.filenos()]

    def leave(self, now_ns: int) -> None:
        """Take no more adds, make everything durable, and report the last durable token to the metadata (P7.9)."""
        if self.failure is None and not self.is_leaving:
            self.is_leaving = True
            with contextlib.suppress(StorageError):  # Then it reports nothing more than it reported before.
                self.storage.sync()
            self.registering.leave(now_ns)

    def has_left(self, now_ns: int) -> bool:
        return not self.is_leaving or self.failure is not None or self.registering.has_left(now_ns)

    def close(self, failure: BaseException | None = None) -> None:
        """Make everything durable and close it. A bookie that calls `leave` first also reports its last token to the
        metadata."""
        if self.failure is None:
            with contextlib.suppress(StorageError):
                self.storage.sync()
        self.metadata.end("the bookie was closed")
        self.transport.close()
        if self.near is not None:
            self.near.leave()
        self.storage.close()
        logger.info("bookie %s stops", self.bookie_id)

    # Links.

    def _on_link_up(self, now_ns: int, event: LinkUp) -> None:
        if event.link == self.metadata.link:
            self.metadata.on_link_up(now_ns, event.link, event.peer)
            self.witnessing.look(now_ns)
        elif self.rival.is_asking_over(event.link):
            self.rival.on_link_up(now_ns, event.link, event.peer)
        elif self.registering.is_foreign:
            self.transport.drop(event.link, str(self.failure))
        else:
            self.clients.begin(event.link)

    def _on_link_down(self, now_ns: int, event: LinkDown) -> None:
        if event.link == self.metadata.link:
            self.metadata.on_link_down(now_ns, event.link, event.reason)
            return
        if self.rival.is_asking_over(event.link):
            self.rival.on_link_down(now_ns, event.link)
            return
        self.clients.lose(event.link)
        self.steps.step(LinkLost(now_ns, event.link))
        for ended in self.looking_up.end_link(now_ns, event.link):
            self.steps.step(ended)

    def _drop(self, link: int, reason: str) -> None:
        """End the link of a client or to the metadata quorum, whose peer said something wrong."""
        if link == self.metadata.link:
            self.transport.drop(link, reason)
        else:
            self.clients.drop(link, reason)

    def _take_body(self, now_ns: int, event: Received) -> None:
        try:
            parts = split_bundle(event.body)
        except PeerError as broken:
            self._drop(event.link, str(broken))
            return
        for part in parts:
            self._take_message(now_ns, event if part is event.body else Received(event.link, part))

    def _take_message(self, now_ns: int, event: Received) -> None:
        """Take a request now, or queue it for its turn, or answer BUSY."""
        if event.link not in self.clients.unanswered or self.waiting.may_pass(event):
            self._take_now(now_ns, event)
        elif not self.waiting.keep(event):
            self._take_now(now_ns, event, is_beyond_room=True)

    def has_room(self, is_urgent: bool) -> bool:
        """Whether a put has room. Without room it would wait for a flush or a commit, and all nodes of this loop with
        it (RP34)."""
        return self.failure is not None or self.storage.has_room(is_urgent=is_urgent)

    def _take_waiting(self, now_ns: int) -> None:
        for event in self.waiting.due():
            if event.link in self.clients.unanswered:
                self._take_now(now_ns, event)

    def _take_now(self, now_ns: int, event: Received, *, is_beyond_room: bool = False) -> None:
        link = event.link
        if not is_beyond_room and self._is_taken(now_ns, event):
            return
        requests: Sequence[Control] = ()
        try:
            message = decode_message(event.body)
            control = message.control
            requests = control.unpack() if isinstance(control, ExplicitLacs) else (control,)
        except PeerError as broken:
            self._drop(link, str(broken))
            return
        unanswered = self.clients.unanswered.get(link)
        if unanswered is None:
            if link == self.metadata.link:
                self.metadata.on_message(now_ns, link, message)
            return  # Else of a link that was dropped here.
        if isinstance(control, MetadataRequest) and (told := self._told(control.operation)) is not None:
            self.clients.send(
                link, encode_message(control.sequence, MetadataReply(0, control.sequence, told))
            )
            return
        # Alive, and nothing is stored any more: asked again, it has gone.
        is_beyond_room = is_beyond_room or (
            self.is_leaving and type(control) is AddRequest and not control.recovery
        )
        if unanswered >= REQUESTS_PER_LINK_MAX:
            self._drop(link, f"{unanswered} requests are unanswered; no more are taken")
            return
        if is_beyond_room and not is_answered(control):
            # LACs, which promise nothing: in memory they cost no record, and readers here see them.
            requests = [replace(request, is_hint=True) for request in requests]
        elif is_beyond_room and not isinstance(control, AddRequest):
            # Its protocol has no answer for busy.
            self._drop(link, "too much waits here for the journal; no more is kept")
            return
        if is_answered(control):
            self.clients.note_asked(link)
        for request in requests:
            self.steps.step(
                RequestReceived(now_ns, link, message.request_id, request, message.frames, is_beyond_room)
            )

    def _told(self, operation: Operation) -> MetTold | HeldTold | None:
        """The answer to an operator's question; None: the question is for members only."""
        if isinstance(operation, AskMet):
            return self.witnessing.told()
        if isinstance(operation, AskHeld):
            return held_told(self.bookie_id, self.storage.table, operation)
        return None

    # The add path.

    def _path_now(self) -> AddPath | None:
        """The add path, while the rows alone decide on normal adds of known ledgers."""
        core = self.core
        is_open = (
            core.is_writable and core.is_serving and not core.is_waiting and core.replies.failure is None
        )
        is_open = is_open and not self.is_leaving
        return self.storage.add_path if is_open else None

    def _offered(self) -> AddPath | None:
        """The add path to which the transport offers bodies. A watcher of the core must see each of them, so then they
        come here."""
        return self._path_now() if self.steps.on_step is None and not self.waiting else None

    def _is_taken(self, now_ns: int, event: Received) -> bool:
        """Whether C took this as a common add, stored and queued. C answers when it is durable."""
        path = self._path_now()
        if path is None or event.link not in self.clients.unanswered or not path.take(event.link, event.body):
            return False
        if self.steps.on_step is not None:
            self.steps.show_taken(now_ns, event.link, event.body)
        self._tell_readers()  # Before anything behind it in this turn, which may end its link.
        return True

    def _tell_taken(self, now_ns: int, answers: Iterator[tuple[int, int, bytes]]) -> None:
        """Send what the add path has answered, one message for each link."""
        for link, _, body in answers:
            if self.steps.on_step is not None:
                self.steps.show_answered(now_ns, link, body)
            self.clients.send(link, [body])

    def _tell_readers(self) -> None:
        """Send the answers to readers whose polls were taken in C."""
        path = self.storage.add_path
        if path is None:
            return
        for link, body in path.reader_answers(self._room_of):
            self.clients.send(link, [body])
        for link in path.settled():
            self.clients.note_answered(link)

    def _room_of(self, link: int) -> int:
        return READ_ROOM_BYTES if self.looking_up.waiting.has_room(link) else 0

    # The core.

    def _tell_durable(self, now_ns: int) -> bool:
        """Whether anything became durable."""
        token = self.storage.durable()
        if self.core.replies.failure is not None:
            return False
        if has_risen := token > self.steps.durable:
            self.steps.note_durable(token)
            if self.storage.add_path is not None:
                self._tell_taken(now_ns, self.storage.add_path.answers(token, now_ns))
            if self.core.awaits_journal:
                self.steps.step(None, now_ns)
        reason = self.storage.failed()
        if reason is not None:
            self._fail(now_ns, reason)
        return has_risen

    def _carry_out(self, effect: Effect, now_ns: int) -> None:
        if isinstance(effect, Reply):
            if self.clients.reply(effect) and effect.frames:
                size = sum(len(frame.body) for _, frame in effect.frames)
                self.looking_up.waiting.answered(effect.link, size)
        elif isinstance(effect, ReadEntries):
            if (found := self.looking_up.read(now_ns, effect)) is not None:
                self.steps.step(found)
        elif isinstance(effect, CountEntries):
            self.steps.step(self.looking_up.count(now_ns, effect))
        elif isinstance(effect, NumberBlocks):
            self.steps.step(self.looking_up.number(now_ns, effect))
        elif isinstance(effect, ReadDecisions):
            self.deciding.ask(now_ns, effect)
        elif isinstance(effect, AskMetadata):
            self.witnessing.ask(now_ns, effect.tag, self.steps.step)
        elif isinstance(effect, DropEntries):
            self.storage.drop(effect.ledger_id)
        elif isinstance(effect, TellLogs):
            self.clients.reply(Reply(effect.link, effect.request_id, logs_told(self.storage, effect)))
        elif isinstance(effect, TellKeepers):
            self.clients.reply(Reply(effect.link, effect.request_id, keepers_told(self.storage, effect)))
        elif self.failure is None:
            self._queue(effect, now_ns)

    def _queue(self, effect: Effect, now_ns: int) -> None:
        """Queue a journal record. A refusal ends it: the core has counted a record that the journal has not, so from
        now on the tokens of both would mean different records, and an answer could leave for the wrong one."""
        try:
            if isinstance(effect, StoreFrame):
                expected, given = effect.token, self.storage.put_frame(effect.frame)
            else:
                assert isinstance(effect, JournalAppend)
                expected = effect.token
                given = self.storage.append(effect.kind, effect.ledger_id, effect.body)
        except EmbedbkError as refused:
            self._fail(now_ns, str(refused))
            return
        ensure(given == expected, f"the journal numbered a record {given}, the core {expected}")

    def _go_on_reading(self, now_ns: int) -> None:
        """Begin the turn's shares of reading; what waits for the next turn makes it come at once."""
        self.looking_up.waiting.begin_turn()
        if self.looking_up.waiting:
            self.steps.step(None, now_ns)
        self.looking_up.end_turn(now_ns)

    def _flush(self, now_ns: int) -> None:
        try:
            self.storage.finish_flush()
            self.storage.begin_flush_if_due()
        except StorageError as failed:
            self._fail(now_ns, str(failed))

    def _fail(self, now_ns: int, reason: str) -> None:
        """The storage promises nothing any more (P7.6): answer everything pending as "unknown", and change the entry in
        the list of bookies, so that no client chooses this one. Stored entries can still be read."""
        if self.failure is not None:
            return
        failure = StorageError(
            f"bookie {self.bookie_id}: its storage failed and acknowledges nothing more: {reason}",
            hint="check the disk, then start the bookie again",
        )
        self._on_failure(failure)
        logger.critical("%s", failure)
        self._end_promises(now_ns, reason)
        self.registering.register_at(now_ns)

    def _end_promises(self, now_ns: int, reason: str) -> None:
        if self.storage.add_path is not None:
            self._tell_taken(now_ns, self.storage.add_path.stop(Status.UNKNOWN))
        self.steps.step(JournalFailed(now_ns, reason))
        self.looking_up.waiting.forget_found()

    def _on_foreign(self, now_ns: int, failure: StorageError) -> None:
        """The cluster knows other directories under this id (P7.2): serve no client."""
        self._serve_nobody(now_ns, failure, "these are not its directories")

    def _on_refused(self, now_ns: int, reason: str) -> None:
        """This build does not know the cluster's level (P10.8): it is in no list of bookies, and never will be."""
        self._serve_nobody(now_ns, UsageError(reason), reason)

    def _serve_nobody(self, now_ns: int, failure: EmbedbkError, reason: str) -> None:
        self._on_failure(failure)
        logger.critical("%s", failure)
        self.clients.drop_all(str(failure))
        self._end_promises(now_ns, reason)
