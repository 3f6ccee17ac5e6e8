"""The add path in C (native/add_path.h) on one bookie's table, store and journals, behind the port `AddPath`.

Decides nothing: what is common is decided in C, by the rules of core/bookie.py, and said in native/NATIVE.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedbk.errors import StorageError
from embedbk.ports import Buffer
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.journals import Journals
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.native import ffi, lib

__all__ = ["NativeAddPath"]


class NativeAddPath:
    """Keeps table, store and journals alive; not used after one of them was closed.

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
        self._parts = (table, store, journals)
        settings = ffi.new("struct ebk_add_path_settings *")
        settings.table, settings.store, settings.journals = table.handle, store.handle, journals.handle()
        settings.incarnation = incarnation
        settings.cache_bytes_max, settings.kick_bytes = cache_bytes_max, kick_bytes
        made = lib.ebk_add_path_new(settings)
        if made == ffi.NULL:
            raise StorageError("no memory for the add path", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_add_path_free)
        self._link = ffi.new("uint64_t *")
        self._count = ffi.new("uint32_t *")
        self._message = ffi.new("const uint8_t **")
        self._size = ffi.new("size_t *")

    def take(self, link: int, head: Buffer, tail: Buffer = b"") -> bool:
        """As `AddPath.take`."""
        taken = lib.ebk_add_path_take(
            self.handle, link, ffi.from_buffer(head), len(head), ffi.from_buffer(tail), len(tail)
        )
        return bool(taken)

    def taken(self) -> int:
        return int(lib.ebk_add_path_frames(self.handle))

    def taken_bytes(self) -> int:
        """Bytes that they are in the journal, with what a record costs beside."""
        return int(lib.ebk_add_path_bytes(self.handle))

    def filenos(self) -> list[int]:
        """As `AddPath.filenos`."""
        return self._parts[2].filenos()

    def kick(self) -> None:
        lib.ebk_add_path_kick(self.handle)

    def answers(self, durable: int) -> Iterator[tuple[int, int, bytes]]:
        """As `AddPath.answers`."""
        return self._due() if lib.ebk_add_path_reap(self.handle, durable) else iter(())

    def stop(self, status: int) -> Iterator[tuple[int, int, bytes]]:
        """As `AddPath.stop`."""
        lib.ebk_add_path_stop(self.handle, status)
        return self._due()

    def _due(self) -> Iterator[tuple[int, int, bytes]]:
        while lib.ebk_add_path_next(self.handle, self._link, self._count, self._message, self._size):
            yield self._link[0], self._count[0], bytes(ffi.buffer(self._message[0], self._size[0]))
