"""The metadata of one ledger, taken out of the cluster and put back (P2.2, P2.3).

Only what is final is put back: the end of a CLOSED ledger never changes, so a copy of its metadata is right whenever it
is put back. The ensemble of one that was not closed may have changed since, and a recovery by an older one may end it
too early: that is left to `ledger adopt`, or to recovery. Nothing is put over metadata that is readable and newer, nor
where a bookie knows of an acknowledged entry behind the end.
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.client.client import Client
from embedbk.client.deleting import placements_now
from embedbk.client.ledger_ids import check_ledger_id, no_such_ledger
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_changed_metadata,
    decode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import (
    ABSENT,
    AdoptLedger,
    Compare,
    Delete,
    Put,
    Tell,
    Told,
    Txn,
    TxnDone,
)
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.quorum import has_coverage
from embedbk.core.status_query import SeatStatus, StatusQuery
from embedbk.errors import MetadataConflict, PeerError, RecoveryInconclusive, StorageError, UsageError

__all__ = ["KeptLedger", "keep", "put_back", "restore_ledger"]

_ROUNDS_MAX = 20  # The metadata changed under the command so often: somebody is at work on the ledger.


class KeptLedger(NamedTuple):
    """The value under the key of one ledger, whether it can be decoded or not."""

    cluster_token: bytes
    ledger_id: int
    value: bytes
    revision: int


def keep(client: Client, ledger_id: int) -> KeptLedger:
    """Raises NoSuchLedger: metadata does not know it."""
    return run_blocking(_keep(client._runtime, ledger_id), "embedbk ledger dump")


def put_back(client: Client, ledger_id: int, value: bytes, *, is_dry: bool) -> LedgerMetadata:
    """As `restore_ledger`, for a thread that waits."""
    return run_blocking(
        restore_ledger(client._runtime, ledger_id, value, is_dry=is_dry), "embedbk ledger restore"
    )


async def _keep(runtime: Runtime, ledger_id: int) -> KeptLedger:
    check_ledger_id(ledger_id)
    what = f"reading the metadata of ledger {ledger_id}"
    told = await _tell(runtime, what)
    value, revision = await runtime.get(ledger_key_path(ledger_id), what)
    if value is None:
        raise no_such_ledger(ledger_id)
    return KeptLedger(told.cluster_token, ledger_id, value, revision)


async def restore_ledger(runtime: Runtime, ledger_id: int, value: bytes, *, is_dry: bool) -> LedgerMetadata:
    """Put it back; return the metadata that stands there in the end. is_dry: nothing is changed.

    Raises:
        UsageError: the ledger was not CLOSED, or was deleted or forgotten.
        StorageError: these bytes are no metadata of it; or what stands there is newer, or has another end.
        RecoveryInconclusive: a bookie knows a later end; or too few of its last fragment report what they know.
        MetadataConflict: another client changes it.
    """
    check_ledger_id(ledger_id)
    what, key = f"restoring ledger {ledger_id}", ledger_key_path(ledger_id)
    kept = decode_ledger_metadata(value, ledger_id)
    if not kept.is_closed:
        raise UsageError(
            f"ledger {ledger_id} was {LedgerState(kept.state).name} when its metadata was kept: its ensemble may have "
            "changed since",
            hint="open_ledger(recover=True) closes one that metadata knows; embedbk ledger adopt takes one back",
        )
    for _ in range(_ROUNDS_MAX):
        present, revision = await runtime.get(key, what)
        if present == value:
            return kept
        if kept.freed is not None:
            # Bookies may have copies by what stands there now, and would drop them.
            raise UsageError(
                f"the copies of ledger {ledger_id} were files of the archive in {kept.freed.path!r} when its metadata "
                "was kept, and nobody has read these now; nothing was changed",
                hint="embedbk spark free reads them, and says so again",
            )
        told = await _tell(runtime, what)
        is_lost = told.is_spared(ledger_id) if present is None else told.is_stale(ledger_id)
        if present is not None:
            _check_follows(present, value, ledger_id)
        elif not is_lost:
            raise UsageError(
                f"ledger {ledger_id} was deleted or forgotten: bookies may have dropped what they held of it",
                hint="embedbk ledger undelete brings one back whose grace is not over; nothing was changed",
            )
        await _check_end(runtime, kept, what)
        placements, raised = await placements_now(runtime, kept, what)
        when = [
            Compare(key, ABSENT if present is None else revision),
            Compare(tombstone_path(ledger_id), ABSENT),
            *placements,
        ]
        then: list[Put | Delete] = [Put(key, value), *raised]
        if is_dry:
            return kept
        asked = AdoptLedger(when, then, ledger_id) if is_lost else Txn(when, then)
        result = await runtime.ask(asked, what)
        if not isinstance(result, TxnDone):
            raise PeerError(f"{what}: the metadata member answered with a {type(result).__name__}")
        if result.is_done:
            return kept
    raise MetadataConflict(
        f"ledger {ledger_id} changed {_ROUNDS_MAX} times while it was to be restored",
        hint="stop whoever works on it, and restore it again",
    )


def _check_follows(present: bytes, value: bytes, ledger_id: int) -> None:
    """Raises StorageError: what stands there is readable, and what was kept may not stand behind it (P2.3)."""
    try:
        known = decode_ledger_metadata(present, ledger_id)
    except StorageError:
        return  # It cannot be read: therefore it is to be restored.
    if known.freed is not None:
        raise StorageError(
            f"ledger {ledger_id}: its copies are files, and bookies may have dropped what the kept metadata says that "
            "they have (P8.14); nothing was changed",
            hint="embedbk spark restore LOG --in-place brings them back to bookies",
        )
    decode_changed_metadata(value, known)


async def _check_end(runtime: Runtime, kept: LedgerMetadata, what: str) -> None:
    """Check that no bookie of the last fragment knows a later end, and that so many answer that every ack quorum has
    one of them (P5.2b)."""
    seats: tuple[SeatStatus, ...] = await runtime.run(StatusQuery(kept), what)
    assert kept.last_entry is not None
    for seat in seats:
        if seat.lac > kept.last_entry:
            raise RecoveryInconclusive(
                f"ledger {kept.ledger_id} ended at {kept.last_entry} when its metadata was kept, and {seat.bookie_id} "
                f"knows that entry {seat.lac} was acknowledged",
                hint="this is not the last that was known of it; nothing was changed",
            )
    answered = sum(1 << seat.seat for seat in seats if seat.has_answered)
    if not has_coverage(answered, kept.quorum):
        silent = ", ".join(f"{seat.bookie_id}: {seat.status}" for seat in seats if not seat.has_answered)
        raise RecoveryInconclusive(
            f"ledger {kept.ledger_id}: too few bookies say where it ends ({silent})",
            hint="bring them back; nothing was changed",
        )


async def _tell(runtime: Runtime, what: str) -> Told:
    told = await runtime.ask(Tell(0), what)
    if not isinstance(told, Told):
        raise PeerError(f"{what}: the metadata member answered with a {type(told).__name__}")
    return told
