"""Watches the bookies of a world, and runs the checks that each of their steps may break (I1 to I40 of bookies).

Keeps the ghost state of bookies up to date and calls `invariants_fencing` and `invariants_life`, which judge.
`handle_watch` watches clients' handles; `invariants` takes all other events of the world.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from embedbk.codec.add_messages import AddAnswer, AddRequest, CopiesAnswer, FenceAnswer, ReplaceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import FrameHeader
from embedbk.codec.journal_records import HELD_AGAIN, LIMBO_ENDS, RecordKind, decode_gone
from embedbk.codec.lac_messages import ExplicitLacAnswer, LacAnswer
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.bookie_words import (
    CollectionBegun,
    DecisionsRead,
    DropEntries,
    EntriesRead,
    JournalAppend,
    ReadDecisions,
    ReadEntries,
    Reply,
    RequestReceived,
    StoreFrame,
)
from embedbk.core.several import parts_of, ranges_of
from embedbk.core.upkeep_words import AskMetadata, MetadataTold
from embedbk.ids import NO_ENTRY
from embedbk.testing import invariants_fencing as fencing
from embedbk.testing import invariants_life as life
from embedbk.testing import invariants_reading as reading
from embedbk.testing.ghost import BookieGhost, Ghost
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["BookieWatch"]


class BookieWatch:
    """Every step of every `core.bookie.Bookie`."""

    def __init__(self, ghost: Ghost, sometimes: Sometimes) -> None:
        self.ghost = ghost
        self.sometimes = sometimes

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        ghost = self.ghost
        bookie = ghost.bookies.get(node)
        if bookie is None or bookie.member.incarnation != core.incarnation:
            bookie = ghost.bookie(node, core.incarnation)
        if bookie.is_fresh:
            self._look_at_restarted(bookie, core)
        request: Any = None
        if type(event) is RequestReceived:
            request = event
            bookie.asked[event.link, event.request_id] = event
            if type(event.control) is ReadRequest and event.control.fence:
                # A request that came twice is answered to the first.
                bookie.asked_behind.setdefault((event.link, event.request_id), bookie.questions)
            if type(event.control) is AddRequest:
                for header, _ in event.frames:
                    ledger = ghost.ledger(header.ledger_id)
                    fencing.carried_lac_is_true(ledger, header, is_recovery=event.control.recovery)
        elif type(event) is MetadataTold and not event.doubt:
            bookie.known_by = bookie.questions
        elif type(event) is CollectionBegun:
            bookie.collected = dict.fromkeys(event.ledger_ids, ghost.step)
        elif type(event) is DecisionsRead:
            request, _ = bookie.looks.pop(event.read_id, (None, []))
        elif type(event) is EntriesRead:
            request, ledgers = bookie.looks.pop(event.read_id, (None, []))
            if request is not None and type(request.control) is ReadRequest:
                self._on_found(bookie, request, ledgers, event)
        for effect in effects:
            kind = type(effect)
            if kind is Reply:
                self._on_reply(bookie, core, effect)
            elif kind is StoreFrame:
                self._on_store(bookie, core, effect, request)
            elif kind is JournalAppend:
                self._on_journal(bookie, effect)
            elif kind is DropEntries:
                ghost.carry_out_drop(bookie, effect.ledger_id)
            elif kind is AskMetadata:
                bookie.questions += 1
            elif kind is ReadDecisions:
                bookie.looks[effect.read_id] = (request, [effect.ledger_id])
            elif kind is ReadEntries:
                ledgers = [effect.ledger_id, *(each.ledger_id for each in effect.others)]
                bookie.looks[effect.read_id] = (request, ledgers)
                if request is not None and type(request.control) is AddRequest:
                    self.sometimes.note("add repeated")
        if request is not None:
            for ledger_id in _ledgers_of(request):
                row = core.table.get(ledger_id)
                # The row of a ledger that was dropped may be forgotten, and with it the LAC, which is given to nobody.
                if row is not None and not row.is_dropped:
                    fencing.row_lac_is_true_and_rises(bookie, ghost.ledger(ledger_id), row)
                if bookie.owed_limbo is None:
                    fencing.fence_is_sticky(bookie, ledger_id, row)

    def _on_found(
        self, bookie: BookieGhost, request: Any, ledgers: Sequence[int], event: EntriesRead
    ) -> None:
        """What a lookup for a read did not find, of one ledger or of several."""
        found = [(event.frame, event.absent), *event.others]
        for ledger_id, each in zip(ledgers, found, strict=True):
            if each is not None and each[1]:
                fencing.lookup_is_honest(bookie, self.ghost.ledger(ledger_id), each[1])
                # A request that came twice is looked for twice; the first look is answered first.
                bookie.found_absent.setdefault((request.link, request.request_id, ledger_id), each[1])

    def _look_at_restarted(self, bookie: BookieGhost, core: Any) -> None:
        bookie.is_fresh = False
        bookie.lacs.clear()  # LACs that were only in memory may be gone; I12 judges the acknowledged ones.
        if bookie.owed_limbo is not None:
            return  # It may have forgotten entries, and serves no client before they are in limbo.
        for ledger_id in bookie.fences:
            fencing.fence_is_sticky(bookie, ledger_id, core.table.get(ledger_id))
            self.sometimes.note("fence survived a restart")

    def _begin_serving(self, bookie: BookieGhost, core: Any) -> None:
        """The first answer after a start that may have lost something."""
        fencing.limbo_comes_first(self.ghost, bookie, core.table)
        bookie.owed_limbo = None
        self.sometimes.note("served after an unclean start")

    def _on_store(self, bookie: BookieGhost, core: Any, effect: StoreFrame, request: Any) -> None:
        frame = effect.frame
        ledger = self.ghost.ledger(frame.ledger_id)
        entries = fencing.content_is_what_was_sent(bookie, ledger, frame)
        asked = None if request is None else request.control
        # A copy that an operator has chosen replaces one that is here already (P11.5), which repair may have brought.
        is_normal = type(asked) is not ReplaceRequest and not (type(asked) is AddRequest and asked.recovery)
        if bookie.negatives:
            fencing.negative_is_final(bookie, ledger, entries, is_recovery=not is_normal)
        if frame.last_entry > ledger.top:
            ledger.top = frame.last_entry
        if ledger.damaged and any(ledger.damaged.get(e, 0) & bookie.bit for e in entries):
            self.sometimes.note("entry repaired")
        bookie.queued.append((effect.token, frame.ledger_id, entries))

    def _on_journal(self, bookie: BookieGhost, effect: JournalAppend) -> None:
        bookie.queued.append((effect.token, effect.ledger_id, ()))
        kind = effect.kind
        ledger = self.ghost.ledger(effect.ledger_id)
        if kind == RecordKind.LIMBO and bytes(effect.body) == HELD_AGAIN:
            self.ghost.take_back_drop(bookie, effect.ledger_id, effect.token)
        if kind == RecordKind.LIMBO and bytes(effect.body) == LIMBO_ENDS:
            fencing.limbo_ends_complete(self.ghost, bookie, ledger)
            return
        if kind in (RecordKind.FENCE, RecordKind.LIMBO, RecordKind.DROP):
            bookie.promises[effect.token] = effect.ledger_id
        if kind == RecordKind.GONE:
            last = decode_gone(effect.ledger_id, effect.body)
            bookie.gone[effect.token] = range(effect.ledger_id, last + 1)
            self.sometimes.note("ledgers gone behind a loss")
        elif kind == RecordKind.LIMBO:
            self.sometimes.note("in limbo")
        elif kind == RecordKind.DROP:
            life.drop_is_safe(ledger, bookie)
            self.ghost.drop(bookie, ledger)
            self.sometimes.note("ledger dropped")
        elif kind == RecordKind.EXPLICIT_LAC:
            self.sometimes.note("explicit LAC")
        elif kind == RecordKind.FENCE and ledger.top == NO_ENTRY:
            self.sometimes.note("fence of an unknown ledger")

    def _on_reply(self, bookie: BookieGhost, core: Any, effect: Reply) -> None:
        asked = bookie.asked.pop((effect.link, effect.request_id), None)
        if asked is None:
            return
        is_refusal = (
            type(effect.control) is ErrorAnswer or getattr(effect.control, "status", None) == Status.BUSY
        )
        if bookie.owed_limbo is not None and not is_refusal:
            self._begin_serving(bookie, core)
        request, answer = asked.control, effect.control
        if getattr(request, "incarnation", None) != bookie.member.incarnation:
            fencing.identity_is_checked(bookie, request, answer)
            if isinstance(answer, AddAnswer):
                self.sometimes.note("wrong incarnation")
            return
        if type(answer) is AddAnswer:
            self._on_added(bookie, core, answer, asked.frames[0][0])
        elif type(answer) is CopiesAnswer:
            for each, (header, _) in zip(_adds_of(answer), asked.frames, strict=True):
                self._on_added(bookie, core, each, header)
            self._note_several(
                [copy.status == Status.OK for copy in answer.copies], "several ledgers copied in one message"
            )
        elif type(answer) is ReadAnswer and answer.others:
            is_bounded = answer.status == Status.BUSY  # A part alone that is told to wait found no room.
            for one_request, one in _reads_of(request, answer):
                if is_bounded or one.status != Status.BUSY:
                    self._on_answer(bookie, core, one_request, one, effect)
            found = {frame.ledger_id for _, frame in effect.frames}
            self._note_several([part.ledger_id in found for part in parts_of(answer)], "")
        elif type(answer) in (FenceAnswer, ReadAnswer, LacAnswer, ExplicitLacAnswer):
            self._on_answer(bookie, core, request, answer, effect)

    def _note_several(self, went_through: list[bool], what: str) -> None:
        """Note which of several ledgers in one message went through."""
        if what and sum(went_through) > 1:
            self.sometimes.note(what)
        if any(went_through) and not all(went_through):
            self.sometimes.note("one of several ledgers refused")

    def _on_added(self, bookie: BookieGhost, core: Any, answer: AddAnswer, header: FrameHeader) -> None:
        row = core.table.get(answer.ledger_id)
        if answer.status == Status.OK:
            ledger = self.ghost.ledger(answer.ledger_id)
            fencing.normal_add_stops_at_the_fence(bookie, answer, row)
            fencing.acknowledged_is_stable(bookie, ledger, answer, header)
            fencing.limbo_gives_nothing_away(bookie, row, answer)
            if ledger.is_marked:
                for entry_id in fencing.entries_of(answer, header):
                    ledger.copied[entry_id] = ledger.copied.get(entry_id, 0) | bookie.bit
        elif answer.status == Status.FENCED:
            self.sometimes.note("add refused behind a fence")
        elif answer.status == Status.IN_LIMBO:
            self.sometimes.note("add refused in limbo")

    def _on_answer(self, bookie: BookieGhost, core: Any, request: Any, answer: Any, effect: Reply) -> None:
        ghost = self.ghost
        row = core.table.get(answer.ledger_id)
        fencing.limbo_gives_nothing_away(bookie, row, answer)
        if isinstance(answer, FenceAnswer):
            fencing.fence_creates_the_ledger(bookie, request, answer)
        is_fenced_read = isinstance(request, ReadRequest) and request.fence
        positive = (
            answer.status in (Status.OK, Status.NO_SUCH_LEDGER)
            if is_fenced_read
            else answer.status == Status.OK
        )
        if positive and fencing.is_fencing(request):
            fencing.fence_answer_is_durable(bookie, answer.ledger_id, ghost.step)
        if isinstance(answer, ReadAnswer) and isinstance(request, ReadRequest):
            ledger = ghost.ledger(answer.ledger_id)
            found = bookie.found_absent.pop((effect.link, effect.request_id, answer.ledger_id), [])
            fencing.negative_is_honest(bookie, ledger, request, answer, row, found)
            before = bookie.asked_behind.pop((effect.link, effect.request_id), 0)
            if request.fence and found and not answer.absent and row is not None and not row.in_limbo:
                self.sometimes.note("nothing denied, as metadata did not answer")
            if request.fence and answer.status == Status.OK and answer.absent:
                fencing.denied_behind_a_question(bookie, answer.ledger_id, before)
                told = bookie.negatives.setdefault(answer.ledger_id, [])
                for first, last in answer.absent:
                    pair = (max(first, request.first_entry), min(last, request.last_entry))
                    if pair not in told:
                        told.append(pair)
            if answer.status == Status.OK and not answer.absent and not effect.frames:
                self.sometimes.note("read answered unknown")
            if answer.status == Status.BUSY:
                reading.may_be_told_to_wait(core.read_budget.bounds, request, answer, len(effect.frames))
                self.sometimes.note("read told to wait")


def _ledgers_of(request: Any) -> list[int]:
    control = request.control
    if type(control) is AddRequest:
        return [header.ledger_id for header, _ in request.frames]
    own = getattr(control, "ledger_id", None)
    others = control.others if type(control) is ReadRequest else []
    return ([] if own is None else [own]) + [each.ledger_id for each in others]


def _adds_of(answer: CopiesAnswer) -> Iterator[AddAnswer]:
    """The same verdicts as of so many adds."""
    for copy in answer.copies:
        span = (copy.ledger_id, copy.first_entry, copy.last_entry)
        yield AddAnswer(copy.status, answer.nonce, answer.seating, True, *span)


def _reads_of(request: ReadRequest, answer: ReadAnswer) -> Iterator[tuple[ReadRequest, ReadAnswer]]:
    """The same questions and verdicts as of so many reads."""
    for each, part in zip(ranges_of(request), parts_of(answer), strict=True):
        if part.ledger_id != each.ledger_id:
            raise Violation("P11.2", f"a read of ledger {each.ledger_id} was answered for {part.ledger_id}")
        span = (each.ledger_id, each.first_entry, each.last_entry, request.bytes_max)
        one = ReadRequest(
            request.incarnation,
            *span,
            modulus=each.modulus,
            residues=each.residues,
            reads_as=request.reads_as,
        )
        yield one, ReadAnswer(part.status, part.ledger_id, part.absent, wait_ms=part.wait_ms)
