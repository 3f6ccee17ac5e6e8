"""Answers of a bookie that wait for its journal (P3.2, P5.2f, P7.6).

An answer that promises durability leaves in the step that receives the durability of its record, never before. Decides
when each answer leaves, and that after a fault of the storage nothing is promised any more: every pending answer leaves
as UNKNOWN, which is neither yes nor no. Leaves to the bookie what the answers are, and which record each waits for.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from embedbk.codec.add_messages import AddAnswer, CopiesAnswer, FenceAnswer, ReplaceAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HeldRange, HoldingsAnswer, LedgerBlocksAnswer
from embedbk.codec.lac_messages import ExplicitLacAnswer
from embedbk.codec.messages import Control
from embedbk.codec.read_messages import ReadAnswer
from embedbk.core.bookie_words import Reply
from embedbk.core.machine import Effect
from embedbk.core.parked import ParkedPolls
from embedbk.core.several import as_unknown_copies

__all__ = ["PendingReplies"]


class PendingReplies:
    """The answers that wait, by the journal token of the record that each waits for."""

    __slots__ = ("_parked", "by_token", "durable", "failure")

    def __init__(self, durable: int, parked: ParkedPolls) -> None:
        """durable: every record up to this token is. parked: it knows where readers wait."""
        self.durable = durable
        self.by_token: dict[int, list[Reply]] = {}
        self.failure: str | None = None  # Why nothing more can be promised (P7.6).
        self._parked = parked

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without the polls, which are the bookie's."""
        return {"by_token": self.by_token, "durable": self.durable, "failure": self.failure}

    def reply_when(self, token: int, reply: Reply, effects: list[Effect], now_ns: int) -> None:
        """Let the answer leave when the record is durable, which may be now: then it is added to the effects."""
        if token <= self.durable:
            effects.append(self._leaving(reply, now_ns))
        elif self.failure is not None:
            effects.append(_as_unknown(reply))  # It never will be durable (P7.6).
        else:
            self.by_token.setdefault(token, []).append(reply)

    def take_durable(self, token: int, now_ns: int) -> list[Effect]:
        """Every record up to this token is durable: the answers that waited for one leave, in the order of the
        records."""
        effects: list[Effect] = []
        if self.by_token:
            for each in range(self.durable + 1, token + 1):
                effects += [self._leaving(reply, now_ns) for reply in self.by_token.pop(each, ())]
        self.durable = max(self.durable, token)
        return effects

    def fail(self, reason: str) -> list[Effect]:
        """Answer everything pending as unknown, never as "no": nothing can be promised any more (P5.2f, P7.6)."""
        self.failure = reason
        effects: list[Effect] = []
        for token in sorted(self.by_token):
            effects += [_as_unknown(reply) for reply in self.by_token[token]]
        self.by_token.clear()
        return effects

    def _leaving(self, reply: Reply, now_ns: int) -> Reply:
        """The reply as it leaves now: the answer to an add reports to its writer whether a reader waits here (P6.2)."""
        answer = reply.control
        if isinstance(answer, AddAnswer) and self._parked.is_followed(answer.ledger_id, now_ns):
            return Reply(reply.link, reply.request_id, replace(answer, is_followed=True))
        return reply


def _as_unknown(reply: Reply) -> Reply:
    """The same answer with the status UNKNOWN, which is neither yes nor no."""
    control: Control = reply.control
    if isinstance(control, AddAnswer):
        control = AddAnswer(
            Status.UNKNOWN,
            control.nonce,
            control.seating,
            control.recovery,
            control.ledger_id,
            control.first_entry,
            control.last_entry,
        )
    elif isinstance(control, CopiesAnswer):
        control = as_unknown_copies(control)
    elif isinstance(control, ReplaceAnswer):
        control = ReplaceAnswer(Status.UNKNOWN, control.ledger_id, control.entry_id)
    elif isinstance(control, HoldingsAnswer):
        others = [HeldRange(Status.UNKNOWN, each.ledger_id) for each in control.others]
        control = HoldingsAnswer(Status.UNKNOWN, control.ledger_id, others=others)
    elif isinstance(control, LedgerBlocksAnswer):
        control = LedgerBlocksAnswer(Status.UNKNOWN)
    elif isinstance(control, FenceAnswer | ReadAnswer | ExplicitLacAnswer):
        control = type(control)(Status.UNKNOWN, control.ledger_id)
    return Reply(reply.link, reply.request_id, control)
