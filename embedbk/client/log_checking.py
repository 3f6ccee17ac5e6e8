"""Checks whether a log's list fits the ledgers that it names, and finds ledgers that name a log which does not list
them.

Decides what is a finding, and which changes beside the check are none: a list that changed while it was looked at is
looked at again. Changes nothing (P8.6; "deletion never follows from an inference").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from embedbk.client.log_identity import find, identity_of
from embedbk.client.log_pages import ListWalk, PageGone
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.log_identity import LogId, LogIdentityState
from embedbk.codec.log_list import (
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    log_key_path,
    log_left_path,
)
from embedbk.errors import MetadataConflict, NoSuchLedger, StorageError

__all__ = [
    "LOG_OF_A_LEDGER",
    "KnownLedgers",
    "ListedLedgers",
    "LogFinding",
    "check_log",
    "known_ledgers",
    "listed_ledgers",
]

_ROUNDS_MAX = 5
LOG_OF_A_LEDGER = "log"  # The key under which a ledger's metadata names its log.
STAGED = "staged"  # The key that marks a ledger made for a log that waits for its splice (P8.5).
WRITTEN_MAX = 2  # So many last ledgers of a log may be open, or closed and not recorded so (P8.2).


# Metadata by ledger id; a sentence where it cannot be read.
KnownLedgers = Mapping[int, LedgerMetadata | str]


class LogFinding(NamedTuple):
    """One thing that does not fit. ledger_id: None if it concerns the list itself. is_unlisted: the ledger names the
    log, which does not list it."""

    ledger_id: int | None
    text: str
    is_unlisted: bool = False


class ListedLedgers(NamedTuple):
    """The ledgers of a log's list, in order, as far as it could be read."""

    segments: list[LogSegment]
    revision: int
    trouble: str  # Why there are no more of them; empty: these are all.


async def check_log(runtime: Runtime, name: str, known: KnownLedgers | None = None) -> list[LogFinding]:
    """known: all ledgers as they were a while ago (`known_ledgers`), which is enough for a log that fits them, so that
    many logs need one listing. A misfit is looked for again in a new listing of all ledgers.

    Raises NoSuchLedger: there is no such log. MetadataConflict: it changed again and again."""
    what = f"checking log {name!r}"
    log_id = await find(runtime, name)
    if log_id is None:
        raise NoSuchLedger(f"there is no log {name!r}", hint="check the name; its first writer makes it")
    name = log_id
    before: list[LogFinding] | None = None
    is_old = known is not None
    for _ in range(_ROUNDS_MAX + is_old):
        listed = await listed_ledgers(runtime, name, what)
        if known is None:
            known = await known_ledgers(runtime, what)
        left = await _left(runtime, name, what)
        found = [*await _of_identity(runtime, log_id, what), *_findings(name, listed, known, left)]
        known = None
        is_as_it_was = (await runtime.get(log_key_path(name), what))[1] == listed.revision
        if is_as_it_was and (not found or found == before):
            return found
        # A finding that is seen twice is not just a ledger that is being made or closed.
        before, is_old = None if is_old else found, False
    raise MetadataConflict(
        f"log {name!r} changed {_ROUNDS_MAX} times while it was checked", hint="check it again"
    )


async def _of_identity(runtime: Runtime, log_id: str, what: str) -> list[LogFinding]:
    """Findings about names: one has to point to this log exactly if the log's identity has that name (P8.12)."""
    if not isinstance(log_id, LogId):
        return []  # A log from below the level: its name is its id.
    try:
        identity, _ = await identity_of(runtime, log_id, what)
    except StorageError as unread:
        return [LogFinding(None, str(unread))]
    if identity is None:
        return [LogFinding(None, f"its name points to {str(log_id)!r}, and there is no identity of that id")]
    if identity.state != LogIdentityState.NAMED:
        return [LogFinding(None, f"its name points to {str(log_id)!r}, which was deleted")]
    if identity.name != log_id.called:
        return [LogFinding(None, f"its name points to {str(log_id)!r}, which is called {identity.name!r}")]
    return []


