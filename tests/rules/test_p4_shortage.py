"""P4.1, P4.5: too few bookies, and one is there: who failed lately comes last instead of never, and why nobody came."""

from __future__ import annotations

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.lac_messages import LacAnswer, LacRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.config import Quorum
from embedbk.core import avoided
from embedbk.core.client_words import Answered, BookiesChanged, SeatLeaving
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import NotEnoughBookies
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import Scene, scene
from tests.rules.world import MS, THREE, Packet, Pen, World, member


def with_options(quorum: Quorum, bookies: int, options: WriterOptions) -> Scene:
    world = World(bookies)
    metadata, revision = world.create(quorum)
    return Scene(world, world.writer(metadata, revision, options=options), Pen(metadata.ledger_id))


def replaced_and_back(quorum: Quorum, bookies: int) -> Scene:
    """b1 was away for a moment, another has its seat, and both are up."""
    world, writer, pen = it = scene(quorum, bookies)
    world.down.add("b1")
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.clear()
    assert "b1" not in it.ensembles()[-1][1]
    return it


def is_question(packet: Packet) -> bool:
    return packet.is_request and isinstance(packet.control, LacRequest)


# Who comes last.


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 3), Quorum(2, 2, 2), Quorum(3, 2, 2)])
def test_a_bookie_that_failed_a_moment_ago_is_taken_when_nobody_else_is_left(quorum: Quorum) -> None:
    """P4.5: it is avoided for ten seconds, adds stand still for five: it comes last instead of never, and at once."""
    world, writer, pen = it = replaced_and_back(quorum, quorum.ensemble_size + 1)
    world.now_ns += 200 * MS
    gone = it.ensembles()[-1][1][1]
    world.down.add(gone)
    began_ns = world.now_ns
    world.add(writer, pen, b"one", b"two", b"three")
    world.run(lambda: writer.confirmed == 3, seconds=1)
    assert (writer.failure, writer.confirmed) == (None, 3)
    assert world.now_ns == began_ns  # Nothing but messages.
    assert "b1" in it.ensembles()[-1][1]
    world.close(writer)
    world.settle()
    world.check_end(pen.ledger_id)


def test_whoever_did_not_fail_is_taken_first() -> None:
    """P4.1, P4.5: b1 answers, and b5, which never failed, has the seat."""
    world, writer, pen = it = replaced_and_back(Quorum(3, 3, 3), 5)
    (fifth,) = {"b4", "b5"} - set(it.ensembles()[-1][1])
    world.down.add(fifth)
    world.tell_bookies()
    world.now_ns += 200 * MS
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.settle(hold=is_question)
    assert world.packet(to="b1", kind=LacRequest)
    world.down.remove(fifth)
    world.tell_bookies()
    world.settle(hold=is_question)
    assert writer.confirmed == 1
    assert set(it.ensembles()[-1][1]) == {"b3", "b4", "b5"}


def test_of_those_who_are_there_again_the_longest_ago_comes_first() -> None:
    """P4.5: b1 failed before b2; both answered while a change was in flight."""
    failures = avoided.note({}, "b2", 5, 1000)
    failures = avoided.note(failures, "b1", 3, 1000)
    assert avoided.in_turn(failures, 10) == []  # Nobody has answered.
    for name in ("b2", "b1", "b7"):
        failures = avoided.heard(failures, name)
    assert avoided.in_turn(failures, 10) == ["b1", "b2"]
    assert avoided.in_turn(failures, 1004) == ["b2"]  # Who is not avoided any more is like anybody else.
    assert avoided.in_turn(avoided.ask(failures, "b2", 10), 10) == [
        "b1"
    ]  # Asked again, it has to answer again.


