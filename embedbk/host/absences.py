"""Which bookies a client has not seen in the list for as long as the grace, so that its writers leave them (P4.1).

Decides when a member counts as lost, and which writing handles are notified in a turn: there may be very many, and
those in their idle form are looked at without being restored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from embedbk.host.writing import Writing
from embedbk.ids import Member

__all__ = ["Absences"]

AWAY_MAX = 4_096  # Members that are remembered.


class Absences:
    """The absent bookies, as the bookies list of one client node shows them."""

    def __init__(self, grace_ns: int) -> None:
        self._grace_ns = grace_ns
        self._there: frozenset[Member] = frozenset()
        # Since when each is absent; those whose handles were notified are removed.
        self._away: dict[Member, int] = {}
        self._told: deque[tuple[Member, Writing]] = deque()  # Handles that are to be notified, in turn.

    def note(self, now_ns: int, members: Iterable[Member]) -> None:
        """Take the bookies that are registered now."""
        there = frozenset(members)
        for member in there:
            self._away.pop(member, None)
        for member in sorted(self._there - there):
            if len(self._away) < AWAY_MAX:
                self._away[member] = now_ns
        self._there = there

    @property
    def deadline_ns(self) -> int | None:
        if self._told:
            return 0
        return min(self._away.values()) + self._grace_ns if self._away else None

    def take(self, now_ns: int, writings: Iterable[Writing], count: int) -> list[tuple[Member, Writing]]:
        """Return at most so many handles that have a seat with a lost member, each once for each loss."""
        lost = [member for member, since in self._away.items() if now_ns >= since + self._grace_ns]
        if lost:
            for member in lost:
                del self._away[member]
            for writing in writings:
                seated = writing.metadata.fragments[-1].members
                self._told.extend((member, writing) for member in lost if member in seated)
        return [self._told.popleft() for _ in range(min(count, len(self._told)))]
