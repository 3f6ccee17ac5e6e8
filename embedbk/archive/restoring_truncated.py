"""Putting truncated ledgers back in front of their log by their files (P8.16): same ids, same positions and offsets.

Decides which ledgers have files for that, and reads all files of each before it comes back, from the newest to the
oldest. `client/undeleting_files.py` makes the transaction. What came back is freed, as by `free`: its files are its
copies until `restore_in_place` brings it to bookies. Each ledger is one line of the log "embedbk.archive".
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from embedbk.archive.copying import ByteRate, check_rate
from embedbk.archive.freeing import LookRunner, read_files, run_here, told
from embedbk.archive.jobs import archive_lock, directory_of
from embedbk.archive.manifest import (
    MANIFEST_BYTES_MAX,
    Manifest,
    decode_manifest,
    manifest_hash,
    manifest_name,
    metadata_of,
)
from embedbk.archive.place import ArchiveDirectory
from embedbk.client.archiving import archive_records, check_can_free
from embedbk.client.client import Client
from embedbk.client.log_reading import LogReading
from embedbk.client.undeleting_files import Filed, next_in_front, put_in_front
from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import BY_CHARS, Freed
from embedbk.codec.log_archives import ArchiveRecord, ArchiveState
from embedbk.codec.log_list import LogSegment
from embedbk.config import check_flag
from embedbk.core.fronting import run_before
from embedbk.errors import EmbedbkError, MetadataConflict, NoSuchLedger, StorageError, UsageError

__all__ = ["LedgerInFront", "TruncatedReport", "restore_truncated"]

logger = logging.getLogger("embedbk.archive")


@dataclass(frozen=True)
class LedgerInFront:
    """One ledger that came back, "restored", or that is due in a dry run, "planned"."""

    ledger_id: int
    first_offset: int
    entries: int
    payload_bytes: int
    outcome: str


@dataclass
class TruncatedReport:
    """began, begins: the offsets where the log began before, and begins now. why: why it went no further; empty: all
    that was asked for is there."""

    log_id: str
    place: str
    epoch: int
    began: int = 0
    begins: int = 0
    ledgers: list[LedgerInFront] = field(default_factory=list)
    why: str = ""
    unread: list[str] = field(default_factory=list)  # Manifests that could not be read, each with the reason.

    @property
    def code(self) -> int:
        """The exit code of a command: 0 all that was asked for is there, 3 some of it is not."""
        return 3 if self.why else 0


def restore_truncated(
    client: Client,
    name: str,
    *,
    password: bytes = b"",
    from_offset: int = 0,
    dry_run: bool = False,
    run: LookRunner | None = None,
    bytes_per_s: float | None = None,
) -> TruncatedReport:
    """Put ledgers that truncation took off this log back in front of it, whole, down to the one with this offset.

    Each needs an archive that is VERIFIED. Its manifest and all its files are read first; a ledger that is not sound,
    or of which nothing is archived, ends the run there. Retention and bounds of the log count from their next look on.

    Args:
        from_offset: the ledger that has it is the last that comes back.
        dry_run: nothing is changed, and no file but the manifests is read; what is due is "planned".
        run: how files are read; None: one after the other, in this process.
        bytes_per_s: so much is read of files in a second, on the average.

    Raises:
        UsageError: the log has no archive, or the cluster's level is too low.
        StorageError: the archive is not there, or another one. WrongPassword.
        OperationTimeout: another job works on the archive of this log.
        LockLost: the session ended meanwhile; ledgers that came back stay.
    """
    if isinstance(from_offset, bool) or not isinstance(from_offset, int) or from_offset < 0:
        raise UsageError(f"from_offset={from_offset!r}: allowed are offsets of the log, from 0 on")
    check_flag(dry_run, "dry_run")
    check_rate(bytes_per_s)
    check_can_free(client._runtime, name)
    reading, directory = directory_of(client, name, password)
    pace = ByteRate(bytes_per_s)
    with archive_lock(reading) as lock:
        report = TruncatedReport(str(reading.name), directory.place.path, lock.epoch)
        log_list = run_blocking(reading.listed(), "archive")
        report.began = report.begins = log_list.first_offset
        records = run_blocking(archive_records(reading.runtime, report.log_id), "archive")
        filed = _filed(reading, directory, records, report)
        if dry_run:
            return _planned(report, name, filed, from_offset)
        while report.begins > from_offset:
            lock.check()
            try:
                ledger_id = run_blocking(next_in_front(reading, filed), "archive").segment.ledger_id
                manifest, looks = read_files(
                    reading, directory, lock, records[ledger_id], run or run_here, pace
                )
                if looks.findings:
                    raise StorageError(
                        f"ledger {ledger_id}: its archive is not sound any more: {told(looks)}"
                    )
                if looks.incomplete or manifest is None:
                    raise StorageError(
                        f"ledger {ledger_id}: nobody can tell whether its files are sound: {looks.incomplete}"
                    )
                listed = run_blocking(put_in_front(reading, filed, ledger_id, lock.epoch), "archive")
            except (NoSuchLedger, MetadataConflict, StorageError, OSError) as left:
                report.why = str(left)
                logger.warning("log %r begins at offset %d now: %s", name, report.begins, left)
                break
            _note(report, name, filed[ledger_id].segment, "restored")
            report.begins = listed.first_offset
    return report


def _filed(
    reading: LogReading,
    directory: ArchiveDirectory,
    records: dict[int, ArchiveRecord],
    report: TruncatedReport,
) -> dict[int, Filed]:
    """The ledgers with a verified archive that the log does not list, by their manifests."""
    listed = {each.ledger_id for each in run_blocking(reading.segments(), "archive")}
    filed = {}
    for ledger_id, record in sorted(records.items()):
        if ledger_id in listed or record.state != ArchiveState.VERIFIED:
            continue
        try:
            manifest = _manifest(directory, report.log_id, record)
            freed = Freed(
                directory.place.archive_id,
                directory.place.path,
                record.manifest,
                reading.runtime.wall_ms(),
                reading.runtime.owner()[:BY_CHARS],
            )
            metadata = metadata_of(manifest, reading.password.verifier, freed)
        except (EmbedbkError, OSError) as unread:
            report.unread.append(f"ledger {ledger_id}: {type(unread).__name__}: {unread}")
            continue
        segment = LogSegment(
            ledger_id,
            manifest.first_offset,
            manifest.last_entry,
            metadata.created_ms,
            length=metadata.length,
        )
        filed[ledger_id] = Filed(segment, metadata)
    return filed


def _manifest(directory: ArchiveDirectory, log_id: str, record: ArchiveRecord) -> Manifest:
    with directory.ledger(log_id, record.ledger_id) as files:
        data = files.read(manifest_name(record.manifest), MANIFEST_BYTES_MAX)
    if manifest_hash(data) != record.manifest:
        raise StorageError(f"its manifest is not the one with SHA-256 {record.manifest.hex()}")
    return decode_manifest(data, log_id, record.ledger_id)


def _planned(
    report: TruncatedReport, name: str, filed: dict[int, Filed], from_offset: int
) -> TruncatedReport:
    while report.begins > from_offset:
        run = run_before(report.begins, [each.segment for each in filed.values()])
        if not run:
            report.why = f"no verified ledger of the archive ended at offset {report.begins}, where the log would begin"
            break
        for segment in reversed(run):
            if report.begins > from_offset:
                _note(report, name, segment, "planned")
                report.begins = segment.first_offset or 0
    return report


def _note(report: TruncatedReport, name: str, segment: LogSegment, outcome: str) -> None:
    assert segment.first_offset is not None and segment.last_entry is not None
    made = LedgerInFront(
        segment.ledger_id, segment.first_offset, segment.last_entry + 1, segment.length or 0, outcome
    )
    report.ledgers.append(made)
    logger.info("log %r: truncated ledger %d is %s", name, segment.ledger_id, outcome)
