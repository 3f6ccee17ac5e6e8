"""Questions to bookies that are on their way (`unanswered`): until when, and whose an answer is."""

from __future__ import annotations

from embedbk.repair.unanswered import Unanswered


def test_an_answer_is_of_the_question_with_its_number_and_counts_once() -> None:
    """Numbers go on from those of whoever asked before, whose answers may still come."""
    asked = Unanswered[str](10, number=4)
    first, second = asked.ask("first", 0), asked.ask("second", 0)
    assert (first, second, asked.number) == (5, 6, 6)
    assert [asked.take(each) for each in (4, second, second, first)] == [None, "second", None, "first"]
    assert not asked and asked.deadline_ns is None


def test_who_gives_no_answer_in_time_is_given_up_and_the_next_one_is_waited_for() -> None:
    asked = Unanswered[str](10)
    first = asked.ask("first", 0)
    asked.ask("second", 3)
    assert (asked.take_late(9), asked.deadline_ns) == ([], 10)
    assert (asked.take_late(10), asked.deadline_ns) == (["first"], 13)
    assert asked.take(first) is None
    assert (asked.take_late(50), len(asked)) == (["second"], 0)
