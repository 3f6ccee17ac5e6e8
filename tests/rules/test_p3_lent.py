"""P3.3, P4.1: while a course has the table of frames its core counts what it is told, and does nothing else."""

from __future__ import annotations

import pytest

from embedbk.core.client_words import AddedNearby, Confirmed, CourseEnded, Send
from embedbk.core.vocabulary import Tick
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import InvariantError
from tests.rules.scenes import Scene, but, scene

OPTIONS = WriterOptions()
NOBODY = (0, 0, 0)


def lent(*unanswered: str) -> Scene:
    """A writer whose first frame is acknowledged by all, whose second these bookies have not answered; a course has its
    table."""
    it = scene()
    it.world.add(it.writer, it.pen, b"zero")
    it.world.settle()
    it.world.add(it.writer, it.pen, b"one")
    it.world.settle(hold=but(*unanswered))
    assert it.core.is_plain
    it.core.in_flight.lend()
    return it


def by_course(it: Scene, payload: bytes = b"by the course") -> int:
    """A frame that the course has sent to every seat: its entry."""
    frames, frame = it.core.in_flight.frames, it.pen.frame(payload)
    frames.put(frame)
    for seating in it.core.in_flight.seatings:
        frames.owe(seating.slot, frame.first_entry, it.world.now_ns)
    return frame.first_entry


def test_while_a_course_has_the_table_the_core_only_counts() -> None:
    """P3.3: one of the two owners of a LAC confirms, and that is the course."""
    it = lent("b2", "b3")
    heard = len(it.writer.told)
    it.world.settle()
    assert it.core.lac == 0 and it.writer.told[heard:] == []
    marks = it.core.in_flight.frames.oldest()
    assert marks is not None and (marks.first_entry, marks.acked) == (1, 0b111)
    it.core.in_flight.frames.confirm()
    length = it.pen.length
    told = it.core.step(AddedNearby(it.world.now_ns, 1, length, is_idle=True))
    assert told == [Confirmed(1, length)]
    assert it.core.lac == it.core.lap == 1


def test_while_a_course_has_the_table_the_core_judges_nobody() -> None:
    """P4.1, P4.7: the course ends before anybody is late; a core that looked would replace a seat under it."""
    it = lent("b2", "b3")
    assert it.core.deadline_ns is None
    late_ns = it.world.now_ns + 2 * OPTIONS.add_timeout_ns
    assert it.core.step(Tick(late_ns)) == []
    assert not it.core.in_flight.has_failed and it.core.changes.proposal is None


def test_while_a_course_has_the_table_the_core_publishes_what_is_idle() -> None:
    """P6.2: readers without recovery see the last entries before a next add, also while a course waits for that."""
    it = lent("b3")
    it.world.settle()
    assert it.core.deadline_ns is not None
    told = it.core.step(Tick(it.world.now_ns + OPTIONS.explicit_lac_ns + OPTIONS.explicit_lac_grid_ns))
    assert [type(effect) for effect in told] == [Send] * 3
    assert it.core.deadline_ns is None


def test_while_a_course_has_the_table_the_core_keeps_it() -> None:
    """P4.5: nothing is on its way, so the core has nothing to keep; the course goes on with the same table."""
    it = lent("b3")
    frames = it.core.in_flight.frames
    it.world.settle()
    assert it.core.in_flight.is_at_rest
    it.core.step(Tick(it.world.now_ns + OPTIONS.explicit_lac_ns + OPTIONS.explicit_lac_grid_ns))
    entry_id = by_course(it)
    assert it.core.in_flight.frames is frames and list(it.core.in_flight.pending) == [entry_id]


def test_what_was_answered_meanwhile_is_confirmed_at_the_end() -> None:
    """P3.3, L15: nobody else would look at it again."""
    it = lent("b2", "b3")
    it.world.settle()
    told = it.core.step(CourseEnded(it.world.now_ns, NOBODY, NOBODY))
    assert told[0] == Confirmed(1, it.pen.length)
    assert it.core.lac == 1


def test_at_the_end_the_core_has_what_is_on_its_way_and_sends_only_what_was_not_sent() -> None:
    """P3.1, P3.2, RP33: as if it had sent it; one seat was sent nothing, and what another has answered counts."""
    it = lent()
    entry_id = by_course(it)
    first, second, third = it.core.in_flight.seatings
    it.core.in_flight.frames.answered(first.slot, entry_id)
    now_ns = it.world.now_ns
    told = it.core.step(
        CourseEnded(now_ns, (now_ns + 1, 0, 0), (now_ns, 0, 0), ((entry_id, (third.number,)),))
    )
    assert [(each.member, each.tag) for each in told if isinstance(each, Send)] == [
        (third.member, ("add", third.number, entry_id))
    ]
    assert (it.core.lac, it.core.lap) == (entry_id - 1, entry_id)
    assert (first.heard_ns, first.answered_ns) == (now_ns + 1, now_ns)
    assert [list(each.owed) for each in (first, second, third)] == [[], [entry_id], [entry_id]]
    assert it.core.deadline_ns is not None and it.core.is_plain


def test_a_gap_or_news_of_no_course_is_no_news() -> None:
    """P3.1, P3.3: what a course has sent follows what is acknowledged, and only who has the table confirms."""
    it = lent()
    with pytest.raises(InvariantError):
        it.core.step(AddedNearby(it.world.now_ns, it.core.lac, 0, is_idle=True))
    it.pen.frame(b"never sent")
    by_course(it)
    with pytest.raises(InvariantError):
        it.core.step(CourseEnded(it.world.now_ns, NOBODY, NOBODY))
    other = scene()
    with pytest.raises(InvariantError):
        other.core.step(AddedNearby(other.world.now_ns, 0, 4, is_idle=True))
