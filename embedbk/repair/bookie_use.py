"""Ledgers with copies on one bookie, and why it cannot be taken out of service yet (P11.3).

Decides which ledgers name a bookie, in any incarnation, also deleted ones that can still be brought back; which of
their fragments repair copies away, and which are left to their writers; which have copies that no other bookie could
take; and how many bookies have to take entries, so that what is written goes on. "Cannot tell" is no "no": a ledger
whose metadata cannot be read may name any bookie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from embedbk.codec.freed_ledger import LOG_OF_LEDGER
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_of_key,
)
from embedbk.codec.repair_mark import decode_repair_mark, progress_of, repair_mark_path
from embedbk.codec.repair_state import decode_unrepairable, unrepairable_path
from embedbk.codec.tombstone import DELETED_PREFIX, decode_tombstone
from embedbk.core.client_words import BookieInfo
from embedbk.core.quorum import write_set
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.metadata.claims import repairing_path

__all__ = [
    "UNREADABLE",
    "ClusterKeys",
    "LedgerOnBookie",
    "incarnations_of",
    "leaving_now",
    "ledgers_on",
    "moving",
    "seats_needed",
    "without_taker",
]

UNREADABLE, DELETED = "unreadable", "DELETED"


class LedgerOnBookie(NamedTuple):
    """A ledger that names the bookie.

    state: "OPEN", "IN_RECOVERY", "CLOSED",
    "DELETED" (it can be brought back) or "unreadable". fragments: that name the bookie. waits_for: what happens before
    it names the bookie no more, for people. is_last: of a fragment of it no other bookie with copies is there.
    """

    ledger_id: int
    state: str
    fragments: int
    waits_for: str
    is_last: bool = False


class ClusterKeys(NamedTuple):
    """All keys with their values, as they were listed. held: of repairs."""

    ledgers: Mapping[str, bytes]
    deleted: Mapping[str, bytes]
    marks: Mapping[str, bytes]
    given_up: Mapping[str, bytes]
    held: Collection[str]


def leaving_now(bookies: Iterable[BookieInfo]) -> frozenset[Member]:
    return frozenset(info.member for info in bookies if info.is_leaving)


def moving(metadata: LedgerMetadata, leaving: Collection[Member], *, is_left: bool = False) -> set[str]:
    """The leaving bookies that are named by a fragment which is not written to any more. is_left: its writer is gone,
    and it is closed first."""
    if not leaving:
        return set()
    immutable = metadata.fragments if metadata.is_closed or is_left else metadata.fragments[:-1]
    return {member.bookie_id for each in immutable for member in each.members if member in leaving}


def ledgers_on(bookie_id: str, keys: ClusterKeys, there: Collection[Member]) -> list[LedgerOnBookie]:
    """there: the registered bookies."""
    found: list[LedgerOnBookie] = []
    for key, value in keys.ledgers.items():
        ledger_id = ledger_of_key(key, LEDGERS_PREFIX)
        if ledger_id is None:
            continue  # A stranger's key, which is no ledger's.
        try:
            metadata = decode_ledger_metadata(value, ledger_id)
        except StorageError as unread:
            found.append(LedgerOnBookie(ledger_id, UNREADABLE, 0, str(unread)))
            continue
        count = _named(metadata, bookie_id)
        if count:
            state = LedgerState(metadata.state).name
            waits_for = _waits_for(metadata, bookie_id, keys)
            found.append(
                LedgerOnBookie(
                    metadata.ledger_id, state, count, waits_for, _is_last(metadata, bookie_id, there)
                )
            )
    for key, value in keys.deleted.items():
        ledger_id = ledger_of_key(key, DELETED_PREFIX)
        if ledger_id is None:
            continue
        try:
            metadata = decode_ledger_metadata(decode_tombstone(value).metadata, ledger_id)
        except StorageError as unread:
            found.append(LedgerOnBookie(ledger_id, UNREADABLE, 0, str(unread)))
            continue
        count = _named(metadata, bookie_id)
        if count:
            waits_for = "it was deleted, and goes when its grace is over"
            found.append(LedgerOnBookie(metadata.ledger_id, DELETED, count, waits_for))
    return found


def incarnations_of(bookie_id: str, keys: ClusterKeys) -> set[bytes]:
    """In which ledgers name the bookie."""
    found: set[bytes] = set()
    for key, value in keys.ledgers.items():
        try:
            metadata = decode_ledger_metadata(value, ledger_of_key(key, LEDGERS_PREFIX))
        except StorageError:
            continue
        found |= {held for each in metadata.fragments for name, held in each.ensemble if name == bookie_id}
    return found


def _named(metadata: LedgerMetadata, bookie_id: str) -> int:
    return sum(any(name == bookie_id for name, _ in each.ensemble) for each in metadata.fragments)


def _is_last(metadata: LedgerMetadata, bookie_id: str, there: Collection[Member]) -> bool:
    """Of some write set nobody else is there: striped, others of the ensemble do not have those entries."""
    for each in metadata.fragments:
        names = [member.bookie_id for member in each.members]
        if bookie_id not in names:
            continue
        seat = names.index(bookie_id)
        others = {number for number, member in enumerate(each.members) if number != seat and member in there}
        for residue in range(metadata.ensemble_size):
            seats = write_set(residue, metadata.quorum)
            if seat in seats and not others.intersection(seats):
                return True
    return False


def _waits_for(metadata: LedgerMetadata, bookie_id: str, keys: ClusterKeys) -> str:
    ledger_id = metadata.ledger_id
    immutable = metadata.fragments if metadata.is_closed else metadata.fragments[:-1]
    if not any(name == bookie_id for each in immutable for name, _ in each.ensemble):
        if metadata.state == LedgerState.OPEN and not metadata.writer:
            return f"its writer moves it; where none lives: embedbk ledger recover {ledger_id}"
        return (
            f"its writer moves it, or it is closed when that is gone; now: embedbk ledger recover {ledger_id}"
        )
    mark = keys.marks.get(repair_mark_path(ledger_id))
    if mark is None:
        given_up = keys.given_up.get(unrepairable_path(ledger_id))
        return "it is not marked yet" if given_up is None else f"it cannot be copied: {_why_not(given_up)}"
    if repairing_path(ledger_id) in keys.held:
        return "it is copied"
    try:
        known = decode_repair_mark(mark)
    except StorageError as unread:
        return str(unread)
    why = progress_of(known).why
    if known.is_postponed:
        return f"it is tried again later{f': {why}' if why else ''}"
    return "it waits for a worker"


def _why_not(value: bytes) -> str:
    try:
        return decode_unrepairable(value).why
    except StorageError as unread:
        return str(unread)


def without_taker(bookie_id: str, ledgers: Mapping[str, bytes], takers: Collection[str]) -> list[int]:
    """Ledgers with a fragment on this bookie whose seat none of `takers` can take, since each has a seat in it
    already."""
    found: list[int] = []
    for key, value in ledgers.items():
        try:
            metadata = decode_ledger_metadata(value, ledger_of_key(key, LEDGERS_PREFIX))
        except StorageError:
            continue  # It cannot be read, so it is not moved at all.
        for each in metadata.fragments:
            names = [name for name, _ in each.ensemble]
            if bookie_id in names and all(name in names for name in takers):
                found.append(metadata.ledger_id)
                break
    return found


def seats_needed(ledgers: Mapping[str, bytes]) -> tuple[int, list[int]]:
    """The most seats that a ledger has which is open, or the newest of its log: the log's next one is made like that.
    And the ledgers that have so many. One that cannot be read needs nobody whom it could name."""
    newest: dict[bytes, LedgerMetadata] = {}
    needing: dict[int, int] = {}
    for key, value in ledgers.items():
        try:
            metadata = decode_ledger_metadata(value, ledger_of_key(key, LEDGERS_PREFIX))
        except StorageError:
            continue
        log = metadata.custom.get(LOG_OF_LEDGER)
        if metadata.state == LedgerState.OPEN:
            needing[metadata.ledger_id] = metadata.ensemble_size
        elif log is not None and (log not in newest or newest[log].ledger_id < metadata.ledger_id):
            newest[log] = metadata
    needing.update((each.ledger_id, each.ensemble_size) for each in newest.values())
    seats = max(needing.values(), default=0)
    return seats, sorted(ledger_id for ledger_id, size in needing.items() if size == seats)
