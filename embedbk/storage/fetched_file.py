"""A snapshot of another member on its way into a file here (METADATA.md, 2; I80).

Decides what is believed of it: nothing before all of it is there and every sum in it, its digest and its cluster are
right; then it is synced. It lies under a name of its own until the log names it, so a start takes it for nothing, and
what a lost link or a restart left of it is gone on with. Whoever installs it gives it its name (snapshots.py).

With a thread of its own nothing here waits for the disk; without, each call does its work at once, for a simulation.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

from embedbk.errors import StorageError
from embedbk.storage.snapshot_files import SnapshotFile, SnapshotFiles
from embedbk.storage.snapshot_format import (
    BLOCK_BYTES,
    FETCHED_SUFFIX,
    SnapshotHeader,
    parse_snapshot_name,
    read_header,
    read_pieces,
    snapshot_name,
)
from embedbk.storage.snapshot_writer import QUEUED_BYTES_MAX, SYNC_BYTES

__all__ = ["FetchedFile", "newest_fetched", "remove_fetched"]


def newest_fetched(files: SnapshotFiles) -> int | None:
    """The index of what an earlier start fetched, whole or in part; None: there is nothing, or it cannot be told."""
    with contextlib.suppress(OSError):
        stems = [name.removesuffix(FETCHED_SUFFIX) for name in files.names() if name.endswith(FETCHED_SUFFIX)]
        places = [place for place in map(parse_snapshot_name, stems) if place is not None]
        return max(places)[0] if places else None
    return None


def remove_fetched(files: SnapshotFiles, keep: str = "") -> None:
    """What was fetched, whole or in part, and is not this one."""
    with contextlib.suppress(OSError):
        for name in files.names():
            stem = name.removesuffix(FETCHED_SUFFIX)
            if stem != name and name != keep and parse_snapshot_name(stem):
                files.remove(name)


class FetchedFile:
    """wake: called by the thread when it wrote what was queued, and at the end."""

    def __init__(
        self, files: SnapshotFiles, index: int, term: int, cluster_token: bytes, wake: Callable[[], None]
    ) -> None:
        """Goes on with what is there of it. Raises OSError: what is there cannot be read."""
        self.name = snapshot_name(index, term) + FETCHED_SUFFIX
        self.offset = 0  # Up to here it was given.
        self.header: SnapshotHeader | None = None  # Of what was there already.
        self.whole: SnapshotHeader | None = None  # Set last: everything is here, right and durable.
        self.damage = ""  # Why what is here can never be right: it is removed.
        self.failure: OSError | None = None  # The disk refused something: what was here is removed (P7.6).
        self._files = files
        self._place = index, term
        self._cluster_token = cluster_token
        self._wake = wake
        self._file: SnapshotFile | None = None
        self._at = 0
        self._unsynced_bytes = 0
        self._is_stopping = False
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._jobs: SimpleQueue[bytes | None] = SimpleQueue()  # None: the last one was before.
        self._thread: threading.Thread | None = None
        self._look()
        if files.threaded:
            self._thread = threading.Thread(target=self._run, name="embedbk fetched", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        """Without its header nobody can tell what it is a part of."""
        if self.name not in self._files.names():
            return
        file = self._files.open_to_write(self.name)
        try:
            size = file.size()
            if size >= BLOCK_BYTES:
                self.header = read_header(file)
        except StorageError:
            size = 0
        if self.header is None or size > self.header.file_bytes:
            file.close()
            self._files.remove(self.name)
            self.header = None
            return
        self._file, self.offset, self._at = file, size, size

    def has_room(self) -> bool:
        return self._queued_bytes < QUEUED_BYTES_MAX

    def add(self, piece: bytes) -> None:
        """The bytes at `offset`."""
        self.offset += len(piece)
        with self._lock:
            self._queued_bytes += len(piece)
        self._put(piece)

    def finish(self) -> None:
        """All of it was added: `whole`, `damage` or `failure` follows."""
        self._put(None)

    def stop(self, *, keep: bool = True) -> None:
        """When this returns nothing of it is written further. keep: what is here may be gone on with."""
        self._is_stopping = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        if not keep:
            self._drop()
        elif self._file is not None:
            self._file.close()
            self._file = None

    def _put(self, job: bytes | None) -> None:
        if self._thread is None:
            self._work(job)
        else:
            self._jobs.put(job)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            job = self._jobs.get()
            is_last = job is None
            self._work(job)
            if is_last or self._jobs.empty():
                self._wake()

    def _work(self, job: bytes | None) -> None:
        try:
            if self.failure is None and not self._is_stopping:
                if job is None:
                    self._check()
                else:
                    self._write(job)
        except OSError as refused:
            self._drop()
            self.failure = refused
        finally:
            with self._lock:
                self._queued_bytes -= len(job or b"")

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            self._file = self._files.create(self.name)
        self._file.write(piece, self._at)
        self._at += len(piece)
        self._unsynced_bytes += len(piece)
        if self._unsynced_bytes >= SYNC_BYTES:
            self._file.sync()
            self._unsynced_bytes = 0

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._files.remove(self.name)

    def _check(self) -> None:
        """Every byte of it, as it is read from the file; then the sync, so that it may stand for a log."""
        assert self._file is not None
        try:
            header = read_header(self._file)
            if (header.index, header.term) != self._place:
                raise StorageError(f"it stands for entry {header.index} of term {header.term}")
            if header.cluster_token != self._cluster_token:
                raise StorageError(f"it is of the cluster {header.cluster_token.hex()}")
            for _ in read_pieces(self._file, header):
                if self._is_stopping:
                    return
        except StorageError as damaged:
            self._drop()
            self.damage = str(damaged)
            return
        self._file.sync()
        self._file.close()
        self._file = None
        self._files.sync()
        self.whole = header
