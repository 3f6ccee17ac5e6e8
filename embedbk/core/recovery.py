"""Closing a ledger for its writer: fence, find the end, write back, close (P5.2).

Any number of clients may do this at once; all converge on the same last entry, and none of them serves anything before
the ledger is closed (P6.5). No acknowledged entry is ever beyond that end (P5.3). Decides: when fencing covers every
ack quorum, which copies are sound, when the ledger may be closed. Leaves to `forward_reading` whether an entry is
there. A verdict that cannot be had aborts with `RecoveryInconclusive` and leaves the ledger IN_RECOVERY for the next
one; "cannot tell" is never "no".

    MARKING --IN_RECOVERY published--> FENCING --coverage--> READING --end found, all written back--> CLOSING --> ENDED
       ^------------- the last fragment changed under us (only another recovery's closing can) ---------'
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.add_messages import AddAnswer, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, frame_of
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
)
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import ANYWHERE, FRAME_BYTES_MAX, Placement
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send, SendFailed
from embedbk.core.ensemble_change import change_fragments, propose
from embedbk.core.forward_reading import ForwardReading
from embedbk.core.in_flight import InFlight
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import KeyRead, MetadataFailed, Transacted, TransactRefused, TransactUnknown
from embedbk.core.placement import Chance
from embedbk.core.publishing import Publishing, Settlement
from embedbk.core.quorum import has_coverage, write_set
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import (
    EmbedbkError,
    MetadataUnavailable,
    NoSuchLedger,
    PeerError,
    RecoveryInconclusive,
    WrongPassword,
    ensure,
)

__all__ = ["Phase", "Recovery", "RecoveryOptions"]

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    ask_timeout_ns: int = 1_000 * _MS  # An unanswered fence or read is asked again.
    retry_ns: int = 50 * _MS  # Pause before an unknown is asked again.
    patience_ns: int = 10_000 * _MS  # Without any progress for this long: inconclusive.
    placement: Placement = ANYWHERE  # How bookies are chosen for failed seats.
    write_timeout_ns: int = 5_000 * _MS  # An unanswered write-back makes its bookie a failed one.
    avoid_ns: int = 1_000 * _MS  # A bookie that failed a write-back is left alone for this long.
    read_entries: int = 4096  # How far ahead one recovery read looks.
    written_bytes_max: int = 16 << 20  # Write-backs in flight; reading ahead pauses above it.


class Phase(enum.Enum):
    MARKING = "marking"
    FENCING = "fencing"
    READING = "reading"
    CLOSING = "closing"
    ENDED = "ended"


class Recovery(Machine):
    """One client's recovery of one ledger. Ends with the CLOSED metadata, or with an error."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        revision: int,
        ledger_key: bytes,
        nonce: int,
        bookies: tuple[BookieInfo, ...],
        chance: Chance,
        options: RecoveryOptions = RecoveryOptions(),
        mac_key: bytes = b"",
    ) -> None:
        self.metadata = metadata
        # The key of the ledger's tags; a copy with a wrong tag is a failed copy (P3.1).
        self.mac_key = mac_key
        self.revision = revision
        self.ledger_key = ledger_key
        self.nonce = nonce
        self.bookies = bookies
        self.chance = chance
        self.options = options
        self.phase = Phase.MARKING
        self.publishing = Publishing()
        self.in_flight: InFlight | None = None  # Write-backs, once the start is known.
        self.next_seating = 1  # Where the next round's seatings go on.
        self.avoid_until: dict[str, int] = {}  # Bookie id -> when it may be chosen for a seat again.
        self.round = 0  # Rises when recovery starts again; answers of an earlier round count for nothing.
        self.give_up_ns = 0
        self.retry_at: int | None = None
        self._begin_round()

    def _begin_round(self) -> None:
        """Reset what is known to the metadata version that this round starts from."""
        self.round += 1
        if self.in_flight is not None:
            self.next_seating = self.in_flight.next_seating
            self.in_flight = None
        # Reads go to this ensemble, whatever changes we make (P5.2c, I26).
        self.base = self.metadata.fragments[-1]
        self.quorum = self.metadata.quorum
        # With our own changes, published only by the closing CAS (P5.2d).
        self.fragments = self.metadata.fragments
        self.fenced = 0  # Seats whose fence is durable.
        # Never below the last fragment's first entry - 1 (P5.2b): what is before it is another fragment's matter.
        self.start = self.base.first_entry - 1
        self.start_length = self.base.length_before
        # Seat -> (when, first entry asked for) of its open question.
        self.asked: dict[int, tuple[int, int]] = {}
        self.pause_until: dict[int, int] = {}  # Seat -> when an unknown may be asked again.
        self.reasons: dict[int, str] = {}  # Seat -> the last reason for an unknown, for people.
        # From the start on, once that is known.
        self.forward = ForwardReading(self.ledger_id, self.quorum, 0)

    @property
    def ledger_id(self) -> int:
        return self.metadata.ledger_id

    @property
    def deadline_ns(self) -> int | None:
        if self.phase is Phase.ENDED:
            return None
        asked = min((when for when, _ in self.asked.values()), default=None)
        # Once all is written back an unanswered copy does not matter any more.
        written = self.in_flight if self.phase is Phase.READING else None
        limit_ns = self.options.write_timeout_ns
        return earliest(
            self.give_up_ns,
            self.retry_at,
            asked + self.options.ask_timeout_ns if asked is not None else None,
            min(self.pause_until.values(), default=None),
            written.fails_at_ns(limit_ns, limit_ns) if written else None,
            written.busy_deadline_ns() if written else None,
            min(self.avoid_until.values(), default=None),
        )

    # Marking: IN_RECOVERY is published before anything is fenced (P5.2a).

    def _on_started(self, event: Started) -> list[Effect]:
        return self._begin(event.now_ns)

    def _begin(self, now_ns: int) -> list[Effect]:
        self._progress(now_ns)
        if self.metadata.is_closed:
            return self._end(None)
        if self.metadata.state == LedgerState.IN_RECOVERY:
            return self._begin_fencing(now_ns)
        self.phase = Phase.MARKING
        return self._publish(self.metadata.with_changes(state=LedgerState.IN_RECOVERY))

    def _publish(self, proposed: LedgerMetadata) -> list[Effect]:
        return self.publishing.put(self.metadata, self.revision, proposed)

    def _on_outcome(self, event: Transacted | TransactUnknown | KeyRead) -> list[Effect]:
        """The compare-and-set in flight is settled; if refused, decide anew on what is published (P2.2, P5.2e)."""
        heard = self.publishing.hear(event)
        if heard.error is not None:
            return self._end(heard.error)
        if heard.verdict is Settlement.OPEN:
            return heard.effects
        if heard.verdict is Settlement.NOT_MADE:
            # A bookie that we wrote back to may not be named any more (P10.6): recover again, with others.
            self._begin_round()
            return self._begin(event.now_ns)
        if heard.found is None:
            return self._end(NoSuchLedger(f"ledger {self.ledger_id} was deleted while it was recovered"))
        before, self.metadata, self.revision = self.metadata, heard.found, heard.revision
        if heard.verdict is Settlement.PUBLISHED:
            return self._published(event.now_ns)
        return self._go_on_from(before, event.now_ns)

    def _published(self, now_ns: int) -> list[Effect]:
        self._progress(now_ns)
        return self._begin_fencing(now_ns) if self.phase is Phase.MARKING else self._end(None)

    def _go_on_from(self, before: LedgerMetadata, now_ns: int) -> list[Effect]:
        """Continue from another version of the metadata than the one that we knew."""
        self.publishing.drop()
        if self.metadata.is_closed:
            return self._end(None)  # Another recoverer's result is ours (P5.2e).
        if self.phase is Phase.CLOSING and self.metadata.fragments[-1] == before.fragments[-1]:
            return self._close()  # Only earlier fragments changed (repair): the verdicts stand.
        self._begin_round()
        return self._begin(now_ns)

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        """The metadata did not run it, and never will: report at once what is full. A later recovery continues from
        what stands."""
        if not self.publishing.is_outcome(event):
            return []
        what = "begun" if self.phase is Phase.MARKING else "ended"
        return self._end(
            MetadataUnavailable(
                f"recovery of ledger {self.ledger_id} could not be {what}: {event.reason}",
                definite=not self.publishing.is_unsettled,  # One before may have landed (P2.2).
                hint="nothing of the ledger is lost; make room in the metadata, then recover it again",
            )
        )

    def _on_metadata_failed(self, event: MetadataFailed) -> list[Effect]:
        self.publishing.note_unread()
        self.retry_at = event.now_ns + self.options.retry_ns
        return []

    # Fencing (P5.2b).

    def _begin_fencing(self, now_ns: int) -> list[Effect]:
        self.phase = Phase.FENCING
        self._begin_round()
        return self._ask_fences(now_ns)

    def _ask_fences(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for seat, member in enumerate(self.base.members):
            if self.fenced >> seat & 1 or not self._may_ask(seat, now_ns):
                continue
            self.asked[seat] = (now_ns, 0)
            request = FenceRequest(member.incarnation, self.ledger_id, self.ledger_key)
            effects.append(Send(member, request, ("fence", self.round, seat)))
        return effects

    def _may_ask(self, seat: int, now_ns: int) -> bool:
        if now_ns < self.pause_until.get(seat, 0):
            return False
        self.pause_until.pop(seat, None)
        return seat not in self.asked or now_ns >= self.asked[seat][0] + self.options.ask_timeout_ns

    def _on_fenced(self, seat: int, answer: FenceAnswer, now_ns: int) -> list[Effect]:
        if self.phase is not Phase.FENCING:
            return []  # Late: the flag is set there, but the start is settled.
        if answer.status != Status.OK:
            return self._unknown(seat, Status(answer.status).name, now_ns)
        self.asked.pop(seat, None)
        self.fenced |= 1 << seat
        if answer.lac > self.start:
            self.start, self.start_length = answer.lac, answer.lac_length
        # Only durable fences count, judged write set by write set (P5.2b).
        if not has_coverage(self.fenced, self.quorum):
            return []
        self._progress(now_ns)
        self.phase = Phase.READING
        self.asked.clear()
        self.forward = ForwardReading(self.ledger_id, self.quorum, self.start + 1)
        self.in_flight = InFlight(
            self.ledger_key,
            self.quorum,
            self.base.members,
            self.nonce,
            is_recovery=True,
            done=self.start,
            next_seating=self.next_seating,
        )
        self.in_flight.done_length = self.start_length
        self.avoid_until.clear()
        return self._go_on(now_ns)

    # Reading forward and writing back (P5.2c, P5.2d).

    def _go_on(self, now_ns: int) -> list[Effect]:
        """Decide what can be decided, in entry order; ask for what is missing; close when all is written back."""
        assert self.in_flight is not None
        effects = self._write_back(self.forward.decide(), now_ns)
        effects += self._replace_failed(now_ns)
        if self.forward.end is None:
            return effects + self._ask_reads(now_ns)
        if not self.in_flight.pending_count:
            return effects + self._close()
        return effects

    def _write_back(self, frames: Iterable[Frame], now_ns: int) -> list[Effect]:
        """Write entries back verbatim, in a frame without a LAC, to the whole write set (P5.2d)."""
        assert self.in_flight is not None
        effects: list[Effect] = []
        for frame in frames:
            effects += self.in_flight.send(frame, now_ns, None, 0)
            self._progress(now_ns)
        return effects

    def _ask_reads(self, now_ns: int) -> list[Effect]:
        """Ask the write set of the next undecided entry, looking ahead; an open question is not asked twice."""
        assert self.in_flight is not None
        if self.in_flight.pending_bytes >= self.options.written_bytes_max:
            return []
        effects: list[Effect] = []
        first = self.forward.next_entry
        for seat in write_set(first, self.quorum):
            if self.forward.has_negative(seat, first) or not self._may_ask(seat, now_ns):
                continue
            self.asked[seat] = (now_ns, first)
            member = self.base.members[seat]
            last = first + self.options.read_entries - 1
            request = ReadRequest(
                member.incarnation, self.ledger_id, first, last, FRAME_BYTES_MAX, True, self.ledger_key
            )
            effects.append(Send(member, request, ("recover", self.round, seat, first, last)))
        return effects

    def _on_read(self, event: Answered, answer: ReadAnswer) -> list[Effect]:
        _, _, seat, first, last = event.tag
        forward = self.forward
        if self.phase is not Phase.READING or forward.end is not None:
            return []
        self.asked.pop(seat, None)
        effects: list[Effect] = []
        if answer.status == Status.NO_SUCH_LEDGER:
            forward.note_absent(seat, [(first, last)])
        elif answer.status != Status.OK:
            return self._unknown(seat, Status(answer.status).name, event.now_ns)
        else:
            # A copy that fails its check is no verdict at all, neither way (P5.2c).
            try:
                frames = self._checked(event)
            except PeerError as broken:
                return self._unknown(seat, str(broken), event.now_ns)
            effects = self._write_back(forward.take(frames), event.now_ns)
            forward.note_absent(seat, answer.absent)
        effects += self._write_back(forward.decide(), event.now_ns)
        forward.forget_decided()
        if forward.end is None and forward.next_entry == first and not forward.has_negative(seat, first):
            # It was asked for this very entry and did not mention it: unknown, ask again later.
            self.pause_until[seat] = event.now_ns + self.options.retry_ns
            self.reasons[seat] = (
                "the entry is unreadable there, it is in limbo, or no metadata answers that bookie"
            )
        return effects + self._go_on(event.now_ns)

    def _checked(self, event: Answered) -> list[Frame]:
        """The frames of an answer that say something new, each entry checked. Raises PeerError."""
        frames = [frame_of(body, self.ledger_id) for _, body in event.frames]
        found = [frame for frame in frames if frame.last_entry >= self.forward.next_entry]
        for frame in found:
            check_tags(frame, self.metadata.digest, self.mac_key)
        return found

    def _unknown(self, seat: int, reason: str, now_ns: int) -> list[Effect]:
        """The answer is neither yes nor no: ask the seat again within this recovery (P5.2c)."""
        if reason == Status.WRONG_KEY.name:
            return self._end(WrongPassword(f"ledger {self.ledger_id} has another password"))
        self.asked.pop(seat, None)
        self.reasons[seat] = reason
        self.pause_until[seat] = now_ns + self.options.retry_ns
        return []

    def _on_added(self, event: Answered, answer: AddAnswer) -> list[Effect]:
        if self.in_flight is None:
            return []
        _, number, first_entry = event.tag
        if not self.in_flight.is_ours(number, answer):
            return []  # To another handle's request (P3.8).
        if answer.status != Status.OK:
            if answer.status == Status.WRONG_KEY:
                return self._end(WrongPassword(f"ledger {self.ledger_id} has another password"))
            if answer.status == Status.BUSY:
                self.in_flight.note_busy(number, first_entry, event.now_ns)
                return []
            return self._seat_failed(number, Status(answer.status).name, event.now_ns)
        if not self.in_flight.take_answer(number, first_entry, answer, event.now_ns):
            return []
        effects = self._send_owed(event.now_ns) if self.phase is Phase.READING else []
        if not self.in_flight.advance():
            return effects
        self._progress(event.now_ns)
        return effects + (self._go_on(event.now_ns) if self.phase is Phase.READING else [])

    def _send_owed(self, now_ns: int) -> list[Effect]:
        """Go on with write-backs to bookies that were busy (P7.8)."""
        assert self.in_flight is not None
        sends, lost = self.in_flight.send_owed(now_ns, None, 0)
        effects: list[Effect] = list(sends)
        for number in lost:
            effects += self._seat_failed(number, "it is busy, and too far behind", now_ns)
        return effects

    def _seat_failed(self, number: int, reason: str, now_ns: int) -> list[Effect]:
        assert self.in_flight is not None
        seating = self.in_flight.seating(number)
        if seating is None or not self.in_flight.fail(number, reason):
            return []
        self.reasons[seating.seat] = f"write-back to {seating.member.bookie_id}: {reason}"
        self.avoid_until[seating.member.bookie_id] = now_ns + self.options.avoid_ns
        return self._replace_failed(now_ns)

    def _replace_failed(self, now_ns: int) -> list[Effect]:
        """Replace failed bookies as in P4, but the new fragment stays our own until the closing CAS (P5.2d)."""
        assert self.in_flight is not None
        if not self.in_flight.failed_seats or not self.in_flight.pending_count:
            return []
        avoid = [bookie for bookie, until in self.avoid_until.items() if until > now_ns]
        usable = self.publishing.naming.usable(self.bookies)
        proposal = propose(self.in_flight, usable, avoid, self.chance, self.options.placement)
        if proposal is None:
            return self._take_back(avoid, now_ns)
        self.publishing.naming.choose((each.member for each in proposal.seatings), self.bookies)
        self.fragments = change_fragments(self.fragments, proposal)
        fresh = self.in_flight.replace(proposal.seatings)
        return list(self.in_flight.resend(fresh, now_ns, None, 0))

    def _take_back(self, avoid: list[str], now_ns: int) -> list[Effect]:
        """No bookie can take their seats: while a write set is short of Qa, a failed bookie that is listed keeps its
        seat, after a pause (P4.5). Also a read-only one: recovery's writes pass that. Else the watch may show another
        one, or a bookie need not be avoided any more."""
        assert self.in_flight is not None
        if self.in_flight.has_usable_quorum():
            return []
        listed = {info.member for info in self.bookies}
        able = [
            each.bookie_id
            for each in self.in_flight.members
            if each in listed and each.bookie_id not in avoid
        ]
        back = self.in_flight.forgive(able)
        return list(self.in_flight.resend(back, now_ns, None, 0))

    # Closing (P5.2e).

    def _close(self) -> list[Effect]:
        assert self.in_flight is not None
        end = self.forward.end
        assert end is not None
        ensure(self.in_flight.done == end, "recovery closes only what is written back")
        self.phase = Phase.CLOSING
        first_changed = len(self.metadata.fragments) - 1
        fragments = (*self.metadata.fragments[:-1], *self.fragments[first_changed:])
        return self._publish(
            self.metadata.with_changes(
                state=LedgerState.CLOSED,
                last_entry=end,
                length=self.in_flight.done_length,
                fragments=fragments,
            )
        )

    def _end(self, error: EmbedbkError | None) -> list[Effect]:
        self.phase = Phase.ENDED
        self.publishing.drop()
        return [Ended(error, None if error else (self.metadata, self.revision))]

    # Dispatch, time.

    def _on_answered(self, event: Answered) -> list[Effect]:
        kind, answer = event.tag[0], event.control
        if self.phase is Phase.ENDED:
            return []
        if kind == "add":
            if isinstance(answer, AddAnswer):
                return self._on_added(event, answer)
            why = getattr(answer, "text", "an answer of the wrong kind")
            return self._seat_failed(event.tag[1], why, event.now_ns) if self.in_flight is not None else []
        if event.tag[1] != self.round:
            return []
        if kind == "fence" and isinstance(answer, FenceAnswer):
            return self._on_fenced(event.tag[2], answer, event.now_ns)
        if kind == "recover" and isinstance(answer, ReadAnswer):
            return self._on_read(event, answer)
        why = getattr(answer, "text", "an answer of the wrong kind")
        return self._unknown(event.tag[2], why, event.now_ns)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if self.phase is Phase.ENDED:
            return []
        if event.tag[0] == "add":
            return self._seat_failed(event.tag[1], event.reason, event.now_ns) if self.in_flight else []
        if event.tag[1] != self.round:
            return []
        return self._unknown(event.tag[2], event.reason, event.now_ns)

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        known = {info.member for info in self.bookies}
        self.bookies = event.bookies
        self.publishing.naming.listed(event.bookies)
        for info in event.bookies:
            if info.member not in known:
                self.avoid_until.pop(info.member.bookie_id, None)  # It came back just now.
        return self._replace_failed(event.now_ns) if self.in_flight and self.phase is Phase.READING else []

    def _on_tick(self, event: Tick) -> list[Effect]:
        now_ns = event.now_ns
        if self.phase is Phase.ENDED:
            return []
        if now_ns >= self.give_up_ns:
            return self._give_up()
        effects: list[Effect] = []
        if self.retry_at is not None and now_ns >= self.retry_at:
            self.retry_at = None
            effects += self.publishing.read(self.ledger_id) if self.publishing.proposed is not None else []
        if self.phase is Phase.FENCING:
            effects += self._ask_fences(now_ns)
        elif self.phase is Phase.READING:
            assert self.in_flight is not None
            limit_ns = self.options.write_timeout_ns
            for number in self.in_flight.overdue(now_ns, limit_ns, limit_ns):
                effects += self._seat_failed(number, "no answer in time", now_ns)
            effects += self._send_owed(now_ns)
            effects += self._go_on(now_ns)
        # Entries that are due and were not asked again are not wanted now; left here they would be due for ever.
        self.pause_until = {seat: until for seat, until in self.pause_until.items() if until > now_ns}
        since = now_ns - self.options.ask_timeout_ns
        self.asked = {seat: asked for seat, asked in self.asked.items() if asked[0] > since}
        self.avoid_until = {bookie: until for bookie, until in self.avoid_until.items() if until > now_ns}
        return effects

    def _progress(self, now_ns: int) -> None:
        self.give_up_ns = now_ns + self.options.patience_ns

    @property
    def waits_for(self) -> str:
        """Why it would give up now: that names each bookie that is missing."""
        return "" if self.phase is Phase.ENDED else f"the recovery of {self._missing()}"

    def _missing(self) -> str:
        told = ", ".join(
            f"{member.bookie_id}: {self.reasons.get(seat, 'no answer')}"
            for seat, member in enumerate(self.base.members)
            if seat in self.reasons or seat in self.asked
        )
        what = {
            Phase.FENCING: "too few bookies confirmed the fence",
            Phase.READING: f"whether entry {self.forward.next_entry} exists, or its write-back, could not be settled",
        }.get(self.phase, "the metadata did not answer")
        return f"ledger {self.ledger_id}: {what} ({told or 'nobody answered'})"

    def _give_up(self) -> list[Effect]:
        return self._end(RecoveryInconclusive(self._missing()))

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Transacted: _on_outcome,
        TransactRefused: _on_refused,
        TransactUnknown: _on_outcome,
        KeyRead: _on_outcome,
        MetadataFailed: _on_metadata_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
