"""Which seats are too slow: overdue, late against the others, or silent at the bound of what is kept for them.

Decides when to look at the seats next, and which of them are to blame then: a seat that answered nothing until the
add's time limit is over (P4.1, P7.8), one that is late (P4.7, by `lateness`), one that is silent while nothing more is
sent for its sake (P4.5, by `backlog`). It changes no seat.
Leaves to the writer what follows, and whether late seats may be replaced at all. Pure: the times come with events.
"""

from __future__ import annotations

from typing import Any

from embedbk.core.backlog import look_at_ns, silent_seats
from embedbk.core.in_flight import InFlight
from embedbk.core.machine import earliest
from embedbk.core.seating import Seating
from embedbk.core.writer_options import WriterOptions

__all__ = ["SlowSeats"]


class SlowSeats:
    """The looks at the seats of one handle."""

    __slots__ = ("in_flight", "options", "pressed_again_ns")

    def __init__(self, in_flight: InFlight, options: WriterOptions) -> None:
        self.in_flight = in_flight  # It has the seats, and what they owe.
        self.options = options
        self.pressed_again_ns = 0  # At the bound of what is kept: when to look again for silent seats.

    def getstate(self) -> dict[str, Any]:
        """The state for digests: what is not the writer's as well."""
        return {"pressed_again_ns": self.pressed_again_ns}

    def look_ns(self, may_replace_late: bool, is_open: bool) -> int | None:
        """When to look next; None: no seat owes anything. Late seats are looked for where they may be replaced, silent
        ones while the handle is open."""
        in_flight, oldest = self.in_flight, self.in_flight.oldest_sent_ns()
        due = None if oldest is None else oldest + self.options.add_timeout_ns
        if in_flight.has_busy:
            due = in_flight.fails_at_ns(self.options.add_timeout_ns, self.options.busy_timeout_ns)
        # Comparisons instead of `earliest`: this is asked behind every step of a writer.
        late = self._late_look_ns(oldest) if may_replace_late and oldest is not None else None
        if late is not None and (due is None or late < due):
            due = late
        return earliest(due, self._silent_look_ns()) if is_open and in_flight.is_pressed() else due

    def overdue(self, now_ns: int) -> list[tuple[int, str]]:
        """Seating numbers of those whose time limit is over, each with the reason why it has failed."""
        found = []
        for number in self.in_flight.overdue(
            now_ns, self.options.add_timeout_ns, self.options.busy_timeout_ns
        ):
            seating = self.in_flight.seating(number)
            what, limit_ns = "no answer", self.options.add_timeout_ns
            if seating is not None and seating.busy is not None and seating.busy.silent_ns is None:
                what, limit_ns = "busy, and took nothing", self.options.busy_timeout_ns
            found.append((number, f"{what} within {limit_ns / 1e9:g} s"))
        return found

    def late(self, now_ns: int) -> list[Seating]:
        """Seats that are late against the others. They have not failed."""
        oldest, times = self.in_flight.oldest_sent_ns(), self.in_flight.times
        look_ns = None if oldest is None else self._late_look_ns(oldest)
        if look_ns is None or now_ns < look_ns:
            return []
        assert oldest is not None and times is not None
        return times.look(self.in_flight.seatings, oldest, now_ns)

    def note_replaced(self) -> None:
        """Note that late seats are being replaced: with each change it takes longer until one counts as late."""
        assert self.in_flight.times is not None
        self.in_flight.times.note_replaced()

    def silent(self, now_ns: int) -> list[int]:
        """Seats that are silent at the bound, the longest silent first. Each of them can be gone on without, while
        those before it have their seats: ask `is_silent` again behind each that has failed."""
        look_ns = self._silent_look_ns() if self.in_flight.is_pressed() else None
        if look_ns is None or now_ns < look_ns:
            return []
        found, self.pressed_again_ns = silent_seats(self.in_flight.silent_ns(), self.pressed_again_ns, now_ns)
        return found

    def is_silent(self, seat: int) -> bool:
        """Whether the seat owes answers, and the handle can go on without it."""
        return seat in self.in_flight.silent_ns()

    def _late_look_ns(self, oldest_ns: int) -> int | None:
        """None: not as things are, or only the time limit is left to wait for."""
        times = self.in_flight.times
        if times is None or times.late_ns is None or times.late_ns >= self.options.add_timeout_ns:
            return None
        return times.look_ns(oldest_ns)

    def _silent_look_ns(self) -> int | None:
        return look_at_ns(self.in_flight.silent_ns(), self.pressed_again_ns)
