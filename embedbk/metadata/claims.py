"""Where locks and those who wait for them stand in the catalog (P9.3; METADATA.md, 7). Pure.

Both are ephemeral keys of their sessions, so what holds for keys holds for them: they end with the session, stand in
lists, watches, snapshots and digests, and are counted. Only `Acquire`, `Release` and the end of a session change them.
"""

from __future__ import annotations

__all__ = ["is_of_locks", "lock_of", "lock_path", "waiting_path", "waiting_prefix"]

_LOCKS, _WAITING = "/locks/", "/waiting/"


def lock_path(name: str) -> str:
    """The key of who holds it. Its revision is the epoch, `created` the revision at which the holder asked."""
    return _LOCKS + name


def waiting_prefix(name: str) -> str:
    """Under which all wait, in the order in which they asked. A name has no '/', so nothing else stands there."""
    return f"{_WAITING}{name}/"


def waiting_path(name: str, asked: int) -> str:
    return f"{waiting_prefix(name)}{asked:020d}"


def lock_of(key: str) -> str:
    """The name of the lock whose holder's key this is; empty: it is none."""
    return key[len(_LOCKS) :] if key.startswith(_LOCKS) else ""


def is_of_locks(key: str) -> bool:
    return key.startswith((_LOCKS, _WAITING))
