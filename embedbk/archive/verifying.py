"""Looking through the archive of a log (P8.14): every file, every page, every entry, and bookies' copies on request.

Decides what is wrong with a ledger's files, and what follows: a ledger whose files are all read and sound is VERIFIED,
if the job's epoch is later than its writer's; a finding takes that back. A file that cannot be read now changes
nothing.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from embedbk.archive.columns import digest_sum
from embedbk.archive.files import EntryRun, summed
from embedbk.archive.jobs import archive_lock, directory_of
from embedbk.archive.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_PREFIX,
    FilePart,
    Manifest,
    decode_manifest,
    manifest_hash,
    manifest_name,
    why_not_as_written,
)
from embedbk.archive.place import ArchiveDirectory
from embedbk.client.archiving import archive_records, change_archive
from embedbk.client.client import Client
from embedbk.client.iterating import iterate
from embedbk.client.log_reading import LogReading
from embedbk.client.waiting import run_blocking
from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import ArchiveRecord, ArchiveState
from embedbk.config import check_flag
from embedbk.core.archiving import Doubted, Verified
from embedbk.errors import (
    EmbedbkError,
    LockLost,
    NoSuchLedger,
    PeerError,
    StorageError,
    Truncated,
    UsageError,
)
from embedbk.ids import Position

__all__ = [
    "ArchiveFinding",
    "Looked",
    "VerifyReport",
    "VerifyTask",
    "look",
    "manifest_of",
    "run_look",
    "tasks_of",
    "verify_archive",
]

logger = logging.getLogger("embedbk.archive")


NO_LEDGER = -1


class ArchiveFinding(NamedTuple):
    """What is wrong. kind: manifest, missing, size, hash, file, foreign, differs (from bookies), metadata,
    written (not as the ledger's writer published it), unrecorded. ledger_id: -1 where it is no ledger's."""

    ledger_id: int
    kind: str
    file: str
    why: str


@dataclass(frozen=True)
class VerifyTask:
    """One file that a manifest names."""

    directory: ArchiveDirectory
    run: EntryRun
    part: FilePart
    is_read: bool  # False: check only that it is there, with its size.
    asks_bookies: bool


@dataclass(frozen=True)
class Looked:
    """What was found in one file; incomplete: why it could not be judged."""

    run: EntryRun
    findings: tuple[ArchiveFinding, ...] = ()
    incomplete: str = ""


@dataclass
class VerifyReport:
    log_id: str
    place: str
    epoch: int
    findings: list[ArchiveFinding] = field(default_factory=list)
    incomplete: list[tuple[int, str]] = field(default_factory=list)  # Ledger, and why it could not be judged.
    verified: list[int] = field(default_factory=list)  # Ledgers of which all files were read and are sound.
    files: int = 0
    entries: int = 0  # Entries in the files that were read.

    @property
    def code(self) -> int:
        """The exit code of a command: 0 clean, 2 findings, 3 incomplete."""
        return 2 if self.findings else 3 if self.incomplete else 0


LookRunner = Callable[[LogReading, Sequence[VerifyTask]], Iterable[Looked]]


def verify_archive(
    client: Client,
    name: str,
    *,
    password: bytes = b"",
    sample: float = 1.0,
    against_bookies: bool = False,
    run: LookRunner | None = None,
) -> VerifyReport:
    """Read what is archived of a log, and find what is wrong with it.

    Args:
        sample: the share of files that are read; of the others only size and presence. Below 1 nothing is recorded as
            verified. The same files each time.
        against_bookies: also read the entries that bookies hold, of ledgers that the log still lists, and compare.
        run: how tasks are run; None: one after the other, in this process.

    Raises:
        UsageError: the log has no archive. StorageError: it is not there.
        OperationTimeout: another job works on the archive of this log. LockLost: as `archive`.
    """
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
        raise UsageError(f"sample={sample!r}: allowed are shares above 0, up to 1")
    check_flag(against_bookies, "against_bookies")
    reading, directory = directory_of(client, name, password)
    log_id = str(reading.name)
    with archive_lock(reading) as lock:
        report = VerifyReport(log_id, directory.place.path, lock.epoch)
        records = run_blocking(archive_records(reading.runtime, log_id), "archive")
        manifests: dict[int, Manifest] = {}
        tasks: list[VerifyTask] = []
        for ledger_id, record in sorted(records.items()):
            if record.state == ArchiveState.COPYING:
                continue
            manifest = manifest_of(reading, directory, record, report)
            if manifest is not None:
                manifests[ledger_id] = manifest
                tasks += tasks_of(directory, manifest, sample, against_bookies)
        report.findings += _unrecorded(directory, log_id, records)
        bad = {each.ledger_id for each in report.findings} | {each for each, _ in report.incomplete}
        untold = {task.run for task in tasks}
        for looked in (run or run_here)(reading, tasks):
            untold.discard(looked.run)
            report.findings += looked.findings
            if looked.incomplete:
                report.incomplete.append((looked.run.ledger_id, looked.incomplete))
            if looked.findings or looked.incomplete:
                bad.add(looked.run.ledger_id)
        for each in sorted(untold):
            why = f"the task that looks at its entries {each.first}..{each.last} gave no answer"
            report.incomplete.append((each.ledger_id, why))
            bad.add(each.ledger_id)
        report.files = len(tasks)
        report.entries = sum(
            task.part.last_entry - task.part.first_entry + 1 for task in tasks if task.is_read
        )
        doubted = {each.ledger_id for each in report.findings}
        for ledger_id, record in sorted(records.items()):
            if record.state == ArchiveState.COPYING:
                continue
            if ledger_id in doubted:
                _record(reading, report, record, Doubted(record.manifest))
            elif ledger_id not in bad and sample == 1:
                _record(reading, report, record, Verified(record.manifest))
    return report


def run_here(reading: LogReading, tasks: Sequence[VerifyTask]) -> Iterator[Looked]:
    for task in tasks:
        yield run_look(reading, task)


def _record(
    reading: LogReading, report: VerifyReport, record: ArchiveRecord, step: Verified | Doubted
) -> None:
    try:
        steps = change_archive(reading.runtime, report.log_id, record.ledger_id, step, report.epoch)
        run_blocking(steps, "archive")
    except LockLost:
        raise
    except NoSuchLedger:
        pass  # Truncated: its files stay, and bookies have no copies left to give up.
    except EmbedbkError as failed:
        report.incomplete.append((record.ledger_id, f"what was found is not recorded: {failed}"))
        return
    if isinstance(step, Verified):
        report.verified.append(record.ledger_id)


def manifest_of(
    reading: LogReading, directory: ArchiveDirectory, record: ArchiveRecord, report: VerifyReport
) -> Manifest | None:
    """The manifest that counts, and what stands beside its files; None where it says nothing."""
    ledger_id, log_id = record.ledger_id, report.log_id
    name = manifest_name(record.manifest)

    def finding(kind: str, file: str, why: object) -> None:
        report.findings.append(ArchiveFinding(ledger_id, kind, file, str(why)))

    try:
        with directory.ledger(log_id, ledger_id) as ledger:
            names = ledger.names()
            try:
                data = ledger.read(name, MANIFEST_BYTES_MAX)
            except StorageError as other:
                finding("manifest", name, other)  # Something else than a file has its name, or a longer one.
                return None
            except OSError as failed:
                if failed.errno != errno.ELOOP:
                    raise
                finding("manifest", name, "a link stands in its place")
                return None
        if manifest_hash(data) != record.manifest:
            finding("manifest", name, f"its SHA-256 is not {record.manifest.hex()}, which the metadata has")
            return None
        manifest = decode_manifest(data, log_id, ledger_id)
        metadata = _metadata(reading, ledger_id)
    except FileNotFoundError as gone:
        finding("missing", name, f"the manifest is not there: {gone}")
        return None
    except (EmbedbkError, OSError) as untold:
        report.incomplete.append((ledger_id, f"{name}: {untold}"))
        return None
    if metadata is not None and metadata.last_entry != manifest.last_entry:
        finding(
            "metadata",
            name,
            f"it ends at entry {manifest.last_entry}, and the ledger at {metadata.last_entry}",
        )
    elif metadata is not None and (unlike := why_not_as_written(metadata, manifest.files)):
        finding("written", name, unlike)
    known = {part.name for part in manifest.files}
    for each in names:
        if each not in known and not each.startswith("_"):
            finding(
                "foreign", each, "the manifest does not name it, and who reads the directory reads it, too"
            )
        elif each.startswith(MANIFEST_PREFIX) and each != name:
            logger.info("ledger %d of log %r has an older manifest, %s", ledger_id, log_id, each)
    return manifest


def _metadata(reading: LogReading, ledger_id: int) -> LedgerMetadata | None:
    key = ledger_key_path(ledger_id)
    value, _ = run_blocking(reading.runtime.get(key, f"reading ledger {ledger_id}"), "archive")
    return None if value is None else decode_ledger_metadata(value, ledger_id)


def _unrecorded(
    directory: ArchiveDirectory, log_id: str, records: dict[int, ArchiveRecord]
) -> Iterator[ArchiveFinding]:
    for name in directory.strange(log_id):
        why = "it is the directory of no ledger, and who reads the archive reads it, too"
        yield ArchiveFinding(NO_LEDGER, "foreign", name, why)
    for ledger_id in directory.ledgers(log_id):
        if ledger_id not in records:
            why = "files are there, and the metadata knows of no archive of this ledger"
            yield ArchiveFinding(ledger_id, "unrecorded", f"ledger={ledger_id}", why)


def tasks_of(
    directory: ArchiveDirectory, manifest: Manifest, sample: float, asks_bookies: bool
) -> Iterator[VerifyTask]:
    for part in manifest.files:
        run = EntryRun(
            manifest.log_id, manifest.ledger_id, part.first_entry, part.last_entry, manifest.first_offset
        )
        drawn = int.from_bytes(hashlib.sha256(f"{manifest.log_id}/{part.name}".encode()).digest()[:8], "big")
        is_read = drawn < sample * 2**64
        yield VerifyTask(directory, run, part, is_read, asks_bookies and is_read)


# --- What a task does ---------------------------------------------------------------------------------------


def run_look(reading: LogReading, task: VerifyTask) -> Looked:
    """As `look`, but an error is part of the answer."""
    try:
        return Looked(task.run, tuple(look(reading, task)))
    except (EmbedbkError, OSError, MemoryError) as untold:
        return Looked(task.run, (), f"{task.part.name}: {type(untold).__name__}: {untold}")


def look(reading: LogReading, task: VerifyTask) -> Iterator[ArchiveFinding]:
    """What is wrong with one file. Raises the error if that cannot be judged."""
    run, part = task.run, task.part

    def finding(kind: str, why: object) -> ArchiveFinding:
        return ArchiveFinding(run.ledger_id, kind, part.name, str(why))

    with task.directory.ledger(run.log_id, run.ledger_id) as ledger:
        try:
            with ledger.reading(part.name) as file:
                size = file.seek(0, 2)
                if size != part.bytes:
                    yield finding("size", f"it has {size} bytes, want {part.bytes}")
                if not task.is_read:
                    return
            sha256, _ = ledger.hash(part.name)
            if sha256.hex() != part.sha256:
                yield finding("hash", f"its SHA-256 is {sha256.hex()}, want {part.sha256}")
            with ledger.reading(part.name) as file:
                found = summed(file, run)
        except FileNotFoundError:
            yield finding("missing", "it is not there")
            return
        except StorageError as other:
            yield finding("file", other)  # Something else than a file has its name.
            return
        except PeerError as damaged:
            yield finding("file", damaged)
            return
        except OSError as failed:
            if failed.errno == errno.ELOOP:
                yield finding("file", "a link stands in its place")
                return
            raise
    told = (found.rows, found.payload_bytes, f"{found.digest:016x}")
    if told != (part.rows, part.payload_bytes, part.digest):
        yield finding("file", f"its rows, payload bytes and digest are {told}, want those of the manifest")
    if task.asks_bookies:
        digest = _held_by_bookies(reading, run)
        if digest is not None and digest != found.digest:
            yield finding(
                "differs", f"the digest of its entries is {found.digest:016x}, of bookies {digest:016x}"
            )


def _held_by_bookies(reading: LogReading, run: EntryRun) -> int | None:
    """The digest of these entries, read anew; None: the log does not list them any more."""
    begin, end = Position(run.ledger_id, run.first), Position(run.ledger_id, run.last + 1)
    digest, following = 0, run.first
    try:
        frames: Iterable[Any] = iterate(reading.read(begin, end, is_stored=True), "archive")
        for located in frames:
            digest = (digest + digest_sum(located.frame.body)) & DIGEST_MASK
            following = located.frame.last_entry + 1
    except (Truncated, NoSuchLedger):
        return None
    if following != run.last + 1:
        raise StorageError(f"bookies give the entries {run.first}..{following - 1} now, of up to {run.last}")
    return digest
