"""P5.2c: what the seats answered decides each entry, in whatever order they answered."""

from __future__ import annotations

from itertools import permutations

from embedbk.codec.frame import Frame, frame_of, split
from embedbk.config import Quorum
from embedbk.core.forward_reading import ForwardReading
from tests.rules.world import Pen

LEDGER = 1
QUORUM = Quorum(3, 3, 2)  # Two negatives end it; one of three proves nothing.


def entries_of(frames: list[Frame]) -> list[tuple[int, bytes]]:
    return [(entry_id, bytes(entry)) for frame in frames for entry_id, entry in split(frame)]


def test_the_order_of_answers_changes_neither_what_is_written_back_nor_the_end() -> None:
    """P5.2c: one valid copy is enough, also against a negative; what is written back goes up without a gap."""
    pen = Pen(LEDGER)
    frames = [pen.frame(b"0", b"1"), pen.frame(b"2"), pen.frame(b"3", b"4")]
    wanted = entries_of(frames)
    one, three = wanted[1][1], wanted[3][1]
    answers = [
        (0, [frames[0], frame_of(memoryview(three), LEDGER)], [(2, 2), (5, 9)]),
        (1, [frame_of(memoryview(one), LEDGER), frames[1]], []),
        (2, [frames[2]], [(0, 1), (5, 6)]),
        (0, [frames[0]], []),
    ]
    for order in permutations(answers):
        reading, there = ForwardReading(LEDGER, QUORUM, 0), []
        for seat, copies, absent in order:
            there += reading.take(copies)
            reading.note_absent(seat, absent)
            there += reading.decide()
            reading.forget_decided()
        assert entries_of(there) == wanted
        assert (reading.end, reading.next_entry) == (4, 5)
        assert not reading.found


def test_only_so_many_negatives_that_no_ack_quorum_can_have_it_end_a_ledger() -> None:
    """P5.2c: those of one write set, and each seat counts once."""
    reading = ForwardReading(LEDGER, QUORUM, 7)
    for _ in range(3):
        reading.note_absent(0, [(7, 100)])
        assert reading.decide() == []
    assert reading.end is None
    reading.note_absent(2, [(7, 7)])
    assert reading.decide() == []
    assert reading.end == 6
