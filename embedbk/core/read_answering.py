"""How a bookie answers reads: of one ledger or of several, with a fence or without (P5.2f, P6.1, P7.4, P11.2).

Decides which reads are looked up, what is called absent of what was not found, and what the answer waits for. Leaves to
others: the fence (`fencing`), how much is read in a second (`read_budget`), how long a "no" to a recovery is held
(`denials`), whether this bookie may say "no" at all (its core), and the lookup (entry store).

    request -> its fence, its budget -> ReadEntries ... EntriesRead -> a "no" to a recovery: held -> Reply, when durable
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import Frame
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadPart, ReadRequest
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.bookie_words import EntriesRead, Reply, RequestReceived
from embedbk.core.denials import HELD_NS, Denial, Denials
from embedbk.core.fencing import Fencing
from embedbk.core.ledger_standing import knows_all
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.lookups import Lookup, Lookups, framed
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.read_budget import ReadBudget
from embedbk.core.several import SeveralReads, ranges_of, why_not_read
from embedbk.ids import NO_ENTRY

__all__ = ["ReadAnswering"]


class ReadAnswering:
    """Answers reads, and holds those that deny something to a recovery.

    may_deny: False: nothing that is missing is called absent (P7.9, P10.5)."""

    __slots__ = ("_budget", "_denials", "_fencing", "_incarnation", "_looks", "_replies", "_table")

    def __init__(
        self,
        incarnation: bytes,
        table: AnyLedgerTable,
        replies: PendingReplies,
        looks: Lookups,
        fencing: Fencing,
        budget: ReadBudget,
    ) -> None:
        self._incarnation = incarnation
        self._table = table
        self._replies = replies
        self._looks = looks
        self._fencing = fencing
        self._budget = budget
        self._denials = Denials()

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without what is the bookie's."""
        return {"denials": self._denials}

    @property
    def due_ns(self) -> int | None:
        """When an answer is held for too long."""
        return self._denials.due_ns

    def on_request(self, event: RequestReceived, request: ReadRequest, *, may_deny: bool) -> list[Effect]:
        sane = (
            0 <= request.first_entry <= request.last_entry
            and 0 < request.modulus <= 64
            and request.bytes_max > 0
        )
        if not sane:
            return [Reply(event.link, event.request_id, ErrorAnswer("a read of an impossible range"))]
        if request.others:
            return self._on_several(event, request, may_deny=may_deny)
        effects: list[Effect] = []
        if request.fence:
            status, effects = self._fencing.fence(request.incarnation, request.ledger_id, request.ledger_key)
        else:
            status = Status.OK if request.incarnation == self._incarnation else Status.WRONG_INCARNATION
        row = self._table.get(request.ledger_id)
        if status == Status.OK and row is None:
            status = Status.NO_SUCH_LEDGER
        if status != Status.OK or row is None:
            return [Reply(event.link, event.request_id, ReadAnswer(status, request.ledger_id))]
        # Looked up after the flag is set, counting every add accepted before it; a fenced read is answered, also
        # negatively, only when all of that and the fence are durable (P5.2f).
        wait_token = row.last_token if request.fence else 0
        look = Lookup(event.link, event.request_id, request, row.ledger_id, wait_token)
        if wait_ms := self._budget.take(event.now_ns, look.read_class):
            answer = ReadAnswer(Status.BUSY, request.ledger_id, wait_ms=wait_ms)
            return [Reply(event.link, event.request_id, answer)]
        bytes_max = min(request.bytes_max, FRAME_BYTES_MAX)
        effects.append(
            self._looks.read(
                look, request.first_entry, request.last_entry, bytes_max, request.modulus, request.residues
            )
        )
        return effects

    def found(
        self, look: Lookup, request: ReadRequest, row: AnyLedgerRow, event: EntriesRead, *, may_deny: bool
    ) -> list[Effect]:
        """What was looked up, of one ledger or of several."""
        found = [event.frame, *(each[0] for each in event.others if each is not None)]
        self._budget.settle(look.read_class, sum(len(each.body) for each in found if each is not None))
        if look.reads is not None:
            return self._found_several(look, look.reads, event, may_deny=may_deny)
        absent = _absent(row, event.absent, may_deny=may_deny)
        if absent and request.fence:
            return self._denials.hold(Denial(look, event.frame, absent, event.now_ns + HELD_NS))
        return self._answer(look, row, event.frame, absent, event.now_ns)

    def on_question_over(self, now_ns: int, *, may_deny: bool) -> list[Effect]:
        """Metadata has said which one it is, or not: what was held for that leaves, and the next question is put."""
        effects = self._answer_held(self._denials.take_answered(), now_ns, may_deny=may_deny)
        return effects + self._denials.ask()

    def on_time(self, now_ns: int) -> list[Effect]:
        """Answer what was held for too long: metadata may be older, so nothing is denied (P10.5)."""
        return self._answer_held(self._denials.take_late(now_ns), now_ns, may_deny=False)

    def _on_several(self, event: RequestReceived, request: ReadRequest, *, may_deny: bool) -> list[Effect]:
        """Reads of several ledgers, each with a verdict as if it had been asked for by itself (P11.2)."""
        ranges = ranges_of(request)
        if refused := why_not_read(request, ranges):
            return [Reply(event.link, event.request_id, ErrorAnswer(refused))]
        status = Status.NO_SUCH_LEDGER
        if request.incarnation != self._incarnation:
            status = Status.WRONG_INCARNATION
        parts, places = [ReadPart(status, each.ledger_id) for each in ranges], list[int]()
        if status == Status.NO_SUCH_LEDGER:
            places = [
                place for place, each in enumerate(ranges) if self._table.get(each.ledger_id) is not None
            ]
            if not may_deny:
                # An older copy of these directories says nothing about a ledger without a trace here (P7.9, P10.5).
                parts = [ReadPart(Status.UNKNOWN, each.ledger_id) for each in ranges]
        several = SeveralReads(parts, places)
        if not places:
            return [Reply(event.link, event.request_id, several.answer)]
        first, *others = (ranges[place] for place in places)
        look = Lookup(event.link, event.request_id, request, first.ledger_id, 0)
        if wait_ms := self._budget.take(event.now_ns, look.read_class):
            several.parts = [ReadPart(Status.BUSY, each.ledger_id, wait_ms=wait_ms) for each in ranges]
            return [Reply(event.link, event.request_id, several.answer)]
        look.reads = several
        bytes_max = min(request.bytes_max, FRAME_BYTES_MAX)
        span = (first.first_entry, first.last_entry, bytes_max, first.modulus, first.residues)
        effect = self._looks.read(look, *span)
        effect.others = others
        return [effect]

    def _found_several(
        self, look: Lookup, several: SeveralReads, event: EntriesRead, *, may_deny: bool
    ) -> list[Effect]:
        frames: list[tuple[bytes, Frame]] = []
        for place, found in zip(several.places, [(event.frame, event.absent), *event.others], strict=True):
            if found is None:
                several.take(place, None)
                continue
            row = self._table.get(several.parts[place].ledger_id)
            assert row is not None
            several.take(place, _absent(row, found[1], may_deny=may_deny))
            frames += framed(found[0])
        return [Reply(look.link, look.request_id, several.answer, frames)]

    def _answer(
        self,
        look: Lookup,
        row: AnyLedgerRow,
        frame: Frame | None,
        absent: list[tuple[int, int]],
        now_ns: int,
    ) -> list[Effect]:
        told = (row.lac, row.lac_length) if knows_all(row) else (NO_ENTRY, 0)
        answer = ReadAnswer(Status.OK, row.ledger_id, absent, *told)
        effects: list[Effect] = []
        reply = Reply(look.link, look.request_id, answer, framed(frame))
        self._replies.reply_when(look.wait_token, reply, effects, now_ns)
        return effects

    def _answer_held(self, held: list[Denial], now_ns: int, *, may_deny: bool) -> list[Effect]:
        effects: list[Effect] = []
        for look, frame, absent, _ in held:
            row = self._table.get(look.ledger_id)
            if row is None:  # It was dropped meanwhile, and is forgotten.
                unknown = ReadAnswer(Status.UNKNOWN, look.ledger_id)
                effects.append(Reply(look.link, look.request_id, unknown))
                continue
            denied = _absent(row, absent, may_deny=may_deny)
            effects += self._answer(look, row, frame, denied, now_ns)
        return effects


def _absent(row: AnyLedgerRow, absent: list[tuple[int, int]], *, may_deny: bool) -> list[tuple[int, int]]:
    """What may be called absent of that which is missing: nothing in limbo, or after the ledger's data was dropped
    (P7.1, P7.3, P7.4), nothing in an older copy, where it may be missing (P7.9), and nothing beside older metadata,
    by which bookies are asked that have no seat of the entry any more (P10.5)."""
    return absent if knows_all(row) and may_deny else []
