"""AR12: copies keep to a bound, and yield to whoever appends and reads."""

from __future__ import annotations

import pytest

from embedbk.config import FRAME_BYTES_MAX
from embedbk.repair.copy_pace import CopyPace

MS = 1_000_000
SECOND = 1_000 * MS
BOUND = 64 << 20
LEAST = BOUND // 16


def noted(pace: CopyPace, took_ms: float, now_ns: int, times: int = 1) -> int:
    """A frame each 50 ms; returns when the next one is due."""
    for _ in range(times):
        pace.note(now_ns, 1, round(took_ms * MS))
        now_ns += 50 * MS
    return now_ns


def test_it_begins_at_a_sixteenth_of_the_bound_and_rises_to_it_while_reads_are_in_time() -> None:
    """AR12: a bookie that is busy is not found out by a burst."""
    pace = CopyPace(BOUND)
    assert pace.rate == LEAST
    now_ns = noted(pace, 1, SECOND, 15)
    assert pace.rate == BOUND
    noted(pace, 1, now_ns, 5)
    assert pace.rate == BOUND


def test_it_falls_by_half_while_reads_are_late_and_never_stops() -> None:
    """AR12: the rate yields to foreground latency; a lost copy does not stay lost for that."""
    pace = CopyPace(BOUND)
    now_ns = noted(pace, 1, SECOND, 15)
    now_ns = noted(pace, 2.1, now_ns)
    assert pace.rate == BOUND // 2
    now_ns = noted(pace, 2.1, now_ns, 10)
    assert pace.rate == LEAST
    noted(pace, 1.9, now_ns)
    assert pace.rate == 2 * LEAST


def test_of_many_reads_at_once_one_that_is_late_counts_and_all_of_them_once() -> None:
    """AR12: 64 small ledgers whose reads leave in one message are one word, not 64."""
    pace = CopyPace(BOUND)
    now_ns = noted(pace, 1, SECOND, 15)
    for took_ms in [1, 9, 1, 1] * 16:
        pace.note(now_ns, 1, took_ms * MS)
    assert pace.rate == BOUND  # The first of them was in time, and was judged.
    noted(pace, 1, now_ns + 50 * MS)
    assert pace.rate == BOUND // 2


def test_what_is_usual_is_learned_anew() -> None:
    """AR12: sources that are further away than those of minutes ago are not late for ever."""
    pace = CopyPace(BOUND)
    now_ns = noted(pace, 1, 61 * SECOND, 15)
    noted(pace, 20, now_ns)
    noted(pace, 20, 122 * SECOND)  # The quickest read of the minute before counts yet.
    assert pace.rate == BOUND // 4
    noted(pace, 20, 183 * SECOND)
    assert pace.rate == BOUND // 4 + LEAST


@pytest.mark.parametrize(
    ("bound", "at_first", "at_last"),
    [
        (0, FRAME_BYTES_MAX, FRAME_BYTES_MAX),
        (BOUND, 64 << 10, 256 << 10),
        (BOUND * 16, 256 << 10, FRAME_BYTES_MAX),
    ],
)
def test_a_frame_is_what_the_rate_allows_in_four_milliseconds(
    bound: int, at_first: int, at_last: int
) -> None:
    """AR12: no bookie works on one frame for long while others wait."""
    pace = CopyPace(bound)
    assert pace.frame_bytes == at_first
    noted(pace, 1, SECOND, 20)
    assert pace.frame_bytes == at_last


def test_without_a_bound_it_waits_for_nothing_and_yields_to_nobody() -> None:
    """AR12: 0 is as fast as it goes."""
    pace = CopyPace(0)
    pace.note(SECOND, 1 << 30, 900 * MS)
    assert pace.free_ns(SECOND) <= SECOND
    assert pace.rate == 0


def test_the_smallest_bound_goes_on() -> None:
    """AR12: a byte per second, and no division by zero."""
    pace = CopyPace(1)
    noted(pace, 50, SECOND, 9)
    assert pace.rate == 1
