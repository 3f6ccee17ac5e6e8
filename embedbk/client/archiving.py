"""Where a log is archived, and how far each of its ledgers is (P8.14), as coroutines for jobs and for the simulator.

Decides who may work on a log's archive: one job at a time, the holder of a lock that no application can name.
`core.archiving` decides what a step means; `embedbk.archive` decides what the files hold.
"""

from __future__ import annotations

import logging

from embedbk.client import log_settings
from embedbk.client.locking import Locking
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.log_archives import (
    ArchivePlace,
    ArchiveRecord,
    archive_lock_name,
    archive_prefix,
    archived_ledger,
    decode_archive_record,
)
from embedbk.codec.metadata_messages import Compare, Delete
from embedbk.core.archiving import ArchiveChange, ArchiveStep
from embedbk.core.freeing import Freeing, FreeTerms
from embedbk.errors import StorageError, UsageError
from embedbk.metadata.claims import lock_path
from embedbk.metadata.levels import LEVEL_OF_ARCHIVES, LEVEL_OF_FREED

__all__ = [
    "ArchiveLock",
    "archive_place",
    "archive_records",
    "change_archive",
    "check_can_free",
    "forget_archive",
    "free_ledger",
    "put_archive_place",
]

logger = logging.getLogger("embedbk.client.log")

_FORGOTTEN_AT_ONCE = 100  # Keys in one transaction.


class ArchiveLock(Locking):
    """The lock of the one job that works on a log's archive. Its epoch is the job's."""

    def __init__(self, runtime: Runtime, log_id: str) -> None:
        self.runtime = runtime
        self.name = archive_lock_name(log_id)
        self.value = runtime.owner().encode()
        self.hold = None


def check_level(runtime: Runtime, name: str) -> None:
    if not runtime.has_level(LEVEL_OF_ARCHIVES):
        raise UsageError(
            f"log {name!r} cannot be archived: the cluster's level is below {LEVEL_OF_ARCHIVES}; nothing was changed",
            hint="embedbk quorum raise, when no node of an earlier build is left",
        )


async def archive_place(reading: LogReading) -> ArchivePlace | None:
    """Where the log is archived, by its settings; None: nowhere."""
    await reading.listed()  # Raises if there is no such log.
    record, _ = await log_settings.record_of(reading.runtime, reading.name)
    return None if record is None else record.archive


async def put_archive_place(reading: LogReading, place: ArchivePlace) -> None:
    """Archive the log there from now on. A log that has another place keeps that one, as its files are there.

    Raises UsageError: it has another place, or the cluster's level is too low.
    """
    check_level(reading.runtime, reading.given)
    now = await archive_place(reading)
    if now is not None and now != place:
        raise UsageError(
            f"log {reading.given!r} is archived in {now.path!r} (archive {now.archive_id.hex()}), and {place.path!r} "
            f"(archive {place.archive_id.hex()}) was given; nothing was changed"
        )
    if now is None:
        shown = await log_settings.settings(reading)
        await log_settings.change(reading, shown.revision, {"archive": place})


async def archive_records(runtime: Runtime, log_id: str) -> dict[int, ArchiveRecord]:
    """The records of a log, by ledger. One that cannot be read is logged once and left as it is (P2.5)."""
    found = {}
    for each in await runtime.list_keys(
        archive_prefix(log_id), f"reading how far log {log_id!r} is archived"
    ):
        ledger_id = archived_ledger(each.key, log_id)
        try:
            if ledger_id is None:
                raise StorageError(f"{each.key!r} is no key of an archive")
            found[ledger_id] = decode_archive_record(each.value or b"", ledger_id)
        except StorageError as unread:
            runtime.node.unread.name(each.key, str(unread))
    return found


async def change_archive(
    runtime: Runtime, log_id: str, ledger_id: int, step: ArchiveStep, epoch: int
) -> ArchiveRecord:
    """One step of one ledger, by the holder of the lock under this epoch. Errors are those of `ArchiveChange`."""
    core = ArchiveChange(
        log_id, ledger_id, step, lock_path(archive_lock_name(log_id)), epoch, runtime.wall_ms()
    )
    record: ArchiveRecord = await runtime.run(core, f"recording how far ledger {ledger_id} is archived")
    return record


def check_can_free(runtime: Runtime, name: str) -> None:
    if not runtime.has_level(LEVEL_OF_FREED):
        raise UsageError(
            f"nothing of log {name!r} can be freed: the cluster's level is below {LEVEL_OF_FREED}, and builds may come "
            "back that find no copy of what is only in files; nothing was changed",
            hint="embedbk quorum raise, when no node of an earlier build is left",
        )


async def free_ledger(
    runtime: Runtime, log_id: str, ledger_id: int, terms: FreeTerms, epoch: int
) -> LedgerMetadata:
    """Let the ledger's bookies give their copies up. The caller holds the lock under this epoch, and has read all files
    of the manifest just now. Errors are those of `Freeing`."""
    core = Freeing(log_id, ledger_id, terms, lock_path(archive_lock_name(log_id)), epoch, runtime.wall_ms())
    freed: LedgerMetadata = await runtime.run(core, f"freeing ledger {ledger_id}")
    return freed


async def forget_archive(runtime: Runtime, log_id: str) -> int:
    """Delete the archive's records of a log that is ended and whose ledgers are gone, so that no new record can come.
    The files stay."""
    what = f"forgetting the archive of log {log_id!r}"
    keys = await runtime.list_keys(archive_prefix(log_id), what)
    for begin in range(0, len(keys), _FORGOTTEN_AT_ONCE):
        some = keys[begin : begin + _FORGOTTEN_AT_ONCE]
        when = [Compare(each.key, each.revision) for each in some]
        await runtime.transact(when, [Delete(each.key) for each in some], what)
    return len(keys)
