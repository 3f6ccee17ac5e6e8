"""How marking, taking, ending and failing repairs change the keys of the catalog (P11; METADATA.md, 11). Pure.

Decides which keys change and what the answer is. The catalog carries it out, checks for room, and hands free marks to
waiting sessions. Each operation is one entry of the log, of up to 40 ledgers.

A hold is an ephemeral key, `/repairing/LEDGER`, so that it ends with its session; its revision is the epoch. The mark,
`/ur/LEDGER`, changes only when the knowledge about the ledger does, so the end of a repair compares the revision that
was worked off.

There is no clock here, and none is believed. A command of the leader (`ResumeRepairs`) ends the wait of a postponed
mark, as another ends a silent session, by the time that passed in its own process (`postponing.py`). With a time in the
request, one client with a wrong clock could hold a ledger back from all others, or ask without a pause. A count of
requests would stand still when no worker asks, as when all of them wait in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from embedbk.codec.ledger_metadata import ledger_of_key
from embedbk.codec.metadata_messages import Delete, Put, Record, Refusal
from embedbk.codec.repair_mark import (
    MARK_VERSION,
    MISSING_BYTES_MAX,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    is_missing_set,
    repair_mark_path,
)
from embedbk.codec.repair_messages import (
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    Repairing,
    RepairsEnded,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX
from embedbk.metadata.claims import REPAIRERS_PREFIX, REPAIRING_PREFIX, place_path, repairing_path
from embedbk.metadata.limits import Limits
from embedbk.metadata.planned import Planned
from embedbk.metadata.repair_index import RepairIndex, RepairWaiter, encode_waiting

__all__ = ["NOT_HELD", "RETURNED", "SETTLED", "View", "plan", "resumed"]

# RepairsEnded.outcomes.
NOT_HELD, SETTLED, RETURNED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class View:
    """The catalog as one operation of a session finds it. revision: of the catalog."""

    get: Callable[[str], Record | None]
    index: RepairIndex
    session: int
    keys: Mapping[str, None]  # Ephemeral ones of the session.
    revision: int
    limits: Limits


def plan(view: View, asked: Repairing) -> Planned | Refusal:
    match asked:
        case MarkRepairs():
            return _mark(view, asked)
        case TakeRepairs():
            return _take(view, asked)
        case EndRepairs():
            return _end(view, asked)
        case FailRepairs():
            return _fail(view, asked)


def _mark_of(view: View, ledger_id: int) -> tuple[Record | None, RepairMark | None]:
    """The record, and its mark; a record without a mark cannot be read."""
    record = view.get(repair_mark_path(ledger_id))
    if record is None:
        return None, None
    try:
        return record, decode_repair_mark(record.value or b"")
    except StorageError:
        return record, None


def _mark(view: View, asked: MarkRepairs) -> Planned:
    changes: list[Put | Delete] = []
    left: list[int] = []
    for ledger_id, missing in asked.marks:
        record, known = _mark_of(view, ledger_id)
        if record is not None and known is None:
            left.append(ledger_id)  # P2.5: it may be of a later build, which then has to delete it.
            continue
        if known is None:
            made = RepairMark(MARK_VERSION, tuple(sorted(set(missing))), min(asked.created_ms, LEDGER_ID_MAX))
        else:
            made = replace(known, missing=tuple(sorted({*known.missing, *missing})))
        if not is_missing_set(made.missing):
            left.append(ledger_id)
        elif made != known:
            changes.append(Put(repair_mark_path(ledger_id), encode_repair_mark(made)))
    return Planned(changes, lambda revision: RepairsMarked(revision, tuple(left)), needs_room=True)


def _take(view: View, asked: TakeRepairs) -> Planned | Refusal:
    if asked.asked:
        stands = _stands(view, asked.asked)
        return Planned([], lambda _: stands)
    place = next((key for key in view.keys if key.startswith(REPAIRERS_PREFIX)), None)
    if not asked.count:
        return Planned(
            [Delete(place)] if place is not None else [], lambda revision: RepairsTaken(0, 0, revision)
        )
    if place is not None:
        stands = _stands(view, int(place.removeprefix(REPAIRERS_PREFIX)))  # Asked again, it keeps its place.
        return Planned([], lambda _: stands)
    revision = view.revision + 1
    taken = view.index.oldest(asked.count, frozenset(asked.not_with))
    if taken:
        holds: list[Put | Delete] = [Put(repairing_path(ledger_id), b"", True) for ledger_id, _ in taken]
        told = _taken(view, revision, revision, revision, taken)
        return Planned(holds, lambda _: told, needs_room=True)
    most = view.limits.lock_waiters_max
    if view.index.counts()[2] >= most:
        return Refusal(
            "UNAVAILABLE", f"{most} sessions wait for something to repair, and no more may: ask later"
        )
    value = encode_waiting(RepairWaiter(asked.count, tuple(sorted(set(asked.not_with)))))
    waits = Put(place_path(REPAIRERS_PREFIX, revision), value, True)
    return Planned([waits], lambda _: RepairsTaken(0, revision, revision), needs_room=True)


def _stands(view: View, asked: int) -> RepairsTaken:
    """The outcome of an earlier request: it waits, or was handed marks, or nothing is left of it."""
    if place_path(REPAIRERS_PREFIX, asked) in view.keys:
        return RepairsTaken(0, asked, view.revision)
    held: list[tuple[int, tuple[str, ...]]] = []
    epoch = 0
    for key in view.keys:
        ledger_id = ledger_of_key(key, REPAIRING_PREFIX)
        hold = view.get(key) if ledger_id is not None else None
        if ledger_id is None or hold is None or hold.created != asked:
            continue
        known = _mark_of(view, ledger_id)[1]
        held.append((ledger_id, known.missing if known is not None else ()))
        epoch = hold.revision
    return _taken(view, epoch, asked if held else 0, view.revision, held)


def _taken(
    view: View, epoch: int, asked: int, revision: int, held: list[tuple[int, tuple[str, ...]]]
) -> RepairsTaken:
    """Answers are kept for their clients, so the bookies that one names have so many bytes; what has no room stands in
    the mark."""
    sets: dict[tuple[str, ...], int] = {}
    marks: list[tuple[int, int, int]] = []
    left = MISSING_BYTES_MAX
    for ledger_id, missing in held:
        size = sum(len(each.encode()) for each in missing)
        if missing not in sets and size > left:
            missing = ()
        elif missing not in sets:
            left -= size
        record = view.get(repair_mark_path(ledger_id))
        place = sets.setdefault(missing, len(sets))
        marks.append((ledger_id, record.revision if record is not None else 0, place))
    return RepairsTaken(epoch, asked, revision, tuple(marks), tuple(sets))


def _is_held(view: View, ledger_id: int, epoch: int) -> bool:
    """Whether this session holds it, under this epoch: a hold that was lost meanwhile allows nothing (P9.1)."""
    hold = view.get(repairing_path(ledger_id))
    return hold is not None and (hold.session, hold.revision) == (view.session, epoch)


def _end(view: View, asked: EndRepairs) -> Planned:
    changes: list[Put | Delete] = []
    outcomes: list[int] = []
    for ledger_id, epoch, worked_off in asked.ended:
        if not _is_held(view, ledger_id, epoch):
            outcomes.append(NOT_HELD)
            continue
        mark = view.get(repair_mark_path(ledger_id))
        is_settled = mark is None or mark.revision == worked_off
        if mark is not None and is_settled:
            changes.append(Delete(repair_mark_path(ledger_id)))
        changes.append(Delete(repairing_path(ledger_id)))
        outcomes.append(SETTLED if is_settled else RETURNED)
    return Planned(changes, lambda revision: RepairsEnded(revision, tuple(outcomes)))


def _fail(view: View, asked: FailRepairs) -> Planned:
    changes: list[Put | Delete] = []
    outcomes: list[int] = []
    for ledger_id, epoch in asked.failed:
        if not _is_held(view, ledger_id, epoch):
            outcomes.append(NOT_HELD)
            continue
        known = _mark_of(view, ledger_id)[1]
        if known is not None and asked.postpones:
            tries = min(known.tries + 1, LEDGER_ID_MAX)
            postponed = replace(known, tries=tries, is_postponed=True)
            changes.append(Put(repair_mark_path(ledger_id), encode_repair_mark(postponed)))
        changes.append(Delete(repairing_path(ledger_id)))
        outcomes.append(SETTLED)
    return Planned(changes, lambda revision: RepairsEnded(revision, tuple(outcomes)))


def resumed(get: Callable[[str], Record | None], marks: Iterable[tuple[int, int]]) -> list[Put]:
    """Free those of these marks, (ledger id, revision of the mark), that are still postponed at that revision."""
    changes: list[Put] = []
    for ledger_id, revision in dict(marks).items():
        record = get(repair_mark_path(ledger_id))
        if record is None or record.revision != revision:
            continue
        try:
            known = decode_repair_mark(record.value or b"")
        except StorageError:
            continue
        if known.is_postponed:
            changes.append(Put(record.key, encode_repair_mark(replace(known, is_postponed=False))))
    return changes
