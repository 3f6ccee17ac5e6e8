"""Publishing a LAC that no frame carries: to which bookies, and when (P6.2).

Each frame carries the LAC of the frames before it, so a reader learns of the last entries of a pause only if the writer
publishes their LAC by itself: durably when the pause lasts, to all; before that by a hint, which a bookie keeps in
memory only, to those where readers wait, and a moment later to all. Decides what each of these messages is, who gets it
and when the durable one is due. Knows which LAC the bookies have already. Leaves to the writer whether anything is
under way that will carry the LAC.
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.lac_messages import ExplicitLacRequest
from embedbk.core.client_words import Send
from embedbk.core.in_flight import InFlight
from embedbk.core.machine import Effect
from embedbk.core.seating import Seating
from embedbk.core.writer_options import WriterOptions
from embedbk.ids import NO_ENTRY

__all__ = ["LacPublishing"]


class LacPublishing:
    """What the bookies of one ledger know of its LAC."""

    __slots__ = ("hinted", "in_flight", "ledger_id", "options", "published")

    def __init__(self, ledger_id: int, in_flight: InFlight, options: WriterOptions) -> None:
        self.ledger_id = ledger_id
        self.in_flight = in_flight  # It has the LAC, and the seats.
        self.options = options
        # The newest LAC that any frame or explicit LAC carried. The writer notes it here with each frame.
        self.published = NO_ENTRY
        self.hinted = NO_ENTRY  # The newest that every seat was given by a hint.

    def getstate(self) -> dict[str, Any]:
        """The state for digests: what is not the writer's as well."""
        return {"hinted": self.hinted, "published": self.published}

    def due_ns(self, last_active_ns: int) -> int:
        """When the writer has been idle long enough to publish its LAC durably."""
        latest_ns = last_active_ns + self.options.explicit_lac_ns
        return latest_ns - latest_ns % self.options.explicit_lac_grid_ns

    def publish(self) -> list[Effect]:
        """Readers without recovery see the last entries before a next add, at any bookie, for good."""
        self.published = self.in_flight.done
        return self._to_all(is_hint=False)

    def hint_all(self) -> list[Effect]:
        """A reader that does not wait, at any bookie, sees the LAC soon after it was reached."""
        self.hinted = self.in_flight.done
        return self._to_all(is_hint=True)

    def note_seated(self) -> None:
        """Note that a bookie has its seat since the LAC was published, or has it again: it was not told."""
        self.published = self.hinted = NO_ENTRY

    def hint_followers(self, now_ns: int) -> list[Effect]:
        """Give the LAC to the bookies where a reader waits for it.

        It is not published by that: the durable one follows when the idleness lasts.
        """
        return [
            self._lac_to(seating, is_hint=True)
            for seating in self.in_flight.seatings
            if seating.failure is None and seating.awaited_until_ns > now_ns
        ]

    def hint(self, number: int) -> list[Effect]:
        """Give the LAC to one bookie, by the number of its seating."""
        seating = self.in_flight.seating(number)
        return [] if seating is None else [self._lac_to(seating, is_hint=True)]

    def note_followed(self, number: int, now_ns: int) -> bool:
        """Note that a reader waits at the bookie of this seating. Returns whether none waited there before."""
        seating = self.in_flight.seating(number)
        if seating is None or seating.failure is not None:
            return False
        is_new = seating.awaited_until_ns <= now_ns
        seating.awaited_until_ns = now_ns + self.options.awaited_ns
        return is_new

    def is_followed(self, now_ns: int) -> bool:
        """Whether a reader waited lately at a bookie for a newer LAC, and is notified at once."""
        return any(seating.awaited_until_ns > now_ns for seating in self.in_flight.seatings)

    def _to_all(self, *, is_hint: bool) -> list[Effect]:
        return [
            self._lac_to(seating, is_hint=is_hint)
            for seating in self.in_flight.seatings
            if seating.failure is None
        ]

    def _lac_to(self, seating: Seating, *, is_hint: bool) -> Send:
        """The writer waits for no answer: answers to adds say where readers wait."""
        request = ExplicitLacRequest(
            seating.member.incarnation,
            self.ledger_id,
            self.in_flight.ledger_key,
            self.in_flight.done,
            self.in_flight.done_length,
            is_hint,
            wants_answer=False,
        )
        return Send(seating.member, request, ("lac", seating.number, self.in_flight.done))
