"""Questions to bookies that are on their way: what each is about, and how long its answer is waited for.

Whoever asks bookies holds one (`holdings`, `block_questions`, `source_check`, `copy_check`), and decides itself what is
asked, and what it means when no answer came in time. A question has a number, by which its answer is known; an answer
to one that was given up is nobody's.
"""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Unanswered"]

T = TypeVar("T")


class Unanswered(Generic[T]):
    """timeout_ns: of each question. number: of the last one, also where another object asked it."""

    def __init__(self, timeout_ns: int, number: int = 0) -> None:
        self.number = number
        self._timeout_ns = timeout_ns
        self._asked: dict[
            int, tuple[T, int]
        ] = {}  # By number, with the time of asking; in the order of asking.

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def deadline_ns(self) -> int | None:
        oldest = next(iter(self._asked.values()), None)
        return None if oldest is None else oldest[1] + self._timeout_ns

    def ask(self, about: T, now_ns: int) -> int:
        """Returns the number of the question."""
        self.number += 1
        self._asked[self.number] = about, now_ns
        return self.number

    def take(self, number: int) -> T | None:
        """It was answered, or not sent. None: it is on its way no more."""
        asked = self._asked.pop(number, None)
        return None if asked is None else asked[0]

    def take_late(self, now_ns: int) -> list[T]:
        """Those whose time is over: they are given up."""
        due_ns = now_ns - self._timeout_ns
        late = [number for number, (_, asked_ns) in self._asked.items() if asked_ns <= due_ns]
        return [self._asked.pop(number)[0] for number in late]
