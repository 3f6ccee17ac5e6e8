"""Asks every bookie of a ledger's last fragment for its status, and changes nothing (P5.2b, P6.1, P6.2).

Decides nothing: the answers are for people (embedbk/client/explaining.py). It fences no ledger, and ends after two
seconds without the bookies that have not answered.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.quorum import write_set
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import NO_ENTRY

__all__ = ["SeatStatus", "StatusQuery"]

STATUS_QUERY_NS = 2_000_000_000


class SeatStatus(NamedTuple):
    """The answer of the bookie of one seat."""

    seat: int
    bookie_id: str
    status: str  # In a word or two: OK, IN_LIMBO, a lost link ...
    has_answered: bool  # Its answer would count for coverage.
    lac: int
    is_fenced: bool
    holds_last: bool | None  # The last entry of a closed ledger; None: it owes none, or could not tell.
    lac_length: int = 0  # Payload bytes of the ledger up to its LAC.


class StatusQuery(Machine):
    """Ends with a SeatStatus for each seat, in seat order."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        last = metadata.last_entry
        # A closed ledger's, which must be there.
        self.entry = last if last is not None and last != NO_ENTRY else None
        members = metadata.fragments[-1].members
        self.seats = [
            SeatStatus(seat, member.bookie_id, "no answer", False, NO_ENTRY, False, None)
            for seat, member in enumerate(members)
        ]
        self.waiting: set[tuple[str, int]] = set()
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + STATUS_QUERY_NS
        effects: list[Effect] = []
        fragment = self.metadata.fragments[-1]
        owing = write_set(self.entry, self.metadata.quorum) if self.entry is not None else ()
        for seat, member in enumerate(fragment.members):
            effects.append(
                Send(member, LacRequest(member.incarnation, self.metadata.ledger_id), ("lac", seat))
            )
            if self.entry is not None and seat in owing and self.entry >= fragment.first_entry:
                request = ReadRequest(
                    member.incarnation, self.metadata.ledger_id, self.entry, self.entry, FRAME_BYTES_MAX
                )
                effects.append(Send(member, request, ("last", seat)))
        self.waiting = {effect.tag for effect in effects if isinstance(effect, Send)}
        return effects

    def _on_answered(self, event: Answered) -> list[Effect]:
        kind, seat = event.tag
        if event.tag not in self.waiting:
            return []
        answer, seat_status = event.control, self.seats[seat]
        if isinstance(answer, LacAnswer):
            self.seats[seat] = seat_status._replace(
                status=Status(answer.status).name,
                has_answered=answer.status in (Status.OK, Status.NO_SUCH_LEDGER),
                lac=answer.lac,
                is_fenced=answer.is_fenced,
                lac_length=answer.lac_length,
            )
        elif isinstance(answer, ReadAnswer) and kind == "last":
            is_no = answer.status == Status.NO_SUCH_LEDGER or bool(answer.absent)
            self.seats[seat] = seat_status._replace(
                holds_last=True if event.frames else False if is_no else None
            )
        elif isinstance(answer, ErrorAnswer):
            self.seats[seat] = seat_status._replace(status=answer.text)
        return self._received(event.tag)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if event.tag not in self.waiting:
            return []
        _, seat = event.tag
        self.seats[seat] = self.seats[seat]._replace(status=event.reason)
        return self._received(event.tag)

    def _received(self, tag: tuple[str, int]) -> list[Effect]:
        self.waiting.discard(tag)
        return [] if self.waiting else self._end()

    def _on_tick(self, event: Tick) -> list[Effect]:
        is_due = self.until_ns is not None and event.now_ns >= self.until_ns
        return self._end() if is_due else []

    def _end(self) -> list[Effect]:
        self.waiting, self.until_ns = set(), None
        return [Ended(None, tuple(self.seats))]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
