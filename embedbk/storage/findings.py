"""The findings of a reader that trusts nothing: damage and notes, each with its place; and how far it has read.

Damage: bytes are not as they were written, so a bookie that reads them refuses to start, or answers unreadable. A note
is worth knowing and harms nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finding", "Findings", "Progress", "silent"]

Progress = Callable[[str, int], None]  # (what is being read, bytes of it that were read)


def silent(_what: str, _bytes: int) -> None:
    """For a reader whose progress nobody follows."""


FINDINGS_MAX = 10_000  # Kept; the rest is counted.


@dataclass(frozen=True, slots=True)
class Finding:
    is_damage: bool
    path: str
    what: str  # One clause.
    offset: int | None = None  # In the file.
    ledger_id: int | None = None
    first_entry: int | None = None  # With last_entry: the entries that it concerns, both included.
    last_entry: int | None = None

    def __str__(self) -> str:
        place = self.path if self.offset is None else f"{self.path} at offset {self.offset}"
        if self.ledger_id is None:
            return f"{place}: {self.what}"
        whose = f"ledger {self.ledger_id}"
        if self.first_entry is not None:
            is_one = self.last_entry in (None, self.first_entry)
            whose += (
                f", entry {self.first_entry}"
                if is_one
                else f", entries {self.first_entry}..{self.last_entry}"
            )
        return f"{place}: {whose}: {self.what}"

    def as_data(self) -> dict[str, Any]:
        """Plain values for JSON; what does not apply is left out."""
        found: dict[str, Any] = {"finding": "damage" if self.is_damage else "note", "path": self.path}
        for name in ("offset", "ledger_id", "first_entry", "last_entry"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return {**found, "what": self.what}


@dataclass(slots=True)
class Findings:
    """Collects them in the order in which they are met."""

    found: list[Finding] = field(default_factory=list)
    damage_count: int = 0
    note_count: int = 0

    def damage(self, path: str, what: str, **place: int | None) -> None:
        self.damage_count += 1
        self._keep(Finding(True, path, what, **place))

    def note(self, path: str, what: str, **place: int | None) -> None:
        self.note_count += 1
        self._keep(Finding(False, path, what, **place))

    def _keep(self, finding: Finding) -> None:
        if len(self.found) < FINDINGS_MAX:
            self.found.append(finding)
