"""The table of frames in flight, in C and as its plain twin: one contract, one set of tests (core/frame_table.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from embedbk._native import lib
from embedbk.codec.frame import Frame
from embedbk.codec.packer import Packer
from embedbk.codec.packer_twin import TwinPacker
from embedbk.core.backlog import FRAME_PRICE
from embedbk.core.frame_table import AnyFrameTable, FrameTable, Marks, Newest, plain_table, state_of
from embedbk.errors import InvariantError
from embedbk.transports.in_flight import FramesInC, SharedBacklog, table_in_c

SLOTS = 14
KINDS = (
    *["put"] * 6,
    *["owe"] * 3,
    *["answered"] * 8,
    *["confirm"] * 4,
    *["took", "excuse", "empty", "drop", "let_go"],
)
MakeTable = Callable[[Any], AnyFrameTable]
BOTH = pytest.mark.parametrize("make", [FrameTable, FramesInC])


def sealed(packer: Packer, *sizes: int) -> Frame:
    for size in sizes:
        packer.append(bytes([size % 251]) * size)
    frame = packer.seal()
    assert frame is not None
    return frame


def filled(
    make: MakeTable, count: int, slots: range = range(3)
) -> tuple[AnyFrameTable, SharedBacklog, Packer]:
    """So many frames of one entry each, every slot of `slots` owing all of them."""
    backlog, packer = SharedBacklog(1 << 30), Packer(7)
    table = make(backlog)
    for entry_id in range(count):
        table.put(sealed(packer, 100 + entry_id))
        for slot in slots:
            table.owe(slot, entry_id, 1_000 + entry_id)
    return table, backlog, packer


@BOTH
def test_a_frame_is_pending_then_behind_then_gone(make: MakeTable) -> None:
    """P3.3, RP33: who is done is kept while a slot owes it, and counts there with its price."""
    table, backlog, packer = filled(make, 2)
    assert (table.pending_count, table.behind_bytes, list(table.pending)) == (2, 0, [0, 1])
    assert table.oldest() == Marks(0, 0, 100, 0, 0)
    assert table.newest() == Newest(1, 1, table.pending_bytes - len(table.pending[0].frame.body))
    assert [table.answered(slot, 0) for slot in (2, 0)] == [1_000, 1_000]
    assert table.oldest() == Marks(0, 0, 100, 0b101, 0)
    table.confirm()
    kept = len(table.behind[0].frame.body) + FRAME_PRICE
    assert (table.pending_count, table.behind_bytes, backlog.kept_bytes) == (1, kept, kept)
    assert table.find(0) is not None
    assert table.answered(1, 0) == 1_000
    assert (table.behind_bytes, backlog.kept_bytes, list(table.behind)) == (0, 0, [])
    assert table.find(0) is None and table.answered(1, 0) is None
    assert packer.unreleased_bytes == table.pending_bytes


@BOTH
def test_what_nobody_owes_is_let_go_of_when_it_is_done(make: MakeTable) -> None:
    table, backlog, packer = filled(make, 1)
    for slot in range(3):
        table.answered(slot, 0)
    assert packer.unreleased_bytes > 0, "it is not done"
    table.confirm()
    assert (packer.unreleased_bytes, backlog.kept_bytes, table.pending_count) == (0, 0, 0)
    assert not table.is_owed() and table.oldest() is None


@BOTH
def test_an_answer_counts_once_and_only_where_one_is_owed(make: MakeTable) -> None:
    """P3.8: nor does one of a slot that was sent nothing, or one to a frame that is not here."""
    table, _, _ = filled(make, 1)
    assert table.answered(0, 0) == 1_000
    assert table.answered(0, 0) is None
    assert table.answered(5, 0) is None
    assert table.answered(1, 1) is None and table.answered(1, -1) is None
    assert table.oldest() == Marks(0, 0, 100, 0b001, 0)
    assert not table.took(0, 0) and table.took(1, 0)
    assert table.oldest() == Marks(0, 0, 100, 0b001, 0b010)


@BOTH
def test_who_owes_since_when(make: MakeTable) -> None:
    """P4.1, P4.7: the oldest that a slot has not answered, whatever it answered behind that; what is sent again counts
    from the first time."""
    table, _, _ = filled(make, 4)
    assert table.oldest_sent_ns(0) == 1_000 and table.oldest_sent_ns(3) is None
    table.answered(0, 2)
    assert table.oldest_sent_ns(0) == 1_000
    table.answered(0, 0)
    assert table.oldest_sent_ns(0) == 1_001
    table.answered(0, 1)
    assert table.oldest_sent_ns(0) == 1_003
    table.owe(0, 3, 9_999)
    assert table.owed(0) == {3: 1_003} and table.owed_count(0) == 1
    table.answered(0, 3)
    assert table.oldest_sent_ns(0) is None and table.owed_count(0) == 0
    table.owe(0, 1, 5_000)
    assert table.oldest_sent_ns(0) == 5_000 and table.owes(0, 1) and not table.owes(0, 2)


@BOTH
def test_a_slot_that_is_excused_owes_nothing_and_one_that_is_emptied_has_answered_nothing(
    make: MakeTable,
) -> None:
    """P4.4: acknowledgements of who lost a seat count no more."""
    table, backlog, _ = filled(make, 3)
    for first_entry in (0, 1):
        table.answered(0, first_entry)
        table.answered(1, first_entry)
    table.confirm()
    assert list(table.behind) == [0]
    table.excuse(2)
    assert backlog.kept_bytes == 0 and not table.behind and table.owed_count(2) == 0
    table.empty(0b010)
    assert [each.acked for each in table.marks()] == [0b001, 0]
    assert table.owed(1) == {} and table.owed(0) == {2: 1_002}
    table.owe(7, 1, 2_000)  # Who was proposed, in the other of the two slots.
    assert table.answered(7, 1) == 2_000
    assert table.oldest() == Marks(1, 1, 201, 0b1000_0001, 0)


@BOTH
def test_what_is_owed_outlives_what_is_kept(make: MakeTable) -> None:
    """P4.5: a seat that never answers is noticed also where its frames are let go of."""
    table, backlog, packer = filled(make, 3)
    for _ in range(2):
        table.confirm()
    table.drop_oldest_behind()
    assert list(table.behind) == [1] and table.find(0) is None
    assert table.oldest_sent_ns(1) == 1_000 and table.owes(1, 0)
    table.let_go()
    assert (table.behind_bytes, backlog.kept_bytes, table.pending_count) == (0, 0, 1)
    assert table.answered(1, 0) == 1_000 and table.oldest_sent_ns(1) == 1_001
    table.give_up()
    assert (table.pending_count, table.pending_bytes, packer.unreleased_bytes) == (0, 0, 0)
    assert table.owed_count(0) == 3


@BOTH
def test_a_late_answer_counts_for_its_own_frame_however_many_went_since(make: MakeTable) -> None:
    """P3.2, P3.8: more frames than any table begins with, and all but one of them done."""
    count = 5 * lib.EBK_FLIGHT_FRAMES_MIN + 1
    table, _, packer = filled(make, count)
    for entry_id in range(count - 1):
        table.answered(0, entry_id)
        table.answered(1, entry_id)
        table.confirm()
    assert table.answered(2, 0) == 1_000
    assert table.oldest() == Marks(count - 1, count - 1, packer.length, 0, 0)
    for entry_id in range(1, count - 1):
        assert table.answered(2, entry_id) == 1_000 + entry_id
    assert packer.unreleased_bytes == table.pending_bytes


@BOTH
def test_a_frame_that_somebody_looks_at_stays_as_it_is(make: MakeTable) -> None:
    """P7.8: its bytes are on their way to a seat when the last answer to it comes."""
    table, _, packer = filled(make, 1)
    found = table.find(0)
    assert found is not None
    before = bytes(found.body)
    assert (found.ledger_id, found.first_entry, found.last_entry, found.entry_count, found.length) == (
        7,
        0,
        0,
        1,
        100,
    )
    table.give_up()
    packer.append(bytes(100))
    assert bytes(found.body) == before
    del found
    assert packer.unreleased_bytes == len(before)  # Of the second entry, of the same size.


def test_a_table_in_c_lets_go_with_its_last_reference() -> None:
    table, backlog, packer = filled(FramesInC, 3)
    table.confirm()
    assert backlog.kept_bytes > 0 < packer.unreleased_bytes
    del table
    assert backlog.kept_bytes == 0 and packer.unreleased_bytes == 0


def test_only_frames_of_a_packer_in_c_are_kept_in_c() -> None:
    """What stands in front of a body is its packer's note, and of nothing else."""
    table, packer = FramesInC(None), TwinPacker(7)
    packer.append(b"entry")
    frame = packer.seal()
    assert frame is not None
    of_c = sealed(Packer(7), 10, 20)
    part = Frame(7, 0, 0, 1, 10, of_c.body[:-1])
    for wrong in (frame, part, Frame(7, 0, 0, 1, 1, memoryview(b"x"))):
        with pytest.raises(InvariantError):
            table.put(wrong)
    assert table.pending_count == 0


