"""A directory with archives: how files become durable there under their names, and that the directory is the right one.

Decides that only whole and synced files get a final name, and that no file that has its final name
is replaced: a file is linked to its name, which fails where there is one. A directory that is not mounted has no file
with the archive's id, so it is an error and never made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedbk.client.beginning import check_path
from embedbk.codec.log_archives import ARCHIVE_ID_BYTES, ARCHIVE_PATH_MAX, ArchivePlace
from embedbk.errors import StorageError, UsageError

__all__ = ["ArchiveDirectory", "LedgerDirectory", "create_place", "find_place"]

_MARKER = "_embedbk-archive.json"  # Readers of Parquet pass over names with an underscore in front.
_TEMP, _ASIDE = "_temp-", "_aside-"
_PIECE_BYTES = 1 << 20
# One spelling for each ledger: one that is found twice would be restored twice.
_LEDGER_NAME = re.compile(r"ledger=(0|[1-9][0-9]{0,18})")


def create_place(path: str | os.PathLike[str]) -> ArchivePlace:
    """Make an archive in a new or empty directory whose parent exists; return its place, for the settings of logs.

    Raises UsageError: the directory has something else in it, or the parent is missing. StorageError: it cannot be
    written.
    """
    where = Path(os.path.abspath(check_path(path)))
    if len(str(where)) > ARCHIVE_PATH_MAX:
        raise UsageError(
            f"the path of an archive has {len(str(where))} characters: at most {ARCHIVE_PATH_MAX}"
        )
    try:
        with contextlib.suppress(FileExistsError):
            where.mkdir()
        if next(where.iterdir(), None) is not None:
            raise UsageError(f"{str(where)!r} is not empty; no archive was made there")
        archive_id = secrets.token_bytes(ARCHIVE_ID_BYTES)
        with _opened(where) as root:
            _Directory(root, str(where)).put(
                _MARKER, json.dumps({"version": 1, "archive": archive_id.hex()}).encode()
            )
        with _opened(where.parent) as parent:
            os.fsync(parent)
    except OSError as failed:
        raise StorageError(f"{str(where)!r}: no archive can be made there: {failed}") from failed
    return ArchivePlace(archive_id, str(where))


def find_place(path: str | os.PathLike[str]) -> ArchivePlace:
    """The place of an existing archive. Raises StorageError: there is none."""
    where = Path(os.path.abspath(check_path(path)))
    try:
        with _opened(where) as root:
            return ArchivePlace(_marked(root, str(where)), str(where))
    except OSError as failed:
        raise _absent(str(where), str(failed)) from failed


class _Directory:
    """One directory, by its descriptor: it stays the same if something is mounted over its path later."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def names(self) -> list[str]:
        return sorted(os.listdir(self.fd))

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Raises FileNotFoundError: there is no such file; StorageError: it is something else than a file."""
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StorageError(f"{self.path}/{name} is no file")
        with os.fdopen(fd, "rb") as file:
            yield file

    def read(self, name: str, bytes_max: int) -> bytes:
        with self.reading(name) as file:
            # The buffer is as large as the file, and not as large as it may be.
            data: bytes = file.read(min(os.fstat(file.fileno()).st_size, bytes_max) + 1)
        if len(data) > bytes_max:
            raise StorageError(f"{self.path}/{name} has more than {bytes_max} bytes")
        return data

    def size(self, name: str) -> int:
        with self.reading(name) as file:
            return os.fstat(file.fileno()).st_size

    def hash(self, name: str) -> tuple[bytes, int]:
        """(SHA-256, size) of a file as it is read now."""
        digest, size = hashlib.sha256(), 0
        with self.reading(name) as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                size += len(piece)
        return digest.digest(), size

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[Any, str]]:
        """(a new file, its temporary name). The file is removed unless it gets its final name."""
        name = f"{_TEMP}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o644, dir_fd=self.fd)
        try:
            with os.fdopen(fd, "wb") as file:
                yield file, name
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.fd)

    def settle(self, file: Any, temp: str, name: str) -> None:
        """Make the file durable, then its name. A failed sync is never tried again: the file is given up, and loses a
        name that may not be durable, which the next job would only have to sync.

        Raises FileExistsError: there is a file of this name, which stays.
        """
        file.flush()
        os.fsync(file.fileno())
        os.link(temp, name, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
        try:
            os.fsync(self.fd)
        except OSError:
            with contextlib.suppress(OSError):
                self.set_aside(name)
            raise

    def sync(self) -> None:
        """Make the files' names durable: the job that gave them may have been killed before it synced them."""
        os.fsync(self.fd)

    def put(self, name: str, data: bytes) -> None:
        with self.writing() as (file, temp):
            file.write(data)
            self.settle(file, temp, name)

    def set_aside(self, name: str) -> str:
        """Give a file that does not count a name that readers pass over; nothing is deleted."""
        other = f"{_ASIDE}{secrets.token_hex(4)}-{name}"
        os.rename(name, other, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        os.fsync(self.fd)
        return other

    def standing_as(self, name: str, sha256: bytes) -> str:
        """The present name of this file: its own, or the one under which a job put it aside that had lost the archive's
        lock without knowing it. If the file is missing, its own name."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            for other in self.names():
                is_it = other.startswith(_ASIDE) and other.endswith(f"-{name}")
                if is_it and self.hash(other)[0] == sha256:
                    return other
        return name

    def sweep(self) -> None:
        """Remove what interrupted copying has left. A file that is still being written then gets no name."""
        for name in self.names():
            if name.startswith(_TEMP):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self.fd)


class LedgerDirectory(_Directory):
    """The files of one ledger."""


@dataclass(frozen=True)
class ArchiveDirectory:
    """An archive's directory, as the settings of a log name it; plain data."""

    place: ArchivePlace

    @contextlib.contextmanager
    def ledger(self, log_id: str, ledger_id: int, *, makes: bool = False) -> Iterator[LedgerDirectory]:
        """The directory of one ledger. makes: make it if it is not there yet.

        Raises:
            StorageError: the archive is not there (is it mounted?), or it is another one.
            FileNotFoundError: the archive has nothing of this ledger.
        """
        if not log_id or {"/", "\0"} & {
            *log_id
        }:  # It comes from a ledger's metadata, which every client may write (P2.5).
            raise StorageError(f"{log_id!r} names no log, and nothing in the archive in {self.place.path!r}")
        with contextlib.ExitStack() as stack:
            fd, path = stack.enter_context(self._root()), self.place.path
            for name in (f"log={log_id}", f"ledger={ledger_id}"):
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=fd)
                    os.fsync(fd)  # Also if another job made it and has not synced it yet.
                fd, path = stack.enter_context(_opened(name, fd)), f"{path}/{name}"
            yield LedgerDirectory(fd, path)

    def check(self) -> None:
        """Raises StorageError: the archive is not there."""
        with self._root():
            pass

    def ledgers(self, log_id: str) -> list[int]:
        """The ids of the log's ledgers that have a directory, in ascending order."""
        found = map(_LEDGER_NAME.fullmatch, self._names(log_id))
        return sorted(int(each[1]) for each in found if each is not None)

    def strange(self, log_id: str) -> list[str]:
        """Names among them that are no ledger's, as `ledger=007`: we pass them over, but other readers do not."""
        names = self._names(log_id)
        return sorted(name for name in names if name[0] not in "_." and not _LEDGER_NAME.fullmatch(name))

    def _names(self, log_id: str) -> list[str]:
        with self._root() as root:
            try:
                with _opened(f"log={log_id}", root) as fd:
                    return os.listdir(fd)
            except FileNotFoundError:
                return []

    def logs(self) -> list[str]:
        with self._root() as root:
            return sorted(name.removeprefix("log=") for name in os.listdir(root) if name.startswith("log="))

    @contextlib.contextmanager
    def _root(self) -> Iterator[int]:
        path = self.place.path
        try:
            opened = _opened(path)
            fd = opened.__enter__()
        except OSError as failed:
            raise _absent(path, str(failed)) from failed
        try:
            try:
                found = _marked(fd, path)
            except OSError as failed:
                raise _absent(path, str(failed)) from failed
            if found != self.place.archive_id:
                raise StorageError(
                    f"{path!r} is the archive {found.hex()}, and the log's is {self.place.archive_id.hex()}",
                    hint="mount the log's own archive there",
                )
            yield fd
        finally:
            opened.__exit__(None, None, None)


@contextlib.contextmanager
def _opened(path: str | Path, dir_fd: int | None = None) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _marked(fd: int, path: str) -> bytes:
    """The archive's id. Raises FileNotFoundError: the directory has none."""
    data = _Directory(fd, path).read(_MARKER, 1000)
    try:
        told = json.loads(data)
        archive_id = bytes.fromhex(told["archive"])
        is_known = told["version"] == 1 and len(archive_id) == ARCHIVE_ID_BYTES
    except (ValueError, TypeError, KeyError):
        is_known = False
    if not is_known:
        raise StorageError(f"{path}/{_MARKER} names no archive: {data[:80]!r}")
    return archive_id


def _absent(path: str, why: str) -> StorageError:
    return StorageError(
        f"no archive is in {path!r}: {why}",
        hint="is it mounted? A directory of an archive is made once, by hand",
    )
