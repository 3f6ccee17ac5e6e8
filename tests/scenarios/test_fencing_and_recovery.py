"""Scenarios 1 to 14: known accidents of fencing, recovery and its reads, each on the real cores with all invariants on.

The comment in each test says what was taken out of the product to see it fail.
"""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.lac_messages import ExplicitLacRequest
from embedbk.codec.read_messages import ReadRequest
from embedbk.config import Quorum
from embedbk.core.lac_reader import LacRead
from embedbk.errors import LedgerFenced, RecoveryInconclusive
from tests.rules.world import THREE, Packet
from tests.scenarios.watched import but, scene


def test_a_delayed_add_does_not_slip_past_a_recovery_that_read_no() -> None:
    """Scenario 1: #2614. e0 is on b2 only; the fence is lost to b3, whose fenced read says no; then e0 reaches b3."""
    # Taken out: the fence flag of recovery reads (core/recovery.py, `_ask_reads`: ReadRequest(..., fence=False)).
    story = scene()
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.lose(world.packet(writer, "b1"))
    delayed = world.packet(writer, "b3")
    world.settle(hold=lambda packet: packet is delayed)

    def lost(packet: Packet) -> bool:
        fence_to_b3 = packet.bookie_id == "b3" and isinstance(packet.control, FenceRequest)
        read_of_b2 = packet.bookie_id == "b2" and isinstance(packet.control, ReadRequest)
        return packet is delayed or fence_to_b3 or read_of_b2

    recovery = story.recover(hold=lost)
    assert recovery.ended.error is None
    assert story.metadata.last_entry == -1
    world.deliver(delayed)
    world.run(seconds=5)
    assert isinstance(writer.failure, LedgerFenced)
    assert writer.confirmed == -1
    world.end(story.ledger_id)


def test_recovery_of_an_empty_last_fragment_stays_above_it() -> None:
    """Scenario 2: #2615. The last fragment is new and empty, its members have no LAC: recovery begins behind the
    entries before it, makes no fragment below, and closes."""
    # Taken out: the floor (core/recovery.py, `_begin_round`: self.start = -1).
    story = scene(bookies=7)
    world, writer = story.world, story.writer
    for number in range(3):
        story.add(b"entry %d" % number)
        world.settle()
    world.down = {"b1", "b2", "b3"}
    story.add(b"last")
    world.settle(hold=but("b4", "b5", "b6", "b7"))
    assert [f.first_entry for f in story.metadata.fragments] == [0, 3]
    world.kill(writer)
    world.down = set()
    recovery = story.recover()
    assert recovery.ended.error is None
    assert [f.first_entry for f in story.metadata.fragments] == [0, 3]
    assert story.metadata.last_entry == 2
    world.end(story.ledger_id)


def test_a_recovery_that_died_leaves_the_copies_where_the_next_one_looks() -> None:
    """Scenario 3: BK-355, BK-581. R1 gives the seat of b2 to b4 and dies; b2 returns, another goes; R2 finds e0."""
    # Taken out: reads from the starting version (core/recovery.py, `_ask_reads`: self.in_flight.members[seat]).
    story = scene(bookies=5)
    world, writer = story.world, story.writer
    story.add(b"e0")
    third = world.packet(writer, "b3")
    world.settle(hold=lambda packet: packet is third)
    assert writer.confirmed == 0
    world.kill(writer)
    first = world.recovery(story.ledger_id, "r1")
    first.start()

    def unread(packet: Packet) -> bool:
        is_write = isinstance(packet.control, AddRequest)
        is_read = packet.bookie_id != "b1" and isinstance(packet.control, ReadRequest)
        return packet.client is first and (is_write or (is_read and packet.bookie_id != "b4"))

    world.settle(hold=unread)
    world.fail(world.packet(first, "b2", AddRequest))  # Its seat goes to b4, while its read is open.
    world.run(seconds=2, hold=unread)
    for packet in world.packets(first, "b4"):
        world.deliver(packet)
    world.nodes["b4"].sync()
    world.kill(first)
    assert story.metadata.last_entry is None
    second = story.recover(hold=but("b2"), name="r2")
    assert second.ended.error is None
    assert story.metadata.last_entry == 0
    world.settle()
    world.end(story.ledger_id)


