"""Frames that were sent to an ensemble and are not done yet: which seats acknowledged them, and what that amounts to.

Decides: when a frame is done (P3.3, P4.2), in which order frames are confirmed, which seat a late answer counts for
(P3.8, P4.4), which seats are overdue. Leaves to the writer and to recovery: what to do about a failed seat, and what a
confirmation means. `frame_table` has the frames, and what each seat owes; `seating` the holder of each seat; `lateness`
finds seats that are slower than the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.frame import Frame, cut, encode_frame_header
from embedbk.config import BEHIND_BYTES_MAX, Quorum
from embedbk.core.backlog import Backlog
from embedbk.core.client_words import Send
from embedbk.core.fragment_sums import SumsThrough, no_sums
from embedbk.core.frame_table import AnyFrameTable, FrameTable, MakeTable, Marks, Newest, Pending
from embedbk.core.lateness import AnswerTimes
from embedbk.core.machine import earliest
from embedbk.core.quorum import has_ack_quorum, residues_of
from embedbk.core.seating import BUSY_FIRST_NS, BUSY_FRAMES_MAX, BUSY_MOST_NS, Busy, Seating
from embedbk.ids import Member

__all__ = ["InFlight"]


_NOT_STATE = frozenset({"make_table", "sums_through"})
_NOTHING: Mapping[int, Pending] = {}  # What is on its way, or kept, where there is no table of frames.


class InFlight:
    """Sends frames to the seats and counts their acknowledgements."""

    __slots__ = (
        "_backlog",
        "_first_members",
        "_first_number",
        "_frames",
        "_seatings",
        "behind_max",
        "done",
        "done_length",
        "has_busy",
        "is_deferred",
        "is_lent",
        "is_recovery",
        "ledger_key",
        "make_table",
        "next_seating",
        "nonce",
        "quorum",
        "received",
        "received_length",
        "sums_through",
        "times",
    )

    def __init__(
        self,
        ledger_key: bytes,
        quorum: Quorum,
        ensemble: Sequence[Member],
        nonce: int,
        *,
        is_recovery: bool,
        done: int,
        next_seating: int = 1,
        is_deferred: bool = False,
        times: AnswerTimes | None = None,
        behind_max: int = BEHIND_BYTES_MAX,
    ) -> None:
        """times: told how long each answer took; None: nobody asks. behind_max: of frames that are done, kept for a
        seat that has not answered, each with its price."""
        self.behind_max = behind_max
        self._backlog: Backlog | None = None
        # Makes `frames`; set by the host before anything is sent, where they are kept in C.
        self.make_table: MakeTable = FrameTable
        # What the packer of these entries sums up; the host sets it before anything is sent, where sums are published.
        self.sums_through: SumsThrough = no_sums
        self.times = times
        self.ledger_key = ledger_key
        self.quorum = quorum
        self.nonce = nonce
        self.is_recovery = is_recovery
        self.is_deferred = is_deferred  # Bookies also say what they only received (P3.2).
        # In seat order: the ensemble that answers count for. None, which is how most of very many open ledgers are,
        # while nothing is on its way: then the numbers of `_first_members` go on from `_first_number`.
        self._seatings: list[Seating] | None = None
        self._first_members = tuple(ensemble)
        self._first_number = next_seating
        self.next_seating = next_seating + len(
            self._first_members
        )  # Never given out twice under one nonce (P3.8).
        self._frames: AnyFrameTable | None = None  # Until the first frame, and while nothing is on its way.
        self.is_lent = False  # A course has `frames` (host/courses.py).
        self.has_busy = False  # A seat may be busy.
        self.done = done  # Every entry up to here is done.
        self.done_length = 0  # Ledger length up to `done`; the creator sets it at the start.
        # Deferred sync: Qa seats of each write set held every entry up to here, at least in memory (P3.2).
        self.received = done
        self.received_length = 0

    @property
    def seatings(self) -> list[Seating]:
        """In seat order: the ensemble that answers count for."""
        if self._seatings is None:
            first = self._first_number
            self._seatings = [
                Seating(first + seat, seat, seat, who, self.frames)
                for seat, who in enumerate(self._first_members)
            ]
        return self._seatings

    @property
    def frames(self) -> AnyFrameTable:
        """Every frame above `done`, and those that seats owe an answer for."""
        if self._frames is None:
            self._frames = self.make_table(self.backlog)
        return self._frames

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without what belongs to the host and the packer."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in _NOT_STATE}

    @property
    def backlog(self) -> Backlog | None:
        """Shared by all handles of the process, set by the host; None: nothing is counted."""
        return self._backlog

    @backlog.setter
    def backlog(self, backlog: Backlog | None) -> None:
        self._backlog = backlog
        if self._frames is not None:
            self._frames.backlog = backlog

    @property
    def pending(self) -> Mapping[int, Pending]:
        """Frames above `done`, by first entry, in entry order. For tests and tools."""
        return _NOTHING if self._frames is None else self._frames.pending

    @property
    def pending_count(self) -> int:
        return 0 if self._frames is None else self._frames.pending_count

    @property
    def pending_bytes(self) -> int:
        return 0 if self._frames is None else self._frames.pending_bytes

    @property
    def behind(self) -> Mapping[int, Pending]:
        """Frames that are done and kept for seats that owe an answer. For tests and tools."""
        return _NOTHING if self._frames is None else self._frames.behind

    @property
    def behind_bytes(self) -> int:
        """Bytes of those frames, each with its price."""
        return 0 if self._frames is None else self._frames.behind_bytes

    def shrink(self, now_ns: int) -> None:
        """Keep as little as can be while nothing is on its way, nobody failed and nobody was replaced. Not for a writer
        whose change is in flight: its proposal has these seatings."""
        if self.is_lent or self._seatings is None or self.pending_count or self.frames.is_owed():
            return
        for seating in self._seatings:
            if (
                seating.failure is not None
                or seating.awaited_until_ns > now_ns
                or seating.number != self._first_number + seating.seat
            ):
                return
        self._seatings = self._frames = None

    def new_seating(self, seat: int, member: Member) -> Seating:
        """The seating of a proposed bookie: in that of the seat's two slots which its holder does not have."""
        slot = seat if self.seatings[seat].slot != seat else seat + self.quorum.ensemble_size
        seating = Seating(self.next_seating, seat, slot, member, self.frames)
        self.next_seating += 1
        return seating

    @property
    def members(self) -> tuple[Member, ...]:
        if self._seatings is None:
            return self._first_members
        return tuple(seating.member for seating in self._seatings)

    @property
    def has_failed(self) -> bool:
        return self._seatings is not None and any(seating.failure is not None for seating in self._seatings)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is on its way, not even to a seat beyond the ack quorum."""
        return self._frames is None or not (self._frames.pending_count or self._frames.is_owed())

    @property
    def failed_seats(self) -> list[int]:
        return [seating.seat for seating in self.seatings if seating.failure is not None]

    def has_usable_quorum(self) -> bool:
        """Does every write set keep Qa unfailed members (P4.5)?"""
        usable = sum(1 << seating.seat for seating in self.seatings if seating.failure is None)
        return has_ack_quorum(usable, tuple(range(self.quorum.ensemble_size)), self.quorum)

    def send(self, frame: Frame, now_ns: int, lac: int | None, lac_length: int) -> list[Send]:
        """Take the next frame and send it to every seat that is not failed. lac None: the frames carry no LAC."""
        assert frame.first_entry > self.done
        self.frames.put(frame)
        seatings = [seating for seating in self.seatings if seating.failure is None]
        return self._sends(frame, seatings, now_ns, lac, lac_length)

    def lend(self) -> None:
        """From now on a course sends, counts and confirms by `frames`: this counts answers to what it had sent before,
        and does nothing else, until `take_back`."""
        assert not self.is_lent
        self.is_lent = True

    def take_back(self, heard_ns: Sequence[int], answered_ns: Sequence[int]) -> None:
        """The course is over. By seat: when it answered last, and when the newest was sent of what it has answered."""
        assert self.is_lent
        self.is_lent = False
        for seating in self.seatings:
            seating.heard_ns = max(seating.heard_ns, heard_ns[seating.seat])
            seating.answered_ns = max(seating.answered_ns, answered_ns[seating.seat])

    def send_unsent(
        self, first_entry: int, numbers: Sequence[int], now_ns: int, lac: int, lac_length: int
    ) -> list[Send]:
        """Send a frame of a course to the seats that took nothing of it."""
        frame = self.frames.find(first_entry)
        if frame is None or not numbers:
            return []
        seatings = [seating for seating in self.seatings if seating.number in numbers]
        return self._sends(frame, seatings, now_ns, lac, lac_length, is_again=True)

    def resend(
        self, seatings: Iterable[Seating], now_ns: int, lac: int | None, lac_length: int
    ) -> list[Send]:
        """Send everything pending to these (new) seats (P4.4)."""
        chosen = list(seatings)
        sends: list[Send] = []
        if not chosen:
            return sends
        for frame in self.frames_pending():
            sends += self._sends(frame, chosen, now_ns, lac, lac_length)
        return sends

    def frames_pending(self) -> list[Frame]:
        """The frames above `done`, in entry order."""
        found = [] if self._frames is None else list(self._frames.pending.values())
        return [pending.frame for pending in found]

    def _sends(
        self,
        frame: Frame,
        seatings: Sequence[Seating],
        now_ns: int,
        lac: int | None,
        lac_length: int,
        *,
        is_again: bool = False,
    ) -> list[Send]:
        if is_again and lac is not None and lac >= frame.first_entry:
            lac, lac_length = (
                None,
                0,
            )  # Others completed it meanwhile, and a frame carries only a LAC below itself.
        striped = self.quorum.ensemble_size > self.quorum.write_quorum
        header = b"" if striped else encode_frame_header(frame, self.ledger_key, lac, lac_length)
        sends: list[Send] = []
        for seating in seatings:
            part: Frame | None = frame
            if striped:
                part = cut(frame, self.quorum.ensemble_size, self.quorum.write_quorum, seating.seat)
                if part is None:
                    continue
                header = encode_frame_header(part, self.ledger_key, lac, lac_length)
            assert part is not None
            # What is sent again counts from the first time: being busy is bounded by a time limit of its own.
            self.frames.owe(seating.slot, frame.first_entry, now_ns)
            if seating.busy is not None and not is_again:
                seating.busy.owed[frame.first_entry] = None
                continue
            request = AddRequest(
                seating.member.incarnation, self.nonce, seating.number, self.is_recovery, self.is_deferred
            )
            tag = ("add", seating.number, frame.first_entry)
            sends.append(Send(seating.member, request, tag, ((header, part),)))
        return sends

    def is_ours(self, seating_number: int, answer: AddAnswer) -> bool:
        """Whether the answer is to a request of this handle, to this seating. Any other counts for nothing (P3.8)."""
        asked = (self.nonce, seating_number, self.is_recovery)
        return (answer.nonce, answer.seating, answer.recovery) == asked

    def take_answer(self, seating_number: int, first_entry: int, answer: AddAnswer, now_ns: int) -> bool:
        """Count a positive answer. False: it answers no open request of this handle and counts for nothing."""
        return self.is_ours(seating_number, answer) and self.take_ok(seating_number, first_entry, now_ns)

    def take_ok(self, seating_number: int, first_entry: int, now_ns: int) -> bool:
        """As `take_answer`, for an answer that is known to be to a request of this handle (P3.8)."""
        seating = self.seating(seating_number)
        if seating is None:
            return False  # From a seat replaced since (P4.4).
        sent_ns = self.frames.answered(seating.slot, first_entry)
        if sent_ns is None:
            return False  # Counted before.
        seating.answered_ns = max(seating.answered_ns, sent_ns)
        seating.heard_ns = now_ns
        if seating.busy is not None:
            self._take_more(seating, first_entry, now_ns)
        elif self.times is not None:
            self.times.note(now_ns - sent_ns, now_ns)
        return True

    # Seats that are busy (P7.8).

    def note_busy(self, number: int, first_entry: int, now_ns: int) -> None:
        """Note that a seat took nothing of a frame, and lives: the frame is sent to it again, a little later."""
        seating = self.seating(number)
        if seating is None or not self.frames.owes(seating.slot, first_entry):
            return
        busy = seating.busy
        if busy is None:
            busy = seating.busy = Busy(now_ns + BUSY_FIRST_NS)
            self.has_busy = True
        elif busy.is_asked:
            busy.delay_ns = min(2 * busy.delay_ns, BUSY_MOST_NS)
            busy.again_ns = now_ns + busy.delay_ns
        busy.is_asked = False
        busy.frames_max = 1
        busy.owed[first_entry] = None
        seating.heard(now_ns)

    def _take_more(self, seating: Seating, first_entry: int, now_ns: int) -> None:
        """A busy seat took a frame again: the more it takes, the more it is sent at once."""
        assert seating.busy is not None
        seating.busy.owed.pop(first_entry, None)
        seating.busy.frames_max = min(2 * seating.busy.frames_max, BUSY_FRAMES_MAX)
        seating.busy.delay_ns = BUSY_FIRST_NS
        seating.busy.again_ns = 0
        seating.heard(now_ns)
        if not seating.busy.owed:
            seating.busy = None

    def busy_deadline_ns(self) -> int | None:
        """When a seat that was busy is asked again."""
        if not self.has_busy:
            return None
        times = [each.busy.again_ns for each in self._seatings or () if each.busy is not None]
        return min(times, default=None)

    def send_owed(self, now_ns: int, lac: int | None, lac_length: int) -> tuple[list[Send], list[int]]:
        """What seats that were busy are given now, the oldest first; and the numbers of those that are so far behind
        that what they owe is not here any more."""
        sends: list[Send] = []
        lost: list[int] = []
        for seating in self.seatings if self.has_busy else ():
            busy = seating.busy
            if busy is None or now_ns < busy.again_ns:
                continue
            busy.again_ns = now_ns + BUSY_MOST_NS  # Or with its answer.
            busy.is_asked = True
            for first_entry in sorted(busy.owed)[: busy.frames_max]:
                del busy.owed[first_entry]
                if not self.frames.owes(seating.slot, first_entry):
                    continue
                frame = self.frames.find(first_entry)
                if frame is None:
                    lost.append(seating.number)
                    break
                sends += self._sends(frame, [seating], now_ns, lac, lac_length, is_again=True)
                if busy.silent_ns is None:
                    busy.silent_ns = now_ns
            if not self.frames.owed_count(seating.slot):
                seating.busy = None  # A second answer to the same was late, and nothing is owed.
        self.has_busy = any(seating.busy is not None for seating in self._seatings or ())
        return sends, lost

    def is_pressed(self) -> bool:
        """So much is kept for seats that are behind that nothing more is sent to any seat, until they catch up or the
        silent ones count as failed (RP33, P4.5)."""
        if self.behind_bytes < self.behind_max:
            return self.behind_bytes > 0 and self.backlog is not None and self.backlog.is_full
        return True

    def silent_ns(self) -> dict[int, int]:
        """By seat, since when it has answered nothing of what it owes: of those that can be gone on without (P4.5)."""
        sitting = sum(1 << each.seat for each in self.seatings if each.failure is None)
        everyone = tuple(range(self.quorum.ensemble_size))
        return {
            each.seat: since_ns
            for each in self.seatings
            if each.failure is None
            and (since_ns := each.silent_ns()) is not None
            and has_ack_quorum(sitting & ~(1 << each.seat), everyone, self.quorum)
        }

    def _bound_behind(self) -> None:
        """Let go of the oldest kept frames beyond this bound. A writer stops sending at half of it (`is_pressed`); a
        recovery goes on."""
        while self.behind_bytes > 2 * self.behind_max:
            self.frames.drop_oldest_behind()

    def _note_busy_seats(self) -> None:
        """The seatings have changed."""
        self.has_busy = any(seating.busy is not None for seating in self.seatings)

    def let_go(self) -> None:
        """The handle is over: keep no frame for any seat."""
        if self._frames is not None:
            self._frames.give_up()

    def take_received(self, seating_number: int, first_entry: int, answer: AddAnswer, now_ns: int) -> bool:
        """Count that a seat holds its part of a frame in memory; its final answer is still owed (P3.2)."""
        seating = self.seating(seating_number)
        if seating is None or not self.is_ours(seating_number, answer):
            return False
        if not self.frames.owes(seating.slot, first_entry):
            return False
        seating.heard(now_ns)
        return self.frames.took(seating.slot, first_entry)

    def seating(self, number: int) -> Seating | None:
        """The seating of that number if it still holds its seat."""
        for seating in self.seatings:
            if seating.number == number:
                return seating
        return None

    def fail(self, number: int, reason: str, *, stays_away: bool = False) -> bool:
        """Note that a seat's holder failed; nothing more is sent to it. False: not seated, or failed before."""
        seating = self.seating(number)
        if seating is None or seating.failure is not None:
            return False
        seating.held_through = self._held_through(seating)
        seating.failure, seating.stays_away = reason, stays_away
        seating.busy = None
        self.frames.excuse(seating.slot)
        self._note_busy_seats()
        return True

    def forgive(self, bookie_ids: Iterable[str]) -> list[Seating]:
        """Take failed holders back, so that what is sent from now on goes to them too; returns them.

        What they missed meanwhile and is done already they never get: it has its quorum without them.
        """
        wanted = set(bookie_ids)
        back = [s for s in self.seatings if s.failure is not None and s.member.bookie_id in wanted]
        for seating in back:
            seating.failure, seating.stays_away = None, False
        return back

    def _held_through(self, seating: Seating) -> int:
        """Up to where the seat has answered all that is done."""
        owed = min(seating.owed, default=self.done + 1)
        return min(self.done, owed - 1)

    def have_missed(self, seatings: Iterable[Seating]) -> bool:
        """Whether entries are done that one of these may lack, as it failed before, or has not answered."""
        return any(
            self.done > (each.held_through if each.failure is not None else self._held_through(each))
            for each in seatings
        )

    def give_up(self) -> None:
        """Forget everything that is outstanding: nothing more of it will be done."""
        self.frames.give_up()
        for seating in self.seatings:
            self.frames.excuse(seating.slot)
            seating.busy = None

    def replace(self, seatings: Sequence[Seating]) -> list[Seating]:
        """Seat another ensemble; returns the seatings that are new. A bookie that lost its seat counts no more
        (P4.4)."""
        old = {seating.number: seating for seating in self.seatings}
        kept = {seating.number for seating in seatings}
        fresh = [seating for seating in seatings if seating.number not in old]
        # The seating says how a bookie that stays is doing: a new one of its number would not be busy, say.
        assert all(old.get(seating.number, seating) is seating for seating in seatings)
        self.frames.empty(sum(1 << was.slot for number, was in old.items() if number not in kept))
        self._seatings = list(seatings)
        self._note_busy_seats()
        return fresh

    def advance(self, proposed: Sequence[Seating] | None = None) -> bool:
        """Confirm frames in entry order only: nothing passes a frame that is not done (P3.3).

        proposed: while an ensemble change is in flight a frame also needs its quorum among these (P4.2).
        """
        before, frames = self.done, self.frames
        while (marks := frames.oldest()) is not None:
            if not self._is_done(marks, self.seatings):
                break
            if proposed is not None and not self._is_done(marks, proposed):
                break
            frames.confirm()
            self._bound_behind()
            self.done = marks.last_entry
            self.done_length = marks.length
        return self.done > before

    def advance_received(self, proposed: Sequence[Seating] | None = None) -> bool:
        """Move the mark of what is received, by the same rule, counting what is only in memory too (P3.2).

        It never falls back: a seat may be replaced since, and until the LAC passes the bytes are here to be sent again.
        """
        before = self.received
        self.received, self.received_length = max(
            (self.received, self.received_length), (self.done, self.done_length)
        )
        for marks in self.frames.marks():
            if marks.first_entry <= self.received:
                continue
            held = marks.acked | marks.received
            if not self._has_quorum(held, marks, self.seatings):
                break
            if proposed is not None and not self._has_quorum(held, marks, proposed):
                break
            self.received, self.received_length = marks.last_entry, marks.length
        return self.received > before

    def unreceived_frames(self, most: int) -> int:
        """How many frames are not received yet, counted up to `most`."""
        count = 0
        for first_entry in self.frames.newest_first():
            if first_entry <= self.received or count == most:
                break
            count += 1
        return count

    def newest(self) -> Newest:
        """The frame that was sent last, of those on their way."""
        return self.frames.newest()

    def _is_done(self, marks: Marks, seatings: Sequence[Seating]) -> bool:
        return self._has_quorum(marks.acked, marks, seatings)

    def _has_quorum(self, slots: int, marks: Marks, seatings: Sequence[Seating]) -> bool:
        seats = 0  # A plain loop: asked for behind every answer.
        for seating in seatings:
            if slots >> seating.slot & 1:
                seats |= 1 << seating.seat
        return has_ack_quorum(
            seats, residues_of(marks.first_entry, marks.last_entry, self.quorum), self.quorum
        )

    def overdue(self, now_ns: int, timeout_ns: int, busy_timeout_ns: int) -> list[int]:
        """Seating numbers that have left something unanswered for too long (`Seating.fails_at_ns`)."""
        return [
            seating.number
            for seating in self._seatings or ()
            if (at_ns := seating.fails_at_ns(timeout_ns, busy_timeout_ns)) is not None and now_ns >= at_ns
        ]

    def fails_at_ns(self, timeout_ns: int, busy_timeout_ns: int) -> int | None:
        """When the first of the seats will be overdue, if it answers nothing more."""
        if self.has_busy:
            return earliest(*(each.fails_at_ns(timeout_ns, busy_timeout_ns) for each in self._seatings or ()))
        oldest = self.oldest_sent_ns()
        return None if oldest is None else oldest + timeout_ns

    def oldest_sent_ns(self) -> int | None:
        """When the oldest frame was sent that a seat, other than a busy one, has not answered."""
        oldest: int | None = None  # A plain loop: asked for behind every step of a writer.
        for seating in self._seatings or ():
            if seating.busy is None:
                when = seating.oldest_sent_ns()
                if when is not None and (oldest is None or when < oldest):
                    oldest = when
        return oldest
