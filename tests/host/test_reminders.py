"""What a node waits for is said once, and then rarely (host/reminders.py)."""

from __future__ import annotations

import logging

import pytest

from embedbk.host.reminders import AGAIN_NS, AGAIN_NS_MAX, PATIENCE_NS, WAITS_MAX, Reminders

SECOND = 1_000_000_000


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def test_a_wait_is_said_once_and_then_rarely(said: pytest.LogCaptureFixture) -> None:
    """However often it is tried: after two seconds, a minute later, then at twice the distance, up to an hour."""
    reminders = Reminders(logging.getLogger("waits"))
    moments = []
    for second in range(4 * 3600):
        reminders.lasts(second * SECOND, "b1", "bookie b1 cannot be reached")
        if said.records:
            moments.append(second)
            said.clear()
    first = PATIENCE_NS // SECOND
    assert moments[:4] == [first, first + 60, first + 180, first + 420]
    gaps = [after - before for before, after in zip(moments, moments[1:], strict=False)]
    assert max(gaps) == AGAIN_NS_MAX // SECOND
    assert AGAIN_NS == 60 * SECOND


def test_a_short_wait_is_not_said_at_all(said: pytest.LogCaptureFixture) -> None:
    """A peer that starts again within two seconds is no news."""
    reminders = Reminders(logging.getLogger("waits"))
    reminders.lasts(0, "b1", "gone")
    reminders.lasts(PATIENCE_NS - 1, "b1", "gone")
    reminders.over(PATIENCE_NS, "b1", "back")
    reminders.over(PATIENCE_NS, "never begun", "back")
    assert said.records == []


def test_the_end_of_a_wait_that_was_said_is_said(said: pytest.LogCaptureFixture) -> None:
    """And the next one begins anew."""
    reminders = Reminders(logging.getLogger("waits"))
    reminders.lasts(0, "b1", "gone")
    reminders.lasts(5 * SECOND, "b1", "gone")
    reminders.over(9 * SECOND, "b1", "back")
    reminders.lasts(10 * SECOND, "b1", "gone")
    assert said.messages == ["gone (since 5 s)", "back (after 9 s)"]


def test_waits_have_a_bound(said: pytest.LogCaptureFixture) -> None:
    """The oldest begins anew."""
    reminders = Reminders(logging.getLogger("waits"))
    for number in range(WAITS_MAX + 1):
        reminders.lasts(0, f"{number}", "gone")
    reminders.lasts(PATIENCE_NS, "0", "gone")
    assert said.records == []
    reminders.lasts(PATIENCE_NS, f"{WAITS_MAX}", "gone")
    assert len(said.records) == 1