def test_where_the_table_is_in_c() -> None:
    assert table_in_c(Packer(7), 7) is FramesInC
    assert table_in_c(Packer(7), 8) is FrameTable, "its slots are more than C has"
    assert table_in_c(TwinPacker(7), 3) is FrameTable, "its frames are not in C"
    assert plain_table(Packer(7), 3) is FrameTable
    assert lib.EBK_FLIGHT_FRAME_PRICE == FRAME_PRICE


@pytest.mark.parametrize("seed", range(8))
def test_both_tables_do_the_same(seed: int) -> None:
    """All calls at random, with whole states, marks and bytes kept compared behind each."""
    chance = random.Random(seed)
    packer, backlogs = Packer(7), [SharedBacklog(1 << 30), SharedBacklog(1 << 30)]
    tables: list[AnyFrameTable] = [FrameTable(backlogs[0]), FramesInC(backlogs[1])]
    firsts = [0]
    for _ in range(600):
        slot, first = chance.randrange(SLOTS), chance.choice(firsts[-12:])
        kind, now_ns = chance.choice(KINDS), chance.randrange(1 << 40)
        if kind == "put":
            firsts.append(packer.next_entry)
            frame = sealed(packer, *[chance.randrange(300) for _ in range(chance.randint(1, 3))])
            sent_to = chance.sample(range(SLOTS), chance.randint(0, 5))
            for table in tables:
                table.put(frame)
                for each in sent_to:
                    table.owe(each, frame.first_entry, now_ns)
        answers = []
        for table in tables:
            answer: Any = None
            if kind == "owe" and first in table.pending:
                table.owe(slot, first, now_ns)
            elif kind == "answered":
                answer = table.answered(slot, first)
            elif kind == "confirm" and table.pending_count:
                table.confirm()
            elif kind == "took":
                answer = table.took(slot, first)
            elif kind == "excuse":
                table.excuse(slot)
            elif kind == "empty":
                table.empty(1 << slot | 1)
            elif kind == "drop" and table.behind:
                table.drop_oldest_behind()
            elif kind == "let_go" and first % 4 == 0:
                table.let_go()
            found = table.find(first)
            answers.append(
                (answer, list(table.marks()), table.pending_count, table.pending_bytes, table.behind_bytes,
                 table.is_owed(), [table.owed_count(each) for each in range(SLOTS)],
                 [sorted(table.owed(each)) for each in range(SLOTS)], list(table.newest_first()),
                 None if found is None else bytes(found.body), sorted(table.behind))
            )  # fmt: skip
        assert answers[0] == answers[1]
        assert backlogs[0].kept_bytes == backlogs[1].kept_bytes == tables[0].behind_bytes
    for table in tables:
        table.give_up()
        table.empty((1 << SLOTS) - 1)
    assert state_of(tables[0], SLOTS) == state_of(tables[1], SLOTS) == ([], [], {})
