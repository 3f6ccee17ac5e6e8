"""Adds of writers that go past their cores while the loop waits: when they do, and when no longer.

A course is how the adds of one writer go then: to bookies on the same loop (`local_adds`), or over links (`link_adds`).
What goes, and what is acknowledged by it, is decided in C by the rules of the cores, in the one table of frames of the
handle (core/frame_table.py): its core lends it to the course. A writer's core learns what was confirmed before it
gets any other event; and that event finds it as if it had done all itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.core.client_words import AddedNearby, AddsAnswered, Answered, BookiesChanged, HintDue
from embedbk.core.machine import Event, earliest
from embedbk.core.vocabulary import Tick
from embedbk.errors import StorageError
from embedbk.host.operations import Operation
from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY, Member
from embedbk.ports.adds import SentAdds, SentFacts

__all__ = ["SILENT_NS", "Course", "Courses", "silent_ns"]

_MS = 1_000_000
WRITERS_MAX = 16  # Courses at a time: each wait looks at all of them.
# So long a seat may leave a frame unanswered before the core learns of it, while it is not known yet what is late. The
# core has the patience, and the blame.
SILENT_NS = 1_000 * _MS
AGAIN_NS = 2 * _MS  # Pause of a writer whose course soon had to end; doubled each time.
AGAIN_NS_MAX = 1_000 * _MS
WORTH_ENTRIES = 64  # Added this way: then it was worth the while.
IDLE_NS = 1_000 * _MS  # A course unused for so long gives its place to another writer.
PAUSES_MAX = 1024  # Remembered; beyond it writers try again sooner than they should.


@dataclass(slots=True, eq=False)
class Course:
    """How one writer's adds go. adds: what C has of them."""

    adds: SentAdds
    members: tuple[Member, ...]
    began_lac: int
    began_lap: int  # What its core had sent before: answers to that come to the core.
    lac: int  # As its core knows it.
    moved_ns: int  # When it was told last.
    look_ns: int = 0  # When `Courses.look` is wanted; 0: when something moves.
    pressed_again_ns: int = 0  # At the bound of what is kept: when to look again for silent seats.
    answered_ns: tuple[int, ...] = ()  # By seat: when it answered last, as the node was told.
    # When a bookie answered last what the core had sent before: a sign of life that C does not see.
    heard_ns: dict[Member, int] = field(default_factory=dict)
    followed: int = 0  # A bit for each seat: its core was told at `followed_ns` that a reader waits there.
    followed_ns: int = 0


@dataclass(slots=True)
class _Pause:
    """A pause in which a writer's adds go by messages."""

    until_ns: int
    length_ns: int


