"""A member logs when one of its bounds is nearly reached, and when there is room again (P10.7).

Decides when to look. `metadata/fullness.py` decides what is worth a warning, `reminders` how often it is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from embedbk.host.reminders import Reminders
from embedbk.metadata.fullness import CALM_PERCENT, WARN_PERCENT, Fullness

__all__ = ["LOOK_NS", "Filling"]

LOOK_NS = 1_000_000_000


class Filling:
    """How full one member is."""

    def __init__(self, logger: logging.Logger, member: str) -> None:
        self._reminders = Reminders(logger)
        self._member = member
        self._look_ns = 0
        self._said: set[str] = set()  # Bounds that were nearly reached at the last look.

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._look_ns

    def look(self, now_ns: int, bounds: Sequence[Fullness]) -> None:
        self._look_ns = now_ns + LOOK_NS
        for each in bounds:
            if each.percent >= (CALM_PERCENT if each.bound in self._said else WARN_PERCENT):
                self._said.add(each.bound)
                self._reminders.lasts(now_ns, each.bound, f"metadata member {self._member}, {each.text}")
            elif each.bound in self._said:
                self._said.remove(each.bound)
                text = f"metadata member {self._member}, {each.bound}: {each.held} of {each.most}, there is room again"
                self._reminders.over(now_ns, each.bound, text)
