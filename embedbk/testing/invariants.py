"""Every promise of a ledger, checked after each event while a world runs (I1 to I40, L1 to L4, L12 to L14).

`Invariants` is an `Observer`: it keeps the ghost state, and asks of each event only the checks that it can break. The
checks stand by topic in `invariants_life`, `fencing`, `adding`, `recovery` and `reading`; each names its property.

    world -- event --> Invariants -- before the ghost knows --> checks --> ghost -- after --> checks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.codec.entry import ENTRY_HEADER
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.journal_records import RecordKind
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, decode_ledger_metadata
from embedbk.codec.messages import (
    AddAnswer,
    AddRequest,
    ExplicitLacAnswer,
    FenceAnswer,
    FenceRequest,
    LacAnswer,
    ReadAnswer,
    ReadRequest,
    Status,
)
from embedbk.codec.metadata_messages import Put
from embedbk.core.bookie import Bookie
from embedbk.core.reader import LacWait
from embedbk.core.recovery import Recovery
from embedbk.core.vocabulary import (
    AddFailed,
    Answered,
    Confirmed,
    Ended,
    EnsembleChanged,
    EntriesRead,
    FrameSealed,
    JournalAppend,
    ReadEntries,
    Reply,
    RequestReceived,
    Send,
    StoreFrame,
    Tick,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.writer import Writer
from embedbk.errors import NotEnoughBookies, PeerError, RecoveryInconclusive
from embedbk.ids import NO_ENTRY
from embedbk.storage.memory import MemoryBookieStorage
from embedbk.testing import invariants_adding as adding
from embedbk.testing import invariants_fencing as fencing
from embedbk.testing import invariants_life as life
from embedbk.testing import invariants_reading as reading
from embedbk.testing import invariants_recovery as recovery
from embedbk.testing.ghost import BookieGhost, Ghost, HandleGhost, LedgerGhost, RecoveryGhost, WriterGhost
from embedbk.testing.observer import Observer
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["Ghost", "Invariants", "Sometimes"]

_LEDGERS = "/ledgers/"
_HEALED_GRACE_NS = 15_000_000_000  # What failed before the healing may still be told this long after it.
_SAME_TIME_MAX = 1_000  # Ticks of one core at one moment of its clock.


class Invariants(Observer):
    """Keeps the ghost state of one world and raises `Violation` at the first broken promise."""

    def __init__(self, reached: Counter[str] | None = None) -> None:
        """reached: where to count the facts of `sometimes`; an own counter when None."""
        self.ghost = Ghost()
        self.sometimes = Sometimes(reached)
        self._cores: dict[type, Callable[[str, Any, Any, Sequence[Any]], None]] = {
            Bookie: self._on_bookie,
            Writer: self._on_writer,
            Recovery: self._on_recovery,
            LacWait: self._on_parked,
        }
        self._parked: dict[Any, tuple[int, int]] = {}  # Reader core -> (second, requests sent in it).
        self._ticks: dict[Any, tuple[int, int]] = {}  # Core -> (time of its last tick, ticks at that time).
        self._lives: dict[str, int] = {}  # Node -> how often it was started.

    # Cores.

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        self.ghost.step += 1
        if type(event) is Tick:
            self._not_in_a_circle(node, core, event)
        check = self._cores.get(type(core))
        if check is not None:
            check(node, core, event, effects)

    def _not_in_a_circle(self, node: str, core: Any, event: Tick) -> None:
        """L14: no progress-free cycle. A core is not woken again and again while its clock stands still."""
        self.ghost.now_ns = max(self.ghost.now_ns, event.now_ns)
        when, count = self._ticks.get(core, (-1, 0))
        count = count + 1 if when == event.now_ns else 1
        self._ticks[core] = (event.now_ns, count)
        if count > _SAME_TIME_MAX:
            raise Violation(
                "L14", f"{type(core).__name__} of {node} wants a tick without end at {event.now_ns}"
            )

    # Bookies.

    def _on_bookie(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
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
            if type(event.control) is AddRequest and event.frames:
                header = event.frames[0][0]
                ledger = ghost.ledger(header.ledger_id)
                fencing.carried_lac_is_true(ledger, header, is_recovery=event.control.recovery)
        elif type(event) is EntriesRead:
            request = bookie.looks.pop(event.read_id, None)
            if request is not None and type(request.control) is ReadRequest and event.absent:
                ledger = ghost.ledger(request.control.ledger_id)
                fencing.lookup_is_honest(bookie, ledger, event.absent)
                bookie.found_absent[request.link, request.request_id] = event.absent
        for effect in effects:
            kind = type(effect)
            if kind is Reply:
                self._on_reply(bookie, core, effect)
            elif kind is StoreFrame:
                self._on_store(bookie, core, effect, request)
            elif kind is JournalAppend:
                self._on_journal(bookie, effect)
            elif kind is ReadEntries:
                bookie.looks[effect.read_id] = request
                if request is not None and type(request.control) is AddRequest:
                    self.sometimes.note("add repeated")
        if request is not None:
            ledger_id = _ledger_of(request)
            if ledger_id is not None:
                row = core.table.get(ledger_id)
                if row is not None:
                    fencing.row_lac_is_true_and_rises(bookie, ghost.ledger(ledger_id), row)
                fencing.fence_is_sticky(bookie, ledger_id, row)

    def _look_at_restarted(self, bookie: BookieGhost, core: Any) -> None:
        bookie.is_fresh = False
        bookie.lacs.clear()  # What was only in memory may be gone; what was acknowledged is judged by I12.
        for ledger_id in bookie.fences:
            fencing.fence_is_sticky(bookie, ledger_id, core.table.get(ledger_id))
            self.sometimes.note("fence survived a restart")

    def _on_store(self, bookie: BookieGhost, core: Any, effect: StoreFrame, request: Any) -> None:
        frame = effect.frame
        ledger = self.ghost.ledger(frame.ledger_id)
        entries = fencing.content_is_what_was_sent(bookie, ledger, frame)
        is_recovery = request is not None and type(request.control) is AddRequest and request.control.recovery
        if bookie.negatives:
            fencing.negative_is_final(bookie, ledger, entries, is_recovery=is_recovery)
        if frame.last_entry > ledger.top:
            ledger.top = frame.last_entry
        if ledger.damaged and any(ledger.damaged.get(e, 0) & bookie.bit for e in entries):
            self.sometimes.note("entry repaired")
        bookie.queued.append((effect.token, frame.ledger_id, entries))

    def _on_journal(self, bookie: BookieGhost, effect: JournalAppend) -> None:
        bookie.queued.append((effect.token, effect.ledger_id, ()))
        kind = effect.kind
        ledger = self.ghost.ledger(effect.ledger_id)
        if kind == RecordKind.LIMBO and bytes(effect.body) == b"\0":
            fencing.limbo_ends_complete(self.ghost, bookie, ledger)
            return
        if kind in (RecordKind.FENCE, RecordKind.LIMBO, RecordKind.DROP):
            bookie.promises[effect.token] = effect.ledger_id
        if kind == RecordKind.LIMBO:
            self.sometimes.note("in limbo")
        elif kind == RecordKind.DROP:
            life.drop_is_safe(ledger, bookie.member.bookie_id)
            for entry_id in ledger.stable:
                ledger.stable[entry_id] &= ~bookie.bit
        elif kind == RecordKind.EXPLICIT_LAC:
            self.sometimes.note("explicit LAC")
        elif kind == RecordKind.FENCE and ledger.top == NO_ENTRY:
            self.sometimes.note("fence of an unknown ledger")

    def _on_reply(self, bookie: BookieGhost, core: Any, effect: Reply) -> None:
        asked = bookie.asked.pop((effect.link, effect.request_id), None)
        if asked is None:
            return
        request, answer = asked.control, effect.control
        if getattr(request, "incarnation", None) != bookie.member.incarnation:
            fencing.identity_is_checked(bookie, request, answer)
            if isinstance(answer, AddAnswer):
                self.sometimes.note("add to another incarnation")
            return
        ghost = self.ghost
        if type(answer) is AddAnswer:
            row = core.table.get(answer.ledger_id)
            if answer.status == Status.OK:
                ledger = ghost.ledger(answer.ledger_id)
                fencing.normal_add_stops_at_the_fence(bookie, answer, row)
                fencing.acknowledged_is_stable(bookie, ledger, answer, asked.frames[0][0])
                fencing.limbo_gives_nothing_away(bookie, row, answer)
            elif answer.status == Status.FENCED:
                self.sometimes.note("add refused behind a fence")
            elif answer.status == Status.IN_LIMBO:
                self.sometimes.note("add refused in limbo")
        elif type(answer) in (FenceAnswer, ReadAnswer, LacAnswer, ExplicitLacAnswer):
            self._on_answer(bookie, core, request, answer, effect)

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
            found = bookie.found_absent.pop((effect.link, effect.request_id), [])
            fencing.negative_is_honest(bookie, ledger, request, answer, row, found)
            if request.fence and answer.status == Status.OK and answer.absent:
                told = bookie.negatives.setdefault(answer.ledger_id, [])
                for first, last in answer.absent:
                    pair = (max(first, request.first_entry), min(last, request.last_entry))
                    if pair not in told:
                        told.append(pair)
            if answer.status == Status.OK and not answer.absent and not effect.frames:
                self.sometimes.note("read answered unknown")

    # Creators.

    def _on_writer(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        ghost = self.ghost
        writer = ghost.writers.get(core)
        if writer is None:
            writer = ghost.writers[core] = WriterGhost(ghost.ledger(core.ledger_id), node)
        kind = type(event)
        if kind is Answered:
            self._count(writer, core, event, is_recovery=False)
        elif kind is FrameSealed:
            self._take_frame(writer, event.frame)
            adding.queues_stay_bounded(core)
        elif kind is Transacted:
            if not event.is_done:
                self.sometimes.note("conflict of metadata")
                writer.proposals.pop(event.tag, None)
        elif kind is TransactUnknown:
            self.sometimes.note("unknown outcome")
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
            elif made is AddFailed:
                self._on_add_failed(writer, core, effect)

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
            if given is not None and header[1] == 0:
                begin = ENTRY_HEADER.size + header[2]
                if entry[begin : begin + header[3]] != given:
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
        asked = handle.asked.get((answer.seating, answer.first_entry))
        if asked is None or asked[0] != event.member:
            return
        handle.confirmed.setdefault(asked[1], {})[answer.seating] = self.ghost.bit(event.member)

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
        versions = writer.ledger.versions
        before = next((v for _, v in reversed(versions) if v.fragments[-1].members != changed.ensemble), None)
        if before is not None and not writer.failed:  # What a failed handle has out is given up (P3.6).
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
        for tag in [t for t, (revision, _) in writer.proposals.items() if revision < writer.ledger.revision]:
            del writer.proposals[tag]
        if not proposed.is_closed:
            if compared == writer.ledger.revision and proposed.state == LedgerState.OPEN:
                adding.change_is_proposed_at_the_lac(self.ghost, writer, core, proposed)
            writer.proposals[effect.tag] = (compared, proposed)

    def _on_add_failed(self, writer: WriterGhost, core: Any, effect: AddFailed) -> None:
        """L3: a healthy core goes on. Once all is healed no writer runs out of bookies while E of them are up."""
        writer.failed = True
        ledger, ghost = writer.ledger, self.ghost
        if ledger.failed is None:
            ledger.failed = ledger.acked + 1
        self.sometimes.note("handle failed")
        if ghost.healed_ns is None or not isinstance(effect.error, NotEnoughBookies):
            return
        usable = sum(1 for bookie in core.bookies if bookie.is_writable)
        if ghost.now_ns > ghost.healed_ns + _HEALED_GRACE_NS and usable >= core.quorum.ensemble_size:
            raise Violation("L3", f"ledger {ledger.ledger_id}: {effect.error}, and {usable} bookies are up")

    # Recoverers.

    def _on_recovery(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
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
        if handle.end is None and core.end is not None and handle.round == core.round:
            recovery.end_has_its_negatives(handle, core.end)
            handle.end = core.end
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

    # Readers.

    def _on_parked(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        sends = sum(1 for effect in effects if type(effect) is Send)
        if sends:
            second, count = self._parked.get(core, (0, 0))
            now = event.now_ns // 1_000_000_000
            count = count + sends if second == now else sends
            self._parked[core] = (now, count)
            reading.parked_reader_is_quiet(core.metadata.ledger_id, count)

    def on_read(
        self, client: str, ledger_id: int, entries: Sequence[tuple[int, bytes]], is_unconfirmed: bool
    ) -> None:
        ghost = self.ghost
        ledger = ghost.ledger(ledger_id)
        for entry_id, payload in entries:
            if not is_unconfirmed:
                reading.nothing_past_the_end(ledger, entry_id)
                reading.read_is_clean(ledger, entry_id)
                ledger.read_last = max(ledger.read_last, entry_id)
            reading.read_is_repeatable(ledger, entry_id, payload)
            if ghost.healed_ns is not None:
                ledger.read_healed.add(entry_id)
        if is_unconfirmed:
            self.sometimes.note("read unconfirmed")
        elif ledger.closed is None:
            self.sometimes.note("read on an open ledger")

    def on_read_failed(self, client: str, ledger_id: int, entry_id: int, error: Exception) -> None:
        ledger = self.ghost.ledger(ledger_id)
        reading.nothing_is_unread_again(ledger, entry_id, error)
        ledger.is_refused = ledger.is_refused or self.ghost.healed_ns is not None

    def on_reader_lac(self, client: str, ledger_id: int, lac: int, is_closed: bool) -> None:
        reading.reader_lac_is_true_and_rises(
            self.ghost, client, self.ghost.ledger(ledger_id), lac, is_closed=is_closed
        )

    # Applications.

    def on_sent(self, client: str, writing: Any, ledger_id: int, entry_id: int, payload: bytes) -> None:
        self.ghost.ledger(ledger_id).given[entry_id] = bytes(payload)

    def on_acked(self, client: str, writing: Any, ledger_id: int, lac: int) -> None:
        ledger = self.ghost.ledger(ledger_id)
        if lac > ledger.acked:
            raise Violation(
                "I13", f"an application was told {lac} of ledger {ledger_id}, the writer had {ledger.acked}"
            )

    def on_failed(
        self, client: str, writing: Any, ledger_id: int, first_entry: int, error: Exception
    ) -> None:
        ledger = self.ghost.ledger(ledger_id)
        adding.never_both(ledger, ledger.acked)
        if first_entry <= ledger.acked:
            raise Violation(
                "I39",
                f"ledger {ledger_id}: entry {first_entry} is told to have failed; {ledger.acked} was acknowledged",
            )

    def on_recovered(
        self, client: str, ledger_id: int, metadata: LedgerMetadata | None, error: Exception | None
    ) -> None:
        ledger = self.ghost.ledger(ledger_id)
        if metadata is not None:
            recovery.recovered_is_what_closed(ledger, metadata)
            ledger.is_refused = False
        elif self.ghost.healed_ns is not None:
            ledger.is_refused = True

    # Nodes and disks.

    def on_started(self, node: str, role: str, incarnation: bytes, last_token: int) -> None:
        self.ghost.up.add(node)
        self._lives[node] = self._lives.get(node, 0) + 1
        if role == "bookie":
            self.ghost.restart(node, incarnation, last_token)
            if self._lives[node] > 1:
                self.sometimes.note("bookie restarted")

    def on_found(self, node: str, ledger_id: int, is_fenced: bool, entry_ids: Sequence[int]) -> None:
        bookie, ledger = self.ghost.bookies[node], self.ghost.ledger(ledger_id)
        for entry_id in entry_ids:
            ledger.stable[entry_id] = ledger.stable.get(entry_id, 0) | bookie.bit
        if is_fenced:
            bookie.stable_fences.add(ledger_id)

    def on_stopped(self, node: str) -> None:
        ghost = self.ghost
        ghost.up.discard(node)
        ghost.paused.discard(node)
        for core in [core for core, handle in ghost.recoveries.items() if handle.node == node]:
            del ghost.recoveries[core]
        self.sometimes.note("process killed")

    def on_durable(self, node: str, token: int) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            self.ghost.take_durable(bookie, token)

    def on_disk_lost(self, node: str) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            bookie.is_lost = True
            self.ghost.lost |= bookie.bit
            self._recount(bookie)
        self.sometimes.note("disk lost")

    def on_damaged(self, node: str, ledger_id: int, entry_id: int) -> None:
        bookie = self.ghost.bookies.get(node)
        if bookie is not None:
            damaged = self.ghost.ledger(ledger_id).damaged
            damaged[entry_id] = damaged.get(entry_id, 0) | bookie.bit
        self.sometimes.note("copy damaged")

    def _recount(self, bookie: BookieGhost) -> None:
        for ledger in self.ghost.ledgers.values():
            adding.acknowledged_is_kept(self.ghost, ledger, 0, ledger.acked)

    def on_paused(self, node: str, is_paused: bool) -> None:
        if is_paused:
            self.ghost.paused.add(node)
            self.sometimes.note("node paused")
        else:
            self.ghost.paused.discard(node)

    # Metadata.

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if not key.startswith(_LEDGERS):
            return
        ghost = self.ghost
        ledger = ghost.ledger(int(key[len(_LEDGERS) :], 16))
        if new is None:
            life.deletion_is_final(ledger)
            ghost.take_metadata(ledger, revision, None)
            self.sometimes.note("ledger deleted")
            return
        value = decode_ledger_metadata(new)
        life.types_are_right(value)
        life.fragments_are_sane(value)
        life.change_is_allowed(ledger, revision, value)
        life.closed_once(ledger, value)
        life.change_starts_at_the_lac(ledger, value)
        life.recovery_publishes_once(ledger, value)
        life.repair_is_safe(ghost, ledger, value)
        if value.is_closed:
            life.acked_is_inside(ledger, value)
            life.length_is_the_sum(ledger, value)
            if value.last_entry is not None and ledger.read_last > value.last_entry:
                reading.nothing_is_unread_again(ledger, ledger.read_last, None)
            if ledger.closed is None:
                life.closed_is_replicated(ghost, ledger, value)
        before = ledger.metadata
        ghost.take_metadata(ledger, revision, value)
        if before is not None:
            self._note_change(ledger, before, value)
            if before.fragments != value.fragments:
                adding.acknowledged_is_kept(ghost, ledger, 0, ledger.acked)

    def _note_change(self, ledger: LedgerGhost, old: LedgerMetadata, new: LedgerMetadata) -> None:
        note = self.sometimes.note
        if new.is_closed and not old.is_closed:
            note("closed by its writer" if old.state == LedgerState.OPEN else "closed by recovery")
            if new.last_entry == NO_ENTRY:
                note("closed empty")
            elif new.last_entry is not None and new.fragments[-1].first_entry > new.last_entry:
                note("last fragment empty")
            if new.last_entry is not None and new.last_entry > ledger.acked:
                note("recovered above the acknowledged")
            if old.state == LedgerState.IN_RECOVERY and new.fragments != old.fragments:
                note("ensemble changed in recovery")
        elif new.state == old.state == LedgerState.OPEN and len(new.fragments) == len(old.fragments):
            note("fragment replaced")
        elif new.is_closed and new.fragments != old.fragments:
            note("seats repaired")

    # The whole.

    def on_healed(self) -> None:
        self.ghost.healed_ns = self.ghost.now_ns

    def at_end(self, storages: dict[str, MemoryBookieStorage]) -> None:
        ghost = self.ghost
        for ledger in ghost.ledgers.values():
            reading.everything_came_to_rest(ledger)
            reading.acknowledged_is_readable(ledger)
        for handle in ghost.recoveries.values():
            if not handle.is_over and handle.node in ghost.up and handle.node not in ghost.paused:
                _no_duel(handle)
        for core, writer in ghost.writers.items():
            if writer.node in ghost.up and writer.node not in ghost.paused:
                _every_add_ends(core, writer)


def _no_duel(handle: RecoveryGhost) -> None:
    """L4: duels end. When nothing fails any more every recovery comes to its end, whoever else recovers."""
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


def _ledger_of(request: Any) -> int | None:
    control = request.control
    if type(control) is AddRequest:
        return request.frames[0][0].ledger_id if request.frames else None
    return getattr(control, "ledger_id", None)


def _proposal(effect: Transact) -> LedgerMetadata | None:
    """What a change of one ledger's key would publish."""
    if (
        len(effect.then) != 1
        or not isinstance(effect.then[0], Put)
        or not effect.then[0].key.startswith(_LEDGERS)
    ):
        return None
    return decode_ledger_metadata(effect.then[0].value)
