"""How a bookie counts the entries that it holds durably, for those who look after copies (P11.4).

Decides what is counted, and when the answer leaves: every range is counted, and everything that was accepted of its
ledger before is durable. Leaves to others whether a question can be answered, and how its parts are gathered
(`held_count`), and the counting itself (entry store).
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HeldRange, HoldingsRange, HoldingsRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.bookie_words import CountEntries, EntriesCounted, Reply, RequestReceived
from embedbk.core.held_count import HeldCount, why_not_counted
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.lookups import Lookup, Lookups
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies

__all__ = ["HoldingsCounting"]


class HoldingsCounting:
    """Answers questions for holdings. It has no state of its own: what is being counted is an open lookup."""

    __slots__ = ("_incarnation", "_looks", "_replies", "_table")

    def __init__(
        self, incarnation: bytes, table: AnyLedgerTable, replies: PendingReplies, looks: Lookups
    ) -> None:
        self._incarnation = incarnation
        self._table = table
        self._replies = replies
        self._looks = looks

    def getstate(self) -> dict[str, Any]:
        """The state for digests: none that is not the bookie's."""
        return {}

    def on_request(self, event: RequestReceived, request: HoldingsRequest, *, may_deny: bool) -> list[Effect]:
        """Count the entries held durably (P11.4); the answer waits until everything accepted is durable. may_deny:
        False: an older copy of these directories, or one beside older metadata, does not say that it has nothing of a
        ledger without a trace here (P7.9, P10.5)."""
        if refused := why_not_counted(request):
            return [Reply(event.link, event.request_id, ErrorAnswer(refused))]
        status = Status.OK
        if request.incarnation != self._incarnation:
            status = Status.WRONG_INCARNATION
        elif self._replies.failure is not None:
            status = Status.UNKNOWN
        asked: tuple[HoldingsRequest | HoldingsRange, ...] = (request, *request.others)
        without_trace = Status.NO_SUCH_LEDGER if may_deny else Status.UNKNOWN
        not_counted = without_trace if status == Status.OK else status
        held = HeldCount([HeldRange(not_counted, part.ledger_id) for part in asked], 0)
        effects: list[Effect] = []
        for place, part in enumerate(asked):
            row = self._table.get(part.ledger_id)
            if row is None or status != Status.OK:
                continue
            look = Lookup(event.link, event.request_id, request, row.ledger_id, row.last_token)
            look.held, look.place = held, place
            read_id = self._looks.begin(look)
            span = (part.first_entry, part.last_entry, part.modulus, part.residues)
            effects.append(CountEntries(read_id, row.ledger_id, *span, part.cuts, request.wants))
        held.left = len(effects)
        return effects or [Reply(event.link, event.request_id, held.answer)]

    def on_counted(self, event: EntriesCounted) -> list[Effect]:
        look = self._looks.end(event.read_id)
        if look is None or look.held is None:
            return []
        held = look.held
        part = HeldRange(Status.UNKNOWN, look.ledger_id)
        if event.count is not None:
            part = HeldRange(Status.OK, look.ledger_id, event.count, event.lacking, event.digests)
        held.take(look.place, part, look.wait_token)
        if held.left:
            return []
        effects: list[Effect] = []
        self._replies.reply_when(
            held.wait_token, Reply(look.link, look.request_id, held.answer), effects, event.now_ns
        )
        return effects
