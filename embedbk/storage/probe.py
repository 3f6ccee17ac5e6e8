"""The raw device beside a journal, both driven from C at depth 1: for benchmarks and `embedbk.doctor()`.

Decides nothing; times are taken by whoever calls.
"""

from __future__ import annotations

import os
from typing import Any

from embedbk.errors import StorageError
from embedbk.storage.journal import Journal
from embedbk.storage.native import check, ffi, lib, system_reason

__all__ = ["DeviceProbe", "journal_replay", "journal_stream", "journal_writes"]

FILE_BYTES = 16 << 20


class DeviceProbe:
    """Synced writes into a zero-filled file, each handed to a thread and back as a journal does."""

    def __init__(self, path: str | os.PathLike[str], *, write_bytes: int = 4096, direct: bool = True) -> None:
        out = ffi.new("struct ebk_probe **")
        code = lib.ebk_probe_open(lib.ebk_io_disk(), os.fsencode(path), FILE_BYTES, write_bytes, direct, out)
        if code < 0:
            raise StorageError(f"{os.fspath(path)}: the probe's file cannot be made{system_reason(-code)}")
        self._probe: Any = ffi.gc(out[0], lib.ebk_probe_close)

    def writes(self, count: int) -> None:
        """Do `count` writes, one outstanding."""
        if lib.ebk_probe_writes(self._probe, count) < 0:
            raise StorageError("the probe's synced write failed", hint="look at the device")

    def stream(self, count: int) -> None:
        """Do `count` writes, the next one handed over while one is under way."""
        if lib.ebk_probe_stream(self._probe, count) < 0:
            raise StorageError("the probe's synced write failed", hint="look at the device")

    def close(self) -> None:
        ffi.release(self._probe)


def journal_writes(journal: Journal, body: bytes, count: int) -> None:
    """Append and await `count` records of this body, one outstanding, from C."""
    code = lib.ebk_probe_journal(journal.handle(), body, len(body), count)
    if code < 0:
        raise StorageError(f"journal {journal.directory} stopped: {journal.failed()}")


def journal_stream(journal: Journal, body: bytes, count: int) -> None:
    """Append `count` records of this body as fast as the journal takes them, from C; trims what is durable."""
    if lib.ebk_probe_journal_stream(journal.handle(), body, len(body), count) < 0:
        raise StorageError(f"journal {journal.directory} stopped: {journal.failed()}")


def journal_replay(journal: Journal, after: int) -> int:
    """Replay what is above `after`, in C; bytes of the bodies that were there."""
    return check(lib.ebk_probe_replay(journal.handle(), after), f"replay of {journal.directory}")
