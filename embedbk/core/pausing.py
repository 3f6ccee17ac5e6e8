"""A pause: ends when so much time has passed, for what a host does now and then; and one that begins anew each time,
for as long as its client lives. Decides nothing."""

from __future__ import annotations

from typing import ClassVar

from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.vocabulary import Ended, Started, Tick

__all__ = ["Beating", "Pausing"]


class Pausing(Machine):
    """Ends with None, pause_ns after it was started."""

    def __init__(self, pause_ns: int) -> None:
        self.pause_ns = pause_ns
        self.until_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.until_ns

    @property
    def wants_bookies(self) -> bool:
        return False

    def _on_started(self, event: Started) -> list[Effect]:
        self.until_ns = event.now_ns + self.pause_ns
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.until_ns is None or event.now_ns < self.until_ns:
            return []
        self.until_ns = None
        return [Ended(None)]

    HANDLERS: ClassVar[Handlers] = {Started: _on_started, Tick: _on_tick}


class Beating(Machine):
    """Counts one beat after each period_ns, without end; never two in one step, however late it is told."""

    def __init__(self, period_ns: int) -> None:
        self.period_ns = period_ns
        self.beats = 0
        self.next_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.next_ns

    @property
    def wants_bookies(self) -> bool:
        return False

    def _on_started(self, event: Started) -> list[Effect]:
        self.next_ns = event.now_ns + self.period_ns
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.next_ns is not None and event.now_ns >= self.next_ns:
            self.beats += 1
            self.next_ns = event.now_ns + self.period_ns
        return []

    HANDLERS: ClassVar[Handlers] = {Started: _on_started, Tick: _on_tick}
