"""The way of records into the write cache and the journals of one open bookie (P7.8, RP34).

Decides whether a record has room, when a caller waits for a flush or for a commit, which is back pressure, and when the
commit threads are woken before the end of a turn. Leaves to others: when the write cache is flushed (flushing.py), what
a record means (codec/journal_records.py), and the adds that C takes past this way (add_path.py).

    put_frame ─▶ write cache ──(borrowed)──▶ journal        append ─▶ journal
"""

from __future__ import annotations

from embedbk.codec.frame import Frame
from embedbk.codec.journal_records import RecordKind
from embedbk.config import FRAME_BYTES_MAX
from embedbk.ports.journal import Buffer
from embedbk.storage.add_path import NativeAddPath
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.flushing import FlushCycle, FlushState
from embedbk.storage.journal import SLOT_COUNT
from embedbk.storage.journals import Journals
from embedbk.storage.native import lib
from embedbk.storage.starting import RECORD_OVERHEAD_BYTES

__all__ = ["KICK_BYTES", "RESERVE_BYTES", "Queueing"]

KICK_BYTES = 256 << 10  # A turn that queues more does not wait for its end to wake the commit thread.
RESERVE_BYTES = FRAME_BYTES_MAX  # Beyond cache_bytes_max, for what recovery brings while a flush runs (P7.8).
RECORDS_PER_REQUEST_MAX = (
    8  # Birth, end of a drop, frame, and what a fence of its ledger adds: with room to spare.
)


class Queueing:
    """All calls from one thread; not used after one of the parts was closed.

    Args:
        cache_bytes_max: of each half of the write cache, beside a frame of recovery (P7.8); a put beyond waits for
            the flush.
    """

    def __init__(
        self,
        store: NativeEntryStore,
        journals: Journals,
        add_path: NativeAddPath,
        flushes: FlushCycle,
        *,
        cache_bytes_max: int,
    ) -> None:
        self.cache_bytes_max = cache_bytes_max
        self._store = store
        self._journals = journals
        self._add_path = add_path
        self._flushes = flushes
        self._unkicked_bytes = 0  # Queued since the commit thread was last woken.

    def append(self, kind: int, ledger_id: int, body: Buffer) -> int:
        """As `DurableBookie.append`."""
        self._make_journal_room()
        token = self._journals.append(kind, ledger_id, body)
        self._unkicked_bytes += len(body) + RECORD_OVERHEAD_BYTES
        self._flushes.unflushed_bytes += len(body) + RECORD_OVERHEAD_BYTES
        return token

    def put_frame(self, frame: Frame) -> int:
        """As `DurableBookie.put_frame`. Waits for the running flush when the write cache is full, for a commit when the
        journal's queue is: back pressure on the sender.

        Raises:
            StorageError: the journal or the flush has failed, for good.
        """
        self._make_journal_room()
        reserve = RESERVE_BYTES if self._flushes.is_frozen or self._flushes.is_unfrozen else 0
        if self._store.active_bytes() + len(frame.body) > self.cache_bytes_max + reserve:
            self._flushes.make_room()
        view = self._store.put(frame)
        token = self._journals.append(RecordKind.FRAME, frame.ledger_id, view, borrowed=True)
        self._flushes.unflushed_bytes += len(view) + RECORD_OVERHEAD_BYTES
        self._unkicked_bytes += len(view) + RECORD_OVERHEAD_BYTES
        if self._unkicked_bytes >= KICK_BYTES:
            self.kick()
        return token

    def kick(self) -> None:
        """Wake the commit threads, where anything was queued since."""
        self._add_path.kick()
        if self._unkicked_bytes:
            self._unkicked_bytes = 0
            self._journals.kick()

    def has_room(self, *, is_urgent: bool) -> bool:
        """As `DurableBookie.has_room`."""
        flushes, journals = self._flushes, self._journals
        if flushes.failure is not None or (flushes.state is FlushState.FAILED and not flushes.is_full):
            return True  # Nothing that runs would make room: the put fails, and says why.
        if flushes.is_frozen or flushes.is_unfrozen:
            reserve = RESERVE_BYTES if is_urgent else 0
            if self._store.active_bytes() + FRAME_BYTES_MAX > self.cache_bytes_max + reserve:
                return False
        kept = RECORDS_PER_REQUEST_MAX if is_urgent else lib.EBK_ADD_SLOTS_KEPT
        return journals.next_token() - 1 - journals.known_durable < SLOT_COUNT - kept

    def _make_journal_room(self) -> None:
        """Wait for a commit when the journal's queue is full."""
        journals = self._journals
        last_token = journals.next_token() - 1
        if last_token - journals.known_durable < SLOT_COUNT:
            return
        journals.wait(last_token - SLOT_COUNT // 2)
        journals.durable()
