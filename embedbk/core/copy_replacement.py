"""One copy in the place of another at a bookie, by an operator's word (P11.5).

Decides whether the request is carried out: by the decision in the metadata, and by the copy that is held. Leaves to
others where decisions are read (`host/deciding`), what the entry store finds, and the journal.

    request -> ReadDecisions -> ReadEntries -> the copy is as the word says? -> StoreFrame ... JournalDurable -> Reply
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embedbk.codec.add_messages import ReplaceAnswer, ReplaceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.copy_decision import CopyDecision
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import frame_of, split
from embedbk.codec.messages import ErrorAnswer
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.bookie_words import DecisionsRead, EntriesRead, ReadDecisions, Reply, RequestReceived
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.lookups import Lookup, Lookups
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens
from embedbk.errors import PeerError

__all__ = ["CopyReplacement"]


class CopyReplacement:
    """Answers requests to replace a copy. It has no state of its own: a request in progress is an open lookup."""

    __slots__ = ("_incarnation", "_looks", "_records", "_replies", "_table")

    def __init__(
        self,
        incarnation: bytes,
        table: AnyLedgerTable,
        records: RecordTokens,
        replies: PendingReplies,
        looks: Lookups,
    ) -> None:
        self._incarnation = incarnation
        self._table = table
        self._records = records
        self._replies = replies
        self._looks = looks

    def getstate(self) -> dict[str, Any]:
        """The state for digests: none that is not the bookie's."""
        return {}

    def on_request(self, event: RequestReceived, request: ReplaceRequest) -> list[Effect]:
        """Replace one copy by an operator's word, if it is still the one that the word is about (P11.5)."""
        if len(event.frames) != 1:
            refused = ErrorAnswer(f"a replacement has one frame, not {len(event.frames)}")
            return [Reply(event.link, event.request_id, refused)]
        row, status, frame = self._table.get(request.ledger_id), Status.OK, None
        try:
            frame = frame_of(event.frames[0][1], request.ledger_id)
        except PeerError:
            status = Status.BAD_FRAME
        if frame is not None and (frame.first_entry, frame.last_entry) != (
            request.entry_id,
            request.entry_id,
        ):
            status = Status.BAD_FRAME
        if request.incarnation != self._incarnation:
            status = Status.WRONG_INCARNATION
        elif self._replies.failure is not None:
            status = Status.UNKNOWN
        elif row is None or row.is_dropped:
            status = Status.NO_SUCH_LEDGER
        # One at a time: of two that are looked up together each would meet the copy that it may replace.
        elif self._looks.is_replacing(request):
            status = Status.BUSY
        if status != Status.OK or row is None:
            return [Reply(event.link, event.request_id, _replaced(status, request))]
        look = Lookup(event.link, event.request_id, request, row.ledger_id, row.last_token, frame)
        read_id = self._looks.begin(look)
        return [ReadDecisions(read_id, request.ledger_id, request.entry_id)]

    def on_decisions(self, event: DecisionsRead) -> list[Effect]:
        """Any peer that reaches this bookie can ask for it, so only the decision in the metadata counts."""
        look = self._looks.end(event.read_id)
        if look is None:
            return []
        request, frame = look.request, look.frame
        assert isinstance(request, ReplaceRequest) and frame is not None
        status = Status.UNKNOWN
        if event.decisions is not None and self._replies.failure is None:
            meant = (self._incarnation, request.replaces, entry_digest(frame.body))
            status = Status.OK if _is_decided(event.decisions, meant) else Status.WRONG_KEY
        if status != Status.OK:
            return [Reply(look.link, look.request_id, _replaced(status, request))]
        return [self._looks.read(look, request.entry_id, request.entry_id, FRAME_BYTES_MAX)]

    def finish(
        self, look: Lookup, request: ReplaceRequest, row: AnyLedgerRow, event: EntriesRead
    ) -> list[Effect]:
        frame, effects = look.frame, list[Effect]()
        assert frame is not None
        if self._replies.failure is not None:
            return [Reply(look.link, look.request_id, _replaced(Status.UNKNOWN, request))]
        held = dict(split(event.frame)) if event.frame is not None else {}
        stored = held.get(request.entry_id)
        digest = entry_digest(stored) if stored is not None else 0
        if stored is None or (stored != frame.body and digest != request.replaces):
            return [Reply(look.link, look.request_id, _replaced(Status.CONFLICT, request, digest))]
        if stored != frame.body:
            effects.append(self._records.store(row, frame))
        reply = Reply(look.link, look.request_id, _replaced(Status.OK, request, entry_digest(frame.body)))
        self._replies.reply_when(row.last_token, reply, effects, event.now_ns)
        return effects


def _is_decided(decisions: Sequence[CopyDecision], meant: tuple[bytes, int, int]) -> bool:
    """Whether the newest word says that on this disk the copy with this digest gives way to the one with that."""
    return any(
        (copy.incarnation, copy.digest, decision.chosen.digest) == meant
        for decision in decisions[-1:]
        for copy in decision.replaced
    )


def _replaced(status: Status, request: ReplaceRequest, held: int = 0) -> ReplaceAnswer:
    return ReplaceAnswer(status, request.ledger_id, request.entry_id, held)
