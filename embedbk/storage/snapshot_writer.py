"""One snapshot on its way into a file: pieces in, a synced and renamed file out (METADATA.md, 2).

Decides the order of what is written: chunks, index, header, a sync, the rename, a sync of the directory. Whether the
file counts is not decided here: the log names it (snapshots.py). A refused call ends it; no sync is tried again.

With a thread of its own nothing here waits for the disk; without, each call does its work at once, for a simulation.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

from embedbk.storage.snapshot_files import SnapshotFile, SnapshotFiles
from embedbk.storage.snapshot_format import (
    CHUNK,
    DIGEST_BYTES,
    PART_SUFFIX,
    SnapshotHeader,
    encode_chunk,
    encode_end,
    snapshot_name,
)

__all__ = ["QUEUED_BYTES_MAX", "SnapshotWriter"]

QUEUED_BYTES_MAX = 4 << 20  # Pieces wait while more is queued for the thread.
SYNC_BYTES = 8 << 20  # Synced on the way, so that the last sync does not hold the journal's up for long.


class SnapshotWriter:
    """wake: called by the thread when it wrote what was queued, and at the end."""

    def __init__(self, files: SnapshotFiles, header: SnapshotHeader, wake: Callable[[], None]) -> None:
        self.name = snapshot_name(header.index, header.term)
        self.written: SnapshotHeader | None = None  # Set last: the file stands under its name, durably.
        self.failure: OSError | None = None
        self._files = files
        self._header = header
        self._wake = wake
        self._file: SnapshotFile | None = None
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._rows: list[tuple[int, int, int]] = []
        self._at = header.size
        self._unsynced_bytes = 0
        self._is_stopping = False
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._jobs: SimpleQueue[bytes | None] = SimpleQueue()  # None: the last piece was before.
        self._thread: threading.Thread | None = None
        if files.threaded:
            self._thread = threading.Thread(target=self._run, name="embedbk snapshot", daemon=True)
            self._thread.start()

    def has_room(self) -> bool:
        return self._queued_bytes < QUEUED_BYTES_MAX

    def add(self, piece: bytes) -> None:
        """The next piece of the snapshot."""
        with self._lock:
            self._queued_bytes += len(piece)
        self._put(piece)

    def finish(self) -> None:
        """All pieces were added: `written` or `failure` follows."""
        self._put(None)

    def stop(self) -> None:
        """Nobody wants it any more: when this returns, nothing of it is written further, and what was is removed if it
        can be."""
        self._is_stopping = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        if self.written is None:
            self._drop()

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
                    self._close()
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
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self.name + PART_SUFFIX)
            self._file = self._files.create(self.name + PART_SUFFIX)
        head, crc = encode_chunk(len(self._rows), piece)
        self._file.write(head + piece, self._at)
        self._digest.update(piece)
        self._rows.append((self._at, len(piece), crc))
        self._at += CHUNK.size + len(piece)
        self._unsynced_bytes += len(piece)
        if self._unsynced_bytes >= SYNC_BYTES:
            self._file.sync()
            self._unsynced_bytes = 0

    def _close(self) -> None:
        assert self._file is not None
        end = encode_end(self._rows, self._at)
        header = replace(
            self._header,
            chunk_count=len(self._rows),
            file_bytes=self._at + len(end),
            digest=self._digest.digest(),
        )
        self._file.write(end, self._at)
        self._file.write(header.encode(), 0)
        self._file.sync()
        self._file.close()
        self._files.rename(self.name + PART_SUFFIX, self.name)
        self.written = header

    def _drop(self) -> None:
        """What stays of it is removed by the next start."""
        if self._file is not None:
            self._file.close()
            with contextlib.suppress(OSError):
                self._files.remove(self.name + PART_SUFFIX)
