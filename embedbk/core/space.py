"""Whether a bookie takes normal adds: one state machine with reasons (P7.8, ST26, ST27, ST28, I53, L11).

Decides: when the bookie becomes read-only, and when it is writable again. Leaves to others: what a read-only bookie
refuses (core/bookie.py: fences and recovery adds pass), and measuring (host/spacing.py).

    writable ── free space below `low_bytes` ──▶ read-only: low space ── above `back_bytes` ──▶ writable
             ── a write found no room ─────────▶ read-only: no room ──── such a write went well ─▶ writable
             ── an operator asks ──────────────▶ read-only: operator ─── and asks again ────────▶ writable

Several reasons may hold at once; it is writable when none does. What lies below `low_bytes` is the reserve: only
fences, recovery adds and the files that free others are written from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.core.machine import Handlers, Machine
from embedbk.core.vocabulary import Effect, OperatorAsked, RetryWrites, SetWritable, SpaceSeen

__all__ = ["LOW_SPACE", "NO_ROOM", "OPERATOR", "Space", "SpaceOptions"]

LOW_SPACE = "low space"
NO_ROOM = "no room"
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class SpaceOptions:
    low_bytes: int = 256 << 20  # Free on the device: two flushes, journal files, and what compaction copies.
    back_bytes: int = 384 << 20  # More, so that one flush does not turn it back and forth.
    look_ns: int = 5_000_000_000
    retry_ns: int = 500_000_000  # While a write finds no room.


class Space(Machine):
    """reasons: why no normal adds are taken, in a fixed order; empty while they are."""

    def __init__(self, options: SpaceOptions) -> None:
        self.options = options
        self.reasons: tuple[str, ...] = ()
        self.due_ns: int | None = None  # When to look again.

    @property
    def is_writable(self) -> bool:
        return not self.reasons

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _on_seen(self, event: SpaceSeen) -> list[Effect]:
        """free_bytes None cannot be told, and concludes nothing: neither low nor back."""
        options = self.options
        is_low = LOW_SPACE in self.reasons
        if event.free_bytes is not None:
            is_low = event.free_bytes < (options.back_bytes if is_low else options.low_bytes)
        effects = self._become({LOW_SPACE: is_low, NO_ROOM: event.is_refused})
        self.due_ns = event.now_ns + (options.retry_ns if self.reasons else options.look_ns)
        return [*effects, RetryWrites()] if event.is_refused and event.is_due else effects

    def _on_operator(self, event: OperatorAsked) -> list[Effect]:
        return self._become({OPERATOR: event.is_read_only})

    def _become(self, changes: dict[str, bool]) -> list[Effect]:
        """The one place where reasons come and go."""
        before = self.reasons
        holds = {reason: reason in before for reason in (OPERATOR, LOW_SPACE, NO_ROOM)} | changes
        self.reasons = tuple(reason for reason, does in holds.items() if does)
        return [SetWritable(self.is_writable)] if self.is_writable != (not before) else []

    HANDLERS: ClassVar[Handlers] = {SpaceSeen: _on_seen, OperatorAsked: _on_operator}
