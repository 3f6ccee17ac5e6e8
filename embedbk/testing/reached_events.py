"""Events that a run has reached, seen as its cores step, for the list in sometimes.py; not those of invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from embedbk.client.reading import LedgerReading
from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.read_messages import ReadAnswer
from embedbk.core import avoided
from embedbk.core.backlog import SILENT_AT_BOUND
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import (
    AddsTaken,
    JournalFailed,
    LimboListed,
    LossFound,
    Reply,
    RequestReceived,
    ServeAlone,
)
from embedbk.core.client_words import AddFailed, Answered, Confirmed, EnsembleChanged, Send, SendFailed
from embedbk.core.creation import Creation
from embedbk.core.lac_retelling import LacRetelling
from embedbk.core.lateness import late_seatings
from embedbk.core.log import LogTakeover
from embedbk.core.metadata_words import MetadataFailed, Transact, TransactRefused
from embedbk.core.reader import RangeRead
from embedbk.core.recovery import Phase, Recovery
from embedbk.core.seating import Seating
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.core.writer import Writer, WriterState
from embedbk.errors import LedgerFenced, NotEnoughBookies
from embedbk.metadata.client import TAKES_NO_MORE
from embedbk.metadata.lifetimes import AWAY_NS
from embedbk.metadata.member import Member
from embedbk.metadata.raft_vocabulary import Durable, Persist
from embedbk.metadata.vocabulary import Reply as MetadataAnswered
from embedbk.metadata.vocabulary import SendEvents
from embedbk.repair.ledger_repair import LedgerRepair
from embedbk.repair.source_check import SOURCE
from embedbk.testing.observer import Observer
from embedbk.testing.sometimes import Sometimes

__all__ = ["ReachedEvents"]


class ReachedEvents(Observer):
    """Counts into `seen`."""

    def __init__(self, seen: Counter[str]) -> None:
        self.note = Sometimes(seen).note
        self._rounds: dict[Recovery, int] = {}
        self._failed_seats: dict[Recovery, set[int]] = {}
        self._changed: dict[Writer, int] = {}
        self._busy: dict[Writer, set[Any]] = {}
        self._unclean: dict[Bookie, None] = {}  # Bookies that were in limbo before they served.
        self._appended: dict[Member, int] = {}  # When the oldest of what waits for its disk was given to it.
        self._by_core: dict[type, Callable[[Any, Any, Sequence[Any]], None]] = {
            Writer: self._writer,
            Recovery: self._recovery,
            Bookie: self._bookie,
            RangeRead: self._reader,
            Creation: self._creation,
            LedgerRepair: self._repair,
            LogTakeover: lambda core, event, effects: self._creation(core.sub, event, effects),
            Member: self._member,
            LacRetelling: self._retelling,
        }

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        look = self._by_core.get(type(core))
        if look is not None:
            look(core, event, effects)

        if type(event) is MetadataFailed and TAKES_NO_MORE in event.reason:
            self.note("read of metadata refused at once")
        if type(event) is TransactRefused and (what := self._refused(core)):
            self.note(f"{what} refused for good")

    def _retelling(self, core: LacRetelling, event: Any, effects: Sequence[Any]) -> None:
        if type(event) is Answered and getattr(event.control, "status", None) == Status.OK:
            self.note("LAC told again")

    @staticmethod
    def _refused(core: Any) -> str:
        """The requests of the core, or of the one inside it."""
        match core.sub if type(core) is LogTakeover and core.sub is not None else core:
            case Writer():
                return "close" if core.state is WriterState.ENDED else "change"
            case Recovery():
                return "recovery"
            case LogTakeover():
                return "takeover"
        return ""

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if new is None and key.startswith("/bookies"):
            self.note("session expired")

    def on_reader_lac(self, client: str, ledger_id: int, lac: int, is_closed: bool, handle: Hashable) -> None:
        if isinstance(handle, LedgerReading) and handle.runtime.own_lac(ledger_id).is_newest:
            self.note("own ledger looked at")

    def _writer(self, core: Writer, event: Any, effects: Sequence[Any]) -> None:
        if type(event) is SendFailed:
            self.note("request not sent")
        elif type(event) is Answered and type(event.control) is AddAnswer:
            self._answer(core, event)
        elif type(event) is Tick and core.state is WriterState.OPEN:
            self._late(core, event, effects)
        if core.in_flight.is_pressed():
            self.note("held back for a slow seat")
        if type(event) in (Tick, SendFailed) and _has_silent(core):
            self.note("silent seat gone on without")
        for effect in effects:
            kind = type(effect)
            if kind is EnsembleChanged:
                self._changed[core] = effect.first_entry
            elif kind is Confirmed and core in self._changed and effect.lac >= self._changed[core]:
                del self._changed[core]
                self.note("ensemble change confirmed")
            elif kind is Transact:
                self._proposed(core, event.now_ns)
            elif kind is AddFailed:
                if isinstance(effect.error, LedgerFenced):
                    self.note("writer fenced")
                    if core.changes.proposal is not None or core.changes.is_unsettled:
                        self.note("fenced in an ensemble change")
                elif isinstance(effect.error, NotEnoughBookies):
                    self.note("not enough bookies")

    def _proposed(self, core: Writer, now_ns: int) -> None:
        """Bookies that failed lately, and come last."""
        seated = {each.number for each in core.in_flight.seatings}
        proposal = core.changes.proposal
        fresh = [each for each in proposal.seatings if each.number not in seated] if proposal else []
        left_alone = avoided.avoided(core.ensemble.candidates.failures, now_ns)
        if any(each.member.bookie_id in left_alone for each in fresh):
            self.note("avoided bookie seated")

    def _late(self, core: Writer, event: Tick, effects: Sequence[Any]) -> None:
        in_flight = core.in_flight
        late_ns = None if in_flight.times is None else in_flight.times.late_ns
        if late_ns is None or in_flight.has_failed:
            return
        if any(type(effect) is Transact for effect in effects):
            self.note("late bookie replaced")
        elif 2 * len(late_seatings(in_flight.seatings, event.now_ns - late_ns)) > len(in_flight.seatings):
            self.note("late alike")

    def _answer(self, core: Writer, event: Answered) -> None:
        """BUSY, and OK to the same add later."""
        status = getattr(event.control, "status", None)
        if status == Status.BUSY:
            self._busy.setdefault(core, set()).add(event.tag)
        elif status == Status.OK and event.tag in self._busy.get(core, ()):
            self._busy[core].discard(event.tag)
            self.note("add refused for a while")

    def _recovery(self, core: Recovery, event: Any, effects: Sequence[Any]) -> None:
        kind = type(event)
        if kind is Started:
            if core.metadata.is_closed:
                self.note("recovery found it closed")
        elif kind is Answered and core.phase is Phase.READING and _is_negative(event.control):
            self.note("negative to a recovery")
        if core.in_flight is not None:
            self._went_back(core, core.in_flight.seatings)
        if core.round > self._rounds.get(core, 1):
            self.note("recovery began again")
        self._rounds[core] = core.round
        if any(type(effect) is Ended for effect in effects):
            self._rounds.pop(core, None)
            self._failed_seats.pop(core, None)

    def _went_back(self, core: Recovery, seatings: Sequence[Seating]) -> None:
        failed = {each.number for each in seatings if each.failure is not None}
        able = {each.number for each in seatings} - failed
        if self._failed_seats.get(core, set()) & able:
            self.note("recovery went back")
        self._failed_seats[core] = failed

    def _bookie(self, core: Bookie, event: Any, effects: Sequence[Any]) -> None:
        if type(event) is JournalFailed:
            self.note("journal failed")
        elif type(event) is LossFound:
            self.note("older disk found out")
        elif type(event) is LimboListed:
            self._unclean[core] = None
        elif type(event) is AddsTaken and core in self._unclean:
            self.note("taken in C behind an unclean start")
        elif type(event) is ServeAlone:
            self.note("served without metadata")
        for effect in effects:
            if type(effect) is Reply:
                status = getattr(effect.control, "status", Status.OK)
                if status == Status.WRONG_INCARNATION:
                    self.note("wrong incarnation")
                elif status == Status.UNKNOWN:
                    self.note("answer unknown")
        if type(event) is RequestReceived and core.parked.poll_count:
            self.note("long poll parked")

    def _repair(self, core: LedgerRepair, event: Any, effects: Sequence[Any]) -> None:
        if isinstance(event, Answered) and event.tag[0] == SOURCE:
            self.note("source told what it has before a copy")

    def _creation(self, core: Any, event: Any, effects: Sequence[Any]) -> None:
        if type(core) is Creation and core.is_short:
            self.note("waited for bookies")

    def _member(self, core: Member, event: Any, effects: Sequence[Any]) -> None:
        if type(event) is Durable and event.now_ns - self._appended.pop(core, event.now_ns) > AWAY_NS:
            self.note("metadata stood still")
        if any(type(effect) is Persist for effect in effects):
            self._appended.setdefault(core, event.now_ns)
        for effect in effects:
            if type(effect) is SendEvents and effect.events.is_compacted:
                self.note("watch listed anew")
            elif type(effect) is MetadataAnswered and getattr(effect.reply.result, "has_more", False):
                self.note("metadata listed in pages")

    def _reader(self, core: RangeRead, event: Any, effects: Sequence[Any]) -> None:
        if type(event) in (Tick, SendFailed) and any(type(effect) is Send for effect in effects):
            self.note("read asked another copy")


def _has_silent(core: Writer) -> bool:
    return any(each.failure == SILENT_AT_BOUND for each in core.in_flight.seatings)


def _is_negative(answer: Any) -> bool:
    return type(answer) is ReadAnswer and (bool(answer.absent) or answer.status == Status.NO_SUCH_LEDGER)
