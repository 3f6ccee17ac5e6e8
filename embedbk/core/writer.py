"""The creator of a ledger: sends frames, confirms them in order, closes (P3, P4, P5.1).

Decides: when entries are acknowledged (the LAC), when the handle is over. Without metadata it goes on as long as its
bookies do (P10.4).
Leaves to others: making frames (packer), carrying requests and compare-and-sets (host), recovery (`recovery`), when and
how a failed bookie is replaced (`ensemble_keeping`), publishing a change and the close (`change_publishing`), the LAC
of a pause (`lac_publishing`).

States:  OPEN --close--> CLOSING --settled--> ENDED        FAILED: the LAC is frozen, only close remains (P3.6)
           \\--a failed add--> FAILED --close--> CLOSING
"""

from __future__ import annotations

import enum
from typing import ClassVar

from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import Durability, LedgerMetadata, LedgerState, decode_changed_metadata
from embedbk.config import Quorum
from embedbk.core.change_publishing import ChangePublishing
from embedbk.core.client_words import (
    AddedNearby,
    AddFailed,
    AddsAnswered,
    Answered,
    BookieInfo,
    BookiesChanged,
    Confirmed,
    CourseEnded,
    FrameSealed,
    HintDue,
    Received,
    SeatLeaving,
    SeatLost,
    SendFailed,
)
from embedbk.core.ensemble_keeping import EnsembleKeeping
from embedbk.core.in_flight import InFlight
from embedbk.core.lac_publishing import LacPublishing
from embedbk.core.lateness import AnswerTimes
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import KeyRead, MetadataFailed, Transacted, TransactRefused, TransactUnknown
from embedbk.core.placement import Chance
from embedbk.core.publishing import Settlement
from embedbk.core.stall import Stall
from embedbk.core.vocabulary import CloseRequested, Ended, Tick
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    MetadataUnavailable,
    NoSuchLedger,
    PeerError,
    StorageError,
    WrongPassword,
    ensure,
)
from embedbk.ids import NO_ENTRY

__all__ = ["LARGE_FRAME_BYTES", "Writer", "WriterState"]

LARGE_FRAME_BYTES = 64 << 10  # Beside such a one the messages of another cost little.


class WriterState(enum.Enum):
    OPEN = "open"
    FAILED = "failed"
    CLOSING = "closing"
    ENDED = "ended"


