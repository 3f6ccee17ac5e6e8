"""A bookie looks at its place now and then (P7.8)."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.core.space import SpaceOptions
from embedbk.host.spacing import Spacing


class Place:
    """A bookie's storage, as far as this looks at it."""

    looks = 0
    lack = ""

    def is_full(self) -> bool:
        return bool(self.lack)

    def why_full(self) -> str:
        return self.lack

    def retry_flush(self) -> None: ...

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


def test_who_is_read_only_says_what_is_wanting(caplog: pytest.LogCaptureFixture) -> None:
    """P7.8, I53: "no room", beside very many free bytes, was all that was said where descriptors were wanting."""
    options, place = SpaceOptions(), Place()
    storage: Any = place
    spacing = Spacing("b1", options, storage, lambda: 1 << 50, lambda event: None)
    spacing.step(0)
    place.lack = wanting = "journal /b1/journal: the next file cannot be made: Too many open files (errno 24)"
    for look in range(1, 5):
        spacing.step(look * options.look_ns)
    place.lack = ""
    spacing.step(5 * options.look_ns)
    assert caplog.messages == [
        f"bookie b1 is read-only: no room (free bytes: {1 << 50}; {wanting})",
        f"bookie b1 is writable again (free bytes: {1 << 50})",
    ]
