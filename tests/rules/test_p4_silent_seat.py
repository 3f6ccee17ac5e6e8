"""P4.5, RP33: below a bound in bytes nobody waits for a seat that is behind; at it who is silent is gone on without."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.config import Quorum
from embedbk.core.backlog import FRAME_PRICE, SECOND_LOOK_NS, SILENT_NS, Backlog
from embedbk.core.vocabulary import Tick
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from tests.rules.scenes import but
from tests.rules.world import MS, THREE, Client, Packet, Pen, World

FRAME = 1000 + FRAME_PRICE
BOUND_FRAMES = 10
LONGEST_NS = 300 * MS  # An append that waits at the bound.


class Scene:
    """Writers that keep ten frames for those behind, where nobody is late by P4.7."""

    def __init__(self, quorum: Quorum = THREE, bookies: int = 3, **options: Any) -> None:
        self.world = World(bookies)
        self.quorum = quorum
        self.options = WriterOptions(**{"behind_bytes_max": BOUND_FRAMES * FRAME, "late": None, **options})
        self.pens: dict[int, Pen] = {}
        self.writer = self.write()

    def write(self) -> Client:
        metadata, revision = self.world.create(self.quorum)
        writer = self.world.writer(metadata, revision, options=self.options)
        self.pens[id(writer)] = Pen(metadata.ledger_id)
        return writer

    @property
    def core(self) -> Writer:
        return core_of(self.writer)

    def add(self, *slow: str, writer: Client | None = None) -> None:
        """Acknowledged by those who are not slow."""
        writer = writer or self.writer
        assert core_of(writer).wants_frame(is_full=True), "it waits"
        self.world.add(writer, self.pens[id(writer)], bytes(1000))
        self.world.settle(hold=but(*slow))
        assert core_of(writer).lac == core_of(writer).lap

    def fill(self, *slow: str) -> None:
        while not self.core.in_flight.is_pressed():
            self.add(*slow)

    def run(self, duration_ns: int, *slow: str) -> None:
        end_ns = self.world.now_ns + duration_ns
        self.world.run(seconds=duration_ns / 1e9, hold=but(*slow))
        self.world.now_ns = end_ns

    def failed(self) -> list[str]:
        return [each.member.bookie_id for each in self.core.in_flight.seatings if each.failure is not None]


def core_of(client: Client) -> Writer:
    assert isinstance(client.core, Writer)
    return client.core


def test_below_the_bound_nobody_waits_and_nobody_is_to_blame() -> None:
    """P4.5, RP33: it counts bytes, a body and a price for each frame, so that many small ones are many."""
    it = Scene()
    for _ in range(BOUND_FRAMES):
        it.run(100 * MS, "b3")
        assert not it.failed()
        it.add("b3")
    assert it.core.in_flight.is_pressed() and not it.failed()
    assert it.core.in_flight.behind_bytes >= BOUND_FRAMES * FRAME


def test_at_the_bound_who_is_silent_counts_as_failed() -> None:
    """P4.5: nobody can take the seat; the writer goes on with two of three, 300 ms later at the latest, and keeps
    nothing for the third any more."""
    it = Scene()
    it.fill("b3")
    assert not it.core.wants_frame(is_full=True)
    it.run(SILENT_NS, "b3")
    assert not it.failed()
    it.run(SECOND_LOOK_NS, "b3")
    assert SILENT_NS + SECOND_LOOK_NS < LONGEST_NS
    assert it.failed() == ["b3"] and it.core.in_flight.behind_bytes == 0
    for _ in range(3 * BOUND_FRAMES):
        it.add("b3")
    assert it.writer.failure is None
    it.world.settle()


def test_who_was_silent_for_long_is_gone_on_without_soon_after_the_bound_is_reached() -> None:
    """P4.5: its silence began before, so the second look is all that is waited for."""
    it = Scene()
    for _ in range(BOUND_FRAMES - 1):
        it.add("b3")
    it.run(2 * SILENT_NS, "b3")
    it.fill("b3")
    it.run(MS, "b3")
    it.run(SECOND_LOOK_NS, "b3")
    assert it.failed() == ["b3"]
    it.world.settle()


def test_another_bookie_takes_the_seat_where_there_is_one() -> None:
    """P4.5, P4.1: it has failed as any other."""
    it = Scene(bookies=4)
    it.fill("b3")
    it.run(LONGEST_NS, "b3")
    assert [member.bookie_id for member in it.core.in_flight.members] == ["b1", "b2", "b4"]
    it.world.settle()


def test_who_answers_has_not_failed_and_holds_the_writer_back() -> None:
    """RP33: it gets on, however slowly; the copies of one handle do not run away from each other without bound."""
    it = Scene()
    it.fill("b3")
    for _ in range(BOUND_FRAMES):
        asked = it.world.packets(to="b3")[0]
        it.run(SILENT_NS - 50 * MS, "b3")
        assert not it.core.wants_frame(is_full=True)
        it.world.settle(hold=lambda packet, asked=asked: packet.bookie_id == "b3" and behind(packet, asked))  # type: ignore[misc]
        it.add("b3")
    assert not it.failed()
    it.world.settle()


def behind(packet: Packet, asked: Packet) -> bool:
    return packet.is_request and packet is not asked


def test_a_writer_that_stood_still_itself_blames_nobody() -> None:
    """P4.5, P4.7: the looks come late, and the answers that came meanwhile behind the first of them."""
    it = Scene()
    it.fill("b3")
    it.run(SILENT_NS - MS, "b3")
    for _ in range(3):
        it.world.now_ns += 1_000 * MS
        it.writer.step(Tick(it.world.now_ns))
    assert not it.failed()
    it.world.settle()
    assert it.core.wants_frame(is_full=True)


@pytest.mark.parametrize("slow", [("b2", "b3"), ("b1", "b2", "b3")])
def test_who_is_needed_is_waited_for(slow: tuple[str, ...]) -> None:
    """P4.5: with the others an ack quorum would be missing in some write set, so nobody else is gone on without."""
    it = Scene()
    it.fill("b3")
    it.core.in_flight.fail(it.core.in_flight.seatings[1].number, "for another reason")
    it.run(2_000 * MS, *slow)
    assert it.failed() == ["b2"] and not it.core.wants_frame(is_full=True)


def test_with_striping_each_write_set_keeps_its_ack_quorum() -> None:
    """P4.5, P1: of five seats with Qw 3 and Qa 2 one in each write set may go, and no two neighbours."""
    it = Scene(Quorum(5, 3, 2), bookies=5)
    while not it.core.in_flight.is_pressed():
        it.add("b1")
    for seating in it.core.in_flight.seatings[2:3]:
        it.core.in_flight.frames.excuse(seating.slot)
        it.core.in_flight.frames.owe(seating.slot, it.core.lac, it.world.now_ns)
    it.run(LONGEST_NS, "b1", "b3")
    assert it.failed() == ["b1"]


def test_what_all_handles_keep_is_bounded_too() -> None:
    """RP33, RP34: at the bound of the process who keeps nothing goes on, and for whom something is kept is judged."""
    it = Scene(behind_bytes_max=1 << 30)
    backlog = Backlog(BOUND_FRAMES * FRAME)
    other, third = it.write(), it.write()
    for each in (it.writer, other, third):
        core_of(each).in_flight.backlog = backlog
    it.add()
    it.add(writer=third)
    it.add("b3", writer=other)
    while not backlog.is_full:
        it.add("b3")
    assert not it.core.wants_frame(is_full=True) and not core_of(other).wants_frame(is_full=True)
    assert core_of(third).wants_frame(is_full=True)
    it.run(LONGEST_NS, "b3")
    judged = [each for each in (it.writer, other) if core_of(each).in_flight.has_failed]
    assert judged and not backlog.is_full
    it.add("b3")
    it.add("b3", writer=other)
    it.world.settle()


def test_what_a_handle_keeps_ends_with_it() -> None:
    """RP34: the count of the process is of those that live."""
    it = Scene()
    backlog = it.core.in_flight.backlog = Backlog(1 << 30)
    it.add("b3")
    assert backlog.kept_bytes == FRAME + len(it.core.in_flight.behind[0].frame.body) - 1000
    it.core.in_flight.let_go()
    assert backlog.kept_bytes == 0 and not it.core.in_flight.behind
