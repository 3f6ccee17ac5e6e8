"""A small file with what must not be forgotten: one record that is kept durably, and a newer one that the system writes
when it suits (P10.5, P7.4).

Decides how such a record lies on disk and when it is believed. The first is always whole: it is replaced by a rename.
The second is written in place behind it, without a sync, so it costs no wait; torn, or of an earlier first, it counts
for nothing. Either is made durable before it is believed: a process that was killed may have left it to the system,
and what follows from it must not outlive it (I49).
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from embedbk.codec.kernels import crc32c
from embedbk.errors import StorageError, ensure

__all__ = ["NOTE_BYTES", "NoteFile", "make_durable", "replace_durably", "sync_directory", "sync_name_of"]

# magic, version, size of the body, which of the two, CRC32C of all before (with a zero here) and the body
_HEAD = struct.Struct("<4sHHII")
NOTE_BYTES = 512  # Size of each of the two records.
NOTE_VERSION = 1
_KEPT, _HINT = 0, 1


def replace_durably(path: Path, content: bytes) -> None:
    """Let a file hold this, or what it held before; durable when this returns. Raises OSError."""
    part = path.with_name(path.name + ".new")
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    sync_directory(path.parent)


def make_durable(path: Path) -> None:
    """Make durable what a file holds, and its name: another process may have left both to the system.

    Raises:
        OSError: it is not there, or may not be durable.
    """
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sync_name_of(path: Path) -> None:
    """Make the name of a directory durable, where this user may read the one above: else it has made neither. Raises
    OSError."""
    with contextlib.suppress(PermissionError):
        sync_directory(path.parent)


class NoteFile:
    """magic: four bytes that name the kind of note."""

    def __init__(self, path: Path, magic: bytes) -> None:
        self.path = path
        self._magic = magic

    def read(self) -> list[bytes]:
        """Read the kept body, and after it the newer one if there is one; nothing where there is no file. What this
        gives is durable.

        Raises:
            StorageError: the file cannot be read or synced, or what was kept is damaged.
        """
        try:
            make_durable(self.path)
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as refused:
            raise StorageError(
                f"{self.path} cannot be read or synced: {refused}", hint="check its permissions and its disk"
            ) from refused
        return self.parse(content)

    def parse(self, content: bytes) -> list[bytes]:
        """As `read`, of a file's content. Raises StorageError."""
        kept, hint = self._body(content[:NOTE_BYTES], _KEPT), self._body(content[NOTE_BYTES:], _HINT)
        if kept is None:
            raise StorageError(
                f"{self.path} is damaged, or of another version than {NOTE_VERSION}",
                hint="restore it from a copy that is not older than the rest of its directory",
            )
        return [kept] if hint is None else [kept, hint]

    def keep(self, body: bytes) -> None:
        """Keep a body: durable when this returns; an earlier hint is gone. Raises StorageError: it is not durable."""
        try:
            replace_durably(self.path, self._record(body, _KEPT))
        except OSError as refused:
            raise self._unwritten(refused) from refused

    def hint(self, body: bytes) -> None:
        """Write a newer body behind the kept one, without waiting for the disk. Raises StorageError."""
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(file, self._record(body, _HINT), NOTE_BYTES)
            finally:
                os.close(file)
        except OSError as refused:
            raise self._unwritten(refused) from refused

    def _record(self, body: bytes, which: int) -> bytes:
        ensure(_HEAD.size + len(body) <= NOTE_BYTES, "a note is small")
        head = _HEAD.pack(self._magic, NOTE_VERSION, len(body), which, 0)
        crc = crc32c(body, crc32c(head))
        return (_HEAD.pack(self._magic, NOTE_VERSION, len(body), which, crc) + body).ljust(NOTE_BYTES, b"\0")

    def _body(self, record: bytes, which: int) -> bytes | None:
        if len(record) < _HEAD.size:
            return None
        magic, version, size, found, crc = _HEAD.unpack_from(record)
        body = record[_HEAD.size : _HEAD.size + size]
        head = _HEAD.pack(magic, version, size, found, 0)
        if (magic, version, found, len(body)) != (self._magic, NOTE_VERSION, which, size):
            return None
        return body if crc32c(body, crc32c(head)) == crc else None

    def _unwritten(self, refused: OSError) -> StorageError:
        return StorageError(
            f"{self.path} cannot be written: {refused}",
            hint="check its permissions, its disk and the room on it",
        )
