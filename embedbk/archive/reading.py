"""Reading a ledger whose only copies are files of an archive (P8.14): for readers of logs and ledgers, without Spark.

Decides what counts: the manifest by its hash, which the ledger's metadata has; each file by its SHA-256,
which the manifest has; each row by the checksum of its page and the scan of the entry that it is. Each process hashes a
file once, as long as it stays the same file; pages and entries are checked each time. A failure is an error that
names the file, never an early end and never a missing entry.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from embedbk.archive.files import EntryRun, sound_bodies
from embedbk.archive.manifest import (
    MANIFEST_BYTES_MAX,
    FilePart,
    Manifest,
    decode_manifest,
    manifest_hash,
    manifest_name,
)
from embedbk.archive.place import ArchiveDirectory, LedgerDirectory
from embedbk.codec.frame import Frame, frame_of, merge
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.log_archives import ArchivePlace
from embedbk.errors import ArchiveUnreadable, EmbedbkError, PeerError, StorageError
from embedbk.forking import free_in_children
from embedbk.host.signal import Signal

__all__ = ["ArchivedReading", "archived_frames"]

_AHEAD = 2  # Row groups read ahead of the consumer.
_HASHED_MAX = 4096  # Files remembered as being what a manifest says.

# (device, inode, size, times) of a file and the SHA-256 that it had, the newest last.
_hashed: dict[tuple[int, int, int, int, int, str], None] = {}
_lock = free_in_children(threading.Lock())


def archived_frames(freed: Freed, log_id: str, ledger_id: int, first: int, last: int) -> Iterator[Frame]:
    """The entries first..last, both included, in order, each checked.

    Raises ArchiveUnreadable: the archive is not there, or a file is missing or is not what was recorded.
    """
    directory = ArchiveDirectory(ArchivePlace(freed.archive_id, freed.path))
    name = manifest_name(freed.manifest)
    try:
        with directory.ledger(log_id, ledger_id) as files:
            manifest = _manifest(files, freed, log_id, ledger_id)
            following = first
            for part in manifest.files:
                name = part.name
                if part.first_entry <= last and part.last_entry >= following:
                    run = EntryRun(
                        log_id, ledger_id, part.first_entry, part.last_entry, manifest.first_offset
                    )
                    for frame in _of_file(files, run, part, following, last):
                        following = frame.last_entry + 1
                        yield frame
        if following != last + 1:
            raise PeerError(f"its files end at entry {following - 1}, and {last} was asked for")
    except (EmbedbkError, OSError, ValueError, MemoryError) as why:
        raise _unreadable(freed, log_id, ledger_id, name, why) from why


def _manifest(files: LedgerDirectory, freed: Freed, log_id: str, ledger_id: int) -> Manifest:
    name = manifest_name(freed.manifest)
    data = files.read(files.standing_as(name, freed.manifest), MANIFEST_BYTES_MAX)
    if manifest_hash(data) != freed.manifest:
        raise PeerError(f"its SHA-256 is not {freed.manifest.hex()}, which the ledger's metadata has")
    return decode_manifest(data, log_id, ledger_id)


def _of_file(files: LedgerDirectory, run: EntryRun, part: FilePart, first: int, last: int) -> Iterator[Frame]:
    with files.reading(files.standing_as(part.name, bytes.fromhex(part.sha256))) as file:
        _check(file, part)
        for body in sound_bodies(file, run, max(first, run.first), min(last, run.last)):
            frame = frame_of(body, run.ledger_id)
            if frame.first_entry < first or frame.last_entry > last:
                wanted = merge([frame], max(first, frame.first_entry), min(last, frame.last_entry))
                assert wanted is not None
                frame = wanted
            yield frame


def _check(file: Any, part: FilePart) -> None:
    """Raises PeerError: this is not the file that the manifest names."""
    facts = os.fstat(file.fileno())
    key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, part.sha256)
    with _lock:
        if key in _hashed:
            return
    if facts.st_size != part.bytes:
        raise PeerError(f"it has {facts.st_size} bytes, want {part.bytes}")
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != part.sha256:
        raise PeerError(f"its SHA-256 is {found}, want {part.sha256}")
    with _lock:
        _hashed[key] = None
        while len(_hashed) > _HASHED_MAX:
            del _hashed[next(iter(_hashed))]


def _unreadable(
    freed: Freed, log_id: str, ledger_id: int, name: str, why: BaseException
) -> ArchiveUnreadable:
    file = f"log={log_id}/ledger={ledger_id}/{name}"
    said = why.args[0] if isinstance(why, EmbedbkError) else why  # The hint must not come twice.
    text = str(said) or type(why).__name__
    if isinstance(why, StorageError) and why.hint:
        hint = why.hint
    else:
        hint = (
            f"put back {file} from a copy of the archive, as it was; verify-archive says what else is wrong"
        )
    error = ArchiveUnreadable(
        f"ledger {ledger_id}: its copies are files of the archive in {freed.path!r}, and {file} cannot be read: {text}",
        hint=hint,
    )
    error.place, error.file = freed.path, file
    return error


class ArchivedReading:
    """The frames of a range, read by a thread of its own; a consumer waits for them in either way (client/waiting.py).
    It replaces a range read from bookies (`host.operations.Reading`)."""

    def __init__(self, freed: Freed, log_id: str, ledger_id: int, first: int, last: int) -> None:
        self.signal = Signal()
        self.is_over = False
        self._frames: deque[Frame] = deque()
        self._error: EmbedbkError | None = None
        self._room = threading.Semaphore(_AHEAD)
        self._is_closed = False
        self._arguments = (freed, log_id, ledger_id, first, last)
        threading.Thread(target=self._run, name=f"archive of ledger {ledger_id}", daemon=True).start()

    def _run(self) -> None:
        try:
            for frame in archived_frames(*self._arguments):
                self._room.acquire()
                if self._is_closed:
                    return
                self._frames.append(frame)
                self.signal.notify()
        except EmbedbkError as failed:
            self._error = failed
        except BaseException as broken:  # The consumer must get it.
            self._error = EmbedbkError(f"reading an archive broke: {broken!r}", definite=False)
            raise
        finally:
            self.is_over = True
            self.signal.notify()

    def has_news(self) -> bool:
        return bool(self._frames) or self.is_over

    def take(self) -> Frame | None:
        """The next frame, after `has_news`; None at the end. Raises what ended the read early."""
        if self._frames:
            self._room.release()
            return self._frames.popleft()
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """The consumer takes nothing more."""
        self._is_closed = True
        self._room.release()
