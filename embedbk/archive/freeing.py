"""Freeing what is archived (P8.14): bookies give their copies up for files that were read again just before.

Decides which ledgers of a log are due, and that all of a ledger's files and its manifest are sound at that moment.
`core.freeing` decides whether the rest allows it, in the transaction itself. Each ledger that is freed, and each that
is kept, gives one line of the log "embedbk.archive".
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from embedbk.archive.copying import ByteRate, check_rate
from embedbk.archive.jobs import archive_lock, directory_of
from embedbk.archive.manifest import Manifest
from embedbk.archive.place import ArchiveDirectory
from embedbk.archive.verifying import Looked, VerifyReport, VerifyTask, manifest_of, run_look, tasks_of
from embedbk.client.archiving import (
    ArchiveLock,
    archive_records,
    change_archive,
    check_can_free,
    free_ledger,
)
from embedbk.client.batches import Segment
from embedbk.client.client import Client
from embedbk.client.log_reading import LogReading
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import ArchiveRecord, ArchiveState
from embedbk.config import check_flag
from embedbk.core.archiving import Doubted
from embedbk.core.freeing import FreeTerms, Kept
from embedbk.errors import EmbedbkError, LockLost, NoSuchLedger, NotFreed, UsageError

__all__ = ["KEEP_LAG_S", "FreeReport", "LedgerFreed", "free"]

logger = logging.getLogger("embedbk.archive")

KEEP_LAG_S = 4 * 3600.0
KEEP_LAG_S_MAX = 1e10  # Three centuries.

LookRunner = Callable[[LogReading, Sequence[VerifyTask]], Iterable[Looked]]


@dataclass(frozen=True)
class LedgerFreed:
    """What became of one ledger: "freed", "planned" (of a dry run), "kept" or "failed"; `why` of these two, and `kept`
    in a word: "unverified", "young", "open", "lost", "pin", "cursor", "repair", "damaged", "truncated"."""

    ledger_id: int
    first_offset: int
    entries: int
    payload_bytes: int
    outcome: str
    kept: str = ""
    why: str = ""


@dataclass
class FreeReport:
    log_id: str
    place: str
    epoch: int
    before: int = 0  # Ledgers that were freed already.
    ledgers: list[LedgerFreed] = field(default_factory=list)

    @property
    def freed(self) -> list[int]:
        return [each.ledger_id for each in self.ledgers if each.outcome == "freed"]

    @property
    def code(self) -> int:
        """The exit code of a command: 0 all is well, 2 a file is damaged, 3 some ledgers could not be judged."""
        if any(each.kept == "damaged" for each in self.ledgers):
            return 2
        return 3 if any(each.outcome == "failed" for each in self.ledgers) else 0


def free(
    client: Client,
    name: str,
    *,
    password: bytes = b"",
    keep_lag_s: float | None = KEEP_LAG_S,
    ledgers: Sequence[int] | None = None,
    dry_run: bool = False,
    run: LookRunner | None = None,
    bytes_per_s: float | None = None,
) -> FreeReport:
    """Free the closed ledgers of a log whose archive is verified: their bookies drop their copies soon after, and
    readers go on in the files, behind the same handles. `restoring_in_place.restore_in_place` is the way back.

    Args:
        keep_lag_s: how long an archive must have been VERIFIED; None: for ever, so that nothing is freed.
        ledgers: only these; None: all.
        dry_run: nothing is changed; files are read, and what is due is "planned". Pins and cursors are not looked at.
        run: how files are read; None: one after the other, in this process.
        bytes_per_s: so much is read of files in a second, on the average. On Spark the files of one ledger are read at
            once, and the wait is behind them.

    Raises:
        UsageError: the log has no archive, or the cluster's level is too low.
        StorageError: the archive is not there, or another one.
        OperationTimeout: another job works on the archive of this log.
        LockLost: the session ended meanwhile; ledgers already freed stay freed.
    """
    if keep_lag_s is not None and (
        isinstance(keep_lag_s, bool)
        or not isinstance(keep_lag_s, int | float)
        or not 0 <= keep_lag_s <= KEEP_LAG_S_MAX
    ):
        raise UsageError(
            f"keep_lag_s={keep_lag_s!r}: allowed are seconds from 0 to {KEEP_LAG_S_MAX:.0f}, or None for ever"
        )
    check_flag(dry_run, "dry_run")
    check_rate(bytes_per_s)
    check_can_free(client._runtime, name)
    reading, directory = directory_of(client, name, password)
    with archive_lock(reading) as lock:
        report = FreeReport(str(reading.name), directory.place.path, lock.epoch)
        job = _FreeJob(
            reading, directory, lock, report, keep_lag_s, dry_run, run or run_here, ByteRate(bytes_per_s)
        )
        records = run_blocking(archive_records(reading.runtime, report.log_id), "archive")
        for segment in run_blocking(reading.segments(), "archive"):
            is_wanted = ledgers is None or segment.ledger_id in ledgers
            if is_wanted and segment.is_closed and segment.last_entry >= 0:
                lock.check()
                job.take(segment, records.get(segment.ledger_id))
    return report


def run_here(reading: LogReading, tasks: Sequence[VerifyTask]) -> Iterator[Looked]:
    for task in tasks:
        yield run_look(reading, task)


@dataclass
class _FreeJob:
    reading: LogReading
    directory: ArchiveDirectory
    lock: ArchiveLock
    report: FreeReport
    keep_lag_s: float | None
    dry_run: bool
    run: LookRunner
    pace: ByteRate

    def take(self, segment: Segment, record: ArchiveRecord | None) -> None:
        """Free one ledger if it is due; the report has the outcome."""
        try:
            metadata = self._metadata(segment.ledger_id)
            if metadata.freed is not None:
                self.report.before += 1
                return
            self._free(segment, metadata, record)
            self._note(segment, "planned" if self.dry_run else "freed")
        except LockLost:
            raise
        except NotFreed as kept:
            self._note(segment, "kept", kept.kept, str(kept))
        except NoSuchLedger as gone:
            self._note(segment, "kept", "truncated", str(gone))
        except (EmbedbkError, OSError) as untold:
            self._note(segment, "failed", "", f"{type(untold).__name__}: {untold}")

    def _note(self, segment: Segment, outcome: str, kept: str = "", why: str = "") -> None:
        entries, length = segment.last_entry + 1, segment.length or 0
        made = LedgerFreed(segment.ledger_id, segment.first_offset, entries, length, outcome, kept, why)
        self.report.ledgers.append(made)
        level = logging.WARNING if outcome == "failed" or kept == "damaged" else logging.INFO
        logger.log(
            level,
            "log %r: ledger %d is %s%s",
            self.reading.given,
            segment.ledger_id,
            outcome,
            f": {why}" if why else "",
        )

    def _metadata(self, ledger_id: int) -> LedgerMetadata:
        what = f"reading ledger {ledger_id}"
        value, _ = run_blocking(self.reading.runtime.get(ledger_key_path(ledger_id), what), "archive")
        if value is None:
            raise NoSuchLedger(f"ledger {ledger_id} of log {self.reading.given!r} is gone")
        return decode_ledger_metadata(value, ledger_id)

    def _free(self, segment: Segment, metadata: LedgerMetadata, record: ArchiveRecord | None) -> None:
        """Free one ledger. Raises NotFreed, or another error that prevents it."""
        runtime = self.reading.runtime
        # Checked before all of it is read. The transaction checks the record again, and decides.
        if record is None or record.state != ArchiveState.VERIFIED:
            raise _kept(Kept.UNVERIFIED.value, "no archive of it is verified")
        if self.keep_lag_s is None:
            raise _kept(Kept.YOUNG.value, "copies are kept for ever")
        keep_lag_ms = int(self.keep_lag_s * 1000)
        if runtime.wall_ms() - record.changed_ms < keep_lag_ms:
            raise _kept(Kept.YOUNG.value, f"it was not verified {self.keep_lag_s:g} s ago")
        self._is_sound(segment, metadata, record)
        if self.dry_run:
            return
        terms = FreeTerms(
            record.manifest,
            self.directory.place,
            segment.first_offset + segment.last_entry + 1,
            keep_lag_ms,
            runtime.owner(),
        )
        steps = free_ledger(runtime, self.report.log_id, segment.ledger_id, terms, self.lock.epoch)
        run_blocking(steps, "archive")

    def _is_sound(self, segment: Segment, metadata: LedgerMetadata, record: ArchiveRecord) -> None:
        """Read all files of the manifest that counts. Raises NotFreed: one is not sound, or cannot be judged now."""
        manifest, looks = read_files(self.reading, self.directory, self.lock, record, self.run, self.pace)
        if manifest is not None:
            _compare(manifest, segment, metadata)
        if looks.findings:
            raise _kept("damaged", f"its archive is not sound any more: {told(looks)}")
        if looks.incomplete or manifest is None:
            raise EmbedbkError(f"nobody can tell whether its files are sound: {looks.incomplete}")


def read_files(
    reading: LogReading,
    directory: ArchiveDirectory,
    lock: ArchiveLock,
    record: ArchiveRecord,
    run: LookRunner,
    pace: ByteRate,
) -> tuple[Manifest | None, VerifyReport]:
    """Read all files of the manifest that the record names. What is found wrong takes VERIFIED back."""
    looks = VerifyReport(str(reading.name), directory.place.path, lock.epoch)
    manifest = manifest_of(reading, directory, record, looks)
    if manifest is not None:
        tasks = list(tasks_of(directory, manifest, 1.0, False))
        for task, each in zip(tasks, run(reading, tasks), strict=True):
            pace.passed(task.part.bytes)
            looks.findings += each.findings
            if each.incomplete:
                looks.incomplete.append((record.ledger_id, each.incomplete))
    if looks.findings:
        step = Doubted(record.manifest)
        steps = change_archive(reading.runtime, looks.log_id, record.ledger_id, step, lock.epoch)
        with contextlib.suppress(NoSuchLedger):  # Nothing is recorded about a ledger that is gone.
            run_blocking(steps, "archive")
    return manifest, looks


def told(looks: VerifyReport) -> str:
    return ", ".join(f"{each.file}: {each.kind}: {each.why}" for each in looks.findings[:3])


def _compare(manifest: Manifest, segment: Segment, metadata: LedgerMetadata) -> None:
    """Raises NotFreed: the manifest is of another ledger than the log lists, or covers only a part of it."""
    has = (manifest.first_offset, manifest.last_entry, sum(part.payload_bytes for part in manifest.files))
    wanted = (segment.first_offset, metadata.last_entry, metadata.length)
    if has != wanted:
        raise _kept(
            "damaged",
            f"first offset, last entry and length are {has} in its manifest, and {wanted} of the ledger",
        )


def _kept(kept: str, why: str) -> NotFreed:
    error = NotFreed(f"{why}; nothing was changed")
    error.kept = kept
    return error
