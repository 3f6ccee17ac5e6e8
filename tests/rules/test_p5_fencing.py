"""P5.2b, P5.2f: which answers to fences are enough, where reading starts, and the order inside the bookie."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest, FenceAnswer, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.ledger_metadata import Fragment
from embedbk.codec.read_messages import ReadRequest
from embedbk.config import Quorum
from embedbk.core.client_words import Answered
from embedbk.core.recovery import Phase
from embedbk.errors import (
    LedgerFenced,
)
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import but, everything, overwrite, scene
from tests.rules.world import KEY, Pen

# P5.2b: fencing.


def test_only_durable_fences_count() -> None:
    """P5.2b: a fence that was never synced is no answer; after a crash it is not there, and it was not told."""
    world, _, _ = it = scene()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.nodes["b1"].holds_syncs = world.nodes["b2"].holds_syncs = True
    world.settle()
    assert recovery.core.phase is Phase.FENCING
    assert [p.bookie_id for p in world.packets()] == []
    row = world.nodes["b1"].storage.table.get(it.ledger_id)
    assert row is not None
    assert row.is_fenced  # The add path refuses already (P5.2f).
    world.nodes["b1"].crash()
    again = world.nodes["b1"].storage.table.get(it.ledger_id)
    assert again is None


def test_a_recovery_says_whose_fence_it_waits_for() -> None:
    """P5.2b: a takeover that is not done is said to wait for the bookies that are silent, by name; not for nothing."""
    world, _, _ = it = scene()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.nodes["b1"].holds_syncs = world.nodes["b2"].holds_syncs = True
    world.settle()
    assert recovery.core.phase is Phase.FENCING
    silent = "too few bookies confirmed the fence (b1: no answer, b2: no answer)"
    assert recovery.core.waits_for == f"the recovery of ledger {it.ledger_id}: {silent}"
    world.nodes["b1"].holds_syncs = world.nodes["b2"].holds_syncs = False
    for name in ("b1", "b2"):
        world.nodes[name].sync()
    world.settle()
    assert recovery.core.phase is Phase.ENDED
    assert recovery.core.waits_for == ""


def test_a_fence_creates_the_ledger_and_outlives_a_crash() -> None:
    """P5.2b, P7.3, I19, I20: also for a ledger it has never heard of."""
    world, writer, pen = it = scene()
    world.ask("b1", FenceRequest(world.nodes["b1"].member.incarnation, it.ledger_id, KEY))
    assert world.heard() == []
    world.nodes["b1"].sync()
    assert world.heard() == [FenceAnswer(Status.OK, it.ledger_id)]
    world.nodes["b1"].crash()
    world.nodes["b1"].restart()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))
    assert isinstance(writer.failure, LedgerFenced)


def test_coverage_is_judged_on_each_write_set() -> None:
    """P5.2b, scenario 7: E5 Qw3 Qa2, answers from bookies 1, 2 and 5 only: counting to three is wrong."""
    world, writer, pen = it = scene(Quorum(5, 3, 2), 5)
    for number in range(10):
        world.add(writer, pen, b"%d" % number)
    world.settle()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=but("b3", "b4"))
    assert recovery.core.phase is Phase.FENCING
    world.settle(hold=but("b3"))
    assert recovery.core.phase is not Phase.FENCING


def test_an_answer_that_comes_twice_covers_no_more_than_once() -> None:
    """P5.2b, I23: coverage is a set of bookies, and no count of answers; the network may double any of them."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, FenceAnswer) or packet.bookie_id != "b1")
    answer = world.packet(recovery, "b1", FenceAnswer)
    for _ in range(3):
        recovery.step(Answered(world.now_ns, answer.tag, answer.member, answer.control))
        assert recovery.core.phase is Phase.FENCING


