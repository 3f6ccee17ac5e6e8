"""The exception that ends a run of the simulator when a promise was broken."""

from __future__ import annotations

__all__ = ["Violation"]


class Violation(Exception):
    """A promise was broken. `invariant` names it as the pages do: "I3", "L1"; the message has the node and what
    happened."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
