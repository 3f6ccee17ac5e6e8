"""P4.5: nobody to seat, or no metadata. Who goes on, who waits for a bookie and for how long."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Put
from embedbk.config import Quorum
from embedbk.core.client_words import SeatLost
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import LedgerClosed, LedgerFenced, NoSuchLedger, NotEnoughBookies
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import Scene, scene
from tests.rules.world import MS, THREE, Pen, World

# P4.5: nobody to replace, no metadata.


def test_without_a_replacement_the_writer_goes_on_while_every_write_set_keeps_qa() -> None:
    """P4.5: three bookies, one gone: go on; two gone: nobody comes within the add time limit, so NotEnoughBookies, and
    nothing acknowledged is taken back. That the list still shows who is gone, so that it is tried again and again, does
    not prolong the wait."""
    world, writer, pen = it = scene(bookies=3)
    world.down.add("b3")
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.confirmed == 0
    assert it.core.deadline_ns is not None  # Replacement is tried again.
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.settle()
    assert writer.failure is None
    world.run(seconds=4.9)
    assert writer.failure is None
    world.run(seconds=0.2)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert not writer.failure.definite
    assert "b2: no link" in str(writer.failure)
    assert writer.confirmed == 0
    world.down.clear()
    world.close(writer)
    world.settle()
    assert world.check_end(pen.ledger_id).last_entry == 0


@pytest.mark.parametrize("takes", ["its seat again", "a seat that another one lost"])
def test_who_has_a_seat_behind_the_publication_is_told_the_lac(takes: str) -> None:
    """P6.2: "and again once a bookie has a seat that had none, or goes on in one from which it had failed": the writer
    idles, and nobody would learn its last entries there before the next one (L18, seed 70667957)."""
    is_other = takes == "a seat that another one lost"
    world, writer, pen = it = scene(bookies=4 if is_other else 3)
    if not is_other:
        world.down.add("b3")
    world.add(writer, pen, b"zero")
    world.run(seconds=1)
    assert (writer.confirmed, it.core.owes_lac) == (0, False)

    def known(name: str) -> int:
        row = world.nodes[name].storage.table.get(pen.ledger_id)
        return NO_ENTRY if row is None else row.lac

    assert (known("b1"), known("b2")) == (0, 0)
    name = "b4" if is_other else "b3"
    if is_other:
        world.down.add("b3")
    else:
        world.down.clear()
    world.tell_bookies()
    if is_other:
        lost = SeatLost(world.now_ns, it.core.in_flight.seatings[2].member)
        world.perform(writer, writer.core.step(lost))
    world.run(seconds=15)
    assert name in it.ensembles()[-1][1]
    assert known(name) == 0
    assert it.core.deadline_ns is None, "once"


def test_usability_is_judged_write_set_by_write_set() -> None:
    """P4.5: E4 Qw2 Qa2: one failed bookie leaves two write sets with one member; three usable of four mean nothing."""
    world, writer, pen = scene(Quorum(4, 2, 2), 4)
    world.down.add("b2")
    world.add(writer, pen, b"0", b"1", b"2", b"3")
    world.run(seconds=6)
    assert isinstance(writer.failure, NotEnoughBookies)


def test_adds_that_are_short_of_bookies_wait_for_one_that_comes() -> None:
    """P4.5: two of three are gone and nobody else is there. A bookie that registers within the add time limit takes a
    seat, and what waited is acknowledged; the next shortage has its whole time again."""
    world, writer, pen = it = scene(bookies=5)
    world.down |= {"b4", "b5"}
    world.tell_bookies()
    world.add(writer, pen, b"zero")
    world.settle()
    world.down |= {"b2", "b3"}
    world.tell_bookies()
    world.add(writer, pen, b"one")
    world.run(seconds=4)
    assert (writer.failure, writer.confirmed) == (None, 0)
    world.down.remove("b4")
    world.tell_bookies()
    world.settle()
    assert writer.confirmed == 1
    assert "b4" in it.ensembles()[-1][1]
    world.down.add("b4")
    world.add(writer, pen, b"two")
    world.run(seconds=4)
    assert (writer.failure, writer.confirmed) == (None, 1)
    world.run(seconds=2)
    assert isinstance(writer.failure, NotEnoughBookies)


def test_a_bookie_that_comes_back_to_life_elsewhere_is_used_as_soon_as_the_watch_shows_it() -> None:
    """P4.5: replacement is tried again."""
    world, writer, pen = it = scene(bookies=4)
    world.down |= {"b3", "b4"}
    world.tell_bookies()
    world.add(writer, pen, b"zero")
    world.settle()
    assert len(it.ensembles()) == 1
    world.down.remove("b4")
    world.tell_bookies()
    world.settle()
    assert it.ensembles()[-1] == (1, ["b1", "b2", "b4"])


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(2, 2, 2)])
@pytest.mark.parametrize("read_fails", [False, True])
def test_losing_metadata_stops_adds_only_when_a_write_set_is_short(quorum: Quorum, read_fails: bool) -> None:
    """P4.2, P4.5, P10.4: with the change unpublished adds go on where Qa usable members are left; where they are
    not, they stand still, and fail with NotEnoughBookies after the time limit instead of never."""
    world, writer, pen = scene(quorum, bookies=4)
    world.catalog.is_held = True
    world.down.add("b2")
    world.add(writer, pen, b"zero")
    for _ in range(60):
        for operation in list(world.catalog.waiting):
            if read_fails:
                world.catalog.fail(operation)
        world.settle()
        deadline_ns = writer.core.deadline_ns
        if writer.failure or deadline_ns is None or deadline_ns > 8_000 * MS:
            break
        world.now_ns = deadline_ns
        world.tick(writer)
    if quorum.write_quorum == 3:
        assert writer.failure is None
        assert writer.confirmed == 0
    else:
        assert isinstance(writer.failure, NotEnoughBookies)
        assert 5_000 * MS <= world.now_ns < 6_000 * MS
        # It says of each bookie why it could not take part.
        assert "b3: there, and has no seat, as none could be published" in str(writer.failure)


@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        ("closed", LedgerClosed),
        ("in recovery", LedgerFenced),
        ("deleted", NoSuchLedger),
        ("nothing", None),
        ("read fails", None),
        ("metadata silent", None),
    ],
)
def test_a_writer_that_was_stopped_hears_of_its_takeover_not_of_its_lost_links(
    meanwhile: str, error: type[Exception] | None
) -> None:
    """P3.6, P4.3, P4.5: all links of a stopped process are gone when it goes on; the metadata says what happened. Where
    nobody took the ledger over, it goes on with the same bookies."""
    world, writer, pen = scene(bookies=3)
    world.add(writer, pen, b"zero")
    world.settle()
    key = ledger_key_path(pen.ledger_id)
    if meanwhile == "closed":
        world.recovery(pen.ledger_id).start()
        world.settle()
    elif meanwhile == "in recovery":
        metadata, _ = world.catalog.metadata(pen.ledger_id)
        value = encode_ledger_metadata(metadata.with_changes(state=LedgerState.IN_RECOVERY))
        world.catalog.transact([], [Put(key, value)])
    elif meanwhile == "deleted":
        del world.catalog.values[key]
    world.catalog.is_held = True
    world.add(writer, pen, b"one")
    for name in ("b1", "b2", "b3"):
        world.fail(world.packet(writer, to=name))
    assert writer.failure is None
    assert len(world.catalog.waiting) == 1  # One question, however many seats failed.
    if meanwhile == "read fails":
        world.catalog.fail(world.catalog.waiting[0])
    elif meanwhile != "metadata silent":
        world.catalog.answer(world.catalog.waiting[0])
    if error is None:
        assert (writer.failure, writer.confirmed) == (None, 0)
        world.run(seconds=6)
        assert (writer.failure, writer.confirmed) == (None, 1)
    else:
        assert isinstance(writer.failure, error)
        assert writer.confirmed == 0


def test_a_bookie_that_is_writable_again_goes_on_where_it_sits_when_adds_wait_for_one() -> None:
    """P4.5: E3 Qw2 Qa2 of three bookies, b3 is read-only: its write sets are short, and nobody else is there. It is
    written to again when the list shows it writable, and gets what waited; nothing is published."""
    world, writer, pen = it = scene(Quorum(3, 2, 2), 3)
    world.nodes["b3"].core.is_writable = False
    world.tell_bookies()
    world.add(writer, pen, b"0", b"1", b"2")
    world.run(seconds=2)
    assert (writer.failure, writer.confirmed) == (None, NO_ENTRY)
    world.nodes["b3"].core.is_writable = True
    world.tell_bookies()
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 2)
    assert len(it.ensembles()) == 1


def test_a_bookie_that_restarted_goes_on_where_it_sits_when_nobody_can_take_its_seat() -> None:
    """P4.5: three bookies and three copies of each entry: b3 is away for a while. It is left alone for the avoid time,
    though it is listed; then it gets what is appended from there on, and what waits at that moment, and counts again.
    Nothing is published."""
    world, writer, pen = it = scene(bookies=3)
    world.down.add("b3")
    world.tell_bookies()
    world.add(writer, pen, b"0")
    world.settle()
    world.down.clear()
    world.tell_bookies()
    world.add(writer, pen, b"1")
    world.run(seconds=9)
    assert (writer.confirmed, world.nodes["b3"].holds(pen.ledger_id)) == (1, [])
    world.run(seconds=2)
    assert it.core.is_common
    world.add(writer, pen, b"2")
    world.settle()
    assert world.nodes["b3"].holds(pen.ledger_id) == [2]
    world.down.add("b1")
    world.add(writer, pen, b"3")
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 3)
    assert len(it.ensembles()) == 1
    world.close(writer)
    world.settle()
    world.check_end(pen.ledger_id)


def test_who_is_listed_and_gone_is_tried_once_in_the_avoid_time() -> None:
    """P4.5: that the list shows a bookie which no link reaches costs a handle one add to it each ten seconds."""
    world, writer, pen = it = scene(bookies=3)
    world.down.add("b3")
    tried: list[float] = []
    for number in range(60):
        was_failed = it.core.in_flight.has_failed
        world.run(seconds=0.5)
        if was_failed and not it.core.in_flight.has_failed:
            tried.append(number / 2)
        world.add(writer, pen, b"%d" % number)
        world.settle()
    assert writer.confirmed == 59
    assert len(tried) == 2
    assert tried[1] - tried[0] >= 10


def test_at_the_limit_of_changes_a_bookie_that_is_back_gets_its_seat() -> None:
    """P4.5, RP11: what a handle may change no more it may still go on with."""
    world = World(9)
    metadata, revision = world.create(THREE)
    writer = world.writer(metadata, revision, options=WriterOptions(changes_max=0))
    _, _, pen = it = Scene(world, writer, Pen(metadata.ledger_id))
    third = it.core.in_flight.members[2].bookie_id
    world.down.add(third)
    world.add(writer, pen, b"0")
    world.settle()
    world.down.clear()
    world.run(seconds=11)
    world.add(writer, pen, b"1")
    world.settle()
    assert world.nodes[third].holds(pen.ledger_id) == [1]
    assert len(it.ensembles()) == 1


def test_more_failures_than_bookies_replaces_as_many_as_there_are() -> None:
    """P4.1 with P4.5: two of E5 fail, one bookie is free: one seat is filled, the writer goes on."""
    world, writer, pen = it = scene(Quorum(5, 3, 2), 6)
    world.down |= {"b1", "b4"}
    for number in range(5):
        world.add(writer, pen, b"%d" % number)
    world.settle()
    assert writer.confirmed == 4
    assert sum("b6" in names for _, names in it.ensembles()) >= 1


# Nobody waits.


def rests(quorum: Quorum, *, metadata_is_away: bool) -> Scene:
    """A handle with all acknowledged that lost a bookie which it needs; nobody can take the seat, or no metadata says
    who."""
    world, writer, pen = it = scene(quorum, bookies=quorum.ensemble_size + metadata_is_away)
    world.add(writer, pen, b"zero")
    world.settle()
    assert writer.confirmed == 0
    world.catalog.is_held = metadata_is_away
    lost = it.core.in_flight.seatings[1].member
    world.down.add(lost.bookie_id)
    world.tell_bookies()
    world.perform(writer, writer.core.step(SeatLost(world.now_ns, lost)))
    return it


@pytest.mark.parametrize("quorum", [Quorum(2, 2, 2), Quorum(4, 2, 2)])
@pytest.mark.parametrize("metadata_is_away", [False, True])
def test_a_handle_that_rests_fails_for_nobody_who_is_away(quorum: Quorum, metadata_is_away: bool) -> None:
    """P4.5, P10.4: "while no add waits no time is counted", however long bookies or metadata are away. The first add
    that comes has the whole time."""
    world, writer, pen = it = rests(quorum, metadata_is_away=metadata_is_away)
    world.run(seconds=60)
    assert writer.failure is None
    assert not it.core.in_flight.has_usable_quorum()
    world.add(writer, pen, *[b"%d" % number for number in range(4)])
    began_ns = world.now_ns
    world.run(lambda: writer.failure is not None, seconds=10)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert 5_000 * MS <= world.now_ns - began_ns < 6_500 * MS
    assert writer.confirmed == 0


@pytest.mark.parametrize("metadata_is_away", [False, True])
def test_a_handle_that_rested_goes_on_when_they_are_back(metadata_is_away: bool) -> None:
    """P4.5: an hour later; the seat is replaced, or its bookie goes on in it, before anything is added."""
    world, writer, pen = it = rests(Quorum(2, 2, 2), metadata_is_away=metadata_is_away)
    world.run(seconds=120)
    if metadata_is_away:
        world.catalog.is_held = False
        for operation in list(world.catalog.waiting):
            world.perform(writer, world.catalog.answer(operation))
    else:
        world.down.clear()
    world.tell_bookies()
    world.run(seconds=15)
    assert it.core.in_flight.has_usable_quorum()
    world.add(writer, pen, b"one")
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 1)


def test_the_time_ends_with_the_last_add_that_waits() -> None:
    """P4.5: b2 acknowledges what it had before it failed; from then on the handle rests."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), bookies=2)
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id == "b1")
    world.down.add("b2")
    world.tell_bookies()
    world.perform(writer, writer.core.step(SeatLost(world.now_ns, it.core.in_flight.seatings[1].member)))
    world.run(seconds=3)
    assert writer.failure is None
    world.settle()
    world.run(seconds=30)
    assert (writer.failure, writer.confirmed) == (None, 0)


@pytest.mark.parametrize("metadata_is_away", [False, True])
def test_an_acknowledgement_begins_the_time_anew(metadata_is_away: bool) -> None:
    """P4.5: "5 s without an acknowledgement". Entry 0 was on its way to b1 and b2 when b3 failed, which entry 1 waits
    for. It is acknowledged a moment before the time is over, and entry 1 has all of it again."""
    world, writer, pen = scene(Quorum(3, 2, 2), bookies=3 + metadata_is_away)
    world.catalog.is_held = metadata_is_away
    world.add(writer, pen, b"zero")
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.run(seconds=4.7, hold=lambda packet: packet.bookie_id != "b3")
    world.now_ns = 4_800 * MS
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 0)
    world.run(lambda: writer.failure is not None, seconds=20)
    assert isinstance(writer.failure, NotEnoughBookies)
    assert 9_800 * MS <= world.now_ns < 10_500 * MS
    assert writer.confirmed == 0