async def listed_ledgers(runtime: Runtime, name: str, what: str) -> ListedLedgers:
    """name: the log's id. Raises NoSuchLedger: there is no such log."""
    value, revision = await runtime.get(log_key_path(name), what)
    if value is None:
        raise NoSuchLedger(f"there is no log {name!r}", hint="check the name; its first writer makes it")
    segments: list[LogSegment] = []
    try:
        log_list, walk = decode_log_list(value, name), ListWalk(runtime, name)
        place = await walk.first(log_list)
        while place is not None:
            segments.append(place.segment)
            place = await walk.after(place, log_list)
    except PageGone:
        return ListedLedgers(segments, revision, "the next page of the list is not there")
    except StorageError as unread:
        return ListedLedgers(segments, revision, str(unread))
    return ListedLedgers(segments, revision, "")


async def known_ledgers(runtime: Runtime, what: str) -> dict[int, LedgerMetadata | str]:
    """All ledgers of the cluster."""
    found: dict[int, LedgerMetadata | str] = {}
    for record in await runtime.list_keys(LEDGERS_PREFIX, what):
        ledger_id = ledger_of_key(record.key)
        if ledger_id is None:
            continue
        try:
            found[ledger_id] = decode_ledger_metadata(record.value or b"", ledger_id)
        except StorageError as unread:
            found[ledger_id] = str(unread)
    return found


async def _left(runtime: Runtime, name: str, what: str) -> set[int]:
    """The ledgers that left the list and are to be deleted (P8.3)."""
    value, _ = await runtime.get(log_left_path(name), what)
    try:
        return set(decode_ledgers_left(value).ledger_ids) if value is not None else set()
    except StorageError:
        return set()


def _findings(
    name: str, listed: ListedLedgers, known: Mapping[int, LedgerMetadata | str], left: set[int]
) -> list[LogFinding]:
    segments = listed.segments
    found = [LogFinding(None, listed.trouble)] if listed.trouble else []
    expected: int | None = None  # The dense offset at which the next ledger begins.
    for index, segment in enumerate(segments):
        may_be_open = index >= len(segments) - WRITTEN_MAX
        found += [
            LogFinding(segment.ledger_id, text)
            for text in _of_segment(name, segment, known.get(segment.ledger_id), may_be_open=may_be_open)
        ]
        if expected is not None and segment.first_offset is not None and segment.first_offset != expected:
            text = f"it is listed from offset {segment.first_offset}, and the one before it ends behind {expected - 1}"
            found.append(LogFinding(segment.ledger_id, text))
        expected = None
        if segment.first_offset is not None and segment.last_entry is not None:
            expected = segment.first_offset + segment.last_entry + 1
    if listed.trouble:
        return found  # Its list is unknown, so nothing more can be checked.
    ids = {segment.ledger_id for segment in segments}
    for ledger_id, metadata in known.items():
        if isinstance(metadata, str) or ledger_id in ids or ledger_id in left or STAGED in metadata.custom:
            continue
        if metadata.custom.get(LOG_OF_A_LEDGER) == name.encode():
            found.append(LogFinding(ledger_id, "it names this log, which does not list it", True))
    return found


def _of_segment(
    name: str, segment: LogSegment, metadata: LedgerMetadata | str | None, *, may_be_open: bool
) -> list[str]:
    if metadata is None:
        return [f"the list names it, and there is no {ledger_key_path(segment.ledger_id)}"]
    if isinstance(metadata, str):
        return [metadata]
    texts: list[str] = []
    if metadata.custom.get(LOG_OF_A_LEDGER, name.encode()) != name.encode():
        texts.append(f"it names log {metadata.custom[LOG_OF_A_LEDGER].decode(errors='replace')!r}")
    if segment.last_entry is None:
        if not may_be_open:
            texts.append("its end is not recorded in the list, though others follow it")
    elif not metadata.is_closed:
        texts.append(f"it is listed as closed at entry {segment.last_entry}, and it is not closed")
    elif (segment.last_entry, segment.length or metadata.length) != (metadata.last_entry, metadata.length):
        texts.append(
            f"it is listed with last entry {segment.last_entry} and {segment.length} bytes, and was closed at "
            f"{metadata.last_entry} with {metadata.length}"
        )
    return texts