def test_a_damaged_copy_never_truncates() -> None:
    """Scenario 4: #2908, BK-447. b1's copy is unreadable and b2 is slow: unknown is not no."""
    # Taken out: unknown for bad bytes (storage/memory_entry_store.py, `read`: unreadable entries left out of the ids).
    story = scene()
    world, writer = story.world, story.writer
    story.add(b"e0")
    third = world.packet(writer, "b3")
    world.settle(hold=lambda packet: packet is third)
    world.lose(third)
    world.damage("b1", story.ledger_id, 0)
    recovery = story.recover(hold=lambda p: p.bookie_id == "b2" and isinstance(p.control, ReadRequest))
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert story.metadata.last_entry is None
    world.settle()
    assert story.recover(name="again").ended.error is None
    assert story.metadata.last_entry == 0
    world.end(story.ledger_id)


def test_two_negatives_are_enough_where_the_third_hangs() -> None:
    """Scenario 5: BK-365, #1067. Qw 3, Qa 2, one member hangs for ever, the others lack the entry."""
    # Taken out: the right number (core/quorum.py, `recovery_verdict`: write_quorum - ack_quorum + 2).
    story = scene()
    recovery = story.recover(hold=but("b1"), seconds=1)
    assert recovery.ended.error is None
    assert story.metadata.last_entry == -1


def test_one_answer_is_coverage_where_every_copy_is_needed() -> None:
    """Scenario 6: pulsar#6505. Qw 2, Qa 2, one member gone: one durable fence covers."""
    # Taken out: the right number (core/quorum.py, `has_coverage`: need = ack_quorum).
    story = scene(Quorum(2, 2, 2), bookies=2)
    story.world.down = {"b1"}
    recovery = story.recover(seconds=1)
    assert recovery.ended.error is None
    assert story.metadata.last_entry == -1


def test_coverage_is_judged_write_set_by_write_set() -> None:
    """Scenario 7: BK-799. E 5, Qw 3, Qa 2 and answers of bookies 0, 1, 4 only: write set 2 3 4 is not covered."""
    # Taken out: judging write sets (core/quorum.py, `has_coverage`: return seats.bit_count() >= 3).
    story = scene(Quorum(5, 3, 2), bookies=5)
    recovery = story.recover(hold=but("b3", "b4"))
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert story.metadata.last_entry is None


def test_errors_do_not_cover() -> None:
    """Scenario 8: #2333. A bookie that cannot make its fence durable has answered, and covers nothing."""
    # Taken out: the look at the status (core/recovery.py, `_on_fenced`: no `if answer.status != Status.OK`).
    story = scene()
    for name in ("b1", "b2"):
        story.world.nodes[name].storage.fail_next_sync("the device is gone")
    recovery = story.recover()
    assert isinstance(recovery.ended.error, RecoveryInconclusive)


def test_a_fence_outlives_a_restart_before_the_index_is_flushed() -> None:
    """Scenario 9: BK-500. Only the journal holds the fence when the bookie restarts."""
    # Taken out: the journal record (core/fencing.py, `fence`: no JournalAppend).
    story = scene()
    world = story.world
    recovery = story.recover(hold=but("b3"))
    assert recovery.ended.error is None
    for name in ("b1", "b2"):
        world.nodes[name].crash()
        world.nodes[name].restart()
    story.add(b"late")
    world.run(seconds=5)
    assert story.writer.confirmed == -1
    assert isinstance(story.writer.failure, LedgerFenced)


def test_a_fence_outlives_its_journal_record() -> None:
    """Scenario 10: BK-815. The fence is flushed, its journal record trimmed, the state loaded again: still fenced."""
    # Taken out: the flag in stored states (core/ledger_table.py: STATE_FENCED not packed).
    story = scene()
    world = story.world
    story.add(b"e0")
    world.settle()
    assert story.recover().ended.error is None
    for node in world.nodes.values():
        node.storage.flush_bytes = 0
        assert node.storage.begin_flush_if_due()
        assert node.storage.finish_flush()
        assert not node.storage.records  # Nothing is left to replay.
        node.crash()
        node.restart()
    story.add(b"late")
    world.run(seconds=5)
    assert isinstance(story.writer.failure, LedgerFenced)
    reader = world.reader(story.ledger_id, 0, 0)
    reader.start()
    world.run(until=lambda: reader.has_ended)
    assert reader.read == [(0, b"e0")]


