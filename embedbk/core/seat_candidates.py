"""Which of the listed bookies one handle may seat, by what it knows of those that failed under it (P4.1, P4.5, P4.6).

Decides which proposal follows from a failed, a late or a leaving seat, whether failed seats are tolerated (P4.6), which
bookies are asked whether they are there again, and which of them may go on in their seats (P4.5). Each question is
answered by `avoided`, `failed_seats` and `ensemble_change`; what they need of the past is kept here.
Leaves to the writer the list of bookies, whether an ensemble may change now, what is published, and what a shortage of
bookies means. Pure: the times come with events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embedbk.core import avoided, failed_seats
from embedbk.core.client_words import BookieInfo
from embedbk.core.ensemble_change import Proposal, propose
from embedbk.core.in_flight import InFlight
from embedbk.core.placement import Chance
from embedbk.core.seating import Seating
from embedbk.core.writer_options import WriterOptions
from embedbk.ids import Member

__all__ = ["SeatCandidates"]

_NOBODY: avoided.Failures = {}  # One for all writers whose bookies have not failed yet.
_NOWHERE: Mapping[Member, str] = {}  # Likewise, of whose bookies all are listed.


class SeatCandidates:
    """What one handle remembers of bookies. In all calls `bookies` is the list as it was shown last."""

    __slots__ = ("chance", "failures", "in_flight", "options", "unlisted")

    def __init__(self, in_flight: InFlight, chance: Chance, options: WriterOptions) -> None:
        self.in_flight = in_flight  # It has the seats.
        self.chance = chance
        self.options = options
        self.failures: avoided.Failures = _NOBODY  # Bookies that failed lately.
        # Of those that have seats and have left the list: where they stand, for placements that ask for it.
        self.unlisted: Mapping[Member, str] = _NOWHERE

    def getstate(self) -> dict[str, Any]:
        """The state for digests: what is not the writer's as well."""
        return {"chance": self.chance, "failures": self.failures, "unlisted": self.unlisted}

    # What the handle learns.

    def note_list(self, before: Sequence[BookieInfo], bookies: Sequence[BookieInfo], now_ns: int) -> None:
        """Note which bookies that failed are back in a newer list, and where those stand that left it."""
        if self.options.placement.domain != "none":
            stood = {**self.unlisted, **{info.member: info.location for info in before}}
            listed = {info.member for info in bookies}
            seated = (member for member in self.in_flight.members if member not in listed)
            self.unlisted = {member: stood[member] for member in seated if member in stood} or _NOWHERE
        known = {info.member: info.is_writable for info in before}
        for info in bookies:
            if info.is_writable and info.member.bookie_id in self.failures and not known.get(info.member):
                # It came back just now.
                self.failures = avoided.came_back(self.failures, info.member.bookie_id, now_ns)

    def note_failure(self, bookie_id: str, now_ns: int) -> None:
        self.failures = avoided.note(self.failures, bookie_id, now_ns, self.options.avoid_ns)

    def note_answer(self, bookie_id: str) -> None:
        """Note that a bookie that was asked is there."""
        self.failures = avoided.heard(self.failures, bookie_id)

    def forget_past(self, now_ns: int) -> None:
        """Forget the failures when no bookie is avoided any more: they must not keep the handle from being shrunk."""
        if not avoided.avoided(self.failures, now_ns):
            self.failures = _NOBODY

    # What follows for its seats.

    def tolerated_until_ns(self, bookies: Sequence[BookieInfo]) -> int | None:
        """When to look at the failed seats again that delayed change tolerates: while no write set is short of Qa, only
        a bookie that stays away is replaced (P4.6). None: an ensemble change is due."""
        if not self.options.delays_change or not self.in_flight.has_usable_quorum():
            return None
        if failed_seats.stays_any_away(self.in_flight.seatings, bookies):
            return None
        failed = [self.in_flight.seatings[seat].member.bookie_id for seat in self.in_flight.failed_seats]
        return min(self.failures[bookie_id].ask_ns for bookie_id in failed)

    def replace_failed(self, usable: Sequence[BookieInfo], now_ns: int) -> Proposal | None:
        """The ensemble with other bookies in failed seats, None where none is found. usable: the bookies, those marked
        not writable that may not be named."""
        last = failed_seats.come_last(self.failures, self.in_flight, now_ns)
        return self._propose(usable, now_ns, last=last)

    def replace_late(
        self, late: Sequence[Seating], usable: Sequence[BookieInfo], now_ns: int
    ) -> Proposal | None:
        """As `replace_failed`, for late seats. A bookie that fails often is not chosen (RP45)."""
        bookies = [info._replace(is_writable=False) if info.is_quarantined else info for info in usable]
        return self._propose(bookies, now_ns, late)

    def move(self, seatings: Sequence[Seating], usable: Sequence[BookieInfo], now_ns: int) -> Proposal | None:
        """As `replace_failed`, for seats whose bookie is drained (P11.3)."""
        return self._propose(usable, now_ns, seatings)

    def _propose(
        self,
        bookies: Sequence[BookieInfo],
        now_ns: int,
        seatings: Sequence[Seating] = (),
        last: Sequence[str] = (),
    ) -> Proposal | None:
        avoid = avoided.avoided(self.failures, now_ns)
        placement = self.options.placement
        return propose(self.in_flight, bookies, avoid, self.chance, placement, seatings, last, self.unlisted)

    def ask(self, bookies: Sequence[BookieInfo], now_ns: int, *, is_short: bool) -> list[Member]:
        """The bookies to ask now whether they are there, each at growing intervals: only one that answers comes last
        instead of never, gets its own seat on another disk, or goes on where it sits and was only tolerated (P4.5).

        is_short: adds wait for any bookie.
        """
        due = failed_seats.to_ask(
            self.failures,
            self.in_flight.seatings,
            bookies,
            now_ns,
            is_short=is_short,
            delays_change=self.options.delays_change,
        )
        for bookie_id, _ in due:
            self.failures = avoided.ask(self.failures, bookie_id, now_ns)
        return [member for _, member in due if member is not None]

    def there_again(self, bookies: Sequence[BookieInfo], now_ns: int, *, is_short: bool) -> set[Member]:
        """The bookies that may go on in their seats: when they answer again, where adds wait for one or they were only
        tolerated; else when they were left alone for a while (P4.5)."""
        by_answer = is_short or self.options.delays_change
        return failed_seats.there_again(self.failures, bookies, now_ns, by_answer=by_answer)
