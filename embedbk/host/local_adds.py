"""Adds of this client's writers to bookies on the same loop, without messages (native/SHORTCUTS.md, "Near seats").

Decides which writers' adds go that way: those of which every seat is such a bookie. All else is as over links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from embedbk.core.in_flight import InFlight
from embedbk.core.machine import Event
from embedbk.core.seating import Seating
from embedbk.core.vocabulary import Tag
from embedbk.host.link_adds import LinkAdds
from embedbk.host.operations import Operation
from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY, Member
from embedbk.ports.adds import AddSeat, Near, NearWait

__all__ = ["LocalAdds"]


class LocalAdds(LinkAdds):
    """As `LinkAdds`.

    Args:
        wait: of the loop.
        nears: the bookies on it.
    """

    def __init__(
        self,
        wait: NearWait,
        nears: Mapping[Member, Near],
        asked: Callable[[Member, int, Operation, Tag], None],
        queue: Callable[[Operation, Event], None],
        look_again: Callable[[Writing], None],
        note_good: Callable[[str], None],
    ) -> None:
        super().__init__(lambda: wait, lambda member: None, asked, queue, look_again, note_good)
        self._wait = wait
        self._nears = dict(nears)

    def filenos(self) -> list[int]:
        return [self._wait.fileno()]

    def is_open_to(self, writing: Writing) -> bool:
        """Not with the first frame of a ledger: these bookies add to ledgers that they know."""
        is_begun = writing.core.lac != NO_ENTRY
        return (
            is_begun
            and super().is_open_to(writing)
            and all(member in self._nears for member in writing.core.in_flight.members)
        )

    def leave_link(self, now_ns: int, member: Member) -> None:
        """Nothing to do: these adds go over no link."""

    def seat(self, in_flight: InFlight, seating: Seating) -> AddSeat | None:
        return AddSeat(0, seating.number, b"", seating.slot, self._nears[seating.member])
