"""Compaction: when which entry logs are copied, so that what is dead in them goes (I47, ST19, ST31, ST35).

Decides: which logs, in what order, and how fast. Leaves to others: the copying itself, which keeps the order copy,
sync, index, delete (storage), and what is dead at all (core/collector.py).

    look ─▶ its index is lost, and what it has was found: it is written anew, always and first (ST38)
            nothing lives in it: it goes whole, always
            little lives in it: minor, often          much is dead: major, seldom
    copy ─▶ slice, pause as the rate asks, slice ... ─▶ over, look again        failed: the bad log is left alone
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.upkeep_words import (
    CopyFailed,
    CopyLogs,
    CopySlice,
    ListLogs,
    LogFacts,
    LogsListed,
    SliceCopied,
)
from embedbk.core.vocabulary import Started, Tick

__all__ = ["Compactor", "CompactorOptions"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CompactorOptions:
    look_ns: int = 60 * _SECOND
    minor_ns: int = 3_600 * _SECOND  # Between two looks for logs of which less than minor_share lives.
    minor_share: float = 0.2
    major_ns: int = 86_400 * _SECOND
    major_share: float = 0.8
    gain_bytes_min: int = 1 << 20  # Copying for less is not worth a flush.
    bare_min: int = 16  # Logs without entries wait for so many of them.
    sources_max: int = 64  # Logs copied together ...
    output_bytes_max: int = 256 << 20  # ... into one of about so much.
    slice_bytes: int = 1 << 20
    bytes_per_s: int = 32 << 20  # Clients come first.


class Compactor(Machine):
    """One copying at a time."""

    def __init__(self, options: CompactorOptions) -> None:
        self.options = options
        self.due_ns: int | None = None
        self.minor_due_ns = self.major_due_ns = 0
        self.is_copying = False
        self.copies_done = self.copies_failed = self.bytes_copied = 0

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _on_started(self, event: Started) -> list[Effect]:
        self.due_ns = event.now_ns + self.options.look_ns
        self.minor_due_ns = event.now_ns + self.options.minor_ns
        self.major_due_ns = event.now_ns + self.options.major_ns
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        self.due_ns = None
        return [CopySlice(self.options.slice_bytes)] if self.is_copying else [ListLogs()]

    def _on_listed(self, event: LogsListed) -> list[Effect]:
        log_ids = self._choose(event.logs, event.now_ns)
        if not log_ids:
            self.due_ns = event.now_ns + self.options.look_ns
            return []
        self.is_copying = True
        return [CopyLogs(log_ids), CopySlice(self.options.slice_bytes)]

    def _choose(self, logs: Sequence[LogFacts], now_ns: int) -> list[int]:
        options, share = self.options, 0.0
        if now_ns >= self.major_due_ns:
            share = options.major_share
        elif now_ns >= self.minor_due_ns:
            share = options.minor_share
        found = [
            log
            for log in logs
            if not log.is_damaged
            and not log.is_held_back
            and (log.is_rescued or not log.live_bytes or log.live_bytes < share * log.file_bytes)
        ]
        if sum(not log.entries_bytes for log in found) < options.bare_min:
            # Each compaction ends with a flush, which may write another log that has ledger states only.
            found = [log for log in found if log.entries_bytes]
        found.sort(key=lambda log: (not log.is_rescued, log.live_bytes / log.file_bytes, log.log_id))
        chosen: list[LogFacts] = []
        for log in found[: options.sources_max]:
            if log.live_bytes and sum(each.live_bytes for each in chosen) > options.output_bytes_max:
                break
            chosen.append(log)
        is_needed = any(
            log.is_rescued for log in chosen
        )  # Until it is copied, each start looks it through again.
        if not is_needed and sum(log.file_bytes - log.live_bytes for log in chosen) < options.gain_bytes_min:
            # Nothing is left for this share: its next time is an interval away.
            if now_ns >= self.minor_due_ns:
                self.minor_due_ns = now_ns + options.minor_ns
            if now_ns >= self.major_due_ns:
                self.major_due_ns = now_ns + options.major_ns
            return []
        return [log.log_id for log in chosen]

    def _on_copied(self, event: SliceCopied) -> list[Effect]:
        self.bytes_copied += event.byte_count
        pause_ns = event.byte_count * _SECOND // self.options.bytes_per_s
        if event.is_over:
            self.is_copying = False
            self.copies_done += 1
            pause_ns = max(pause_ns, self.options.look_ns)
        self.due_ns = event.now_ns + pause_ns
        return []

    def _on_failed(self, event: CopyFailed) -> list[Effect]:
        """One bad log does not stop the rest: it counts as damaged now, and the next look chooses others (ST35)."""
        self.is_copying = False
        self.copies_failed += 1
        self.due_ns = event.now_ns + self.options.look_ns
        return []

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        LogsListed: _on_listed,
        SliceCopied: _on_copied,
        CopyFailed: _on_failed,
    }
