"""Adds of this client's writers to bookies on the same loop, without messages (native/NATIVE.md, "Local adds").

Decides when a writer's adds go that way and when no longer. What goes, and what is acknowledged by it, is decided in C
by the rules of both cores. A writer's core is told what was added and confirmed before it hears of anything else; and
what it hears of then finds it as if it had waited: frames that are not acknowledged are sealed for it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from embedbk.codec.frame import Frame
from embedbk.codec.packer import Packer
from embedbk.core.machine import earliest
from embedbk.core.vocabulary import (
    AddedNearby,
    Answered,
    BookiesChanged,
    Event,
    FrameSealed,
    SendFailed,
    Tick,
)
from embedbk.host.operations import Operation, Writing
from embedbk.ids import Member
from embedbk.storage.local_adds import LOCAL_SEATS_MAX, LocalFacts, NativeLocalAdds, NativeNear, NativeWaiter

__all__ = ["LocalAdds"]

_MS = 1_000_000
WRITERS_MAX = 16  # That go this way at a time: each wait looks at all of them.
GATHER_NS = (
    20 * _MS
)  # So long a writer seals nothing, so that what is on its way by messages is answered first.
DRAIN_NS = 100 * _MS  # So long what is on its way may take once nothing more goes this way.
AGAIN_NS = 2 * _MS  # Until a writer whose adds soon had to leave this way tries it again; doubled each time.
AGAIN_NS_MAX = 1_000 * _MS
LOOK_NS = 500 * _MS  # Between two looks for a bookie that stores and does not get durable.
WORTH_ENTRIES = 64  # Added this way: then it was worth the while.
IDLE_NS = 1_000 * _MS  # So long unused, a writer leaves this way to another one.
PAUSES_MAX = 1024  # Remembered; beyond it writers try again sooner than they should.


@dataclass(slots=True, eq=False)
class _Course:
    """How one writer's adds go."""

    adds: NativeLocalAdds
    members: tuple[Member, ...]
    began_lac: int
    lac: int  # As its core was told.
    moved_ns: int  # When it was told last.
    drain_until_ns: int | None = None
    look_ns: int = 0
    # By seat: how far it was durable when it was looked at, and since when it has stood there.
    stood: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Pause:
    """Why a writer's adds go by messages for now."""

    until_ns: int
    length_ns: int


