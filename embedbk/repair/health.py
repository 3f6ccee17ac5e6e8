"""How healthy a cluster is, of what its metadata says: which ledgers lack copies, since when, what is done about it.

Decides when no seat lacks its bookie: every fragment of every ledger names bookies that are there, in the incarnation
that has its copies, nothing is marked, and nothing was given up. "Cannot tell" is none of that: a ledger whose metadata
cannot be read counts as one that lacks copies. Whether each bookie has every entry that it should have is not asked
here, and nobody is told so: a recovery writes back to an ack quorum, and what the scrubber finds is each bookie's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_of_key
from embedbk.codec.repair_mark import RepairMark, decode_repair_mark, progress_of, repair_mark_path
from embedbk.codec.repair_state import Unrepairable, decode_unrepairable, unrepairable_path
from embedbk.errors import StorageError
from embedbk.ids import Member
from embedbk.metadata.claims import repairing_path

__all__ = ["Health", "LedgerHealth", "judge"]


class LedgerHealth(NamedTuple):
    """A ledger that lacks copies, or is marked, or cannot be read.

    missing: (first entry of the fragment, bookie) of each seat whose bookie is not there. since_ms: when it was marked
    first, by the clock of whoever did; 0: it is not. doing: "copying", "waiting", "postponed", "not marked yet",
    "given up", "its writer's" or "unreadable". why: of the last failure, if any.
    """

    ledger_id: int
    missing: tuple[tuple[int, str], ...]
    since_ms: int
    doing: str
    why: str = ""


class Health(NamedTuple):
    """is_seated: each seat of every ledger has its bookie, which is there. away: those that ledgers name and that are
    not. ledgers: those that lack something, at most as many as were asked for; lacking says how many there are.
    is_stopped: repair is switched off. auditor: who that is; empty: nobody. audited_ms: when the last whole round of
    the auditor ended; 0: never."""

    is_seated: bool
    ledger_count: int
    lacking: int
    marks: int
    given_up: int
    away: tuple[str, ...]
    ledgers: tuple[LedgerHealth, ...]
    is_stopped: bool = False
    auditor: str = ""
    audited_ms: int = 0

    def __str__(self) -> str:
        off = "; repair is switched off" if self.is_stopped else ""
        if self.is_seated:
            return f"each seat of {self.ledger_count} ledgers has its bookie; entries are not counted{off}"
        named = ", ".join(str(each.ledger_id) for each in self.ledgers[:8])
        more = f" and {self.lacking - 8} more" if self.lacking > 8 else ""
        away = f"; away: {', '.join(self.away)}" if self.away else ""
        nobody = "; there is no auditor" if not self.auditor else ""
        return f"copies are missing: {self.lacking} of {self.ledger_count} ledgers ({named}{more}){away}{off}{nobody}"


def judge(
    ledgers: Mapping[str, bytes],
    there: Iterable[Member],
    marks: Mapping[str, bytes],
    given_up: Mapping[str, bytes],
    held: Iterable[str],
    most: int,
) -> Health:
    """Of all keys with their values. held: keys of holds on repairs."""
    present, holds = frozenset(there), frozenset(held)
    bad: list[LedgerHealth] = []
    away: set[str] = set()
    for key, value in ledgers.items():
        ledger_id = ledger_of_key(key)
        found = None
        if ledger_id is not None:
            found = _of_ledger(ledger_id, value, present, marks, given_up, holds, away)
        if found is not None:
            bad.append(found)
    # A mark of a ledger that is gone ends soon; until then something is not as it should be.
    known = {ledger_key.rpartition("/")[2] for ledger_key in ledgers}
    stray = sum(key.rpartition("/")[2] not in known for key in (*marks, *given_up))
    is_seated = not (bad or stray)
    return Health(
        is_seated, len(ledgers), len(bad), len(marks), len(given_up), tuple(sorted(away)), tuple(bad[:most])
    )


def _of_ledger(
    ledger_id: int,
    value: bytes,
    there: frozenset[Member],
    marks: Mapping[str, bytes],
    given_up: Mapping[str, bytes],
    holds: frozenset[str],
    away: set[str],
) -> LedgerHealth | None:
    try:
        metadata = decode_ledger_metadata(value, ledger_id)
    except StorageError as unread:
        return LedgerHealth(ledger_id, (), 0, "unreadable", str(unread))
    missing = tuple(
        (fragment.first_entry, member.bookie_id)
        for fragment in metadata.fragments
        for member in fragment.members
        if member not in there
    )
    away.update(bookie_id for _, bookie_id in missing)
    mark, lost = marks.get(repair_mark_path(ledger_id)), given_up.get(unrepairable_path(ledger_id))
    if not missing and mark is None and lost is None:
        return None
    is_last_only = not metadata.is_closed and all(
        first == metadata.fragments[-1].first_entry for first, _ in missing
    )
    if mark is None and lost is not None:
        return _given_up(ledger_id, missing, lost)
    if mark is None:
        return LedgerHealth(ledger_id, missing, 0, "its writer's" if is_last_only else "not marked yet")
    try:
        known = decode_repair_mark(mark)
    except StorageError as unread:
        return LedgerHealth(ledger_id, missing, 0, "unreadable", str(unread))
    is_held = repairing_path(ledger_id) in holds
    return LedgerHealth(
        ledger_id, missing, known.created_ms, _doing(known, is_held=is_held), progress_of(known).why
    )


def _doing(mark: RepairMark, *, is_held: bool) -> str:
    if is_held:
        return "copying"
    return "postponed" if mark.is_postponed else "waiting"


def _given_up(ledger_id: int, missing: tuple[tuple[int, str], ...], value: bytes) -> LedgerHealth:
    try:
        found: Unrepairable = decode_unrepairable(value)
    except StorageError as unread:
        return LedgerHealth(ledger_id, missing, 0, "unreadable", str(unread))
    return LedgerHealth(ledger_id, missing, found.since_ms, "given up", found.why)
