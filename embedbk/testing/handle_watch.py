"""Watching the handles of a world's clients: creators, and recoverers, and which checks each step may break.

Keeps our own tally of what each handle asked and was answered, by the messages and not by what the core made of them,
and asks `invariants_adding` and `invariants_recovery`, which judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import ENTRY_HEADER
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, LedgerState, decode_ledger_metadata
from embedbk.codec.metadata_messages import Put
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.client_words import (
    AddFailed,
    AddsAnswered,
    Answered,
    Confirmed,
    CopiesMissed,
    CourseEnded,
    EnsembleChanged,
    FrameSealed,
    SeatLeaving,
    Send,
)
from embedbk.core.metadata_words import Transact, Transacted, TransactRefused, TransactUnknown
from embedbk.core.vocabulary import Ended
from embedbk.errors import NotEnoughBookies, PeerError, RecoveryInconclusive
from embedbk.ids import NO_ENTRY, Member
from embedbk.testing import invariants_adding as adding
from embedbk.testing import invariants_recovery as recovery
from embedbk.testing.ghost import Ghost, HandleGhost, RecoveryGhost, SentChange, WriterGhost
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["HandleWatch"]

# Failures from before the healing may still be reported this long after it.
_HEALED_GRACE_NS = 15_000_000_000


class HandleWatch:
    """Every step of every `core.writer.Writer` and `core.recovery.Recovery`."""

    def __init__(self, ghost: Ghost, sometimes: Sometimes) -> None:
        self.ghost = ghost
        self.sometimes = sometimes

    # Creators.

    def on_writer(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        writer = self._writer(node, core)
        kind = type(event)
        if kind is Answered:
            self._count(writer, core, event, is_recovery=False)
        elif kind is AddsAnswered:
            for teller, (_, seating, first_entry) in event.answers:
                self._note_confirmed(writer, teller, seating, first_entry)
            self.sometimes.note("answers counted")
        elif kind is FrameSealed:
            if not self._is_given_back(writer, event.frame):
                self._take_frame(writer, event.frame)
            adding.queues_stay_bounded(core)
        elif kind is CourseEnded:
            for pending in core.in_flight.pending.values():
                self._take_past_the_core(writer, pending.frame)  # Else no link took it.
            if not core.in_flight.is_at_rest:
                self.sometimes.note("course given back")
        elif kind is Transacted:
            if not event.is_done:
                self.sometimes.note("conflict of metadata")
                writer.proposals.pop(event.tag, None)
        elif kind is TransactRefused:
            writer.proposals.pop(event.tag, None)
        elif kind is TransactUnknown:
            self.sometimes.note("unknown outcome")
        elif kind is SeatLeaving and effects:
            self.sometimes.note("drained seat given away")
        if writer.failed_seats or core.in_flight.has_failed:
            self._note_taken_back(writer, core)
        for effect in effects:
            made = type(effect)
            if made is Send:
                if type(effect.control) is AddRequest:
                    self._note_send(writer, core, effect, core.metadata)
            elif made is Confirmed:
                self._on_confirmed(writer, effect.lac)
            elif made is EnsembleChanged:
                self._on_changed(writer, core, effect, effects)
            elif made is Transact:
                self._on_proposal(writer, core, effect)
            elif made is CopiesMissed:
                self.sometimes.note("copies missed")
            elif made is AddFailed:
                self._on_add_failed(writer, core, event, effect)

    def _note_taken_back(self, writer: WriterGhost, core: Any) -> None:
        failed = {each.number for each in core.in_flight.seatings if each.failure is not None}
        able = {each.number for each in core.in_flight.seatings} - failed
        if writer.failed_seats & able:
            self.sometimes.note("taken back")
        writer.failed_seats = failed

    # Adds that C sends past a core.

    def on_add_sent(self, node: str, core: Any, frame: Frame, send: Send) -> None:
        writer = self._writer(node, core)
        self._take_past_the_core(writer, frame)
        self._note_send(writer, core, send, core.metadata)
        self.sometimes.note("sent past the core")

    def on_add_answered(self, node: str, core: Any, send: Send) -> None:
        _, seating, first_entry = send.tag
        self._note_confirmed(self._writer(node, core), send.member, seating, first_entry)

    def _take_past_the_core(self, writer: WriterGhost, frame: Frame) -> None:
        if frame.first_entry >= len(writer.ledger.sent):
            self._take_frame(writer, frame)

    def _is_given_back(self, writer: WriterGhost, frame: Frame) -> bool:
        """It went past the core to bookies of its loop, not acknowledged, and is the core's again, as it was."""
        known = writer.frames.get(frame.first_entry)
        is_same = known is not None and bytes(known.body) == bytes(frame.body)
        if is_same:
            self.sometimes.note("course given back")
        return is_same

    def _writer(self, node: str, core: Any) -> WriterGhost:
        writer = self.ghost.writers.get(core)
        if writer is None:
            writer = self.ghost.writers[core] = WriterGhost(self.ghost.ledger(core.ledger_id), node)
        return writer

    def _take_frame(self, writer: WriterGhost, frame: Frame) -> None:
        ledger = writer.ledger
        writer.frames[frame.first_entry] = frame
        for entry_id, raw in split(frame):
            if entry_id != len(ledger.sent):
                raise Violation(
                    "I13", f"ledger {ledger.ledger_id}: entry {entry_id} sealed after {len(ledger.sent) - 1}"
                )
            entry = bytes(raw)
            header = ENTRY_HEADER.unpack_from(entry)
            ledger.sent.append(entry)
            ledger.length.append(header[6])
            given = ledger.given.get(entry_id)
            if given is not None:
                # Behind the attributes, which header[3] counts as well.
                begin = ENTRY_HEADER.size + header[2]
                if entry[begin : ENTRY_HEADER.size + header[3]] != given:
                    raise Violation("I7", f"ledger {ledger.ledger_id} entry {entry_id} is not what was given")
        if ledger.open is not None and ledger.open.ensemble_size > ledger.open.write_quorum:
            self.sometimes.note("striped add")

    def _note_send(self, handle: HandleGhost, core: Any, send: Send, metadata: LedgerMetadata) -> None:
        request, (_, part) = send.control, send.frames[0]
        assert isinstance(request, AddRequest)
        handle.asked[request.seating, part.first_entry] = (send.member, send.tag[2])
        adding.sent_to_the_write_set(self.ghost, handle, send, part, metadata)

    def _count(self, handle: HandleGhost, core: Any, event: Answered, *, is_recovery: bool) -> None:
        """Our own tally of acknowledgements: by what was asked and what came back, not by what the core made of it."""
        answer = event.control
        if type(answer) is not AddAnswer or answer.status != Status.OK or core.in_flight is None:
            if type(answer) is AddAnswer and answer.status == Status.FENCED and not is_recovery:
                self.sometimes.note("writer fenced by reader of its own")
            return
        if answer.nonce != core.in_flight.nonce or answer.recovery != is_recovery:
            return
        self._note_confirmed(handle, event.member, answer.seating, answer.first_entry)

    def _note_confirmed(self, handle: HandleGhost, teller: Member, seating: int, first_entry: int) -> None:
        """first_entry: of the part that this seat was asked to store."""
        asked = handle.asked.get((seating, first_entry))
        if asked is not None and asked[0] == teller:
            handle.confirmed.setdefault(asked[1], {})[seating] = self.ghost.bit(teller)

    def _on_confirmed(self, writer: WriterGhost, lac: int) -> None:
        ghost, ledger = self.ghost, writer.ledger
        adding.acknowledged_once_in_order(ledger, lac)
        adding.never_both(ledger, lac)
        before = ledger.acked
        for first in list(writer.frames):
            if first > lac:
                break
            last = writer.frames.pop(first).last_entry
            if ledger.open is not None:
                adding.acknowledgement_has_its_quorum(ghost, writer, first, last)
                if writer.proposals:
                    adding.metadata_comes_first(ghost, writer, first, last)
            for seating in writer.confirmed.pop(first, ()):
                writer.asked.pop((seating, first), None)
        ledger.acked = lac
        adding.acknowledged_is_kept(ghost, ledger, before + 1, lac)
        self.sometimes.note("add acknowledged")

    def _on_changed(
        self, writer: WriterGhost, core: Any, changed: EnsembleChanged, effects: Sequence[Any]
    ) -> None:
        adding.replaced_is_forgotten(self.ghost, writer, changed)
        # The version before the one that it published: a recovery may have published newer ones since.
        ensembles = [version.fragments[-1].members for _, version in writer.ledger.versions]
        own = len(ensembles) - ensembles[::-1].index(changed.ensemble)
        before = next(
            (
                v
                for _, v in reversed(writer.ledger.versions[:own])
                if v.fragments[-1].members != changed.ensemble
            ),
            None,
        )
        if before is not None and not writer.failed:  # A failed handle gives up its outstanding adds (P3.6).
            sends = [e for e in effects if type(e) is Send and type(e.control) is AddRequest]
            adding.replacements_get_everything(self.ghost, writer, before, changed, sends)
        self.sometimes.note("ensemble changed")
        if writer.frames:
            self.sometimes.note("ensemble change with adds in flight")

    def _on_proposal(self, writer: WriterGhost, core: Any, effect: Transact) -> None:
        proposed = _proposal(effect)
        if proposed is None:
            return
        if not effect.when:
            raise Violation(
                "I18", f"ledger {writer.ledger.ledger_id}: a change that compares with no version"
            )
        compared = effect.when[0].revision
        for tag in [t for t, each in writer.proposals.items() if each.revision < writer.ledger.revision]:
            del writer.proposals[tag]
        sent = SentChange(compared, proposed, tuple(effect.when[1:]))
        if not proposed.is_closed:
            if compared == writer.ledger.revision and proposed.state == LedgerState.OPEN:
                # Under a placement of before it never comes to pass (P10.6): it was chosen when that was listed.
                is_void = self.ghost.is_void(sent)
                earlier = [each[:2] for each in writer.proposals.values()]
                is_sent_again = is_void or (compared, proposed) in earlier
                adding.change_is_proposed_at_the_lac(
                    self.ghost, writer, core, proposed, is_sent_again=is_sent_again
                )
            writer.proposals[effect.tag] = sent

    def _on_add_failed(self, writer: WriterGhost, core: Any, event: Any, effect: AddFailed) -> None:
        """L3: a healthy core goes on. Once all is healed no writer runs out of bookies while E of them are up. How long
        that is so is measured by the writer's own clock: the clocks of two nodes are seconds apart."""
        writer.failed = True
        ledger, ghost = writer.ledger, self.ghost
        if ledger.failed is None:
            ledger.failed = ledger.acked + 1
        self.sometimes.note("handle failed")
        if not ghost.is_healed or not isinstance(effect.error, NotEnoughBookies):
            return
        ghost.note_clock(writer.node, event.now_ns)
        if core.options.placement.is_strict:
            return  # Those that are up may stand in too few racks (RP40).
        usable = sum(1 for bookie in core.bookies if bookie.is_writable)
        if ghost.since_healed_ns(writer.node) > _HEALED_GRACE_NS and usable >= core.quorum.ensemble_size:
            raise Violation("L3", f"ledger {ledger.ledger_id}: {effect.error}, and {usable} bookies are up")

    # Recoverers.

    def on_recovery(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        ghost = self.ghost
        handle = ghost.recoveries.get(core)
        if handle is None:
            ledger = ghost.ledger(core.ledger_id)
            if any(o.ledger is ledger and not o.is_over for o in ghost.recoveries.values()):
                self.sometimes.note("recovery at the same time")
            handle = ghost.recoveries[core] = RecoveryGhost(ledger, node)
        if type(event) is Answered:
            self._hear(handle, core, event)
        elif type(event) is TransactUnknown:
            self.sometimes.note("unknown outcome")
        elif type(event) is Transacted and not event.is_done:
            self.sometimes.note("conflict of metadata")
        if handle.end is None and core.forward.end is not None and handle.round == core.round:
            recovery.end_has_its_negatives(handle, core.forward.end)
            handle.end = core.forward.end
        for effect in effects:
            made = type(effect)
            if made is Send:
                self._on_recovery_send(handle, core, effect)
            elif made is Transact:
                self._on_recovery_change(handle, effect)
            elif made is Ended:
                self._on_recovery_ended(core, handle, effect)

    def _hear(self, handle: RecoveryGhost, core: Any, event: Answered) -> None:
        ghost, answer = self.ghost, event.control
        if type(answer) is AddAnswer:
            self._count(handle, core, event, is_recovery=True)
        elif type(answer) is FenceAnswer:
            if answer.status == Status.OK and event.tag[1] == handle.round and handle.floor is None:
                handle.fenced |= ghost.bit(event.member)
                handle.lac = max(handle.lac, answer.lac)
        elif type(answer) is ReadAnswer:
            asked = handle.reads.pop(event.tag, None)
            if asked is None or asked[0] != event.member or event.tag[1] != handle.round:
                return
            ranges = handle.negatives.setdefault(event.member, [])
            if answer.status == Status.NO_SUCH_LEDGER:
                ranges.append((asked[1], asked[2]))
            elif answer.status == Status.OK and self._take_copies(handle, event):
                ranges.extend((first, last) for first, last in answer.absent)

    def _take_copies(self, handle: RecoveryGhost, event: Answered) -> bool:
        """False: a copy failed its check, so that the answer is no verdict at all, neither way (P5.2c)."""
        shown: list[int] = []
        try:
            for _, body in event.frames:
                shown += [entry_id for entry_id, _ in split(frame_of(body, handle.ledger.ledger_id))]
        except PeerError:
            return False
        handle.copies.update(shown)
        return True

    def _on_recovery_send(self, handle: RecoveryGhost, core: Any, effect: Send) -> None:
        ghost, request = self.ghost, effect.control
        if type(request) is FenceRequest:
            if handle.round != core.round:
                _begin_round(handle, core)
        elif type(request) is ReadRequest:
            if handle.floor is None:
                recovery.coverage_of_every_write_set(ghost, handle)
                recovery.floor_is_right(handle, request.first_entry)
                handle.floor = request.first_entry - 1
            recovery.floor_is_right(handle, request.first_entry)
            recovery.read_where_it_was(ghost, handle, effect.member, request.first_entry)
            handle.reads[effect.tag] = (effect.member, request.first_entry, request.last_entry)
        elif type(request) is AddRequest:
            frame = effect.frames[0][1]
            handle.asked[request.seating, frame.first_entry] = (effect.member, effect.tag[2])
            pending = core.in_flight.pending.get(effect.tag[2])
            handle.frames.setdefault(effect.tag[2], pending.frame if pending is not None else frame)
            self.sometimes.note("recovery wrote back")

    def _on_recovery_change(self, handle: RecoveryGhost, effect: Transact) -> None:
        proposed = _proposal(effect)
        if proposed is None:
            return
        if effect.when and effect.when[0].revision == handle.ledger.revision:
            recovery.marking_changes_the_state_only(handle.ledger.metadata, proposed)
        if proposed.is_closed:
            recovery.write_back_is_complete(self.ghost, handle, proposed)
            assert proposed.last_entry is not None
            handle.ledger.racked = max(handle.ledger.racked, proposed.last_entry)

    def _on_recovery_ended(self, core: Any, handle: RecoveryGhost, effect: Ended) -> None:
        handle.is_over = True
        if isinstance(effect.error, RecoveryInconclusive):
            self.sometimes.note("recovery inconclusive")
        elif effect.error is None and handle.ledger.deleted is None:
            recovery.recovered_is_what_closed(handle.ledger, effect.result[0])

    # The whole.

    def at_end(self) -> None:
        """All is healed, and time was given."""
        ghost = self.ghost
        for handle in ghost.recoveries.values():
            if not handle.is_over and handle.node in ghost.up and handle.node not in ghost.paused:
                _no_duel(handle)
        for core, writer in ghost.writers.items():
            if writer.node in ghost.up and writer.node not in ghost.paused:
                _every_add_ends(core, writer)


def _no_duel(handle: RecoveryGhost) -> None:
    """L4: duels end. When nothing fails any more every recovery comes to its end, whichever others recover too."""
    raise Violation("L4", f"the recovery of ledger {handle.ledger.ledger_id} by {handle.node} has not ended")


def _every_add_ends(core: Any, writer: WriterGhost) -> None:
    """L2: every add ends: acknowledged or failed, never left hanging."""
    hanging = [first for first in writer.frames if first > writer.ledger.acked]
    if hanging and not writer.failed and core.state.value != "ended":
        raise Violation("L2", f"ledger {writer.ledger.ledger_id}: the adds from {hanging[0]} never ended")


def _begin_round(handle: RecoveryGhost, core: Any) -> None:
    handle.round = core.round
    handle.base = core.metadata
    handle.fenced, handle.lac, handle.floor, handle.end = 0, NO_ENTRY, None, None
    handle.reads.clear()
    handle.negatives.clear()
    handle.copies.clear()
    handle.frames.clear()
    handle.confirmed.clear()
    handle.asked.clear()


def _proposal(effect: Transact) -> LedgerMetadata | None:
    """The metadata that a change of one ledger's key would publish, alone or beside the list of its log."""
    puts = [each for each in effect.then if isinstance(each, Put) and each.key.startswith(LEDGERS_PREFIX)]
    is_one = len(puts) == 1 and len(effect.then) <= 2 and effect.then[0] is puts[0]
    return decode_ledger_metadata(puts[0].value) if is_one else None