def test_one_member_is_coverage_when_every_copy_is_needed_for_an_ack() -> None:
    """P5.2b, scenario 6: Qw2 Qa2, one member gone for ever: recovery completes."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), 3)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b1")
    recovery = it.recover()
    assert recovery.ended.error is None
    assert it.last_entry == 0


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.OK, Status.WRONG_KEY)])
def test_a_fence_that_was_not_made_is_no_answer(status: Status) -> None:
    """P5.2b, scenario 8: errors are neither positive nor negative; other incarnation: no answer. Asked again."""
    world, _, _ = it = scene()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=everything)
    for packet in world.packets(kind=FenceRequest)[:2]:
        world.lose(packet)
        answer = FenceAnswer(status, it.ledger_id, 5, 50)
        recovery.step(Answered(world.now_ns, packet.tag, packet.member, answer))
    world.settle()
    assert recovery.core.phase is Phase.FENCING
    world.run(until=lambda: recovery.has_ended, seconds=1)
    assert recovery.ended.error is None
    assert it.last_entry == NO_ENTRY


def test_the_start_is_the_highest_lac_heard() -> None:
    """P5.2b, I27: entries up to it are neither read nor written again."""
    world, writer, pen = it = scene()
    for number in range(4):
        world.add(writer, pen, b"%d" % number)
        world.settle()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, ReadRequest))
    reads = [packet.control for packet in world.packets(kind=ReadRequest)]
    assert {read.first_entry for read in reads} == {3}  # The last frame carried LAC 2.
    world.settle()
    assert world.check_end(it.ledger_id).last_entry == 3


def test_the_start_is_never_below_the_last_fragment() -> None:
    """P5.2b, I27, scenario 2 (#2615): fragments at 0, 3 and an empty new one; the new members know no LAC and a
    bookie fails during write-back: no fragment below the last is made, and the ledger closes."""
    world, writer, pen = it = scene(bookies=7)
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
    world.settle()
    metadata, _ = world.catalog.metadata(it.ledger_id)
    ensemble = tuple(tuple(world.nodes[name].member) for name in ("b4", "b5", "b6"))
    overwrite(world, it.ledger_id, fragments=(*metadata.fragments, Fragment(3, 3, ensemble)))
    world.down.add("b4")
    recovery = it.recover()
    assert recovery.ended.error is None
    closed = world.check_end(it.ledger_id)
    assert closed.last_entry == 2
    assert closed.length == 3
    assert [fragment.first_entry for fragment in closed.fragments] == [0, 3]


def test_limbo_counts_for_coverage_and_gives_no_lac() -> None:
    """P5.2b, P7.4: what a bookie in limbo has forgotten may be higher than what it says."""
    world, writer, pen = it = scene()
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
        world.settle()
    row = world.nodes["b1"].storage.table.get(it.ledger_id)
    assert row is not None
    row.in_limbo = 1
    world.ask("b1", FenceRequest(world.nodes["b1"].member.incarnation, it.ledger_id, KEY))
    world.nodes["b1"].sync()
    assert world.heard() == [FenceAnswer(Status.OK, it.ledger_id, NO_ENTRY, 0)]


# P5.2f: the order inside the bookie.


def test_a_fenced_read_counts_every_add_accepted_before_the_flag() -> None:
    """P5.2f: e0 accepted into b2's journal memory but not visible; R reads "no" at b2 and b3; b2 syncs and
    acknowledges e0; R closes at -1. So the read sees e0, and waits for the sync."""
    world, writer, pen = it = scene()
    b2 = world.nodes["b2"]
    b2.holds_syncs = True
    world.add(writer, pen, b"zero")
    world.deliver(world.packet(to="b2"))
    for packet in world.packets(writer):
        world.lose(packet)
    world.ask("b2", ReadRequest(b2.member.incarnation, it.ledger_id, 0, 9, 1000, True, KEY))
    assert world.heard() == []  # Nothing before the fence and e0 are durable.
    b2.storage.commit(2)  # Birth and e0, not the fence.
    b2.sync()
    (answer,) = world.packets(world.nobody)
    assert answer.frames[0][0].first_entry == 0
    assert answer.control.absent == [(1, 9)]


@pytest.mark.parametrize("held", [0, 1])
def test_a_negative_leaves_only_when_the_fence_is_durable(held: int) -> None:
    """P5.2f, I22: also negatively. The lookup may come before or after the sync; the answer comes after."""
    world, writer, pen = it = scene()
    node = world.nodes["b1"]
    node.holds_reads = bool(held)
    world.ask("b1", ReadRequest(node.member.incarnation, it.ledger_id, 0, 9, 1000, True, KEY))
    node.finish_reads()
    assert world.heard() == []
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))
    assert isinstance(writer.failure, LedgerFenced)  # The flag stands where the add path checks it.
    (answer,) = world.heard()
    assert answer.absent == [(0, 9)]


def test_a_read_without_the_fence_flag_fences_nothing() -> None:
    """P5.2c, mutant of it: a plain reader does not end the writer."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    world.ask("b1", ReadRequest(world.nodes["b1"].member.incarnation, it.ledger_id, 0, 9, 1000))
    assert [answer.status for answer in world.heard()] == [Status.OK]
    world.add(writer, pen, b"one")
    world.settle()
    assert writer.confirmed == 1


def test_a_fence_that_cannot_be_made_durable_is_unknown_and_adds_stay_refused() -> None:
    """P5.2f, P7.6: the sync fails: answer unknown, keep refusing adds."""
    world, writer, pen = it = scene()
    node = world.nodes["b1"]
    incarnation = node.member.incarnation
    world.add(writer, pen, b"zero")
    world.settle()
    node.storage.fail_next_sync("input/output error")
    world.ask("b1", FenceRequest(incarnation, it.ledger_id, KEY))
    world.ask("b1", ReadRequest(incarnation, it.ledger_id, 0, 9, 1000, True, KEY))
    node.holds_reads = True
    world.ask("b1", ReadRequest(incarnation, it.ledger_id, 0, 9, 1000, True, KEY))
    node.sync()
    node.finish_reads()
    answers = world.heard()
    assert [answer.status for answer in answers] == [Status.UNKNOWN] * 3
    assert all(not getattr(answer, "absent", ()) for answer in answers)
    one = Pen(it.ledger_id)
    one.next_entry = 1
    world.ask("b1", AddRequest(incarnation, 1, 1, False), one.frame(b"one"))
    assert [answer.status for answer in world.heard()] == [Status.UNKNOWN]
