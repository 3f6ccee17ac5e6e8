"""How acquiring and releasing a lock change the keys of the catalog (P9.3; METADATA.md, 7). Pure.

Decides whether a session holds a lock or waits for it, and which waiting session gets one that is free. The catalog
carries it out, checks for room, and hands a free lock over in the same command. Which keys these are stands in
`claims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from embedbk.codec.metadata_messages import Acquire, Claimed, Delete, Put, Record, Refusal, Release, TxnDone
from embedbk.metadata.claims import lock_of, lock_path, waiting_path, waiting_prefix
from embedbk.metadata.packed_records import PackedRecords
from embedbk.metadata.planned import Planned

__all__ = ["acquire", "first_waiting", "release"]


def acquire(
    records: PackedRecords, keys: Mapping[str, None], asked: Acquire, revision: int, waiters_max: int
) -> Planned | Refusal:
    """P9.3: give the lock at once if no session holds it, else queue behind all that wait. keys: ephemeral ones of the
    session. revision: of the catalog."""
    known = _claim_of(records, keys, asked.name)
    if known is not None:
        stands = Claimed(known.revision if lock_of(known.key) else 0, known.created, revision)
        return Planned([], lambda _: stands)
    asked_at, is_free = revision + 1, lock_path(asked.name) not in records
    key = lock_path(asked.name) if is_free else waiting_path(asked.name, asked_at)
    if not is_free and _count_waiting(records, asked.name, waiters_max) >= waiters_max:
        return Refusal("UNAVAILABLE", f"{waiters_max} sessions wait for lock {asked.name!r}, and no more may")
    claimed = Claimed(asked_at if is_free else 0, asked_at, asked_at)
    return Planned([Put(key, asked.value, True)], lambda _: claimed, needs_room=True)


def release(records: PackedRecords, keys: Mapping[str, None], asked: Release) -> Planned:
    """The session holds the lock no longer, or waits for it no longer. keys: ephemeral ones of the session."""
    known = _claim_of(records, keys, asked.name)
    if known is None or (asked.epoch and (not lock_of(known.key) or known.revision != asked.epoch)):
        return Planned([], lambda revision: TxnDone(False, revision))
    return Planned([Delete(known.key)], lambda revision: TxnDone(True, revision), frees=lock_of(known.key))


def first_waiting(records: PackedRecords, name: str) -> Record | None:
    """The key of the session that waits for the lock for longest."""
    prefix = waiting_prefix(name)
    first = next(records.begin(prefix), None)
    return first if first is not None and first.key.startswith(prefix) else None


def _claim_of(records: PackedRecords, keys: Mapping[str, None], name: str) -> Record | None:
    """The key under which the session with these keys holds the lock or waits for it."""
    waiting = waiting_prefix(name)
    key = next((key for key in keys if key == lock_path(name) or key.startswith(waiting)), None)
    return records.get(key) if key else None


def _count_waiting(records: PackedRecords, name: str, most: int) -> int:
    prefix = waiting_prefix(name)
    return sum(record.key.startswith(prefix) for record in islice(records.begin(prefix), most))
