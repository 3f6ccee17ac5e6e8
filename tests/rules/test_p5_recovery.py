"""P5.2: recovery closes a ledger: marked first, its end written back, then one compare-and-set (P5.2a, d, e)."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest, FenceRequest
from embedbk.codec.frame import frame_of
from embedbk.codec.ledger_metadata import Fragment, LedgerState, ledger_key_path
from embedbk.codec.metadata_messages import Delete
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.config import Quorum
from embedbk.core.recovery import Phase
from embedbk.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    RecoveryInconclusive,
)
from tests.rules.scenes import Scene, but, everything, metadata_is, overwrite, scene
from tests.rules.world import Client, World

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


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 3), Quorum(3, 2, 2), Quorum(2, 2, 2)])
@pytest.mark.parametrize("is_writable", [True, False])
def test_a_recovery_goes_back_to_a_bookie_that_is_there_again(quorum: Quorum, is_writable: bool) -> None:
    """P5.2d, P4.5: nobody else can take the seat of b2, whose write-back failed. It is left alone for a second each
    time, and written to where it sits when it is back, also where it takes no normal adds then."""
    world, writer, pen = it = scene(quorum, quorum.ensemble_size)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    world.down.add("b2")
    world.run(seconds=3)
    assert not recovery.has_ended
    world.nodes["b2"].core.is_writable = is_writable
    world.down.clear()
    world.tell_bookies()
    world.run(until=lambda: recovery.has_ended, seconds=2)
    assert recovery.ended.error is None
    closed = world.check_end(it.ledger_id)
    assert closed.last_entry == 0
    assert len(closed.fragments) == 1


def test_a_recovery_goes_back_at_once_to_a_bookie_that_registers_anew() -> None:
    """P4.5: it is not left alone for what its process before did."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), 2)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    world.down.add("b2")
    world.settle()
    world.tell_bookies()
    world.down.clear()
    world.settle()
    assert not recovery.has_ended
    world.tell_bookies()
    world.settle()
    assert recovery.ended.error is None


def test_a_recovery_tries_who_is_listed_and_gone_once_a_second_and_gives_up_in_time() -> None:
    """P5.2d, L14: that a bookie is listed and no link reaches it is no progress."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), 2)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    tried: list[int] = []
    while not recovery.has_ended:
        for packet in world.packets(recovery, "b2", AddRequest):
            tried.append(world.now_ns)
            world.fail(packet)
        if not recovery.has_ended:
            world.now_ns = recovery.core.deadline_ns
            world.tick(recovery)
            world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert 9 <= len(tried) <= 11
    assert len(tried) == len(set(tried))


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


@pytest.mark.parametrize("closes", ["alone", "with a change of its own"])
def test_a_close_of_recovery_keeps_what_repair_did_to_earlier_fragments(closes: str) -> None:
    """P5.2e, P2.2: two fragments; while the close is on its way a repair seats b6 in the first one. The close that
    follows publishes the fragments that stand there, with its own last one behind them."""
    world, writer, pen = it = scene(bookies=6)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.run(until=lambda: writer.confirmed == 1)
    world.settle()
    before = world.catalog.metadata(it.ledger_id)[0].fragments
    assert [fragment.first_entry for fragment in before] == [0, 1]
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, AddRequest))
    if closes == "with a change of its own":
        world.fail(world.packet(recovery, before[1].members[0].bookie_id, AddRequest))
        assert recovery.core.fragments != before
    world.catalog.is_held = True
    world.settle()
    assert recovery.core.phase is Phase.CLOSING
    spare = world.nodes["b6" if "b6" not in [m.bookie_id for m in before[0].members] else "b5"].member
    kept = [member for member in before[0].members if member.bookie_id != "b3"]
    repaired = Fragment(0, 0, tuple(tuple(each) for each in (*kept, spare)))
    overwrite(world, it.ledger_id, fragments=(repaired, *before[1:]))
    world.catalog.is_held = False
    world.settle()
    assert recovery.ended.error is None
    closed = world.catalog.metadata(it.ledger_id)[0]
    assert closed.is_closed
    assert closed.fragments[0].ensemble == repaired.ensemble
    assert [fragment.first_entry for fragment in closed.fragments][:2] == [0, 1]
    assert recovery.ended.result[0].fragments == closed.fragments


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


def test_a_negative_of_the_first_round_counts_for_nothing_in_the_second() -> None:
    """P5.2c, P5.2e: b3's late "no" of round one must not stand for b4, which holds its seat in round two, has the entry
    and has not answered yet."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    add = world.packet(writer, "b3", AddRequest)
    world.wire.clear()
    writer.is_gone = True
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    world.settle(hold=lambda packet: isinstance(packet.control, ReadRequest | ReadAnswer))
    for packet in world.packets(recovery, kind=ReadRequest):
        world.deliver(packet)
    world.settle(hold=lambda packet: isinstance(packet.control, ReadAnswer))
    world.catalog.is_held = True
    world.settle(hold=but("b3"))
    (late,) = world.wire
    assert isinstance(late.control, ReadAnswer)
    assert recovery.core.phase is Phase.CLOSING
    fourth = world.nodes["b4"].member
    world.ask(
        "b4", AddRequest(fourth.incarnation, 1, 1, recovery=True), frame_of(add.frames[0][1], it.ledger_id)
    )
    world.nodes["b4"].sync()
    world.heard()
    metadata, _ = world.catalog.metadata(it.ledger_id)
    ensemble = (*metadata.fragments[0].ensemble[:2], tuple(fourth))
    overwrite_last_fragment(world, it.ledger_id, Fragment(0, 0, ensemble))
    world.catalog.is_held = False
    world.settle(
        hold=lambda packet: (
            packet is late or (isinstance(packet.control, ReadRequest) and packet.bookie_id != "b1")
        )
    )
    world.deliver(late)
    world.settle(hold=lambda packet: packet.bookie_id == "b2" and isinstance(packet.control, ReadRequest))
    assert it.last_entry == 0


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
