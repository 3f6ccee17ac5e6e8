"""P5: closing, by the writer and by recovery. An acknowledged entry is never beyond the last entry of its ledger."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from embedbk.codec.ledger_metadata import Fragment, LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.messages import (
    AddAnswer,
    AddRequest,
    ErrorAnswer,
    FenceAnswer,
    FenceRequest,
    ReadAnswer,
    ReadRequest,
    Status,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.config import Quorum
from embedbk.core.recovery import Phase, Recovery, RecoveryOptions
from embedbk.core.vocabulary import Answered, Transact
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    RecoveryInconclusive,
    WrongPassword,
)
from embedbk.ids import NO_ENTRY
from tests.rules.world import KEY, MS, THREE, Client, Hold, Packet, Pen, World


class Scene(NamedTuple):
    world: World
    writer: Client
    pen: Pen

    @property
    def ledger_id(self) -> int:
        return self.pen.ledger_id

    @property
    def last_entry(self) -> int | None:
        return self.world.catalog.metadata(self.ledger_id)[0].last_entry

    def recover(self, hold: Hold = lambda packet: False, name: str = "r") -> Client:
        """One recovery from start to end; the writer hears nothing meanwhile."""
        recovery = self.world.recovery(self.ledger_id, name)
        recovery.start()
        self.world.run(until=lambda: recovery.has_ended, hold=hold)
        return recovery


def scene(quorum: Quorum = THREE, bookies: int = 3) -> Scene:
    world = World(bookies)
    metadata, revision = world.create(quorum)
    return Scene(world, world.writer(metadata, revision), Pen(metadata.ledger_id))


def everything(_: Packet) -> bool:
    return True


def but(*names: str) -> Hold:
    """Hold what these bookies get and say."""
    return lambda packet: packet.bookie_id in names


def all_but(*packets: Packet) -> Hold:
    return lambda packet: packet not in packets


def metadata_is(world: World, ledger_id: int, state: LedgerState) -> bool:
    return world.catalog.metadata(ledger_id)[0].state == state


def overwrite(world: World, ledger_id: int, **changes: object) -> None:
    """Somebody else publishes."""
    metadata, _ = world.catalog.metadata(ledger_id)
    value = encode_ledger_metadata(metadata.with_changes(**changes))
    world.catalog.transact([], [Put(ledger_key_path(ledger_id), value)])


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


# P5.2: recovery, the plain way.


def test_recovery_closes_at_the_last_entry_that_anybody_may_have_been_told_of() -> None:
    """P5.2: b1 alone holds entry 2, which nobody was told of; b1 b2 hold 1. It is recovered as well, and written
    back to Qa bookies before the ledger is closed."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle()
    world.add(writer, pen, b"one")
    world.settle(hold=but("b3"))
    world.add(writer, pen, b"two")
    world.deliver(world.packets(to="b1")[-1])
    for packet in world.packets(writer):
        world.lose(packet)
    recovery = it.recover()
    assert recovery.ended.error is None
    assert it.last_entry == 2
    assert world.nodes["b2"].holds(pen.ledger_id) == [0, 1, 2]
    assert world.check_end(pen.ledger_id).length == 10


def test_in_recovery_is_published_before_anything_is_fenced() -> None:
    """P5.2a: CAS to IN_RECOVERY; if already so, go on."""
    world, _, _ = it = scene()
    world.catalog.is_held = True
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle()
    assert world.wire == []
    world.catalog.answer(world.catalog.waiting[0])
    assert metadata_is(world, it.ledger_id, LedgerState.IN_RECOVERY)
    assert len(world.packets(kind=FenceRequest)) == 3
    second = world.recovery(it.ledger_id, "second")
    second.start()
    assert world.catalog.waiting == []
    assert len(world.packets(second, kind=FenceRequest)) == 3


def test_a_closed_ledger_is_left_as_it_is() -> None:
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.close(writer)
    world.settle()
    before = world.catalog.metadata(it.ledger_id)
    recovery = it.recover()
    assert recovery.ended.result == before
    assert world.catalog.metadata(it.ledger_id) == before


def test_the_writer_changed_its_ensemble_just_before() -> None:
    """P2.2, P5.2a: the marking is refused; recovery reads again and goes on with the new fragment."""
    world, writer, pen = it = scene(bookies=4)
    recovery = world.recovery(it.ledger_id)
    world.down.add("b3")
    world.add(writer, pen, b"zero")
    world.add(writer, pen, b"one")
    world.settle()
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.check_end(it.ledger_id).last_entry == 1


