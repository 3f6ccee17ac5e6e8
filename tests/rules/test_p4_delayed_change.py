"""P4.6: failed bookies that are tolerated for a while, and the limit on changes."""

from __future__ import annotations

import pytest

from embedbk.config import Quorum
from embedbk.core.client_words import Confirmed, SeatLost, SendFailed
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import NotEnoughBookies
from tests.rules.scenes import Scene, but, delaying
from tests.rules.world import MS, THREE, Pen, World

# P4.6: delayed change, and the limit on changes.


def test_a_delayed_change_waits_until_a_write_set_is_short() -> None:
    """P4.6, RP09: one of three fails and is tolerated; with the second both are replaced at once."""
    world, writer, pen = it = delaying()
    world.down.add("b3")
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.confirmed == 0
    assert len(it.ensembles()) == 1
    assert writer.told == [Confirmed(0, 4)]
    world.down.add("b1")
    world.add(writer, pen, b"one")
    world.settle()
    assert len(it.ensembles()) == 2
    assert {"b4", "b5"} < set(it.ensembles()[-1][1])
    assert writer.confirmed == 1
    world.close(writer)
    world.settle()
    world.check_end(pen.ledger_id)


@pytest.mark.parametrize("reason", ["limbo", "read only", "incarnation"])
def test_who_says_that_it_stays_away_is_replaced_without_delay(reason: str) -> None:
    """P4.6, RP09: a read-only answer is no passing failure, nor is limbo or another disk."""
    world, writer, pen = it = delaying()
    node = world.nodes["b3"]
    if reason == "limbo":
        row = node.storage.table.create(pen.ledger_id)
        row.in_limbo = row.is_fenced = 1
    elif reason == "read only":
        node.core.is_writable = False
    else:
        node.lose_disk()
    world.add(writer, pen, b"zero")
    world.settle()
    assert "b3" not in it.ensembles()[-1][1]


@pytest.mark.parametrize("way", ["list", "link", "question", "read-only by the list"])
def test_another_disk_is_replaced_without_delay_by_whatever_way_it_is_heard_of(way: str) -> None:
    """P4.6: what failed first was the link, as always when a bookie goes: b3 is tolerated. Then the list shows it with
    another disk, or its link says so when it is dialled, or it says so itself when it is asked whether it is there."""
    world, writer, pen = it = delaying()
    world.down.add("b3")
    world.add(writer, pen, b"zero")
    world.settle()
    assert len(it.ensembles()) == 1
    if way == "read-only by the list":
        world.nodes["b3"].core.is_writable = False
    else:
        world.nodes["b3"].lose_disk()
    world.down.clear()
    if way == "list" or way == "read-only by the list":
        world.tell_bookies()
    elif way == "question":
        world.run(lambda: len(it.ensembles()) == 2, seconds=1)
    else:
        world.run(lambda: bool(world.packets(to="b3")), seconds=1, hold=lambda packet: True)
        question = world.packet(to="b3")
        world.wire.remove(question)
        writer.step(SendFailed(world.now_ns, question.tag, question.member, "wrong incarnation", True))
    world.settle()
    assert "b3" not in it.ensembles()[-1][1]
    assert world.now_ns <= 200 * MS
    world.disks_lost += 1
    world.close(writer)
    world.settle()
    world.check_end(pen.ledger_id)


@pytest.mark.parametrize("way", ["question", "answer", "list"])
def test_a_tolerated_bookie_that_turns_out_to_stay_away_is_replaced(way: str) -> None:
    """P4.1, P4.6: what failed first was the link, so b3 is tolerated. Then it says that it is in limbo, when it is
    asked or by an answer that comes late; or it is not registered for the grace, as when its machine is gone for
    good."""
    world, writer, pen = it = delaying()
    node = world.nodes["b3"]
    node.lose()
    node.enter_limbo()
    node.sync()
    world.add(writer, pen, b"zero")
    request = world.packet(to="b3")
    if way == "list":
        world.down.add("b3")
        world.tell_bookies()
    world.fail(request)
    if way == "answer":
        node.receive(request)
    world.settle(hold=but("b3"))
    assert it.core.in_flight.failed_seats == [2] and len(it.ensembles()) == 1
    if way == "question":
        world.run(lambda: len(it.ensembles()) == 2, seconds=1)
    elif way == "answer":
        world.settle()
    else:
        world.run(seconds=300)
        assert len(it.ensembles()) == 1
        writer.step(SeatLost(world.now_ns, node.member))
        world.settle()
    assert "b3" not in it.ensembles()[-1][1]
    assert it.core.changes.count == 1


def test_a_link_that_leads_to_another_disk_is_no_passing_failure() -> None:
    """P4.6: the link was cut, and what it finds when it is dialled for an add is another disk."""
    world, writer, pen = it = delaying()
    world.add(writer, pen, b"zero")
    packet = world.packet(to="b3")
    world.wire.remove(packet)
    writer.step(SendFailed(0, packet.tag, packet.member, "wrong incarnation: ...", True))
    world.settle()
    assert "b3" not in it.ensembles()[-1][1]


def test_a_tolerated_bookie_that_is_back_goes_on_where_it_sits() -> None:
    """P4.6: it is asked again after a while; what it missed it never gets, and its seat is its own."""
    world, writer, pen = it = delaying()
    world.down.add("b3")
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
        world.settle()
    world.down.clear()
    world.run(seconds=11)
    world.add(writer, pen, b"3")
    world.settle()
    assert len(it.ensembles()) == 1
    assert world.nodes["b3"].holds(pen.ledger_id) == [3]
    world.down.add("b1")  # And counts: with b2 it is the quorum of what comes.
    world.add(writer, pen, b"4")
    world.settle()
    assert writer.confirmed == 4
    world.close(writer)
    world.settle()
    world.check_end(pen.ledger_id)


def test_tolerance_is_judged_write_set_by_write_set() -> None:
    """P4.6 with P4.5: E5 Qw3 Qa2: b1 and b4 share one write set only, b1 and b2 two; two failed bookies are more than
    it bears wherever they sit together."""
    for failed, is_tolerated in ((["b1"], True), (["b1", "b2"], False), (["b1", "b4"], False)):
        world, writer, pen = it = delaying(Quorum(5, 3, 2), 8)
        world.down |= set(failed)
        for number in range(5):
            world.add(writer, pen, b"%d" % number)
        world.settle()
        assert (len(it.ensembles()) == 1 and it.ensembles()[0][1][0] == "b1") is is_tolerated, failed
        assert writer.confirmed == 4


def test_a_handle_changes_its_ensemble_only_so_often() -> None:
    """RP11: beyond the limit nobody is replaced: go on while every write set keeps Qa, then fail and say why."""
    world = World(9)
    metadata, revision = world.create(THREE)
    writer = world.writer(metadata, revision, options=WriterOptions(changes_max=2))
    _, _, pen = it = Scene(world, writer, Pen(metadata.ledger_id))
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
        world.down.add(it.core.in_flight.seatings[0].member.bookie_id)
        world.settle()
    assert it.core.changes.count == 2
    assert writer.confirmed == 2
    world.down.add(it.core.in_flight.seatings[1].member.bookie_id)
    world.add(writer, pen, b"one too many")
    world.run(seconds=6)  # Who sits may still come back (P4.5).
    assert isinstance(writer.failure, NotEnoughBookies)
    assert "changed its ensemble 2 times, which is its limit" in str(writer.failure)
    assert WriterOptions().changes_max == 100
