"""A worker: takes marks, has their ledgers repaired, so many at a time, and waits for more (P11.1, P11.2).

Decides when marks are asked for and how many. A worker takes none while repair is switched off, or while it cannot read
whether it is. If no mark is free it waits in the metadata's queue, and looks every `look_ns`, by one read, whether it
was handed one. `ledger_repair` does one repair; the metadata decides what becomes of a mark whose repair failed.

    ASKING ──taken──▶ as many repairs as marks ──one ends──▶ ASKING
       └──nothing──▶ WAITING: the place in the queue ──gone──▶ what was handed? ──▶ ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.metadata_messages import Refusal
from embedbk.codec.repair_messages import FailRepairs, RepairsTaken, TakeRepairs
from embedbk.codec.repair_state import CONTROL_KEY, decode_repair_control
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import KeyRead, MetadataFailed, ReadKey
from embedbk.core.repair_words import AskQuorum, BeginRepair, QuorumAnswered, RepairOver
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.metadata.claims import REPAIRERS_PREFIX, place_path
from embedbk.metadata.client import is_unknown

__all__ = ["RepairWorker", "WorkerOptions", "is_switched_off"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    at_once: int = 8  # Ledgers repaired beside each other.
    look_ns: int = _SECOND  # Between two looks at the switch and at the place in the queue.
    retry_ns: int = 5 * _SECOND  # Behind a refusal, as while the cluster's level is too low.


def is_switched_off(value: bytes | None) -> bool:
    """The state of the switch; one that cannot be read counts as off, since an operator set it (P2.5)."""
    try:
        return value is not None and decode_repair_control(value).is_stopped
    except StorageError:
        return True


class RepairWorker(Machine):
    """Never ends. One question of its own at a time."""

    def __init__(self, bookies: tuple[BookieInfo, ...], options: WorkerOptions = WorkerOptions()) -> None:
        self.bookies = bookies
        self.options = options
        self.questions = 0
        self.asked: Tag = None
        self.waits_since = 0  # The revision at which it asked, while it waits in the queue.
        self.is_off = True  # Until the switch was read.
        self.running: dict[int, int] = {}  # Ledger id -> epoch.
        # Ledger id -> (epoch, revision of the mark) of what it was given while its own repair of an earlier session
        # goes on, which finds its hold lost. Begun when that has ended: else nobody would give it back.
        self.behind: dict[int, tuple[int, int]] = {}
        self.returned: dict[
            int, int
        ] = {}  # The same, of what it was handed while off, until that is given back.
        self.due_ns: int | None = None
        self.done = 0

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _tag(self, kind: str) -> Tag:
        self.questions += 1
        self.asked = (kind, self.questions)
        return self.asked

    def _pause(self, now_ns: int, pause_ns: int) -> list[Effect]:
        self.asked, self.due_ns = None, now_ns + pause_ns
        return []

    def _look(self) -> list[Effect]:
        """The switch first, each time."""
        self.due_ns = None
        return [*self._give_back(), ReadKey(self._tag("switch"), CONTROL_KEY)]

    def _give_back(self) -> list[Effect]:
        """Asked again until it is done: otherwise the ledgers would stay locked for as long as the session lives."""
        back = FailRepairs(tuple(self.returned.items()), postpones=False)
        return [AskQuorum(("return", 0), back)] if self.returned else []

    def _on_started(self, event: Started) -> list[Effect]:
        return self._look()

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        return self._look()

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag != self.asked:
            return []
        if event.tag[0] == "switch":
            self.is_off = is_switched_off(event.value)
            return self._go_on(event.now_ns)
        if event.value is not None:  # It still waits.
            return self._pause(event.now_ns, self.options.look_ns)
        return self._ask_what_was_handed()

    def _ask_what_was_handed(self) -> list[Effect]:
        return [AskQuorum(self._tag("handed"), TakeRepairs(0, (), self.waits_since))]

    def _go_on(self, now_ns: int) -> list[Effect]:
        if self.waits_since:
            if self.is_off:
                return [AskQuorum(self._tag("leave"), TakeRepairs(0))]
            return [ReadKey(self._tag("place"), place_path(REPAIRERS_PREFIX, self.waits_since))]
        room = self.options.at_once - len(self.running)
        if self.is_off or not self.bookies or room <= 0:
            return self._pause(now_ns, self.options.look_ns)
        return [AskQuorum(self._tag("take"), TakeRepairs(room))]

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        kind, result = event.tag[0], event.result
        is_refused = isinstance(result, Refusal) and not is_unknown(result)
        if kind == "return":
            self.returned = self.returned if is_refused else {}
            return []
        if event.tag != self.asked:
            return []
        if not isinstance(result, RepairsTaken):
            # A lost session leaves nothing behind. What was refused was not done: it waits where it did, and nobody
            # else knows what it is handed there.
            self.waits_since = self.waits_since if is_refused else 0
            return self._pause(event.now_ns, self.options.retry_ns)
        if kind == "leave":  # It may have been handed something until then.
            return self._ask_what_was_handed()
        if not result.epoch:
            self.waits_since = 0 if self.is_off else result.asked
            return self._pause(event.now_ns, self.options.look_ns)
        self.waits_since = 0
        return self._begin(event.now_ns, result)

    def _begin(self, now_ns: int, taken: RepairsTaken) -> list[Effect]:
        news = [
            (ledger_id, mark)
            for ledger_id, mark, _ in taken.marks
            if self.running.get(ledger_id) != taken.epoch
        ]
        if self.is_off:
            self._pause(now_ns, self.options.look_ns)
            self.returned.update((ledger_id, taken.epoch) for ledger_id, _ in news)
            return self._give_back()
        self.behind.update(
            (ledger_id, (taken.epoch, mark)) for ledger_id, mark in news if ledger_id in self.running
        )
        begun = [(ledger_id, mark) for ledger_id, mark in news if ledger_id not in self.running]
        self.running.update((ledger_id, taken.epoch) for ledger_id, _ in begun)
        self._pause(now_ns, 0 if len(self.running) < self.options.at_once else self.options.look_ns)
        return [BeginRepair(ledger_id, taken.epoch, mark) for ledger_id, mark in begun]

    def _on_over(self, event: RepairOver) -> list[Effect]:
        ledger_id = event.outcome.ledger_id
        self.running.pop(ledger_id, None)
        self.done += 1
        if ledger_id in self.behind:
            epoch, mark = self.behind.pop(ledger_id)
            self.running[ledger_id] = epoch
            return [BeginRepair(ledger_id, epoch, mark)]
        if self.asked is not None or self.waits_since:
            return []
        return self._pause(event.now_ns, 0)

    def _on_failed(self, event: MetadataFailed) -> list[Effect]:
        return self._pause(event.now_ns, self.options.look_ns) if event.tag == self.asked else []

    def _on_bookies(self, event: BookiesChanged) -> list[Effect]:
        self.bookies = event.bookies
        return []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        KeyRead: _on_read,
        MetadataFailed: _on_failed,
        QuorumAnswered: _on_quorum,
        RepairOver: _on_over,
        BookiesChanged: _on_bookies,
    }
