"""How healthy a cluster is: which ledgers lack copies, how many entries, since when, what is done about it.

Decides when all is good: every fragment of every ledger names registered bookies, in the incarnation that has its
copies; no ledger is marked, and none was given up; and each of those bookies has counted every entry that it owes of
CLOSED ledgers, and reports the same digests of them as the others (P11.4); and no closed ledger of a log has fewer
copies than the log's settings name, where so many bookies take some (P2.6). "Cannot tell" is never good: a ledger whose
metadata cannot be read counts as one that lacks copies, and if a bookie did not report what it holds, the cluster is
not called good. A ledger that is not closed is left to its writer, which alone knows its entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_of_key
from embedbk.codec.lost_entries import lost_count
from embedbk.codec.repair_mark import RepairMark, decode_repair_mark, moves_of, progress_of, repair_mark_path
from embedbk.codec.repair_state import Unrepairable, decode_unrepairable, unrepairable_path
from embedbk.config import Quorum
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.claims import repairing_path
from embedbk.repair.copy_comparison import Conflict
from embedbk.repair.holdings import Checked, entries_short
from embedbk.repair.reshaping import is_misfit, log_of

__all__ = ["Health", "LedgerHealth", "judge", "with_holdings", "with_settings"]


class LedgerHealth(NamedTuple):
    """A ledger that lacks copies, or is marked, or cannot be read.

    missing: (first entry of the fragment, bookie) of each seat whose bookie is not registered. since_ms: when it was
    marked first, by the marker's clock; 0: it is not marked. doing: "copying", "waiting", "postponed", "not marked
    yet", "given up", "its writer's", "cannot tell", "conflict" or "unreadable". why: of the last failure, if any.
    entries: at least so many lack a copy on a registered bookie. lacking: (bookie, how many) of those. untold: bookies
    that did not report what they hold. conflicts: entries of which bookies hold copies that differ, each whole by
    itself, with (bookie, digest of its copy); of very many the first 64. no_copy: the first entry of which repair found
    no good copy on any bookie that is there; NO_ENTRY: it found none. unlike: (bookie, first entry, last) of copies
    that are whole by themselves, and are not what their writer published (P11.4).
    """

    ledger_id: int
    missing: tuple[tuple[int, str], ...]
    since_ms: int
    doing: str
    why: str = ""
    entries: int = 0
    lacking: tuple[tuple[str, int], ...] = ()
    untold: tuple[str, ...] = ()
    conflicts: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()
    no_copy: int = NO_ENTRY
    unlike: tuple[tuple[str, int, int], ...] = ()


class Health(NamedTuple):
    """is_seated: each seat of every ledger has its bookie, which is registered. away: bookies that ledgers name and
    that are not registered. ledgers: those that lack something, at most as many as were asked for; lacking: how many
    there are. is_stopped: repair is switched off. auditor: its name; empty: there is none. audited_ms: when the
    auditor's last whole round ended; 0: never. is_good: all is as it should be. counted: CLOSED ledgers of which every
    bookie has all that it owes. untold: ledgers of which a bookie did not report what it holds. entries: at least so
    many lack a copy on a registered bookie; copies: how many copies are missing. why_uncounted: why no bookie was
    asked; empty: they were. conflicts: entries whose
    copies differ, each whole by itself: which one is right nobody here knows, so nothing repairs them. lost: entries
    that operators gave up for ever, of lost_ledgers (P11.5); nobody owes these. read_only: registered bookies that take
    nothing new and are not drained, each with why; that is no lack. fewer: CLOSED ledgers that have fewer copies than
    their logs' settings name. unlike: CLOSED ledgers with copies that are not what their writer published. grace_s: how
    long a bookie is away before it counts as gone, as operators set it; 0: as each host is set. stopped_by,
    stopped_why, stopped_until_ms: who switched repair off, why, and when the auditor switches it on again; 0: nobody
    but an operator does. racks: over so many racks lie the copies of each entry of a CLOSED ledger, at least; 0: it is
    not known, as a bookie does not say where it is. told_ms: when the metadata was read: what was closed by then is in
    it."""

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
    is_good: bool = False
    counted: int = 0
    untold: int = 0
    entries: int = 0
    copies: int = 0
    why_uncounted: str = "entries are not counted"
    conflicts: int = 0
    lost: int = 0
    lost_ledgers: int = 0
    read_only: tuple[tuple[str, str], ...] = ()
    fewer: int = 0
    unlike: int = 0
    grace_s: float = 0.0
    stopped_by: str = ""
    stopped_why: str = ""
    stopped_until_ms: int = 0
    racks: int = 0
    told_ms: int = 0

    def __str__(self) -> str:
        given_up = f"; {self.lost} entries of {self.lost_ledgers} ledgers were given up for ever"
        said = self._of_copies() + (given_up if self.lost_ledgers else "")
        closed = ", ".join(f"{name} ({why})" if why else name for name, why in self.read_only)
        if self.unlike:
            strange = [each for each in self.ledgers if each.unlike]
            named = ", ".join(
                f"ledger {each.ledger_id} on {' '.join(sorted({name for name, _, _ in each.unlike}))}"
                for each in strange[:8]
            )
            more = f" and {len(strange) - 8} more" if len(strange) > 8 else ""
            said += f"; copies are not what their writer published: {named}{more}"
        if self.fewer:
            said += f"; {self.fewer} closed ledgers have fewer copies than the settings of their logs name"
        return said + (f"; takes nothing new: {closed}" if closed else "")

    def _of_copies(self) -> str:
        off = "; repair is switched off" if self.is_stopped else ""
        is_uncertain = self.why_uncounted or self.untold or self.entries or self.conflicts or self.unlike
        if self.is_good or (self.is_seated and self.fewer and not is_uncertain):
            seats = f"each seat of all {self.ledger_count} ledgers has its bookie"
            spread = f", on {self.racks} racks or more" if self.racks > 1 else ""
            return f"every entry of {self.counted} closed ledgers has all of its copies{spread}, and {seats}{off}"
        if self.is_seated and self.why_uncounted:
            return f"each seat of {self.ledger_count} ledgers has its bookie; {self.why_uncounted}{off}"
        if self.is_seated and self.conflicts and not self.entries:
            named = ", ".join(str(each.ledger_id) for each in self.ledgers if each.conflicts)
            return f"copies of {self.conflicts} entries differ, each whole by itself, in ledgers {named}{off}"
        if self.is_seated and self.unlike and not self.untold and not self.entries:
            return f"each seat of all {self.ledger_count} ledgers has its bookie{off}"
        if self.is_seated and not self.entries:
            return (
                f"what {self.untold} of {self.ledger_count} ledgers have on their bookies cannot be told{off}"
            )
        named = ", ".join(str(each.ledger_id) for each in self.ledgers[:8])
        more = f" and {self.lacking - 8} more" if self.lacking > 8 else ""
        away = f"; away: {', '.join(self.away)}" if self.away else ""
        nobody = "; there is no auditor" if not self.auditor else ""
        entries = f"; {self.entries} entries lack a copy on a bookie that is there" if self.entries else ""
        differ = f"; copies of {self.conflicts} entries differ" if self.conflicts else ""
        without = [each for each in self.ledgers if each.no_copy != NO_ENTRY]
        shown = ", ".join(f"entry {each.no_copy} of ledger {each.ledger_id}" for each in without[:3])
        beyond = f" and of {len(without) - 3} ledgers more" if len(without) > 3 else ""
        rotten = f"; no bookie that is there has a good copy of {shown}{beyond}" if without else ""
        what = f"{self.lacking} of {self.ledger_count} ledgers ({named}{more})"
        return f"copies are missing: {what}{entries}{rotten}{differ}{away}{off}{nobody}"


def judge(
    ledgers: Mapping[str, bytes],
    there: Iterable[Member],
    marks: Mapping[str, bytes],
    given_up: Mapping[str, bytes],
    held: Iterable[str],
    most: int,
    leaving: Collection[str] = (),
) -> Health:
    """Judge all keys with their values. held: keys of holds on repairs. leaving: ids of registered bookies that are
    drained: a ledger that is marked for them alone lacks nothing."""
    present, holds, leaving = frozenset(there), frozenset(held), frozenset(leaving)
    bad: list[LedgerHealth] = []
    away: set[str] = set()
    lost: dict[int, int] = {}
    for key, value in ledgers.items():
        ledger_id = ledger_of_key(key)
        found = None
        if ledger_id is not None:
            found = _of_ledger(ledger_id, value, present, marks, given_up, holds, away, leaving, lost)
        if found is not None:
            bad.append(found)
    # A mark of a ledger that is gone ends soon; until then something is not as it should be.
    known = {ledger_key.rpartition("/")[2] for ledger_key in ledgers}
    stray = sum(key.rpartition("/")[2] not in known for key in (*marks, *given_up))
    is_seated = not (bad or stray)
    return Health(
        is_seated,
        len(ledgers),
        len(bad),
        len(marks),
        len(given_up),
        tuple(sorted(away)),
        tuple(bad[:most]),
        lost=sum(lost.values()),
        lost_ledgers=len(lost),
    )


def with_settings(
    health: Health, closed: Iterable[LedgerMetadata], wanted: Mapping[str, Quorum], writable: int
) -> Health:
    """The same health, with what the settings of logs, by their ids, name for these CLOSED ledgers."""
    fewer = 0
    for metadata in closed:
        log = log_of(metadata)
        named = None if log is None else wanted.get(log)
        if named is not None and is_misfit(metadata, named) and metadata.last_entry != NO_ENTRY:
            fewer += metadata.write_quorum < named.write_quorum and named.ensemble_size <= writable
    return health._replace(fewer=fewer, is_good=health.is_good and not fewer)


def _of_ledger(
    ledger_id: int,
    value: bytes,
    there: frozenset[Member],
    marks: Mapping[str, bytes],
    given_up: Mapping[str, bytes],
    holds: frozenset[str],
    away: set[str],
    leaving: frozenset[str],
    given_up_for_ever: dict[int, int],
) -> LedgerHealth | None:
    try:
        metadata = decode_ledger_metadata(value, ledger_id)
    except StorageError as unread:
        return LedgerHealth(ledger_id, (), 0, "unreadable", str(unread))
    if metadata.lost:
        given_up_for_ever[ledger_id] = lost_count(metadata.lost)
    missing = tuple(
        (fragment.first_entry, member.bookie_id)
        for fragment in metadata.fragments
        for member in fragment.members
        if member not in there
    )
    away.update(bookie_id for _, bookie_id in missing)
    mark, lost = marks.get(repair_mark_path(ledger_id)), given_up.get(unrepairable_path(ledger_id))
    if not missing and (metadata.freed is not None or (mark is None and lost is None)):
        return None  # Nobody owes a copy of what is in files, also while copies of it come back under a mark (P8.14).
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
    # Copies that go elsewhere are there until then.
    if not missing and lost is None and {*leaving, *moves_of(known)}.issuperset(known.missing):
        return None
    is_held = repairing_path(ledger_id) in holds
    found = LedgerHealth(
        ledger_id, missing, known.created_ms, _doing(known, is_held=is_held), progress_of(known).why
    )
    return found if lost is None else found._replace(no_copy=_given_up(ledger_id, missing, lost).no_copy)


def _doing(mark: RepairMark, *, is_held: bool) -> str:
    if is_held:
        return "copying"
    return "postponed" if mark.is_postponed else "waiting"


def _given_up(ledger_id: int, missing: tuple[tuple[int, str], ...], value: bytes) -> LedgerHealth:
    try:
        found: Unrepairable = decode_unrepairable(value)
    except StorageError as unread:
        return LedgerHealth(ledger_id, missing, 0, "unreadable", str(unread))
    return LedgerHealth(ledger_id, missing, found.since_ms, "given up", found.why, no_copy=found.entry_id)


def with_holdings(
    health: Health,
    checked: Checked,
    asked: Mapping[int, LedgerMetadata],
    marks: Mapping[str, bytes],
    held: Iterable[str],
    most: int,
) -> Health:
    """The same health, with the bookies' answers about these CLOSED ledgers. marks and held: as they are now."""
    holds = frozenset(held)
    known = {each.ledger_id: each for each in health.ledgers}
    found: list[LedgerHealth] = []
    entries = copies = untold = conflicts = unlike = 0
    for ledger_id, metadata in asked.items():
        short, silent = checked.short.get(ledger_id, {}), checked.untold.get(ledger_id, {})
        differing = checked.conflicts.get(ledger_id, [])
        strange = tuple(sorted({each[:3] for each in checked.unlike.get(ledger_id, ())}))
        untold += bool(silent)
        unlike += bool(strange)
        conflicts += len(differing)
        if not short and not silent and not differing and not strange:
            continue
        count = entries_short(short.values(), metadata.ensemble_size) if short else 0
        entries, copies = entries + count, copies + sum(each.copies for each in short.values())
        was = known.pop(ledger_id, None)
        if was is None and (differing or strange) and not short:
            was = LedgerHealth(ledger_id, (), 0, "conflict")
        was = was or _since(ledger_id, marks, holds, silent if not short else {})
        lacking = tuple(sorted((bookie_id, each.copies) for bookie_id, each in short.items()))
        named_copies = tuple((each.entry_id, _digests(each)) for each in sorted(differing))
        found.append(
            was._replace(
                entries=count,
                lacking=lacking,
                untold=tuple(sorted(silent)),
                conflicts=named_copies,
                unlike=strange,
            )
        )
    named = {each.ledger_id for each in found}
    others = [each for each in health.ledgers if each.ledger_id not in named]
    lacking_more = len(named - {each.ledger_id for each in health.ledgers})
    return health._replace(
        is_good=health.is_seated and not found,
        counted=len(asked) - len(named),
        untold=untold,
        entries=entries,
        copies=copies,
        conflicts=conflicts,
        unlike=unlike,
        why_uncounted="",
        lacking=health.lacking + lacking_more,
        ledgers=tuple(sorted([*others, *found])[:most]),
    )


def _digests(conflict: Conflict) -> tuple[tuple[str, str], ...]:
    return tuple((bookie_id, f"{digest:016x}") for bookie_id, digest in conflict.copies)


def _since(
    ledger_id: int, marks: Mapping[str, bytes], holds: frozenset[str], silent: Mapping[str, str]
) -> LedgerHealth:
    """The state of a ledger whose seats all have their bookies."""
    if silent:
        why = ", ".join(f"{bookie_id}: {silent[bookie_id]}" for bookie_id in sorted(silent))
        return LedgerHealth(ledger_id, (), 0, "cannot tell", why)
    mark = marks.get(repair_mark_path(ledger_id))
    if mark is None:
        return LedgerHealth(ledger_id, (), 0, "not marked yet")
    try:
        known = decode_repair_mark(mark)
    except StorageError as unread:
        return LedgerHealth(ledger_id, (), 0, "unreadable", str(unread))
    doing = _doing(known, is_held=repairing_path(ledger_id) in holds)
    return LedgerHealth(ledger_id, (), known.created_ms, doing, progress_of(known).why)
