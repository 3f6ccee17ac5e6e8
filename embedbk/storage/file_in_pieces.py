"""A file that its owner hands over piece by piece, and a thread writes (METADATA.md, 2).

Bounds the pieces that wait, syncs the file now and then while it is written, and gives up at the first call that the
disk refuses: no sync is tried again (P7.6). Where the system refuses the thread, the file has failed as well. Its two
kinds decide what the file holds and when it counts: a snapshot of this member (snapshot_writer.py), one of another
(fetched_file.py).
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue

from embedbk.storage.snapshot_files import SnapshotFile, SnapshotFiles

__all__ = ["QUEUED_BYTES_MAX", "SYNC_BYTES", "FileInPieces"]

logger = logging.getLogger(__name__)

QUEUED_BYTES_MAX = 4 << 20  # Pieces wait while more is queued for the thread.
SYNC_BYTES = 8 << 20  # Synced on the way, so that the last sync does not hold the journal's up for long.


class FileInPieces(ABC):
    """wake: called by the thread when it wrote what was queued, and at the end."""

    def __init__(self, files: SnapshotFiles, name: str, wake: Callable[[], None]) -> None:
        self.name = name
        # The disk refused something, or the system a thread or memory: what was here is removed.
        self.failure: OSError | None = None
        self._files = files
        self._wake = wake
        self._file: SnapshotFile | None = None
        self._at = 0  # Where the next write goes.
        self._unsynced_bytes = 0
        self._is_stopping = False
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._jobs: SimpleQueue[bytes | None] = SimpleQueue()  # None after the last piece.
        self._thread: threading.Thread | None = None

    def _begin(self, thread_name: str) -> None:
        """Called last by a subclass's constructor: from here on the thread may work."""
        if not self._files.threaded:
            return
        thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        try:
            thread.start()
        except RuntimeError as refused:
            # The file is given up as on a disk that refuses, and tried again later; all else goes on.
            self.failure = OSError(f"the system gives no thread that writes it: {refused}")
            self._wake()
        else:
            self._thread = thread

    def has_room(self) -> bool:
        return self._queued_bytes < QUEUED_BYTES_MAX

    def add(self, piece: bytes) -> None:
        """Queue the next piece."""
        with self._lock:
            self._queued_bytes += len(piece)
        self._put(piece)

    def finish(self) -> None:
        """All pieces were added: have the end of the file written; else `failure` follows."""
        self._put(None)

    def _end_thread(self) -> None:
        """When this returns, nothing is written further."""
        self._is_stopping = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

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
            try:
                self._work(job)
            except Exception as unforeseen:  # A thread that ended in silence would be waited for for ever.
                logger.exception("%s cannot be written", self.name)
                self._drop()
                self.failure = OSError(f"{self.name} cannot be written: {unforeseen!r}")
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

    def _wrote(self, file: SnapshotFile, block: bytes) -> None:
        """Write the block behind what was written before."""
        file.write(block, self._at)
        self._at += len(block)
        self._unsynced_bytes += len(block)
        if self._unsynced_bytes >= SYNC_BYTES:
            file.sync()
            self._unsynced_bytes = 0

    @abstractmethod
    def _write(self, piece: bytes) -> None: ...

    @abstractmethod
    def _close(self) -> None:
        """All pieces are written: make the file whole and durable."""

    @abstractmethod
    def _drop(self) -> None:
        """Remove what was written, if the disk lets it be removed."""
