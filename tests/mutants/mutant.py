"""What a mutant is: a bug that must not be in our code, as an edit of it, and the tests that must find it.

An edit is (file, exact text, other text); the text must stand in the file exactly once, so that a mutant that no
longer means anything fails instead of passing for found. Nothing is listed that changes nothing: every mutant breaks
a promise, and its directed test says which.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutant"]

Edit = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    rules: str  # What it breaks, in the page's numbers.
    what: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]  # Directed tests; each of them must fail.
    seeds: int | None = (
        None  # A shallow one: random worlds find it within so many seeds too. None: a deep one.
    )
    world: str = "ledger"  # Of these random worlds: "ledger" or "log" (tests/mutants/seeds.py).

    @property
    def is_native(self) -> bool:
        """Its edits are in C, so that the copy must be built."""
        return any(path.startswith("native/") for path, _, _ in self.edits)
