"""Adds of this client's writers over links, sealed and sent while the loop waits (native/SHORTCUTS.md, "Adds in C").

Decides which writers' adds can go that way, and how long a bookie may be silent there. When they do is `courses`';
what goes, and what is acknowledged by it, is decided in C by the rules of core/writer.py. Nothing is sent twice: at the
end of a course its core has the frames that are on their way in its table, and the node learns which requests are.
"""

from __future__ import annotations

from collections.abc import Callable

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.messages import encode_control
from embedbk.codec.packer import Packer
from embedbk.core.backlog import SILENT_AT_BOUND, look_at_ns, silent_seats
from embedbk.core.client_words import CourseEnded, SendFailed
from embedbk.core.in_flight import InFlight
from embedbk.core.machine import Event, earliest
from embedbk.core.seating import Seating
from embedbk.core.vocabulary import Tag
from embedbk.host.courses import Course, Courses, silent_ns
from embedbk.host.operations import Operation
from embedbk.host.writing import Writing
from embedbk.ids import Member
from embedbk.ports.adds import AddSeat, AddSending, AddTerms, SentAdds, SentFacts

__all__ = ["LinkAdds"]


class LinkAdds(Courses):
    """As `Courses`.

    Args:
        sending: what seals and sends them; None: nothing can, here or yet.
        link_of: the link to a bookie that takes requests now.
        asked: a request is on its way, and its answer this node's: (member, request id, its owner, tag).
    """

    def __init__(
        self,
        sending: Callable[[], AddSending | None],
        link_of: Callable[[Member], int | None],
        asked: Callable[[Member, int, Operation, Tag], None],
        queue: Callable[[Operation, Event], None],
        look_again: Callable[[Writing], None],
        note_good: Callable[[str], None],
    ) -> None:
        super().__init__(queue, look_again, note_good)
        self._find_sending = sending
        self._link_of = link_of
        self._asked = asked
        self._sending: AddSending | None = None

    def wake_adds(self) -> None:
        assert self._sending is not None
        self._sending.wake_adds()

    def step(self, now_ns: int) -> None:
        if self._sending is not None:
            self._sending.send_adds(now_ns)  # A loop that waits by itself gives them no turn.
        super().step(now_ns)
        for writing, course in self._courses.items():
            course.adds.is_followed = writing.core.lac_publishing.is_followed(now_ns)

    def is_open_to(self, writing: Writing) -> bool:
        if self._sending is None:
            self._sending = self._find_sending()
        if self._sending is None or type(writing.packer) is not Packer or not writing.core.is_plain:
            return False
        return writing.core.in_flight.frames.is_lendable

    def open(self, writing: Writing) -> SentAdds | None:
        core, in_flight = writing.core, writing.core.in_flight
        assert self._sending is not None
        seats = [self.seat(in_flight, seating) for seating in in_flight.seatings]
        if None in seats:
            return None
        terms = AddTerms(
            writing.packer, in_flight.frames, core.ledger_id, in_flight.ledger_key, in_flight.nonce,
            core.quorum.ack_quorum, core.lac, in_flight.done_length, core.options.inflight_bytes_max,
            core.options.behind_bytes_max,
        )  # fmt: skip
        return self._sending.open_adds(terms, seats)  # type: ignore[arg-type]  # None of them is None.

    def seat(self, in_flight: InFlight, seating: Seating) -> AddSeat | None:
        """Where the frames of a seat go, or None: nothing goes there now."""
        link = self._link_of(seating.member)
        if link is None:
            return None
        request = AddRequest(seating.member.incarnation, in_flight.nonce, seating.number, recovery=False)
        return AddSeat(link, seating.number, encode_control(request), seating.slot)

    def leave(self, course: Course) -> None:
        """Seal nothing more; answers still count here until `end`."""

    def give_back(self, now_ns: int, writing: Writing, course: Course, facts: SentFacts) -> None:
        numbers = [seating.number for seating in writing.core.in_flight.seatings]
        unsent: list[tuple[int, tuple[int, ...]]] = []
        for owed in course.adds.end():
            for seat, member in enumerate(course.members):
                if owed.asked >> seat & 1:
                    tag = ("add", numbers[seat], owed.first_entry)
                    self._asked(member, owed.first_request + seat, writing, tag)
            if owed.unsent:
                unsent.append((owed.first_entry, _chosen(numbers, owed.unsent)))
        heard_ns = _heard_ns(course, facts)
        self._queue(writing, CourseEnded(now_ns, heard_ns, facts.answered_ns, tuple(unsent)))

    def is_pressed(self, facts: SentFacts) -> bool:
        return facts.is_pressed

    def look(self, now_ns: int, writing: Writing, course: Course, facts: SentFacts) -> None:
        """The core judges a seat that has not answered for long: it has the time limits, and knows which were busy. A
        seat that answers nothing at the bound of what is kept has failed (P4.5)."""
        course.look_ns = 0
        if facts.oldest_sent_ns is not None:
            course.look_ns = facts.oldest_sent_ns + silent_ns(writing)
            if now_ns >= course.look_ns:
                self.end(now_ns, writing)
                return
        if facts.is_pressed:
            self._look_for_silent(now_ns, writing, course, facts)

    def _look_for_silent(self, now_ns: int, writing: Writing, course: Course, facts: SentFacts) -> None:
        core = writing.core
        silent_by_seat = {
            seat: max(since_ns, heard_ns)
            for seat, (since_ns, heard_ns) in enumerate(
                zip(facts.silent_ns, _heard_ns(course, facts), strict=True)
            )
            if since_ns
        }
        look_ns = look_at_ns(silent_by_seat, course.pressed_again_ns)
        found: list[int] = []
        if look_ns is not None and now_ns >= look_ns:
            found, course.pressed_again_ns = silent_seats(silent_by_seat, course.pressed_again_ns, now_ns)
            look_ns = look_at_ns(silent_by_seat, course.pressed_again_ns)
        course.look_ns = earliest(course.look_ns or None, look_ns) or 0
        found = found[: core.quorum.write_quorum - core.quorum.ack_quorum]  # Whom it can go on without.
        if not found:
            return
        for seat in found:
            course.adds.fail(seat)
        self.end(now_ns, writing)
        for seat in found:
            number = core.in_flight.seatings[seat].number
            self._queue(
                writing,
                SendFailed(now_ns, ("add", number, course.lac + 1), course.members[seat], SILENT_AT_BOUND),
            )

    def leave_link(self, now_ns: int, member: Member) -> None:
        """End the courses over the link to this bookie, so that their cores get what is not common on it."""
        for writing in [each for each, course in self._courses.items() if member in course.members]:
            self.end(now_ns, writing)


def _heard_ns(course: Course, facts: SentFacts) -> tuple[int, ...]:
    """By seat, when it last answered a frame that this course sent, or that the core had sent before."""
    return tuple(
        max(heard_ns, course.heard_ns.get(member, 0))
        for member, heard_ns in zip(course.members, facts.heard_ns, strict=True)
    )


def _chosen(numbers: list[int], bits: int) -> tuple[int, ...]:
    return tuple(number for seat, number in enumerate(numbers) if bits >> seat & 1)
