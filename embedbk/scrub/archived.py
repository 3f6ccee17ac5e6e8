"""The copies of a ledger that also stands in an archive, compared with what the archive holds (SCRUB.md, P8.14).

Decides which ledgers that concerns: those whose record says VERIFIED, so that a job of another epoch has read all
files, and which are not freed. What a file holds is first a sum in the manifest that counts, which takes one small
file for each ledger. Only where the sums of the copies are others, or cannot be made, a file's entries are read and
compared one by one. An archive that cannot be read proves nothing about a copy.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from embedbk.client import log_settings
from embedbk.client.runtime import Runtime
from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.log_archives import (
    ARCHIVES_PREFIX,
    ArchivePlace,
    ArchiveState,
    archived_ledger,
    decode_archive_record,
)
from embedbk.core.quorum import count_ids
from embedbk.errors import EmbedbkError, StorageError
from embedbk.repair.copy_check import CopyBlock, CopyTask, ranges_of
from embedbk.repair.owed import Owed
from embedbk.scrub.judging import BLOCK_IDS, CopyFinding, Unit, tasks_of

__all__ = [
    "ArchiveFiles",
    "ArchivedLedger",
    "ArchivedPart",
    "Copies",
    "archived_ledgers",
    "compare_with_archive",
]

KIND = "archive-differs"
_STEP_IDS = 16 * BLOCK_IDS  # Ids of one ledger whose digests are compared one by one at a time.


class ArchivedLedger(NamedTuple):
    """Where the files of a ledger are. manifest: its hash. why: they cannot be found, and nobody can tell what they
    hold."""

    log_id: str
    ledger_id: int
    manifest: bytes = b""
    place: ArchivePlace | None = None
    why: str = ""


class ArchivedPart(NamedTuple):
    """One file: entries first_entry..last_entry, the sum of whose digests the manifest says."""

    name: str
    first_entry: int
    last_entry: int
    digest: int

    @property
    def entries(self) -> int:
        return self.last_entry - self.first_entry + 1


class ArchiveFiles(Protocol):
    """What reads an archive: its directory, or the values of a simulated one."""

    def parts(self, archived: ArchivedLedger) -> Sequence[ArchivedPart]:
        """The files of the manifest that counts, in order and without a gap from entry 0 on.

        Raises StorageError: the archive is not there, or the manifest is not what counts."""

    def digests(self, archived: ArchivedLedger, part: ArchivedPart) -> array[int]:
        """The digests of a file's entries, in order.

        Raises ArchiveUnreadable: the file is not what its manifest says. ImportError: what reads it is not installed.
        """


class Copies(NamedTuple):
    """How copies are read: `there` are the tasks that a bookie is there for, `read` runs them."""

    there: Callable[[Iterable[CopyTask]], list[CopyTask]]
    read: Callable[[list[CopyTask]], Coroutine[Any, Any, list[CopyBlock]]]


async def archived_ledgers(runtime: Runtime, what: str) -> dict[int, ArchivedLedger]:
    """Ledgers whose record says VERIFIED, or cannot be read."""
    found: dict[int, ArchivedLedger] = {}
    places: dict[str, tuple[ArchivePlace | None, str]] = {}
    for each in await runtime.list_keys(ARCHIVES_PREFIX, what):
        log_id = each.key.removeprefix(ARCHIVES_PREFIX).rpartition("/")[0]
        ledger_id = archived_ledger(each.key, log_id)
        if ledger_id is None:
            continue
        try:
            record = decode_archive_record(each.value or b"", ledger_id)
        except StorageError as unread:
            found[ledger_id] = ArchivedLedger(log_id, ledger_id, why=str(unread))
            continue
        if record.state == ArchiveState.VERIFIED:
            if log_id not in places:
                places[log_id] = await _place_of(runtime, log_id)
            found[ledger_id] = ArchivedLedger(log_id, ledger_id, record.manifest, *places[log_id])
    return found


async def _place_of(runtime: Runtime, log_id: str) -> tuple[ArchivePlace | None, str]:
    try:
        settings, _ = await log_settings.record_of(runtime, log_id)
    except StorageError as unread:
        return None, str(unread)
    if settings is None or settings.archive is None:
        return None, f"log {log_id!r} does not say where its archive is"
    return settings.archive, ""


async def compare_with_archive(
    metadata: LedgerMetadata,
    archived: ArchivedLedger,
    files: ArchiveFiles,
    blocks: Iterable[CopyBlock],
    copies: Copies,
) -> tuple[list[CopyFinding], str]:
    """(findings, why something could not be told; empty: all was). blocks: what is known of the copies already."""
    if not archived.manifest:
        return [], archived.why
    try:
        parts = files.parts(archived)
    except StorageError as unread:
        return [], str(unread)
    entries = sum(part.entries for part in parts)
    if entries - 1 != metadata.last_entry:
        text = f"the archive ends at entry {entries - 1}, and the ledger at {metadata.last_entry}"
        return [CopyFinding(KIND, metadata.ledger_id, None, None, 0, "", text)], ""
    if _sum_of(blocks) == (sum(part.digest for part in parts) & DIGEST_MASK, entries):
        return [], ""
    findings: list[CopyFinding] = []
    untold = ""
    for part in parts:
        found, why = await _compare_closely(metadata, archived, files, part, copies)
        findings += found
        untold = untold or why
    return findings, untold


async def _compare_closely(
    metadata: LedgerMetadata,
    archived: ArchivedLedger,
    files: ArchiveFiles,
    part: ArchivedPart,
    copies: Copies,
) -> tuple[list[CopyFinding], str]:
    """As `compare_with_archive`, of one file, with reads of its own."""
    tasks = _tasks(metadata, part.first_entry, part.last_entry)
    total, entries = _sum_of(await copies.read(copies.there(tasks)))
    if (total, entries) == (part.digest, part.entries):
        return [], ""
    try:
        digests = files.digests(archived, part)
    except (EmbedbkError, ImportError) as unread:
        if entries < part.entries:
            return [], f"{part.name} of the archive: {unread}"
        text = (
            f"the copies have the digest {total:016x}, and {part.name} of the archive has {part.digest:016x}"
        )
        bounds = (part.first_entry, part.last_entry, entries)
        return [CopyFinding(KIND, metadata.ledger_id, *bounds, "", text)], ""
    findings: list[CopyFinding] = []
    for first in range(part.first_entry, part.last_entry + 1, _STEP_IDS):
        due = list(_tasks(metadata, first, min(part.last_entry, first + _STEP_IDS - 1)))
        by_entry = [task._replace(is_by_entry=True) for task in copies.there(due)]
        blocks = await copies.read(by_entry)
        findings += _other_entries(part, digests, blocks)
        told = {entry_id for block in blocks for entry_id, _ in block.entries}
        unseen = next((each for task in due for each in _ids(task.owed) if each not in told), None)
        if unseen is not None:
            return findings, f"no bookie gave a copy of entry {unseen} to compare with the archive"
    return findings, ""


def _sum_of(blocks: Iterable[CopyBlock]) -> tuple[int, int]:
    """(sum of digests, entries) of all ids of which each bookie that told gave every copy, and all gave the same."""
    sums: dict[tuple[int, int, int, int], set[int | None]] = defaultdict(set)
    for block in blocks:
        owed = block.task.owed
        is_sound = block.is_whole and not block.untrue
        for residue in range(0 if block.untold else owed.modulus):
            if owed.residues >> residue & 1:
                told = block.sums[residue] if is_sound else None
                sums[owed.first, owed.last, owed.modulus, residue].add(told)
    total = entries = 0
    for (first, last, modulus, residue), several in sums.items():
        one = several.pop()
        if one is not None and not several:
            total = total + one & DIGEST_MASK
            entries += count_ids(first, last, modulus, 1 << residue)
    return total, entries


def _other_entries(
    part: ArchivedPart, digests: array[int], blocks: Iterable[CopyBlock]
) -> Iterator[CopyFinding]:
    """Entries whose copies are others than those of the file, bookie by bookie."""
    for block in blocks:
        ids = [each for each, digest in block.entries if digest != digests[each - part.first_entry]]
        for first, last in ranges_of(ids, block.task.owed):
            count = sum(first <= each <= last for each in ids)
            text = f"the copy is not what {part.name} of the archive holds"
            bookie_id = block.task.member.bookie_id
            yield CopyFinding(KIND, block.task.ledger_id, first, last, count, bookie_id, text)


def _tasks(metadata: LedgerMetadata, first: int, last: int) -> Iterator[CopyTask]:
    """What every seat owes of first..last, and of no other entry. Tags are no part of a comparison."""
    for task in tasks_of(Unit(metadata, first, last), 0, b""):
        owed = task.owed
        begin, end = max(owed.first, first), min(owed.last, last)
        if count := count_ids(begin, end, owed.modulus, owed.residues):
            yield task._replace(owed=Owed(begin, end, owed.modulus, owed.residues, count))


def _ids(owed: Owed) -> Iterator[int]:
    return (each for each in range(owed.first, owed.last + 1) if owed.residues >> each % owed.modulus & 1)
