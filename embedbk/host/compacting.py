"""A bookie's compaction in its place: carries out what `core/compactor.py` asks for on the storage (I47).

Decides nothing. A slice runs in a thread of the storage; the loop does not wait for it.
"""

from __future__ import annotations

import logging

from embedbk.core.compactor import Compactor, CompactorOptions
from embedbk.core.machine import Effect, Event
from embedbk.core.upkeep_words import CopyFailed, CopyLogs, CopySlice, ListLogs, LogsListed, SliceCopied
from embedbk.core.vocabulary import Started, Tick
from embedbk.errors import StorageError
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.entry_store import DeviceFull
from embedbk.repeating import Repeating

__all__ = ["Compacting"]

logger = logging.getLogger(__name__)


class Compacting:
    """The compactor of one bookie."""

    def __init__(self, bookie_id: str, options: CompactorOptions, storage: DurableBookie) -> None:
        self.core = Compactor(options)
        self._bookie_id = bookie_id
        self._storage = storage
        self._is_started = False
        self._is_running = False  # A slice is being copied.
        self._failures = Repeating(logger, logging.ERROR)
        # Figures of the compaction that runs, to be logged.
        self._log_count = self._began_ns = self._bytes_before = 0

    def step(self, now_ns: int) -> None:
        if not self._is_started:
            self._is_started = True
            self._step(Started(now_ns))
        if self._is_running:
            self._finish_slice(now_ns)
        due_ns = self.core.deadline_ns
        if due_ns is not None and now_ns >= due_ns:
            self._step(Tick(now_ns))

    def deadline_ns(self) -> int | None:
        return self.core.deadline_ns

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            try:
                self._carry_out(event.now_ns, effect)
            except StorageError as failed:
                self._fail(event.now_ns, failed)
                return

    def _carry_out(self, now_ns: int, effect: Effect) -> None:
        if isinstance(effect, ListLogs):
            self._step(LogsListed(now_ns, self._storage.log_facts()))
        elif isinstance(effect, CopyLogs):
            self._log_count, self._began_ns = len(effect.log_ids), now_ns
            self._bytes_before = self.core.bytes_copied
            self._storage.begin_copy(effect.log_ids)
        else:
            assert isinstance(effect, CopySlice)
            self._storage.copy_slice(effect.byte_count)
            self._is_running = True
            self._finish_slice(now_ns)  # Unthreaded, it has ended already.

    def _finish_slice(self, now_ns: int) -> None:
        try:
            ended = self._storage.poll_copy()
        except StorageError as failed:
            self._fail(now_ns, failed)
            return
        if ended is not None:
            self._is_running = False
            self._failures.ended(f"bookie {self._bookie_id}: entry logs are copied again")
            self._step(SliceCopied(now_ns, *ended))
            if ended[1]:
                copied = self.core.bytes_copied - self._bytes_before
                logger.info(
                    "bookie %s compacted %d entry logs: %d bytes lived (%.3f s)",
                    self._bookie_id,
                    self._log_count,
                    copied,
                    (now_ns - self._began_ns) / 1e9,
                )

    def _fail(self, now_ns: int, failed: StorageError) -> None:
        kind = "no room" if isinstance(failed, DeviceFull) else ""
        self._failures.met(f"bookie {self._bookie_id}: {failed}", kind)
        self._is_running = False
        self._step(CopyFailed(now_ns, str(failed)))
