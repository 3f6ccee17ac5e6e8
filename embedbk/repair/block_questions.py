"""Asks bookies for the numbers of blocks of ledgers (P11.4): several blocks in one message, and one message to a
bookie at a time. Ends with `Numbered`. What a number says stands in `unchanged_blocks`; one that is not told says
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import BLOCKS_MAX, LedgerBlock, LedgerBlocksAnswer, LedgerBlocksRequest
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member
from embedbk.repair.unanswered import Unanswered

__all__ = ["BlockQuestions", "Numbered"]

TIMEOUT_NS = 5_000_000_000  # A bookie that leaves a message unanswered for so long gets no other.


class Numbered(NamedTuple):
    """numbers: block -> bookie -> its number, as far as they were told. is_below_level: the cluster's level does not
    allow the question yet."""

    numbers: dict[int, dict[Member, int]]
    is_below_level: bool


@dataclass(slots=True)
class _Asked:
    """What one bookie is still to be asked, and what it is asked now."""

    left: list[tuple[int, LedgerBlock]] = field(default_factory=list)
    now: list[int] = field(default_factory=list)


class BlockQuestions(Machine):
    """Ends with `Numbered` when each bookie has answered, or will not."""

    def __init__(
        self, asked: Mapping[int, tuple[int, Mapping[Member, bytes]]], there: frozenset[Member]
    ) -> None:
        """asked: block -> its first ledger id, and the mask for each bookie. there: bookies that are registered; others
        tell nothing."""
        self.numbers: dict[int, dict[Member, int]] = {}
        self.is_below_level = False
        self._asked: dict[Member, _Asked] = {}
        self._messages = Unanswered[Member](TIMEOUT_NS)
        for block, (first, masks) in asked.items():
            for member, mask in masks.items():
                if member in there:
                    self._asked.setdefault(member, _Asked()).left.append((block, LedgerBlock(first, mask)))

    @property
    def deadline_ns(self) -> int | None:
        return self._messages.deadline_ns

    def _on_started(self, event: Started) -> list[Effect]:
        effects = [effect for member in list(self._asked) for effect in self._ask(member, event.now_ns)]
        return effects + self._end_if_over()

    def _ask(self, member: Member, now_ns: int) -> list[Effect]:
        asked = self._asked[member]
        if not asked.left:
            return []
        part, asked.left = asked.left[:BLOCKS_MAX], asked.left[BLOCKS_MAX:]
        asked.now = [block for block, _ in part]
        number = self._messages.ask(member, now_ns)
        request = LedgerBlocksRequest(member.incarnation, [each for _, each in part])
        return [Send(member, request, ("blocks", number))]

    def _end_if_over(self) -> list[Effect]:
        return [] if self._messages else [Ended(None, Numbered(self.numbers, self.is_below_level))]

    def _on_answered(self, event: Answered) -> list[Effect]:
        member = self._messages.take(event.tag[1])
        if member is None:
            return []
        asked, answer = self._asked[member], event.control
        numbers: list[int | None] = []
        if isinstance(answer, LedgerBlocksAnswer) and answer.status == Status.OK:
            numbers = answer.numbers
        if len(numbers) != len(asked.now):
            asked.left = []  # It cannot tell, or does not know how.
            return self._end_if_over()
        for block, number in zip(asked.now, numbers, strict=True):
            if number is not None:
                self.numbers.setdefault(block, {})[member] = number
        return self._ask(member, event.now_ns) or self._end_if_over()

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        member = self._messages.take(event.tag[1])
        if member is None:
            return []
        self.is_below_level |= event.reason == BELOW_LEVEL
        self._asked[member].left = []
        return self._end_if_over()

    def _on_tick(self, event: Tick) -> list[Effect]:
        late = self._messages.take_late(event.now_ns)
        for member in late:
            self._asked[member].left = []
        return self._end_if_over() if late else []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        Tick: _on_tick,
    }
