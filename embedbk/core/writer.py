"""The creator of a ledger: sends frames, confirms them in order, changes ensembles, closes (P3, P4, P5.1).

Decides: when entries are acknowledged (the LAC), when and how a failed bookie is replaced, when the handle is over.
Without metadata it goes on as long as its bookies do (P10.4).
Leaves to others: making frames (packer), carrying requests and compare-and-sets (host), recovery (`recovery`), which
seats are too slow (`slow_seats`), which bookies take failed seats, are asked and taken back (`seat_candidates`), the
LAC of a pause (`lac_publishing`).

States:  OPEN --close--> CLOSING --settled--> ENDED        FAILED: the LAC is frozen, only close remains (P3.6)
           \\--a failed add--> FAILED --close--> CLOSING
"""

from __future__ import annotations

import enum
from typing import ClassVar

from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import (
    Durability,
    LedgerMetadata,
    LedgerState,
    decode_changed_metadata,
)
from embedbk.codec.messages import AddAnswer, Control, LacAnswer, LacRequest, Status
from embedbk.config import Quorum
from embedbk.core.backlog import SILENT_AT_BOUND
from embedbk.core.client_words import (
    AddedNearby,
    AddFailed,
    AddsAnswered,
    Answered,
    BookieInfo,
    BookiesChanged,
    Confirmed,
    CopiesMissed,
    CourseEnded,
    EnsembleChanged,
    FrameSealed,
    HintDue,
    Received,
    SeatLeaving,
    SeatLost,
    Send,
    SendFailed,
)
from embedbk.core.ensemble_change import Proposal, change_fragments
from embedbk.core.fragment_sums import sums_with
from embedbk.core.in_flight import InFlight
from embedbk.core.lac_publishing import LacPublishing
from embedbk.core.lateness import AnswerTimes
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import KeyRead, MetadataFailed, Transacted, TransactRefused, TransactUnknown
from embedbk.core.naming import Naming, newly_seated
from embedbk.core.placement import Chance
from embedbk.core.publishing import Publishing, Settlement
from embedbk.core.seat_candidates import SeatCandidates
from embedbk.core.slow_seats import SlowSeats
from embedbk.core.stall import Stall, not_enough_bookies
from embedbk.core.vocabulary import CloseRequested, Ended, Tick
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    PeerError,
    StorageError,
    WrongPassword,
    ensure,
)
from embedbk.ids import NO_ENTRY, Member

__all__ = ["LARGE_FRAME_BYTES", "Writer", "WriterState"]

LARGE_FRAME_BYTES = 64 << 10  # Beside such a one the messages of another cost little.
# Failures that do not pass by themselves: a bookie that answers so is replaced also where change is delayed.
_LASTING = frozenset({Status.READ_ONLY.name, Status.IN_LIMBO.name, Status.WRONG_INCARNATION.name})


class WriterState(enum.Enum):
    OPEN = "open"
    FAILED = "failed"
    CLOSING = "closing"
    ENDED = "ended"


