"""The ledger table in C (native/store/table.h), with the words of its twin `core/ledger_table.py`.

A row is the C struct itself: its fields are read and assigned from here and from the C add path, on the loop's thread
only. Rows live as long as the table.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, cast

from embedbk.codec.frame import LEDGER_KEY_BYTES
from embedbk.core.ledger_table import LEDGER_STATE, LEDGERS_MAX, AnyLedgerRow, table_full
from embedbk.errors import StorageError, UsageError
from embedbk.ports.entry_store import MemoryRefused
from embedbk.storage.native import check, code_text, ffi, lib

__all__ = ["NativeLedgerTable"]


class NativeLedgerTable:
    """Rows by ledger id (port `AnyLedgerTable`); `handle` is for the C add path."""

    def __init__(self, ledgers_max: int = LEDGERS_MAX) -> None:
        self.ledgers_max = ledgers_max
        handle = lib.ebk_table_new(ledgers_max)
        if handle == ffi.NULL:
            raise StorageError(
                f"no memory for a ledger table of at most {ledgers_max} ledgers", definite=True
            )
        self.handle: Any = ffi.gc(handle, lib.ebk_table_free)
        self._row: Any = ffi.new("struct ebk_ledger_row **")
        self._token: Any = ffi.new("uint64_t *")

    def get(self, ledger_id: int) -> AnyLedgerRow | None:
        """As `LedgerTable.get`."""
        code = lib.ebk_table_get(self.handle, ledger_id, self._row)
        if code < 0:
            self._refuse(code, ledger_id)
        row = self._row[0]
        return cast(AnyLedgerRow, row) if row else None

    def create(self, ledger_id: int, *, from_reserve: bool = False) -> AnyLedgerRow:
        """A new row, with no key yet and nothing stored.

        Raises:
            StorageError: the table holds `ledgers_max` ledgers, or memory was refused.
        """
        code = lib.ebk_table_create(self.handle, ledger_id, from_reserve, self._row)
        if code < 0:
            self._refuse(code, ledger_id)
        return cast(AnyLedgerRow, self._row[0])

    def key(self, row: Any) -> bytes | None:
        """The ledger key (P3.5); None until the first request of a client with a key."""
        return bytes(ffi.buffer(row.key)) if row.has_key else None

    def set_key(self, row: Any, key: bytes) -> None:
        if len(key) != LEDGER_KEY_BYTES:
            raise UsageError(f"ledger key of {len(key)} bytes: {LEDGER_KEY_BYTES} are allowed")
        row.key = bytes(key)
        row.has_key = 1

    def mark_dirty(self, row: Any) -> None:
        """The row changed since its state was last taken for an entry log."""
        lib.ebk_table_mark_dirty(self.handle, row)

    def number(self, first: int, mask: bytes, seed: int) -> tuple[int, int]:
        """As `LedgerTable.number`."""
        number = lib.ebk_table_number(self.handle, first, mask, len(mask), seed, self._token)
        return int(number), int(self._token[0])

    def ids(self) -> Sequence[int]:
        """As `LedgerTable.ids`: 8 bytes each."""
        ids = array("Q", bytes(8 * len(self)))
        if ids:
            lib.ebk_table_ids(self.handle, ffi.from_buffer("uint64_t[]", ids))
        return ids

    def limbo(self) -> list[int]:
        """As `LedgerTable.limbo`."""
        count = lib.ebk_table_limbo(self.handle, ffi.NULL, 0)
        ids = ffi.new("uint64_t[]", count)
        lib.ebk_table_limbo(self.handle, ids, count)
        return list(ffi.unpack(ids, count))

    def retire(self, durable: int) -> None:
        """As `LedgerTable.retire`."""
        _check_memory(lib.ebk_table_retire(self.handle, durable), "dropped ledgers")

    def drop_range(self, first: int, last: int) -> None:
        """As `LedgerTable.drop_range`."""
        check(lib.ebk_table_drop_range(self.handle, first, last), "dropped ledgers")

    def ranges(self) -> list[tuple[int, int]]:
        """As `LedgerTable.ranges`."""
        count = 2 * lib.ebk_table_range_count(self.handle)
        bounds = ffi.new("uint64_t[]", count)
        lib.ebk_table_ranges(self.handle, bounds)
        found = ffi.unpack(bounds, count)
        return list(zip(found[::2], found[1::2], strict=True))

    def take_dirty(self) -> memoryview:
        """As `LedgerTable.take_dirty`. Raises MemoryRefused, and MemoryError: nothing was taken."""
        states = bytearray(lib.ebk_table_dirty_count(self.handle) * LEDGER_STATE.size)
        count = lib.ebk_table_take_dirty(self.handle, ffi.from_buffer(states))
        _check_memory(min(count, 0), "ledger table")
        return memoryview(states)[: count * LEDGER_STATE.size]  # No copy: they have left the table.

    def touch(self, states: bytes | memoryview) -> None:
        """As `LedgerTable.touch`."""
        code = lib.ebk_table_touch(self.handle, ffi.from_buffer(states), len(states) // LEDGER_STATE.size)
        check(code, "stored ledger states")

    def load(self, states: bytes | memoryview) -> None:
        """As `LedgerTable.load`."""
        if len(states) % LEDGER_STATE.size:
            raise StorageError(f"ledger states of {len(states)} bytes: not whole states")
        code = lib.ebk_table_load(self.handle, ffi.from_buffer(states), len(states) // LEDGER_STATE.size)
        if code == lib.EBK_FULL:
            raise table_full(self.ledgers_max)
        check(code, "stored ledger states")

    def resident_bytes(self) -> int:
        """Bytes that the table holds from the system."""
        return int(lib.ebk_table_resident(self.handle))

    def __len__(self) -> int:
        return int(lib.ebk_table_count(self.handle))

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids())

    def _refuse(self, code: int, ledger_id: int) -> None:
        if code == lib.EBK_FULL:
            raise table_full(self.ledgers_max)
        check(code, f"ledger table, ledger {ledger_id}")


def _check_memory(code: int, what: str) -> None:
    if code == lib.EBK_NO_MEMORY:
        raise MemoryRefused(f"{what}: {code_text(code)}")
    check(code, what)
