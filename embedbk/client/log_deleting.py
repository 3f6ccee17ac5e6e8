"""Deleting whole logs (P8.3, P8.13), bringing them back, and what goes when their grace is over, for both faces.

From LEVEL_OF_LOG_IDS on a deletion takes the name from the log and puts its list aside, in one transaction; so all who
read, write or change it find that there is no such log, and it is brought back by the opposite one. When its grace is
over, the host that forgets deleted things ends it: first its list, in the transaction that puts the ids of its ledgers
where a deletion that was cut short goes on; then each ledger. So no list that counts ever names a ledger that is gone.
Below the level a log is ended at once.
"""

from __future__ import annotations

import contextlib
import logging
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.client import deleting
from embedbk.client.archiving import forget_archive
from embedbk.client.deleting import delete
from embedbk.client.log_identity import NamedLog, check_level, free_name, identity_of, named
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.splicing import sweep
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import LedgerState, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_cursors import cursor_path, decode_log_cursors, log_cursors_path
from embedbk.codec.log_identity import (
    IDENTITIES_PREFIX,
    LogId,
    LogIdentity,
    LogIdentityState,
    LogPointer,
    decode_log_identity,
    encode_log_identity,
    encode_log_pointer,
    is_log_id,
    is_minted,
    log_deleted_path,
    log_identity_path,
    log_name_path,
)
from embedbk.codec.log_list import (
    LedgersLeft,
    LogList,
    LogPages,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    log_deleting_path,
    log_key_path,
    log_left_path,
    log_owner_path,
    log_truncated_path,
)
from embedbk.codec.log_pages import decode_log_page, log_page_path
from embedbk.codec.log_pins import log_pins_path
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.log_splices import log_splices_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import check_flag
from embedbk.errors import (
    EmbedbkError,
    LogExists,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    StorageError,
    UsageError,
)
from embedbk.ids import check_log_name
from embedbk.metadata.levels import LEVEL_OF_SPLICES

__all__ = ["DeletedLog", "delete_log", "deleted_logs", "forget_deleted", "undelete_log"]

logger = logging.getLogger("embedbk.client.log")

_ROUNDS_MAX = 20  # Tries of a deletion while others keep changing the log.


class DeletedLog(NamedTuple):
    """A log that can be brought back."""

    name: str  # The name that it had.
    log_id: str
    deleted_ms: int
    until_ms: int  # It can be brought back until then, by clocks that agree, and on until `forget_deleted`.


# --- Deleted, and brought back ------------------------------------------------------------------------------


async def delete_log(runtime: Runtime, name: str, password: Password, *, force: bool) -> None:
    """Delete a log. Below the level: its list, then its ledgers; a deletion cut short in between continues."""
    check_flag(force, "force")
    what = f"deleting log {name!r}"
    for _ in range(_ROUNDS_MAX):
        found = await named(runtime, name, carries=True)
        if not isinstance(found, NamedLog):
            if found is not None:
                await _end_at_once(runtime, name, password, force=force)
                return
            if await _delete_ledgers_of(runtime, name, password, what, force=force):
                return  # Cut short below the level.
            raise NoSuchLedger(
                f"there is no log {name!r}", hint="check the name; deleted_logs() lists others"
            )
        log_id = found.log_id
        value, revision = await runtime.get(log_key_path(log_id), what)
        if value is None:
            continue  # Deleted just now.
        log_list = decode_log_list(value, log_id)
        when = [*found.when, Compare(log_key_path(log_id), revision)]
        if log_list.segments and log_list.segments[-1].last_entry is not None:
            when += await _has_password(runtime, log_list, password, what)
        for segment in log_list.segments:
            if segment.last_entry is None:
                when += await _may_be_deleted(runtime, log_id, segment.ledger_id, password, what, force=force)
        owner, owner_revision = await runtime.get(log_owner_path(log_id), what)
        when.append(Compare(log_owner_path(log_id), ABSENT if owner is None else owner_revision))
        now_ms = runtime.wall_ms()
        until_ms = now_ms + int(runtime.settings.delete_grace_s * 1000)
        identity = LogIdentity(
            METADATA_VERSION, name, LogIdentityState.DELETED, now_ms, until_ms, is_forced=force
        )
        then: list[Put | Delete] = [
            Delete(log_name_path(name)),
            Put(log_identity_path(log_id), encode_log_identity(identity)),
            Delete(log_key_path(log_id)),
            Put(log_deleted_path(log_id), value),
            # Its owner, or a client that is taking it over, finds that it has it no more.
            Delete(log_owner_path(log_id)),
        ]
        try:
            is_done = await runtime.transact(when, then, what)
        except MetadataUnavailable as unknown:
            now, now_revision = await identity_of(runtime, log_id, what)
            if unknown.definite or now != identity or now_revision <= found.revision:
                raise
            is_done = True  # It was done (P2.2).
        if is_done:
            try:
                await sweep(runtime, log_id, password, takes_all=True)
            except EmbedbkError as failed:  # It goes with the log, then.
                logger.info("log %r: what was staged for it is not given up now: %s", log_id, failed)
            return
    raise _restless(name, "deleted")


