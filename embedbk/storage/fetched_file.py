"""A snapshot of another member on its way into a file here (METADATA.md, 2; I80).

Decides what is believed of it: nothing before all of it is there and every sum in it, its digest and its cluster are
right; then it is synced. It lies under a name of its own until the log names it, so a start takes it for nothing, and
a fetch continues with what a lost link or a restart left of it. Installing it gives it its name (snapshots.py).

With a thread of its own nothing here waits for the disk; without, each call does its work at once, for a simulation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from embedbk.errors import StorageError
from embedbk.storage.file_in_pieces import FileInPieces
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import (
    BLOCK_BYTES,
    FETCHED_SUFFIX,
    SnapshotHeader,
    parse_snapshot_name,
    read_header,
    read_pieces,
    snapshot_name,
)

__all__ = ["FetchedFile", "newest_fetched", "remove_fetched"]


def newest_fetched(files: SnapshotFiles) -> int | None:
    """The index of the snapshot that an earlier start fetched, whole or in part; None: there is none, or it cannot be
    read."""
    with contextlib.suppress(OSError):
        stems = [name.removesuffix(FETCHED_SUFFIX) for name in files.names() if name.endswith(FETCHED_SUFFIX)]
        places = [place for place in map(parse_snapshot_name, stems) if place is not None]
        return max(places)[0] if places else None
    return None


def remove_fetched(files: SnapshotFiles, keep: str = "") -> None:
    """Remove a file that was fetched, whole or in part, of another snapshot than this one."""
    with contextlib.suppress(OSError):
        for name in files.names():
            stem = name.removesuffix(FETCHED_SUFFIX)
            if stem != name and name != keep and parse_snapshot_name(stem):
                files.remove(name)


class FetchedFile(FileInPieces):
    """wake: called by the thread when it wrote what was queued, and at the end."""

    def __init__(
        self, files: SnapshotFiles, index: int, term: int, cluster_token: bytes, wake: Callable[[], None]
    ) -> None:
        """Continue with the part that is there. Raises OSError: that part cannot be read."""
        super().__init__(files, snapshot_name(index, term) + FETCHED_SUFFIX, wake)
        self.offset = 0  # So many bytes were added.
        self.header: SnapshotHeader | None = None  # The header of what was there already.
        self.whole: SnapshotHeader | None = None  # Set last: everything is here, right and durable.
        self.damage = ""  # Why what is here can never be right: it is removed.
        self._place = index, term
        self._cluster_token = cluster_token
        self._look()
        self._begin("embedbk fetched")

    def _look(self) -> None:
        """Without its header it is unknown which snapshot the file is a part of."""
        if self.name not in self._files.names():
            return
        file = self._files.open_to_write(self.name)
        size = 0
        try:
            size = file.size()
            if size >= BLOCK_BYTES:
                self.header = read_header(file)
        except (StorageError, OSError):
            self.header = None  # It is damaged, or cannot be read: its source has all of it.
        if self.header is None or size > self.header.file_bytes:
            file.close()
            self._files.remove(self.name)
            self.header = None
            return
        self._file, self.offset, self._at = file, size, size

    def add(self, piece: bytes) -> None:
        """Add these bytes, which belong at `offset`."""
        self.offset += len(piece)
        super().add(piece)

    def stop(self, *, keep: bool = True) -> None:
        """When this returns nothing more is written. keep: the next attempt may continue with what is here."""
        self._end_thread()
        if not keep:
            self._drop()
        elif self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            self._file = self._files.create(self.name)
        self._wrote(self._file, piece)

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._files.remove(self.name)

    def _close(self) -> None:
        """Check every byte as the file gives it back, then sync, so that the snapshot may stand for a log."""
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
