"""What clients of the repair queue are told is judged, and each check was seen to fail (S3; P11.1)."""

from __future__ import annotations

import pytest

from embedbk.codec.metadata_messages import Refusal
from embedbk.codec.repair_messages import (
    EndRepairs,
    MarkRepairs,
    RepairsEnded,
    RepairsMarked,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.testing.repairers import RepairCall, check_repairs
from embedbk.testing.violation import Violation

MARK, AGAIN = MarkRepairs(((7, ("n1",)),)), MarkRepairs(((7, ("n2",)),))


def story() -> list[RepairCall]:
    """Marked at 1, taken, marked again, given back, taken by another, ended."""
    return [
        RepairCall("auditor", MARK, RepairsMarked(1)),
        RepairCall("one", TakeRepairs(1), RepairsTaken(2, 2, 2, ((7, 1, 0),), (("n1",),))),
        RepairCall("auditor", AGAIN, RepairsMarked(3)),
        RepairCall("one", EndRepairs(((7, 2, 1),)), RepairsEnded(4, (2,))),
        RepairCall("two", TakeRepairs(1), RepairsTaken(5, 5, 5, ((7, 3, 0),), (("n1", "n2"),))),
        RepairCall("two", EndRepairs(((7, 5, 3),)), RepairsEnded(6, (1,))),
    ]


def test_a_true_story_is_no_violation() -> None:
    assert check_repairs(story(), is_empty=True) == 1
    unheard = story()
    unheard[-1].result = Refusal("UNKNOWN", "the session was lost")
    assert check_repairs(unheard, is_empty=True) == 0
    unheard[-1].result = None
    assert check_repairs(unheard, is_empty=True) == 0


@pytest.mark.parametrize(
    ("place", "lie", "said"),
    [
        (4, RepairsTaken(2, 5, 5, ((7, 3, 0),), (("n1", "n2"),)), "two and one hold 7 under 2"),
        (3, RepairsEnded(4, (1,)), "marked at 3, ended at 4 as the mark of 1"),
        (5, RepairsEnded(6, (2,)), "marked at 3, and nobody worked that off"),
    ],
)
def test_a_lie_is_found(place: int, lie: RepairsTaken | RepairsEnded, said: str) -> None:
    """I73, I74: a hold of two, a mark that was ended though it had changed, one that is gone and that nobody ended."""
    calls = story()
    calls[place].result = lie
    with pytest.raises(Violation, match=said):
        check_repairs(calls, is_empty=True)


def test_what_was_ended_is_handed_out_no_more() -> None:
    calls = [*story(), RepairCall("one", TakeRepairs(1), RepairsTaken(8, 8, 8, ((7, 3, 0),), (("n1",),)))]
    with pytest.raises(Violation, match="was given 7 of 3 behind its end at 6"):
        check_repairs(calls, is_empty=False)
    calls = [*story(), RepairCall("one", EndRepairs(((7, 5, 3),)), RepairsEnded(9, (2,)))]
    with pytest.raises(Violation, match="one ended 7 under 5, another's hold"):
        check_repairs(calls, is_empty=False)