async def undelete_log(runtime: Runtime, of: str, new_name: str | None, password: Password) -> str:
    """of: the name that it had, or its id. Returns the name that it has now."""
    check_level(runtime, of)
    what = f"bringing log {of!r} back"
    for _ in range(_ROUNDS_MAX):
        log_id, before, revision = await _deleted_one(runtime, of, what)
        name = check_log_name(before.name if new_name is None else new_name)
        value, list_revision = await runtime.get(log_deleted_path(log_id), what)
        if value is None:
            continue  # Brought back or forgotten since.
        when = [
            Compare(log_identity_path(log_id), revision),
            Compare(log_deleted_path(log_id), list_revision),
            Compare(log_key_path(log_id), ABSENT),
            *await _has_password(runtime, decode_log_list(value, log_id), password, what),
        ]
        free = await free_name(runtime, name, what)
        if free is None:
            raise LogExists(
                f"there is a log {name!r} by now; the deleted one stays as it is",
                hint="bring it back under another name",
            )
        identity = LogIdentity(METADATA_VERSION, name, LogIdentityState.NAMED)
        then: list[Put | Delete] = [
            Put(log_name_path(name), encode_log_pointer(LogPointer(METADATA_VERSION, str(log_id)))),
            Put(log_identity_path(log_id), encode_log_identity(identity)),
            Put(log_key_path(log_id), value),
            Delete(log_deleted_path(log_id)),
        ]
        try:
            is_done = await runtime.transact([*when, *free], then, what)
        except MetadataUnavailable as unknown:
            now, now_revision = await identity_of(runtime, log_id, what)
            if unknown.definite or now != identity or now_revision <= revision:
                raise
            is_done = True
        if is_done:
            return name
    raise _restless(of, "brought back")


async def _deleted_one(runtime: Runtime, of: str, what: str) -> tuple[LogId, LogIdentity, int]:
    found = [
        (log_id, identity, revision)
        for log_id, identity, revision in await _identities(runtime, what)
        if identity.state == LogIdentityState.DELETED and of in (str(log_id), identity.name)
    ]
    if not found:
        raise NoSuchLedger(
            f"no log {of!r} was deleted, or its grace is over",
            hint="bk.deleted_logs() lists those that can be brought back",
        )
    by_id = [each for each in found if str(each[0]) == of and is_minted(of)]
    if len(found) > 1 and not by_id:
        ids = ", ".join(str(log_id) for log_id, _, _ in found)
        raise UsageError(
            f"{len(found)} logs {of!r} were deleted: {ids}; nothing was changed", hint="name one by its id"
        )
    return (by_id or found)[0]


async def _has_password(runtime: Runtime, log_list: LogList, password: Password, what: str) -> list[Compare]:
    """Check the password by the log's newest ledger; returns compares that it stays as it is meanwhile."""
    if not log_list.segments:
        return []
    key = ledger_key_path(log_list.segments[-1].ledger_id)
    value, revision = await runtime.get(key, what)
    if value is None:
        return [Compare(key, ABSENT)]
    password.check(decode_ledger_metadata(value))
    return [Compare(key, revision)]


