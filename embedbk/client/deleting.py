"""Deleting ledgers in two steps, and bringing them back in between (P2.3, CL30, CL31, CL32).

First the ledger's key goes and a tombstone comes, in one transaction: readers and writers see it gone from then on.
When its grace is over the tombstone is taken away; only a ledger with neither may lose its bytes (P7.7), so no clock
decides whether one can still be brought back: its tombstone does.
Whole logs are `log_deleting`'s.
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.client.ledger_ids import check_ledger_id, no_such_ledger
from embedbk.client.log_identity import identity_of
from embedbk.client.log_pages import ListWalk, PageGone
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_identity import log_deleted_path
from embedbk.codec.log_list import decode_log_list, log_key_path
from embedbk.codec.log_splices import staged_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put, Record
from embedbk.codec.registration import PLACEMENTS_PREFIX, decode_placement, placement_path
from embedbk.codec.tombstone import (
    DELETED_PREFIX,
    TOMBSTONE_VERSION,
    Tombstone,
    decode_tombstone,
    encode_tombstone,
    tombstone_path,
)
from embedbk.config import check_flag
from embedbk.errors import MetadataConflict, NoSuchLedger, StorageError, UsageError
from embedbk.metadata.limits import DEFAULT_LIMITS

__all__ = ["DeletedLedger", "delete", "deleted", "forget_deleted", "placements_now", "undelete"]

_NAMED_MAX = (
    DEFAULT_LIMITS.txn_operations_max - 2
)  # Bookies that one transaction can compare beside two keys.
_ROUNDS_MAX = 20  # Tries of a deletion while others keep changing the ledger's metadata.


class DeletedLedger(NamedTuple):
    """A ledger that can be brought back."""

    ledger_id: int
    deleted_ms: int
    until_ms: int  # It can be brought back until then, by clocks that agree, and on until `forget_deleted`.


async def delete(
    runtime: Runtime,
    ledger_id: int,
    password: Password | None,
    *,
    force: bool,
    grace_s: float | None = None,
) -> None:
    """password None: the caller that decided to delete it had checked it. grace_s None: that of the settings."""
    check_ledger_id(ledger_id)
    check_flag(force, "force")
    key, what = ledger_key_path(ledger_id), f"deleting ledger {ledger_id}"
    for _ in range(_ROUNDS_MAX):
        value, revision = await runtime.get(key, what)
        if value is None:
            raise no_such_ledger(ledger_id)
        metadata = decode_ledger_metadata(value, ledger_id)
        if password is not None:
            password.check(metadata)
        if not metadata.is_closed and not force:
            raise UsageError(
                f"ledger {ledger_id} is {LedgerState(metadata.state).name}, and only a CLOSED one is deleted; nothing "
                "was changed",
                hint="close it by its writer or by open_ledger(recover=True); force=True deletes it for ever",
            )
        try:
            when = [Compare(key, revision), *await _unlisted(runtime, metadata, what)]
        except PageGone:
            continue  # The list has changed since it was read.
        marked = await _staged(runtime, metadata, what)
        when += marked
        then: list[Put | Delete] = [Delete(key), *(Delete(mark.key) for mark in marked if mark.revision)]
        if metadata.is_closed:
            # An open ledger gets no tombstone: nothing looks after its copies while it is deleted.
            grace_ms = int((runtime.settings.delete_grace_s if grace_s is None else grace_s) * 1000)
            stone = Tombstone(
                TOMBSTONE_VERSION, ledger_id, runtime.wall_ms(), runtime.wall_ms() + grace_ms, value
            )
            then.append(Put(tombstone_path(ledger_id), encode_tombstone(stone)))
        if await runtime.transact(when, then, what):
            return
    raise MetadataConflict(
        f"ledger {ledger_id} changed {_ROUNDS_MAX} times while it was to be deleted",
        hint="stop whoever works on it, and delete it again",
    )


async def _unlisted(runtime: Runtime, metadata: LedgerMetadata, what: str) -> list[Compare]:
    """Compares that make sure, in the deleting transaction itself, that no log lists it: that log would lose it
    (P8.3)."""
    name = metadata.custom.get("log", b"").decode(errors="replace")
    if not name:
        return []
    key = log_key_path(name)
    value, revision = await runtime.get(key, what)
    if value is None:
        return [Compare(key, ABSENT), await _not_in_a_deleted_log(runtime, name, metadata.ledger_id, what)]
    log_list = decode_log_list(value, name)
    if await ListWalk(runtime, name).holding(log_list, metadata.ledger_id) is not None:
        identity, _ = await identity_of(runtime, name, what)
        called = name if identity is None else identity.name
        raise UsageError(f"ledger {metadata.ledger_id} is part of log {called!r}; nothing was deleted")
    return [Compare(key, revision)]


async def _not_in_a_deleted_log(runtime: Runtime, name: str, ledger_id: int, what: str) -> Compare:
    """A compare that its log was not deleted: that log may be brought back, with all that its list names (P8.13)."""
    key = log_deleted_path(name)
    value, revision = await runtime.get(key, what)
    if value is None:
        return Compare(key, ABSENT)
    log_list = decode_log_list(value, name)
    if await ListWalk(runtime, name).holding(log_list, ledger_id) is not None:
        raise UsageError(
            f"ledger {ledger_id} is part of a log that was deleted, and may be brought back; nothing was deleted",
            hint="bk.deleted_logs() says until when",
        )
    return Compare(key, revision)


async def _staged(runtime: Runtime, metadata: LedgerMetadata, what: str) -> list[Compare]:
    """A compare of its staged mark, if it waits to be spliced: the splice compares the same mark (P8.5)."""
    name = metadata.custom.get("log", b"").decode(errors="replace")
    if not name or "staged" not in metadata.custom:
        return []
    mark = staged_path(name, metadata.ledger_id)
    value, revision = await runtime.get(mark, what)
    return [Compare(mark, ABSENT if value is None else revision)]


async def undelete(runtime: Runtime, ledger_id: int, password: Password) -> None:
    check_ledger_id(ledger_id)
    key, what = tombstone_path(ledger_id), f"bringing ledger {ledger_id} back"
    value, revision = await runtime.get(key, what)
    if value is None:
        raise NoSuchLedger(
            f"ledger {ledger_id} was not deleted, or its grace is over",
            hint="bk.deleted_ledgers() lists those that can be brought back",
        )
    metadata = decode_tombstone(value).metadata
    ledger = decode_ledger_metadata(metadata, ledger_id)
    password.check(ledger)
    when = [Compare(key, revision), Compare(ledger_key_path(ledger_id), ABSENT)]
    for _ in range(_ROUNDS_MAX):
        placements, raised = await placements_now(runtime, ledger, what)
        then: list[Put | Delete] = [Delete(key), Put(ledger_key_path(ledger_id), metadata), *raised]
        if await runtime.transact([*when, *placements], then, what):
            return
        _, is_now = await runtime.get(key, what)
        back, _ = await runtime.get(ledger_key_path(ledger_id), what)
        if is_now != revision or back is not None:
            raise MetadataConflict(f"somebody else brought ledger {ledger_id} back, or forgot it, just now")
    raise MetadataConflict(
        f"bookies of ledger {ledger_id} went read-only {_ROUNDS_MAX} times while it was brought back; it stays deleted",
        hint="bring it back again",
    )


async def placements_now(
    runtime: Runtime, ledger: LedgerMetadata, what: str
) -> tuple[list[Compare], list[Put]]:
    """Compares that every bookie which the ledger names keeps its present placement (P10.6). A read-only one may be
    named again, since it has the copies. So may one that is drained, whose placement is raised then: an operator that
    is about to remove it listed ledgers and tombstones one after the other, and has to look again (P11.3)."""
    named = {bookie_id for fragment in ledger.fragments for bookie_id, _ in fragment.ensemble}
    if len(named) > _NAMED_MAX:
        raise MetadataConflict(
            f"ledger {ledger.ledger_id} names {len(named)} bookies; one of at most {_NAMED_MAX} can be brought back",
            hint="its entries stay where they are as long as nobody forgets the deleted ledgers",
        )
    stand = {record.key: record for record in await runtime.list_keys(PLACEMENTS_PREFIX, what)}
    paths = [placement_path(bookie_id) for bookie_id in sorted(named)]
    compared = [Compare(path, stand[path].revision if path in stand else ABSENT) for path in paths]
    return compared, [
        Put(path, value)
        for path in paths
        if path in stand and _is_draining(value := stand[path].value or b"")
    ]


def _is_draining(placement: bytes) -> bool:
    try:
        return decode_placement(placement).is_draining
    except StorageError:
        return True  # It is set, to a value that this build does not know (P2.5).


async def deleted(runtime: Runtime) -> list[DeletedLedger]:
    records = await runtime.list_keys(DELETED_PREFIX, "listing the deleted ledgers")
    stones = [stone for record in records if (stone := _stone_of(runtime, record)) is not None]
    return [DeletedLedger(stone.ledger_id, stone.deleted_ms, stone.until_ms) for stone in stones]


async def forget_deleted(runtime: Runtime) -> list[int]:
    """Take away the tombstones whose grace is over; return the ids of their ledgers."""
    forgotten: list[int] = []
    what = "forgetting deleted ledgers"
    for record in await runtime.list_keys(DELETED_PREFIX, what):
        stone = _stone_of(runtime, record)
        if stone is None or stone.until_ms > runtime.wall_ms():
            continue
        if await runtime.transact([Compare(record.key, record.revision)], [Delete(record.key)], what):
            forgotten.append(stone.ledger_id)
    return forgotten


def _stone_of(runtime: Runtime, record: Record) -> Tombstone | None:
    """The tombstone of a record; None if it is none or cannot be read here: it stays, with its ledger's bytes
    (P7.7)."""
    try:
        stone = decode_tombstone(record.value or b"")
    except StorageError as unread:
        runtime.node.unread.name(record.key, str(unread))
        return None
    if record.key != tombstone_path(stone.ledger_id):
        runtime.node.unread.name(record.key, f"the tombstone of ledger {stone.ledger_id} stands there")
        return None
    return stone
