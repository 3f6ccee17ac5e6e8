"""The directory of a metadata member's snapshots: names, bytes, renames, on a disk or on one in memory.

Decides only how Python calls the table of calls (native/io/io.h), and that a refusal is an OSError with the path in it.
snapshot_writer.py and snapshots.py decide what is written, renamed or removed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from embedbk.ports.journal import Buffer
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.native import ffi, lib
from embedbk.storage.raw_files import ensure_answer

__all__ = ["SnapshotFile", "SnapshotFiles"]

_LIST_BYTES = 1 << 16


class SnapshotFile:
    """An open file of the directory. Every call raises OSError when it is refused."""

    def __init__(self, table: object, path: str, descriptor: int) -> None:
        self.path = path
        self._table = table
        self._descriptor = descriptor

    def size(self) -> int:
        return _checked(lib.ebk_io_size(self._table, self._descriptor), self.path)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes from offset on: fewer than size only at the end of the file."""
        room = ffi.new("char[]", max(1, size))
        got = _checked(lib.ebk_io_read(self._table, self._descriptor, room, size, offset), self.path)
        return bytes(ffi.buffer(room, got))

    def write(self, data: Buffer, offset: int) -> None:
        with ffi.from_buffer(data) as borrowed:
            wrote = lib.ebk_io_write(self._table, self._descriptor, borrowed, len(borrowed), offset)
        _checked(wrote, self.path)

    def sync(self) -> None:
        """Sync the file. After a refusal its content is unknown: never sync it again (P7.6)."""
        _checked(lib.ebk_io_sync(self._table, self._descriptor), self.path)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            lib.ebk_io_close(self._table, descriptor)


class SnapshotFiles:
    """A `RawDirectory` that can be written. It is made with the first snapshot; before, it has no names.

    io: a `MemoryDisk` to live on instead of the real disk. threaded: files are written by a thread of their own.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, io: MemoryDisk | None = None, threaded: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self.threaded = threaded
        self._disk = io  # Keeps the table of calls alive.
        self._table = lib.ebk_io_disk() if io is None else io.io

    def within(self, name: str) -> SnapshotFiles:
        return SnapshotFiles(self.place(name), io=self._disk, threaded=self.threaded)

    def names(self) -> list[str]:
        """The names, ascending; none where there is no directory. OSError when it cannot be read."""
        size = _LIST_BYTES
        while True:
            room = ffi.new("char[]", size)
            needed = lib.ebk_io_list(self._table, os.fsencode(self.path), room, size)
            if needed == -errno.ENOENT:
                return []
            if _checked(needed, self.path) <= size:
                return sorted(os.fsdecode(name) for name in ffi.buffer(room, needed)[:].split(b"\0")[:-1])
            size = 2 * needed

    @contextmanager
    def open(self, name: str) -> Iterator[SnapshotFile]:
        """Open it for reading. OSError: it cannot be read; UsageError: this process cannot, which proves nothing about
        it."""
        try:
            file = self._open(name, lib.EBK_OPEN_READ)
        except OSError as refused:
            ensure_answer(self.place(name), refused)
            raise
        try:
            yield file
        finally:
            file.close()

    def create(self, name: str) -> SnapshotFile:
        """Create a file, in a directory that is made and synced if it is not there. OSError."""
        if _checked(lib.ebk_io_make_directory(self._table, os.fsencode(self.path)), self.path) == 0:
            self._sync_directory(os.path.dirname(self.path) or ".")
        return self._open(name, lib.EBK_OPEN_WRITE | lib.EBK_OPEN_CREATE)

    def open_to_write(self, name: str) -> SnapshotFile:
        """Open an existing file to write, as it is. OSError."""
        return self._open(name, lib.EBK_OPEN_WRITE)

    def rename(self, name: str, new: str) -> None:
        """Rename a file; durable when this returns. OSError."""
        code = lib.ebk_io_rename(self._table, os.fsencode(self.place(name)), os.fsencode(self.place(new)))
        _checked(code, self.place(name))
        self._sync_directory(self.path)

    def remove(self, name: str) -> None:
        """Remove a file. A name that comes back after a crash does no harm, so this does not wait for the disk.
        OSError."""
        _checked(lib.ebk_io_unlink(self._table, os.fsencode(self.place(name))), self.place(name))

    def sync(self) -> None:
        """Make durable which files there are. OSError."""
        self._sync_directory(self.path)

    def place(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _open(self, name: str, flags: int) -> SnapshotFile:
        path = self.place(name)
        return SnapshotFile(
            self._table, path, _checked(lib.ebk_io_open(self._table, os.fsencode(path), flags), path)
        )

    def _sync_directory(self, path: str) -> None:
        _checked(lib.ebk_io_sync_directory(self._table, os.fsencode(path)), path)


def _checked(answer: int, path: str) -> int:
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), path)
    return answer
