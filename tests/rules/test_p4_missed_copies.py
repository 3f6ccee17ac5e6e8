"""P4.5: who was away while entries were acknowledged lacks them; the handle says so, and its log rolls (P8.7)."""

from __future__ import annotations

import pytest

from embedbk.config import Quorum
from embedbk.core.client_words import BookiesChanged, CopiesMissed, SeatLeaving
from tests.rules.scenes import delaying, everything, scene
from tests.rules.world import Packet


def test_a_bookie_that_comes_back_after_entries_were_acknowledged_missed_them() -> None:
    """P4.5: the writer never sends it what it missed and what is done without it."""
    world, writer, pen = delaying()
    world.down.add("b3")
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.confirmed == 0
    world.down.clear()
    assert CopiesMissed() not in writer.told  # It may yet be replaced.
    world.run(seconds=11)
    assert writer.told.count(CopiesMissed()) == 1
    world.add(writer, pen, b"one")
    world.settle()
    assert world.nodes["b3"].holds(pen.ledger_id) == [1]
    assert writer.told.count(CopiesMissed()) == 1


def test_who_was_away_while_nothing_was_acknowledged_missed_nothing() -> None:
    """P4.5: what is outstanding it is sent again."""
    world, writer, pen = scene(Quorum(3, 3, 3))
    world.add(writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    world.run(seconds=2)
    assert writer.confirmed == 0
    assert world.nodes["b3"].holds(pen.ledger_id) == [0]
    assert CopiesMissed() not in writer.told


def test_what_was_on_its_way_when_it_failed_counts_too() -> None:
    """P4.5: e0 was acknowledged by b1 and b2; that b3 has not got it, its failure shows, and nothing is acknowledged
    behind it."""
    world, writer, pen = delaying()
    world.add(writer, pen, b"zero")

    def to_b3(packet: Packet) -> bool:
        return packet.bookie_id == "b3"

    world.settle(hold=to_b3)
    assert writer.confirmed == 0
    world.fail(world.packet(to="b3"))
    world.settle()
    world.run(seconds=11)
    assert writer.told.count(CopiesMissed()) == 1


def test_a_bookie_that_is_replaced_lacks_what_was_acknowledged_in_its_fragment() -> None:
    """P4.5, P4.4: the one that takes its seat has what follows; nobody has a third copy of what came before."""
    for misses in (True, False):
        world, writer, pen = it = scene(bookies=4)
        world.add(writer, pen, b"zero")
        if misses:
            world.settle(hold=lambda packet: packet.bookie_id == "b3")
        else:
            world.settle()
            world.add(writer, pen, b"one")
        world.fail(world.packet(to="b3"))
        world.settle(hold=everything)
        assert "b4" in it.ensembles()[-1][1]
        world.settle()
        assert (CopiesMissed() in writer.told) is misses


def test_an_entry_that_is_acknowledged_while_a_change_is_in_flight_lacks_the_copy_of_the_new_seat() -> None:
    """P4.2, P4.5: e1 has its quorum in both ensembles; who takes the seat is sent what is outstanding by then."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b3"))
    world.settle()
    assert writer.confirmed == 1
    world.catalog.is_held = False
    world.settle()
    assert it.ensembles()[-1] == (1, ["b1", "b2", "b4"])
    assert not world.nodes["b4"].holds(pen.ledger_id)
    assert CopiesMissed() in writer.told


@pytest.mark.parametrize("is_meanwhile", [True, False])
def test_who_takes_the_seat_of_a_drained_bookie_lacks_what_was_acknowledged_meanwhile(
    is_meanwhile: bool,
) -> None:
    """P4.2, P4.5, P11.3: b3 is drained, which is no failure: it holds all, and lacks nothing. But e1 is its copy of a
    seat that is b4's by then, and b3 is taken away with it."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    drained = world.nodes["b3"].member
    listed = [
        info._replace(is_writable=False, is_leaving=True) if info.member == drained else info
        for info in world.bookies
    ]
    writer.step(BookiesChanged(world.now_ns, tuple(listed)))
    world.catalog.is_held = True
    writer.step(SeatLeaving(world.now_ns, drained))
    if is_meanwhile:
        world.add(writer, pen, b"one")
        world.settle()
        assert writer.confirmed == 1
    world.catalog.is_held = False
    world.settle()
    assert it.ensembles()[-1] == (1, ["b1", "b2", "b4"])
    assert not world.nodes["b4"].holds(pen.ledger_id)
    assert (CopiesMissed() in writer.told) is is_meanwhile
