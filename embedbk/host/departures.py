"""Which writers still have a seat on a bookie that is drained, so that they move off it (P11.3).

Decides when they are notified, and how many in a turn. A writer that cannot move yet (no bookie takes the seat, another
change is under way) is notified again, ever later: nothing else would wake a writer that has nothing under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from embedbk.host.writing import Writing
from embedbk.ids import Member

__all__ = ["Departures"]

LOOK_FIRST_NS, LOOK_MOST_NS = (
    500_000_000,
    30_000_000_000,
)  # Between two looks at all writers, doubled each time.


class Departures:
    """The drained bookies, as the bookies list of one client node shows them."""

    def __init__(self) -> None:
        self._leaving: frozenset[Member] = frozenset()
        self._look_at: int | None = None
        self._delay_ns = LOOK_FIRST_NS
        self._told: deque[tuple[Member, Writing]] = deque()  # Handles that are to be notified, in turn.

    def note(self, now_ns: int, leaving: Iterable[Member]) -> None:
        """Take the bookies that are listed as drained now."""
        noted = frozenset(leaving)
        if noted - self._leaving:
            self._look_at, self._delay_ns = now_ns, LOOK_FIRST_NS
        self._leaving = noted
        if not noted:
            self._look_at = None

    @property
    def deadline_ns(self) -> int | None:
        return 0 if self._told else self._look_at

    def take(self, now_ns: int, writings: Iterable[Writing], count: int) -> list[tuple[Member, Writing]]:
        """Return at most so many handles that have a seat with a member that leaves."""
        if self._look_at is not None and now_ns >= self._look_at and not self._told:
            for writing in writings:
                seated = writing.metadata.fragments[-1].members
                self._told.extend((member, writing) for member in seated if member in self._leaving)
            self._look_at, self._delay_ns = now_ns + self._delay_ns, min(2 * self._delay_ns, LOOK_MOST_NS)
        return [self._told.popleft() for _ in range(min(count, len(self._told)))]
