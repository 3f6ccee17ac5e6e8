"""Telling a bookie again, until it answers, LACs of idle writers that it may not have taken (P6.2).

A writer tells its LAC once and waits for no answer. A bookie does not get it if its link is lost, and does not take it
while it starts or while the ledger is in limbo. Decides when such LACs are told again and which answers settle them. A
LAC that comes twice, or late, is true like any LAC (P3.3). Leaves to the host which LACs are in doubt.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import ExplicitLacAnswer, ExplicitLacRequest
from embedbk.core.client_words import Answered, LacsInDoubt, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Tick
from embedbk.ids import Member

__all__ = ["GIVEN_UP_NS", "LACS_MAX", "PAUSE_NS_MAX", "PAUSE_NS_MIN", "LacRetelling"]

_SECOND = 1_000_000_000
# A pause comes before the first message, and doubles while the bookie takes nothing.
PAUSE_NS_MIN = 50_000_000
PAUSE_NS_MAX = 5 * _SECOND
# A bookie that took nothing for so long has lost its seats in open ledgers (P4.1), or keeps ledgers in limbo.
GIVEN_UP_NS = 600 * _SECOND
# The core keeps the LACs of so many ledgers at a time; if there are more, the oldest are forgotten.
LACS_MAX = 4096
# So many requests may be without an answer.
ASKED_MAX = 64
# These statuses say that the bookie cannot tell yet; any other answer is final.
_LATER = {Status.BUSY, Status.UNKNOWN, Status.IN_LIMBO}


class LacRetelling(Machine):
    """The LACs that one bookie is told again. The core rests when nothing is left; it ends when another disk has the
    bookie's place."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.lacs: dict[int, ExplicitLacRequest] = {}  # Keys are ledger ids.
        self.asked: dict[int, int] = {}  # Ledger -> the LAC that was sent and is not answered.
        self.pause_ns = PAUSE_NS_MIN
        self.due_ns: int | None = None
        self.given_up_ns = 0

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _on_doubt(self, event: LacsInDoubt) -> list[Effect]:
        self.given_up_ns = event.now_ns + GIVEN_UP_NS
        for lac in event.lacs:
            known = self.lacs.pop(lac.ledger_id, None)
            self.lacs[lac.ledger_id] = lac if known is None or lac.lac > known.lac else known
        for ledger_id in list(self.lacs)[: max(0, len(self.lacs) - LACS_MAX)]:
            del self.lacs[ledger_id]
        if self.due_ns is None and not self.asked:
            self.due_ns = event.now_ns + self.pause_ns
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        self.due_ns = None
        if event.now_ns >= self.given_up_ns:
            self.lacs.clear()
        return self._go_on()

    def _go_on(self) -> list[Effect]:
        """Ask on, as far as the bound allows; not before the pause is over, where there is one."""
        effects: list[Effect] = []
        for ledger_id, lac in self.lacs.items():
            if self.due_ns is not None or len(self.asked) >= ASKED_MAX:
                break
            if ledger_id not in self.asked:
                self.asked[ledger_id] = lac.lac
                request = replace(lac, wants_answer=True)
                effects.append(Send(self.member, request, ("lac again", ledger_id)))
        return effects

    def _on_answered(self, event: Answered) -> list[Effect]:
        ledger_id = event.tag[1]
        told, answer = self.asked.pop(ledger_id), event.control
        if not isinstance(answer, ExplicitLacAnswer) or answer.status in _LATER:
            return self._pause(event.now_ns)
        if answer.status == Status.WRONG_INCARNATION:
            return [Ended()]
        self.pause_ns, self.given_up_ns = PAUSE_NS_MIN, event.now_ns + GIVEN_UP_NS
        known = self.lacs.get(ledger_id)
        if known is not None and known.lac <= told:
            del self.lacs[ledger_id]
        return self._go_on()

    def _on_failed(self, event: SendFailed) -> list[Effect]:
        self.asked.pop(event.tag[1], None)
        return [Ended()] if event.is_other_disk else self._pause(event.now_ns)

    def _pause(self, now_ns: int) -> list[Effect]:
        if self.due_ns is None:
            self.due_ns = now_ns + self.pause_ns
            self.pause_ns = min(2 * self.pause_ns, PAUSE_NS_MAX)
        return []

    HANDLERS: ClassVar[Handlers] = {
        LacsInDoubt: _on_doubt,
        Tick: _on_tick,
        Answered: _on_answered,
        SendFailed: _on_failed,
    }
