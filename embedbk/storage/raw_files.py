"""Files as bytes, for readers that trust nothing: the verifier, the `cat` commands, the fuzzers' twins.

Decides nothing. Nothing here writes, makes a file, or goes through the C module's table of calls: a second reader that
shared the first one's code would share its mistakes. A directory on a disk and a picture of one in memory look alike.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from embedbk.errors import UsageError

__all__ = ["DiskDirectory", "PictureDirectory", "RawDirectory", "RawFile", "ensure_answer"]

# Refusals that prove nothing about a file's content.
_NO_ANSWER = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def ensure_answer(path: str, refused: OSError) -> None:
    """Raise unless the refusal is about the file itself.

    Raises:
        UsageError: this process may not read it, or has no descriptor left: it is unknown whether the file is whole.
    """
    if refused.errno in _NO_ANSWER:
        raise UsageError(
            f"{path} cannot be opened, so nobody can tell whether it is whole: {refused.strerror}",
            hint="run this as the user that the bookie or member runs as, with enough open files (ulimit -n)",
        ) from refused


class RawFile(Protocol):
    """An open file; both calls raise OSError when the system refuses."""

    path: str

    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from offset on: fewer than size only at the end of the file."""
        ...


class RawDirectory(Protocol):
    """A directory whose files are only read."""

    path: str

    def within(self, name: str) -> RawDirectory:
        """A directory inside this one, which need not exist."""
        ...

    def names(self) -> list[str]:
        """Names of everything in it, ascending. OSError when it cannot be read."""
        ...

    def open(self, name: str) -> AbstractContextManager[RawFile]:
        """One of its files, to be used in a `with`. OSError when it cannot be opened; UsageError when that says
        nothing of the file."""
        ...


class _DiskFile:
    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(self._descriptor, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class DiskDirectory:
    """A directory of the file system. is_fresh: ask the kernel to forget what it has cached of each file, so that
    what is read is what the device holds (a request: pages that are dirty stay)."""

    def __init__(self, path: str | os.PathLike[str], *, is_fresh: bool = True) -> None:
        self.path = os.fspath(path)
        self._is_fresh = is_fresh

    def within(self, name: str) -> DiskDirectory:
        return DiskDirectory(os.path.join(self.path, name), is_fresh=self._is_fresh)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))

    @contextmanager
    def open(self, name: str) -> Iterator[RawFile]:
        path = os.path.join(self.path, name)
        # A pipe must not make it wait; what is no file has no bytes at places.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as refused:
            ensure_answer(path, refused)
            raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.ESPIPE, "it is no regular file", path)
            if self._is_fresh:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            yield _DiskFile(path, descriptor)
        finally:
            os.close(descriptor)


class _Picture:
    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self._content = content

    def size(self) -> int:
        return len(self._content)

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : offset + size]


class PictureDirectory:
    """A directory of a `MemoryDisk`, as `files()` pictures it: whole path to content."""

    def __init__(self, path: str, files: Mapping[str, bytes]) -> None:
        self.path = path
        self._picture = files
        self._files = {
            name[len(path) + 1 :]: content
            for name, content in files.items()
            if name.startswith(f"{path}/") and "/" not in name[len(path) + 1 :]
        }

    def within(self, name: str) -> PictureDirectory:
        return PictureDirectory(f"{self.path}/{name}", self._picture)

    def names(self) -> list[str]:
        return sorted(self._files)

    @contextmanager
    def open(self, name: str) -> Iterator[RawFile]:
        if name not in self._files:
            raise FileNotFoundError(2, os.strerror(2), f"{self.path}/{name}")
        yield _Picture(f"{self.path}/{name}", self._files[name])
