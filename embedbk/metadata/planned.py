"""What an operation of a session changes, before the catalog carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from embedbk.codec.metadata_messages import Delete, Put, Result

__all__ = ["Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """changes: each of another key, all at one revision. answer: a function of the catalog's revision then."""

    changes: list[Put | Delete]
    answer: Callable[[int], Result]
    needs_room: bool = False
    frees: str = ""  # The lock whose holder's key goes, for the first session that waits for it.
