"""The keys of locks, and of the sessions that wait for them, in the catalog (P9.3; METADATA.md, 7); likewise the keys
of repairs under way (METADATA.md, 11). Pure.

All are ephemeral keys of their sessions, so the rules for keys hold for them: they end with the session, appear in
lists, watches, snapshots and digests, and are counted. Only the operations about locks and repairs, and the end of a
session, change them.
"""

from __future__ import annotations

__all__ = [
    "REPAIRERS_PREFIX",
    "REPAIRING_PREFIX",
    "is_of_locks",
    "is_of_repairs",
    "lock_of",
    "lock_path",
    "place_path",
    "repairing_path",
    "waiting_path",
    "waiting_prefix",
]

_LOCKS, _WAITING = "/locks/", "/waiting/"
_OF_LOCKS = (_LOCKS, _WAITING)
REPAIRING_PREFIX, REPAIRERS_PREFIX = "/repairing/", "/repairers/"
_OF_REPAIRS = (REPAIRING_PREFIX, REPAIRERS_PREFIX)


def lock_path(name: str) -> str:
    """The key of a lock's holder. Its revision is the epoch, `created` the revision at which the holder asked."""
    return _LOCKS + name


def waiting_prefix(name: str) -> str:
    """The prefix of the keys of all that wait, in order of asking. A name has no '/', so no other key is there."""
    return f"{_WAITING}{name}/"


def place_path(prefix: str, asked: int) -> str:
    """The key of a session that asked at this revision, among those that wait under this prefix."""
    return f"{prefix}{asked:020d}"


def waiting_path(name: str, asked: int) -> str:
    return place_path(waiting_prefix(name), asked)


def lock_of(key: str) -> str:
    """The name of the lock whose holder's key this is; empty: it is none."""
    return key[len(_LOCKS) :] if key.startswith(_LOCKS) else ""


def is_of_locks(key: str) -> bool:
    return key.startswith(_OF_LOCKS)


def repairing_path(ledger_id: int) -> str:
    """The key of the session that repairs this ledger. Revision and `created` are as those of a lock."""
    return f"{REPAIRING_PREFIX}{ledger_id:016x}"


def is_of_repairs(key: str) -> bool:
    """Whether this is a key of a repair under way, or of a session that waits for one."""
    return key.startswith(_OF_REPAIRS)