def test_each_is_asked_after_200_ms_and_then_ever_later() -> None:
    """P4.5: 200 ms, doubled each time, as long as the adds wait; who fails again begins where it was."""
    world, writer, pen = scene(Quorum(2, 2, 2), 3)
    world.down |= {"b2", "b3"}
    world.add(writer, pen, b"zero")
    world.settle(hold=is_question)
    asked: list[float] = []
    while writer.failure is None:
        world.now_ns = writer.core.deadline_ns or 0
        world.tick(writer)
        world.settle(hold=is_question)
        asked += [world.now_ns / 1e9 for packet in world.packets(to="b3", kind=LacRequest)]
        for packet in world.packets(kind=LacRequest):
            world.deliver(packet)
    assert asked == [0.2, 0.6, 1.4, 3.0]
    failures = avoided.note({}, "b3", 0, 10_000 * MS)
    failures = avoided.note(failures, "b3", 300 * MS, 10_000 * MS)
    assert failures["b3"].ask_ns == 700 * MS
    failures = avoided.note(failures, "b3", 10_300 * MS, 10_000 * MS)
    assert failures["b3"].ask_ns == 10_500 * MS  # It held for as long as it was avoided.


def test_bookies_that_crashed_and_are_listed_cost_a_handle_no_changes() -> None:
    """P4.5, RP11: they stay in the list until their sessions end. Each is tried once; then it has to answer first."""
    world, writer, pen = it = scene(bookies=8)
    alive = it.ensembles()[0][1][0]
    world.down |= {name for name in world.nodes if name != alive}
    world.add(writer, pen, b"zero")
    world.run(seconds=4.9)
    assert writer.failure is None
    assert it.core.changes.count <= 7
    world.down.discard("b8")
    world.run(lambda: writer.confirmed == 0, seconds=10)
    assert isinstance(writer.failure, NotEnoughBookies)  # It is asked next at 6.2 s; the handle has 5.


def test_who_comes_back_is_asked_at_once() -> None:
    """P4.5: a bookie that registers anew is not left alone for as long as its process before was."""
    world, writer, pen = scene(bookies=5)
    world.down |= {"b2", "b3", "b4", "b5"}
    world.add(writer, pen, b"zero")
    world.settle()
    world.tell_bookies()
    world.run(seconds=4.7)
    assert (writer.failure, writer.confirmed) == (None, NO_ENTRY)
    world.down.discard("b5")
    world.tell_bookies()
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 0)


def test_a_bookie_that_says_nothing_is_not_taken() -> None:
    """P4.5: b1 is stopped: its link stands, and it answers nothing. When it goes on within the time, it is taken."""
    world, writer, pen = it = replaced_and_back(Quorum(3, 3, 3), 4)
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.run(seconds=3, hold=is_question)
    assert it.core.changes.count == 1
    assert writer.failure is None
    world.settle()
    assert (writer.confirmed, it.core.changes.count) == (1, 2)


def test_an_answer_that_cannot_tell_is_none() -> None:
    """P4.5, P7.1: b1 answers, and says that it can say nothing: it may be starting, or stopping. That is not being
    there."""
    world, writer, pen = it = replaced_and_back(Quorum(3, 3, 3), 4)
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.run(lambda: bool(world.packets(to="b1")), seconds=1, hold=is_question)
    question = world.packet(to="b1", kind=LacRequest)
    for status in (Status.UNKNOWN, Status.IN_LIMBO, Status.BUSY):
        answer = LacAnswer(status, pen.ledger_id)
        writer.step(Answered(world.now_ns, question.tag, question.member, answer))
        writer.step(Answered(world.now_ns, question.tag, question.member, ErrorAnswer("not now")))
        assert not world.catalog.waiting
    world.settle()
    assert (writer.confirmed, it.core.changes.count) == (1, 2)


def test_who_is_avoided_is_not_taken_where_the_others_are_enough() -> None:
    """P4.1, P4.5: b1 failed a moment ago, was asked in a shortage and answered. That is over: it is left alone for its
    ten seconds, as the ledger goes on without the third copy."""
    world, writer, pen = it = replaced_and_back(THREE, 4)
    it.core.ensemble.candidates.note_answer("b1")
    gone = it.ensembles()[-1][1][1]
    world.down.add(gone)
    world.add(writer, pen, b"one")
    world.run(seconds=9)
    assert (writer.confirmed, it.core.changes.count) == (1, 1)
    world.run(seconds=2)
    assert "b1" in it.ensembles()[-1][1]


