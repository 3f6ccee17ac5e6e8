"""The names of processes: two of them may claim one identity, and the second one's name says so."""

from __future__ import annotations

__all__ = ["bookie_of", "twin_of"]

_MARK = "~"


def twin_of(bookie: str) -> str:
    """The name of the process beside this one."""
    return bookie + _MARK


def bookie_of(name: str) -> str:
    """The identity that a process claims."""
    return name.removesuffix(_MARK)
