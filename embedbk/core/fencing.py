"""How a bookie fences a ledger: it takes no more normal adds of it, ever (P5.2f).

Decides when a fence holds, and which LAC its answer gives. A recovery asks for one by itself, or with a read. Leaves to
others what a fence refuses (`ledger_standing`), and its readers (`lac_answers`).
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.add_messages import FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.journal_records import RecordKind
from embedbk.core.bookie_words import Reply, RequestReceived
from embedbk.core.lac_answers import LacAnswers
from embedbk.core.ledger_standing import knows_all
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens
from embedbk.ids import NO_ENTRY

__all__ = ["Fencing"]


class Fencing:
    """Fences ledgers. It has no state of its own: a fence is a flag of the ledger's row."""

    __slots__ = ("_incarnation", "_lacs", "_records", "_replies", "_table")

    def __init__(
        self,
        incarnation: bytes,
        table: AnyLedgerTable,
        records: RecordTokens,
        replies: PendingReplies,
        lacs: LacAnswers,
    ) -> None:
        self._incarnation = incarnation
        self._table = table
        self._records = records
        self._replies = replies
        self._lacs = lacs

    def getstate(self) -> dict[str, Any]:
        """The state for digests: none that is not the bookie's."""
        return {}

    def on_request(self, event: RequestReceived, request: FenceRequest) -> list[Effect]:
        status, effects = self.fence(request.incarnation, request.ledger_id, request.ledger_key)
        if status != Status.OK:
            return [Reply(event.link, event.request_id, FenceAnswer(status, request.ledger_id))]
        row = self._table.get(request.ledger_id)
        assert row is not None
        # Limbo's answer counts for coverage but gives no LAC: what it has forgotten may be higher (P5.2b, P7.4).
        lac, length = (row.lac, row.lac_length) if knows_all(row) else (NO_ENTRY, 0)
        answer = FenceAnswer(Status.OK, row.ledger_id, lac, length)
        self._replies.reply_when(
            row.last_token, Reply(event.link, event.request_id, answer), effects, event.now_ns
        )
        return effects

    def fence(self, incarnation: bytes, ledger_id: int, key: bytes) -> tuple[Status, list[Effect]]:
        """Set the flag where the add path checks it, in the step that queues its record (P5.2f).

        It creates an unknown ledger, bound to no password (P3.5, I20). The answer must wait for `last_token`: the
        fence's own record, or a later one; and with it everything accepted before the flag.
        """
        if incarnation != self._incarnation:
            return Status.WRONG_INCARNATION, []
        if self._replies.failure is not None:
            return Status.UNKNOWN, []
        row = self._table.get(ledger_id) or self._table.create(ledger_id, from_reserve=True)
        bound = self._table.key(row)
        if bound is not None and bound != key:
            return Status.WRONG_KEY, []
        if row.is_fenced:
            return Status.OK, []
        row.is_fenced = 1
        effects: list[Effect] = [self._records.append(row, RecordKind.FENCE, bound or b"")]
        return Status.OK, effects + self._lacs.wake(row)