class Writer(Machine):
    """The one writer of one ledger."""

    __slots__ = (
        "__dict__",  # Empty: room for an observer of the core's steps (testing).
        "changes",
        "ensemble",
        "error",
        "in_flight",
        "lac_publishing",
        "lap",
        "last_active_ns",
        "options",
        "stall",
        "state",
    )

    def __init__(
        self,
        metadata: LedgerMetadata,
        revision: int,
        ledger_key: bytes,
        nonce: int,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        options: WriterOptions = WriterOptions(),
    ) -> None:
        self.options = options
        self.state = WriterState.OPEN
        self.error: EmbedbkError | None = None  # Why the handle failed.
        members = metadata.fragments[-1].members
        self.in_flight = InFlight(
            ledger_key,
            metadata.quorum,
            members,
            nonce,
            is_recovery=False,
            done=NO_ENTRY,
            is_deferred=metadata.durability == Durability.DEFERRED,
            times=None if options.late is None else AnswerTimes(options.late),
            behind_max=options.behind_bytes_max,
        )
        self.lac_publishing = LacPublishing(metadata.ledger_id, self.in_flight, options)
        self.changes = ChangePublishing(metadata, revision, bookies, self.in_flight)
        self.stall = Stall()
        self.ensemble = EnsembleKeeping(
            self.changes, self.in_flight, self.lac_publishing, self.stall, chance, options
        )
        self.lap = NO_ENTRY  # Last add pushed.
        self.last_active_ns = 0

    # What the host and the face may look at.

    @property
    def metadata(self) -> LedgerMetadata:
        """As last published."""
        return self.changes.metadata

    @property
    def bookies(self) -> tuple[BookieInfo, ...]:
        """The list that was told last."""
        return self.changes.bookies

    @property
    def ledger_id(self) -> int:
        return self.changes.metadata.ledger_id

    @property
    def quorum(self) -> Quorum:
        return self.changes.metadata.quorum

    @property
    def lac(self) -> int:
        return self.in_flight.done

    def wants_frame(self, *, is_full: bool, waiting: int = 1) -> bool:
        """May another frame be sealed now?

        One that is not full when none is out, or beside one other that has no more entries than it, or is large:
        frames grow with load, and where little is appended none waits. Two at a time at any load would be many more
        messages, whose processor time is what appends wait for then.

        is_full: it does not grow any more. waiting: entries in the open frame.
        """
        if (
            self.state is not WriterState.OPEN
            or self.in_flight.pending_bytes >= self.options.inflight_bytes_max
            or self.in_flight.is_pressed()
        ):
            return False
        out = self.in_flight.pending_count
        if is_full or out == 0:
            return out < self.options.inflight_frames_max
        if self.in_flight.is_deferred:
            # Frames that are only received wait for a sync that no append waits for.
            if out >= self.options.inflight_frames_max:
                return False
            out = self.in_flight.unreceived_frames(2)
        if out == 1:
            newest = self.in_flight.newest()
            return waiting >= newest.entry_count or newest.byte_count >= LARGE_FRAME_BYTES
        return out == 0

    @property
    def deadline_ns(self) -> int | None:
        if self.state is WriterState.ENDED:
            return None
        if self.in_flight.is_lent:
            # A silent seat ends the course first.
            return self.lac_publishing.due_ns(self.last_active_ns) if self.owes_lac else None
        due = self.ensemble.deadline_ns()
        return earliest(due, self.lac_publishing.due_ns(self.last_active_ns)) if self.owes_lac else due

    @property
    def wants_bookies(self) -> bool:
        """True only while a replacement is looked for: as a rule in none of very many open ledgers."""
        return self.changes.proposal is not None or self.stall.is_short or self.in_flight.has_failed

    @property
    def is_common(self) -> bool:
        """Nothing but plain adds is under way: any Qa answers of the seats as they are confirm a frame, and until there
        are so many, an answer changes nothing that anybody would see (native/SHORTCUTS.md, "Answers")."""
        return (
            self.state is WriterState.OPEN
            and self.changes.proposal is None
            and not self.stall.is_short
            and not self.in_flight.has_busy
            and not self.in_flight.has_failed
        )

    @property
    def owes_lac(self) -> bool:
        """Nothing is under way that would carry the LAC, and the bookies do not know it, or only by a hint."""
        is_idle = not self.in_flight.pending_count and self.state in (WriterState.OPEN, WriterState.CLOSING)
        return is_idle and self.lac > self.lac_publishing.published

    @property
    def owes_hint(self) -> bool:
        """As `owes_lac`, where the bookies do not know the LAC by a hint either."""
        return self.lac > self.lac_publishing.hinted and self.owes_lac

    @property
    def is_plain(self) -> bool:
        """Besides, every seat gets the next frames whole: they may be sent without this core, and be told by
        `AddedNearby`."""
        is_whole = self.quorum.ensemble_size == self.quorum.write_quorum and not self.in_flight.is_deferred
        return is_whole and self.is_common and self.changes.proposed is None and not self.in_flight.is_lent

    # Adding.

    def _on_frame(self, event: FrameSealed) -> list[Effect]:
        frame: Frame = event.frame
        assert self.state is WriterState.OPEN
        assert frame.first_entry == self.lap + 1  # Dense, in order (P3.1).
        self.lap = frame.last_entry
        self.last_active_ns = event.now_ns
        self.lac_publishing.published = self.lac
        sends: list[Effect] = list(
            self.in_flight.send(frame, event.now_ns, self.lac, self.in_flight.done_length)
        )
        if self.stall.is_short:
            self.stall.note_sent(event.now_ns, self.options.quorum_wait_ns, self.options.retry_ns)
        elif self.changes.proposal is not None:
            self.ensemble.note_stall(event.now_ns)
        return sends

    def _on_added_nearby(self, event: AddedNearby) -> list[Effect]:
        """As if this core had sent these frames, heard the answers and confirmed."""
        ensure(
            self.state is WriterState.OPEN and self.in_flight.is_lent,
            "added nearby, and no course is under way",
        )
        ensure(event.last_entry > self.lac, "the LAC fell or stood still")
        self.lap = max(self.lap, event.last_entry)
        self.in_flight.done, self.in_flight.done_length = event.last_entry, event.length
        self.last_active_ns = event.now_ns
        if event.longest_ns and self.in_flight.times is not None:
            self.in_flight.times.note(event.longest_ns, event.now_ns)  # P4.7
        confirmed = Confirmed(self.lac, self.in_flight.done_length)
        return (
            [confirmed, *self.lac_publishing.hint_followers(event.now_ns)] if event.is_idle else [confirmed]
        )

    def _on_course_ended(self, event: CourseEnded) -> list[Effect]:
        """As if this core had sent what is on its way, and heard the answers that came: it is in the table."""
        in_flight = self.in_flight
        ensure(self.state is WriterState.OPEN, "a course of a handle that is not open")
        in_flight.take_back(event.heard_ns, event.answered_ns)
        oldest = in_flight.frames.oldest()
        if oldest is not None:
            ensure(oldest.first_entry == self.lac + 1, "what was sent leaves a gap")  # P3.1
            self.lap = in_flight.newest().last_entry
            self.last_active_ns = event.now_ns
        effects = self._advance(event.now_ns)
        for first_entry, numbers in event.unsent:
            effects += in_flight.send_unsent(
                first_entry, numbers, event.now_ns, self.lac, in_flight.done_length
            )
        return effects

    def _on_answered(self, event: Answered) -> list[Effect]:
        kind, number, first_entry = event.tag
        answer = event.control
        if kind == "ask":
            return self.ensemble.hear_asked(event.member, answer, event.now_ns)
        if kind != "add":
            return []  # It answers an explicit LAC: nothing depends on it.
        if not isinstance(answer, AddAnswer):
            why = getattr(answer, "text", "an answer of the wrong kind")
            return self.ensemble.seat_failed(number, why, event.now_ns)
        if not self.in_flight.is_ours(number, answer):
            return []  # To another handle's request (P3.8).
        if answer.status == Status.RECEIVED:
            took = self.in_flight.take_received(number, first_entry, answer, event.now_ns)
            return self._advance_received() if took else []
        if answer.status == Status.OK:
            effects: list[Effect] = []
            if answer.is_followed and self.lac_publishing.note_followed(number, event.now_ns):
                effects = self._hint_new_follower(number)
            if not self.in_flight.take_answer(number, first_entry, answer, event.now_ns):
                return effects
            effects += self._advance(event.now_ns)
            if self.in_flight.has_busy:
                effects += self.ensemble.send_owed(event.now_ns)
            self.ensemble.shrink(event.now_ns)
            return effects
        if answer.status == Status.BUSY:
            self.in_flight.note_busy(number, first_entry, event.now_ns)
            return []  # Alive, and slow: no failure until the add's time is over (P7.8).
        if self.in_flight.seating(number) is None:
            return []  # From a bookie replaced since (P4.4).
        name = f"bookie {event.member.bookie_id}"
        if answer.status == Status.FENCED:
            return self._fail(
                LedgerFenced(f"ledger {self.ledger_id} was fenced by another client ({name} says so)")
            )
        if answer.status == Status.WRONG_KEY:
            return self._fail(WrongPassword(f"ledger {self.ledger_id}: {name} holds another password"))
        if answer.status == Status.CONFLICT:
            return self._fail(
                PeerError(f"ledger {self.ledger_id}: {name} stores another payload for {first_entry}")
            )
        return self.ensemble.seat_failed(number, Status(answer.status).name, event.now_ns)

    def _on_adds_answered(self, event: AddsAnswered) -> list[Effect]:
        """Take each answer as `_on_answered` does; the LAC moves once, over all of them."""
        in_flight, has_taken = self.in_flight, False
        effects: list[Effect] = []
        for number in event.followed:
            if self.lac_publishing.note_followed(number, event.now_ns):
                effects += self._hint_new_follower(number)
        for _, (_, number, first_entry) in event.answers:
            has_taken |= in_flight.take_ok(number, first_entry, event.now_ns)
        if not has_taken:
            return effects
        effects += self._advance(event.now_ns)
        self.ensemble.shrink(event.now_ns)
        return effects

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if event.tag[0] == "ask":
            return self.ensemble.hear_of_absence(event.member, event.now_ns) if event.is_other_disk else []
        if event.tag[0] != "add":
            return []
        number, stays_away = event.tag[1], event.is_other_disk
        return self.ensemble.seat_failed(number, event.reason, event.now_ns, stays_away=stays_away)

    def _advance_received(self) -> list[Effect]:
        """Move the mark of received entries. Deferred sync has two marks; only the LAC is ever published (P3.2)."""
        if self.error is not None or not self.in_flight.is_deferred:
            return []
        proposal = self.changes.proposal
        if not self.in_flight.advance_received(proposal.seatings if proposal else None):
            return []
        ensure(
            self.lac <= self.in_flight.received <= self.lap, "what is received moved outside what was sent"
        )
        return [Received(self.in_flight.received, self.in_flight.received_length)]

    def _advance(self, now_ns: int) -> list[Effect]:
        before = self.in_flight.done
        if self.in_flight.is_lent:
            return []  # The course confirms.
        proposal = self.changes.proposal
        if self.error is not None or not self.in_flight.advance(proposal.seatings if proposal else None):
            return []
        ensure(before < self.in_flight.done <= self.lap, "the LAC moved outside what was sent")
        self.last_active_ns = now_ns
        is_waited_for = self.in_flight.pending_count > 0
        self.stall.note_confirmed(now_ns, self.options.quorum_wait_ns, is_waited_for=is_waited_for)
        effects: list[Effect] = [Confirmed(self.lac, self.in_flight.done_length), *self._advance_received()]
        if self.state is WriterState.CLOSING:
            effects += self._go_on_closing()
        elif not self.in_flight.pending_count:
            effects += self.lac_publishing.hint_followers(now_ns)
        return effects

    def _fail(self, error: EmbedbkError) -> list[Effect]:
        """One failed add ends the handle: the LAC is frozen, only close remains (P3.6)."""
        if self.error is not None or self.state is WriterState.ENDED:
            return []
        self.error = error
        self.ensemble.stop()
        effects: list[Effect] = [self._failed(error)]
        self.in_flight.give_up()
        if self.state is WriterState.CLOSING:
            return effects + self._go_on_closing()
        self.state = WriterState.FAILED
        return effects

    def _failed(self, error: EmbedbkError) -> AddFailed:
        if not self.options.hands_over:
            return AddFailed(error)
        return AddFailed(error, tuple(self.in_flight.frames_pending()))

    # What metadata says of an ensemble change, or of the close.

    def _on_outcome(self, event: Transacted | TransactUnknown | KeyRead) -> list[Effect]:
        """Take the outcome of the compare-and-set in flight."""
        heard = self.changes.hear(event)
        if heard.error is not None:
            return self._give_up(heard.error)
        if heard.verdict is Settlement.OPEN:
            return heard.effects
        if heard.verdict is Settlement.NOT_MADE:
            return self._drop_change(event.now_ns)
        if heard.verdict is Settlement.PUBLISHED:
            return self._settled(event.now_ns)
        return self._overtaken(heard.found)

    def _settled(self, now_ns: int) -> list[Effect]:
        """What was proposed is published."""
        if self.metadata.is_closed:
            return self._end(None)
        effects = self.ensemble.seat_proposed(now_ns)
        return effects + self._go_on_behind_change(now_ns)

    def _drop_change(self, now_ns: int) -> list[Effect]:
        """Drop the change, which was not published and never will be."""
        self.changes.drop()
        return self._go_on_behind_change(now_ns)

    def _go_on_behind_change(self, now_ns: int) -> list[Effect]:
        effects = self._advance(now_ns)
        effects += self.ensemble.look_again(now_ns)
        if self.state is WriterState.CLOSING:
            effects += self._go_on_closing()
        return effects

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        """The compare-and-set was not run, and never will be: the metadata is full. The close ends with that; an
        ensemble change is dropped, and adds go on as where no bookie can be found (P4.5)."""
        if not self.changes.is_outcome(event):
            return []
        if self.changes.has_recorded:
            return self.changes.close()  # By itself: what it recorded beside may be what has no room.
        has_only_to_close = self.state is WriterState.CLOSING and not self.in_flight.pending_count
        if self.changes.proposal is None or (has_only_to_close and self.changes.is_unsettled):
            return self._close_refused(event.reason)
        is_dropped = self.ensemble.note_refused(event.reason, event.now_ns)
        return self._drop_change(event.now_ns) if is_dropped else []

    def _close_refused(self, reason: str) -> list[Effect]:
        error = MetadataUnavailable(
            f"ledger {self.ledger_id} could not be closed behind entry {self.lac}: {reason}",
            definite=not self.changes.is_unsettled,  # One before may have landed, or may land yet (P2.2).
            hint="what is acknowledged is kept; make room in the metadata, then recover the ledger",
        )
        failed = [] if self.error is not None else [self._failed(error)]
        return [*failed, *self._end(error)]

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        if not self.changes.note_unread():
            return self._stand_still(event.now_ns)
        self.ensemble.read_later(event.now_ns)
        return []

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        if self.changes.proposed is not None:
            return self._on_outcome(event)
        if not self.changes.take_read(event) or not self.stall.is_short:
            return []
        return self._read_in_shortage(event)

    def _read_in_shortage(self, event: KeyRead) -> list[Effect]:
        """Read whether the ledger is still this handle's (P3.6)."""
        if event.value is None:
            return self._overtaken(None)
        try:
            found = decode_changed_metadata(event.value, self.metadata)
        except StorageError as unread:
            return self._give_up(unread)
        return self._stand_still(event.now_ns) if found.state == LedgerState.OPEN else self._overtaken(found)

    def _stand_still(self, now_ns: int) -> list[Effect]:
        """No client took the ledger over, as far as metadata can tell: wait on for a bookie."""
        error = self.ensemble.end_shortage(now_ns) if self.stall.is_over(now_ns) else None
        return [] if error is None else self._fail(error)

    def _overtaken(self, found: LedgerMetadata | None) -> list[Effect]:
        """Another client recovered, closed or deleted the ledger (P4.3, P5.1)."""
        name = f"ledger {self.ledger_id}"
        error: EmbedbkError
        if found is None:
            error = NoSuchLedger(f"{name} was deleted", definite=False)
        elif found.state == LedgerState.CLOSED:
            if self.state is WriterState.CLOSING and found.last_entry == self.lac:
                return self._end(None)  # Another client closed it at the same last entry: success (P5.1).
            error = LedgerClosed(f"{name} was closed by another client at entry {found.last_entry}")
        else:
            error = LedgerFenced(f"{name} is in recovery by another client")
        return self._give_up(error)

    def _give_up(self, error: EmbedbkError) -> list[Effect]:
        """What metadata holds leaves this handle nothing to decide; what is asked for or under way there is dropped."""
        self.changes.drop()
        if self.state is WriterState.CLOSING:
            failed = [] if self.error is not None else [self._failed(error)]
            return [*failed, *self._end(error)]
        return self._fail(error)

    # Closing.

    def _on_close(self, event: CloseRequested) -> list[Effect]:
        if self.state in (WriterState.CLOSING, WriterState.ENDED):
            return []
        self.state = WriterState.CLOSING
        self.changes.end = event.end
        self.ensemble.begin_close()
        return self._go_on_closing()

    def _go_on_closing(self) -> list[Effect]:
        """Outstanding adds first finish or fail, a change in flight is settled; then CAS to CLOSED (P5.1)."""
        changes = self.changes
        if self.in_flight.pending_count or changes.proposal is not None or changes.proposed is not None:
            return []
        return changes.close()

    def _end(self, error: EmbedbkError | None) -> list[Effect]:
        self.state = WriterState.ENDED
        self.ensemble.stop()
        self.changes.drop()
        self.in_flight.give_up()
        return [Ended(error, (self.lac, self.in_flight.done_length))]

    # Time, and what the watch says.

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        return self.ensemble.note_list(event.bookies, event.now_ns)

    def _on_seat_lost(self, event: SeatLost) -> list[Effect]:
        return self.ensemble.seat_lost(event.member, event.now_ns)

    def _on_seat_leaving(self, event: SeatLeaving) -> list[Effect]:
        return self.ensemble.seat_leaving(event.member, event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.state is WriterState.ENDED:
            return []
        if self.in_flight.is_lent:
            return self._publish_if_idle(event.now_ns)
        effects = self.ensemble.tick(event.now_ns)
        if self.stall.until_ns is not None and self.stall.is_over(event.now_ns):
            error = self.ensemble.end_stall(event.now_ns)
            effects += self.ensemble.check_usable(event.now_ns) if error is None else self._fail(error)
        return effects + self._publish_if_idle(event.now_ns)

    def _publish_if_idle(self, now_ns: int) -> list[Effect]:
        if not self.owes_lac or now_ns < self.lac_publishing.due_ns(self.last_active_ns):
            return []
        sends = self.lac_publishing.publish()
        self.ensemble.shrink(now_ns)
        return sends

    def _on_hint_due(self, event: HintDue) -> list[Effect]:
        return self.lac_publishing.hint_all() if self.owes_hint else []

    def _hint_new_follower(self, number: int) -> list[Effect]:
        """A bookie says behind the ack quorum that a reader waits there: it gets the LAC that others made."""
        return self.lac_publishing.hint(number) if self.owes_lac else []

    HANDLERS: ClassVar[Handlers] = {
        FrameSealed: _on_frame,
        AddedNearby: _on_added_nearby,
        CourseEnded: _on_course_ended,
        HintDue: _on_hint_due,
        Answered: _on_answered,
        AddsAnswered: _on_adds_answered,
        SendFailed: _on_send_failed,
        Transacted: _on_outcome,
        TransactRefused: _on_refused,
        TransactUnknown: _on_outcome,
        KeyRead: _on_key_read,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        SeatLost: _on_seat_lost,
        SeatLeaving: _on_seat_leaving,
        CloseRequested: _on_close,
        Tick: _on_tick,
    }
