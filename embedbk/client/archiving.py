"""Where a log is archived, and how far each of its ledgers is (P8.14), as coroutines for jobs and for the simulator.

Decides who may work on a log's archive: one job at a time, the holder of a lock that no application can name.
`core.archiving` decides what a step means; `embedbk.archive` decides what the files hold.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from embedbk.client import log_settings
from embedbk.client.locking import Locking
from embedbk.client.log_reading import LogReading
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_archives import (
    ArchivePlace,
    ArchiveRecord,
    archive_lock_name,
    archive_prefix,
    archived_ledger,
    decode_archive_record,
)
from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.core.archiving import ArchiveChange, ArchiveStep
from embedbk.core.freeing import Freeing, FreeTerms
from embedbk.errors import LockLost, MetadataConflict, NoSuchLedger, StorageError, UsageError
from embedbk.metadata.claims import lock_path
from embedbk.metadata.levels import LEVEL_OF_ARCHIVES, LEVEL_OF_FREED

__all__ = [
    "ArchiveLock",
    "archive_place",
    "archive_records",
    "change_archive",
    "check_can_free",
    "follow_archive",
    "forget_archive",
    "free_ledger",
    "put_archive_place",
]

logger = logging.getLogger("embedbk.client.log")

_ROUNDS_MAX = (
    20  # A ledger changed so often, one time after the other, while the path of its files was changed.
)
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
    """Archive the log there from now on. A log that has another archive keeps that one, as its files are there. That
    archive may stand under another path by now.

    Raises UsageError: it has another archive, or the cluster's level is too low.
    """
    check_level(reading.runtime, reading.given)
    now = await archive_place(reading)
    if now is not None and now.archive_id != place.archive_id:
        raise UsageError(
            f"log {reading.given!r} is archived in {now.path!r} (archive {now.archive_id.hex()}), and {place.path!r} "
            f"(archive {place.archive_id.hex()}) was given; nothing was changed"
        )
    if now != place:
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


async def follow_archive(
    runtime: Runtime, log_id: str, ledger_id: int, place: ArchivePlace, epoch: int
) -> None:
    """Name the path where the archive stands now in the metadata of a freed ledger of it. The caller holds the lock
    under this epoch, and has seen that the ledger's files are there.

    Raises LockLost. MetadataConflict: the ledger changed too often. NoSuchLedger: it is gone, or is not freed.
    """
    what, lock_key = (
        f"naming the path of the files of ledger {ledger_id}",
        lock_path(archive_lock_name(log_id)),
    )
    for _ in range(_ROUNDS_MAX):
        value, revision = await runtime.get(ledger_key_path(ledger_id), what)
        metadata = None if value is None else decode_ledger_metadata(value, ledger_id)
        freed = None if metadata is None else metadata.freed
        if metadata is None or freed is None or freed.archive_id != place.archive_id:
            raise NoSuchLedger(
                f"ledger {ledger_id} of log {log_id!r} is gone, or no file of that archive is its copy"
            )
        if freed.path == place.path:
            return
        moved = metadata.with_changes(freed=replace(freed, path=place.path))
        when = [Compare(ledger_key_path(ledger_id), revision), Compare(lock_key, epoch)]
        if await runtime.transact(
            when, [Put(ledger_key_path(ledger_id), encode_ledger_metadata(moved))], what
        ):
            return
        held, held_revision = await runtime.get(lock_key, what)
        if held is None or held_revision != epoch:
            raise LockLost(f"the archive lock of log {log_id!r}, held under epoch {epoch}, is lost")
    raise MetadataConflict(
        f"ledger {ledger_id} changed {_ROUNDS_MAX} times while its files' path was changed"
    )


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
