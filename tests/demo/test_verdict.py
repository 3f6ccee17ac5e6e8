"""The demo's judge: it must see every loss, double and disorder, or a demo that passes says nothing."""

from __future__ import annotations

from embedbk.demo.scenario import ScenarioPlan
from embedbk.demo.verdict import diagnose

LINES = [b"a\n", b"\n", b"b\n", b"\n", b"c\n", b"\n"]


def test_the_same_is_the_same() -> None:
    assert diagnose(LINES, LINES, 6) == (0, 0, 0)
    assert diagnose(LINES, LINES[:4], 4) == (0, 0, 0)  # Never acknowledged, so not lost.


def test_a_missing_line_is_lost_also_when_others_are_equal_to_it() -> None:
    for missing in range(6):
        found = LINES[:missing] + LINES[missing + 1 :]
        assert diagnose(LINES, found, 6)[0] == 1


def test_a_line_twice_is_a_duplicate_wherever_it_stands() -> None:
    for twice in range(6):
        for place in range(7):
            found = [*LINES[:place], LINES[twice], *LINES[place:]]
            assert diagnose(LINES, found, 6)[1] == 1


def test_a_line_that_nobody_wrote_is_counted_with_the_duplicates() -> None:
    assert diagnose(LINES, [*LINES, b"stranger\n"], 6) == (0, 1, 0)


def test_any_two_different_lines_that_change_places_are_out_of_order() -> None:
    for one in range(6):
        for other in range(one):
            found = list(LINES)
            found[one], found[other] = found[other], found[one]
            lost, duplicated, out_of_order = diagnose(LINES, found, 6)
            assert (lost, duplicated) == (0, 0)
            assert (out_of_order > 0) == (found != LINES)


def test_the_plan_leaves_something_to_do_for_everybody() -> None:
    for count in [*range(1, 500), 300_000]:
        plan = ScenarioPlan.of(count)
        marks = [
            (plan.bookie_dies, plan.bookie_dies_limit),
            (plan.first_dies, plan.first_dies_limit),
            (plan.second_stops, plan.second_stops_limit),
        ]
        assert all(mark <= limit < count for mark, limit in marks) or count < 3
        assert sorted(mark for mark, _ in marks) == [mark for mark, _ in marks]
        assert plan.second_stops < count  # The third writer has a line to append.