def test_a_read_only_bookie_fences_and_takes_recovery_adds() -> None:
    """Scenario 11: #208. No space is no reason to leave a ledger without an end."""
    # Taken out: that recovery adds pass (core/add_storing.py, `_refusal`: READ_ONLY before `if request.recovery`).
    story = scene()
    world = story.world
    story.add(b"e0")
    third = world.packet(story.writer, "b3")
    world.settle(hold=lambda packet: packet is third)
    world.lose(third)
    for node in world.nodes.values():
        node.core.is_writable = False
    recovery = story.recover(seconds=5)
    assert recovery.ended.error is None
    assert story.metadata.last_entry == 0
    assert 0 in world.nodes["b3"].holds(story.ledger_id)
    world.end(story.ledger_id)


def test_two_recoverers_move_no_lac() -> None:
    """Scenario 12: #343. Recovery adds carry no LAC, neither recovery stalls, both end alike."""
    # Taken out: the missing LAC (core/recovery.py, `_write_back`: send(frame, now_ns, frame.last_entry, ...)).
    story = scene(bookies=5)
    world = story.world
    for number in range(4):
        story.add(b"entry %d" % number)
    world.settle(hold=lambda packet: packet.bookie_id == "b1" and packet.is_request)
    pair = [world.recovery(story.ledger_id, name) for name in ("r1", "r2")]
    for recovery in pair:
        recovery.start()
    world.run(until=lambda: all(recovery.has_ended for recovery in pair))
    ends = {recovery.ended.result[0].last_entry for recovery in pair}
    assert ends == {3}
    world.end(story.ledger_id)


def test_what_a_reader_saw_through_an_explicit_lac_survives_restarts() -> None:
    """Scenario 13: #1527, #1533. Every bookie restarts; a LAC that was published is still known."""
    # Taken out: the record (core/lac_answers.py, `on_explicit`: no JournalAppend).
    story = scene()
    world, writer = story.world, story.writer
    story.add(b"e0")
    world.settle()
    world.run(until=lambda: not world.packets(writer) and writer.core.deadline_ns is None, seconds=2)
    assert not world.packets(writer, kind=ExplicitLacRequest)
    for node in world.nodes.values():
        node.crash()
        node.restart()
    reader = world.client("reader", LacRead(story.metadata))
    reader.start()
    world.run(until=lambda: reader.has_ended, seconds=5)
    assert reader.ended.result[0] == 0


@pytest.mark.parametrize("does_recover", [False, True])
def test_a_bookie_in_limbo_completes_no_coverage_with_a_lac(does_recover: bool) -> None:
    """Scenario 14: #2612. b3 lost its data and answers first: nobody is told of an empty ledger by it."""
    # Taken out: silence in limbo (core/lac_answers.py, `_answer`: no IN_LIMBO).
    story = scene(Quorum(3, 3, 2))
    world = story.world
    story.add(b"e0")
    third = world.packet(story.writer, "b3")
    world.settle(hold=lambda packet: packet is third)
    world.lose(third)
    world.put_in_limbo("b3", story.ledger_id)
    if does_recover:
        recovery = story.recover(
            hold=lambda p: p.bookie_id == "b2" and isinstance(p.control, ReadRequest), seconds=3
        )
        assert story.metadata.last_entry in (0, None)  # b1 has it; b3 alone says nothing.
        assert not recovery.has_ended or recovery.ended.error is None
        world.settle()
        return
    reader = world.client("reader", LacRead(story.metadata))
    reader.start()
    world.run(until=lambda: reader.has_ended, hold=but("b1"), seconds=2)
    assert not reader.has_ended or reader.ended.error is not None
    assert THREE.ack_quorum == 2
