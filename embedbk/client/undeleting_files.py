"""Putting truncated ledgers back in front of their log by their files (P8.16), for jobs and for the simulator.

Decides which ledger is next, from the newest to the oldest, and makes the transaction: the ledger's key stands again,
CLOSED and freed, so that its files are its copies (P8.14). Leaves to others that the files were read just now, and what
a manifest says. `core.fronting` decides how the list names it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.client.log_pages import PageGone
from embedbk.client.log_reading import LogReading
from embedbk.client.undeleting import listed_again, oldest_page
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_archives import ArchiveState, archive_lock_name, archive_path, decode_archive_record
from embedbk.codec.log_list import (
    LogList,
    LogSegment,
    decode_ledgers_left,
    encode_log_list,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.codec.tombstone import decode_tombstone, tombstone_path
from embedbk.core.dropping import Dropping
from embedbk.core.fronting import Front, front_of
from embedbk.errors import LockLost, MetadataConflict, NoSuchLedger, StorageError, UsageError
from embedbk.metadata.claims import lock_path
from embedbk.metadata.levels import LEVEL_OF_FRONTS

__all__ = ["Filed", "next_in_front", "put_in_front"]

_ROUNDS_MAX = 20  # The log changed so often, one time after the other, while one ledger was put back.


class Filed(NamedTuple):
    """A ledger whose archive is verified, as its manifest has it. metadata: CLOSED and freed, with one fragment."""

    segment: LogSegment
    metadata: LedgerMetadata


async def next_in_front(reading: LogReading, filed: Mapping[int, Filed]) -> Filed:
    """The ledger that ended where the log begins.

    Raises:
        NoSuchLedger: there is none of these, and why. UsageError: the cluster's level is too low.
    """
    runtime = reading.runtime
    if not runtime.has_level(LEVEL_OF_FRONTS):
        raise UsageError(
            f"log {reading.name!r}: the cluster's level is below {LEVEL_OF_FRONTS}; nothing was changed",
            hint="embedbk quorum raise, when no node of an earlier build is left",
        )
    # Each ledger that truncation took off has its tombstone then, or none any more.
    grace_ms = int(runtime.settings.delete_grace_s * 1000)
    await runtime.run(Dropping(reading.name, runtime.wall_ms(), grace_ms), _what(reading))
    for _ in range(_ROUNDS_MAX):
        try:
            _, _, front = await _front(reading, filed)
        except PageGone:
            continue
        return filed[front.segments[-1].ledger_id]
    raise _changed(reading)


async def put_in_front(
    reading: LogReading, filed: Mapping[int, Filed], ledger_id: int, epoch: int
) -> LogList:
    """Put this ledger back in front, where it is still the next one. Its files were read just now, and are sound.

    epoch: of the caller's hold of the archive's lock. The log's list behind it.

    Raises:
        NoSuchLedger: another one is the next by now, or it is on its way to be deleted. StorageError: what its
            tombstone keeps does not fit its files. MetadataConflict: no archive of it is verified by that manifest, or
            the log changed too often. LockLost. WrongPassword. Nothing was changed.
    """
    runtime, name, what = reading.runtime, reading.name, _what(reading)
    lock_key = lock_path(archive_lock_name(str(name)))
    for _ in range(_ROUNDS_MAX):
        try:
            log_list, revision, front = await _front(reading, filed)
        except PageGone:
            continue
        if front.segments[-1].ledger_id != ledger_id:
            raise NoSuchLedger(f"log {name!r}: ledger {ledger_id} did not end where the log begins now")
        left, left_revision = await runtime.get(log_truncated_path(name), what)
        if left is not None and ledger_id in decode_ledgers_left(left).ledger_ids:
            raise NoSuchLedger(f"log {name!r}: ledger {ledger_id} is on its way to be deleted; try again")
        when = [
            Compare(log_key_path(name), revision),
            Compare(log_truncated_path(name), ABSENT if left is None else left_revision),
            Compare(ledger_key_path(ledger_id), ABSENT),
            await _verified(reading, filed[ledger_id]),
            Compare(lock_key, epoch),
        ]
        await _check_password(reading, log_list)
        then: list[Put | Delete] = []
        kept, kept_revision = await runtime.get(tombstone_path(ledger_id), what)
        metadata = filed[ledger_id].metadata
        if kept is None:
            when.append(Compare(tombstone_path(ledger_id), ABSENT))
        else:
            when.append(Compare(tombstone_path(ledger_id), kept_revision))
            then.append(Delete(tombstone_path(ledger_id)))
            metadata = _as_kept(reading, kept, metadata)
        listed, more_when, more_then = listed_again(name, log_list, front, 1)
        when += more_when
        then += [*more_then, Put(ledger_key_path(ledger_id), encode_ledger_metadata(metadata))]
        then.append(Put(log_key_path(name), encode_log_list(listed)))
        if await runtime.transact(when, then, what):
            return listed
        held, held_revision = await runtime.get(lock_key, what)
        if held is None or held_revision != epoch:
            why = f"the archive lock of log {name!r}, held under epoch {epoch}, is lost"
            raise LockLost(f"{why}; ledger {ledger_id} is not put back by this job")
    raise _changed(reading)


def _what(reading: LogReading) -> str:
    return f"putting ledgers back in front of log {reading.name!r}"


def _changed(reading: LogReading) -> MetadataConflict:
    return MetadataConflict(
        f"log {reading.name!r} changed {_ROUNDS_MAX} times while a ledger was put back in front of it",
        hint="call it again: it goes on from there",
    )


async def _front(reading: LogReading, filed: Mapping[int, Filed]) -> tuple[LogList, int, Front]:
    """The list, its revision, and what stood in front of it, the newest of which has files. Raises PageGone,
    NoSuchLedger."""
    log_list, revision = await reading.listed_at()
    oldest = await oldest_page(reading.runtime, reading.name, log_list, _what(reading))
    front = front_of(log_list, oldest, [each.segment for each in filed.values()])
    begin = f"log {reading.name!r} begins at offset {log_list.first_offset}"
    if front is None:
        raise NoSuchLedger(
            f"{begin}, and its archive has no verified ledger that ended there and that its list could name"
        )
    ledger_id = front.segments[-1].ledger_id
    if ledger_id not in filed:
        raise NoSuchLedger(f"{begin}, where ledger {ledger_id} ended, of which no archive is verified")
    if filed[ledger_id].segment.last_entry != front.segments[-1].last_entry:
        raise NoSuchLedger(f"{begin}, and the files of ledger {ledger_id} have another end than the list had")
    return log_list, revision, front


async def _verified(reading: LogReading, filed: Filed) -> Compare:
    """Compares the record as it is. Raises MetadataConflict: it is not VERIFIED, or of another manifest."""
    ledger_id, freed = filed.segment.ledger_id, filed.metadata.freed
    key = archive_path(str(reading.name), ledger_id)
    value, revision = await reading.runtime.get(key, _what(reading))
    record = None if value is None else decode_archive_record(value, ledger_id)
    is_ours = record is not None and freed is not None and record.manifest == freed.manifest
    if record is None or record.state != ArchiveState.VERIFIED or not is_ours:
        raise MetadataConflict(
            f"log {reading.name!r}: no archive of ledger {ledger_id} with the manifest that was read is verified; "
            "nothing was changed",
            definite=True,
        )
    return Compare(key, revision)


async def _check_password(reading: LogReading, log_list: LogList) -> None:
    """Raises WrongPassword: the log's newest ledger has another one, which its readers use for this one too."""
    if not log_list.segments:
        return
    newest = log_list.segments[-1].ledger_id
    value, _ = await reading.runtime.get(ledger_key_path(newest), _what(reading))
    if value is not None:
        reading.password.check(decode_ledger_metadata(value, newest))


def _as_kept(reading: LogReading, kept: bytes, filed: LedgerMetadata) -> LedgerMetadata:
    """The metadata that the tombstone keeps, freed. Raises StorageError: it is of another ledger, or not all is in the
    files. WrongPassword."""
    ledger_id = filed.ledger_id
    was = decode_ledger_metadata(decode_tombstone(kept).metadata, ledger_id)
    reading.password.check(was)
    fits = was.is_closed and (was.last_entry, was.length) == (filed.last_entry, filed.length)
    if not fits or was.lost or was.custom.get("log") != str(reading.name).encode():
        raise StorageError(
            f"the tombstone of ledger {ledger_id} keeps another end, or entries that were given up: it ends at "
            f"{was.last_entry}, and its files at {filed.last_entry}; nothing was changed"
        )
    fragments = tuple(replace(each, ensemble=()) for each in was.fragments)
    return was.with_changes(fragments=fragments, freed=filed.freed)
