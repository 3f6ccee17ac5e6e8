"""Filling a seat up, by its events: what its bookie says, and when it is over (P11.4)."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import encode_frame_header
from embedbk.codec.holdings_messages import HoldingsAnswer, HoldingsRequest
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.client_words import BELOW_LEVEL, Answered, Send, SendFailed
from embedbk.core.machine import Effect
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.repair.seat_fill import SeatFill
from tests.repair.test_auditor import ledger
from tests.storage.stored_entries import make_frame

SECOND = 1_000_000_000


class Filled:
    """b2 is filled from b1 and b3, who have everything; it keeps what it acknowledges, unless it lies."""

    def __init__(self, held: set[int], *, lies: bool = False, ids_max: int = 1_000) -> None:
        self.held, self.lies = held, lies
        self.asked: list[tuple[int, int]] = []
        self.copied: list[int] = []
        self.silent = ""  # Why b2 gives no answer.
        self.fill = SeatFill(
            ledger(1, 1, 2, 3), 0, 1, frozenset(), 9, CopyPace(0), CopyOptions(), 40, ids_max
        )
        self.out: list[Send] = []
        self.take(self.fill.begin(0))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Send)
            self.out.append(effect)

    def run(self, most: int = 100) -> Filled:
        while self.out and self.fill.result is None and most:
            most -= 1
            send = self.out.pop(0)
            if self.silent and send.member.bookie_id == "b2":
                self.take(self.fill.on_send_failed(SendFailed(0, send.tag, send.member, self.silent)))
            else:
                self.take(self.fill.on_answered(self.answer(send)))
        assert most, "it does not end"
        return self

    def answer(self, send: Send) -> Answered:
        request = send.control
        if isinstance(request, HoldingsRequest):
            assert send.member.bookie_id == "b2"
            asked = range(request.first_entry, request.last_entry + 1)
            self.asked.append((request.first_entry, request.last_entry))
            lacking = [(each, each) for each in asked if each not in self.held]
            count = len(asked) - len(lacking)
            return Answered(0, send.tag, send.member, HoldingsAnswer(Status.OK, 1, count, lacking[:2]))
        if isinstance(request, ReadRequest):
            assert send.member.bookie_id != "b2"
            frame = make_frame(1, range(request.first_entry, request.last_entry + 1))
            header = encode_frame_header(frame, bytes(16))
            return Answered(0, send.tag, send.member, ReadAnswer(Status.OK, 1), [(header, frame.body)])  # type: ignore[list-item]
        assert isinstance(request, AddRequest)
        assert request.is_copy
        ((_, frame),) = send.frames
        ids = range(frame.first_entry, frame.last_entry + 1)
        self.copied += ids
        if not self.lies:
            self.held |= set(ids)
        numbers = (request.nonce, request.seating, True, 1, frame.first_entry, frame.last_entry)
        return Answered(0, send.tag, send.member, AddAnswer(Status.OK, *numbers))


def test_a_seat_that_lacks_nothing_is_asked_once() -> None:
    filled = Filled(set(range(10))).run()
    assert filled.fill.result is not None
    assert filled.fill.result.kind == "done"
    assert (filled.asked, filled.copied) == ([(0, 9)], [])


def test_it_is_done_when_the_bookie_was_asked_again_and_has_all() -> None:
    """An answer names the first ranges only."""
    filled = Filled({0, 2, 4, 5, 8}).run()
    assert filled.fill.result is not None
    assert filled.fill.result.kind == "done"
    assert filled.copied == [1, 3, 6, 7, 9]
    assert filled.asked == [(0, 9)] * 4
    assert (filled.fill.copies, filled.fill.numbers > 40) == (5, True)


def test_a_long_fragment_is_filled_part_by_part() -> None:
    filled = Filled({0, 1, 2, 4, 5, 6, 7, 8}, ids_max=4).run()
    assert filled.copied == [3, 9]
    assert filled.asked == [(0, 3), (0, 3), (4, 7), (8, 9), (8, 9)]


def test_who_acknowledges_copies_and_does_not_have_them_is_not_asked_for_ever() -> None:
    """L14."""
    filled = Filled({0, 1}, lies=True).run()
    assert filled.fill.result is not None
    assert (filled.fill.result.kind, filled.copied) == ("target failed", [2, 3])


@pytest.mark.parametrize(("why", "kind"), [("no link", "cannot tell"), (BELOW_LEVEL, "done")])
def test_who_does_not_say_is_not_copied_to(why: str, kind: str) -> None:
    """P11.4, P10.8: below its level nobody is asked, and a bookie that is there counts as one that is there."""
    filled = Filled({0})
    filled.silent = why
    filled.run()
    assert filled.fill.result is not None
    assert (filled.fill.result.kind, filled.copied) == (kind, [])


def test_no_answer_in_time_cannot_be_told_and_a_late_one_counts_for_nothing() -> None:
    filled = Filled({0})
    late = filled.answer(filled.out.pop(0))
    assert filled.fill.deadline_ns == 5 * SECOND
    assert filled.fill.on_tick(5 * SECOND - 1) == []
    assert filled.fill.result is None
    assert filled.fill.on_tick(5 * SECOND) == []
    assert filled.fill.result is not None
    assert filled.fill.result.kind == "cannot tell"
    late.tag = ("held", 12)
    again = Filled({0})
    assert again.fill.on_answered(late) == []
    assert again.fill.result is None


def test_where_all_others_are_away_it_ends_soon() -> None:
    """L14: nobody is asked for entry after entry of a long fragment; the first one is named."""
    found = ledger(1, 1, 2, 3).with_changes(last_entry=5_000)
    fill = SeatFill(found, 0, 1, frozenset({0, 2}), 9, CopyPace(0))
    (send,) = fill.begin(0)
    assert isinstance(send, Send)
    answer = HoldingsAnswer(Status.OK, 1, 0, [(0, 5_000)])
    assert fill.on_answered(Answered(0, send.tag, send.member, answer)) == []
    assert fill.result is not None
    assert (fill.result.kind, fill.result.entry_id) == ("no good copy", 0)
