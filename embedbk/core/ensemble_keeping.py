"""Keeping the ensemble of a ledger that is written: what follows when bookies fail, are slow, leave or come back (P4).

Decides which seat has failed, when an ensemble change is due and is tried again, who goes on in a seat, and whether
adds wait for bookies. One change at a time: what else fails is decided when it is settled (P4.2).
Leaves to others: which seats are too slow (`slow_seats`), which bookies take failed seats, are asked and taken back
(`seat_candidates`), how long adds wait (`stall`), what is published (`change_publishing`), and to the writer what ends
the handle. Pure: the times come with events.
"""

from __future__ import annotations

import enum
from typing import Any

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.messages import Control
from embedbk.core.backlog import SILENT_AT_BOUND
from embedbk.core.change_publishing import ChangePublishing
from embedbk.core.client_words import BookieInfo, CopiesMissed, EnsembleChanged, Send
from embedbk.core.in_flight import InFlight
from embedbk.core.lac_publishing import LacPublishing
from embedbk.core.machine import Effect, earliest
from embedbk.core.placement import Chance
from embedbk.core.seat_candidates import SeatCandidates
from embedbk.core.slow_seats import SlowSeats
from embedbk.core.stall import Stall, not_enough_bookies
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import NotEnoughBookies
from embedbk.ids import Member

__all__ = ["EnsembleKeeping", "MayChange"]

# Failures that do not pass by themselves: a bookie that answers so is replaced also where change is delayed.
_LASTING = frozenset({Status.READ_ONLY.name, Status.IN_LIMBO.name, Status.WRONG_INCARNATION.name})


class MayChange(enum.Enum):
    """Which seats get another holder."""

    ANY = "any"  # Also that of a bookie that is late, silent at the bound, or drained.
    FAILED = "failed"  # The handle closes, and its outstanding adds need their quorum.
    NONE = "none"  # The handle failed or ended.