def test_the_writer_is_refused_after_recovery() -> None:
    """P5.2, scenario 1: what the old writer still has on its way arrives at fenced bookies."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b1", "b3"))
    assert world.nodes["b2"].holds(it.ledger_id) == [0]
    recovery = it.recover(hold=lambda packet: packet.client is writer)
    assert recovery.ended.error is None
    assert it.last_entry == 0
    world.settle()
    assert isinstance(writer.failure, LedgerFenced)
    world.close(writer)
    world.settle()
    assert isinstance(writer.ended.error, LedgerClosed)


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


# P5.2d: write-back.


def test_write_backs_are_verbatim_without_a_lac_and_pass_fences() -> None:
    """P5.2d, I12: the bytes that the writer made, in a frame without a LAC, with the recovery flag."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    adds = world.packets(kind=AddRequest)
    assert len(adds) == 3
    for packet in adds:
        header, body = packet.frames[0]
        assert packet.control.recovery
        assert not header.has_lac
        assert bytes(body) == world.sent[it.ledger_id, 0]
    world.settle()
    assert it.last_entry == 0


def test_the_close_waits_for_qa_acknowledgements_of_every_write_back() -> None:
    """P5.2d, I29: one copy written back is not enough."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda p: isinstance(p.control, AddRequest | AddAnswer) and p.bookie_id != "b1")
    assert recovery.core.phase is Phase.READING
    assert it.last_entry is None
    world.settle(hold=but("b3"))
    assert it.last_entry == 0


def test_fragments_of_recovery_are_published_only_with_the_close() -> None:
    """P5.2d, I28: failing bookies are replaced as in P4, in recovery's own mind. The catalog refuses anything else."""
    world, writer, pen = it = scene(bookies=6)
    for number in range(4):
        world.add(writer, pen, b"%d" % number)
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    for name in ("b2", "b3"):
        for packet in world.packets(to=name, kind=AddRequest):
            world.fail(packet)
    world.settle()
    versions = world.catalog.history[ledger_key_path(it.ledger_id)]
    assert [version.state for version in versions] == [1, 2, 3]
    assert versions[1].fragments == versions[0].fragments
    names = [member.bookie_id for member in versions[2].fragments[-1].members]
    assert names[0] == "b1"
    assert {"b2", "b3"}.isdisjoint(names)
    world.check_end(it.ledger_id)


def test_a_bookie_that_fails_its_write_back_is_not_chosen_at_once_again() -> None:
    """P5.2d: two free bookies without a link: no running in a circle between them."""
    world, writer, pen = it = scene(bookies=5)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    sent = 0
    for _ in range(50):
        adds = [p for p in world.packets(kind=AddRequest) if p.bookie_id != "b1"]
        sent += len(adds)
        for packet in adds:
            world.fail(packet)
    assert sent == 4  # b2, b3, and each of the others once.
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert it.last_entry == 0


