"""A disk in memory for tests and simulation: it can refuse, fail, tear, forget and lie (native/io/io_memory.c).

Decides nothing; it is the second backing of the table of calls through which all C code does its I/O, so the code
under test is the code that ships. Everything here is deterministic: faults strike at counted calls, crashes draw
from a seed.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from embedbk.errors import StorageError, UsageError
from embedbk.storage.native import ffi, lib, system_reason

__all__ = ["MemoryDisk"]

_CALLS = {
    "open": lib.EBK_CALL_OPEN,
    "read": lib.EBK_CALL_READ,
    "write": lib.EBK_CALL_WRITE,
    "sync": lib.EBK_CALL_SYNC,
    "allocate": lib.EBK_CALL_ALLOCATE,
    "rename": lib.EBK_CALL_RENAME,
    "unlink": lib.EBK_CALL_UNLINK,
    "sync_directory": lib.EBK_CALL_SYNC_DIRECTORY,
    "list": lib.EBK_CALL_LIST,
    "shrink": lib.EBK_CALL_SHRINK,
}

_LIES = {
    "lost": lib.EBK_LIE_LOST,
    "misdirected": lib.EBK_LIE_MISDIRECTED,
    "flipped": lib.EBK_LIE_FLIPPED,
    "stale": lib.EBK_LIE_STALE,
}
_LIED_CALLS = {"read": ("misdirected", "flipped", "stale"), "write": ("lost", "misdirected", "flipped")}


class MemoryDisk:
    """Files in memory, each with what a reader sees and what a power cut would leave.

    Args:
        files: path to content, as `files()` gives it: durable from the start, their directories too.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        disk = lib.ebk_memory_disk_new()
        if disk == ffi.NULL:
            raise StorageError("a disk in memory was refused its memory")
        self._disk = ffi.gc(disk, lib.ebk_memory_disk_free)
        for path, content in (files or {}).items():
            self.put(path, content)

    @property
    def io(self) -> Any:
        """The table of calls (`struct ebk_io *`) to open a store on; it keeps this disk alive no longer than you do."""
        return lib.ebk_memory_disk_io(self._disk)

    # --- Faults ------------------------------------------------------------------------------------------

    def fail(self, call: str, *, nth: int = 1, error: int = errno.EIO, stays: bool = False) -> None:
        """Answer the nth `call` from now with an errno, and the later ones too if it stays. nth 0: no fault."""
        if call not in _CALLS:
            raise UsageError(f"call {call!r} is not one of {sorted(_CALLS)}")
        lib.ebk_memory_disk_fail(self._disk, _CALLS[call], nth, error, stays)

    def break_device(self, path: str, error: int = errno.EIO) -> None:
        """Everything below the path is a device of its own that answers every call with an errno from now on; with
        ENOSPC only what makes room in files. 0: it is well again."""
        lib.ebk_memory_disk_break(self._disk, path.encode(), error)

    def tear(self, *, nth: int = 1, sectors: int = 0) -> None:
        """Lose power inside the nth write from now: bit i of `sectors` says whether its sector i (512 bytes) is
        stored; bit 63 stands for all from there on. Every later call fails until `crash`."""
        lib.ebk_memory_disk_tear(self._disk, nth, sectors)

    def halt(self, nth: int) -> None:
        """Lose power, or end the process, before the nth call of any kind from now: it and every later one fail until
        `crash` or `kill`. 0: never."""
        lib.ebk_memory_disk_halt(self._disk, nth)

    def lie(
        self, call: str, kind: str, *, part: str = "", nth: int = 1, where: int = 0, spares_last: bool = False
    ) -> None:
        """Answer OK to the nth such `call` from now, and do something else. nth 0: no lie.

        Args:
            call, kind: a "write" is "lost", "misdirected" or "flipped"; a "read" is "misdirected", "flipped" or "stale"
                (what was there before the last write, since `keep_history`).
            part: only on files whose path contains it.
            where: bytes that a misdirected call is off, or the bit that is flipped.
            spares_last: a lie about the last write of its file before a crash is taken back by the crash: from that
                file alone it could not be told from a loss of power.
        """
        if kind not in _LIED_CALLS.get(call, ()):
            raise UsageError(f"lie {kind!r} about {call!r}: allowed are {_LIED_CALLS}")
        lib.ebk_memory_disk_lie(self._disk, _CALLS[call], _LIES[kind], part.encode(), nth, where, spares_last)

    def lies(self) -> int:
        """How many lies there were so far."""
        return int(lib.ebk_memory_disk_lies(self._disk))

    def keep_history(self) -> None:
        """Remember from now on what the last write of every byte replaced."""
        lib.ebk_memory_disk_keep_history(self._disk)

    def refuse_direct(self, *, at_open: bool = True, at_write: bool = False) -> None:
        """Answer direct I/O with EINVAL, as some file systems do, at open or only at the first write."""
        lib.ebk_memory_disk_refuse_direct(self._disk, at_open, at_write)

    def limit(self, bytes_max: int) -> None:
        """Be full at this many bytes in all files together; 0 lifts the limit."""
        lib.ebk_memory_disk_limit(self._disk, bytes_max)

    def calls(self, call: str | None = None) -> int:
        """How many calls of this kind were made so far; of any kind, if none is given."""
        return int(
            lib.ebk_memory_disk_calls(self._disk, lib.EBK_CALL_COUNT if call is None else _CALLS[call])
        )

    def crash(self, seed: int = 0) -> None:
        """Power off and on. What was not synced is gone; with a seed, each unsynced sector survives or not by it.

        Close (or forget) what was open on this disk first: its descriptors mean nothing afterwards.
        """
        lib.ebk_memory_disk_crash(self._disk, seed)

    def kill(self) -> None:
        """End the process that used it; the system goes on. What was not synced is there for the next one to read, and
        a later `crash` takes it away all the same.

        Close (or forget) what was open on this disk first: its descriptors mean nothing afterwards.
        """
        lib.ebk_memory_disk_kill(self._disk)

    # --- Surgery -----------------------------------------------------------------------------------------

    def files(self, *, stable: bool = True) -> dict[str, bytes]:
        """Path to content: what a crash would leave, or with stable=False what a reader sees now."""
        size = lib.ebk_memory_disk_names(self._disk, stable, ffi.NULL, 0)
        names = ffi.new("char[]", max(1, size))
        lib.ebk_memory_disk_names(self._disk, stable, names, size)
        paths = [raw.decode() for raw in ffi.buffer(names, size)[:].split(b"\0")[:-1]]
        return {path: self.read(path, stable=stable) for path in sorted(paths)}

    def read(self, path: str, *, stable: bool = True) -> bytes:
        """The whole content of one file."""
        size = self._checked(lib.ebk_memory_disk_read(self._disk, stable, path.encode(), ffi.NULL, 0), path)
        content = ffi.new("char[]", max(1, size))
        lib.ebk_memory_disk_read(self._disk, stable, path.encode(), content, size)
        return bytes(ffi.buffer(content, size)[:])

    def put(self, path: str, content: bytes) -> None:
        """Make the file hold exactly these bytes, durably."""
        parent = path.rpartition("/")[0]
        io = lib.ebk_memory_disk_io(self._disk)
        if parent:
            self._checked(lib.ebk_io_make_directory(io, parent.encode()), parent)
        self._checked(lib.ebk_memory_disk_put(self._disk, path.encode(), content, len(content)), path)

    def revert(self, path: str, offset: int, size: int) -> None:
        """Make these bytes again what their last write replaced, durably: stale sectors. Needs `keep_history`."""
        self._checked(lib.ebk_memory_disk_revert(self._disk, path.encode(), offset, size), path)

    def drop(self, path: str) -> None:
        """Remove the file, durably."""
        self._checked(lib.ebk_memory_disk_drop(self._disk, path.encode()), path)

    def _checked(self, answer: int, path: str) -> int:
        if answer < 0:
            raise StorageError(f"{path} on the disk in memory{system_reason(-answer)}")
        return answer
