"""How a bookie answers for many ledgers with one number, for those who look after copies (P11.4).

Decides whether numbers are told, and when the answer leaves: all that was accepted of the ledgers before is durable by
then. Leaves to others what a number is made of (ledger table, `storage/holding.py`). It promises one thing: while
the number of some ledgers is the same, so is what a question for holdings would be answered about each of them.
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import LedgerBlocksAnswer, LedgerBlocksRequest
from embedbk.core.bookie_words import BlocksNumbered, NumberBlocks, Reply, RequestReceived
from embedbk.core.lookups import Lookup, Lookups
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies

__all__ = ["BlockNumbering"]


class BlockNumbering:
    """Answers questions for numbers of blocks. It has no state of its own: a question is an open lookup."""

    __slots__ = ("_incarnation", "_looks", "_replies")

    def __init__(self, incarnation: bytes, replies: PendingReplies, looks: Lookups) -> None:
        self._incarnation = incarnation
        self._replies = replies
        self._looks = looks

    def getstate(self) -> dict[str, Any]:
        """The state for digests: none that is not the bookie's."""
        return {}

    def on_request(
        self, event: RequestReceived, request: LedgerBlocksRequest, *, is_settled: bool
    ) -> list[Effect]:
        """Number the blocks. is_settled: it is known that these directories are no older copy (P7.9)."""
        status = Status.OK
        if request.incarnation != self._incarnation:
            status = Status.WRONG_INCARNATION
        elif self._replies.failure is not None or not is_settled:
            status = Status.UNKNOWN
        if status != Status.OK:
            return [Reply(event.link, event.request_id, LedgerBlocksAnswer(status))]
        look = Lookup(event.link, event.request_id, request, request.blocks[0].first_ledger, 0)
        return [NumberBlocks(self._looks.begin(look), request.blocks)]

    def on_numbered(self, event: BlocksNumbered) -> list[Effect]:
        look = self._looks.end(event.read_id)
        if look is None:
            return []
        effects: list[Effect] = []
        reply = Reply(look.link, look.request_id, LedgerBlocksAnswer(Status.OK, event.numbers))
        self._replies.reply_when(event.last_token, reply, effects, event.now_ns)
        return effects
