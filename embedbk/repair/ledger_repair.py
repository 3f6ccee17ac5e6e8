"""One worker's repair of one marked ledger, under its hold (P11.2).

Decides when what is copied, when a copied fragment is published, and what becomes of the mark; `repair_copying` has the
copies, `repair_plan` decides what comes next, `held_ledger` what each transaction compares, `known_bookies` who may get
seats. A seat is lost if the mark names its bookie and that bookie is not registered now. A bookie that the mark names
and that is registered keeps its seats: of a CLOSED ledger it is asked whether it holds all that they owe, and gets what
it lacks (P11.4). If it lacks nothing, the mark ends without a copy (AR11). A bookie that is drained gives its seats
away, too, and is read from (P11.3). The last fragment of a ledger that is not CLOSED is left to its writer; where the
mark says that nobody closes the ledger, it is closed first (AR08, `orphan_closing.py`). Before all that, a CLOSED
ledger of a log whose settings name other numbers of copies gets these, where bookies are there (P2.6, `reshaping.py`):
it then has no seat that is lost.

    mark and ledger read ─▶ another shape, or a
                            fragment with lost seats ─▶ targets, written into the mark ─▶ copying (fragment_copy)
          ▲                         │ none left: seats whose bookies are there (seat_fill), one by one; then      │
          │                         │ the mark ends, is postponed, or the ledger cannot be repaired               │
          └── refused: read anew ── published, by one compare-and-set, when every copy is durable (I36) ◀────────┘

The target stands in the mark before the first copy, and the mark keeps its ledger on every bookie (P7.7): else the
target's collector drops what no fragment names yet. Every transaction compares the hold, so a worker that lost it
changes nothing (P9.1). The one that publishes also compares the mark, since bookies did not keep the copies while it
was gone, and the placements of the bookies that are newly named (P10.6). The last entry is never changed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Refusal
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import (
    WHY_CHARS_MAX,
    MarkProgress,
    RepairMark,
    is_orphan,
    progress_of,
    with_orphan,
    with_progress,
)
from embedbk.codec.repair_messages import EndRepairs, FailRepairs
from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, SendFailed
from embedbk.core.machine import Effect, Handlers, Machine, earliest
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.placement import Chance
from embedbk.core.repair_words import AskQuorum, QuorumAnswered, RepairOutcome
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.client import is_unknown
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import USUAL_COPYING, CopyOptions, CopyResult, FragmentCopy, Shape
from embedbk.repair.held_ledger import HeldLedger
from embedbk.repair.known_bookies import KnownBookies
from embedbk.repair.orphan_closing import ORPHAN, Answer, LedgerKey, OrphanClosing
from embedbk.repair.repair_copying import RepairCopying
from embedbk.repair.repair_plan import RepairPlan, SeatToFill
from embedbk.repair.reshaping import Reshape, is_misfit, log_of, shape_of_settings
from embedbk.repair.seat_fill import SeatFill
from embedbk.repair.target_choice import mark_with_targets

__all__ = ["LedgerRepair"]

_MS = 1_000_000
_RETRY_NS = 200 * _MS  # Behind a question that the metadata did not answer, or a change that was refused.
_LET_GO_NS = 1_000 * _MS
_TROUBLES_MAX = 25  # Troubles in one repair; then it is postponed.


class LedgerRepair(Machine):
    """Ends with a RepairOutcome; its hold is given back then, or was lost."""

    def __init__(
        self,
        ledger_id: int,
        epoch: int,
        mark_revision: int,
        bookies: tuple[BookieInfo, ...],
        nonce: int,
        chance: Chance,
        pace: CopyPace,
        placement: Placement = ANYWHERE,
        options: CopyOptions = USUAL_COPYING,
        *,
        may_reshape: bool = False,
        opener: LedgerKey | None = None,
    ) -> None:
        """may_reshape: all nodes know ledgers whose numbers of copies change (P10.8). opener: of ledgers without a
        password; None: none is closed that its writer left."""
        self.ledger_id = ledger_id
        self.held = HeldLedger(ledger_id, epoch, mark_revision)
        self.bookies = KnownBookies(bookies, placement, chance)
        self.plan = RepairPlan(self.bookies)
        self.nonce = nonce
        self.chance = chance
        self.copying = RepairCopying(nonce, pace, options)
        self.questions = 0
        self.asked: Any = (
            None  # The tag of the question that is out; any other answer is of one that was given up.
        )
        self.retry_at: int | None = None
        self.troubles = 0
        self.may_reshape = may_reshape  # Until that was tried.
        self.reshape: Reshape | None = None
        self.opener = opener  # None, once that was tried.
        self.closing: OrphanClosing | None = None
        self.closings = 0
        self.filling: SeatToFill | None = None
        self.ending: EndRepairs | FailRepairs | None = None  # How the mark ends, once that is decided.
        self.outcome = RepairOutcome(ledger_id, "lost")
        self.is_over = False

    @property
    def deadline_ns(self) -> int | None:
        if self.is_over:
            return None
        return earliest(
            self.retry_at,
            self.copying.deadline_ns,
            self.closing.deadline_ns if self.closing is not None else None,
        )

    # Reading mark and ledger.

    def _ask(self, kind: str, *more: str) -> Any:
        self.questions += 1
        self.asked = (kind, self.questions, *more)
        return self.asked

    def _read(self, kind: str, key: str) -> list[Effect]:
        return [ReadKey(self._ask(kind), key)]

    def _on_started(self, event: Started) -> list[Effect]:
        return self._read("hold", self.held.hold_key)

    def _begin_anew(self, now_ns: int) -> list[Effect]:
        """Soon, from the hold on; too often is another try's matter."""
        self.troubles += 1
        if self.troubles > _TROUBLES_MAX:
            return self._postpone("the metadata refuses, or does not answer")
        self.asked, self.retry_at = None, now_ns + _RETRY_NS
        return []

    def _on_failed(self, event: MetadataFailed | TransactUnknown | TransactRefused) -> list[Effect]:
        """A change whose outcome is unknown is looked for in the metadata as it is now (P2.2)."""
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.is_over or (event.tag != self.asked and not self._is_of_placements(event.tag)):
            return []
        if event.tag[0] == "why":
            return self._give_back()
        return self._begin_anew(event.now_ns)

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.is_over:
            return []
        if event.tag[0] == "placement":
            return self._on_placement(event)
        if event.tag != self.asked:
            return []
        if event.tag[0] == "hold":
            if event.value is None or event.revision != self.held.epoch:
                return self._end()  # Another worker repairs it, or none does: there is no hold to give back.
            return self._read("mark", self.held.mark_key)
        if event.tag[0] == "mark":
            return self._on_mark(event)
        if event.tag[0] == "settings":
            return self._on_settings(event)
        return self._on_ledger(event)

    def _on_mark(self, event: KeyRead) -> list[Effect]:
        if not self.held.is_same_mark(event.revision):
            # It may have been gone meanwhile, and with it what kept the copies where they are.
            self.copying.copied.clear()
            self.reshape = None
        try:
            is_there = self.held.take_mark(event.value, event.revision)
        except StorageError as unread:
            self.outcome = RepairOutcome(self.ledger_id, "unrepairable", why=str(unread))
            return self._give_back()
        if not is_there:  # An operator took it away.
            return self._finish("nothing missing")
        return self._read("ledger", self.held.ledger_key)

    def _on_ledger(self, event: KeyRead) -> list[Effect]:
        mark = self.held.mark
        assert mark is not None
        if event.value is None:
            return self._finish("nothing missing")  # Deleted. Whoever brings it back marks it again.
        if not self.held.is_known(event.value):
            # Others changed it: what was found before is of other metadata, and is looked for anew (AR10).
            self.plan.judge_anew()
        try:
            metadata = self.held.take_ledger(event.value, event.revision)
        except StorageError as unread:
            self.plan.stop(0, NO_ENTRY, str(unread), mark.missing)
            return self._give_up()
        log = log_of(metadata)
        if self.may_reshape and log is not None and metadata.is_closed:
            return self._read("settings", log_settings_path(log))
        if self._is_orphan(metadata, mark):
            return self._begin_closing(event.now_ns)
        return self._settle(event.now_ns, self._next_fragment(event.now_ns))

    # A ledger that its writer left (AR08).

    def _is_orphan(self, metadata: LedgerMetadata, mark: RepairMark) -> bool:
        """Nobody closes it, as the mark says, and a bookie of its last fragment is not there, or leaves. An OPEN ledger
        that names no writer never is: then that cannot be told."""
        if metadata.is_closed or self.opener is None or not is_orphan(mark):
            return False
        if metadata.state == LedgerState.OPEN and not metadata.writer:
            return False
        last, missing, staying = metadata.fragments[-1], frozenset(mark.missing), self.bookies.staying
        return any(member not in staying for member in last.members if member.bookie_id in missing)

    def _begin_closing(self, now_ns: int) -> list[Effect]:
        metadata, opener = self.held.metadata, self.opener
        assert metadata is not None and opener is not None
        self.asked = None
        if metadata.password_verifier != opener.verifier:
            return self._not_closed(
                now_ns, "its writer is gone, and only who knows its password can recover it"
            )
        self.closings += 1
        self.closing = OrphanClosing(
            metadata,
            self.held.revision,
            self.held.compared(),
            opener,
            self.nonce,
            self.bookies.listed,
            self.chance,
            self.bookies.placement,
            self.closings,
        )
        return self._closed(now_ns, self.closing.begin(now_ns))

    def _is_of_closing(self, event: Answer) -> bool:
        return isinstance(event.tag, tuple) and event.tag[0] == ORPHAN

    def _close(self, now_ns: int, event: Answer) -> list[Effect]:
        return [] if self.closing is None else self._closed(now_ns, self.closing.on_answer(event))

    def _closed(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Take its result, once it has one."""
        closing = self.closing
        if closing is None or closing.result is None:
            return effects
        self.closing = None
        if closing.result == "closed":
            return [*effects, *self._read("hold", self.held.hold_key)]
        if closing.result == "changed":
            return [*effects, *self._begin_anew(now_ns)]
        if closing.result == "lives":
            # The grace counts anew, by the auditor, when it shows no life again.
            assert self.held.mark is not None
            return [*effects, *self._put_mark("lives", with_orphan(self.held.mark, is_so=False))]
        return [*effects, *self._not_closed(now_ns, closing.result)]

    def _not_closed(self, now_ns: int, why: str) -> list[Effect]:
        """Its older fragments are repaired all the same."""
        assert self.held.metadata is not None
        self.opener = None
        self.plan.put_off(self.held.metadata.fragments[-1].first_entry, why)
        return self._settle(now_ns, self._next_fragment(now_ns))

    # Another shape (P2.6).

    def _on_settings(self, event: KeyRead) -> list[Effect]:
        metadata = self.held.metadata
        assert metadata is not None
        log = log_of(metadata)
        assert log is not None
        wanted = shape_of_settings(event.value, log)
        if wanted is None or not is_misfit(metadata, wanted):
            return self._leave_shape(event.now_ns)
        known = self.reshape
        if (
            known is None
            or (known.shape.quorum, known.revision) != (wanted, self.held.revision)
            or known.names(self.bookies.failed_targets)
        ):
            ensemble = self._choose_all(wanted)
            if ensemble is None:
                return self._leave_shape(event.now_ns)
            self.reshape = Reshape(
                Shape(wanted, ensemble), log_settings_path(log), event.revision, self.held.revision
            )
        else:
            known.settings_revision = event.revision
        return self._settle(event.now_ns, self._name_targets(event.now_ns))

    def _choose_all(self, wanted: Quorum) -> tuple[Member, ...] | None:
        ensemble = self.bookies.choose_all(wanted)
        if ensemble is None and (failed := self.bookies.failed):
            needed = f"{wanted.ensemble_size} bookies are needed beside {', '.join(failed)}, which failed"
            self.plan.put_off(NO_ENTRY, needed)
        return ensemble

    def _leave_shape(self, now_ns: int) -> list[Effect]:
        """It has the shape that it should have, or gets it in another try: what is lost is repaired as it is."""
        self.may_reshape, self.reshape = False, None
        return self._settle(now_ns, self._next_fragment(now_ns))

    def _reshaped(self, now_ns: int, copying: FragmentCopy, result: CopyResult) -> list[Effect]:
        assert self.reshape is not None
        if result.kind == "done":
            self.reshape.copied.add(self.copying.number)
            return self._begin_copying(now_ns)
        if result.target is not None:
            self.bookies.refuse(result.target)
            return self._read("settings", self.reshape.settings)
        self.plan.put_off(NO_ENTRY, result.why)
        return self._leave_shape(now_ns)

    # What comes next.

    def _next_fragment(self, now_ns: int) -> list[Effect]:
        """Begin what comes next. What cannot be done now keeps nothing else from being done."""
        metadata, mark = self.held.metadata, self.held.mark
        assert metadata is not None and mark is not None
        seats = self.plan.next_seats(metadata, mark, has_copies=bool(self.copying.copies))
        if seats is not None:
            self.copying.take_seats(*seats)
            return self._name_targets(now_ns)
        self.filling = self.plan.next_fill(metadata, mark)
        if self.filling is not None:
            return self.copying.begin_fill(now_ns, metadata, self.filling, self.bookies.there)
        kind, why = self.plan.verdict()
        if kind == "unrepairable":
            return self._give_up()
        if kind:
            return self._postpone(why, kind=kind)
        return self._finish("repaired" if self.copying.copies or self.copying.copied else "nothing missing")

    @property
    def _targets(self) -> tuple[Member, ...]:
        if self.reshape is not None:
            return self.reshape.shape.ensemble
        return tuple(self.copying.holders.values())

    def _name_targets(self, now_ns: int) -> list[Effect]:
        """Into the mark, before the first copy."""
        mark = self.held.mark
        assert mark is not None
        named = mark_with_targets(mark, self._targets)
        if named is mark:
            return self._begin_copying(now_ns)
        return self._put_mark("target", named)

    def _put_mark(self, kind: str, mark: RepairMark) -> list[Effect]:
        return [self.held.put_mark(self._ask(kind), mark)]

    # Copying.

    def _begin_copying(self, now_ns: int) -> list[Effect]:
        metadata, there = self.held.metadata, self.bookies.there
        assert metadata is not None
        if self.reshape is not None:
            number = self.reshape.next_fragment(metadata)
            if number is None:
                return self._publish_shape()
            return self.copying.begin_reshaped(now_ns, metadata, number, self.reshape.shape, there)
        if self.copying.is_copied(metadata):
            return self._publish()
        return self.copying.begin(now_ns, metadata, there)

    def _settle(self, now_ns: int, effects: list[Effect]) -> list[Effect]:
        """Take the result of a copying that is over. One whose bookies are all away is over when it begins, and a
        ledger may have thousands of fragments."""
        while (over := self.copying.take_over()) is not None:
            effects = [*effects, *self._copied(now_ns, *over)]
        return effects

    def _filled(self, now_ns: int, filling: SeatFill, result: CopyResult) -> list[Effect]:
        assert self.filling is not None
        if result.kind in ("cannot tell", "target failed"):
            self.plan.put_off_fill(self.filling, result.why)
            return self._next_fragment(now_ns)
        self.plan.end_fill(self.filling)
        if result.kind == "no good copy":
            bookies = (filling.member.bookie_id,)
            self.plan.stop(filling.fragment.first_entry, result.entry_id, result.why, bookies)
        return self._next_fragment(now_ns)

    def _copied(self, now_ns: int, copying: FragmentCopy | SeatFill, result: CopyResult) -> list[Effect]:
        if isinstance(copying, SeatFill):
            return self._filled(now_ns, copying, result)
        if self.reshape is not None:
            return self._reshaped(now_ns, copying, result)
        first = copying.fragment.first_entry
        if result.kind == "done":
            self.copying.note_copied(copying)
            return self._publish()
        if result.kind == "no good copy":
            bookies = tuple(copying.fragment.members[seat].bookie_id for seat in self.copying.holders)
            self.plan.stop(first, result.entry_id, result.why, bookies)
            return self._next_fragment(now_ns)
        if result.target is not None:
            self.bookies.refuse(result.target)
        else:
            self.plan.put_off(first, result.why)
        return self._next_fragment(now_ns)

    def _on_answered(self, event: Answered) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.copying.running is None:
            return []
        return self._settle(event.now_ns, self.copying.running.on_answered(event))

    def _on_send_failed(self, event: SendFailed) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.copying.running is None:
            return []
        return self._settle(event.now_ns, self.copying.running.on_send_failed(event))

    # Publishing.

    def _publish(self) -> list[Effect]:
        """The seats of one fragment, in one compare-and-set. Nothing else of the ledger changes."""
        metadata = self.held.metadata
        assert metadata is not None
        return self._put_ledger(self.copying.published(metadata))

    def _publish_shape(self) -> list[Effect]:
        """E, Qw, Qa and all fragments, while the settings that name them stand."""
        reshape, metadata = self.reshape, self.held.metadata
        assert reshape is not None and metadata is not None
        settings = Compare(reshape.settings, reshape.settings_revision)
        return self._put_ledger(reshape.published(metadata), settings)

    def _put_ledger(self, changed: LedgerMetadata, *more: Compare) -> list[Effect]:
        when = [*more, *self.bookies.compare_placements(self._targets)]
        return [self.held.put_ledger(self._ask("publish"), changed, when)]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if self._is_of_closing(event):
            return self._close(event.now_ns, event)
        if self.is_over or event.tag != self.asked:
            return []
        kind = event.tag[0]
        if kind == "target" and event.is_done:
            self.held.mark_is_put(event.revision)
            return self._settle(event.now_ns, self._begin_copying(event.now_ns))
        if kind == "lives" and event.is_done:
            self.held.mark_is_put(event.revision)
            return self._settle(event.now_ns, self._next_fragment(event.now_ns))
        if kind == "publish" and event.is_done:
            self.held.ledger_is_put(event.revision)
            if self.reshape is not None:
                return self._leave_shape(event.now_ns)
            self.copying.note_published()
            return self._settle(event.now_ns, self._next_fragment(event.now_ns))
        if kind == "publish":
            return self._ask_placements(event.now_ns)
        if kind == "unrepairable" and event.is_done:
            return self._let_go(self.held.ended())
        if kind == "why":
            return self._give_back()  # For people; without it, too.
        return self._begin_anew(event.now_ns)

    def _ask_placements(self, now_ns: int) -> list[Effect]:
        """The transaction was refused, perhaps because a chosen bookie may not be named any more (P10.6)."""
        to_read = self.bookies.placements_to_read()
        if not to_read:
            return self._begin_anew(now_ns)
        number = self._ask("placements")[1]
        return [ReadKey(("placement", number, bookie_id), placement_path(bookie_id)) for bookie_id in to_read]

    def _is_of_placements(self, tag: Any) -> bool:
        """One of several questions, each with a tag of its own."""
        return bool(tag[0] == "placement" and self.asked == ("placements", tag[1]))

    def _on_placement(self, event: KeyRead) -> list[Effect]:
        if not self._is_of_placements(event.tag):
            return []
        bookie_id = event.tag[2]
        revision = ABSENT if event.value is None else event.revision
        is_last = self.bookies.take_placement(bookie_id, revision)
        return self._begin_anew(event.now_ns) if is_last else []

    # The end.

    def _finish(self, kind: str) -> list[Effect]:
        made = self.copying
        self.outcome = RepairOutcome(
            self.ledger_id, kind, made.copies, made.copied_bytes, "", made.filled, made.moved
        )
        return self._let_go(self.held.ended())

    def _give_up(self) -> list[Effect]:
        """Until something changes: first it is written down, which keeps every copy where it is, then the mark ends."""
        assert self.held.mark is not None
        made = self.copying
        found = self.plan.record(self.held.value, self.held.mark.created_ms)
        self.outcome = RepairOutcome(
            self.ledger_id, "unrepairable", made.copies, made.copied_bytes, found.why, made.filled
        )
        return [self.held.put_record(self._ask("unrepairable"), found)]

    def _postpone(self, why: str, *, kind: str = "postponed") -> list[Effect]:
        """Another try may go well. Why this one did not stands in the mark, for people."""
        told = why[:WHY_CHARS_MAX]
        made = self.copying
        self.outcome = RepairOutcome(self.ledger_id, kind, made.copies, made.copied_bytes, told, made.filled)
        mark = self.held.mark
        if mark is None or progress_of(mark).why == told:
            return self._give_back()
        targets = progress_of(mark).targets
        return self._put_mark("why", with_progress(mark, MarkProgress(targets, told)))

    def _give_back(self) -> list[Effect]:
        return self._let_go(self.held.given_back())

    def _let_go(self, ending: EndRepairs | FailRepairs) -> list[Effect]:
        self.ending = ending
        return [AskQuorum(self._ask("end"), ending)]

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        """The mark ended, or is not held any more. A request that was refused for now is repeated: otherwise the ledger
        would stay locked for as long as this session lives. A session that is lost loses its holds."""
        if self.is_over or event.tag != self.asked:
            return []
        if isinstance(event.result, Refusal) and not is_unknown(event.result):
            self.asked, self.retry_at = None, event.now_ns + _LET_GO_NS
            return []
        return self._end()

    def _end(self) -> list[Effect]:
        self.is_over, self.copying.running, self.closing, self.retry_at = True, None, None, None
        return [Ended(None, self.outcome)]

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies.listed = event.bookies
        return [] if self.closing is None else self._closed(event.now_ns, self.closing.on_event(event))

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.is_over:
            return []
        if self.retry_at is not None and event.now_ns >= self.retry_at:
            self.retry_at = None
            if self.ending is not None:
                return self._let_go(self.ending)
            return self._read("hold", self.held.hold_key)
        if self.closing is not None:
            return self._closed(event.now_ns, self.closing.on_event(event))
        if self.copying.running is not None:
            return self._settle(event.now_ns, self.copying.running.on_tick(event.now_ns))
        return []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        KeyRead: _on_read,
        MetadataFailed: _on_failed,
        Transacted: _on_transacted,
        TransactRefused: _on_failed,
        TransactUnknown: _on_failed,
        QuorumAnswered: _on_quorum,
        Answered: _on_answered,
        SendFailed: _on_send_failed,
        BookiesChanged: _on_bookies,
        Tick: _on_tick,
    }
