"""How many bookies of its write set hold an entry durably, by their own answers: for a caller that wants more copies
than the ack quorum (P3.6, P11.4).

Asks each of them once how many of the ids entry..entry it holds durably. Decides when enough have said so, and that who
does not tell is not counted. Leaves to others when it is asked again; nothing of the protocol follows from the answers.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HoldingsAnswer, HoldingsRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.messages import Control
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.quorum import write_set
from embedbk.core.vocabulary import Ended, Started, Tick

__all__ = ["CopiesKnown", "CopiesQuery"]

_TIMEOUT_NS = 2_000_000_000  # A bookie that has not answered after so long counts as one that does not tell.


class CopiesKnown(NamedTuple):
    copies: int  # Bookies that hold the entry durably, as far as it is known.
    others: dict[str, str]  # By bookie id, what is known of the others.
    is_below_level: bool  # The cluster's level is too low to ask.


class CopiesQuery(Machine):
    """Ends with `CopiesKnown`: as soon as so many are wanted hold it, else when nobody is left to wait for."""

    def __init__(self, metadata: LedgerMetadata, entry_id: int, wanted: int) -> None:
        self.ledger_id, self.entry_id, self.wanted = metadata.ledger_id, entry_id, wanted
        fragment = next(each for each in reversed(metadata.fragments) if each.first_entry <= entry_id)
        seats = write_set(entry_id, metadata.quorum)
        self.asked = {seat: fragment.members[seat] for seat in seats}  # Those that have not answered.
        self.count = 0
        self.others: dict[str, str] = {}
        self.is_below_level = False
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    @property
    def wants_bookies(self) -> bool:
        return False

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + _TIMEOUT_NS
        return [
            Send(
                member,
                HoldingsRequest(member.incarnation, self.ledger_id, self.entry_id, self.entry_id),
                ("held", seat),
            )
            for seat, member in self.asked.items()
        ]

    def _on_answered(self, event: Answered) -> list[Effect]:
        member = self.asked.pop(event.tag[1], None)
        if member is None:
            return []
        if self._holds(event.control):
            self.count += 1
        else:
            self.others[member.bookie_id] = _what_of(event.control)
        return self._end_if_known()

    def _holds(self, answer: Control) -> bool:
        if not isinstance(answer, HoldingsAnswer) or answer.ledger_id != self.ledger_id:
            return False
        return answer.status == Status.OK and answer.count == 1 and not answer.lacking

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        member = self.asked.pop(event.tag[1], None)
        if member is None:
            return []
        self.is_below_level = self.is_below_level or event.reason == BELOW_LEVEL
        self.others[member.bookie_id] = event.reason
        return self._end_if_known()

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.until_ns is None or event.now_ns < self.until_ns:
            return []
        for member in self.asked.values():
            self.others[member.bookie_id] = "no answer in time"
        self.asked = {}
        return self._end_if_known()

    def _end_if_known(self) -> list[Effect]:
        if self.until_ns is None or (self.asked and self.count < self.wanted):
            return []
        self.until_ns = None
        return [Ended(None, CopiesKnown(self.count, self.others, self.is_below_level))]

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }


def _what_of(answer: Control) -> str:
    if not isinstance(answer, HoldingsAnswer):
        return str(getattr(answer, "text", "it answered something else"))
    return "it lacks it" if answer.status == Status.OK else Status(answer.status).name