class LocalAdds:
    """Of one client node. On the host's thread, but for `wake`.

    Args:
        waiter: of the loop.
        nears: the bookies on it.
        queue: tell a writer's core an event, behind those that it was told.
        hear: tell the cores which answers have come; some are told late.
        look_again: have a writer's packer looked at in the node's next step, which is to come at once.
    """

    def __init__(
        self,
        waiter: NativeWaiter,
        nears: Mapping[Member, NativeNear],
        queue: Callable[[Operation, Event], None],
        hear: Callable[[int], None],
        look_again: Callable[[Writing], None],
    ) -> None:
        self._waiter = waiter
        self._nears = dict(nears)
        self._queue = queue
        self._hear = hear
        self._look_again = look_again
        self._courses: dict[Writing, _Course] = {}
        self._pauses: dict[Writing, _Pause] = {}
        # Writers that seal nothing until what they have sent is answered, or until then.
        self._gathering: dict[Writing, int] = {}

    def wake(self, writing: Writing) -> bool:
        """From a user's thread: its packer has something. False: its adds go by messages.

        Who appends while a course ends is not missed: the packer is looked at behind that.
        """
        if writing not in self._courses:
            return False
        self._waiter.wake()
        return True

    def filenos(self) -> list[int]:
        return [self._waiter.fileno()]

    def deadline_ns(self) -> int | None:
        due = None
        for course in self._courses.values():
            due = earliest(due, course.drain_until_ns, course.look_ns or None)
        return earliest(due, *self._gathering.values())

    # A turn of the node.

    def step(self, now_ns: int) -> None:
        """Tell the cores what went on, and end what has to."""
        for writing, course in list(self._courses.items()):
            self._go_on(now_ns, writing, course)
        for writing in [writing for writing, until_ns in self._gathering.items() if now_ns >= until_ns]:
            self._pause(now_ns, writing)  # A bookie leaves something unanswered.
            self._look_again(writing)

    def pump(self, now_ns: int, writing: Writing) -> bool:
        """Whether this writer's frames are sealed and stored by the waiter, or not now. False: the core says what is
        sealed, and it goes by messages."""
        course = self._courses.get(writing)
        if course is None:
            course = self._begin_if_due(now_ns, writing)
            if course is None:
                return writing in self._gathering
        return True  # While the loop waits.

    def before(self, writing: Writing, event: Event) -> None:
        """This writer's core is about to be told something: what went on without it comes first."""
        if writing not in self._courses or isinstance(event, AddedNearby | BookiesChanged | Tick):
            return
        if isinstance(event, Answered) and event.tag[0] != "add":
            return  # Of a LAC that was told.
        self.end(event.now_ns, writing)

    def end(self, now_ns: int, writing: Writing) -> None:
        """The core goes on with all that is not acknowledged, at once."""
        course = self._courses.get(writing)
        if course is not None:
            course.adds.end()
            self._finish(now_ns, writing, course)

    def forget(self, writing: Writing) -> None:
        """It is over."""
        self._pauses.pop(writing, None)
        self._gathering.pop(writing, None)
        course = self._courses.pop(writing, None)
        if course is not None:
            self._waiter.end(course.adds)
            facts = course.adds.tell()
            writing.detach(facts.lac, facts.lac_length)
            course.adds.close()

    # How one begins, goes on and ends.

    def _begin_if_due(self, now_ns: int, writing: Writing) -> _Course | None:
        core = writing.core
        pause = self._pauses.get(writing)
        nears = None if pause is not None and now_ns < pause.until_ns else self._nears_of(writing)
        if nears is None or not self._has_place(now_ns):
            self._gathering.pop(writing, None)
            return None
        in_flight = core.in_flight
        if not in_flight.is_at_rest:
            self._gathering.setdefault(writing, now_ns + GATHER_NS)
            self._hear(now_ns)
            return None
        self._gathering.pop(writing, None)
        adds = NativeLocalAdds(
            writing.packer,  # type: ignore[arg-type]  # `_nears_of` has looked.
            in_flight.ledger_key,
            nears,
            core.quorum.ack_quorum,
            lac=core.lac,
            lac_length=in_flight.done_length,
            bytes_max=core.options.inflight_bytes_max,
        )
        self._waiter.begin(adds)
        course = _Course(adds, in_flight.members, core.lac, core.lac, now_ns)
        self._courses[writing] = course
        writing.attach(adds)
        return course

    def _nears_of(self, writing: Writing) -> list[NativeNear] | None:
        """The bookies of its ensemble, if all are near and nothing about it is uncommon."""
        core = writing.core
        if not core.is_plain or type(writing.packer) is not Packer:
            return None
        members = core.in_flight.members
        nears = [self._nears[member] for member in members if member in self._nears]
        return nears if len(nears) == len(members) <= LOCAL_SEATS_MAX else None

    def _has_place(self, now_ns: int) -> bool:
        """One more can go this way, if need be instead of one that does not."""
        if len(self._courses) < WRITERS_MAX:
            return True
        idle = (each for each, course in self._courses.items() if now_ns - course.moved_ns >= IDLE_NS)
        unused = next(idle, None)
        if unused is not None:
            self.end(now_ns, unused)
        return unused is not None

    def _pause(self, now_ns: int, writing: Writing) -> None:
        self._gathering.pop(writing, None)
        before = self._pauses.get(writing)
        length_ns = AGAIN_NS if before is None else min(2 * before.length_ns, AGAIN_NS_MAX)
        if len(self._pauses) >= PAUSES_MAX:
            self._pauses.clear()
        self._pauses[writing] = _Pause(now_ns + length_ns, length_ns)

    def _go_on(self, now_ns: int, writing: Writing, course: _Course) -> None:
        facts = self._tell(now_ns, writing, course)
        if facts.is_ending:
            if course.drain_until_ns is None:
                course.drain_until_ns = now_ns + DRAIN_NS
            if not facts.pending or now_ns >= course.drain_until_ns:
                self._finish(now_ns, writing, course)
        elif now_ns >= course.look_ns:
            self._look_for_silent(now_ns, writing, course, facts)

    def _tell(self, now_ns: int, writing: Writing, course: _Course) -> LocalFacts:
        facts = course.adds.tell()
        if facts.lac > course.lac:
            course.lac, course.moved_ns = facts.lac, now_ns
            self._queue(writing, AddedNearby(now_ns, facts.lac, facts.lac_length, facts.pending == 0))
        return facts

    def _finish(self, now_ns: int, writing: Writing, course: _Course) -> None:
        """Nothing goes this way any more: the core seals for itself what is not acknowledged, and sends it."""
        del self._courses[writing]
        self._waiter.end(course.adds)
        facts = self._tell(now_ns, writing, course)
        writing.detach(facts.lac, facts.lac_length)
        for first, last, count, length, body in course.adds.give():
            frame = Frame(writing.core.ledger_id, first, last, count, length, memoryview(body))
            self._queue(writing, FrameSealed(now_ns, frame))
        course.adds.close()
        self._look_again(writing)  # Who appended meanwhile has woken the course, and nobody else.
        if course.lac - course.began_lac >= WORTH_ENTRIES:
            self._pauses.pop(writing, None)
        self._pause(now_ns, writing)

    def _look_for_silent(self, now_ns: int, writing: Writing, course: _Course, facts: LocalFacts) -> None:
        """A bookie that stores and never gets durable has failed, also where the ack quorum goes on without it."""
        stood = course.stood or [(-1, now_ns)] * len(facts.durable)
        course.stood = [
            (mark, since) if is_behind and mark == before else (mark, now_ns)
            for (before, since), mark, is_behind in zip(stood, facts.durable, facts.is_behind, strict=True)
        ]
        course.look_ns = now_ns + LOOK_NS if any(facts.is_behind) else 0
        timeout_ns = writing.core.options.add_timeout_ns
        for seat, (_, since) in enumerate(course.stood):
            if now_ns - since >= timeout_ns:
                number = writing.core.in_flight.seatings[seat].number
                reason = f"nothing became durable within {timeout_ns / 1e9:g} s"
                self.end(now_ns, writing)
                self._queue(
                    writing, SendFailed(now_ns, ("add", number, course.lac + 1), course.members[seat], reason)
                )
                return
