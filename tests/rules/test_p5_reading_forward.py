"""P5.2c: a verdict for each entry behind the start, and what an answer does not say."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.ledger_metadata import LedgerState
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import Quorum
from embedbk.core.client_words import Answered
from embedbk.core.recovery import RecoveryOptions
from embedbk.errors import (
    RecoveryInconclusive,
    WrongPassword,
)
from tests.rules.scenes import but, metadata_is, scene
from tests.rules.world import MS, Hold, Packet

# P5.2c: reading forward.


def test_every_recovery_read_carries_the_fence_and_goes_to_the_ensemble_it_started_from() -> None:
    """P5.2c, I26: whatever ensemble changes recovery itself makes."""
    world, writer, pen = it = scene(Quorum(3, 3, 3), 5)
    for _ in range(6):
        world.add(writer, pen, b"x" * 1000)
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    reads: list[Packet] = []

    recovery = world.recovery(it.ledger_id, options=RecoveryOptions(read_entries=2))
    recovery.start()
    while not recovery.has_ended:
        for packet in world.packets(to="b2", kind=AddRequest):
            world.fail(packet)  # And somebody else takes its seat, before the next read.
        for packet in world.wire[:1]:
            if isinstance(packet.control, ReadRequest):
                reads.append(packet)
            world.deliver(packet)
        for node in world.nodes.values():
            node.sync()
        while world.catalog.waiting:
            world.catalog.answer(world.catalog.waiting[0])
    assert recovery.ended.error is None
    assert all(packet.control.fence for packet in reads)
    assert [packet.bookie_id for packet in reads] == ["b1", "b2", "b3"] * 4
    closed = world.check_end(it.ledger_id)
    assert closed.last_entry == 5
    assert "b2" not in [member.bookie_id for member in closed.fragments[-1].members]


def test_a_recovery_that_replaced_a_bookie_and_died_leaves_the_ensemble_as_it_was() -> None:
    """P5.2c, P5.2d, scenario 3 (BK-355): R1 replaces b1 by b4 and dies; b1 returns and b2 goes: R2 reads where the
    metadata says, and does not close at -1."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    r1 = world.recovery(it.ledger_id, "r1")
    r1.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    for packet in world.packets(r1, "b1", AddRequest):
        world.fail(packet)
    world.settle(hold=but("b1", "b2", "b3"))
    assert world.nodes["b4"].holds(it.ledger_id) == [0]
    r1.is_gone = True
    world.wire.clear()
    world.down |= {"b2", "b4"}
    r2 = it.recover(name="r2")
    assert r2.ended.error is None
    assert it.last_entry == 0


def test_a_bad_copy_is_unknown_and_never_a_negative() -> None:
    """P5.2c, P7.1, I25, scenario 4 (#2908): one copy is damaged, the other holder is slow: not truncated."""
    world, writer, pen = it = scene(Quorum(3, 3, 2))
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    world.nodes["b1"].storage.make_unreadable(it.ledger_id, 0)
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.run(seconds=2, hold=lambda p: (p.bookie_id == "b2" and p.tag[0] == "recover") or p.client is writer)
    assert not recovery.has_ended
    assert it.last_entry is None
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert it.last_entry == 0
    world.check_end(it.ledger_id)


