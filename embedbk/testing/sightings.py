"""What a campaign must have met, or it was blind (S2): "sometimes" assertions, counted as cores step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.codec.messages import AddRequest, ReadAnswer, Status
from embedbk.core.bookie import Bookie
from embedbk.core.reader import RangeRead
from embedbk.core.recovery import Phase, Recovery
from embedbk.core.vocabulary import (
    AddFailed,
    Answered,
    Confirmed,
    Ended,
    EnsembleChanged,
    JournalFailed,
    Reply,
    RequestReceived,
    Send,
    SendFailed,
    Started,
    Tick,
    Transacted,
    TransactUnknown,
)
from embedbk.core.writer import Writer
from embedbk.errors import LedgerFenced, NotEnoughBookies, RecoveryInconclusive
from embedbk.testing.observer import Observer

__all__ = ["SIGHTINGS", "Sightings"]

# What each is, in the words of the report.
SIGHTINGS = (
    "a writer changed its ensemble",
    "a writer was fenced",
    "a writer was fenced with an ensemble change in flight",
    "a writer found not enough bookies",
    "a writer's compare-and-set came back unknown",
    "a writer's compare-and-set lost",
    "an ensemble change confirmed entries by a new bookie",
    "a recovery began again",
    "a recovery changed the ensemble while writing back",
    "a recovery was inconclusive",
    "a recovery's compare-and-set came back unknown",
    "a recovery's compare-and-set lost",
    "a recovery found the ledger closed",
    "two recoveries of one ledger at once",
    "a recovery wrote entries back",
    "a ledger closed empty",
    "a bookie answered FENCED to an add",
    "a bookie answered WRONG_INCARNATION",
    "a bookie's journal failed",
    "a bookie was asked for an unreadable entry",
    "an explicit negative to a recovery read",
    "a long poll was parked",
    "a read asked another copy",
    "a request could not be sent",
    "a bookie refused its foreign disk",
    "a journal torn in a group commit",
    "a metadata session expired",
)


class Sightings(Observer):
    """Counts into `seen`."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        self._recovering: dict[int, set[Recovery]] = {}
        self._rounds: dict[Recovery, int] = {}
        self._changed: dict[Writer, int] = {}
        self._by_core: dict[type, Callable[[Any, Any, Sequence[Any]], None]] = {
            Writer: self._writer,
            Recovery: self._recovery,
            Bookie: self._bookie,
            RangeRead: self._reader,
        }

    def on_step(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        look = self._by_core.get(type(core))
        if look is not None:
            look(core, event, effects)

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if new is None and key.startswith("/bookies"):
            self.seen["a metadata session expired"] += 1

    def _writer(self, core: Writer, event: Any, effects: Sequence[Any]) -> None:
        kind = type(event)
        if kind is TransactUnknown:
            self.seen["a writer's compare-and-set came back unknown"] += 1
        elif kind is Transacted and not event.is_done:
            self.seen["a writer's compare-and-set lost"] += 1
        elif kind is SendFailed:
            self.seen["a request could not be sent"] += 1
        for effect in effects:
            kind = type(effect)
            if kind is EnsembleChanged:
                self.seen["a writer changed its ensemble"] += 1
                self._changed[core] = effect.first_entry
            elif kind is Confirmed and core in self._changed and effect.lac >= self._changed[core]:
                del self._changed[core]
                self.seen["an ensemble change confirmed entries by a new bookie"] += 1
            elif kind is AddFailed:
                if isinstance(effect.error, LedgerFenced):
                    self.seen["a writer was fenced"] += 1
                    if core.proposal is not None or core.unsettled:
                        self.seen["a writer was fenced with an ensemble change in flight"] += 1
                elif isinstance(effect.error, NotEnoughBookies):
                    self.seen["a writer found not enough bookies"] += 1

    def _recovery(self, core: Recovery, event: Any, effects: Sequence[Any]) -> None:
        kind = type(event)
        if kind is Started:
            if core.metadata.is_closed:
                self.seen["a recovery found the ledger closed"] += 1
            others = self._recovering.setdefault(core.metadata.ledger_id, set())
            others.add(core)
            if len(others) > 1:
                self.seen["two recoveries of one ledger at once"] += 1
        elif kind is TransactUnknown:
            self.seen["a recovery's compare-and-set came back unknown"] += 1
        elif kind is Transacted and not event.is_done:
            self.seen["a recovery's compare-and-set lost"] += 1
        elif kind is Answered and core.phase is Phase.READING and _is_negative(event.control):
            self.seen["an explicit negative to a recovery read"] += 1
        if core.round > self._rounds.get(core, 1):
            self.seen["a recovery began again"] += 1
        self._rounds[core] = core.round
        for effect in effects:
            kind = type(effect)
            if kind is Send and type(effect.control) is AddRequest:
                self.seen["a recovery wrote entries back"] += 1
            elif kind is EnsembleChanged:
                self.seen["a recovery changed the ensemble while writing back"] += 1
            elif kind is Ended:
                self._recovering[core.metadata.ledger_id].discard(core)
                self._rounds.pop(core, None)
                if isinstance(effect.error, RecoveryInconclusive):
                    self.seen["a recovery was inconclusive"] += 1
                elif effect.error is None and effect.result[0].last_entry < 0:
                    self.seen["a ledger closed empty"] += 1
                elif effect.error is None and len(effect.result[0].fragments) > 1:
                    self.seen["a recovery changed the ensemble while writing back"] += 1

    def _bookie(self, core: Bookie, event: Any, effects: Sequence[Any]) -> None:
        if type(event) is JournalFailed:
            self.seen["a bookie's journal failed"] += 1
        for effect in effects:
            if type(effect) is Reply:
                status = getattr(effect.control, "status", Status.OK)
                if status == Status.FENCED:
                    self.seen["a bookie answered FENCED to an add"] += 1
                elif status == Status.WRONG_INCARNATION:
                    self.seen["a bookie answered WRONG_INCARNATION"] += 1
                elif status == Status.UNKNOWN:
                    self.seen["a bookie was asked for an unreadable entry"] += 1
        if type(event) is RequestReceived and core.parked.by_ledger:
            self.seen["a long poll was parked"] += 1

    def _reader(self, core: RangeRead, event: Any, effects: Sequence[Any]) -> None:
        if type(event) in (Tick, SendFailed) and any(type(effect) is Send for effect in effects):
            self.seen["a read asked another copy"] += 1


def _is_negative(answer: Any) -> bool:
    return type(answer) is ReadAnswer and (bool(answer.absent) or answer.status == Status.NO_SUCH_LEDGER)