async def deleted_logs(runtime: Runtime) -> list[DeletedLog]:
    return [
        DeletedLog(identity.name, str(log_id), identity.deleted_ms, identity.until_ms)
        for log_id, identity, _ in await _identities(runtime, "listing the deleted logs")
        if identity.state == LogIdentityState.DELETED
    ]


async def _identities(runtime: Runtime, what: str) -> list[tuple[LogId, LogIdentity, int]]:
    """All logs that have an identity; one that cannot be read is logged once, and stays as it is (P2.5)."""
    found = []
    for record in await runtime.list_keys(IDENTITIES_PREFIX, what):
        log_id = record.key.removeprefix(IDENTITIES_PREFIX)
        try:
            if not is_log_id(log_id):
                raise StorageError(f"{log_id!r} is no id of a log")
            identity = decode_log_identity(record.value or b"", log_id)
        except StorageError as unread:
            runtime.node.unread.name(record.key, str(unread))
            continue
        found.append((LogId(log_id, identity.name), identity, record.revision))
    return found


# --- Ended --------------------------------------------------------------------------------------------------


async def forget_deleted(runtime: Runtime) -> list[int]:
    """End the deleted logs whose grace is over, and take away the tombstones of ledgers whose
    grace is over; return the ids of all these ledgers."""
    what = "forgetting deleted logs"
    for log_id, identity, revision in await _identities(runtime, what):
        is_over = identity.state == LogIdentityState.DELETED and identity.until_ms <= runtime.wall_ms()
        if not is_over and identity.state != LogIdentityState.ENDING:
            continue
        try:
            await _end(runtime, log_id, identity, revision, what)
        except (StorageError, UsageError) as stays:  # One log that stays must not keep the others.
            logger.warning("log %r, which was deleted, is not forgotten: %s", log_id, stays)
    return await deleting.forget_deleted(runtime)


async def _end(runtime: Runtime, log_id: LogId, identity: LogIdentity, revision: int, what: str) -> None:
    """End one deleted log. Once its identity says that it ends, no client can bring it back."""
    if identity.state == LogIdentityState.DELETED:
        value, list_revision = await runtime.get(log_deleted_path(log_id), what)
        ids, pages = _listed_in(decode_log_list(value, log_id)) if value is not None else ([], ())
        when, then = await _with_its_keys(runtime, log_id, ids, pages, what)
        when += [
            Compare(log_identity_path(log_id), revision),
            Compare(log_deleted_path(log_id), ABSENT if value is None else list_revision),
        ]
        ending = encode_log_identity(replace(identity, state=LogIdentityState.ENDING))
        then += [Delete(log_deleted_path(log_id)), Put(log_identity_path(log_id), ending)]
        if not await runtime.transact(when, then, what):
            return  # Brought back just now, or ended by another.
        _, revision = await runtime.get(log_identity_path(log_id), what)
    # Its grace is over, so that of its ledgers is.
    await _delete_ledgers_of(runtime, log_id, None, what, force=identity.is_forced, grace_s=0.0)
    await sweep(runtime, log_id, Password(b""), takes_all=True)
    await forget_archive(runtime, log_id)
    last: Put | Delete = Delete(log_identity_path(log_id))
    if not is_minted(log_id):
        last = Put(
            log_identity_path(log_id), encode_log_identity(replace(identity, state=LogIdentityState.GONE))
        )
    await runtime.transact([Compare(log_identity_path(log_id), revision)], [last], what)


