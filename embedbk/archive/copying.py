"""What one task of an archive job does: it copies a run of entries of one ledger into one file.

Decides what it does with an existing file: it uses a sound one, and sets others aside. So a
job that goes on after a kill copies nothing twice, and two jobs that both believe they may copy leave the same files.
Tasks are plain data; they run in this process or in executors.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from embedbk.archive.files import EntryRun, HasCompressed, Summed, summed, write_rows
from embedbk.archive.manifest import FilePart, file_name
from embedbk.archive.place import ArchiveDirectory, LedgerDirectory
from embedbk.client.batches import Located
from embedbk.client.entry_times import time_at
from embedbk.client.iterating import iterate
from embedbk.client.log_reading import LogReading
from embedbk.client.truncating import pin
from embedbk.client.waiting import run_blocking
from embedbk.errors import (
    EmbedbkError,
    NoSuchLedger,
    OperationTimeout,
    PeerError,
    StorageError,
    Truncated,
    UsageError,
)
from embedbk.ids import Position

__all__ = ["SliceTask", "ByteRate", "FileCopied", "check_rate", "copy_slice", "run_copy"]


@dataclass(frozen=True)
class SliceTask:
    """One file to be made."""

    directory: ArchiveDirectory
    log_name: str
    run: EntryRun
    epoch: int
    pin_name: str
    pin_offset: int
    pin_s: float
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class FileCopied:
    """What became of a task: its file, or why there is none. is_gone: its ledger was truncated or deleted."""

    run: EntryRun
    part: FilePart | None
    why: str = ""
    is_gone: bool = False


def check_rate(bytes_per_s: float | None) -> None:
    """Raises UsageError: it is none."""
    if bytes_per_s is not None and not (isinstance(bytes_per_s, int | float) and bytes_per_s > 0):
        raise UsageError(f"bytes_per_s={bytes_per_s!r}: allowed are bytes above 0, or None for no bound")


class ByteRate:
    """Waits so that no more bytes pass in a second than are allowed, on the average since it was made."""

    def __init__(
        self,
        bytes_per_s: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._now, self._sleep = bytes_per_s, now, sleep
        self._begun_s, self._bytes = now(), 0

    def passed(self, byte_count: int) -> None:
        if self._rate is None:
            return
        self._bytes += byte_count
        early_s = self._begun_s + self._bytes / self._rate - self._now()
        if early_s > 0:
            self._sleep(early_s)


def run_copy(log: LogReading, task: SliceTask) -> FileCopied:
    """As `copy_slice`, but an error is part of the answer, so that the other files are still copied."""
    try:
        return FileCopied(task.run, copy_slice(log, task))
    except (Truncated, NoSuchLedger) as gone:
        return FileCopied(task.run, None, str(gone), is_gone=True)
    except (EmbedbkError, OSError) as failed:
        return FileCopied(task.run, None, f"{type(failed).__name__}: {failed}")


def copy_slice(log: LogReading, task: SliceTask) -> FilePart:
    """Make the task's file durable, and return it.

    Raises:
        Truncated, NoSuchLedger: the entries are gone.
        StorageError: the archive is not there, or cannot be written.
        EntryUnreadable, NotEnoughBookies, OperationTimeout: the entries cannot be read now.
    """
    run = task.run
    run_blocking(pin(log, task.pin_name, task.pin_offset, task.pin_s), "archive")
    with task.directory.ledger(run.log_id, run.ledger_id, makes=True) as ledger:
        prefix = f"{run.first}-{run.last}-"
        for name in ledger.names():
            if name.startswith(prefix):
                try:
                    return _taken(ledger, name, run)
                except (PeerError, StorageError):  # Other entries, or a directory.
                    ledger.set_aside(name)
                except OSError as failed:
                    if failed.errno != errno.ELOOP:
                        raise
                    ledger.set_aside(name)  # A link.
        try:
            return _written(log, task, ledger)
        except OperationTimeout:
            raise  # It is an OSError, and no fault of the file: bookies or members did not answer in time.
        except OSError as failed:
            raise StorageError(f"{ledger.path}: entries {run.first}..{run.last}: {failed}") from failed


def _written(log: LogReading, task: SliceTask, ledger: LedgerDirectory) -> FilePart:
    run, pace = task.run, ByteRate(task.bytes_per_s)

    def paced() -> Iterator[Located]:
        begin, end = Position(run.ledger_id, run.first), Position(run.ledger_id, run.last + 1)
        for located in iterate(log.read(begin, end, is_stored=True), "archive"):
            yield located
            pace.passed(len(located.frame.body))

    before_ms = (
        None
        if run.first == 0
        else run_blocking(time_at(log, Position(run.ledger_id, run.first - 1)), "archive")
    )
    facts = {
        "embedbk.log": run.log_id,
        "embedbk.name": task.log_name,
        "embedbk.ledger": str(run.ledger_id),
        "embedbk.entries": f"{run.first}-{run.last}",
        "embedbk.firstOffset": str(run.first_offset),
    }
    with ledger.writing() as (file, temp):
        try:
            written = write_rows(file, run, paced(), before_ms, facts)
        except HasCompressed:
            file.seek(0)
            file.truncate()
            written = write_rows(file, run, paced(), before_ms, facts, has_stored=True)
        name = file_name(run.first, run.last, written.digest)
        file.flush()
        sha256, size = ledger.hash(temp)
        try:
            ledger.settle(file, temp, name)
        except FileExistsError:  # Another task of the same run was faster.
            return _taken(ledger, name, run)
    return _part(name, size, sha256, run, written)


def _taken(ledger: LedgerDirectory, name: str, run: EntryRun) -> FilePart:
    """Use a file that another task has written: its content was synced before it got its name."""
    part = part_of(ledger, name, run)
    ledger.sync()
    return part


def part_of(ledger: LedgerDirectory, name: str, run: EntryRun) -> FilePart:
    """Read an existing file whole. Raises PeerError: it is not this run, whole and sound."""
    sha256, size = ledger.hash(name)
    with ledger.reading(name) as file:
        found = summed(file, run)
    if name != file_name(run.first, run.last, found.digest):
        raise PeerError(f"{name}: the digest of its entries is {found.digest:016x}")
    return _part(name, size, sha256, run, found)


def _part(name: str, size: int, sha256: bytes, run: EntryRun, found: Summed) -> FilePart:
    return FilePart(
        name,
        size,
        sha256.hex(),
        run.first,
        run.last,
        found.rows,
        found.payload_bytes,
        f"{found.digest:016x}",
    )
