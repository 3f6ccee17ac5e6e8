"""Putting archived entries back into a log, behind what it has: new ledgers, spliced in at once (P8.5, P8.14).

Decides which manifests count, that nothing is left out in the middle, and that every byte is checked before it is
appended. Entries get new positions and offsets and the time of the splice; payloads, and the parts of atomic batches,
stay. Bringing back the same ledgers at the same positions is not built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from embedbk.archive.files import EntryRun, sound_rows
from embedbk.archive.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_PREFIX,
    FilePart,
    Manifest,
    decode_manifest,
    manifest_hash,
    manifest_name,
)
from embedbk.archive.place import ArchiveDirectory
from embedbk.archive.transactions import answered, done_before, given_up_unless_done, is_done_by_another
from embedbk.client.archiving import archive_records
from embedbk.client.client import Client
from embedbk.client.compression import unpacked
from embedbk.client.ledger import LedgerWriter
from embedbk.client.log import Log
from embedbk.client.splicing import SpliceOutcome, Staging
from embedbk.client.waiting import run_blocking
from embedbk.codec.attributes import AttributeKind, claim_of, value_of
from embedbk.codec.entry_records import EntryRecord, records_in
from embedbk.codec.log_archives import ArchiveState
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX
from embedbk.errors import OperationTimeout, PeerError, StorageError, UsageError

__all__ = ["Restored", "RestoreTask", "restore", "stage_files"]


@dataclass(frozen=True)
class RestoreTask:
    """Files whose entries become one staged ledger, in this order; begin..end are dense offsets, `end` left out."""

    directory: ArchiveDirectory
    staging: Staging
    files: tuple[tuple[EntryRun, FilePart], ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Restored:
    """The entries' place in the log; None: there were none. entries: of this transaction; 0: it was done before."""

    outcome: SpliceOutcome | None
    entries: int


StageRunner = Callable[[Log, Sequence[RestoreTask]], Iterable[int]]


def restore(
    client: Client,
    into: str,
    directory: ArchiveDirectory,
    log_id: str,
    *,
    password: bytes = b"",
    begin: int | None = None,
    end: int | None = None,
    application: str | None = None,
    number: int = 0,
    run: StageRunner | None = None,
) -> Restored:
    """Append what is archived of the log of this id to the log `into`, all at once.

    Args:
        begin, end: dense offsets of the archived log, `end` left out; None: all that is archived.
        application, number: the same ones again, or a lower number, append nothing (`Log.staging`); None: a
            transaction that is not run again.
        run: how tasks are run; None: one after the other, in this process.

    Raises:
        UsageError: nothing is archived there, there is a gap in the middle, or begin is behind end.
        StorageError: the archive is not there, or damaged; the message names the file. Or a recorded ledger has no
            directory there, or is being copied anew, and begin or end is None. Nothing was appended.
        What `Log.splice` raises.
    """
    log = client.log(into, password=password)
    terms = log.staging(application, number)
    done = done_before(log, application, number)
    if done is not None:
        return Restored(done, 0)
    manifests = list(_manifests(client, directory, log_id, is_bounded=None not in (begin, end)))
    first, last = _bounds(manifests, log_id, begin, end)
    chosen = [
        (EntryRun(log_id, each.ledger_id, part.first_entry, part.last_entry, each.first_offset), part)
        for each in manifests
        for part in each.files
        if each.first_offset + part.first_entry < last and each.first_offset + part.last_entry >= first
    ]
    if first >= last:
        return Restored(None, 0)
    tasks = [RestoreTask(directory, terms, some, first, last) for some in _dealt(chosen)]
    with given_up_unless_done(log, terms):
        outcome = log.splice(terms, answered((run or run_here)(log, tasks), tasks))
    return Restored(outcome, 0 if is_done_by_another(outcome, terms) else last - first)


def run_here(log: Log, tasks: Sequence[RestoreTask]) -> Iterator[int]:
    for task in tasks:
        yield stage_files(log, task)