def test_recovery_waits_for_a_bookie_when_nobody_can_take_the_copy() -> None:
    """P5.2d: too few bookies for Qa: inconclusive after its patience, and a later one succeeds."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), 2)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2"))
    world.wire.clear()
    world.nodes["b2"].storage.fail_next_sync("full")
    recovery = it.recover()
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    world.nodes["b2"].crash()
    world.nodes["b2"].restart()
    assert it.recover(name="later").ended.error is None
    assert it.last_entry == 0


# P5.2e: the closing compare-and-set.


def closing_scene() -> tuple[Scene, Client]:
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.catalog.answer(world.catalog.waiting[0])
    world.settle()
    assert recovery.core.phase is Phase.CLOSING
    assert len(world.catalog.waiting) == 1
    return it, recovery


def test_a_refused_close_adopts_what_another_recovery_closed() -> None:
    """P5.2e: CLOSED -> adopt that result."""
    it, recovery = closing_scene()
    metadata, _ = it.world.catalog.metadata(it.ledger_id)
    overwrite(it.world, it.ledger_id, state=LedgerState.CLOSED, last_entry=0, length=4, custom={"by": b"r2"})
    it.world.catalog.is_held = False
    it.world.settle()
    assert recovery.ended.error is None
    assert recovery.ended.result == it.world.catalog.metadata(it.ledger_id)
    assert metadata.state == LedgerState.IN_RECOVERY


def test_a_refused_close_goes_on_where_only_earlier_fragments_changed() -> None:
    """P5.2e: IN_RECOVERY at a newer version, last fragment unchanged: keep the verdicts and retry on it."""
    it, recovery = closing_scene()
    overwrite(it.world, it.ledger_id, custom={"repair": b"was here"})
    it.world.catalog.is_held = False
    it.world.settle(hold=everything)
    assert recovery.ended.error is None
    closed = it.world.check_end(it.ledger_id)
    assert closed.custom == {"repair": b"was here"}
    assert not it.world.packets(kind=FenceRequest)


def overwrite_last_fragment(world: World, ledger_id: int, fragment: Fragment) -> None:
    """What nobody should do to a ledger in recovery; the catalog would rightly refuse it."""
    world.catalog.history.pop(ledger_key_path(ledger_id))
    overwrite(world, ledger_id, fragments=(fragment,))


def test_a_refused_close_begins_again_where_the_last_fragment_changed() -> None:
    """P5.2e: changed: start again. And what bookies answered to the first round counts for nothing (P3.8)."""
    it, recovery = closing_scene()
    world = it.world
    ensemble = tuple(tuple(world.nodes[name].member) for name in ("b1", "b2", "b4"))
    overwrite_last_fragment(world, it.ledger_id, Fragment(0, 0, ensemble))
    world.catalog.is_held = False
    world.settle()
    assert recovery.ended.error is None
    assert world.check_end(it.ledger_id).last_entry == 0


def test_an_acknowledgement_of_the_first_round_counts_for_nothing_in_the_second() -> None:
    """P3.8, P5.2e: b3's late answer of round one must not stand for b4, which holds its seat in round two."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))
    world.wire.clear()
    writer.is_gone = True
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    world.catalog.is_held = True
    world.settle(hold=lambda packet: isinstance(packet.control, AddAnswer) and packet.bookie_id == "b3")
    (late,) = world.wire
    metadata, _ = world.catalog.metadata(it.ledger_id)
    ensemble = (*metadata.fragments[0].ensemble[:2], tuple(world.nodes["b4"].member))
    overwrite_last_fragment(world, it.ledger_id, Fragment(0, 0, ensemble))
    world.catalog.is_held = False
    world.settle(hold=lambda packet: packet is late or isinstance(packet.control, AddRequest))
    assert len(world.packets(kind=AddRequest)) == 3
    world.deliver(late)
    world.settle(hold=lambda packet: packet.bookie_id in ("b2", "b4"))
    assert it.last_entry is None  # One copy that counts, b1's.
    world.settle()
    assert world.check_end(it.ledger_id).last_entry == 0


def test_a_close_of_recovery_with_unknown_outcome() -> None:
    """P2.2: it landed, lands later, or never does: one end, told once."""
    for lands in (True, False, None):
        it, recovery = closing_scene()
        (closing,) = it.world.catalog.waiting
        it.world.catalog.tell_unknown(closing, lands=lands)
        it.world.catalog.answer(it.world.catalog.waiting[0])
        if lands is None:
            assert it.world.catalog.land(closing)
        it.world.catalog.is_held = False
        it.world.settle()
        assert recovery.ended.error is None
        assert recovery.ended.result == it.world.catalog.metadata(it.ledger_id)


def test_recovery_ends_when_the_ledger_is_deleted() -> None:
    """P2.2: a key that is gone."""
    it, recovery = closing_scene()
    it.world.catalog.transact([], [Delete(ledger_key_path(it.ledger_id))])
    it.world.catalog.is_held = False
    it.world.settle()
    assert isinstance(recovery.ended.error, NoSuchLedger)


def test_metadata_that_does_not_answer_makes_recovery_inconclusive_and_it_goes_on_no_more() -> None:
    """P5.2c: after its end it sends nothing, whatever still comes."""
    it, recovery = closing_scene()
    world = it.world
    closing = world.catalog.waiting[0]
    world.catalog.tell_unknown(closing)
    (read,) = world.catalog.waiting
    world.run(until=lambda: recovery.has_ended, seconds=30)
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    world.catalog.answer(read)
    assert world.catalog.waiting == []


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


# P5.2, P5.3: any number of recoverers at once.