def test_an_add_that_is_acknowledged_in_a_shortage_takes_nobody_s_chance() -> None:
    """P4.5: E3 Qw2 Qa2: entry 0 is on its way to b1 and b2 when b3 fails, and is acknowledged afterwards. b3 is taken
    back all the same when it answers."""
    world, writer, pen = it = scene(Quorum(3, 2, 2), 3)
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: True)
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle(hold=lambda packet: packet.bookie_id != "b3")
    assert it.core.stall.is_short
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 0)
    world.run(seconds=2)
    world.down.clear()
    world.run(lambda: writer.confirmed == 1, seconds=10)
    assert (writer.failure, writer.confirmed) == (None, 1)
    assert len(it.ensembles()) == 1


@pytest.mark.parametrize("avoid_ms", [50, 10_000])
@pytest.mark.parametrize("delays_change", [False, True])
def test_a_bookie_with_a_new_disk_has_its_own_seat_when_nobody_else_is_left(
    avoid_ms: int, delays_change: bool
) -> None:
    """P4.1, P4.5, L2: two bookies and two copies: in its new incarnation b2 comes last instead of never. No add waits
    for ever, however short the times are."""
    options = WriterOptions(avoid_ns=avoid_ms * MS, delays_change=delays_change)
    world, writer, pen = it = with_options(Quorum(2, 2, 2), 2, options)
    world.add(writer, pen, b"zero")
    world.settle()
    world.nodes["b2"].lose_disk()
    world.disks_lost += 1
    world.tell_bookies()
    world.add(writer, pen, b"one")
    world.run(lambda: writer.confirmed == 1 or writer.failure is not None, seconds=60)
    assert (writer.failure, writer.confirmed) == (None, 1)
    assert world.now_ns <= 300 * MS
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert metadata.fragments[-1].members == (member("b1"), member("b2", disk=1))
    assert it.core.changes.count == 1


@pytest.mark.parametrize("delays_change", [False, True])
@pytest.mark.parametrize("avoid_ms", [0, 50, 10_000])
def test_a_shortage_that_nobody_ends_ends_by_itself(avoid_ms: int, delays_change: bool) -> None:
    """L2: b2 is listed, answers questions and refuses each add: in time the handle fails, whatever the times are."""
    options = WriterOptions(avoid_ns=avoid_ms * MS, delays_change=delays_change)
    world, writer, pen = with_options(Quorum(2, 2, 2), 2, options)
    world.nodes["b2"].storage.fail_next_sync("gone")
    world.add(writer, pen, b"zero")
    world.run(lambda: writer.failure is not None, seconds=60)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert world.now_ns <= 6_000 * MS


def test_at_the_limit_of_changes_who_sits_may_still_come_back() -> None:
    """P4.5, RP11: what a handle may change no more it may go on with: it waits for its own bookie as long as any."""
    world, writer, pen = it = with_options(Quorum(2, 2, 2), 4, WriterOptions(changes_max=0))
    second = it.ensembles()[0][1][1]
    world.down.add(second)
    world.add(writer, pen, b"zero")
    world.run(seconds=2)
    assert writer.failure is None
    world.down.clear()
    world.run(lambda: writer.confirmed == 0, seconds=2)
    assert (writer.failure, writer.confirmed) == (None, 0)
    assert len(it.ensembles()) == 1


# How long, and what is said.


