"""Beginning again after a pause: for cores whose compare-and-set may have an unknown outcome (P2.2).

A core that cannot tell whether its change took effect pauses, and then begins again where it reads the present state,
or sends the same compare-and-set. Decides only when. The core decides what is read then, and what it means.
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.core.machine import Effect, Event, Handlers, Machine
from embedbk.core.vocabulary import Tick

__all__ = ["RETRY_NS", "Retrying"]

RETRY_NS = 100_000_000


class Retrying(Machine):
    """A core that waits for nothing but a pause of its own. Subclasses call `_pause`, and begin again in `_again`."""

    def __init__(self) -> None:
        self.retry_at: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.retry_at

    def _pause(self, event: Event) -> list[Effect]:
        """Begin again 100 ms after this event; also the handler of events without an outcome."""
        self.retry_at = event.now_ns + RETRY_NS
        return []

    def _again(self) -> list[Effect]:
        """Each kind begins again in its own way; this one is never stepped by itself."""
        raise NotImplementedError

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.retry_at is None or event.now_ns < self.retry_at:
            return []
        self.retry_at = None
        return self._again()

    HANDLERS: ClassVar[Handlers] = {Tick: _on_tick}