def tail(seed: int, quorum: Quorum, bookies: int) -> tuple[Scene, random.Random]:
    """A ledger whose writer stopped somewhere: each copy of its last entries arrived, or did not."""
    chance = random.Random(seed)
    world, writer, pen = it = scene(quorum, bookies)
    for number in range(chance.randrange(2)):
        world.add(writer, pen, b"first %d" % number)
        world.settle()
    for number in range(1 + chance.randrange(3)):
        world.add(writer, pen, b"entry %d" % number)
    for packet in list(world.packets(writer)):
        if chance.random() < 0.5:
            world.deliver(packet)
            if chance.random() < 0.7:
                world.nodes[packet.bookie_id].sync()
    return it, chance


def shuffle(it: Scene, chance: random.Random, clients: list[Client], steps: int = 3000) -> None:
    """Deliver, sync, answer and let time pass in any order until all have ended."""
    world = it.world
    for _ in range(steps):
        if all(client.has_ended or client.is_gone for client in clients):
            return
        choices: list[object] = [*world.wire, *world.catalog.waiting]
        choices += [
            node for node in world.nodes.values() if node.storage.durable() < node.core.next_token - 1
        ]
        if not choices or chance.random() < 0.01:
            due = [c for c in clients if not c.has_ended and not c.is_gone and c.core.deadline_ns is not None]
            if not due:
                return
            client = chance.choice(due)
            world.now_ns = max(world.now_ns, client.core.deadline_ns or 0)
            world.tick(client)
            continue
        choice = chance.choice(choices)
        if isinstance(choice, Packet):
            world.deliver(choice)
        elif hasattr(choice, "effect"):
            world.catalog.answer(choice)
        else:
            choice.sync()
    raise AssertionError("no end")


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(2, 2, 1), Quorum(4, 3, 2), Quorum(5, 2, 2)])
@pytest.mark.parametrize("recoverers", [2, 3])
def test_recoverers_converge(quorum: Quorum, recoverers: int) -> None:
    """P5.2, P5.3, I2: any number at once, all converging on the same last entry, in any order of events, while the
    writer's late adds still arrive. One of them may die on its way."""
    closed = 0
    for seed in range(40):
        it, chance = tail(seed, quorum, quorum.ensemble_size)
        clients = []
        for number in range(recoverers):
            clients.append(it.world.recovery(it.ledger_id, f"r{number}"))
            clients[-1].start()
        clients[0].is_gone = seed % 5 == 4
        shuffle(it, chance, clients)
        ends = [client.ended for client in clients if client.has_ended]
        results = {end.result[0].last_entry for end in ends if end.error is None}
        assert results <= {it.last_entry}, seed
        closed += bool(results)
        assert all(end.error is None or isinstance(end.error, RecoveryInconclusive) for end in ends)
        it.recover(name="last")
        it.world.check_end(it.ledger_id)
    assert closed > 30  # Else nothing was tested.


def test_recovery_takes_five_round_trips_however_long_the_tail_is() -> None:
    """T12: the LAC comes with the fence, the whole unconfirmed tail with one read of each bookie, its copies leave at
    once, and one write closes. Of the two to the metadata the first is P5.2a."""
    world, writer, pen = it = scene()
    for number in range(40):
        world.add(writer, pen, b"entry %d" % number)
    world.settle(
        hold=lambda packet: not packet.is_request
    )  # Stored everywhere; the writer hears nothing of it.
    writer.is_gone = True
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    trips = []
    while not recovery.has_ended:
        asked = world.packets(recovery, is_request=True)
        trips.append(sorted({type(packet.control).__name__ for packet in asked} or {"Transact"}))
        for operation in list(world.catalog.waiting):
            world.catalog.answer(operation)
        for packet in asked:
            world.deliver(packet)
        for node in world.nodes.values():
            node.sync()
        for packet in world.packets(recovery, is_request=False):
            world.deliver(packet)
        assert len(trips) < 10, trips
    assert trips == [["Transact"], ["FenceRequest"], ["ReadRequest"], ["AddRequest"], ["Transact"]]
    assert it.last_entry == 39