async def _end_at_once(runtime: Runtime, name: str, password: Password, *, force: bool) -> None:
    """Delete a log as it is done below the level."""
    what = f"deleting log {name!r}"
    was_begun = await _delete_ledgers_of(runtime, name, password, what, force=force)
    for _ in range(_ROUNDS_MAX):
        value, revision = await runtime.get(log_key_path(name), what)
        if value is None:
            if was_begun:
                return
            raise NoSuchLedger(f"there is no log {name!r}", hint="check the name")
        log_list = decode_log_list(value, name)
        when, then = await _with_its_keys(runtime, name, *_listed_in(log_list), what)
        when.append(Compare(log_key_path(name), revision))
        when += [Compare(log_name_path(name), ABSENT), Compare(log_identity_path(name), ABSENT)]
        for segment in log_list.segments:
            if segment.last_entry is None:
                when += await _may_be_deleted(runtime, name, segment.ledger_id, password, what, force=force)
        owner, owner_revision = await runtime.get(log_owner_path(name), what)
        when.append(Compare(log_owner_path(name), ABSENT if owner is None else owner_revision))
        # A client that is taking it over now finds that it has lost it.
        then += [Delete(log_key_path(name)), Delete(log_owner_path(name))]
        if await runtime.transact(when, then, what):
            await _delete_ledgers_of(runtime, name, password, what, force=force)
            if runtime.has_level(LEVEL_OF_SPLICES):
                await sweep(runtime, name, password, takes_all=True)
            return
    raise _restless(name, "deleted")


def _restless(name: str, what: str) -> MetadataConflict:
    return MetadataConflict(
        f"log {name!r} changed {_ROUNDS_MAX} times while it was to be {what}",
        hint="stop whoever works on it, and try again",
    )


def _listed_in(log_list: LogList) -> tuple[list[int], tuple[LogPages, ...]]:
    pages = (log_list.pages,) if log_list.pages is not None and log_list.has_pages else ()
    return [segment.ledger_id for segment in log_list.segments], pages


async def _with_its_keys(
    runtime: Runtime, name: str, ids: list[int], pages: tuple[LogPages, ...], what: str
) -> tuple[list[Compare], list[Put | Delete]]:
    """Delete everything kept with a log together with its list, and note its ledgers, with those that left it before,
    where an unfinished deletion continues."""
    when: list[Compare] = []
    for path in (log_left_path(name), log_truncated_path(name), log_deleting_path(name)):
        held, held_revision = await runtime.get(path, what)
        when.append(Compare(path, ABSENT if held is None else held_revision))
        if held is not None:
            more = decode_ledgers_left(held)
            ids, pages = [*ids, *more.ledger_ids], (*more.pages, *pages)
    listed, listed_revision = await runtime.get(log_cursors_path(name), what)
    when.append(Compare(log_cursors_path(name), ABSENT if listed is None else listed_revision))
    cursors = decode_log_cursors(listed, name).cursors if listed is not None else ()
    ending = encode_ledgers_left(LedgersLeft(METADATA_VERSION, tuple(dict.fromkeys(ids)), pages))
    then: list[Put | Delete] = [
        Delete(log_left_path(name)),
        Delete(log_truncated_path(name)),
        Delete(log_pins_path(name)),
        Delete(log_cursors_path(name)),
        Delete(log_settings_path(name)),
        Delete(log_splices_path(name)),
        *(Delete(cursor_path(name, cursor.name)) for cursor in cursors),
        Put(log_deleting_path(name), ending),
    ]
    return when, then


async def _may_be_deleted(
    runtime: Runtime, name: str, ledger_id: int, password: Password, what: str, *, force: bool
) -> list[Compare]:
    """Compares, for the transaction that deletes the list, that its last ledger stays as it is: it must have no
    writer."""
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
    runtime: Runtime,
    name: str,
    password: Password | None,
    what: str,
    *,
    force: bool,
    grace_s: float | None = None,
) -> bool:
    """Delete the ledgers of a log whose list is gone; True if there was any to look for."""
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
            with contextlib.suppress(NoSuchLedger):  # An earlier try deleted it.
                await delete(runtime, ledger_id, password, force=force, grace_s=grace_s)
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
    # Without the truncated ledgers: a client may have brought them back.
    ids = [segment.ledger_id for segment in listed[pages.skipped :]]
    return ids, key, (left, *others) if left.first < left.end else tuple(others)