class Writer(Machine):
    """The one writer of one ledger."""

    __slots__ = (
        "__dict__",  # Empty: room for an observer of the core's steps (testing).
        "bookies",
        "candidates",
        "change_count",
        "error",
        "in_flight",
        "lac_publishing",
        "lap",
        "last_active_ns",
        "metadata",
        "options",
        "proposal",
        "publishing",
        "refusal",
        "retry_at",
        "revision",
        "slow_seats",
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
        assert metadata.state == LedgerState.OPEN
        self.metadata = metadata  # As last published, with its revision.
        self.revision = revision
        self.bookies = bookies  # The list that was told last.
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
        self.candidates = SeatCandidates(self.in_flight, chance, options)
        self.slow_seats = SlowSeats(self.in_flight, options)
        self.proposal: Proposal | None = None  # From sending its CAS until the outcome is settled (P4.2).
        self.publishing: Publishing | None = None  # From the first change or close on.
        self.change_count = 0  # Ensemble changes published.
        # Metadata would not take the last change: until when none is tried, and why.
        self.refusal: tuple[int, str] | None = None
        self.retry_at: int | None = None  # When replacement or an unsettled CAS is tried again.
        self.stall = Stall()
        self.lap = NO_ENTRY  # Last add pushed.
        self.last_active_ns = 0

    # What the host and the face may look at.

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id

    @property
    def quorum(self) -> Quorum:
        return self.metadata.quorum

    @property
    def lac(self) -> int:
        return self.in_flight.done

    @property
    def proposed(self) -> LedgerMetadata | None:
        """The metadata being published: a change or the close."""
        return None if self.publishing is None else self.publishing.proposed

    @property
    def is_unsettled(self) -> bool:
        """A compare-and-set came back unknown: it is still in flight (P2.2)."""
        return self.publishing is not None and self.publishing.is_unsettled

    def wants_frame(self, *, is_full: bool, waiting: int = 1) -> bool:
        """May another frame be sealed now?

        One that is not full when none is out, or beside one other that has no more entries than it, or is large:
        frames grow with load, and where little is appended none waits. Two at a time at any load would be many more
        messages, whose processor time is what appends wait for then.

        waiting: entries in the open frame.
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
        in_flight = self.in_flight
        if in_flight.is_lent:
            # A silent seat ends the course first.
            return self.lac_publishing.due_ns(self.last_active_ns) if self.owes_lac else None
        slow = self.slow_seats.look_ns(self._may_replace_late(), self.state is WriterState.OPEN)
        idle = self.lac_publishing.due_ns(self.last_active_ns) if self.owes_lac else None
        busy = in_flight.busy_deadline_ns() if in_flight.has_busy else None
        return earliest(slow, self.retry_at, self.stall.until_ns, idle, busy)

    @property
    def wants_bookies(self) -> bool:
        """True only while a replacement is looked for: as a rule in none of very many open ledgers."""
        return self.proposal is not None or self.stall.is_short or self.in_flight.has_failed

    @property
    def is_common(self) -> bool:
        """Nothing but plain adds is under way: any Qa answers of the seats as they are confirm a frame, and until there
        are so many, an answer changes nothing that anybody would see (native/SHORTCUTS.md, "Answers")."""
        return (
            self.state is WriterState.OPEN
            and self.proposal is None
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
        return is_whole and self.is_common and self.proposed is None and not self.in_flight.is_lent

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
        elif self.proposal is not None:
            self._note_stall(event.now_ns)
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
            return self._on_asked(event.member, answer, event.now_ns)
        if kind != "add":
            return []  # It answers an explicit LAC: nothing depends on it.
        if not isinstance(answer, AddAnswer):
            return self._seat_failed(
                number, getattr(answer, "text", "an answer of the wrong kind"), event.now_ns
            )
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
                effects += self._send_owed(event.now_ns)
            self._shrink(event.now_ns)
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
        return self._seat_failed(number, Status(answer.status).name, event.now_ns)

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
        self._shrink(event.now_ns)
        return effects

    def _shrink(self, now_ns: int) -> None:
        if self.proposal is None:
            self.in_flight.shrink(now_ns)
            if not self.in_flight.has_failed:
                self.refusal = None
                if self.candidates.failures:
                    self.candidates.forget_past(now_ns)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if event.tag[0] == "ask":
            return self._hear_of_absence(event.member, event.now_ns) if event.is_other_disk else []
        if event.tag[0] != "add":
            return []
        return self._seat_failed(event.tag[1], event.reason, event.now_ns, stays_away=event.is_other_disk)

    def _send_owed(self, now_ns: int) -> list[Effect]:
        """Go on with seats that were busy."""
        sends, lost = self.in_flight.send_owed(now_ns, self.lac, self.in_flight.done_length)
        effects: list[Effect] = list(sends)
        for number in lost:
            effects += self._seat_failed(number, "it is busy, and too far behind", now_ns)
        return effects

    def _advance_received(self) -> list[Effect]:
        """Move the mark of received entries. Deferred sync has two marks; only the LAC is ever published (P3.2)."""
        if self.error is not None or not self.in_flight.is_deferred:
            return []
        if not self.in_flight.advance_received(self.proposal.seatings if self.proposal else None):
            return []
        ensure(
            self.lac <= self.in_flight.received <= self.lap, "what is received moved outside what was sent"
        )
        return [Received(self.in_flight.received, self.in_flight.received_length)]

    def _advance(self, now_ns: int) -> list[Effect]:
        before = self.in_flight.done
        if self.in_flight.is_lent:
            return []  # The course confirms.
        if self.error is not None or not self.in_flight.advance(
            self.proposal.seatings if self.proposal else None
        ):
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
        self.stall.until_ns, self.stall.is_short = None, False
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

    # Ensemble change.

    def _seat_failed(
        self, number: int, reason: str, now_ns: int, *, stays_away: bool = False
    ) -> list[Effect]:
        """stays_away: it is known to be no passing failure (P4.6)."""
        if self.error is not None or self.state is WriterState.ENDED:
            return []
        seating = self.in_flight.seating(number)
        if seating is None:
            return []
        stays_away = stays_away or reason in _LASTING
        if not self.in_flight.fail(number, reason, stays_away=stays_away):
            # It failed before, as a rule by its link, and may have been tolerated.
            return self._hear_of_absence(seating.member, now_ns) if stays_away else []
        self.candidates.note_failure(seating.member.bookie_id, now_ns)
        effects = self._consider_change(now_ns)
        self._note_stall(now_ns)
        return effects

    def _consider_change(self, now_ns: int) -> list[Effect]:
        """Replace failed seats, one change at a time: further failures are decided after it is settled (P4.2)."""
        if self.error is not None or self.proposed is not None or self.state is WriterState.ENDED:
            return []
        closes_now = self.state is WriterState.CLOSING and not self.in_flight.pending_count
        if closes_now or not self.in_flight.failed_seats:
            return []  # What is acknowledged needs no replacement to be closed.
        tolerated_until_ns = self.candidates.tolerated_until_ns(self.bookies)
        if tolerated_until_ns is not None:
            self.retry_at = max(tolerated_until_ns, now_ns + 1)
            return []
        self.retry_at = now_ns + self.options.retry_ns
        if self.change_count >= self.options.changes_max:
            return self._check_usable(now_ns)
        if self.refusal is not None and now_ns < self.refusal[0]:
            self.retry_at = self.refusal[0] if self.in_flight.has_usable_quorum() else self.retry_at
            return self._check_usable(now_ns)
        proposal = self.candidates.replace_failed(self._usable, now_ns)
        if proposal is None:
            return self._check_usable(now_ns)
        self.proposal = proposal
        self.retry_at = None
        self.stall.is_short = False
        return self._send_change()

    # Bookies that failed, and may be there again (P4.5).

    def _ask(self, now_ns: int) -> list[Effect]:
        """Ask bookies that failed whether they are there (P4.5)."""
        if self.error is not None or self.state is WriterState.ENDED or not self.in_flight.has_failed:
            return []
        is_short = self.stall.is_short and self.stall.may_take_back(now_ns, self.options.quorum_wait_ns)
        return [
            Send(member, LacRequest(member.incarnation, self.ledger_id), ("ask", 0, self.lac))
            for member in self.candidates.ask(self.bookies, now_ns, is_short=is_short)
        ]

    def _on_asked(self, member: Member, answer: Control, now_ns: int) -> list[Effect]:
        """A bookie that was asked answered: whatever it knows of the ledger, it is there."""
        if self.error is not None or self.state is WriterState.ENDED or not isinstance(answer, LacAnswer):
            return []
        if Status(answer.status).name in _LASTING:
            return self._hear_of_absence(member, now_ns)
        if answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            return []
        self.candidates.note_answer(member.bookie_id)
        return self._use_who_is_there(now_ns)

    def _use_who_is_there(self, now_ns: int) -> list[Effect]:
        effects = self._take_back(now_ns)
        effects += self._consider_change(now_ns)
        self._note_stall(now_ns)
        return effects

    def _hear_of_absence(self, member: Member, now_ns: int) -> list[Effect]:
        """The bookie that failed stays away: it has another disk, is in limbo, or is not registered any more (P4.6)."""
        seatings = self.in_flight.seatings
        known = [each for each in seatings if each.member == member and each.failure is not None]
        if all(each.stays_away for each in known):
            return []
        for seating in known:
            seating.stays_away = True
        effects = self._consider_change(now_ns)
        self._note_stall(now_ns)
        return effects

    # Bookies that are late (P4.7).

    def _may_replace_late(self) -> bool:
        """Nothing else is under way, and changes are left for those that fail. Where a bookie has failed and
        still has its seat, there is none to take a seat."""
        return (
            self.state is WriterState.OPEN
            and self.proposal is None
            and not self.stall.is_short
            and not self.options.delays_change
            and 2 * self.change_count < self.options.changes_max
            and not self.in_flight.has_failed
        )

    def _look_for_late(self, now_ns: int) -> list[Effect]:
        """Replace late bookies. They have not failed: what they answer counts until the change is settled, and if no
        bookie can be found for their seats, they stay."""
        late = self.slow_seats.late(now_ns) if self._may_replace_late() else []
        proposal = self.candidates.replace_late(late, self._usable, now_ns) if late else None
        if proposal is None:
            return []
        for each in late:
            self.candidates.note_failure(each.member.bookie_id, now_ns)
        self.proposal = proposal
        effects = self._send_change()
        self.slow_seats.note_replaced()
        return effects

    # Bookies that are silent at the bound of what is kept for those behind (P4.5).

    def _look_for_silent(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for seat in self.slow_seats.silent(now_ns) if self.state is WriterState.OPEN else ():
            # Still: the handle can go on without it, beside those before it.
            if self.slow_seats.is_silent(seat):
                number = self.in_flight.seatings[seat].number
                effects += self._seat_failed(number, SILENT_AT_BOUND, now_ns)
        return effects

    def _note_stall(self, now_ns: int) -> None:
        self.stall.note(
            now_ns,
            self.options.quorum_wait_ns,
            is_changing=self.proposal is not None,
            is_usable=self.in_flight.has_usable_quorum(),
            is_waited_for=self.in_flight.pending_count > 0,
        )

    def _check_usable(self, now_ns: int) -> list[Effect]:
        """Go on while every write set keeps Qa unfailed members, else the adds wait for a bookie that comes, and fail
        when none does (P4.5).

        The metadata is read first: to a writer that was stopped and taken over meanwhile, whose links are all
        gone, the takeover is the news (P3.6).
        """
        if self.stall.is_short or self.in_flight.has_usable_quorum():
            return []
        if self.proposed is not None:
            # Metadata was asked already, and did not answer in time.
            return self._fail(self._not_enough_bookies(now_ns))
        self.stall.begin_shortage(
            now_ns,
            self.options.quorum_wait_ns,
            self.options.retry_ns,
            is_waited_for=self.in_flight.pending_count > 0,
        )
        return [*self._read_metadata(), *self._ask(now_ns)]

    def _take_back(self, now_ns: int) -> list[Effect]:
        """A bookie that failed and is listed as writable goes on in its seat, with all that is outstanding (P4.5): when
        it answers again, where adds wait for it or it was only tolerated; else when it was left alone for a while and
        no other bookie has taken its seat."""
        if self.proposed is not None or self.error is not None or not self.in_flight.has_failed:
            return []
        is_short = self.stall.is_short
        if is_short and not self.stall.may_take_back(now_ns, self.options.quorum_wait_ns):
            return []
        able = self.candidates.there_again(self.bookies, now_ns, is_short=is_short)
        failed = (each for each in self.in_flight.seatings if each.failure is not None)
        has_missed = self.in_flight.have_missed(each for each in failed if each.member in able)
        back = self.in_flight.forgive(each.bookie_id for each in self.in_flight.members if each in able)
        if is_short and self.in_flight.has_usable_quorum():
            self.stall.relieve(has_outstanding=self.in_flight.pending_count > 0)
        effects: list[Effect] = [CopiesMissed()] if has_missed else []
        return effects + self.in_flight.resend(back, now_ns, self.lac, self.in_flight.done_length)

    def _stand_still(self, now_ns: int) -> list[Effect]:
        """No client took the ledger over, as far as metadata can tell: wait on for a bookie."""
        return self._end_shortage(now_ns) if self.stall.is_over(now_ns) else []

    def _end_shortage(self, now_ns: int) -> list[Effect]:
        if not self.stall.end_shortage() or self.in_flight.has_usable_quorum():
            return []  # A bookie was forgiven meanwhile.
        return self._fail(self._not_enough_bookies(now_ns))

    def _not_enough_bookies(self, now_ns: int) -> NotEnoughBookies:
        return not_enough_bookies(
            self.metadata,
            self.in_flight.seatings,
            self.bookies,
            self.candidates.failures,
            now_ns,
            change_count=self.change_count if self.change_count >= self.options.changes_max else None,
            is_published=self.proposed is None,
            refusal="" if self.refusal is None else self.refusal[1],
        )

    @property
    def _usable(self) -> tuple[BookieInfo, ...]:
        return self.bookies if self.publishing is None else self.publishing.naming.usable(self.bookies)

    def _send_change(self) -> list[Effect]:
        assert self.proposal is not None
        fragments = change_fragments(self.metadata.fragments, self.proposal)
        publishing = self._begin_publishing()
        publishing.naming.choose(newly_seated(self.metadata.fragments, fragments), self.bookies)
        sums = sums_with(self.metadata, self.proposal.first_entry - 1, self.proposal.sums)
        changed = self.metadata.with_changes(fragments=fragments, sums=sums)
        return publishing.put(self.metadata, self.revision, changed)

    def _begin_publishing(self) -> Publishing:
        self.publishing = self.publishing or Publishing()
        return self.publishing

    def _on_outcome(self, event: Transacted | TransactUnknown | KeyRead) -> list[Effect]:
        """Take the outcome of the compare-and-set in flight."""
        assert self.publishing is not None
        heard = self.publishing.hear(event)
        if heard.error is not None:
            return self._give_up(heard.error)
        if heard.verdict is Settlement.OPEN:
            return heard.effects
        if heard.verdict is Settlement.NOT_MADE:
            return self._drop_change(event.now_ns)
        if heard.found is None:
            return self._overtaken(None)
        if heard.verdict is Settlement.PUBLISHED:
            return self._settled(event.now_ns, heard.found, heard.revision)
        return self._decide_on(event.now_ns, heard.found, heard.revision)

    def _on_transacted(self, event: Transacted | TransactUnknown) -> list[Effect]:
        return self._on_outcome(event) if self.publishing is not None else []

    def _settled(self, now_ns: int, published: LedgerMetadata, revision: int) -> list[Effect]:
        """What was proposed is published."""
        self.metadata, self.revision = published, revision
        if self.metadata.is_closed:
            return self._end(None)
        assert self.proposal is not None
        proposal, self.proposal = self.proposal, None
        self.refusal = None
        self.change_count += 1
        if self.in_flight.times is not None:
            self.in_flight.times.be_calm(now_ns)
        # A bookie that failed while the change was in flight is still among the seatings, and failed.
        kept = {each.number for each in proposal.seatings}
        has_missed = self.in_flight.have_missed(
            each for each in self.in_flight.seatings if each.number not in kept
        )
        fresh = self.in_flight.replace(proposal.seatings)
        # Done while the change was in flight, by those who keep their seats: a new member is not sent it, also where
        # the one before it, late or drained, had all of it.
        has_missed = has_missed or (bool(fresh) and self.lac >= proposal.first_entry)
        effects: list[Effect] = [EnsembleChanged(proposal.first_entry, self.in_flight.members)]
        effects += [CopiesMissed()] if has_missed else []
        effects += self.in_flight.resend(fresh, now_ns, self.lac, self.in_flight.done_length)
        effects += self._advance(now_ns)
        effects += self._consider_change(now_ns)
        self._note_stall(now_ns)
        if self.state is WriterState.CLOSING:
            effects += self._go_on_closing()
        return effects

    def _decide_on(self, now_ns: int, found: LedgerMetadata, revision: int) -> list[Effect]:
        """Another client's version stands where ours was to be published (P4.3)."""
        assert self.publishing is not None and self.proposed is not None
        is_change = self.proposal is not None and found.state == LedgerState.OPEN
        if is_change and found.fragments[-1] == self.proposed.fragments[-1]:
            self.publishing.settle()  # Our own content, whatever repair did to earlier fragments since.
            return self._settled(now_ns, found, revision)
        if found.state != LedgerState.OPEN or found.fragments[-1] != self.metadata.fragments[-1]:
            return self._overtaken(found)
        # Still open (repair touched an earlier fragment): decide again on the new version.
        self.metadata, self.revision = found, revision
        self.publishing.drop()
        return self._send_change() if self.proposal is not None else self._go_on_closing()

    def _read_metadata(self) -> list[Effect]:
        return self._begin_publishing().read(self.ledger_id)

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        """The compare-and-set was not run, and never will be: the metadata is full. The close ends with that; an
        ensemble change is dropped, and adds go on as where no bookie can be found (P4.5)."""
        if self.publishing is None or not self.publishing.is_outcome(event):
            return []
        has_only_to_close = self.state is WriterState.CLOSING and not self.in_flight.pending_count
        if self.proposal is None or (has_only_to_close and self.is_unsettled):
            return self._close_refused(event.reason)
        pause_ns = self.options.refused_ns
        if self.in_flight.pending_count and not self.in_flight.has_usable_quorum():
            # Adds wait for this change, and fail when their time is over: it is tried again within that.
            pause_ns = min(pause_ns, self.options.quorum_wait_ns // 4)
        until_ns = event.now_ns + pause_ns
        self.refusal = (until_ns, event.reason)
        if self.is_unsettled:
            # A change before may land yet: until metadata says more, adds need their quorum in both (P2.2, P4.2).
            self.retry_at = until_ns
            return []
        return self._drop_change(event.now_ns)

    def _forget_proposal(self) -> None:
        self.proposal = None
        if self.publishing is not None:
            self.publishing.drop()

    def _drop_change(self, now_ns: int) -> list[Effect]:
        """Drop the change, which was not published and never will be."""
        self._forget_proposal()
        effects = self._advance(now_ns)
        effects += self._consider_change(now_ns)
        self._note_stall(now_ns)
        return effects + (self._go_on_closing() if self.state is WriterState.CLOSING else [])

    def _close_refused(self, reason: str) -> list[Effect]:
        error = MetadataUnavailable(
            f"ledger {self.ledger_id} could not be closed behind entry {self.lac}: {reason}",
            definite=not self.is_unsettled,  # One before may have landed, or may land yet (P2.2).
            hint="what is acknowledged is kept; make room in the metadata, then recover the ledger",
        )
        failed = [] if self.error is not None else [self._failed(error)]
        return [*failed, *self._end(error)]

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        if self.publishing is None:
            return self._stand_still(event.now_ns)
        self.publishing.note_unread()
        if self.proposed is None:
            return self._stand_still(event.now_ns)
        self.publishing.is_unsettled = True  # Whatever the read was for, only another read tells.
        self.retry_at = event.now_ns + self.options.retry_ns
        return []

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        if self.proposed is not None:
            return self._on_outcome(event)
        if self.publishing is None or Naming.is_mine(event):
            return []
        self.publishing.is_reading = False
        if not self.stall.is_short:
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
        self._forget_proposal()
        if self.state is WriterState.CLOSING:
            failed = [] if self.error is not None else [self._failed(error)]
            return [*failed, *self._end(error)]
        return self._fail(error)

    # Closing.

    def _on_close(self, event: CloseRequested) -> list[Effect]:
        if self.state in (WriterState.CLOSING, WriterState.ENDED):
            return []
        self.state = WriterState.CLOSING
        return self._go_on_closing()

    def _go_on_closing(self) -> list[Effect]:
        """Outstanding adds first finish or fail, a change in flight is settled; then CAS to CLOSED (P5.1)."""
        if self.in_flight.pending_count or self.proposal is not None or self.proposed is not None:
            return []
        last, length = self.lac, self.in_flight.done_length
        sums = sums_with(self.metadata, last, self.in_flight.sums_through(last))
        closed = self.metadata.with_changes(
            state=LedgerState.CLOSED, last_entry=last, length=length, sums=sums
        )
        return self._begin_publishing().put(self.metadata, self.revision, closed)

    def _end(self, error: EmbedbkError | None) -> list[Effect]:
        self.state = WriterState.ENDED
        self._forget_proposal()
        self.in_flight.give_up()
        return [Ended(error, (self.lac, self.in_flight.done_length))]

    # Time, and what the watch says.

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.candidates.note_list(self.bookies, event.bookies, event.now_ns)
        self.bookies = event.bookies
        if self.publishing is not None:
            self.publishing.naming.listed(event.bookies)
        return self._look_for_bookies(event.now_ns)

    def _on_seat_lost(self, event: SeatLost) -> list[Effect]:
        """Replace a lost bookie, also where changes are delayed (P4.6). A bookie that is registered again by now is not
        lost."""
        if any(info.member == event.member for info in self.bookies):
            return []
        effects: list[Effect] = []
        for seating in self.in_flight.seatings:
            if seating.member == event.member:
                effects += self._seat_failed(
                    seating.number, "not registered any more", event.now_ns, stays_away=True
                )
        return effects

    def _on_seat_leaving(self, event: SeatLeaving) -> list[Effect]:
        """Move a drained bookie's seat. It has not failed: it gets frames, and its answers count, until another has its
        seat; as long as no other can take it, it stays (P11.3). A bookie that is not drained any more stays, too."""
        leaving = {info.member for info in self.bookies if info.is_leaving}
        if event.member not in leaving or not self._may_move():
            return []
        seatings = [each for each in self.in_flight.seatings if each.member == event.member]
        proposal = self.candidates.move(seatings, self._usable, event.now_ns)
        if not seatings or proposal is None:
            return []
        self.proposal = proposal
        self.stall.is_short = False  # Those that failed give their seats away along with it.
        effects = self._send_change()
        self._note_stall(event.now_ns)
        return effects

    def _may_move(self) -> bool:
        """Whether a seat may move: nothing else is under way, and half of the changes stay reserved for failures."""
        return (
            self.state is WriterState.OPEN
            and self.error is None
            and self.proposed is None
            and 2 * self.change_count < self.options.changes_max
        )

    def _on_tick(self, event: Tick) -> list[Effect]:
        effects: list[Effect] = []
        if self.state is WriterState.ENDED:
            return effects
        if self.in_flight.is_lent:
            return self._publish_if_idle(event.now_ns)
        for number, reason in self.slow_seats.overdue(event.now_ns):
            effects += self._seat_failed(number, reason, event.now_ns)
        effects += self._look_for_late(event.now_ns)
        effects += self._look_for_silent(event.now_ns)
        if self.in_flight.has_busy and self.error is None:
            effects += self._send_owed(event.now_ns)
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            effects += self._try_again(event.now_ns)
        if self.stall.until_ns is not None and self.stall.is_over(event.now_ns):
            self.stall.until_ns = None
            effects += self._end_shortage(event.now_ns) or self._check_usable(event.now_ns)
        return effects + self._publish_if_idle(event.now_ns)

    def _try_again(self, now_ns: int) -> list[Effect]:
        if self.proposed is not None:
            return self._read_metadata() if self.is_unsettled else []
        return self._look_for_bookies(now_ns)

    def _look_for_bookies(self, now_ns: int) -> list[Effect]:
        """For failed seats: which bookies can take them, which go on in their seats, which to ask."""
        effects = [*self._ask(now_ns), *self._consider_change(now_ns), *self._take_back(now_ns)]
        self._note_stall(now_ns)
        return effects

    def _publish_if_idle(self, now_ns: int) -> list[Effect]:
        if not self.owes_lac or now_ns < self.lac_publishing.due_ns(self.last_active_ns):
            return []
        sends = self.lac_publishing.publish()
        self._shrink(now_ns)
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
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: _on_transacted,
        KeyRead: _on_key_read,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        SeatLost: _on_seat_lost,
        SeatLeaving: _on_seat_leaving,
        CloseRequested: _on_close,
        Tick: _on_tick,
    }