def test_recovery_asks_nothing_more_once_it_is_over() -> None:
    """A tick, the watch, a late answer: silence. The world checks it for every client at every step. And nothing was
    given before the end, which names the closed ledger (P6.5)."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    world.wire.clear()
    recovery = it.recover(hold=lambda p: p.bookie_id == "b3" and p.tag[0] == "add")
    assert recovery.ended.error is None
    assert recovery.core.deadline_ns is None
    world.settle()
    world.tell_bookies()
    assert world.wire == []
    assert world.catalog.waiting == []


def test_an_unanswered_third_copy_does_not_make_the_closing_recovery_spin() -> None:
    """Bounded work: the close is in flight, one write-back was never answered: no deadline in the past."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id, options=RecoveryOptions(write_timeout_ns=100 * MS))
    recovery.start()
    world.settle(hold=lambda p: isinstance(p.control, AddRequest) or p.client is writer)
    world.catalog.is_held = True
    world.settle(hold=lambda p: p.bookie_id == "b3" and isinstance(p.control, AddRequest))
    assert recovery.core.phase is Phase.CLOSING
    world.now_ns += 500 * MS
    world.tick(recovery)  # Asserts that the next deadline lies ahead.
    assert len([op for op in world.catalog.waiting if isinstance(op.effect, Transact)]) == 1


def test_what_recovery_remembers_of_negatives_is_bounded() -> None:
    """Cost: a striped tail gives a negative for every gap; those below the next entry are forgotten."""
    world, writer, pen = it = scene(Quorum(5, 2, 2), 5)
    for _ in range(40):
        world.add(writer, pen, *[b"x"] * 5)
    world.settle(hold=lambda packet: not packet.is_request)
    world.wire.clear()
    recovery = world.recovery(it.ledger_id, options=RecoveryOptions(read_entries=10))
    core = recovery.core
    assert isinstance(core, Recovery)
    recovery.start()
    worst = 0
    for _ in range(20_000):
        if recovery.has_ended:
            break
        if world.wire:
            world.deliver(world.wire[0])
        for node in world.nodes.values():
            node.sync()
        while world.catalog.waiting:
            world.catalog.answer(world.catalog.waiting[0])
        worst = max(worst, sum(map(len, core.absent.values())))
    assert it.last_entry == 199
    assert worst <= 60


def test_every_error_of_closing_says_whether_it_is_final() -> None:
    """P3.6: LedgerFenced, LedgerClosed say "unknown"; RecoveryInconclusive may be tried again."""
    wanted: dict[type[EmbedbkError], bool] = {
        LedgerFenced: False, LedgerClosed: False, RecoveryInconclusive: False, NoSuchLedger: True,
        WrongPassword: True,
    }  # fmt: skip
    assert {error: error("x").definite for error in wanted} == wanted


def advance(world: World, steps: int) -> None:
    """So many single steps of the world: a message, a metadata operation, or a sync."""
    for _ in range(steps):
        if world.wire:
            world.deliver(world.wire[0])
        elif world.catalog.waiting:
            world.catalog.answer(world.catalog.waiting[0])
        elif not any(node.sync() for node in world.nodes.values()):
            return


@pytest.mark.parametrize("quorum", [THREE, Quorum(5, 3, 2)])
@pytest.mark.parametrize("loses_bookie", [False, True])
def test_a_recovery_that_dies_after_any_step_leaves_what_the_next_one_finishes(
    quorum: Quorum, loses_bookie: bool
) -> None:
    """P5.2, P5.2d, RP23, RP25: also where it had replaced a bookie in fragments that nobody else ever sees. What it
    had sent still arrives; the next recovery finds every acknowledged entry."""
    for steps in range(1000):
        it = scene(quorum, quorum.ensemble_size + 1)
        for number in range(4):
            it.world.add(it.writer, it.pen, b"entry %d" % number)
            it.world.settle()
        for number in range(4, 7):  # On their first seat only, or not even there: acknowledged to nobody.
            it.world.add(it.writer, it.pen, b"entry %d" % number)
        for packet in it.world.packets(it.writer):
            if packet.bookie_id == "b2":
                it.world.deliver(packet)
            else:
                it.world.lose(packet)
        it.world.nodes["b2"].sync()
        it.writer.is_gone = True
        it.world.wire.clear()
        first = it.world.recovery(it.ledger_id, "first")
        first.start()
        advance(it.world, min(steps, 12))
        if loses_bookie:
            it.world.down.add("b3")
        advance(it.world, max(0, steps - 12))
        has_ended = first.has_ended
        first.is_gone = True
        it.world.settle()
        it.world.down.clear()
        assert it.recover(name="second").ended.error is None
        assert it.world.check_end(it.ledger_id).last_entry in range(3, 7)
        if has_ended:
            break
    assert 15 < steps < 999  # Else nothing was tested, or nothing ended.
