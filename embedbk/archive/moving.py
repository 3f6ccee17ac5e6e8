"""An archive that stands under another path than before: which freed ledgers may be read there (P8.14).

Decides that all files of a ledger are seen there first, by its manifest's hash and the sizes in it: what has not been
copied along yet stays where it was. `client.archiving.follow_archive` makes the change.
"""

from __future__ import annotations

import logging

from embedbk.archive.manifest import MANIFEST_BYTES_MAX, decode_manifest, manifest_hash, manifest_name
from embedbk.archive.place import ArchiveDirectory
from embedbk.client.archiving import ArchiveLock, follow_archive
from embedbk.client.log_reading import LogReading
from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import ArchivePlace
from embedbk.errors import NoSuchLedger, StorageError

__all__ = ["elsewhere", "follow"]

logger = logging.getLogger("embedbk.archive")


def elsewhere(reading: LogReading, place: ArchivePlace) -> dict[int, Freed | str]:
    """The log's freed ledgers that are read under another path; those of which nobody can tell, with the reason."""
    found: dict[int, Freed | str] = {}
    for segment in run_blocking(reading.segments(), "archive"):
        key = ledger_key_path(segment.ledger_id)
        value, _ = run_blocking(reading.runtime.get(key, f"reading ledger {segment.ledger_id}"), "archive")
        try:
            freed = None if value is None else decode_ledger_metadata(value, segment.ledger_id).freed
        except StorageError as unread:
            found[segment.ledger_id] = str(unread)
            continue
        if freed is not None and freed.path != place.path:
            found[segment.ledger_id] = freed
    return found


def follow(reading: LogReading, directory: ArchiveDirectory, lock: ArchiveLock) -> list[tuple[int, str]]:
    """Read the log's freed ledgers in this directory from now on. Return those that are not, with the reason."""
    left, place, log_id = [], directory.place, str(reading.name)
    for ledger_id, freed in elsewhere(reading, place).items():
        lock.check()
        lack = freed if isinstance(freed, str) else _lack(directory, log_id, ledger_id, freed)
        if lack:
            left.append((ledger_id, lack))
            continue
        try:
            run_blocking(follow_archive(reading.runtime, log_id, ledger_id, place, lock.epoch), "archive")
        except NoSuchLedger as gone:  # Truncated or brought back meanwhile.
            logger.info("log %r: %s", reading.given, gone)
        else:
            logger.info("log %r: ledger %d is read in %s", reading.given, ledger_id, place.path)
    return left


def _lack(directory: ArchiveDirectory, log_id: str, ledger_id: int, freed: Freed) -> str:
    """Why not all files of the ledger are there; "": they are."""
    if freed.archive_id != directory.place.archive_id:
        return f"its files are those of archive {freed.archive_id.hex()}"
    try:
        with directory.ledger(log_id, ledger_id) as files:
            # Readers find what was put aside, too (`reading`).
            name = files.standing_as(manifest_name(freed.manifest), freed.manifest)
            data = files.read(name, MANIFEST_BYTES_MAX)
            if manifest_hash(data) != freed.manifest:
                return f"its manifest is not the one with SHA-256 {freed.manifest.hex()}"
            for part in decode_manifest(data, log_id, ledger_id).files:
                size = files.size(files.standing_as(part.name, bytes.fromhex(part.sha256)))
                if size != part.bytes:
                    return f"{part.name} has {size} bytes, and {part.bytes} were written"
    except (OSError, StorageError) as unread:
        return str(unread)
    return ""
