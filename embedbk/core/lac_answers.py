"""The LACs that a bookie knows, and what it answers about them: to readers that poll, and to idle writers (P6.2).

Decides whether a poll waits, what ends it, and which LAC is told; the core changes no row's LAC elsewhere. An explicit
LAC is durable before it is acknowledged; a hint is in memory only. Leaves to others which polls are pending (`parked`),
and which of their entries are found (entry store).

    poll -> pending ... a newer LAC, the fence, its time -> entries are wanted? -> ReadEntries ... EntriesRead -> Reply
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.bookie_fields import Status
from embedbk.codec.journal_records import RecordKind, encode_explicit_lac
from embedbk.codec.lac_messages import ExplicitLacAnswer, ExplicitLacRequest, LacAnswer, LacRequest
from embedbk.config import FRAME_BYTES_MAX, LAC_WAIT_MS_MAX
from embedbk.core.bookie_words import EntriesRead, Reply, RequestReceived
from embedbk.core.ledger_standing import knows_all, refusal_of
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.lookups import Lookup, Lookups, framed
from embedbk.core.machine import Effect
from embedbk.core.parked import ParkedPolls, Poll
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens

__all__ = ["LacAnswers"]

_MS = 1_000_000


class LacAnswers:
    """Answers polls and explicit LACs. Its state is in the rows, and in the list of pending polls."""

    __slots__ = ("_incarnation", "_looks", "_parked", "_records", "_replies", "_table")

    def __init__(
        self,
        incarnation: bytes,
        table: AnyLedgerTable,
        records: RecordTokens,
        replies: PendingReplies,
        looks: Lookups,
        parked: ParkedPolls,
    ) -> None:
        self._incarnation = incarnation
        self._table = table
        self._records = records
        self._replies = replies
        self._looks = looks
        self._parked = parked

    def getstate(self) -> dict[str, Any]:
        """The state for digests: none that is not the bookie's."""
        return {}

    def on_poll(self, event: RequestReceived, request: LacRequest) -> list[Effect]:
        if request.incarnation != self._incarnation:
            answer = LacAnswer(Status.WRONG_INCARNATION, request.ledger_id)
            return [Reply(event.link, event.request_id, answer)]
        row = self._table.get(request.ledger_id)
        # A poll for a ledger without entries waits like one for an idle ledger: the first entry wakes the reader.
        is_idle = row is None or (knows_all(row) and row.lac <= request.after_lac and not row.is_fenced)
        until_ns = event.now_ns + min(request.wait_ms, LAC_WAIT_MS_MAX) * _MS
        bytes_max = min(request.bytes_max, FRAME_BYTES_MAX)
        poll = Poll(event.link, event.request_id, request.ledger_id, request.after_lac, bytes_max, until_ns)
        if request.wait_ms > 0:
            self._parked.note_asked(request.ledger_id, event.now_ns)
        if request.wait_ms > 0 and is_idle and self._parked.park(poll):
            if row is not None:
                row.is_awaited = 1
            return []
        return [self._answer_poll(poll, row)]

    def found(self, look: Lookup, row: AnyLedgerRow, event: EntriesRead) -> list[Effect]:
        """The entries that come along with the LAC were looked up."""
        answer = _answer(row.ledger_id, row)
        return [Reply(look.link, look.request_id, answer, framed(event.frame))]

    def on_explicit(self, event: RequestReceived, request: ExplicitLacRequest) -> list[Effect]:
        status = Status.OK
        row = self._table.get(request.ledger_id)
        bound = self._table.key(row) if row is not None else None
        if request.incarnation != self._incarnation:
            status = Status.WRONG_INCARNATION
        elif self._replies.failure is not None:
            status = Status.UNKNOWN
        elif bound is not None and bound != request.ledger_key:
            status = Status.WRONG_KEY
        elif row is not None and (refusal := refusal_of(row)) is not None:
            status = refusal
        elif bound is None and request.is_hint:
            status = Status.NO_SUCH_LEDGER
        is_awaited = self._parked.is_followed(request.ledger_id, event.now_ns)
        answer = ExplicitLacAnswer(status, request.ledger_id, is_awaited)
        reply = Reply(event.link, event.request_id, answer)
        if status != Status.OK:
            return [reply] if request.wants_answer else []
        row, effects = self._records.row_with_key(request.ledger_id, request.ledger_key, from_reserve=False)
        if request.is_hint:
            woken = self.learn(row, request.lac, request.lac_length)
            return [*woken, reply] if request.wants_answer else woken
        if request.lac >= row.lac:  # Also of one that is known by a hint: that is in memory only.
            effects.append(
                self._records.append(
                    row, RecordKind.EXPLICIT_LAC, encode_explicit_lac(request.lac, request.lac_length)
                )
            )
            effects += self.learn(row, request.lac, request.lac_length)
        if request.wants_answer:
            self._replies.reply_when(row.last_token, reply, effects, event.now_ns)
        return effects

    def learn(self, row: AnyLedgerRow, lac: int, length: int) -> list[Effect]:
        """Take a newer LAC and answer the polls that wait for it. It never falls (I11)."""
        if lac <= row.lac:
            return []
        row.lac, row.lac_length = lac, length
        return self.wake(row)

    def wake(self, row: AnyLedgerRow) -> list[Effect]:
        """Answer the polls that the row's LAC, or its fence, ends."""
        polls = self._parked.wake(row.ledger_id, row.lac, is_fenced=bool(row.is_fenced))
        row.is_awaited = int(self._parked.is_awaited(row.ledger_id))
        return [self._answer_poll(poll, row) for poll in polls]

    def on_time(self, now_ns: int) -> list[Effect]:
        """Answer the polls whose time is over."""
        if self._parked.deadline_ns is None or now_ns < self._parked.deadline_ns:
            return []
        over = self._parked.expire(now_ns)
        return [self._answer_poll(poll, self._table.get(poll.ledger_id)) for poll in over]

    def _answer_poll(self, poll: Poll, row: AnyLedgerRow | None) -> Effect:
        """Answer a poll with the present LAC; where it wants the entries as well, they are looked up first."""
        if row is not None and knows_all(row) and poll.bytes_max > 0 and row.lac > poll.after_lac:
            look = Lookup(poll.link, poll.request_id, poll, row.ledger_id, 0)
            return self._looks.read(look, poll.after_lac + 1, row.lac, poll.bytes_max)
        return Reply(poll.link, poll.request_id, _answer(poll.ledger_id, row))


def _answer(ledger_id: int, row: AnyLedgerRow | None) -> LacAnswer:
    if row is None:
        return LacAnswer(Status.NO_SUCH_LEDGER, ledger_id)
    if not knows_all(row):
        return LacAnswer(Status.IN_LIMBO, ledger_id)
    return LacAnswer(Status.OK, ledger_id, row.lac, row.lac_length, bool(row.is_fenced))
