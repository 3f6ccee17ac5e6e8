"""Entry logs of which no copy of the index is whole: their entries are looked for while the bookie serves (ST38, ST13).

Decides nothing: it hands slices to C (native/store/store_rebuild.c) and says what is left. When a slice is due is
host/rebuild_pace.py's to say; what is dark until then, and why, is STORAGE.md's, section 5.
"""

from __future__ import annotations

from typing import Any, cast

from embedbk.errors import StorageError
from embedbk.ports.upkeep import RebuildLeft, RebuildPiece
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.native import check, code_text, ffi, lib

__all__ = ["LostIndexes"]


class LostIndexes:
    """Those of one entry store. store: the C handle, whose owner closes it; valid until then. where: for errors."""

    def __init__(self, store: Any, where: str, *, threaded: bool = True) -> None:
        self.threaded = threaded
        self._store = store
        self._where = where
        self._left: Any = ffi.new("struct ebk_rebuild_left *")
        self._piece: Any = ffi.new("struct ebk_rebuild_piece *")

    def left(self) -> RebuildLeft:
        """As `DurableBookie.rebuild_left`."""
        lib.ebk_store_rebuild_left(self._store, self._left)
        return RebuildLeft(int(self._left.logs), int(self._left.bytes))

    def begin(self, bytes_max: int) -> bool:
        """As `DurableBookie.begin_rebuild`."""
        code = lib.ebk_store_rebuild_slice(self._store, bytes_max, self.threaded)
        if code == lib.EBK_FULL:
            return True  # One is under way.
        if code == lib.EBK_END:
            return False
        check(code, f"scan in {self._where}")
        return True

    def finish(self, table: NativeLedgerTable | None) -> RebuildPiece | None:
        """As `DurableBookie.finish_rebuild`; ledgers that the table knows as dropped stay out."""
        piece = self._piece
        handle = ffi.NULL if table is None else table.handle
        code = lib.ebk_store_rebuild_poll(self._store, handle, piece)
        if code in (lib.EBK_FULL, lib.EBK_END):
            return None
        if code < 0:
            said = cast(bytes, ffi.string(lib.ebk_store_failure(self._store))).decode(errors="replace")
            raise StorageError(f"{self._where}: scan: {said}: {code_text(code)}")
        return RebuildPiece(int(piece.bytes), bool(code), bool(piece.is_log_over), bool(piece.is_whole))

    def may_find(self, ledger_id: int, first: int, last: int) -> bool:
        """Whether one of these entries may stand in what is still to be looked through."""
        return bool(lib.ebk_store_may_find(self._store, ledger_id, first, last))

    def ledgers(self) -> list[tuple[int, int]]:
        """Ranges (first, last) of ledgers of which something may stand there; ascending, they do not overlap."""
        bounds = ffi.new("uint64_t[2]")
        found: list[tuple[int, int]] = []
        while lib.ebk_store_may_find_ledger(self._store, len(found), bounds, bounds + 1):
            found.append((int(bounds[0]), int(bounds[1])))
        merged: list[tuple[int, int]] = []
        for first, last in sorted(found):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return merged

    def fileno(self) -> int:
        """Readable when a slice of a thread has ended."""
        return int(lib.ebk_store_rebuild_event_file(self._store))
