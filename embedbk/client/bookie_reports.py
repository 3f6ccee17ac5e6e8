"""What is known of a bookie: its report, for both faces, and what decisions about bookies look at (P11.3).

It says what a bookie does, which ledgers name it, and which bookies are registered, as the metadata says now. It
decides nothing, and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.client.bookie_states import BookieState, bookie_states
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.registration import (
    BOOKIES_PREFIX,
    UNBOUNDED,
    PlacementNote,
    ReadBounds,
    ReadOnlyWord,
    Registration,
    cookie_path,
    decode_cookie,
    decode_placement,
    decode_registration,
    placement_path,
)
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_state import UNREPAIRABLE_PREFIX
from embedbk.codec.tombstone import DELETED_PREFIX
from embedbk.errors import StorageError, UsageError
from embedbk.ids import Member, check_bookie_id
from embedbk.metadata.claims import REPAIRING_PREFIX
from embedbk.repair.bookie_use import ClusterKeys, LedgerOnBookie, ledgers_on

__all__ = [
    "BookieReport",
    "cluster_keys",
    "members_of",
    "named",
    "no_such_bookie",
    "note_of",
    "registered_now",
    "report_on",
]

SHOWN_MAX = 1_000  # Ledgers that are named; all are counted.
NAMED_MAX = 8  # Ledgers named in one sentence.


class BookieReport(NamedTuple):
    """A bookie, and what it waits for. is_draining: nothing is placed there, and what is there moves off. why, by,
    since_ms: of that decision. ledgers: those that name it, at most 1,000; ledger_count: all of them. incarnation: of
    the directories that its id is bound to, in hexadecimal digits; empty: of none. read_only: which
    operator put it to read-only, why and when, also while it is drained; None: nobody did. read_bounds: bytes per
    second that it reads for each class of reads at most; 0: as fast as it goes (P6.7)."""

    bookie: BookieState
    is_draining: bool
    why: str
    by: str
    since_ms: int
    ledgers: tuple[LedgerOnBookie, ...]
    ledger_count: int
    incarnation: str = ""
    read_only: ReadOnlyWord | None = None
    read_bounds: ReadBounds = UNBOUNDED

    @property
    def is_empty(self) -> bool:
        """Whether no ledger names it. While it is drained that stays so, and it may be decommissioned."""
        return self.ledger_count == 0


async def report_on(runtime: Runtime, bookie_id: str) -> BookieReport:
    """Raises UsageError: the cluster never had a bookie of this id, or has it no more."""
    check_bookie_id(bookie_id)
    what = f"looking at bookie {bookie_id}"
    state = {each.bookie_id: each for each in await bookie_states(runtime)}.get(bookie_id)
    if state is None:
        raise no_such_bookie(bookie_id)
    note, _ = await _note(runtime, bookie_id, what)
    return await _report(runtime, state, note, what)


async def _report(runtime: Runtime, state: BookieState, note: PlacementNote, what: str) -> BookieReport:
    there = await registered_now(runtime, what)
    found = ledgers_on(state.bookie_id, await cluster_keys(runtime, what), set(members_of(there)))
    told = (note.why, note.by, note.changed_ms) if note.is_draining else ("", "", 0)
    cookie, _ = await runtime.get(cookie_path(state.bookie_id), what)
    bound = decode_cookie(cookie).incarnation.hex() if cookie is not None else ""
    return BookieReport(
        state,
        note.is_draining,
        *told,
        tuple(found[:SHOWN_MAX]),
        len(found),
        bound,
        note.read_only,
        note.read_bounds,
    )


def no_such_bookie(bookie_id: str) -> UsageError:
    return UsageError(
        f"the cluster has no bookie {bookie_id}; nothing was changed",
        hint="embedbk bookie list names all that it has",
    )


async def _note(runtime: Runtime, bookie_id: str, what: str) -> tuple[PlacementNote, int]:
    value, revision = await runtime.get(placement_path(bookie_id), what)
    return note_of(bookie_id, value), revision


def note_of(bookie_id: str, value: bytes | None) -> PlacementNote:
    """What operators decided about the bookie. Raises StorageError: this build cannot read it. Then nobody may write
    there, since which directories are retired stands in it, too (P2.5)."""
    try:
        return decode_placement(value or b"")
    except StorageError as unread:
        raise StorageError(
            f"the placement of bookie {bookie_id} cannot be read, and was left as it is: {unread}",
            definite=True,
            hint="give this command with the build that wrote it",
        ) from unread


async def registered_now(runtime: Runtime, what: str) -> dict[str, Registration]:
    """The registrations by a linearizable read, unlike the list that clients follow. A bookie whose registration cannot
    be read counts as away."""
    found: dict[str, Registration] = {}
    for record in await runtime.list_keys(BOOKIES_PREFIX, what):
        bookie_id = record.key.removeprefix(BOOKIES_PREFIX)
        try:
            found[bookie_id] = decode_registration(record.value or b"", bookie_id)
        except StorageError:
            continue
    return found


def members_of(registered: dict[str, Registration]) -> list[Member]:
    return [Member(bookie_id, each.incarnation) for bookie_id, each in registered.items()]


async def cluster_keys(runtime: Runtime, what: str) -> ClusterKeys:
    """Ledgers, then deleted ones: a client that brings a ledger back in between raises the placements of the drained
    bookies that it names, which removal finds (`deleting.placements_now`)."""

    async def keys(prefix: str) -> dict[str, bytes]:
        return {each.key: each.value or b"" for each in await runtime.list_keys(prefix, what)}

    ledgers = await keys(LEDGERS_PREFIX)
    deleted = await keys(DELETED_PREFIX)
    marks, given_up = await keys(REPAIR_PREFIX), await keys(UNREPAIRABLE_PREFIX)
    return ClusterKeys(ledgers, deleted, marks, given_up, set(await keys(REPAIRING_PREFIX)))


def named(ledger_ids: list[int]) -> str:
    more = f" and {len(ledger_ids) - NAMED_MAX} more" if len(ledger_ids) > NAMED_MAX else ""
    return ", ".join(map(str, ledger_ids[:NAMED_MAX])) + more