class Courses(ABC):
    """The courses of one client node. On the host's thread, but for `wake`.

    Args:
        queue: tell a writer's core an event, behind those that it was told.
        look_again: have a writer's packer looked at in the node's next step, which is to come at once.
        note_good: a bookie has answered well (RP45).
    """

    def __init__(
        self,
        queue: Callable[[Operation, Event], None],
        look_again: Callable[[Writing], None],
        note_good: Callable[[str], None],
    ) -> None:
        self._note_good = note_good
        self._queue = queue
        self._look_again = look_again
        self._courses: dict[Writing, Course] = {}
        self._pauses: dict[Writing, _Pause] = {}
        self._full_until_ns = 0  # Every place was in use when it was looked: none is unused before this.

    # What the ways differ in.

    @abstractmethod
    def wake_adds(self) -> None:
        """From a user's thread: a packer on a course has something."""

    def filenos(self) -> list[int]:
        """Descriptors that the loop has to wait for besides."""
        return []

    @abstractmethod
    def is_open_to(self, writing: Writing) -> bool:
        """Whether this writer's adds can go this way, nothing about it being uncommon."""

    @abstractmethod
    def open(self, writing: Writing) -> SentAdds | None:
        """Begin a course; returns what C has of it, or None: not now."""

    @abstractmethod
    def leave(self, course: Course) -> None:
        """End the sending on this course: no further frame goes by it."""

    @abstractmethod
    def give_back(self, now_ns: int, writing: Writing, course: Course, facts: SentFacts) -> None:
        """Its core knows what is acknowledged; now it learns that the table is its own again, and which seats were not
        sent what."""

    @abstractmethod
    def look(self, now_ns: int, writing: Writing, course: Course, facts: SentFacts) -> None:
        """Look for silent bookies, and end the course where one is."""

    def is_pressed(self, facts: SentFacts) -> bool:
        """Whether sealing stopped because too much is kept for seats that are behind."""
        return False

    # The node's side.

    def wake(self, writing: Writing) -> bool:
        """From a user's thread: its packer has something. False: its adds go by messages.

        An append while a course ends is not missed: the packer is looked at after that.
        """
        if writing not in self._courses:
            return False
        self.wake_adds()
        return True

    def deadline_ns(self) -> int | None:
        due = None
        for course in self._courses.values():
            due = earliest(due, course.look_ns or None)
        return due

    def step(self, now_ns: int) -> None:
        """Give the cores what their courses confirmed, and end the courses that have to end."""
        for writing, course in list(self._courses.items()):
            self._go_on(now_ns, writing, course)

    def pump(self, now_ns: int, writing: Writing) -> bool:
        """Whether C seals this writer's frames. False: the core decides on sealing, and they go by messages."""
        course = self._courses.get(writing)
        if course is None:
            course = self._begin_if_due(now_ns, writing)
        elif course.lac < course.began_lap:
            self._tell(now_ns, writing, course)  # The core has counted answers, and the course confirms.
        return course is not None

    def before(self, writing: Writing, event: Event) -> None:
        """Called before an event for this writer's core: what the course did without it comes first."""
        course = self._courses.get(writing)
        if course is None or isinstance(event, AddedNearby | BookiesChanged | HintDue | Tick):
            return
        if isinstance(event, Answered) and (event.tag[0] != "add" or _is_yes(event)):
            course.heard_ns[event.member] = event.now_ns
            return  # It answers an explicit LAC, or a frame that the core had sent before this began.
        self.end(event.now_ns, writing)

    def note_counted(self, now_ns: int, writing: Operation, members: Iterable[Member]) -> None:
        """These bookies have answered what this writer's core had sent before."""
        course = self._courses.get(writing) if isinstance(writing, Writing) else None
        if course is not None:
            course.heard_ns.update(dict.fromkeys(members, now_ns))

    def end(self, now_ns: int, writing: Writing) -> None:
        """The core goes on with all that is not acknowledged, at once."""
        course = self._courses.get(writing)
        if course is not None:
            self._finish(now_ns, writing, course)

    def forget(self, now_ns: int, writing: Writing) -> None:
        """Forget a writer whose handle is over."""
        self._pauses.pop(writing, None)
        course = self._courses.pop(writing, None)
        if course is not None:
            self.leave(course)
            facts = course.adds.tell(now_ns)
            writing.detach(facts.lac, facts.lac_length)
            course.adds.close()

    # How one begins, goes on and ends.

    def _begin_if_due(self, now_ns: int, writing: Writing) -> Course | None:
        if self._is_full(now_ns):  # Asked first: with very many writers, that is the answer to nearly all.
            return None
        if writing.packer.last_entry == NO_ENTRY:
            return None  # Who opened a ledger may append nothing for long.
        pause = self._pauses.get(writing)
        is_paused = pause is not None and now_ns < pause.until_ns
        if is_paused or not self.is_open_to(writing) or not self._has_place(now_ns):
            return None
        core = writing.core
        if core.in_flight.is_pressed() or _is_slow(now_ns, writing):
            return None  # The core would have to look at once for bookies that are behind.
        try:
            adds = self.open(writing)
        except (MemoryError, StorageError):
            adds = None  # The core goes on as it did, which needs less.
        if adds is None:
            self._pause(now_ns, writing)
            return None
        course = Course(adds, core.in_flight.members, core.lac, core.lap, core.lac, now_ns)
        self._courses[writing] = course
        core.in_flight.lend()
        writing.attach(adds)
        if writing.packer.open_count() or writing.packer.has_full():
            self.wake_adds()  # The thread that appended it woke the node, whose turn this was.
        return course

    def _has_place(self, now_ns: int) -> bool:
        """Whether one more course has a place, if need be that of an unused one."""
        if len(self._courses) < WRITERS_MAX:
            return True
        unused, course = min(self._courses.items(), key=lambda item: item[1].moved_ns)
        if now_ns - course.moved_ns < IDLE_NS:
            self._full_until_ns = course.moved_ns + IDLE_NS
            return False
        self.end(now_ns, unused)
        return True

    def _is_full(self, now_ns: int) -> bool:
        return len(self._courses) >= WRITERS_MAX and now_ns < self._full_until_ns

    def _pause(self, now_ns: int, writing: Writing) -> None:
        before = self._pauses.get(writing)
        length_ns = AGAIN_NS if before is None else min(2 * before.length_ns, AGAIN_NS_MAX)
        if len(self._pauses) >= PAUSES_MAX:
            self._pauses.clear()
        self._pauses[writing] = _Pause(now_ns + length_ns, length_ns)

    def _go_on(self, now_ns: int, writing: Writing, course: Course) -> None:
        facts = self._tell(now_ns, writing, course)
        if facts.is_ending:
            self._finish(now_ns, writing, course)
        elif now_ns >= course.look_ns or self.is_pressed(facts):
            self.look(now_ns, writing, course, facts)

    def _tell(self, now_ns: int, writing: Writing, course: Course) -> SentFacts:
        facts = course.adds.tell(now_ns)
        if facts.lac > course.lac:
            course.lac, course.moved_ns = facts.lac, now_ns
            is_idle = facts.pending == 0
            self._queue(writing, AddedNearby(now_ns, facts.lac, facts.lac_length, is_idle, facts.longest_ns))
        if facts.heard_ns != course.answered_ns:
            before_ns = course.answered_ns or (0,) * len(facts.heard_ns)
            course.answered_ns = facts.heard_ns
            for member, then_ns, heard_ns in zip(course.members, before_ns, facts.heard_ns, strict=True):
                if heard_ns > then_ns:
                    self._note_good(member.bookie_id)
        self._tell_followed(now_ns, writing, course, facts.followed)
        return facts

    def _tell_followed(self, now_ns: int, writing: Writing, course: Course, seats: int) -> None:
        """Tell the core where readers wait, each seat once in a turn of the node.

        A bookie of this loop says so whenever it is asked, and each event for the core leads back here while answers
        to what the core had sent are missing: the turn would not end.
        """
        if course.followed_ns != now_ns:
            course.followed, course.followed_ns = 0, now_ns
        seats &= ~course.followed
        if not seats:
            return
        course.followed |= seats
        numbers = (seating.number for seating in writing.core.in_flight.seatings)
        followed = tuple(number for seat, number in enumerate(numbers) if seats >> seat & 1)
        self._queue(writing, AddsAnswered(now_ns, [], followed))

    def _finish(self, now_ns: int, writing: Writing, course: Course) -> None:
        """End the course: the core goes on with what is not acknowledged."""
        del self._courses[writing]
        self.leave(course)
        facts = self._tell(now_ns, writing, course)
        writing.detach(facts.lac, facts.lac_length)
        self.give_back(now_ns, writing, course, facts)
        course.adds.close()
        self._look_again(writing)  # Who appended meanwhile has woken the course, and nobody else.
        if course.lac - course.began_lac >= WORTH_ENTRIES:
            self._pauses.pop(writing, None)
        self._pause(now_ns, writing)


def silent_ns(writing: Writing) -> int:
    """Half of what is late (P4.7), so that the core can look at it in time. No fixed time: where a device is full of
    work every answer takes long, and each end of a course costs its writer a round of answers."""
    times = writing.core.in_flight.times
    return SILENT_NS if times is None or times.late_ns is None else times.late_ns // 2


def _is_slow(now_ns: int, writing: Writing) -> bool:
    """A seat leaves something unanswered for so long that a course would soon be the core's again."""
    oldest_ns = writing.core.in_flight.oldest_sent_ns()
    return oldest_ns is not None and now_ns - oldest_ns >= silent_ns(writing) // 2


def _is_yes(event: Answered) -> bool:
    return isinstance(event.control, AddAnswer) and event.control.status == Status.OK
