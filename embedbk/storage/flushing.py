"""How one bookie's write cache goes into entry logs, again and again (P7.3, P7.5, I44, I45).

Decides when a flush begins, what its log mark is, when the frozen half is free again, when a failed flush is tried
again, and when the journals may be trimmed. Leaves the bytes of entry logs to the entry store (C), and everything else
that a bookie does with its storage to `bookie_storage`.

             begin: freeze one half,                   the entry log counts,             the journals are past all
             take the states, note the mark            the journals are trimmed          that was in the frozen half
    IDLE ───────────────────────────────▶ RUNNING ──────────────────────────▶ LOGGED ─────────────────────────▶ IDLE
                                           │   ▲
           it failed in every directory,   ▼   │  more was journaled, or a device has room again
           or could not begin             FAILED

A frozen half is freed only when the journals are past everything that was put into it, because the journals' queues
borrow those bytes.

Where memory is refused nothing is frozen, and the states stay in the table: the freeze waits, as a flush does that
found no room.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable

from embedbk.errors import StorageError, ensure
from embedbk.ports.entry_store import DeviceFull, MemoryRefused
from embedbk.repeating import Repeating
from embedbk.storage.add_path import NativeAddPath
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.journals import Journals
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.starting import Start

__all__ = ["FlushCycle", "FlushState", "stored_marks"]

logger = logging.getLogger(__name__)

FLUSH_RETRY_SHARE = 16  # A failed flush is tried again when this part of flush_bytes more was journaled.


class FlushState(enum.Enum):
    """The state of the flush: IDLE has no frozen half; the three others have one."""

    IDLE = enum.auto()
    RUNNING = enum.auto()
    FAILED = enum.auto()
    LOGGED = enum.auto()


class FlushCycle:
    """One flush at a time, of one open bookie. All calls from one thread.

    Args:
        flush_bytes: how much is journaled between flushes.
        cache_bytes_max: of each half of the write cache; while a flush runs, that much more may be added.
        threaded: flush in native threads; else `finish` does it.
        measure_room: called before each flush, so that the store knows how much is free in each ledger directory.
        start: what the start of this bookie left to be flushed.
    """

    def __init__(
        self,
        bookie_id: str,
        table: NativeLedgerTable,
        store: NativeEntryStore,
        journals: Journals,
        add_path: NativeAddPath,
        *,
        flush_bytes: int,
        cache_bytes_max: int,
        threaded: bool,
        measure_room: Callable[[], None],
        start: Start,
    ) -> None:
        self.bookie_id = bookie_id
        self.table = table
        self.store = store
        self.journals = journals
        self.add_path: NativeAddPath | None = add_path  # None once the storage is closed.
        self.flush_bytes = flush_bytes
        self.cache_bytes_max = cache_bytes_max
        self.threaded = threaded
        self.measure_room = measure_room
        self.state = FlushState.IDLE
        self.failure: str | None = None  # Why nothing can be flushed any more, for good.
        self.failed_count = 0  # Flushes that failed since the storage was opened; each is done again.
        self.is_full = False  # The last flush found no room.
        self.unflushed_bytes = start.unflushed_bytes  # Journaled since the last freeze.
        self._counted_bytes = 0  # Those of the add path's bytes that are in `unflushed_bytes`.
        self._is_wanted = False  # Entry logs that were compacted go with the next flush.
        self._frozen_token = 0  # The last token that was queued before the freeze; valid unless IDLE.
        self._frozen_bytes = 0  # Bytes of records in the frozen half: for people.
        self._began_s = 0.0  # When it was frozen: likewise.
        self.is_unfrozen = False  # IDLE, because memory was refused when a half was to be frozen.
        # While FAILED, or unfrozen: the flush is tried again when `unflushed_bytes` reaches this.
        self._retry_bytes = 0
        self._why_failed = ""  # Likewise.
        self._failures = Repeating(logger, logging.ERROR)
        if start.no_room is not None:
            self.state = FlushState.RUNNING
            self._frozen_token = journals.known_durable  # No journal borrows what was replayed.
            self._fail(start.no_room)

    @property
    def is_frozen(self) -> bool:
        """Whether one half of the write cache is frozen: it takes nothing more until a flush is over."""
        return self.state is not FlushState.IDLE

    @property
    def due_bytes(self) -> int:
        """The next flush, or the next attempt at one that failed, begins when `unflushed_bytes` reaches this."""
        is_again = self.state is FlushState.FAILED or self.is_unfrozen
        return self._retry_bytes if is_again else self.flush_bytes

    @property
    def why_full(self) -> str:
        """Where the last flush found no room; empty: it did."""
        return self._why_failed if self.is_full else ""

    def want(self) -> None:
        """A compaction is committed: its sources can go once the next flush has the states; their room may be
        needed."""
        self._is_wanted = True

    def begin_if_due(self) -> bool:
        """As `DurableBookie.begin_flush_if_due`."""
        if self.failure is not None:
            return False
        self._count_taken()
        is_due = self.unflushed_bytes >= self.due_bytes
        if self.state is FlushState.IDLE and (is_due or (self._is_wanted and not self.is_unfrozen)):
            return self._begin_with_memory()
        if self.state is not FlushState.FAILED or not is_due:
            return False
        self._flush()
        return True

    def begin(self) -> None:
        """Freeze what was put so far, and begin to flush it. Only when IDLE.

        Raises:
            StorageError: the write cache cannot be frozen (for good), or no flush can be begun.
        """
        self._freeze()
        self._flush()

    def quiet_bytes(self) -> int:
        """As `DurableBookie.quiet_bytes`."""
        if self.state is FlushState.LOGGED or self.failure is not None:
            return 0  # The frozen half becomes free when the journals are past it.
        self._count_taken()
        if self.state is FlushState.RUNNING:
            return self.cache_bytes_max  # A descriptor shows when the flush is ready.
        if self.state is FlushState.IDLE and self._is_wanted and not self.is_unfrozen:
            return 0
        return max(0, self.due_bytes - self.unflushed_bytes)

    def finish(self) -> bool:
        """As `DurableBookie.finish_flush`."""
        if not self.is_frozen:
            return False
        is_done = self.state is FlushState.RUNNING and self._finish_running()
        if self.state is FlushState.LOGGED and self.journals.known_durable >= self._frozen_token:
            self.store.release()
            self.state = FlushState.IDLE
        return is_done

    def retry(self) -> None:
        """Try again at once, where the last flush found no room. Raises StorageError when no flush can be begun."""
        if self.state is FlushState.FAILED and self.is_full and self.failure is None:
            self._flush()
        elif self.is_unfrozen and self.failure is None:
            self._begin_with_memory()

    def wait(self) -> None:
        """Block until the frozen half is in an entry log and free; tries a failed flush once more.

        Raises:
            StorageError: it failed, or the journal did.
        """
        if self.state is FlushState.FAILED:
            self._flush()
        while self.is_frozen:
            if self.state is FlushState.RUNNING and self.threaded:
                self.store.wait_for_flush()
            elif self.state is FlushState.LOGGED:
                self.journals.wait(self._frozen_token)
                self.journals.durable()
            self.finish()
            if self.state is FlushState.FAILED:
                raise StorageError(
                    f"bookie {self.bookie_id}: entry logs cannot be written: {self._why_failed}",
                    hint="make room on the device or replace it; nothing is lost, the journal is kept",
                )

    def make_room(self) -> None:
        """Freeze the half that is full, once the other one is free; blocks until it is. Where memory is refused for
        that, the half goes on into its reserve.

        Raises:
            StorageError: neither half can be flushed. The storage has failed, for good.
        """
        had_reserve = not self.is_unfrozen
        try:
            if self.is_frozen:
                self.wait()
            if not self._begin_with_memory() and not had_reserve:
                raise StorageError(self._why_failed)
        except StorageError as failed:
            self.failure = self.failure or f"the write cache is full and cannot be flushed: {failed}"
            raise

    def finish_all(self) -> None:
        """Block until everything that was queued is durable and in entry logs.

        Raises:
            StorageError: a flush failed, or the journal did.
        """
        if self.journals.next_token() > 1:
            self.journals.wait(self.journals.next_token() - 1)
        self.journals.durable()
        if self.is_frozen:
            self.wait()
        self._count_taken()
        if self.unflushed_bytes:
            self.begin()
            self.wait()

    def _count_taken(self) -> None:
        """Count the bytes that the add path queued since the last call, as `put_frame` counts its own."""
        if self.add_path is not None:
            taken_bytes = self.add_path.taken_bytes()
            self.unflushed_bytes += taken_bytes - self._counted_bytes
            self._counted_bytes = taken_bytes

    def _freeze(self) -> None:
        """Everything that was queued so far goes into the next entry log; the mark is the part of it that is durable.

        Everything up to the mark was queued before, so it is in the frozen half or in a state taken here. What
        is queued above the mark is in the entry log too: replaying it once more changes nothing (I44).
        """
        self._count_taken()
        states: memoryview | None = None
        try:
            self.table.retire(self.journals.known_durable)
            marks = self.journals.marks()
            states = self.table.take_dirty()
            taken = self.store.freeze(states, sum(marks), marks if len(marks) > 1 else ())
        except (MemoryRefused, MemoryError) as refused:
            self._put_back(states)
            raise MemoryRefused(f"nothing was frozen: {str(refused) or 'memory was refused'}") from refused
        except StorageError as failed:
            # The states left the table and are in no entry log: no flush may trim the journal from now on (P7.3).
            self.failure = self.failure or f"the write cache cannot be flushed: {failed}"
            raise
        ensure(taken, "one frozen half at a time")
        self.state = FlushState.RUNNING
        self.is_unfrozen = self._is_wanted = False
        self._frozen_token = self.journals.next_token() - 1
        self._frozen_bytes, self._began_s = self.unflushed_bytes, time.monotonic()
        self.unflushed_bytes = 0

    def _put_back(self, states: memoryview | None) -> None:
        """The next freeze takes these states once more: they are in no entry log."""
        try:
            if states is not None:
                self.table.touch(states)
        except (StorageError, MemoryError) as failed:
            self.failure = f"the write cache cannot be flushed: {str(failed) or 'memory was refused'}"
            raise StorageError(self.failure) from failed

    def _begin_with_memory(self) -> bool:
        """Freeze and flush. False: memory was refused for the freeze, which is made again later (I53)."""
        try:
            self._freeze()
        except MemoryRefused as refused:
            self.failed_count += 1
            self.is_unfrozen = self.is_full = True
            self._retry_bytes = self.unflushed_bytes + self.flush_bytes // FLUSH_RETRY_SHARE + 1
            self._why_failed = str(refused)
            self._failures.met(f"bookie {self.bookie_id}: a flush waits: {refused}", "no memory")
            return False
        self._flush()
        return True

    def _flush(self) -> None:
        self.measure_room()
        try:
            self.store.flush(threaded=self.threaded)
        except DeviceFull as refused:
            self._fail(refused)
            return
        except StorageError as refused:
            self._fail(refused)  # Nothing runs, so nobody may wait for its end.
            raise
        self.state = FlushState.RUNNING

    def _finish_running(self) -> bool:
        """Whether the entry log counts now; then the journals are trimmed below its mark."""
        try:
            if not self.store.finish_flush():
                return False
        except StorageError as failed:
            # Nothing is lost: write cache and journal hold it all. Other directories take it at once; where there
            # is none, another file is tried later.
            self.failed_count += 1
            kind = "no room" if isinstance(failed, DeviceFull) else "failed"
            self._failures.met(f"bookie {self.bookie_id}: a flush failed: {failed}", kind)
            if not self._flush_elsewhere():
                self._fail(failed)
            return False
        self.state = FlushState.LOGGED
        self._failures.ended(f"bookie {self.bookie_id}: a flush is done")
        took_s = time.monotonic() - self._began_s
        logger.info(
            "bookie %s flushed %d bytes of records (%.3f s)", self.bookie_id, self._frozen_bytes, took_s
        )
        self.is_full = False
        self.journals.trim(stored_marks(self.store, self.journals))
        self.store.remove_left()
        return True

    def _flush_elsewhere(self) -> bool:
        """Begin a flush that failed once more, if there are directories in which it has not."""
        if not self.store.directories.has_others():
            return False
        try:
            self._flush()
        except StorageError as failed:
            self._failures.met(f"bookie {self.bookie_id}: a flush cannot begin: {failed}")
            return False
        return True

    def _fail(self, failed: StorageError) -> None:
        """Note a failed flush: the frozen half stays until more is journaled, or a device has room."""
        self.state = FlushState.FAILED
        self._retry_bytes = self.unflushed_bytes + self.flush_bytes // FLUSH_RETRY_SHARE + 1
        self._why_failed = str(failed)
        self.is_full = isinstance(failed, DeviceFull)


def stored_marks(store: NativeEntryStore, journals: Journals) -> list[int]:
    """For each journal: everything up to this token is in entry logs, in every directory (P7.5, I45)."""
    marks = store.journal_marks()
    return marks or [store.log_mark()] + [0] * (len(journals.parts) - 1)
