"""A client in its place: runs the cores of its handles, keeps links to bookies, follows the cluster by watches.

Decides nothing of the protocol. It batches: one turn seals frames and wakes waiters once. Leaves to `bookie_requests`
the requests to bookies and their outcomes, to `bookie_links` where bookies are dialled and what leaves together, to
`listed_bookies` what the list of bookies says, and to `counted_answers` which answers are counted beside the cores.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from embedbk.codec.add_messages import AddAnswer, AddAnswers
from embedbk.codec.answers import Answers, Counting
from embedbk.codec.messages import decode_message
from embedbk.codec.metadata_messages import Record
from embedbk.codec.packing import Packing
from embedbk.codec.registration import BOOKIES_PREFIX
from embedbk.config import REPAIR_GRACE_S, SLOW_BOOKIE_BYTES_MAX
from embedbk.core.backlog import Backlog
from embedbk.core.client_words import (
    AddedNearby,
    AddsAnswered,
    BookieInfo,
    BookiesChanged,
    FrameSealed,
    HintDue,
    SeatLeaving,
    SeatLost,
    Send,
)
from embedbk.core.end_recording import EndRecord
from embedbk.core.frame_table import MakeTable, plain_table
from embedbk.core.machine import Effect, Event, Machine, earliest
from embedbk.core.metadata_words import AllocateIds, ListKeys, ReadKey, Transact
from embedbk.core.repair_words import AskQuorum
from embedbk.core.vocabulary import CloseRequested, Started, Tick
from embedbk.errors import EmbedbkError, MetadataUnavailable, PeerError, ensure
from embedbk.host.asking import Asking
from embedbk.host.bookie_links import BookieLinks
from embedbk.host.bookie_requests import BookieRequests
from embedbk.host.counted_answers import UNTOLD_NS, CountedAnswers
from embedbk.host.courses import Courses
from embedbk.host.deadlines import Deadlines
from embedbk.host.hinting import Hinting
from embedbk.host.kept_lacs import KeptLacs
from embedbk.host.link_adds import LinkAdds
from embedbk.host.listed_bookies import ListedBookies
from embedbk.host.local_adds import LocalAdds
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.operations import Operation
from embedbk.host.own_lacs import OwnLacs
from embedbk.host.reminders import Reminders
from embedbk.host.signal import AlarmsHeld
from embedbk.host.unread import Unread
from embedbk.host.writing import Writing
from embedbk.ids import Member
from embedbk.metadata.client import Client
from embedbk.ports.adds import Near, NearWait
from embedbk.ports.links import LinkDown, LinkUp, Received
from embedbk.ports.transport import Transport

__all__ = ["SEAT_GRACE_NS", "ClientNode"]

logger = logging.getLogger(__name__)

# With very many open ledgers, of what is due or was appended to at a time: links are looked at in between, or a turn of
# seconds would be taken for our death by their other ends, and theirs by us.
WRITINGS_PER_TURN_MAX = 1024
_COMMON = frozenset(
    {FrameSealed, AddedNearby, AddsAnswered}
)  # Told to a core that nothing uncommon happens to.
SEAT_GRACE_NS = int(REPAIR_GRACE_S * 1e9)


class ClientNode:
    """All handles of one client. Called on the host's thread only, but for `wake_writing`."""

    def __init__(
        self,
        transport: Transport,
        metadata_endpoints: Sequence[str],
        client: Client,
        *,
        slow_bookie_bytes_max: int = SLOW_BOOKIE_BYTES_MAX,
        counting: Callable[[], Counting] | None = Answers,
        backlog: Backlog | None = None,
        table_of: Callable[[Packing, int], MakeTable] = plain_table,
        seat_grace_ns: int = SEAT_GRACE_NS,
    ) -> None:
        """slow_bookie_bytes_max: requests to one bookie that its link does not take yet; more fail at once (RP34).

        counting: makes what counts common answers beside the cores; None: the cores get each answer by itself.

        backlog: what all handles keep for bookies that are behind, if it is counted.

        table_of: what makes the table of frames in flight of a writing handle with this packer and so many seats.

        seat_grace_ns: a bookie that is not registered for so long loses its seats in open ledgers, also of writers for
            which nothing is under way (P4.1).
        """
        self.backlog = backlog
        self._table_of = table_of
        self.transport = transport
        self.metadata = MetadataLink(
            transport,
            metadata_endpoints,
            client,
            on_session=self._on_session,
            on_refused=self._on_refused,
        )
        self._asking = Asking(self.metadata, self.tell)
        self.operations: dict[Operation, None] = {}  # All but the writing handles, which are these:
        self.own_lacs = OwnLacs()
        self.unread = Unread("the client")
        self.listed = ListedBookies(self.unread, seat_grace_ns)
        self._links = BookieLinks(
            transport, self.listed.registrations, self.tell, KeptLacs(self.begin, self.tell),
            slow_bookie_bytes_max=slow_bookie_bytes_max,
        )  # fmt: skip
        self.is_ready = False  # A session was open and the list of bookies was seen once.
        self.on_ready: Callable[[], None] = lambda: None  # Called when it is, or never will be.
        # Called once, when the node closes: whatever is still pending will not complete.
        self.on_closed: Callable[[], None] = lambda: None
        # Makes the loop take a turn; called from users' threads.
        self.on_wake: Callable[[], None] = lambda: None
        # Called with each step of a core, before its effects are carried out (testing).
        self.on_step: Callable[[Machine, Event, list[Effect]], None] | None = None
        # True where an observer of the cores also sees what goes past them (`courses`).
        self.is_sending_watched = False
        self._answers = counting() if counting is not None else None
        self._counted: CountedAnswers | None = None
        if self._answers is not None:
            transport.count(self._answers)
            self._counted = CountedAnswers(self._answers, self._links, self._note_good, self._tell_counted)
        self._requests = BookieRequests(
            self._links, client, self._counted, self.tell, self._note_good, self._note_error
        )
        # How writers' adds go past their cores, to bookies of this very loop or else over links; not while somebody
        # watches the cores.
        self.courses: Courses | None = None
        if isinstance(self._answers, Answers):  # Sent and counted in C.
            self.courses = LinkAdds(
                transport.adds, self._links.free_link, self._links.note_asked, self._queue, self._look_again,
                self._note_good,
            )  # fmt: skip
        self._dirty: deque[Writing] = deque()  # Filled from users' threads.
        self._touched: dict[Operation, None] = {}
        self._events: deque[tuple[Operation, Event]] = deque()
        self._deadlines = Deadlines()
        self._hinting = Hinting()
        self._reminders = Reminders(logger)
        self._is_watching = False
        self._now_ns = 0  # Time of the present turn, for events of the watch.
        self._why_closed: EmbedbkError | None = None

    # Running operations.

    def run(self, now_ns: int, operation: Operation) -> None:
        """Start an operation: its core hears `Started` if it acts by itself."""
        self.begin(now_ns, operation)
        self._finish_turn(now_ns)

    def begin(self, now_ns: int, operation: Operation) -> None:
        """As `run`, for callers within a turn: the operation goes on before the turn ends."""
        if self._why_closed is not None:
            operation.fail(self._why_closed)
            return
        if isinstance(operation, Writing):
            self.own_lacs.add(operation)
            in_flight = operation.core.in_flight
            in_flight.backlog = self.backlog
            in_flight.make_table = self._table_of(operation.packer, in_flight.quorum.ensemble_size)
        else:
            self.operations[operation] = None
        if Started in operation.core.HANDLERS:
            self.tell(operation, Started(now_ns))
        else:
            self._touch(operation)

    def tell(self, operation: Operation, event: Event) -> None:
        """Step an operation's core, now or after the events that it is being given."""
        if self._answers is not None and self._answers.untold and type(event) is not FrameSealed:
            self._tell_counted(
                event.now_ns
            )  # What came before it. The next frame depends on nothing of that.
        if self.courses is not None and isinstance(operation, Writing):
            self.courses.before(operation, event)
        self._events.append((operation, event))

    def add_locally(self, wait: NearWait, nears: Mapping[Member, Near]) -> None:
        """From now on writers reach these bookies, which are on this node's loop, without messages where they can."""
        self.courses = LocalAdds(
            wait, nears, self._links.note_asked, self._queue, self._look_again, self._note_good
        )
        self._links.beside = frozenset(nears)

    def _queue(self, operation: Operation, event: Event) -> None:
        self._events.append((operation, event))

    def _look_again(self, writing: Writing) -> None:
        self._dirty.append(writing)

    def close_writing(self, now_ns: int, writing: Writing, end: EndRecord | None = None) -> None:
        """Seal what was appended and close the ledger behind it. end: the list that gets its end by that, if it can:
        `Writing.recorded_revision`."""
        self._pump(now_ns, writing, is_last=True)
        self.tell(writing, CloseRequested(now_ns, end))
        self._finish_turn(now_ns)

    def release(self, operation: Operation, now_ns: int | None = None) -> None:
        """Forget an operation without touching cluster state. now_ns: what it asked of the metadata is cancelled, too,
        as its caller does not want it any more."""
        operation.is_over = True
        self._forget(operation)
        if now_ns is not None:
            self._asking.forget(now_ns, operation)

    def wake_writing(self, writing: Writing) -> None:
        """From a user's thread: the packer has something to look at."""
        if self.courses is not None and self.courses.wake(writing):
            return
        self._dirty.append(writing)
        self.on_wake()

    # The node's turn.

    def step(self, now_ns: int) -> None:
        self._now_ns = now_ns
        for event in self.transport.receive(now_ns):
            if isinstance(event, Received):
                self._take_body(now_ns, event)
            elif isinstance(event, LinkUp):
                self._on_link_up(now_ns, event)
            else:
                self._on_link_down(now_ns, event)
        if self._counted is not None and self._counted.answers.untold and self._counted.is_due(now_ns):
            self._tell_counted(now_ns)
        if self._links.slow:
            self._links.send_waiting()
        if self.courses is not None:
            self.courses.step(now_ns)
        self.metadata.tick(now_ns)
        if not self._is_watching:
            self._is_watching = True
            self.metadata.watch(now_ns, BOOKIES_PREFIX, self._on_bookies, may_lag=True)
        self._tick_due(now_ns)
        for member, writing in self.listed.absences.take(now_ns, self.own_lacs, WRITINGS_PER_TURN_MAX):
            self.tell(writing, SeatLost(now_ns, member))
        for member, writing in self.listed.departures.take(now_ns, self.own_lacs, WRITINGS_PER_TURN_MAX):
            self.tell(writing, SeatLeaving(now_ns, member))
        if not self.listed.quarantine.is_idle and self.listed.quarantine.expire(now_ns):
            self._show_bookies()
        for _ in range(min(len(self._dirty), WRITINGS_PER_TURN_MAX)):
            writing = self._dirty.popleft()
            # A user's thread may append before the loop comes to begin the handle, which looks at its packer then. What
            # was sent before that would not be counted where its table counts from then on.
            if writing in self.own_lacs or writing.is_over:
                self._touch(writing)
        self._finish_turn(now_ns)

    def _finish_turn(self, now_ns: int) -> None:
        """Carry out everything that is queued, seal frames, wake waiters once per operation."""
        while True:
            self._drain(now_ns)
            touched = [operation for operation in self._touched if isinstance(operation, Writing)]
            for writing in touched:
                self._pump(now_ns, writing)
                self._hinting.note(now_ns, writing)
                following = writing.following
                # As in `step`: one that is not begun yet is looked at when it is.
                if following is not None and following in self.own_lacs and writing.is_done:
                    self._touched[following] = None
                    self._pump(now_ns, following)
            for writing in self._hinting.take(now_ns):
                self.tell(writing, HintDue(now_ns))
            if self._links.outboxes:
                self._links.send_gathered(now_ns)
            if not self._events:
                break
        with AlarmsHeld():
            for operation in self._touched:
                operation.publish()
                self._schedule(operation)
                if operation.is_over:
                    self._forget(operation)
        self._touched.clear()

    def _forget(self, operation: Operation) -> None:
        self.operations.pop(operation, None)
        self._deadlines.end(operation)
        if isinstance(operation, Writing):
            self.own_lacs.remove(operation)
            self._hinting.forget(operation)
            if self._counted is not None and operation in self._counted.uncommon:
                self._counted.end_uncommon(operation)
            if self.courses is not None:
                self.courses.forget(self._now_ns, operation)
            if not operation.is_shrunk:
                operation.core.in_flight.let_go()

    def _drain(self, now_ns: int) -> None:
        while self._events:
            operation, event = self._events.popleft()
            if operation.is_over:
                continue
            self._touched[operation] = None
            core, kind = operation.core, type(event)
            bookies = self.listed.bookies
            is_behind = BookiesChanged in core.HANDLERS and getattr(core, "bookies", None) is not bookies
            if is_behind and kind is not Started:
                self._step(now_ns, operation, BookiesChanged(event.now_ns, bookies))
                if operation.is_over:
                    continue
            if kind is not BookiesChanged:
                self._step(now_ns, operation, event)
            if is_behind and kind is Started and not operation.is_over and core.wants_bookies:
                # Made before the list changed: a core that waits for bookies would not get those again.
                self._step(now_ns, operation, BookiesChanged(event.now_ns, self.listed.bookies))

    def _step(self, now_ns: int, operation: Operation, event: Event) -> None:
        effects = operation.core.step(event)
        if self.on_step is not None:
            self.on_step(operation.core, event, effects)
        counted = self._counted
        if counted is not None:
            counted.sealing = None
            if type(event) is FrameSealed:
                assert isinstance(operation, Writing)
                counted.begin_sending(operation)
        for effect in effects:
            self._carry_out(now_ns, operation, effect)
        if not isinstance(operation, Writing):
            return
        is_uncommon = counted is not None and operation in counted.uncommon
        if is_uncommon or type(event) not in _COMMON:
            if counted is not None:
                counted.judge(self._now_ns, operation)
            self._remind(now_ns, operation)

    def _remind(self, now_ns: int, writing: Writing) -> None:
        core = writing.core
        key = f"ledger {core.ledger_id}"
        if core.stall.is_short and not writing.is_over:
            failed = [
                f"{each.member.bookie_id}: {each.failure}" for each in core.in_flight.seatings if each.failure
            ]
            self._reminders.lasts(now_ns, key, f"{key}: appends wait for bookies ({'; '.join(failed)})")
        else:
            self._reminders.over(now_ns, key, f"{key}: appends wait no longer")

    def _touch(self, operation: Operation) -> None:
        self._touched[operation] = None

    def _pump(self, now_ns: int, writing: Writing, *, is_last: bool = False) -> None:
        """Seal frames as far as the writer core wants them; the last time all of them."""
        before = writing.behind
        if before is not None:
            if not writing.begin_behind():
                ensure(not is_last, "a handle is closed before the one in front of it is done")
                return
            self._touched[before] = None  # Who waits for this waits there.
        packer = writing.packer
        may_send = self.on_step is None or self.is_sending_watched
        if self.courses is not None and may_send and not writing.is_over:
            if is_last:
                self.courses.end(now_ns, writing)
                self._drain(now_ns)
            elif self.courses.pump(now_ns, writing):
                return
        while not writing.is_over and (packer.open_count() or packer.has_full()):
            # The last frame of a handle that takes no more appends does not grow.
            is_full = packer.has_full() or packer.is_stopped
            if not is_last and not writing.core.wants_frame(is_full=is_full, waiting=packer.open_count()):
                break
            if is_last and (writing.error is not None or writing.failure is not None):
                break
            frame = packer.seal()
            if frame is None:
                break
            self.tell(writing, FrameSealed(now_ns, frame))
            self._drain(now_ns)

    # Effects.

    @property
    def links(self) -> BookieLinks:
        """The links to bookies; on the host's thread only."""
        return self._links

    def _carry_out(self, now_ns: int, operation: Operation, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._requests.send(now_ns, operation, effect)
        elif isinstance(effect, (ReadKey, Transact, AllocateIds, ListKeys, AskQuorum)):
            self._asking.ask(now_ns, operation, effect)
        else:
            operation.on_effect(effect)

    def _end_courses(self, now_ns: int, member: Member) -> None:
        if isinstance(self.courses, LinkAdds):
            self.courses.leave_link(now_ns, member)

    def _tell_counted(self, now_ns: int) -> None:
        """Tell the cores what was counted for them."""
        assert self._counted is not None
        for operation, told in self._counted.take(now_ns):
            if self.courses is not None:
                self.courses.note_counted(now_ns, operation, (member for member, _ in told.answers))
            self._events.append((operation, told))

    # Links.

    def _on_link_up(self, now_ns: int, event: LinkUp) -> None:
        if self.metadata.owns(event.link):
            self.metadata.on_link_up(now_ns, event.link, event.peer)
            return
        peer = self._links.by_link.get(event.link)
        if peer is None:
            return
        peer.is_up = True
        name = peer.member.bookie_id
        self._reminders.over(now_ns, name, f"bookie {name} is reached again")

    def _on_link_down(self, now_ns: int, event: LinkDown) -> None:
        if self.metadata.owns(event.link):
            self.metadata.on_link_down(now_ns, event.link, event.reason)
            return
        if self._answers is not None and self._answers.untold:
            self._tell_counted(now_ns)  # Answered before the link went.
        peer = self._links.by_link.get(event.link)
        if peer is None:
            return
        self._end_courses(now_ns, peer.member)
        self._links.lose(now_ns, peer)
        name = peer.member.bookie_id
        logger.debug("link to bookie %s down: %s", name, event.reason)
        self._reminders.lasts(
            now_ns, name, f"bookie {name} cannot be reached at {peer.endpoint}: {event.reason}"
        )
        self._note_error(now_ns, name)
        self._requests.fail(now_ns, peer, event.reason, has_other_disk=event.is_of_other_disk(name))

    def _take_body(self, now_ns: int, event: Received) -> None:
        if self._answers is not None and self._answers.take(event.link, event.body):
            return
        answers: list[tuple[int, AddAnswer]] = []
        try:
            message = decode_message(event.body)
            if isinstance(message.control, AddAnswers):
                answers = message.control.unpack()
        except PeerError as broken:
            logger.warning("a link is dropped: %s", broken)
            self.transport.drop(event.link, str(broken))
            if not self.metadata.owns(event.link):
                self._on_link_down(now_ns, LinkDown(event.link, str(broken)))  # Nothing else of it counts.
            return
        if self.metadata.owns(event.link):
            self.metadata.on_message(now_ns, event.link, message)
            return
        peer = self._links.by_link.get(event.link)
        if peer is None:
            return
        asked_of = [request_id for request_id, _ in answers] or [message.request_id]
        if not all(request_id in peer.outstanding for request_id in asked_of):
            self._end_courses(now_ns, peer.member)  # Asked from C, as like as not.
        if not answers:
            self._requests.answer(now_ns, peer, message.request_id, message.control, message.frames)
        for request_id, answer in answers:
            self._requests.answer(now_ns, peer, request_id, answer, [])

    def _note_good(self, bookie_id: str) -> None:
        if not self.listed.quarantine.is_idle and self.listed.quarantine.note_good(bookie_id):
            self._show_bookies()

    def _note_error(self, now_ns: int, bookie_id: str) -> None:
        if self.listed.quarantine.note_error(bookie_id, now_ns):
            self._show_bookies()

    # The cluster, as the watch shows it.

    @property
    def bookies(self) -> tuple[BookieInfo, ...]:
        """The bookies as cores get them; another object each time that they are shown anew."""
        return self.listed.bookies

    def _on_session(self, now_ns: int, cluster_token: bytes) -> None:
        self._links.cluster_token = cluster_token

    def _on_refused(self, now_ns: int, reason: str) -> None:
        logger.warning("no metadata session any more: %s", reason)
        self.on_ready()

    def _on_bookies(self, records: list[Record], revision: int, is_first: bool) -> None:
        self.listed.take(records, is_first=is_first)
        self._show_bookies()
        self._links.dial_elsewhere(self._now_ns)
        self.is_ready = True
        self.on_ready()

    def _show_bookies(self) -> None:
        self.listed.show(self._now_ns)
        for operation in itertools.chain(self.operations, self.own_lacs):
            # Handles in their idle form are not restored for this: they receive it before their next event (`_drain`).
            if operation.is_shrunk:
                continue  # There may be very many, and no bookie of theirs has failed.
            if BookiesChanged in operation.core.HANDLERS and operation.core.wants_bookies:
                self.tell(operation, BookiesChanged(self._now_ns, self.listed.bookies))

    # Time.

    def _schedule(self, operation: Operation) -> None:
        deadline = _deadline_of(operation)
        if deadline is not None:
            self._deadlines.keep(operation, deadline)
        elif self.on_step is None:
            operation.shrink()

    def _tick_due(self, now_ns: int) -> None:
        for operation in self._deadlines.take(now_ns, WRITINGS_PER_TURN_MAX):
            deadline = _deadline_of(operation)
            if deadline is not None and deadline <= now_ns:
                self.tell(operation, Tick(now_ns))
            else:
                self._schedule(operation)

    def has_news(self) -> bool:
        return bool(self._dirty or self._events) or self.transport.has_events()

    def deadline_ns(self) -> int | None:
        return earliest(
            self.listed.deadline_ns,
            self._deadlines.next_ns,
            self._hinting.deadline_ns,
            None if self._counted is None else self._counted.tell_at,
            self.metadata.deadline_ns(),
            self.transport.deadline_ns(),
            None if self.courses is None else self.courses.deadline_ns(),
        )

    def wait(self, filenos: Sequence[int], until_ns: int) -> Sequence[int] | None:
        """As `host.loop.Waiter`: answers that are no news are counted in C meanwhile (native/SHORTCUTS.md)."""
        return self.transport.listen_for(filenos, until_ns, UNTOLD_NS)

    def filenos(self) -> list[int]:
        return [*self.transport.filenos(), *([] if self.courses is None else self.courses.filenos())]

    def close(self, failure: BaseException | None = None) -> None:
        """Give every operation and every request its outcome: nothing may wait for this node any more."""
        self._why_closed = _why_closed(failure)
        for operation in [*self.operations, *self.own_lacs]:
            operation.fail(self._why_closed)
            self._forget(operation)
        self.courses = None  # It holds descriptors, and handles that outlive this node lead to it.
        self.metadata.end(self._why_closed.args[0])
        self.transport.close()
        self.on_closed()


def _deadline_of(operation: Operation) -> int | None:
    return None if operation.is_over or operation.is_shrunk else operation.core.deadline_ns


def _why_closed(failure: BaseException | None) -> EmbedbkError:
    if failure is None:
        return MetadataUnavailable("the client was closed", hint="open a new one")
    error = EmbedbkError(
        f"the host thread ended by a failure: {failure!r}",
        definite=False,
        hint="close the client and open a new one; the failure is a bug worth reporting",
    )
    error.__cause__ = failure
    return error
