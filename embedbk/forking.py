"""Locks of a module, which all clients of a process share, behind a fork.

Decides that the child finds them free: the thread that held one in the parent is not there, and would never release it,
so that the first call of a client which the child opens of its own would wait for ever. What such a lock guards is the
parent's, and no client of the child looks at it.
"""

from __future__ import annotations

import os
from typing import TypeVar

__all__ = ["free_in_children"]

_Lock = TypeVar("_Lock")


def free_in_children(lock: _Lock) -> _Lock:
    """This lock of `threading`, made at a module's import."""
    # As the standard library does with its own (logging, random); there is no public name for it.
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock
