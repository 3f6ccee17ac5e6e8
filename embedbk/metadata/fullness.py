"""Which bounds of a member are nearly reached, and what makes room (P10.7). Pure.

At a bound new records are refused; operators must be warned long before. Decides when to warn, and the words.
Leaves to others whom to warn (`host/filling.py`, `cli/quorum.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedbk.metadata.catalog import Catalog

__all__ = ["CALM_PERCENT", "WARN_PERCENT", "Fullness", "fullness", "room_for_records"]

WARN_PERCENT = 80  # Share of a bound from which on there is a warning.
CALM_PERCENT = 70  # At this share and below, the warning is over.


class Fullness(NamedTuple):
    """How far one bound is reached. text: the warning for people."""

    bound: str
    held: int
    most: int
    text: str

    @property
    def percent(self) -> int:
        return _percent(self.held, self.most)


def fullness(catalog: Catalog, watches: int, watches_max: int) -> list[Fullness]:
    """For each bound of a catalog and its member that people can do something about."""
    limits = catalog.limits
    held = catalog.key_space.held_bytes
    sessions = len(catalog.sessions)
    return [
        Fullness(
            "records",
            held,
            limits.catalog_bytes_max,
            room_for_records(held, limits.catalog_bytes_max, catalog.record_table.weights.told()),
        ),
        Fullness(
            "sessions",
            sessions,
            limits.sessions_max,
            f"sessions: {sessions} of {limits.sessions_max}: soon no client and no bookie can begin one; end clients "
            "that are not needed, or let several share one process",
        ),
        Fullness(
            "watches",
            watches,
            watches_max,
            f"watches: {watches} of {watches_max}: soon clients hear of changes only now and then; close handles "
            "that are not needed",
        ),
    ]


def room_for_records(held: int, most: int, weights: Sequence[tuple[str, int]]) -> str:
    """If the catalog is nearly full: the kinds with most bytes, and what makes room."""
    percent = _percent(held, most)
    line = f"records: {held} of {most} bytes, {percent} %"
    if percent < WARN_PERCENT:
        return line
    largest = sorted(weights, key=lambda each: -each[1])[:3]
    what = ", ".join(f"{kind} {size}" for kind, size in largest if size)
    return (
        f"{line}: soon nothing new can be created ({what}); delete ledgers and logs, and forget deleted ones"
    )


def _percent(held: int, most: int) -> int:
    return 100 * held // most if most else 100  # A bound of 0 counts as full.
