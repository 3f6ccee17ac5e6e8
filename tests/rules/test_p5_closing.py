"""P5.1: closing by the writer. An acknowledged entry is never beyond the last entry of its ledger."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import LedgerState, ledger_key_path
from embedbk.codec.metadata_messages import Delete
from embedbk.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
)
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import but, overwrite, scene

# P5.1: by the writer.


def test_a_writer_closes_at_its_lac_and_length() -> None:
    """P5.1, I37: CAS to CLOSED with last entry = LAC and its length."""
    world, writer, pen = scene()
    for number in range(5):
        world.add(writer, pen, b"x" * number)
    world.settle()
    world.close(writer)
    world.settle()
    assert writer.ended.error is None
    assert writer.ended.result == (4, 10)
    assert world.check_end(pen.ledger_id).length == 10


def test_an_empty_ledger_closes_at_no_entry() -> None:
    """P5.1: nothing was added: last entry NO_ENTRY, length 0."""
    world, writer, pen = scene()
    world.close(writer)
    world.settle()
    assert world.check_end(pen.ledger_id).last_entry == NO_ENTRY


def test_outstanding_adds_finish_before_the_close_is_sent() -> None:
    """P5.1: outstanding adds first finish or fail."""
    world, writer, pen = scene()
    world.add(writer, pen, b"zero")
    world.close(writer)
    world.settle(hold=but("b2", "b3"))
    assert not writer.has_ended
    assert world.catalog.waiting == []
    world.settle()
    assert writer.confirmed == 0
    assert world.check_end(pen.ledger_id).last_entry == 0


def test_outstanding_adds_that_fail_are_not_closed_over() -> None:
    """P5.1, BK-673: the length counts only entries up to the last."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    world.add(writer, pen, b"one")
    world.close(writer)
    world.down |= {"b1", "b2"}
    world.run(until=lambda: writer.failure is not None)
    assert writer.failure is not None
    world.down.clear()
    world.settle()
    assert writer.ended.error is None
    assert it.last_entry == 0
    assert world.check_end(pen.ledger_id).length == 4


@pytest.mark.parametrize("outcome", ["repair", "in recovery", "closed alike", "closed elsewhere", "gone"])
def test_a_refused_close_reads_again_and_decides(outcome: str) -> None:
    """P5.1: still OPEN -> retry; IN_RECOVERY -> error; CLOSED with the same last entry -> success; with another ->
    error; gone -> error that says deleted."""
    world, writer, pen = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.close(writer)
    if outcome == "repair":
        overwrite(world, pen.ledger_id, custom={"repair": b"was here"})
    elif outcome == "in recovery":
        overwrite(world, pen.ledger_id, state=LedgerState.IN_RECOVERY)
    elif outcome == "closed alike":
        overwrite(world, pen.ledger_id, state=LedgerState.CLOSED, last_entry=0, length=4)
    elif outcome == "closed elsewhere":
        overwrite(world, pen.ledger_id, state=LedgerState.CLOSED, last_entry=1, length=7)
    else:
        world.catalog.transact([], [Delete(ledger_key_path(pen.ledger_id))])
    world.catalog.is_held = False
    world.settle()
    errors = {
        "repair": None, "closed alike": None, "in recovery": LedgerFenced, "closed elsewhere": LedgerClosed,
        "gone": NoSuchLedger,
    }  # fmt: skip
    wanted, error = errors[outcome], writer.ended.error
    if wanted is None:
        assert error is None
        return
    assert isinstance(error, wanted)
    assert not error.definite
    assert outcome != "gone" or "deleted" in str(error)


def test_a_close_of_unknown_outcome_is_settled_by_reading_and_sending_again() -> None:
    """P2.2: whether it landed, lands later, or never does."""
    for lands in (True, False, None):
        world, writer, pen = scene()
        world.add(writer, pen, b"zero")
        world.settle()
        world.catalog.is_held = True
        world.close(writer)
        (closing,) = world.catalog.waiting
        world.catalog.tell_unknown(closing, lands=lands)
        assert not writer.has_ended
        world.catalog.answer(world.catalog.waiting[0])
        if lands is None:
            assert world.catalog.land(closing)
        world.catalog.is_held = False
        world.settle()
        assert writer.ended.error is None
        assert world.check_end(pen.ledger_id).last_entry == 0


def test_a_close_waits_for_metadata_that_does_not_answer() -> None:
    """P2.2: no answer to the read either: ask again later; it ends when somebody answers."""
    world, writer, _ = scene()
    world.catalog.is_held = True
    world.close(writer)
    for _ in range(5):
        world.catalog.fail(world.catalog.waiting[0])
        while world.catalog.waiting:
            world.catalog.fail(world.catalog.waiting[0])
        assert writer.core.deadline_ns is not None
        world.now_ns = writer.core.deadline_ns
        world.tick(writer)
    world.catalog.is_held = False
    world.settle()
    assert writer.ended.error is None