def _manifests(
    client: Client, directory: ArchiveDirectory, log_id: str, *, is_bounded: bool
) -> Iterator[Manifest]:
    """The manifests in the order of the log: those that count by the metadata; for a log that it does not know, all
    that are there. is_bounded: what is wanted has a first and a last offset, so that a ledger that lacks is a gap."""
    records = run_blocking(archive_records(client._runtime, log_id), "archive")
    there, found = directory.ledgers(log_id), []
    recorded = (each.ledger_id for each in records.values() if each.state != ArchiveState.COPYING)
    if there and not is_bounded and (absent := sorted({*recorded} - {*there})):
        raise StorageError(
            f"log {log_id!r}: of {len(absent)} archived ledgers nothing is in {directory.place.path!r}, the first of "
            f"them ledger {absent[0]}: which offsets they have nobody can tell, so all of it cannot be restored",
            hint="put their directories back, or say from which offset, and up to which one, is to be restored",
        )
    for ledger_id in there:
        read = _read_manifests(directory, log_id, ledger_id)
        record = records.get(ledger_id)
        if record is not None and record.state == ArchiveState.COPYING:
            if read and not is_bounded:
                raise StorageError(
                    f"log {log_id!r}: ledger {ledger_id} is being copied anew, or the job that did it died, and no "
                    "manifest of it counts: all of the log cannot be restored",
                    hint="archive the log, or say from which offset, and up to which one, is to be restored",
                )
            continue
        if record is not None:
            name = manifest_name(record.manifest)
            if name not in read or manifest_hash(read[name]) != record.manifest:
                raise StorageError(
                    f"ledger {ledger_id} of log {log_id!r}: its manifest {name} is damaged or not there"
                )
            found.append(decode_manifest(read[name], log_id, ledger_id))
            continue
        sound = [
            decode_manifest(data, log_id, ledger_id)
            for name, data in read.items()
            if manifest_name(manifest_hash(data)) == name
        ]
        same = {(each.first_offset, tuple((part.name, part.digest) for part in each.files)) for each in sound}
        if len(same) > 1 or (read and not sound):
            raise StorageError(
                f"ledger {ledger_id} of log {log_id!r} has {len(read)} manifests, {len(sound)} of them sound, and the "
                "metadata does not say which counts"
            )
        found += sound[:1]
    return iter(sorted(found, key=lambda each: each.first_offset))


def _read_manifests(directory: ArchiveDirectory, log_id: str, ledger_id: int) -> dict[str, bytes]:
    try:
        with directory.ledger(log_id, ledger_id) as ledger:
            names = [name for name in ledger.names() if name.startswith(MANIFEST_PREFIX)]
            return {name: ledger.read(name, MANIFEST_BYTES_MAX) for name in names}
    except OSError as failed:
        raise StorageError(
            f"ledger {ledger_id} of log {log_id!r}: its manifests cannot be read: {failed}"
        ) from failed


def _bounds(
    manifests: Sequence[Manifest], log_id: str, begin: int | None, end: int | None
) -> tuple[int, int]:
    if not manifests:
        raise UsageError(f"nothing of log {log_id!r} is archived there")
    first = manifests[0].first_offset if begin is None else begin
    last = manifests[-1].first_offset + manifests[-1].last_entry + 1 if end is None else end
    if first > last:
        raise UsageError(
            f"log {log_id!r}: offset {first}, where the range begins, lies behind offset {last}, where it ends; "
            "nothing was appended"
        )
    for before, behind_it in pairwise(manifests):
        if before.first_offset + before.last_entry + 1 > behind_it.first_offset:
            raise StorageError(
                f"log {log_id!r}: ledgers {before.ledger_id} and {behind_it.ledger_id} both have offset "
                f"{behind_it.first_offset} in their manifests",
                hint="verify-archive tells which of them the metadata knows; put the other one's directory elsewhere",
            )
    following = first
    for each in manifests:
        behind = each.first_offset + each.last_entry + 1
        if behind <= following or following >= last:
            continue
        if each.first_offset > following:
            break
        following = behind
    if following < last:
        raise UsageError(
            f"log {log_id!r}: offsets {first} to {last - 1} were asked for, and offset {following} is not archived"
        )
    return first, last


