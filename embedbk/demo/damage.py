"""Damage of one copy of one entry, as a disk makes it: a byte of its payload changes, and nobody is told.

Decides where the entry stands in the files of its bookie, which must not run: it would have parts of them in memory.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

from embedbk.codec.entry import ENTRY_HEADER, Entry, read_entry
from embedbk.errors import EmbedbkError, PeerError

__all__ = ["damage_copy"]

_IDS = struct.Struct("<Qq")  # Ledger and entry id, as they stand in an entry's header (codec/WIRE.md 1).
_IDS_OFFSET = 8


def damage_copy(home: Path, ledger_id: int, entry_id: int) -> None:
    """Change the first payload byte of an entry wherever an entry log below home has it.

    Raises:
        EmbedbkError: none has it.
    """
    found = False
    for path in sorted(home.rglob("*.elog")):
        content = path.read_bytes()
        for at, entry in _places(content, ledger_id, entry_id):
            payload_at = at + ENTRY_HEADER.size + len(entry.attributes)
            with path.open("r+b") as file:
                file.seek(payload_at)
                file.write(bytes([content[payload_at] ^ 1]))
            found = True
    if not found:
        raise EmbedbkError(f"no entry log below {home} has entry {entry_id} of ledger {ledger_id}")


def _places(content: bytes, ledger_id: int, entry_id: int) -> Iterator[tuple[int, Entry]]:
    """Where the entry stands whole; its ids may stand elsewhere by chance."""
    ids = _IDS.pack(ledger_id, entry_id)
    at = content.find(ids)
    while at >= 0:
        with contextlib.suppress(PeerError):
            yield at - _IDS_OFFSET, read_entry(memoryview(content), at - _IDS_OFFSET)
        at = content.find(ids, at + 1)
