"""A worker: takes marks, has their ledgers repaired, so many at a time, and waits for more (P11.1, P11.2).

Decides when marks are asked for and how many. A worker takes none while repair is switched off, or while it cannot read
whether it is. If no mark is free it waits in the metadata's queue, and looks every `look_ns`, by one read, whether it
was handed one. `ledger_repair` does one repair; the metadata decides what becomes of a mark whose repair failed.

Several marks that it takes at once are begun side by side (`small_repairs`). Those that are not small come back, still
held, and are repaired each by itself, `at_once` of them beside each other. Once all that it took were small, it takes
as many as one request may take, and begins so several times; once one was not, it takes no more than it can repair
each by itself, so that the others are free for other workers. Where an operator bounds the ledgers per second, it takes
no mark before those that it took have had their time.

    ASKING ──taken──▶ one repair, or several side by side ──over──▶ each that was not small, by itself ──▶ ASKING
       └──nothing──▶ WAITING: the place in the queue ──gone──▶ what was handed? ──▶ ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.metadata_messages import Refusal
from embedbk.codec.repair_messages import REPAIRS_MAX, FailRepairs, RepairsTaken, TakeRepairs
from embedbk.codec.repair_state import CONTROL_KEY, decode_repair_control
from embedbk.core.client_words import BookieInfo, BookiesChanged
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import KeyRead, MetadataFailed, ReadKey
from embedbk.core.repair_words import (
    AskQuorum,
    BeginRepair,
    BeginSmallRepairs,
    HeldMark,
    QuorumAnswered,
    RepairOver,
    SmallRepairsOver,
)
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.metadata.claims import REPAIRERS_PREFIX, place_path
from embedbk.metadata.client import is_unknown

__all__ = ["RepairWorker", "WorkerOptions", "is_switched_off"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    at_once: int = 8  # Ledgers repaired beside each other, each by itself.
    small_at_once: int = 8  # Times that small ledgers are begun side by side, up to REPAIRS_MAX each time.
    look_ns: int = _SECOND  # Between two looks at the switch and at the place in the queue.
    retry_ns: int = 5 * _SECOND  # Behind a refusal, as while the cluster's level is too low.
    ledgers_per_s: int = 0  # That are begun (AR12); 0: as many as there is room for.


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
        self.returning: tuple[tuple[int, int], ...] = ()  # Those of them that were asked for last.
        self.due_ns: int | None = None
        self.free_ns = 0  # Before that it takes no mark (AR12).
        self.done = 0
        self.small: list[frozenset[int]] = []  # The ledgers of each time that is under way.
        self.alone: list[HeldMark] = []  # Held and not small; to be begun, each by itself.
        self.is_wide = False  # All were small that it took last.

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
        self.returning = tuple(self.returned.items())[:REPAIRS_MAX]
        back = FailRepairs(self.returning, postpones=False)
        return [AskQuorum(("return", 0), back)] if self.returning else []

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
            if self.is_off:
                self._drop_alone()
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
        room = self._room
        if self.is_off or not self.bookies or room <= 0:
            return self._pause(now_ns, self.options.look_ns)
        if now_ns < self.free_ns:
            return self._pause(now_ns, min(self.free_ns - now_ns, self.options.look_ns))
        return [AskQuorum(self._tag("take"), TakeRepairs(room))]

    @property
    def _room(self) -> int:
        """How many marks it may take."""
        if self.small and len(self.small) >= self.options.small_at_once:
            return 0
        room = self.options.at_once - self._singles - len(self.alone)
        if not self.is_wide:
            room -= sum(map(len, self.small))
        elif room > 0:
            room = REPAIRS_MAX
        return min(room, self.options.ledgers_per_s or room)

    @property
    def _singles(self) -> int:
        """Repairs of one ledger that are under way."""
        return len(self.running) - len(self.alone) - sum(map(len, self.small))

    def _drop_alone(self) -> None:
        """Repair is switched off: what was not begun is given back."""
        for held in self.alone:
            del self.running[held.ledger_id]
            self.returned[held.ledger_id] = held.epoch
        self.alone = []

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        kind, result = event.tag[0], event.result
        is_refused = isinstance(result, Refusal) and not is_unknown(result)
        if kind == "return":
            for ledger_id, epoch in self.returning if not is_refused else ():
                if self.returned.get(ledger_id) == epoch:
                    del self.returned[ledger_id]
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
        begun = [
            HeldMark(ledger_id, taken.epoch, mark)
            for ledger_id, mark in news
            if ledger_id not in self.running
        ]
        self.running.update((held.ledger_id, held.epoch) for held in begun)
        if self.options.ledgers_per_s:
            self.free_ns = max(self.free_ns, now_ns) + len(begun) * _SECOND // self.options.ledgers_per_s
        is_several = len(begun) > 1 and self.options.small_at_once > 0
        if is_several:
            self.small.append(frozenset(held.ledger_id for held in begun))
        self._pause(now_ns, 0 if self._room > 0 else self.options.look_ns)
        return [BeginSmallRepairs(tuple(begun))] if is_several else [BeginRepair(*held) for held in begun]

    def _on_over(self, event: RepairOver) -> list[Effect]:
        return [*self._over(event.outcome.ledger_id), *self._begin_alone(event.now_ns)]

    def _over(self, ledger_id: int) -> list[Effect]:
        self.running.pop(ledger_id, None)
        self.done += 1
        if ledger_id not in self.behind:
            return []
        epoch, mark = self.behind.pop(ledger_id)
        self.running[ledger_id] = epoch
        return [BeginRepair(ledger_id, epoch, mark)]

    def _on_small_over(self, event: SmallRepairsOver) -> list[Effect]:
        result, effects = event.result, list[Effect]()
        ended = {each.ledger_id for each in result.outcomes} | {each.ledger_id for each in result.alone}
        self.small = [ledgers for ledgers in self.small if ledgers.isdisjoint(ended)]
        self.is_wide = not result.alone
        for outcome in result.outcomes:
            effects += self._over(outcome.ledger_id)
        for held in result.alone:
            if held.ledger_id in self.behind:  # An earlier session held it, and holds it no more.
                effects += self._over(held.ledger_id)
            else:
                self.alone.append(held)
        if self.is_off:
            self._drop_alone()
        return [*effects, *self._begin_alone(event.now_ns)]

    def _begin_alone(self, now_ns: int) -> list[Effect]:
        """As many as there is room for; then look for more marks."""
        room = max(0, self.options.at_once - self._singles)
        begun, self.alone = self.alone[:room], self.alone[room:]
        effects: list[Effect] = [BeginRepair(*each) for each in begun]
        if self.asked is None and not self.waits_since:
            self._pause(now_ns, 0)
        return effects

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
        SmallRepairsOver: _on_small_over,
        BookiesChanged: _on_bookies,
    }
