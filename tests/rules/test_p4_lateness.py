"""P4.7: who is late against the others is replaced before the time limit; where most are late, nobody is to blame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.config import Quorum
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, EnsembleChanged
from embedbk.core.lateness import HALF_LIFE_NS, AnswerTimes, LateTerms
from embedbk.core.vocabulary import Tick
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from tests.rules.scenes import but
from tests.rules.world import MS, THREE, Client, Pen, World

SECOND = 1_000 * MS
USUAL_NS = 2 * MS  # What an answer takes where nothing is the matter.
LATE_NS = 50 * MS  # Hence what is late: eight times that is less than the least.


class Scene:
    """A writer that knows how long answers take."""

    def __init__(self, quorum: Quorum = THREE, bookies: int = 4, **options: Any) -> None:
        self.world = World(bookies)
        metadata, revision = self.world.create(quorum)
        self.writer: Client = self.world.writer(metadata, revision, options=WriterOptions(**options))
        self.pen = Pen(metadata.ledger_id)
        for _ in range(100):
            self.add()
            self.pass_time(USUAL_NS)
            self.world.settle()

    @property
    def core(self) -> Writer:
        assert isinstance(self.writer.core, Writer)
        return self.writer.core

    def add(self) -> None:
        self.world.add(self.writer, self.pen, b"payload")

    def pass_time(self, duration_ns: int) -> None:
        self.world.now_ns += duration_ns

    def run(self, duration_ns: int, slow: Iterable[str] = ()) -> None:
        """These bookies are given nothing and say nothing meanwhile."""
        end_ns = self.world.now_ns + duration_ns
        self.world.run(seconds=duration_ns / 1e9, hold=but(*slow))
        self.world.now_ns = end_ns

    @property
    def changes(self) -> list[EnsembleChanged]:
        return [told for told in self.writer.told if isinstance(told, EnsembleChanged)]

    @property
    def seated(self) -> list[str]:
        return [member.bookie_id for member in self.core.in_flight.members]


def test_who_is_late_against_the_others_is_replaced_long_before_the_time_limit() -> None:
    """Rule P4.7: the others have answered the same add; two looks later the seat is another's, who gets what was
    outstanding. Without an append in between: the writer looks by itself."""
    it = Scene()
    it.add()
    it.run(LATE_NS, slow=["b3"])
    assert it.writer.confirmed == 100 and not it.changes
    it.run(LATE_NS, slow=["b3"])
    assert it.seated == ["b1", "b2", "b4"] and len(it.changes) == 1
    assert it.writer.failure is None
    it.world.settle()


def test_an_ack_quorum_of_all_stands_still_no_longer_than_that() -> None:
    """Rule P4.7, P4.4: with Qa 3 the add waits for the late one; it is done when its successor has it."""
    it = Scene(Quorum(3, 3, 3))
    it.add()
    it.run(2 * LATE_NS, slow=["b3"])
    assert it.seated == ["b1", "b2", "b4"]
    assert it.writer.confirmed == 100
    assert it.world.nodes["b4"].holds(it.pen.ledger_id) == [100]
    it.world.settle()


@pytest.mark.parametrize("slow", [["b2", "b3"], ["b1", "b2", "b3"]])
def test_where_most_are_late_alike_nobody_is_to_blame(slow: list[str]) -> None:
    """Rule P4.7: a disk, a network or a machine that all share is slow: no change follows from that, however long it
    lasts, until the time limit is over (P4.1)."""
    it = Scene(bookies=6)
    it.add()
    it.run(4_900 * MS, slow=slow)
    assert not it.changes
    it.world.settle()
    assert it.writer.confirmed == 100
    it.run(5 * SECOND)
    assert not it.changes and it.seated == ["b1", "b2", "b3"]


def test_what_is_sent_while_the_change_is_in_flight_is_owed_by_those_who_stay() -> None:
    """Rule P4.7, P4.4, L2: the late one answers after all, so that nothing is on its way while the metadata takes its
    time. The next add is sent to all three, and who keeps a seat is heard for it (seed 3100366: it never ended)."""
    it = Scene(Quorum(3, 3, 2))
    it.add()
    it.world.catalog.is_held = True
    it.run(2 * LATE_NS, slow=["b3"])
    assert len(it.world.catalog.waiting) == 1
    it.world.settle()
    assert it.core.in_flight.is_at_rest
    it.add()
    it.world.catalog.is_held = False
    it.world.settle(hold=but("b1", "b2", "b3"))
    assert it.seated == ["b1", "b2", "b4"]
    it.world.settle()
    assert it.writer.confirmed == 101


def test_of_those_that_were_late_alike_the_last_is_blamed_in_the_end() -> None:
    """Rule P4.7: who is still silent when the others have answered is late against them."""
    it = Scene()
    it.add()
    it.run(300 * MS, slow=["b2", "b3"])
    assert not it.changes
    it.run(600 * MS, slow=["b3"])
    assert it.seated == ["b1", "b2", "b4"]
    it.world.settle()


def test_the_time_limit_stays_the_last_word() -> None:
    """P4.1, P4.7: where the others do not tell, an unanswered add makes its bookie a failed one as ever."""
    it = Scene(bookies=6, add_timeout_ns=2 * SECOND)
    it.add()
    it.run(3 * SECOND, slow=["b2", "b3"])
    assert not {"b2", "b3"} & set(it.seated)
    it.world.settle()
    assert it.writer.confirmed == 100


def test_late_by_one_seat_of_a_stripe_is_told_by_later_adds_to_the_others() -> None:
    """Rule P4.7: striped, each seat gets other entries; who has answered what was sent later is quicker."""
    it = Scene(Quorum(5, 3, 2), bookies=6)
    for _ in range(5):
        it.add()
        it.pass_time(MS)
    it.run(3 * LATE_NS, slow=["b4"])
    assert it.seated == ["b1", "b2", "b3", "b6", "b5"]
    it.world.settle()


def test_nobody_is_replaced_where_nobody_can_take_the_seat() -> None:
    """Rule P4.7: being late is no failure: without another bookie the seat goes on to be sent to, and has everything
    in the end. With one that joins later it is replaced."""
    it = Scene(bookies=3)
    it.add()
    it.run(400 * MS, slow=["b3"])
    it.add()
    it.world.settle()
    assert not it.changes and not it.core.in_flight.has_failed
    assert it.world.nodes["b3"].holds(it.pen.ledger_id)[-1] == 101
    it.add()
    it.run(2 * SECOND, slow=["b3"])
    it.world.nodes["b4"] = type(it.world.nodes["b3"])(it.world, "b4")
    it.world.tell_bookies()
    it.run(SECOND, slow=["b3"])
    assert it.seated == ["b1", "b2", "b4"]
    it.world.settle()


def test_a_bookie_that_fails_often_takes_no_late_seat() -> None:
    """Rule P4.7, RP45: out of the rain into the gutter."""
    it = Scene()
    member = it.world.nodes["b4"].member
    others = [info for info in it.world.bookies if info.member != member]
    quarantined = BookieInfo(member, True, "", 0, True)
    it.writer.step(BookiesChanged(it.world.now_ns, (*others, quarantined)))
    it.add()
    it.run(400 * MS, slow=["b3"])
    assert not it.changes
    it.world.settle()


def test_a_late_answer_counts_until_the_change_is_settled() -> None:
    """Rule P4.7, P4.2: who is late has not failed: with Qa 3 and the metadata store silent, its answer still confirms
    in the published ensemble, and the proposed one is asked, too."""
    it = Scene(Quorum(3, 3, 3))
    it.world.catalog.is_held = True
    it.add()
    it.run(2 * LATE_NS, slow=["b3"])
    assert len(it.world.catalog.waiting) == 1 and it.writer.confirmed == 99
    it.world.settle()
    assert not it.core.in_flight.has_failed
    assert all(pending.acked & 0b111 == 0b111 for pending in it.core.in_flight.pending.values())
    it.world.catalog.is_held = False
    it.world.settle()
    assert it.writer.confirmed == 100 and it.seated == ["b1", "b2", "b4"]


def test_a_writer_that_stood_still_itself_blames_nobody() -> None:
    """Rule P4.7: it hears of the time before it hears of the answers that came meanwhile; it looks twice."""
    it = Scene()
    it.add()
    for packet in it.world.packets():
        if packet.bookie_id != "b3":
            it.world.deliver(packet)
    it.world.settle(hold=but("b3"))
    for _ in range(3):  # Again and again: a look counts only where it comes in time.
        it.pass_time(1 * SECOND)
        it.writer.step(Tick(it.world.now_ns))
        assert not it.world.catalog.waiting
    it.world.settle()
    it.run(5 * SECOND)
    assert not it.changes


def test_who_says_busy_is_not_late() -> None:
    """Rule P4.7, P7.8: a bookie that is overloaded lives, and answers so."""
    it = Scene()
    it.add()
    it.world.settle(hold=but("b3"))
    asked = it.world.packet(to="b3")
    it.world.lose(asked)
    said = asked.control
    busy = AddAnswer(Status.BUSY, said.nonce, said.seating, False, it.pen.ledger_id, 100, 100)  # type: ignore[union-attr]
    it.writer.step(Answered(it.world.now_ns, asked.tag, asked.member, busy))
    for _ in range(100):  # Each time that it is asked again it says so again.
        it.run(30 * MS, slow=["b3"])
        for packet in it.world.packets(to="b3"):
            it.world.lose(packet)
            it.writer.step(Answered(it.world.now_ns, packet.tag, packet.member, busy))
    assert not it.changes
    it.run(SECOND)
    assert it.world.nodes["b3"].holds(it.pen.ledger_id)[-1] == 100


def test_changes_by_lateness_make_no_storm() -> None:
    """Rule P4.7: after a change there is a pause, each makes the next one need more, who was late is not chosen again
    for a while, and half of the changes that a handle may make are left for failures."""
    it = Scene(bookies=12, avoid_ns=1, changes_max=10, add_timeout_ns=100 * SECOND)
    moments = []
    for _ in range(150):
        it.add()
        late = it.seated[2]
        it.world.settle(hold=but(late))
        before = len(it.changes)
        it.run(100 * MS, slow=[late])
        if len(it.changes) > before:
            moments.append(it.world.now_ns)
    assert len(moments) == 5
    assert all(later - sooner >= SECOND for sooner, later in zip(moments, moments[1:], strict=False))
    it.world.settle()


def test_a_handle_that_tolerates_failures_tolerates_lateness() -> None:
    """P4.6, P4.7: nobody is replaced before a write set is short of Qa."""
    it = Scene(delays_change=True)
    it.add()
    it.run(2 * SECOND, slow=["b3"])
    assert not it.changes
    it.world.settle()


def test_nobody_is_late_before_it_is_known_what_is_usual() -> None:
    """Rule P4.7: a handle's first answers only tell how long answers take."""
    world = World(4)
    metadata, revision = world.create()
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    for _ in range(32):
        world.add(writer, pen, b"payload")
        world.settle()
    world.add(writer, pen, b"payload")
    world.run(seconds=4.9, hold=but("b3"))
    assert len(world.catalog.metadata(pen.ledger_id)[0].fragments) == 1
    world.settle()


