"""Archiving the closed ledgers of a log (P8.14): which, in which order, and what is recorded when.

Decides what is copied, and that a ledger counts as copied only when all of its files and its manifest are durable. The
caller decides how the tasks are run: in this process by default, in executors by `embedbk.spark.archiving`.
`core.archiving` decides whether a step may be recorded.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike

from embedbk.archive.copying import FileCopied, SliceTask, check_rate, run_copy
from embedbk.archive.files import EntryRun
from embedbk.archive.manifest import (
    MANIFEST_VERSION,
    FilePart,
    Manifest,
    encode_manifest,
    ledger_facts,
    manifest_hash,
    manifest_name,
    why_not_as_written,
)
from embedbk.archive.moving import elsewhere, follow
from embedbk.archive.place import ArchiveDirectory, find_place
from embedbk.client.archiving import (
    ArchiveLock,
    archive_place,
    archive_records,
    change_archive,
    put_archive_place,
)
from embedbk.client.batches import Segment
from embedbk.client.client import Client
from embedbk.client.entry_times import time_at
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.truncating import unpin
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import ArchiveRecord, ArchiveState
from embedbk.config import check_flag
from embedbk.core.archiving import Claim, Copied
from embedbk.errors import (
    EmbedbkError,
    LockLost,
    MetadataUnavailable,
    NoSuchLedger,
    StorageError,
    Truncated,
    UsageError,
    WrongPassword,
)
from embedbk.ids import Position

__all__ = ["ArchiveReport", "LedgerCopied", "archive", "archive_lock", "directory_of", "set_place"]

logger = logging.getLogger("embedbk.archive")

SLICE_BYTES = 128 << 20  # Payload bytes of a file, about.
PIN_SECONDS = 3600.0
_TASKS_AT_ONCE = 32  # Tasks of a group of ledgers, about; their records are written after each group.

CopyRunner = Callable[[LogReading, Sequence[SliceTask]], Iterable[FileCopied]]


@dataclass(frozen=True)
class LedgerCopied:
    """What became of one ledger: "copied", "planned" (of a dry run), "truncated" or "failed"."""

    ledger_id: int
    first_offset: int
    entries: int
    payload_bytes: int
    outcome: str
    files: int = 0
    file_bytes: int = 0
    why: str = ""


@dataclass
class ArchiveReport:
    log_id: str
    place: str
    epoch: int
    before: int = 0  # Ledgers that were copied or verified already.
    ledgers: list[LedgerCopied] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return all(each.outcome in ("copied", "planned") for each in self.ledgers)


def set_place(client: Client, name: str, path: str | PathLike[str], *, password: bytes = b"") -> None:
    """Archive the log in this directory from now on; it must be an archive's (`create_place`).

    Where the log's archive has moved to this path, freed ledgers are read there from now on, each as soon as all of its
    files have been seen there (`moving`).

    Raises:
        UsageError: the log has another archive. StorageError: there is no archive, or files of some ledgers are not
            there: those stay where they were; call it again.
        OperationTimeout: another job works on the archive that has moved. LockLost: the session ended meanwhile.
    """
    reading, place = LogReading(client._runtime, name, Password(password)), find_place(path)
    now = run_blocking(archive_place(reading), "archive")
    if now is None or now.archive_id != place.archive_id:
        run_blocking(put_archive_place(reading, place), "archive")
        return
    if now == place and not elsewhere(reading, place):
        return
    with archive_lock(reading) as lock:
        run_blocking(put_archive_place(reading, place), "archive")
        left = follow(reading, ArchiveDirectory(place), lock)
    if left:
        named = "; ".join(f"ledger {ledger_id}: {why}" for ledger_id, why in left[:3])
        raise StorageError(
            f"{len(left)} freed ledgers of log {name!r} are not read in {place.path!r}, as their files are not all "
            f"there: {named}",
            hint="bring the files there, and name the place again",
        )


def archive(
    client: Client,
    name: str,
    *,
    password: bytes = b"",
    older_than_s: float = 0.0,
    bytes_min: int = 0,
    bytes_per_s: float | None = None,
    slice_bytes: int = SLICE_BYTES,
    pin_s: float = PIN_SECONDS,
    anew: Sequence[int] = (),
    dry_run: bool = False,
    run: CopyRunner | None = None,
) -> ArchiveReport:
    """Copy the closed ledgers of a log that are not archived yet to Parquet files, oldest first.

    Args:
        older_than_s: only ledgers whose last entry is so old; one without times counts as older.
        bytes_min: only ledgers of so many payload bytes.
        bytes_per_s: the bound of each task.
        slice_bytes: payload bytes of a file, about.
        pin_s: how long nothing is truncated behind the start of a task.
        anew: ledgers to copy again, because their files are damaged.
        dry_run: nothing is written anywhere.
        run: how tasks are run; None: one after the other, in this process.

    Raises:
        UsageError: the log has no place for its archive, or the cluster's level is too low.
        StorageError: the directory has no archive, because it is not mounted, say, or another one.
        OperationTimeout: another job works on the archive of this log.
        LockLost: the session ended meanwhile; what was recorded stands, and the next job goes on.
    """
    if slice_bytes < 1:
        raise UsageError(f"slice_bytes={slice_bytes}: allowed are sizes from 1 on")
    if not isinstance(older_than_s, int | float) or not older_than_s >= 0:
        raise UsageError(f"older_than_s={older_than_s!r}: allowed are seconds from 0 on")
    check_flag(dry_run, "dry_run")
    check_rate(bytes_per_s)
    reading, directory = directory_of(client, name, password)
    if dry_run:
        report = ArchiveReport(str(reading.name), directory.place.path, 0)
        for segment, metadata in _due(reading, report, older_than_s, bytes_min, anew):
            report.ledgers.append(_outcome(segment, metadata, "planned"))
        return report
    with archive_lock(reading) as lock:
        report = ArchiveReport(str(reading.name), directory.place.path, lock.epoch)
        due = list(_due(reading, report, older_than_s, bytes_min, anew))
        try:
            job = _Job(reading, directory, lock, report, slice_bytes, pin_s, bytes_per_s, frozenset(anew))
            for some in _together(due, slice_bytes):
                lock.check()
                job.copy(some, run or run_here)
        finally:
            if due:
                with contextlib.suppress(EmbedbkError):  # The pin ends by its time anyway.
                    run_blocking(unpin(reading, pin_name(lock.epoch)), "archive")
    return report


def pin_name(epoch: int) -> str:
    """The pin of one job: it moves none of the user's, and a job that lost the lock takes no other job's away."""
    return f"archive-{epoch}"


def run_here(reading: LogReading, tasks: Sequence[SliceTask]) -> Iterator[FileCopied]:
    for task in tasks:
        yield run_copy(reading, task)


def directory_of(client: Client, name: str, password: bytes) -> tuple[LogReading, ArchiveDirectory]:
    """The log by its id, so that a rename changes nothing, and its archive's directory.

    Raises UsageError: it has none. StorageError: it is not there."""
    reading = LogReading(client._runtime, name, Password(password))
    place = run_blocking(archive_place(reading), "archive")
    if place is None:
        raise UsageError(
            f"log {name!r} has no archive",
            hint="make a directory for it once: embedbk spark archive --create DIR",
        )
    directory = ArchiveDirectory(place)
    directory.check()
    return reading, directory


@contextlib.contextmanager
def archive_lock(reading: LogReading, timeout_s: float = 0.0) -> Iterator[ArchiveLock]:
    """The lock of the one job that may work on this log's archive.

    Raises OperationTimeout: another job holds it."""
    lock = ArchiveLock(reading.runtime, str(reading.name))
    run_blocking(lock.acquire(timeout_s), "archive")
    try:
        yield lock
    finally:
        lock.let_go()


Due = tuple[Segment, LedgerMetadata]


def _due(
    reading: LogReading, report: ArchiveReport, older_than_s: float, bytes_min: int, anew: Sequence[int]
) -> Iterator[Due]:
    runtime = reading.runtime
    records = run_blocking(archive_records(runtime, str(reading.name)), "archive")
    for segment in run_blocking(reading.segments(), "archive"):
        if not segment.is_closed or segment.last_entry < 0:
            continue
        record = records.get(segment.ledger_id)
        if record is not None and record.state != ArchiveState.COPYING and segment.ledger_id not in anew:
            report.before += 1
            continue
        key = ledger_key_path(segment.ledger_id)
        value, _ = run_blocking(runtime.get(key, f"reading ledger {segment.ledger_id}"), "archive")
        if value is None:
            continue  # It was truncated just now.
        try:
            metadata = decode_ledger_metadata(value, segment.ledger_id)
            if not metadata.is_closed or (metadata.length or 0) < bytes_min:
                continue
            last = Position(segment.ledger_id, segment.last_entry)
            time_ms = run_blocking(time_at(reading, last), "archive") if older_than_s > 0 else None
        except (MetadataUnavailable, WrongPassword):
            raise
        except (Truncated, NoSuchLedger):
            continue
        except EmbedbkError as untold:  # It keeps no other ledger from being copied.
            why = f"nobody can tell whether it is due: {untold}"
            entries, length = segment.last_entry + 1, segment.length or 0
            report.ledgers.append(
                LedgerCopied(segment.ledger_id, segment.first_offset, entries, length, "failed", why=why)
            )
            continue
        if time_ms is not None and time_ms > runtime.wall_ms() - older_than_s * 1000:
            return  # Times never fall along a log (P8.11).
        yield segment, metadata


def _together(due: Sequence[Due], slice_bytes: int) -> Iterator[list[Due]]:
    some: list[Due] = []
    tasks = 0
    for each in due:
        count = 1 + (each[1].length or 0) // slice_bytes
        if some and tasks + count > _TASKS_AT_ONCE:
            yield some
            some, tasks = [], 0
        some.append(each)
        tasks += count
    if some:
        yield some


def _outcome(segment: Segment, metadata: LedgerMetadata, outcome: str, why: str = "") -> LedgerCopied:
    entries, length = segment.last_entry + 1, metadata.length or 0
    return LedgerCopied(segment.ledger_id, segment.first_offset, entries, length, outcome, why=why)


@dataclass
class _Job:
    reading: LogReading
    directory: ArchiveDirectory
    lock: ArchiveLock
    report: ArchiveReport
    slice_bytes: int
    pin_s: float
    bytes_per_s: float | None
    anew: frozenset[int]

    def copy(self, due: Sequence[Due], run: CopyRunner) -> None:
        """Claim these ledgers, run their tasks, and record each whose files are all there."""
        claimed: dict[int, Due] = {}
        tasks: list[SliceTask] = []
        for segment, metadata in due:
            try:
                tasks += self._claimed(segment, metadata, due[0][0].first_offset)
                claimed[segment.ledger_id] = segment, metadata
            except (NoSuchLedger, Truncated) as gone:
                self.report.ledgers.append(_outcome(segment, metadata, "truncated", str(gone)))
            except LockLost:
                raise
            except (EmbedbkError, OSError) as failed:
                self.report.ledgers.append(_outcome(segment, metadata, "failed", str(failed)))
        done: dict[int, list[FileCopied]] = {ledger_id: [] for ledger_id in claimed}
        left = {ledger_id: sum(task.run.ledger_id == ledger_id for task in tasks) for ledger_id in claimed}
        for each in run(self.reading, tasks):
            ledger_id = each.run.ledger_id
            done[ledger_id].append(each)
            left[ledger_id] -= 1
            if not left[ledger_id]:
                self.report.ledgers.append(self._recorded(*claimed[ledger_id], done.pop(ledger_id)))
        for ledger_id in done:
            why = f"{left[ledger_id]} of its tasks gave no answer"
            self.report.ledgers.append(_outcome(*claimed[ledger_id], "failed", why))

    def _claimed(self, segment: Segment, metadata: LedgerMetadata, pin_offset: int) -> list[SliceTask]:
        assert metadata.last_entry is not None
        count = metadata.last_entry + 1
        files = max(1, -(-(metadata.length or 0) // self.slice_bytes))
        claim = Claim(max(1, -(-count // files)), segment.ledger_id in self.anew)
        record = self._step(segment.ledger_id, claim)
        with self.directory.ledger(str(self.reading.name), segment.ledger_id, makes=True) as files_there:
            files_there.sweep()
        return [
            SliceTask(
                self.directory,
                self.reading.given,
                EntryRun(
                    str(self.reading.name),
                    segment.ledger_id,
                    first,
                    min(first + record.slice_entries, count) - 1,
                    segment.first_offset,
                ),
                self.lock.epoch,
                pin_name(self.lock.epoch),
                pin_offset,
                self.pin_s,
                self.bytes_per_s,
            )
            for first in range(0, count, record.slice_entries)
        ]

    def _recorded(
        self, segment: Segment, metadata: LedgerMetadata, done: Sequence[FileCopied]
    ) -> LedgerCopied:
        parts = sorted(
            (each.part for each in done if each.part is not None), key=lambda part: part.first_entry
        )
        if len(parts) < len(done):
            is_gone = any(each.is_gone for each in done)
            why = next(each.why for each in done if each.part is None)
            return _outcome(segment, metadata, "truncated" if is_gone else "failed", why)
        try:
            if unlike := why_not_as_written(metadata, parts):
                self._put_aside(segment.ledger_id, parts)
                why = f"{unlike}: a bookie has other entries, and embedbk health says which; its copies stay"
                return _outcome(segment, metadata, "failed", why)
            self._step(segment.ledger_id, Copied(self._put_manifest(segment, metadata, parts)))
        except LockLost:
            raise
        except NoSuchLedger as gone:
            return _outcome(segment, metadata, "truncated", str(gone))
        except EmbedbkError as failed:
            return _outcome(segment, metadata, "failed", str(failed))
        file_bytes = sum(part.bytes for part in parts)
        logger.info(
            "log %r: ledger %d is archived in %d files of %d bytes",
            self.reading.given,
            segment.ledger_id,
            len(parts),
            file_bytes,
        )
        entries = segment.last_entry + 1
        return LedgerCopied(
            segment.ledger_id,
            segment.first_offset,
            entries,
            sum(part.payload_bytes for part in parts),
            "copied",
            len(parts),
            file_bytes,
        )

    def _put_aside(self, ledger_id: int, parts: Sequence[FilePart]) -> None:
        """Each of them is sound by itself, so that the next job would take them as they are."""
        self.lock.check()
        try:
            with self.directory.ledger(str(self.reading.name), ledger_id) as ledger:
                for part in parts:
                    ledger.set_aside(part.name)
        except OSError as failed:
            raise StorageError(f"files of ledger {ledger_id}: {failed}") from failed

    def _put_manifest(self, segment: Segment, metadata: LedgerMetadata, parts: Sequence[FilePart]) -> bytes:
        assert metadata.last_entry is not None
        log_id = str(self.reading.name)
        data = encode_manifest(
            Manifest(
                MANIFEST_VERSION,
                log_id,
                self.reading.given,
                segment.ledger_id,
                segment.first_offset,
                metadata.last_entry,
                ledger_facts(metadata),
                tuple(parts),
            )
        )
        sha256 = manifest_hash(data)
        name = manifest_name(sha256)
        self.lock.check()  # A job that lost the lock must not put aside files that another job recorded.
        try:
            with self.directory.ledger(log_id, segment.ledger_id) as ledger:
                # Files of other slices, or damaged ones: a reader of the directory would read their rows, too.
                kept = {part.name for part in parts}
                for other in ledger.names():
                    if other not in kept and not other.startswith("_"):
                        ledger.set_aside(other)
                try:
                    ledger.put(name, data)
                except FileExistsError:
                    if ledger.hash(name) != (sha256, len(data)):
                        ledger.set_aside(name)
                        ledger.put(name, data)
                    ledger.sync()
        except OSError as failed:
            raise StorageError(f"the manifest of ledger {segment.ledger_id}: {failed}") from failed
        return sha256

    def _step(self, ledger_id: int, step: Claim | Copied) -> ArchiveRecord:
        steps = change_archive(self.reading.runtime, str(self.reading.name), ledger_id, step, self.lock.epoch)
        return run_blocking(steps, "archive")
