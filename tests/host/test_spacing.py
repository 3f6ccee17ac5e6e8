"""A bookie looks at its place now and then (P7.8)."""

from __future__ import annotations

from typing import Any

from embedbk.core.space import SpaceOptions
from embedbk.host.spacing import Spacing


class Place:
    """A bookie's storage, as far as this looks at it."""

    looks = 0

    def is_full(self) -> bool:
        return False

    def look_at_directories(self) -> None:
        self.looks += 1

    def read_only_reason(self) -> str | None:
        return None


def test_directories_are_looked_at_as_often_as_free_space() -> None:
    """P7.6, P7.8: one that was removed is noticed while the bookie runs, and not in each turn."""
    options, place = SpaceOptions(), Place()
    storage: Any = place
    spacing = Spacing("b1", options, storage, lambda: 1 << 50, lambda event: None)
    for now_ns in (0, 1, options.look_ns - 1):
        spacing.step(now_ns)
    assert place.looks == 1
    spacing.step(options.look_ns)
    assert place.looks == 2