def _dealt(files: Sequence[tuple[EntryRun, FilePart]]) -> Iterator[tuple[tuple[EntryRun, FilePart], ...]]:
    """Deal the files in order to at most as many ledgers as a transaction may have."""
    groups = min(len(files), SPLICE_LEDGERS_MAX)
    for group in range(groups):
        yield tuple(files[len(files) * group // groups : len(files) * (group + 1) // groups])


def stage_files(log: Log, task: RestoreTask) -> int:
    """Stage one task's files; return the ledger, durable and closed.

    Raises StorageError: a file is not what the manifest says; the staged ledger is given up with the transaction.
    """
    with log.stage(task.staging) as writer:
        for run, part in task.files:
            try:
                _append_file(writer, task, run, part)
            except OperationTimeout:
                raise  # It is an OSError, and no fault of the file: what was appended was not acknowledged in time.
            except (PeerError, OSError) as damaged:
                raise StorageError(f"ledger {run.ledger_id}, {part.name}: {damaged}") from damaged
    return writer.ledger_id


def _append_file(writer: LedgerWriter, task: RestoreTask, run: EntryRun, part: FilePart) -> None:
    with task.directory.ledger(run.log_id, run.ledger_id) as ledger:
        sha256, size = ledger.hash(part.name)
        if (sha256.hex(), size) != (part.sha256, part.bytes):
            raise PeerError(f"its SHA-256 and size are {sha256.hex()}, {size}, not those of the manifest")
        with ledger.reading(part.name) as file:
            for rows, _ in sound_rows(file, run):
                offset = rows.column("offset")
                wanted = pc.and_(pc.greater_equal(offset, task.begin), pc.less(offset, task.end))
                _append_rows(writer, rows.filter(wanted))


def _append_rows(writer: LedgerWriter, rows: pa.Table) -> None:
    """Append records that are entries as they are, in one piece up to the next atomic batch."""
    if not rows.num_rows:
        return
    slots = rows.column("slot").combine_chunks()
    beside = _beside(rows)
    if any(beside):
        _append_records(
            writer,
            rows.column("value").to_pylist(),
            beside,
            pc.indices_nonzero(pc.equal(slots, 0)).to_pylist(),
        )
        return
    values = rows.select(["value"]).combine_chunks()
    if not pc.any(pc.greater(slots, 0)).as_py():
        writer.append_arrow(values)
        return
    starts = pc.indices_nonzero(pc.equal(slots, 0)).to_pylist()
    ends = [*starts[1:], rows.num_rows]
    plain_from = 0
    for start, end in zip(starts, ends, strict=True):
        if end - start == 1:
            continue
        if plain_from < start:
            writer.append_arrow(values.slice(plain_from, start - plain_from))
        parts = values.slice(start, end - start).column("value").to_pylist()
        writer.add_batch(parts)
        plain_from = end
    if plain_from < rows.num_rows:
        writer.append_arrow(values.slice(plain_from))


def _beside(rows: pa.Table) -> list[bytes]:
    """For each row that begins an entry: its records' keys, timestamps and headers, encoded; b"": none."""
    attributes = rows.column("attributes").to_pylist()
    if "stored" in rows.schema.names:
        for place, stored in enumerate(rows.column("stored").to_pylist()):
            claim = claim_of(attributes[place]) if stored is not None else None
            if claim is not None:
                attributes[place] = unpacked(memoryview(stored), claim)[0]
    return [bytes(value_of(each, AttributeKind.RECORDS) or b"") if each else b"" for each in attributes]


def _append_records(
    writer: LedgerWriter, values: list[bytes], beside: list[bytes], starts: list[int]
) -> None:
    """Append records one by one, with keys, timestamps and headers."""
    waiting: list[EntryRecord] = []
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        records = list(records_in(beside[start], [memoryview(value) for value in values[start:end]]))
        if len(records) == 1:
            waiting += records
            continue
        if waiting:
            writer.add_many(waiting)
            waiting = []
        writer.add_batch(records)
    if waiting:
        writer.add_many(waiting)
