"""How many bytes of the catalog are of which kind, kept as records come and go (P10.7).

A kind is the first part of a key. Keys of kinds that this build does not know count as "other", so the number of kinds
is bounded.
"""

from __future__ import annotations

__all__ = ["KINDS", "Weights"]

_OF_FOLDER = {
    "ledgers": "ledgers",
    "adopted": "ledgers",
    "decided": "ledgers",
    "logs": "logs",
    "deleted": "deleted ledgers",
    "bookies": "bookies",
    "cookies": "bookies",
    "placements": "bookies",
    "ur": "repair marks",
    "repairing": "repair marks",
    "repairers": "repair marks",
    "locks": "locks",
    "waiting": "locks",
}
OTHER = "other"
KINDS = (*dict.fromkeys(_OF_FOLDER.values()), OTHER)


class Weights:
    """Bytes by kind."""

    def __init__(self) -> None:
        self._bytes = dict.fromkeys(KINDS, 0)

    def add(self, key: str, size: int) -> None:
        """A record of this key came, with its bytes, or went, with as many below zero."""
        self._bytes[_OF_FOLDER.get(key[1 : key.find("/", 1)], OTHER)] += size

    def told(self) -> tuple[tuple[str, int], ...]:
        """Every kind with its bytes, in one order."""
        return tuple(self._bytes.items())
