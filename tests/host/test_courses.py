"""When a node that holds courses wants its next turn, whichever way they go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from embedbk.host.courses import Course, Courses
from tests.host.place import MS


class Writer:
    def detach(self, lac: int, length: int) -> None: ...


class Way(Courses):
    """One that leads nowhere: its course is as this says."""

    def __init__(self) -> None:
        super().__init__(lambda writing, event: None, lambda writing: None, lambda bookie_id: None)
        self.facts = SimpleNamespace(
            lac=0,
            lac_length=0,
            pending=1,
            is_ending=False,
            followed=0,
            longest_ns=0,
            oldest_sent_ns=None,
            heard_ns=(),
        )
        self.looked = 0
        adds: Any = SimpleNamespace(tell=lambda now_ns: self.facts, close=lambda: None)
        self.writing: Any = Writer()
        self.course = Course(adds, (), 0, 0, 0, 0)
        self._courses[self.writing] = self.course

    def wake_adds(self) -> None: ...

    def is_open_to(self, writing: Any) -> bool:
        return False

    def open(self, writing: Any) -> Any | None:
        return None

    def leave(self, course: Any) -> None: ...

    def give_back(self, now_ns: int, writing: Any, course: Any, facts: Any) -> None: ...

    def look(self, now_ns: int, writing: Any, course: Any, facts: Any) -> None:
        self.looked += 1
        course.look_ns = now_ns + 50 * MS


def test_a_course_that_cannot_go_on_is_over_at_once() -> None:
    """L14, L15: nothing spins, and nothing waits: its core goes on with what is on its way, in the same table. What was
    to be looked at while it went on is looked at no more."""
    way = Way()
    way.step(1 * MS)
    assert way.looked == 1
    assert way.deadline_ns() == 51 * MS
    way.facts.is_ending = True
    way.step(40 * MS)
    assert way.looked == 1
    assert way.deadline_ns() is None and not way.wake(way.writing)