def test_a_copy_that_fails_its_digest_on_the_way_is_unknown() -> None:
    """P5.2c, I25: bytes changed under the digest are no copy and no negative, and the rest of that answer is no
    verdict either."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, ReadAnswer) or packet.client is writer)
    for packet in world.packets(kind=ReadAnswer):
        if packet.frames:
            header, body = packet.frames[0]
            damaged = bytearray(body)
            damaged[50] ^= 1
            packet.frames[0] = (header, memoryview(bytes(damaged)))
    world.settle(hold=lambda packet: packet.client is writer or isinstance(packet.control, ReadRequest))
    assert (
        it.last_entry is None
    )  # b1 and b2 are unknown, b3 said no: one negative of the two that are needed.
    world.run(until=lambda: recovery.has_ended)
    assert it.last_entry == 0


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(3, 3, 3), Quorum(3, 2, 2), Quorum(5, 3, 2)])
def test_explicit_negatives_of_a_write_set_end_the_ledger(quorum: Quorum) -> None:
    """P5.2c, scenario 5: one member hangs for ever, the others lack the entry: enough negatives decide."""
    world, writer, pen = it = scene(quorum, quorum.ensemble_size + 1)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b2")
    recovery = it.recover()
    assert recovery.ended.error is None
    assert it.last_entry == 0
    assert world.now_ns == 0  # No time limit had to pass.


@pytest.mark.parametrize("why", ["unreadable", "limbo", "incarnation", "silent", "journal"])
def test_without_a_verdict_recovery_is_inconclusive_and_may_be_tried_again(why: str) -> None:
    """P5.2c, I24: neither verdict can be had: RecoveryInconclusive, the ledger stays IN_RECOVERY; later it works.

    e0 was acknowledged by b1 and b2. b1 is gone; b2 cannot tell; b3 has it not: closing at -1 would lose it."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    world.wire.clear()
    world.down.add("b1")
    node = world.nodes["b2"]
    hold: Hold = lambda packet: False  # noqa: E731
    if why == "unreadable":
        node.storage.make_unreadable(it.ledger_id, 0)
    elif why == "limbo":
        row = node.storage.table.get(it.ledger_id)
        assert row is not None
        row.in_limbo = 1
        node.storage.store.entries[it.ledger_id].clear()
        node.storage.store.ids[it.ledger_id].clear()
    elif why == "incarnation":
        node.lose_disk()
    elif why == "journal":
        node.storage.fail_next_sync("the disk is gone")
    else:
        hold = but("b2")
    recovery = it.recover(hold)
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert not recovery.ended.error.definite
    assert recovery.ended.error.hint
    assert metadata_is(world, it.ledger_id, LedgerState.IN_RECOVERY)
    assert world.now_ns <= 11_000 * MS
    world.down.clear()
    world.wire.clear()
    second = it.recover(name="second")
    assert second.ended.error is None
    assert it.last_entry == 0


def test_unknowns_are_asked_again_within_the_same_recovery() -> None:
    """P5.2c: overload passes."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    asked = 0
    for _ in range(6):
        world.settle(hold=lambda packet: isinstance(packet.control, ReadRequest))
        for packet in world.packets(kind=ReadRequest):
            asked += 1
            world.lose(packet)
            busy = ReadAnswer(Status.UNKNOWN, it.ledger_id)
            recovery.step(Answered(world.now_ns, packet.tag, packet.member, busy))
        assert recovery.core.deadline_ns is not None
        world.now_ns = recovery.core.deadline_ns
        world.tick(recovery)
    assert asked >= 15
    world.run(until=lambda: recovery.has_ended)
    assert it.last_entry == 0


def test_a_range_answer_says_nothing_of_ids_it_does_not_mention() -> None:
    """P5.2c: b1 answers with half of what it has (its bound), b2 b3 not at all: what is beyond is unknown."""
    world, writer, pen = it = scene()
    for _ in range(5):
        world.add(writer, pen, b"x" * 400_000)
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    recovery = it.recover(hold=lambda packet: packet.client is writer)
    assert recovery.ended.error is None
    assert it.last_entry == 4
    world.check_end(it.ledger_id)


def test_a_wrong_password_ends_recovery_and_fences_nothing() -> None:
    """P3.5."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    stranger = world.recovery(it.ledger_id, "stranger", key=bytes(16))
    stranger.start()
    world.settle()
    assert isinstance(stranger.ended.error, WrongPassword)
    world.add(writer, pen, b"one")
    world.settle()
    assert writer.confirmed == 1


@pytest.mark.parametrize("kind", [FenceRequest, ReadRequest, AddRequest])
def test_an_answer_of_the_wrong_kind_is_unknown(kind: type) -> None:
    """P5.2c: a bookie that does not understand, or whose table is full, said neither yes nor no."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, kind))
    for packet in world.packets(kind=kind):
        world.lose(packet)
        recovery.step(Answered(world.now_ns, packet.tag, packet.member, ErrorAnswer("table full")))
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert it.last_entry == 0
    world.check_end(it.ledger_id)