class EnsembleKeeping:
    """The ensemble of one writing handle. It has no error: what ends the handle is given to the writer."""

    __slots__ = (
        "candidates",
        "changes",
        "in_flight",
        "lac_publishing",
        "may_change",
        "options",
        "refusal",
        "retry_at",
        "slow_seats",
        "stall",
    )

    def __init__(
        self,
        changes: ChangePublishing,
        in_flight: InFlight,
        lac_publishing: LacPublishing,
        stall: Stall,
        chance: Chance,
        options: WriterOptions,
    ) -> None:
        self.changes = changes  # It has the metadata, the bookies, and the change under way.
        self.in_flight = in_flight  # It has the seats, and what they owe.
        self.lac_publishing = lac_publishing  # It is told who has a seat that it knows nothing of (P6.2).
        self.stall = stall  # The writer tells it of adds.
        self.options = options
        self.candidates = SeatCandidates(in_flight, chance, options)
        self.slow_seats = SlowSeats(in_flight, options)
        self.may_change = MayChange.ANY
        # Metadata would not take the last change: until when none is tried, and why.
        self.refusal: tuple[int, str] | None = None
        self.retry_at: int | None = None  # When replacement or an unsettled CAS is tried again.

    def getstate(self) -> dict[str, Any]:
        """The state for digests: what is not the writer's as well."""
        names = ("candidates", "may_change", "refusal", "retry_at", "slow_seats")
        return {name: getattr(self, name) for name in names}

    def deadline_ns(self) -> int | None:
        """When to look at the seats next, whatever happens."""
        in_flight = self.in_flight
        is_open = self.may_change is MayChange.ANY
        slow = self.slow_seats.look_ns(self._may_replace_late(), is_open)
        busy = in_flight.busy_deadline_ns() if in_flight.has_busy else None
        return earliest(slow, self.retry_at, self.stall.until_ns, busy)

    def begin_close(self) -> None:
        """From now on seats change for the adds that are outstanding only."""
        if self.may_change is MayChange.ANY:
            self.may_change = MayChange.FAILED

    def stop(self) -> None:
        """The handle is over: no seat changes, and nobody waits."""
        self.may_change = MayChange.NONE
        self.stall.until_ns, self.stall.is_short = None, False

    def shrink(self, now_ns: int) -> None:
        """Keep as little as can be, where no change is under way."""
        if self.changes.proposal is None:
            self.in_flight.shrink(now_ns)
            if not self.in_flight.has_failed:
                self.refusal = None
                if self.candidates.failures:
                    self.candidates.forget_past(now_ns)

    # Seats that failed.

    def seat_failed(self, number: int, reason: str, now_ns: int, *, stays_away: bool = False) -> list[Effect]:
        """stays_away: it is known to be no passing failure (P4.6)."""
        if self.may_change is MayChange.NONE:
            return []
        seating = self.in_flight.seating(number)
        if seating is None:
            return []
        stays_away = stays_away or reason in _LASTING
        if not self.in_flight.fail(number, reason, stays_away=stays_away):
            # It failed before, as a rule by its link, and may have been tolerated.
            return self.hear_of_absence(seating.member, now_ns) if stays_away else []
        self.candidates.note_failure(seating.member.bookie_id, now_ns)
        return self.look_again(now_ns)

    def look_again(self, now_ns: int) -> list[Effect]:
        """Replace failed seats, where that is due."""
        effects = self._consider_change(now_ns)
        self.note_stall(now_ns)
        return effects

    def _consider_change(self, now_ns: int) -> list[Effect]:
        """Replace failed seats, one change at a time: further failures are decided after it is settled (P4.2)."""
        if self.may_change is MayChange.NONE or self.changes.proposed is not None:
            return []
        closes_now = self.may_change is MayChange.FAILED and not self.in_flight.pending_count
        if closes_now or not self.in_flight.failed_seats:
            return []  # What is acknowledged needs no replacement to be closed.
        tolerated_until_ns = self.candidates.tolerated_until_ns(self.changes.bookies)
        if tolerated_until_ns is not None:
            self.retry_at = max(tolerated_until_ns, now_ns + 1)
            return []
        self.retry_at = now_ns + self.options.retry_ns
        if self.changes.count >= self.options.changes_max:
            return self.check_usable(now_ns)
        if self.refusal is not None and now_ns < self.refusal[0]:
            self.retry_at = self.refusal[0] if self.in_flight.has_usable_quorum() else self.retry_at
            return self.check_usable(now_ns)
        proposal = self.candidates.replace_failed(self.changes.usable, now_ns)
        if proposal is None:
            return self.check_usable(now_ns)
        self.retry_at = None
        self.stall.is_short = False
        return self.changes.change(proposal)

    def seat_lost(self, member: Member, now_ns: int) -> list[Effect]:
        """Replace a lost bookie, also where changes are delayed (P4.6). A bookie that is registered again by now is not
        lost."""
        if any(info.member == member for info in self.changes.bookies):
            return []
        effects: list[Effect] = []
        for seating in self.in_flight.seatings:
            if seating.member == member:
                effects += self.seat_failed(
                    seating.number, "not registered any more", now_ns, stays_away=True
                )
        return effects

    def send_owed(self, now_ns: int) -> list[Effect]:
        """Go on with seats that were busy."""
        in_flight = self.in_flight
        sends, lost = in_flight.send_owed(now_ns, in_flight.done, in_flight.done_length)
        effects: list[Effect] = list(sends)
        for number in lost:
            effects += self.seat_failed(number, "it is busy, and too far behind", now_ns)
        return effects

    # The change is settled.

    def seat_proposed(self, now_ns: int) -> list[Effect]:
        """Seat the ensemble that is published, and send the new ones all that is outstanding (P4.4)."""
        in_flight, proposal = self.in_flight, self.changes.settle()
        self.refusal = None
        if in_flight.times is not None:
            in_flight.times.be_calm(now_ns)
        # A bookie that failed while the change was in flight is still among the seatings, and failed.
        kept = {each.number for each in proposal.seatings}
        has_missed = in_flight.have_missed(each for each in in_flight.seatings if each.number not in kept)
        fresh = in_flight.replace(proposal.seatings)
        if fresh:
            self.lac_publishing.note_seated()
        # Done while the change was in flight, by those who keep their seats: a new member is not sent it, also where
        # the one before it, late or drained, had all of it.
        has_missed = has_missed or (bool(fresh) and in_flight.done >= proposal.first_entry)
        effects: list[Effect] = [EnsembleChanged(proposal.first_entry, in_flight.members)]
        effects += [CopiesMissed()] if has_missed else []
        effects += in_flight.resend(fresh, now_ns, in_flight.done, in_flight.done_length)
        return effects

    def note_refused(self, reason: str, now_ns: int) -> bool:
        """Metadata would not take the change: none is tried for a while. Returns whether this one is dropped, as it
        never will be published."""
        pause_ns = self.options.refused_ns
        if self.in_flight.pending_count and not self.in_flight.has_usable_quorum():
            # Adds wait for this change, and fail when their time is over: it is tried again within that.
            pause_ns = min(pause_ns, self.options.quorum_wait_ns // 4)
        until_ns = now_ns + pause_ns
        self.refusal = (until_ns, reason)
        if self.changes.is_unsettled:
            # A change before may land yet: until metadata says more, adds need their quorum in both (P2.2, P4.2).
            self.retry_at = until_ns
            return False
        return True

    def read_later(self, now_ns: int) -> None:
        """Metadata gave no answer of what is under way: it is read again."""
        self.retry_at = now_ns + self.options.retry_ns

    # Bookies that failed, and may be there again (P4.5).

    def note_list(self, bookies: tuple[BookieInfo, ...], now_ns: int) -> list[Effect]:
        self.candidates.note_list(self.changes.bookies, bookies, now_ns)
        self.changes.note_list(bookies)
        return self._look_for_bookies(now_ns)

    def _look_for_bookies(self, now_ns: int) -> list[Effect]:
        """For failed seats: which bookies can take them, which go on in their seats, which to ask."""
        effects = [*self._ask(now_ns), *self._consider_change(now_ns), *self._take_back(now_ns)]
        self.note_stall(now_ns)
        return effects

    def _ask(self, now_ns: int) -> list[Effect]:
        """Ask bookies that failed whether they are there (P4.5)."""
        if self.may_change is MayChange.NONE or not self.in_flight.has_failed:
            return []
        is_short = self.stall.is_short and self.stall.may_take_back(now_ns, self.options.quorum_wait_ns)
        ledger_id, tag = self.changes.metadata.ledger_id, ("ask", 0, self.in_flight.done)
        return [
            Send(member, LacRequest(member.incarnation, ledger_id), tag)
            for member in self.candidates.ask(self.changes.bookies, now_ns, is_short=is_short)
        ]

    def hear_asked(self, member: Member, answer: Control, now_ns: int) -> list[Effect]:
        """A bookie that was asked answered: whatever it knows of the ledger, it is there."""
        if self.may_change is MayChange.NONE or not isinstance(answer, LacAnswer):
            return []
        if Status(answer.status).name in _LASTING:
            return self.hear_of_absence(member, now_ns)
        if answer.status not in (Status.OK, Status.NO_SUCH_LEDGER):
            return []
        self.candidates.note_answer(member.bookie_id)
        effects = self._take_back(now_ns)
        return effects + self.look_again(now_ns)

    def hear_of_absence(self, member: Member, now_ns: int) -> list[Effect]:
        """The bookie that failed stays away: it has another disk, is in limbo, or is not registered any more (P4.6)."""
        seatings = self.in_flight.seatings
        known = [each for each in seatings if each.member == member and each.failure is not None]
        if all(each.stays_away for each in known):
            return []
        for seating in known:
            seating.stays_away = True
        return self.look_again(now_ns)

    def _take_back(self, now_ns: int) -> list[Effect]:
        """A bookie that failed and is listed as writable goes on in its seat, with all that is outstanding (P4.5): when
        it answers again, where adds wait for it or it was only tolerated; else when it was left alone for a while and
        no other bookie has taken its seat."""
        is_over = self.may_change is MayChange.NONE
        if self.changes.proposed is not None or is_over or not self.in_flight.has_failed:
            return []
        is_short = self.stall.is_short
        if is_short and not self.stall.may_take_back(now_ns, self.options.quorum_wait_ns):
            return []
        able = self.candidates.there_again(self.changes.bookies, now_ns, is_short=is_short)
        failed = (each for each in self.in_flight.seatings if each.failure is not None)
        has_missed = self.in_flight.have_missed(each for each in failed if each.member in able)
        back = self.in_flight.forgive(each.bookie_id for each in self.in_flight.members if each in able)
        if back:
            self.lac_publishing.note_seated()
        if is_short and self.in_flight.has_usable_quorum():
            self.stall.relieve(has_outstanding=self.in_flight.pending_count > 0)
        effects: list[Effect] = [CopiesMissed()] if has_missed else []
        in_flight = self.in_flight
        return effects + in_flight.resend(back, now_ns, in_flight.done, in_flight.done_length)

    # Bookies that are late (P4.7), silent at the bound of what is kept for those behind (P4.5), or drained (P11.3).

    def _may_replace_late(self) -> bool:
        """Nothing else is under way, and changes are left for those that fail. Where a bookie has failed and
        still has its seat, there is none to take a seat."""
        return (
            self.may_change is MayChange.ANY
            and self.changes.proposal is None
            and not self.stall.is_short
            and not self.options.delays_change
            and 2 * self.changes.count < self.options.changes_max
            and not self.in_flight.has_failed
        )

    def _look_for_late(self, now_ns: int) -> list[Effect]:
        """Replace late bookies. They have not failed: what they answer counts until the change is settled, and if no
        bookie can be found for their seats, they stay."""
        late = self.slow_seats.late(now_ns) if self._may_replace_late() else []
        proposal = self.candidates.replace_late(late, self.changes.usable, now_ns) if late else None
        if proposal is None:
            return []
        for each in late:
            self.candidates.note_failure(each.member.bookie_id, now_ns)
        effects = self.changes.change(proposal)
        self.slow_seats.note_replaced()
        return effects

    def _look_for_silent(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for seat in self.slow_seats.silent(now_ns) if self.may_change is MayChange.ANY else ():
            # Still: the handle can go on without it, beside those before it.
            if self.slow_seats.is_silent(seat):
                number = self.in_flight.seatings[seat].number
                effects += self.seat_failed(number, SILENT_AT_BOUND, now_ns)
        return effects

    def seat_leaving(self, member: Member, now_ns: int) -> list[Effect]:
        """Move a drained bookie's seat. It has not failed: it gets frames, and its answers count, until another has its
        seat; as long as no other can take it, it stays (P11.3). A bookie that is not drained any more stays, too."""
        leaving = {info.member for info in self.changes.bookies if info.is_leaving}
        if member not in leaving or not self._may_move():
            return []
        seatings = [each for each in self.in_flight.seatings if each.member == member]
        proposal = self.candidates.move(seatings, self.changes.usable, now_ns)
        if not seatings or proposal is None:
            return []
        self.stall.is_short = False  # Those that failed give their seats away along with it.
        effects = self.changes.change(proposal)
        self.note_stall(now_ns)
        return effects

    def _may_move(self) -> bool:
        """Whether a seat may move: nothing else is under way, and half of the changes stay reserved for failures."""
        return (
            self.may_change is MayChange.ANY
            and self.changes.proposed is None
            and 2 * self.changes.count < self.options.changes_max
        )

    # Adds that wait for bookies (P4.5).

    def note_stall(self, now_ns: int) -> None:
        self.stall.note(
            now_ns,
            self.options.quorum_wait_ns,
            is_changing=self.changes.proposal is not None,
            is_usable=self.in_flight.has_usable_quorum(),
            is_waited_for=self.in_flight.pending_count > 0,
        )

    def check_usable(self, now_ns: int) -> list[Effect]:
        """Go on while every write set keeps Qa unfailed members, else the adds wait for a bookie that comes, and fail
        when none does (P4.5).

        The metadata is read first: to a writer that was stopped and taken over meanwhile, whose links are all
        gone, the takeover is the news (P3.6).
        """
        if self.stall.is_short or self.in_flight.has_usable_quorum():
            return []
        self.stall.begin_shortage(
            now_ns,
            self.options.quorum_wait_ns,
            self.options.retry_ns,
            is_waited_for=self.in_flight.pending_count > 0,
        )
        return [*self.changes.read(), *self._ask(now_ns)]

    def end_stall(self, now_ns: int) -> NotEnoughBookies | None:
        """The time of the adds is over: the error that ends the handle. None: enough bookies can be used, or it is not
        known yet whether the ledger is still this handle's (`check_usable`)."""
        self.stall.until_ns = None
        error = self.end_shortage(now_ns)
        if error is None and self.changes.proposed is not None and not self.in_flight.has_usable_quorum():
            return self._not_enough_bookies(now_ns)  # Metadata was asked already, and did not answer in time.
        return error

    def end_shortage(self, now_ns: int) -> NotEnoughBookies | None:
        """As `end_stall`, for a shortage: metadata told that the ledger is still this handle's, or does not answer."""
        if not self.stall.end_shortage() or self.in_flight.has_usable_quorum():
            return None  # A bookie was forgiven meanwhile.
        return self._not_enough_bookies(now_ns)

    def _not_enough_bookies(self, now_ns: int) -> NotEnoughBookies:
        changes = self.changes
        return not_enough_bookies(
            changes.metadata,
            self.in_flight.seatings,
            changes.bookies,
            self.candidates.failures,
            now_ns,
            change_count=changes.count if changes.count >= self.options.changes_max else None,
            is_published=changes.proposed is None,
            refusal="" if self.refusal is None else self.refusal[1],
        )

    # Time.

    def tick(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for number, reason in self.slow_seats.overdue(now_ns):
            effects += self.seat_failed(number, reason, now_ns)
        effects += self._look_for_late(now_ns)
        effects += self._look_for_silent(now_ns)
        if self.in_flight.has_busy and self.may_change is not MayChange.NONE:
            effects += self.send_owed(now_ns)
        if self.retry_at is not None and now_ns >= self.retry_at:
            self.retry_at = None
            effects += self._try_again(now_ns)
        return effects

    def _try_again(self, now_ns: int) -> list[Effect]:
        if self.changes.proposed is not None:
            return self.changes.read() if self.changes.is_unsettled else []
        return self._look_for_bookies(now_ns)
