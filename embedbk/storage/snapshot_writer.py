"""One snapshot on its way into a file: pieces in, a synced and renamed file out (METADATA.md, 2).

Decides the order of what is written: chunks, index, header, a sync, the rename, a sync of the directory. Whether the
file counts is not decided here: the log names it (snapshots.py). A refused call ends it; no sync is tried again.

With a thread of its own nothing here waits for the disk; without, each call does its work at once, for a simulation.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace

from embedbk.storage.file_in_pieces import FileInPieces
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import (
    DIGEST_BYTES,
    PART_SUFFIX,
    SnapshotHeader,
    encode_chunk,
    encode_end,
    snapshot_name,
)

__all__ = ["SnapshotWriter"]


class SnapshotWriter(FileInPieces):
    """wake: called by the thread when it wrote what was queued, and at the end."""

    def __init__(self, files: SnapshotFiles, header: SnapshotHeader, wake: Callable[[], None]) -> None:
        super().__init__(files, snapshot_name(header.index, header.term), wake)
        self.written: SnapshotHeader | None = None  # Set last: the file stands under its name, durably.
        self._header = header
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._rows: list[tuple[int, int, int]] = []
        self._at = header.size
        self._is_renamed = False  # Or may be.
        self._begin("embedbk snapshot")

    def stop(self) -> None:
        """The snapshot is given up: when this returns, nothing more of it is written, and the file is removed if it can
        be."""
        self._end_thread()
        if self.written is None:
            self._drop()

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self.name + PART_SUFFIX)
            self._file = self._files.create(self.name + PART_SUFFIX)
        head, crc = encode_chunk(len(self._rows), piece)
        self._digest.update(piece)
        self._rows.append((self._at, len(piece), crc))
        self._wrote(self._file, head + piece)

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
        self._is_renamed = True
        self._files.rename(self.name + PART_SUFFIX, self.name)
        self.written = header

    def _drop(self) -> None:
        """Remove the file; if that fails, the next start removes it."""
        if self._file is None:
            return
        self._file.close()
        for name in (self.name + PART_SUFFIX, self.name)[: 1 + self._is_renamed]:
            with contextlib.suppress(OSError):
                self._files.remove(name)
