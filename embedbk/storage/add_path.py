"""The add path in C (native/road/add_path.h) on one bookie's table, store and journals, behind the port `AddPath`.

Decides nothing: what is common is decided in C, by the rules of core/add_storing.py, and said in native/SHORTCUTS.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from embedbk.config import FRAME_BYTES_MAX, LAC_WAIT_MS_MAX, READ_ROOM_BYTES
from embedbk.errors import StorageError
from embedbk.ports.journal import Buffer
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.journals import Journals
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.native import ffi, lib
from embedbk.storage.parked import NativeParked

__all__ = ["NativeAddPath"]


class NativeAddPath:
    """Keeps table, store and journals alive; not used after one of them was closed. Transports that offer from C find
    its struct as `handle` (transports/structs.py).

    Args:
        cache_bytes_max: bytes put since the last freeze, beyond which nothing is taken.
        kick_bytes: so much that was queued wakes the commit thread before the turn ends.
    """

    def __init__(
        self,
        table: NativeLedgerTable,
        store: NativeEntryStore,
        journals: Journals,
        incarnation: bytes,
        *,
        cache_bytes_max: int,
        kick_bytes: int,
    ) -> None:
        self.parked = NativeParked()
        self._tail = self._open_tail(table, store, incarnation)
        self._parts = (table, store, journals)
        settings = ffi.new("struct ebk_add_path_settings *")
        settings.table, settings.store, settings.journals = table.handle, store.handle, journals.handle()
        settings.incarnation, settings.tail = incarnation, self._tail
        settings.cache_bytes_max, settings.kick_bytes = cache_bytes_max, kick_bytes
        made = lib.ebk_add_path_new(settings)
        if made == ffi.NULL:
            raise StorageError("no memory for the add path", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_add_path_free)
        self._link = ffi.new("uint64_t *")
        self._count = ffi.new("uint32_t *")
        self._message = ffi.new("const uint8_t **")
        self._size = ffi.new("size_t *")

    def _open_tail(self, table: NativeLedgerTable, store: NativeEntryStore, incarnation: bytes) -> Any:
        """The C path that readers' polls and writers' hints are offered to (native/road/tail_path.h)."""
        settings = ffi.new("struct ebk_tail_settings *")
        settings.table, settings.store, settings.parked = table.handle, store.handle, self.parked.handle
        settings.incarnation, settings.wait_ms_max = incarnation, LAC_WAIT_MS_MAX
        settings.bytes_max, settings.room_bytes = FRAME_BYTES_MAX, READ_ROOM_BYTES
        made = lib.ebk_tail_new(settings)
        if made == ffi.NULL:
            raise StorageError("no memory for the readers' path", definite=True)
        return ffi.gc(made, lib.ebk_tail_free)

    def begin(self, now_ns: int, *, takes_polls: bool) -> None:
        """As `AddPath.begin`."""
        lib.ebk_tail_begin(self._tail, now_ns, takes_polls)

    def reader_answers(self, room_of: Callable[[int], int]) -> Iterator[tuple[int, bytes]]:
        """As `AddPath.reader_answers`."""
        while lib.ebk_tail_next(self._tail, self._link):
            link = self._link[0]
            lib.ebk_tail_make(self._tail, room_of(link), self._message, self._size)
            yield link, bytes(ffi.buffer(self._message[0], self._size[0]))

    def settled(self) -> Iterator[int]:
        """As `AddPath.settled`."""
        while lib.ebk_tail_settled(self._tail, self._link):
            yield self._link[0]

    def take(self, link: int, head: Buffer, tail: Buffer = b"") -> bool:
        """As `AddPath.take`."""
        taken = lib.ebk_add_path_take(
            self.handle, link, ffi.from_buffer(head), len(head), ffi.from_buffer(tail), len(tail)
        )
        return bool(taken)

    def taken(self) -> int:
        return int(lib.ebk_add_path_records(self.handle))

    def taken_bytes(self) -> int:
        """Bytes that the frames taken here fill in the journal, with what a record costs beside."""
        return int(lib.ebk_add_path_bytes(self.handle))

    def filenos(self) -> list[int]:
        """As `AddPath.filenos`."""
        return self._parts[2].filenos()

    def kick(self) -> None:
        lib.ebk_add_path_kick(self.handle)

    def answers(self, durable: int, now_ns: int) -> Iterator[tuple[int, int, bytes]]:
        """As `AddPath.answers`."""
        lib.ebk_tail_set_now(self._tail, now_ns)
        return self.due() if lib.ebk_add_path_reap(self.handle, durable) else iter(())

    def stop(self, status: int) -> Iterator[tuple[int, int, bytes]]:
        """As `AddPath.stop`."""
        lib.ebk_add_path_stop(self.handle, status)
        return self.due()

    def due(self) -> Iterator[tuple[int, int, bytes]]:
        """As `AddPath.due`."""
        while lib.ebk_add_path_next(self.handle, self._link, self._count, self._message, self._size):
            yield self._link[0], self._count[0], bytes(ffi.buffer(self._message[0], self._size[0]))
