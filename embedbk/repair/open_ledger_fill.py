"""Giving the bookies of a ledger that is written to the acknowledged entries that they missed (P8.7, P11.2).

The client that writes it does that, as an open fragment is nobody else's. Decides which seats are asked, up to which
entry, and whether every copy is there afterwards. An acknowledged entry never changes (P3.3), so it may be copied while
others are appended behind it. `seat_fill` asks a bookie what it lacks and copies that. Leaves to others: when this is
due, and when it is tried again (`client/missed_copies.py`).

    next seat ──its bookie takes no entries now──▶ left
        ▲  └──asked, and filled up──▶ whole, or left with the reason
        └───────────────────┘           none left: the end
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import Answered, BookieInfo, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import USUAL_COPYING, CopyOptions
from embedbk.repair.seat_fill import SeatFill
from embedbk.repair.stopping import as_if_closed

__all__ = ["FillOutcome", "OpenLedgerFill"]


class FillOutcome(NamedTuple):
    """copies: of entries that were made durable. left: seats that may still lack some, each with its bookie and why."""

    copies: int
    left: tuple[str, ...]


class OpenLedgerFill(Machine):
    """Ends with FillOutcome."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        lac: int,
        bookies: Sequence[BookieInfo],
        nonce: int,
        pace: CopyPace,
        options: CopyOptions = USUAL_COPYING,
    ) -> None:
        """metadata: of an OPEN ledger, as published. lac: what its writer acknowledged up to now. bookies: as they are
        registered. nonce: of this machine alone."""
        number = metadata.ledger_id
        # So much each seat owes by now.
        self.metadata = as_if_closed({number: metadata}, {number: lac})[number]
        self.nonce, self.pace, self.options = nonce, pace, options
        self.there = {info.member for info in bookies}
        self.takers = {info.member for info in bookies if info.is_writable and not info.is_leaving}
        self.seats = self._seats(lac)
        self.filling: SeatFill | None = None
        self.numbers = 0  # The number of the last question of a filling.
        self.copies = 0
        self.left: list[str] = []
        self.is_over = False

    def _seats(self, lac: int) -> Iterator[tuple[int, int]]:
        for number, fragment in enumerate(self.metadata.fragments):
            if fragment.first_entry <= lac:
                yield from ((number, seat) for seat in range(len(fragment.ensemble)))

    @property
    def wants_bookies(self) -> bool:
        return False

    @property
    def deadline_ns(self) -> int | None:
        return self.filling.deadline_ns if self.filling is not None else None

    def _on_started(self, event: Started) -> list[Effect]:
        return self._next_seat(event.now_ns)

    def _next_seat(self, now_ns: int) -> list[Effect]:
        for number, seat in self.seats:
            members = self.metadata.fragments[number].members
            if members[seat] not in self.takers:
                self._leave(number, f"{members[seat].bookie_id} takes no entries now")
                continue
            away = frozenset(each for each, member in enumerate(members) if member not in self.there)
            self.filling = SeatFill(
                self.metadata, number, seat, away, self.nonce, self.pace, self.options, self.numbers
            )
            return self._look(now_ns, self.filling.begin(now_ns))
        self.is_over = True
        return [Ended(None, FillOutcome(self.copies, tuple(self.left)))]

    def _leave(self, number: int, why: str) -> None:
        self.left.append(f"from entry {self.metadata.fragments[number].first_entry} on: {why}")

    def _look(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Go on with the next seat, where this one is done with."""
        filling = self.filling
        assert filling is not None
        if filling.result is None:
            return effects
        self.filling, self.numbers = None, filling.numbers
        self.copies += filling.copies
        if filling.result.kind != "done":
            self._leave(filling.number, f"{filling.result.kind}: {filling.result.why}")
        return [*effects, *self._next_seat(now_ns)]

    def _on_answered(self, event: Answered) -> list[Effect]:
        return [] if self.filling is None else self._look(event.now_ns, self.filling.on_answered(event))

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        return [] if self.filling is None else self._look(event.now_ns, self.filling.on_send_failed(event))

    def _on_tick(self, event: Tick) -> list[Effect]:
        return [] if self.filling is None else self._look(event.now_ns, self.filling.on_tick(event.now_ns))

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
