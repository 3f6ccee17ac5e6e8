"""Where the name of a log leads, how a log gets its id and its name, and how it is renamed (P8.12), for both faces.

Decides by transactions alone: a name points to a log exactly where the log's identity says that name, as both change
together. Below LEVEL_OF_LOG_IDS a log is its name; what it says about itself then is its identity afterwards. Any
such key proves that the level is in force, also to a client that has not learned so yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedbk.client.runtime import Runtime
from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.log_identity import (
    LOG_ID_BITS,
    LogId,
    LogIdentity,
    LogIdentityState,
    LogPointer,
    decode_log_identity,
    decode_log_pointer,
    encode_log_identity,
    encode_log_pointer,
    log_identity_path,
    log_name_path,
    minted,
)
from embedbk.codec.log_list import LogList, encode_log_list, log_key_path, log_owner_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.errors import LogExists, MetadataConflict, MetadataUnavailable, NoSuchLedger, UsageError
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS

__all__ = [
    "ClaimedLog",
    "NamedLog",
    "check_level",
    "claim",
    "find",
    "free_name",
    "identity_of",
    "make",
    "named",
    "rename",
]

_ROUNDS_MAX = 20  # Tries while others change where the name leads.


class ClaimedLog(NamedTuple):
    """A log that is there, for a writer that takes it over."""

    log_id: LogId
    guard: tuple[Compare, ...]  # Compares that it still has this name, for the epoch's put.


class NamedLog(NamedTuple):
    """A log with its present pointer and identity."""

    log_id: LogId
    pointer_revision: int
    identity: LogIdentity
    revision: int  # The revision of the identity.

    @property
    def when(self) -> tuple[Compare, ...]:
        return (
            Compare(log_name_path(self.identity.name), self.pointer_revision),
            Compare(log_identity_path(self.log_id), self.revision),
        )


async def identity_of(runtime: Runtime, log_id: str, what: str) -> tuple[LogIdentity | None, int]:
    value, revision = await runtime.get(log_identity_path(log_id), what)
    if value is None:
        return None, ABSENT
    return decode_log_identity(value, log_id), revision


async def find(runtime: Runtime, name: str) -> LogId | str | None:
    """The id to which the name points; the name itself, if no log has an identity by that id: such a log would be from
    below the level, where its id is its name. None: the name leads to no log."""
    what = f"asking where the log name {name!r} leads"
    for _ in range(_ROUNDS_MAX):
        value, _ = await runtime.get(log_name_path(name), what)
        if value is not None:
            return LogId(decode_log_pointer(value, name).log_id, name)
        born, _ = await identity_of(runtime, name, what)
        if born is None:
            return name
        if born.state != LogIdentityState.NAMED or born.name != name:
            return None
        # It has got the name since the pointer was read.
    raise _restless(name)


async def claim(runtime: Runtime, name: str, *, creates: bool = True) -> ClaimedLog | None:
    """The log of this name, for a writer that takes it over; from the level on it has an identity then. creates: make
    a log that is not there, empty; otherwise return None for it."""
    for _ in range(_ROUNDS_MAX):
        found = await named(runtime, name, carries=True)
        if isinstance(found, NamedLog):
            return ClaimedLog(found.log_id, (Compare(log_identity_path(found.log_id), found.revision),))
        if found is not None:  # Nothing says that the level is in force.
            return ClaimedLog(LogId(name, name), found)
        if not creates:
            return None
        await make(runtime, name, ())
    raise _restless(name)


async def named(runtime: Runtime, name: str, *, carries: bool) -> NamedLog | tuple[Compare, ...] | None:
    """The log of this name, with its identity; None: there is none. Below the level: compares that this is still
    so. carries: a log from below the level gets its identity now; else it is as one that is not there."""
    what = f"asking where the log name {name!r} leads"
    for _ in range(_ROUNDS_MAX):
        value, pointer_revision = await runtime.get(log_name_path(name), what)
        if value is not None:
            log_id = LogId(decode_log_pointer(value, name).log_id, name)
            identity, revision = await identity_of(runtime, log_id, what)
            if identity is not None and identity.state == LogIdentityState.NAMED and identity.name == name:
                return NamedLog(log_id, pointer_revision, identity, revision)
            continue  # Renamed or deleted since.
        born, _ = await identity_of(runtime, name, what)
        if born is not None:
            if born.state == LogIdentityState.NAMED and born.name == name:
                continue
            return None
        nowhere = (Compare(log_name_path(name), ABSENT), Compare(log_identity_path(name), ABSENT))
        if not runtime.has_level(LEVEL_OF_LOG_IDS):
            return nowhere
        listed, list_revision = await runtime.get(log_key_path(name), what)
        owner, _ = await runtime.get(log_owner_path(name), what)
        if (listed is None and owner is None) or not carries:
            return None
        # From below the level: its id is the name that its keys and its ledgers have.
        identity = LogIdentity(METADATA_VERSION, name, LogIdentityState.NAMED)
        then: list[Put | Delete] = [
            Put(log_name_path(name), encode_log_pointer(LogPointer(METADATA_VERSION, name))),
            Put(log_identity_path(name), encode_log_identity(identity)),
        ]
        if listed is None:
            then.append(_empty_list(name))
        list_is = Compare(log_key_path(name), ABSENT if listed is None else list_revision)
        await runtime.transact([*nowhere, list_is], then, f"giving log {name!r} its identity")
    raise _restless(name)


def _empty_list(log_id: str) -> Put:
    return Put(log_key_path(log_id), encode_log_list(LogList(METADATA_VERSION, 0, ())))


async def free_name(runtime: Runtime, name: str, what: str) -> list[Compare] | None:
    """Compares that no log has this name; None: one has it."""
    value, _ = await runtime.get(log_name_path(name), what)
    if value is not None:
        return None
    when = [Compare(log_name_path(name), ABSENT)]
    born, _ = await identity_of(runtime, name, what)
    if born is not None:
        return when  # A log has this name as its id, and another name, for ever (P8.12).
    for path in (log_key_path(name), log_owner_path(name)):
        value, _ = await runtime.get(path, what)
        if value is not None:
            return None  # From below the level, and not carried over yet.
        when.append(Compare(path, ABSENT))
    return [*when, Compare(log_identity_path(name), ABSENT)]


async def make(runtime: Runtime, name: str, more: Sequence[tuple[str, bytes]]) -> LogId | None:
    """A log without a ledger: its id, its name and its list, by one transaction. more: (what comes behind the log's id
    in a key, value) that come with it. None: there is one of this name, or the name was taken just now."""
    what = f"creating log {name!r}"
    when = await free_name(runtime, name, what)
    if when is None:
        return None
    log_id = LogId(minted(runtime.chance.getrandbits(LOG_ID_BITS)), name)
    identity = LogIdentity(METADATA_VERSION, name, LogIdentityState.NAMED)
    then: list[Put | Delete] = [
        Put(log_name_path(name), encode_log_pointer(LogPointer(METADATA_VERSION, str(log_id)))),
        Put(log_identity_path(log_id), encode_log_identity(identity)),
        _empty_list(log_id),
        *(Put(f"/logs/{log_id}/{key}", value) for key, value in more),
    ]
    when += [Compare(log_identity_path(log_id), ABSENT), Compare(log_key_path(log_id), ABSENT)]
    return log_id if await runtime.transact(when, then, what) else None


def check_level(runtime: Runtime, name: str) -> None:
    if not runtime.has_level(LEVEL_OF_LOG_IDS):
        raise UsageError(
            f"log {name!r}: the cluster's level is below {LEVEL_OF_LOG_IDS}, and to builds that may come back a log is "
            "its name; nothing was changed",
            hint="embedbk quorum raise",
        )


async def rename(runtime: Runtime, name: str, new: str) -> None:
    """Rename by one transaction: if another rename, a deletion or a creation under the new name competes, one wins."""
    check_level(runtime, name)
    what = f"renaming log {name!r} to {new!r}"
    for _ in range(_ROUNDS_MAX):
        found = await named(runtime, name, carries=True)
        if not isinstance(found, NamedLog):
            raise NoSuchLedger(f"there is no log {name!r}", hint="check the name")
        if new == name:
            return
        free = await free_name(runtime, new, what)
        if free is None:
            raise LogExists(
                f"there is a log {new!r} already; log {name!r} keeps its name", hint="rename that one first"
            )
        identity = LogIdentity(METADATA_VERSION, new, LogIdentityState.NAMED)
        then: list[Put | Delete] = [
            Delete(log_name_path(name)),
            Put(log_name_path(new), encode_log_pointer(LogPointer(METADATA_VERSION, str(found.log_id)))),
            Put(log_identity_path(found.log_id), encode_log_identity(identity)),
        ]
        try:
            if await runtime.transact([*found.when, *free], then, what):
                return
        except MetadataUnavailable as unknown:
            if not unknown.definite and await _is_called(runtime, found, new, what):
                return
            raise
    raise _restless(name)


async def _is_called(runtime: Runtime, before: NamedLog, new: str, what: str) -> bool:
    """Whether a rename of unknown outcome was done: the identity has changed, and has the new name (P2.2)."""
    now, revision = await identity_of(runtime, before.log_id, what)
    return (
        now is not None
        and revision > before.revision
        and (now.state, now.name) == (LogIdentityState.NAMED, new)
    )


def _restless(name: str) -> MetadataConflict:
    return MetadataConflict(
        f"where the log name {name!r} leads changed {_ROUNDS_MAX} times; nothing was changed",
        definite=True,
        hint="try again",
    )