# --- What is late ----------------------------------------------------------------------------------------


def times(answers: Iterable[tuple[int, int]], every_ns: int = MS) -> AnswerTimes:
    """So many answers that took so long each, one after the other."""
    found, now_ns = AnswerTimes(LateTerms()), 0
    for count, took_ns in answers:
        for _ in range(count):
            now_ns += every_ns
            found.note(took_ns, now_ns)
    return found


def test_what_is_late_follows_what_answers_take() -> None:
    """Eight times what 99 of 100 stay below, and never less than the least."""
    assert times([(99, MS)]).late_ns is None
    assert times([(100, MS)]).late_ns == 50 * MS
    assert times([(5_000, 20 * MS)]).late_ns == 160 * MS
    mixed = [pair for _ in range(100) for pair in ((97, MS), (3, 30 * MS))]
    assert 200 * MS <= (times(mixed).late_ns or 0) <= 240 * MS
    few = [pair for _ in range(100) for pair in ((499, MS), (1, 30 * MS))]
    assert (times(few).late_ns or 0) <= 80 * MS


def test_what_was_answered_lately_is_not_late_now() -> None:
    """Rule P4.7: a flush that made one answer long is not forgotten with the next thousand, but by halves, in time."""
    after = times([(1_000, MS), (1, 400 * MS), (2_000, MS)])
    assert after.late_ns == 800 * MS
    later = times([(1_000, MS), (1, 400 * MS), (2_000, MS)], every_ns=HALF_LIFE_NS // 1_000)
    assert later.late_ns == 200 * MS
