"""Whether a bookie takes normal adds: one state machine with reasons (P7.8, ST26, ST27, ST28, I53, L11).

Decides: when the bookie becomes read-only, and when it is writable again. Leaves to others: what a read-only bookie
refuses (core/add_storing.py: fences and recovery adds pass), and measuring (host/spacing.py).

    writable ── free space below `low_bytes` ──▶ read-only: low space ── above `back_bytes` ──▶ writable
             ── a write found no room, twice ──▶ read-only: no room ──── such a write went well ─▶ writable
             ── an operator asks ──────────────▶ read-only: operator ─── and asks again ────────▶ writable
             ── metadata is older than it met ─▶ read-only: older metadata ─ it is not any more ─▶ writable
             ── it cannot keep what it met ────▶ read-only: metadata not kept ─ it is kept ──────▶ writable

Several reasons may hold at once; it is writable when none does. Being busy is none: a write cache that is full for a
moment, or a write that finds room at its second try, makes requests wait and changes nothing in the list of bookies,
from which every writer would take it as an end (P4.1). What lies below `low_bytes` is the reserve: only
fences, recovery adds and the files that free others are written from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.upkeep_words import MetadataDoubted, OperatorAsked, RetryWrites, SetWritable, SpaceSeen

__all__ = ["LOW_SPACE", "NO_ROOM", "OLDER_METADATA", "OPERATOR", "UNKEPT_METADATA", "Space", "SpaceOptions"]

LOW_SPACE = "low space"
NO_ROOM = "no room"
OPERATOR = "operator"
OLDER_METADATA = "older metadata"
UNKEPT_METADATA = "which metadata it met cannot be kept"
_REASONS = (OPERATOR, LOW_SPACE, NO_ROOM, OLDER_METADATA, UNKEPT_METADATA)


@dataclass(frozen=True, slots=True)
class SpaceOptions:
    low_bytes: int = 256 << 20  # Free on the device: two flushes, journal files, and what compaction copies.
    back_bytes: int = 384 << 20  # More, so that one flush does not turn it back and forth.
    look_ns: int = 5_000_000_000  # Sooner, when the device could be down to low_bytes before.
    fill_bytes_per_s: int = 4 << 30  # Nothing fills a device faster than this, all its writers together.
    retry_ns: int = 500_000_000  # While a write finds no room.
    # Pause after the first write that found no room: the write cache lasts so long.
    again_ns: int = 50_000_000


class Space(Machine):
    """reasons: why no normal adds are taken, in a fixed order; empty while they are."""

    def __init__(self, options: SpaceOptions) -> None:
        self.options = options
        self.reasons: tuple[str, ...] = ()
        self.due_ns: int | None = None  # When to look again.
        self.is_retried = False  # The write that found no room was tried again since.

    @property
    def is_writable(self) -> bool:
        return not self.reasons

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _on_seen(self, event: SpaceSeen) -> list[Effect]:
        """Take a measurement. free_bytes None: not known, so nothing changes."""
        options = self.options
        is_low = LOW_SPACE in self.reasons
        if event.free_bytes is not None:
            is_low = event.free_bytes < (options.back_bytes if is_low else options.low_bytes)
        is_lasting = event.is_refused and (NO_ROOM in self.reasons or (self.is_retried and event.is_due))
        effects = self._become({LOW_SPACE: is_low, NO_ROOM: is_lasting})
        is_retry = event.is_refused and (event.is_due or not self.is_retried)
        if is_retry and not self.is_retried:
            self.due_ns = event.now_ns + options.again_ns
        elif is_retry or not event.is_refused:
            self.due_ns = event.now_ns + self._pause_ns(event.free_bytes)
        self.is_retried = event.is_refused
        return [*effects, RetryWrites()] if is_retry else effects

    def _pause_ns(self, free_bytes: int | None) -> int:
        """Until the next look: while it takes normal adds, not so long that they could eat the reserve (ST28)."""
        options = self.options
        if self.reasons:
            return options.retry_ns
        if free_bytes is None:
            return options.look_ns
        until_low_ns = (free_bytes - options.low_bytes) * 1_000_000_000 // options.fill_bytes_per_s
        return min(options.look_ns, max(options.again_ns, until_low_ns))

    def _on_operator(self, event: OperatorAsked) -> list[Effect]:
        return self._become({OPERATOR: event.is_read_only})

    def _on_doubted(self, event: MetadataDoubted) -> list[Effect]:
        """Refuse normal adds while metadata is doubted: it might give out ids a second time (P10.5)."""
        return self._become({OLDER_METADATA: event.is_older, UNKEPT_METADATA: event.is_unkept})

    def _become(self, changes: dict[str, bool]) -> list[Effect]:
        """The one place where reasons come and go."""
        before = self.reasons
        holds = {reason: reason in before for reason in _REASONS} | changes
        self.reasons = tuple(reason for reason, does in holds.items() if does)
        return [SetWritable(self.is_writable)] if self.is_writable != (not before) else []

    HANDLERS: ClassVar[Handlers] = {
        SpaceSeen: _on_seen,
        OperatorAsked: _on_operator,
        MetadataDoubted: _on_doubted,
    }
