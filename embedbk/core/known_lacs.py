"""How far the bookies of ledgers that are still written to know them to be acknowledged (P6.1).

Asks each bookie that is there of the last fragment of each ledger for its LAC, so many questions at a time, and changes
nothing there. Decides the highest entry of each ledger that is surely acknowledged: the highest LAC that anybody told;
and everything before the last fragment is (P4.2). The writer may have acknowledged more meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member

__all__ = ["KnownLacs"]

_SECOND = 1_000_000_000


class KnownLacs(Machine):
    """Ends with the highest entry known to be acknowledged, by ledger; -1: of an empty one.

    there: the registered bookies. timeout_ns: a bookie that leaves a question unanswered for so long gets no other.
    """

    def __init__(
        self,
        ledgers: Mapping[int, LedgerMetadata],
        there: frozenset[Member],
        at_once: int = 256,
        timeout_ns: int = 2 * _SECOND,
    ) -> None:
        self.at_once, self.timeout_ns = at_once, timeout_ns
        self.lacs = {number: each.fragments[-1].first_entry - 1 for number, each in ledgers.items()}
        self.silent: set[Member] = set()
        self.numbers = 0
        # By number of the question: ledger, bookie, and when it was asked.
        self.asked: dict[int, tuple[int, Member, int]] = {}
        self._questions: Iterator[tuple[int, Member]] = (
            (number, member)
            for number, each in ledgers.items()
            for member in each.fragments[-1].members
            if member in there
        )

    @property
    def deadline_ns(self) -> int | None:
        oldest = next(iter(self.asked.values()), None)  # They stand there in the order of asking.
        return None if oldest is None else oldest[2] + self.timeout_ns

    def _on_started(self, event: Started) -> list[Effect]:
        return self._go_on(event.now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        while len(self.asked) < self.at_once:
            question = next(self._questions, None)
            if question is None:
                break
            ledger_id, member = question
            if member not in self.silent:
                self.numbers += 1
                self.asked[self.numbers] = (ledger_id, member, now_ns)
                effects.append(Send(member, LacRequest(member.incarnation, ledger_id), ("lac", self.numbers)))
        return effects if self.asked else [*effects, Ended(None, self.lacs)]

    def _on_answered(self, event: Answered) -> list[Effect]:
        asked = self.asked.pop(event.tag[1], None)
        if asked is None:
            return []
        answer, ledger_id = event.control, asked[0]
        if isinstance(answer, LacAnswer) and answer.status == Status.OK and answer.ledger_id == ledger_id:
            self.lacs[ledger_id] = max(self.lacs[ledger_id], answer.lac)
        return self._go_on(event.now_ns)

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if self.asked.pop(event.tag[1], None) is None:
            return []
        self.silent.add(event.member)
        return self._go_on(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        deadline = self.deadline_ns
        if deadline is None or event.now_ns < deadline:
            return []
        due_ns = event.now_ns - self.timeout_ns
        self.silent.update(member for _, member, asked_ns in self.asked.values() if asked_ns <= due_ns)
        self.asked = {number: each for number, each in self.asked.items() if each[1] not in self.silent}
        return self._go_on(event.now_ns)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
