"""Deleting ledgers in two steps, and bringing them back in between (P2.3, CL30, CL31, CL32); deleting logs (P8.3).

First the ledger's key goes and a tombstone comes, in one transaction: readers and writers see it gone from then on.
When its grace is over the tombstone is taken away; only a ledger with neither may lose its bytes (P7.7), so no clock
decides whether one can still be brought back: its tombstone does.

A log goes the other way round: first its list, in the transaction that puts the ids of its ledgers where a deletion
that was cut short goes on; then each ledger, like any other. So no list ever names a ledger that is gone.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.client.log_pages import ListWalk, PageGone
from embedbk.client.password import Password
from embedbk.client.reading import check_ledger_id, no_such_ledger
from embedbk.client.runtime import Runtime
from embedbk.client.splicing import sweep
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LedgerMetadata,
    LedgersLeft,
    LedgerState,
    LogPages,
    decode_ledger_metadata,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    ledger_key_path,
    log_deleting_path,
    log_key_path,
    log_left_path,
    log_owner_path,
    log_truncated_path,
)
from embedbk.codec.log_cursors import cursor_path, decode_log_cursors, log_cursors_path
from embedbk.codec.log_pages import decode_log_page, log_page_path
from embedbk.codec.log_pins import log_pins_path
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.log_splices import log_splices_path, staged_path
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
from embedbk.errors import MetadataConflict, NoSuchLedger, StorageError, UsageError
from embedbk.metadata.levels import LEVEL_OF_SPLICES
from embedbk.metadata.limits import DEFAULT_LIMITS

__all__ = ["DeletedLedger", "delete", "delete_log", "deleted", "forget_deleted", "placements_now", "undelete"]

_NAMED_MAX = (
    DEFAULT_LIMITS.txn_operations_max - 2
)  # Bookies that one transaction can compare beside two keys.
_ROUNDS_MAX = 20  # The metadata changed under the deletion so often: somebody is at work on the ledger.


class DeletedLedger(NamedTuple):
    """A ledger that can be brought back."""

    ledger_id: int
    deleted_ms: int
    until_ms: int  # Until then for certain, as far as clocks agree; after it until somebody forgets it.


async def delete(runtime: Runtime, ledger_id: int, password: Password, *, force: bool) -> None:
    check_ledger_id(ledger_id)
    key, what = ledger_key_path(ledger_id), f"deleting ledger {ledger_id}"
    for _ in range(_ROUNDS_MAX):
        value, revision = await runtime.get(key, what)
        if value is None:
            raise no_such_ledger(ledger_id)
        metadata = decode_ledger_metadata(value, ledger_id)
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
            # An open one has no tombstone: nobody watches over what happens to its copies while it is gone.
            grace_ms = int(runtime.settings.delete_grace_s * 1000)
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
    """That no log lists it, to be checked in the deleting transaction itself: a log would lose what it lists (P8.3)."""
    name = metadata.custom.get("log", b"").decode(errors="replace")
    if not name:
        return []
    key = log_key_path(name)
    value, revision = await runtime.get(key, what)
    if value is None:
        return [Compare(key, ABSENT)]
    log_list = decode_log_list(value, name)
    if await ListWalk(runtime, name).holding(log_list, metadata.ledger_id) is not None:
        raise UsageError(f"ledger {metadata.ledger_id} is part of log {name!r}; nothing was deleted")
    return [Compare(key, revision)]


async def _staged(runtime: Runtime, metadata: LedgerMetadata, what: str) -> list[Compare]:
    """Whether it waits to be spliced: whoever splices it compares that mark (P8.5)."""
    name = metadata.custom.get("log", b"").decode(errors="replace")
    if not name or "staged" not in metadata.custom:
        return []
    mark = staged_path(name, metadata.ledger_id)
    value, revision = await runtime.get(mark, what)
    return [Compare(mark, ABSENT if value is None else revision)]


async def delete_log(runtime: Runtime, name: str, password: Password, *, force: bool) -> None:
    """The list, then its ledgers; one that was cut short in between goes on."""
    what = f"deleting log {name!r}"
    was_begun = await _delete_ledgers_of(runtime, name, password, what, force=force)
    for _ in range(_ROUNDS_MAX):
        value, revision = await runtime.get(log_key_path(name), what)
        if value is None:
            if was_begun:
                return
            raise NoSuchLedger(f"there is no log {name!r}", hint="check the name")
        when = [Compare(log_key_path(name), revision)]
        ids = []
        log_list = decode_log_list(value, name)
        pages = (log_list.pages,) if log_list.pages is not None and log_list.has_pages else ()
        for segment in log_list.segments:
            ids.append(segment.ledger_id)
            if segment.last_entry is None:
                when += await _may_be_deleted(runtime, name, segment.ledger_id, password, what, force=force)
        kept = (log_left_path(name), log_truncated_path(name), log_deleting_path(name))
        for path in (log_owner_path(name), *kept):
            held, held_revision = await runtime.get(path, what)
            when.append(Compare(path, ABSENT if held is None else held_revision))
            if held is not None and path != log_owner_path(name):
                more = decode_ledgers_left(held)
                ids, pages = [*ids, *more.ledger_ids], (*more.pages, *pages)
        named, named_revision = await runtime.get(log_cursors_path(name), what)
        when.append(Compare(log_cursors_path(name), ABSENT if named is None else named_revision))
        cursors = decode_log_cursors(named, name).cursors if named is not None else ()
        deleting = encode_ledgers_left(LedgersLeft(METADATA_VERSION, tuple(dict.fromkeys(ids)), pages))
        then: list[Put | Delete] = [
            Delete(log_key_path(name)),
            Delete(log_owner_path(name)),  # Whoever is taking it over now finds that it is not theirs.
            Delete(log_left_path(name)),
            Delete(log_truncated_path(name)),
            Delete(log_pins_path(name)),
            Delete(log_cursors_path(name)),
            Delete(log_settings_path(name)),
            Delete(log_splices_path(name)),
            *(Delete(cursor_path(name, cursor.name)) for cursor in cursors),
            Put(log_deleting_path(name), deleting),
        ]
        if await runtime.transact(when, then, what):
            await _delete_ledgers_of(runtime, name, password, what, force=force)
            if runtime.has_level(LEVEL_OF_SPLICES):
                await sweep(runtime, name, password, takes_all=True)
            return
    raise MetadataConflict(
        f"log {name!r} changed {_ROUNDS_MAX} times while it was to be deleted",
        hint="stop whoever works on it, and delete it again",
    )


async def _may_be_deleted(
    runtime: Runtime, name: str, ledger_id: int, password: Password, what: str, *, force: bool
) -> list[Compare]:
    """That its last ledger stays as it is now, to be checked when the list goes: nobody may be writing to it."""
    key = ledger_key_path(ledger_id)
    value, revision = await runtime.get(key, what)
    if value is None:
        return [Compare(key, ABSENT)]
    metadata = decode_ledger_metadata(value)
    password.check(metadata)
    if not metadata.is_closed and not force:
        raise UsageError(
            f"log {name!r} has an open writer, or had one that did not close: its ledger {ledger_id} is "
            f"{LedgerState(metadata.state).name}; nothing was changed",
            hint="close its writer, or take the log over and close; force=True deletes it as it is, for ever",
        )
    return [Compare(key, revision)]


async def _delete_ledgers_of(
    runtime: Runtime, name: str, password: Password, what: str, *, force: bool
) -> bool:
    """Delete the ledgers of a log whose list is gone; whether there was any to be looked for."""
    key, was_begun = log_deleting_path(name), False
    while True:
        value, revision = await runtime.get(key, what)
        if value is None:
            return was_begun
        was_begun = True
        deleting = decode_ledgers_left(value)
        ids, rest, then = list(deleting.ledger_ids), deleting.pages, list[Put | Delete]()
        if rest:
            listed, page_key, rest = await _oldest_page(runtime, name, rest, what)
            ids += listed
            then.append(Delete(page_key))
        for ledger_id in ids:
            with contextlib.suppress(NoSuchLedger):  # Deleted before, by the part that came to pass.
                await delete(runtime, ledger_id, password, force=force)
        if rest:
            then.append(Put(key, encode_ledgers_left(LedgersLeft(METADATA_VERSION, (), rest))))
        else:
            then.append(Delete(key))
        await runtime.transact([Compare(key, revision)], then, what)


async def _oldest_page(
    runtime: Runtime, name: str, ranges: tuple[LogPages, ...], what: str
) -> tuple[list[int], str, tuple[LogPages, ...]]:
    """The ledgers of one page of a deleted log, its key, and what is left to be deleted behind it."""
    pages, *others = ranges
    key = log_page_path(name, pages, pages.first)
    value, _ = await runtime.get(key, what)
    listed = decode_log_page(value, name, pages.first).segments if value is not None else ()
    left = replace(pages, first=pages.first + 1, skipped=0)
    # Without what was truncated: somebody may have brought it back.
    ids = [segment.ledger_id for segment in listed[pages.skipped :]]
    return ids, key, (left, *others) if left.first < left.end else tuple(others)


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
    """That every bookie which the ledger names has the placement that it has now (P10.6). A read-only one may be named
    again, since it has the copies. One that is drained, too, and has its placement raised then: whoever is about to
    remove it looked for ledgers and tombstones one after the other, and looks again (P11.3)."""
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
        return True  # Somebody set it, to what this build does not know (P2.5).


async def deleted(runtime: Runtime) -> list[DeletedLedger]:
    records = await runtime.list_keys(DELETED_PREFIX, "listing the deleted ledgers")
    stones = [stone for record in records if (stone := _stone_of(runtime, record)) is not None]
    return [DeletedLedger(stone.ledger_id, stone.deleted_ms, stone.until_ms) for stone in stones]


async def forget_deleted(runtime: Runtime) -> list[int]:
    """The ledgers whose tombstones were taken away: their grace was over."""
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
    """None for what is none, or cannot be read here: it stays, and so do its ledger's bytes (P7.7)."""
    try:
        stone = decode_tombstone(record.value or b"")
    except StorageError as unread:
        runtime.node.unread.name(record.key, str(unread))
        return None
    if record.key != tombstone_path(stone.ledger_id):
        runtime.node.unread.name(record.key, f"the tombstone of ledger {stone.ledger_id} stands there")
        return None
    return stone