@pytest.mark.parametrize("wait_s", [1, 40])
def test_how_long_a_writer_goes_on_without_its_quorum_is_a_setting(wait_s: int) -> None:
    """P4.5: not the time limit of an add, which says when a silent bookie has failed."""
    options = WriterOptions(quorum_wait_ns=wait_s * 1000 * MS)
    world, writer, pen = with_options(THREE, 3, options)
    world.down |= {"b2", "b3"}
    world.add(writer, pen, b"zero")
    world.run(seconds=wait_s - 0.1)
    assert writer.failure is None
    world.run(seconds=0.2)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert not writer.failure.definite
    assert "Settings.quorum_wait_s" in str(writer.failure)


def test_the_error_says_why_each_bookie_cannot_take_part() -> None:
    """P4.5: those that sit and have failed, and those that could have had a seat."""
    world, writer, pen = scene(bookies=6)
    for name in ("b5", "b6"):
        world.nodes[name].core.is_writable = False
    world.down |= {"b4"}
    world.tell_bookies()
    world.down |= {"b2", "b3"}
    world.add(writer, pen, b"zero")
    world.settle()
    world.nodes["b3"].lose_disk()  # It is registered so, and nobody answers there.
    world.down.discard("b3")
    world.tell_bookies()
    world.nodes["b3"].is_up = False
    world.run(seconds=20)
    told = str(writer.failure)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert "b2: no link, not registered" in told
    assert "b3: no link, registered with another disk" in told
    assert "b5: read-only; b6: read-only" in told
    assert "b4" not in told  # Nobody knows it.


def test_the_error_tells_who_failed_and_was_silent_from_who_answered() -> None:
    """P4.5: b4 took the seat of b3 and is silent since; b5 answers questions and stores nothing."""
    world, writer, pen = scene(bookies=5)
    world.nodes["b5"].storage.fail_next_sync("gone")
    world.down |= {"b2", "b3", "b4"}
    world.add(writer, pen, b"zero")
    world.run(seconds=20)
    assert isinstance(writer.failure, NotEnoughBookies)
    told = str(writer.failure)
    for name in ("b2", "b3", "b4"):
        assert f"{name}: no link" in told or f"{name}: failed" in told
        assert f"{name}: failed" not in told or "gave no answer since" in told
    assert "b5: UNKNOWN" in told or "b5: failed" in told


def test_an_error_of_very_many_bookies_is_bounded() -> None:
    """P4.5: it names twenty and counts the rest."""
    world, writer, pen = scene(bookies=40)
    for name in list(world.nodes)[3:]:
        world.nodes[name].core.is_writable = False
    world.tell_bookies()
    world.down |= {"b2", "b3"}
    world.add(writer, pen, b"zero")
    world.run(seconds=6)
    assert str(writer.failure).count("read-only") == 18
    assert "and 19 more" in str(writer.failure)


@pytest.mark.parametrize("is_published", [True, False])
def test_a_shortage_ends_also_by_the_change_that_a_drained_bookie_causes(is_published: bool) -> None:
    """P4.5, P11.3: b2 failed, and metadata refused to replace it, for a moment. b1 is drained then, and one change
    gives both seats away. Adds wait no longer than that, and do not count as waiting for ever either."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), bookies=4)
    world.catalog.refuses = "full"
    world.down.add("b2")
    world.tell_bookies()
    world.add(writer, pen, b"zero")
    world.settle()
    assert it.core.stall.is_short
    world.catalog.refuses = ""
    drained = world.nodes["b1"].member
    listed = [
        info._replace(is_writable=False, is_leaving=True) if info.member == drained else info
        for info in world.bookies
    ]
    writer.step(BookiesChanged(world.now_ns, tuple(listed)))
    world.catalog.is_held = not is_published
    writer.step(SeatLeaving(world.now_ns, drained))
    world.run(seconds=6)
    if is_published:
        assert set(it.ensembles()[-1][1]) == {"b3", "b4"}
        assert (writer.failure, writer.confirmed) == (None, 0)
        assert it.core.is_common and not it.core.stall.is_short
    else:
        assert isinstance(writer.failure, NotEnoughBookies)
        assert world.now_ns == 5_000 * MS
