"""P4: ensemble change. Whom to seat, and what counts while its compare-and-set is in flight."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from embedbk.codec.ledger_metadata import Fragment, LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.messages import AddRequest, ErrorAnswer, FenceRequest
from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.config import Quorum
from embedbk.core.vocabulary import AddFailed, Answered, Confirmed, EnsembleChanged
from embedbk.core.writer import Writer, WriterOptions, WriterState
from embedbk.errors import LedgerClosed, LedgerFenced, NoSuchLedger, NotEnoughBookies
from embedbk.ids import NO_ENTRY
from tests.rules.world import KEY, MS, THREE, Client, Hold, Operation, Pen, World, member


class Scene(NamedTuple):
    world: World
    writer: Client
    pen: Pen

    @property
    def core(self) -> Writer:
        assert isinstance(self.writer.core, Writer)
        return self.writer.core

    def change(self) -> Operation:
        """The one compare-and-set in flight."""
        (operation,) = self.world.catalog.waiting
        return operation

    def ensembles(self) -> list[tuple[int, list[str]]]:
        """The published fragments: first entry, bookies."""
        metadata, _ = self.world.catalog.metadata(self.pen.ledger_id)
        return [(f.first_entry, [m.bookie_id for m in f.members]) for f in metadata.fragments]


def scene(quorum: Quorum = THREE, bookies: int = 4) -> Scene:
    world = World(bookies)
    metadata, revision = world.create(quorum)
    return Scene(world, world.writer(metadata, revision), Pen(metadata.ledger_id))


def but(*names: str) -> Hold:
    """Hold what these bookies get and say."""
    return lambda packet: packet.bookie_id in names


# P4.1: replace, from LAC+1 on.


def test_a_failed_bookie_is_replaced_from_the_lac_on() -> None:
    """P4.1: a fragment whose first entry is LAC+1; everything outstanding goes to the new member (P4.4)."""
    world, writer, pen = it = scene()
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
    world.settle(hold=but("b3"))
    assert writer.confirmed == 2
    world.add(writer, pen, b"3")
    for packet in world.packets(to="b3"):
        world.fail(packet)
    world.settle(hold=lambda packet: True)  # Only the metadata store moves.
    world.settle()
    assert it.ensembles() == [(0, ["b1", "b2", "b3"]), (3, ["b1", "b2", "b4"])]
    assert EnsembleChanged(3, (member("b1"), member("b2"), member("b4"))) in writer.told
    assert world.nodes["b4"].holds(pen.ledger_id) == [3]
    assert world.catalog.metadata(pen.ledger_id)[0].fragments[1].length_before == 3


def test_a_fragment_that_starts_at_the_same_entry_is_replaced() -> None:
    """P4.1: if the last fragment already starts at LAC+1, replace its ensemble instead; first entries rise (P2.4)."""
    world, writer, pen = it = scene(bookies=6)
    world.add(writer, pen, b"zero")
    for number in range(3):  # b1 fails, then who replaced it, and once more.
        seating = it.core.in_flight.seatings[0]
        world.settle(hold=lambda packet: True)
        world.fail(world.packet(to=seating.member.bookie_id))
        world.settle(hold=lambda packet: True)
        assert len(it.ensembles()) == 1, number
    assert it.ensembles()[0][0] == 0
    assert it.ensembles()[0][1][0] in ("b4", "b5", "b6")
    world.settle()
    assert writer.confirmed == 0


@pytest.mark.parametrize(
    "reason", ["link", "timeout", "unknown", "limbo", "read only", "incarnation", "nonsense"]
)
def test_every_failure_of_an_add_replaces_the_bookie(reason: str) -> None:
    """P4.1: error, timeout, disconnect, other incarnation, limbo."""
    world, writer, pen = it = scene()
    node = world.nodes["b3"]
    if reason == "limbo":
        row = node.storage.table.create(pen.ledger_id)
        row.in_limbo = row.is_fenced = 1
    elif reason == "read only":
        node.core.is_writable = False
    elif reason == "incarnation":
        node.lose_disk()
    elif reason == "unknown":
        node.storage.fail_next_sync("the disk is gone")
    world.add(writer, pen, b"zero")
    if reason == "link":
        world.fail(world.packet(to="b3"))
    if reason == "nonsense":
        packet = world.packet(to="b3")
        world.lose(packet)
        writer.step(Answered(0, packet.tag, packet.member, ErrorAnswer("what?")))
    if reason == "timeout":
        world.run(seconds=6, hold=but("b3"))
    world.settle(hold=but("b3") if reason == "timeout" else lambda packet: False)
    assert [names for _, names in it.ensembles()][-1] == ["b1", "b2", "b4"]
    assert writer.failure is None
    assert writer.confirmed == 0


def test_a_bookie_that_never_answers_is_noticed_where_the_quorum_goes_on_without_it() -> None:
    """P4.1: b3 is silent; every entry is acknowledged by the others, and b3 is replaced after the time limit."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    world.run(until=lambda: len(it.ensembles()) == 2, seconds=10, hold=but("b3"))
    assert world.now_ns == 5_000 * MS
    assert it.ensembles()[-1] == (1, ["b1", "b2", "b4"])


def test_the_replacement_is_no_member_and_no_bookie_that_just_failed() -> None:
    """P4.1, P2.4: outside the ensemble, and not the same bookie in another incarnation, which would count twice."""
    world, writer, pen = it = scene(bookies=4)
    world.nodes["b1"].lose_disk()
    world.tell_bookies()  # b1 is registered again, in another incarnation.
    world.add(writer, pen, b"zero")
    world.settle()
    assert it.ensembles() == [(0, ["b4", "b2", "b3"])]
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.settle()
    assert it.ensembles() == [(0, ["b4", "b2", "b3"])]  # b1 failed under this handle and is avoided.
    world.run(seconds=11, until=lambda: len(it.ensembles()) == 2)
    # After `avoid_ns` it may be chosen again; the fragment says which incarnation.
    assert it.ensembles()[-1] == (2, ["b4", "b1", "b3"])
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert metadata.fragments[-1].members[1] == member("b1", disk=1)


def test_a_bookie_that_lost_its_disk_may_take_its_own_seat_again() -> None:
    """P4.1, P2.4: where nobody else is left; its old incarnation's acknowledgements count no more (P4.4)."""
    world, writer, pen = it = scene(Quorum(3, 3, 3), bookies=3)
    world.add(writer, pen, b"zero")
    world.settle()
    world.disks_lost += 1
    world.nodes["b2"].lose_disk()
    world.down.add("b3")
    world.tell_bookies()
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b3"))
    world.run(seconds=6)
    assert isinstance(
        writer.failure, NotEnoughBookies
    )  # b2 is no replacement for b3: it would be named twice.

    world, writer, pen = it = scene(bookies=3)
    world.disks_lost += 1
    world.nodes["b2"].lose_disk()
    world.tell_bookies()
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
        world.settle()
    world.run(seconds=11)
    world.add(writer, pen, b"3")
    world.settle()
    assert [names for _, names in it.ensembles()] == [["b1", "b2", "b3"], ["b1", "b2", "b3"]]
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert metadata.fragments[1].members[1] == member("b2", disk=1)
    assert world.nodes["b2"].holds(pen.ledger_id) == [3]


# P4.2: both ensembles, until the outcome is settled.


def test_a_change_does_not_stall_the_writer() -> None:
    """P4.2: what the two unfailed members acknowledge has Qa in both ensembles, and is done meanwhile."""
    world, writer, pen = it = scene()
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    for number in range(1, 5):
        world.add(writer, pen, b"%d" % number)
        world.settle()
    assert writer.confirmed == 4
    world.catalog.answer(it.change())
    world.settle()
    assert it.ensembles() == [(0, ["b1", "b2", "b4"])]  # It started at 0 when it was proposed.
    assert writer.failure is None


def test_an_entry_needs_its_quorum_in_both_ensembles_while_the_change_is_in_flight() -> None:
    """P2.2, P4.2: W's change b1 -> b4 times out, W goes on with the old ensemble, the change lands: e0 on b1 b2,
    write set now b4 b2 b3: truncated. So b1 and b2 are not enough for it."""
    world, writer, pen = it = scene()
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3"))  # b1 stores e0 and says so.
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b1"))  # And fails e1: it is to be replaced by b4.
    change = it.change()
    world.settle(hold=but("b3"))
    assert (
        writer.confirmed == NO_ENTRY
    )  # b1 and b2 hold e0: Qa of the published ensemble, not of the proposed one.
    world.catalog.tell_unknown(change, lands=None)
    world.catalog.answer(it.change())  # The read: still the old version, which proves nothing.
    assert writer.confirmed == NO_ENTRY
    assert world.catalog.land(change)  # It lands after all.
    world.catalog.is_held = False
    world.settle(hold=but("b3"))
    assert it.ensembles() == [(0, ["b4", "b2", "b3"])]
    assert writer.confirmed == 1
    recovery = world.recovery(pen.ledger_id)
    recovery.start()
    world.down.add("b1")
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.check_end(pen.ledger_id).last_entry == 1


def test_an_unknown_change_that_landed_is_found_by_reading() -> None:
    """P2.2: a newer version with our own content is done."""
    world, writer, pen = it = scene()
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    world.catalog.tell_unknown(it.change(), lands=True)
    world.catalog.answer(it.change())
    assert isinstance(writer.told[0], EnsembleChanged)
    world.settle()
    assert world.nodes["b4"].holds(pen.ledger_id) == [0]


def test_an_unknown_change_that_never_landed_is_sent_again_from_the_same_version() -> None:
    """P2.2: winning another compare-and-set from the same version settles it: the first can never land then."""
    world, _, pen = it = scene()
    world.catalog.is_held = True
    world.add(it.writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    first = it.change()
    world.catalog.tell_unknown(first)
    world.catalog.answer(it.change())  # The read: still the old version.
    world.catalog.answer(it.change())  # The same again: done.
    assert it.core.proposal is None
    assert not world.catalog.land(first)
    world.settle()
    assert it.ensembles() == [(0, ["b1", "b2", "b4"])]


def test_further_failures_wait_for_the_outcome() -> None:
    """P4.2: one change at a time; then the next one is decided, also for a handle that is closing meanwhile."""
    for is_closing in (False, True):
        world, writer, pen = it = scene(Quorum(3, 3, 3), 5)
        world.catalog.is_held = True
        world.add(writer, pen, b"zero")
        if is_closing:
            world.close(writer)
        world.fail(world.packet(to="b1"))
        world.fail(world.packet(to="b2"))
        assert len(world.catalog.waiting) == 1
        world.catalog.is_held = False
        world.settle()
        ((first, names),) = it.ensembles()
        assert (first, sorted(names)) == (0, ["b3", "b4", "b5"])
        assert writer.confirmed == 0
        if is_closing:
            assert writer.ended.error is None
            world.check_end(pen.ledger_id)


def test_one_change_of_two_members_sends_what_is_pending_to_both() -> None:
    """P4.4: b2 and b3 fail while the change of b1 is in flight, so that the next one has two new members."""
    world, writer, pen = it = scene(Quorum(3, 3, 3), 6)
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    for name in ("b1", "b2", "b3"):
        world.fail(world.packet(to=name))
    world.catalog.is_held = False
    world.settle()
    ((first, names),) = it.ensembles()
    assert (first, sorted(names)) == (0, ["b4", "b5", "b6"])
    assert writer.confirmed == 0


def test_who_fails_while_it_is_being_kept_is_replaced_next() -> None:
    """P4.2: b2 is a member of both ensembles and fails while the change of b3 is in flight."""
    world, writer, pen = it = scene(bookies=5)
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    world.fail(world.packet(to="b2"))
    world.settle()
    assert writer.confirmed == NO_ENTRY
    world.catalog.is_held = False
    world.settle()
    ((_, names),) = it.ensembles()
    assert names[0] == "b1"
    assert sorted(names[1:]) == ["b4", "b5"]
    assert writer.confirmed == 0


# P4.3: refused.


def overwrite(world: World, ledger_id: int, **changes: object) -> None:
    """Somebody else publishes."""
    metadata, _ = world.catalog.metadata(ledger_id)
    value = encode_ledger_metadata(metadata.with_changes(**changes))
    world.catalog.transact([], [Put(ledger_key_path(ledger_id), value)])


def test_a_change_refused_because_of_recovery_fails_the_adds_as_fenced() -> None:
    """P4.3: state not OPEN -> LedgerFenced (in recovery)."""
    world, writer, pen = scene()
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    overwrite(world, pen.ledger_id, state=LedgerState.IN_RECOVERY)
    world.catalog.is_held = False
    world.settle(hold=but("b1"))
    assert isinstance(writer.failure, LedgerFenced)
    assert not writer.failure.definite
    world.settle()
    assert writer.confirmed == NO_ENTRY


def test_a_change_refused_because_it_was_closed_or_deleted() -> None:
    """P4.3, P2.2: CLOSED, or a key that is gone, which counts as CLOSED."""
    for is_deleted in (False, True):
        world, writer, pen = scene()
        world.catalog.is_held = True
        world.add(writer, pen, b"zero")
        world.fail(world.packet(to="b3"))
        if is_deleted:
            world.catalog.transact([], [Delete(ledger_key_path(pen.ledger_id))])
        else:
            overwrite(world, pen.ledger_id, state=LedgerState.CLOSED, last_entry=-1, length=0)
        world.catalog.is_held = False
        world.settle(hold=but("b1", "b2"))
        assert isinstance(writer.failure, NoSuchLedger if is_deleted else LedgerClosed)
        assert not writer.failure.definite


def test_a_change_refused_by_repair_is_decided_again() -> None:
    """P4.3: still OPEN: decide again on the new version; repair touched an earlier fragment."""
    world, writer, pen = it = scene(bookies=6)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle()
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert len(metadata.fragments) == 2
    world.catalog.is_held = True
    world.down.add("b2")
    world.add(writer, pen, b"two")
    world.settle()
    repair_first_fragment(world, pen.ledger_id)
    world.catalog.is_held = False
    world.settle()
    assert writer.failure is None
    assert writer.confirmed == 2
    assert it.ensembles()[0] == (0, ["b1", "b2", "b6"])
    assert "b2" not in it.ensembles()[-1][1]


def repair_first_fragment(world: World, ledger_id: int) -> None:
    """Repair puts b6 into a fragment that is not the last (P2.3)."""
    metadata, _ = world.catalog.metadata(ledger_id)
    first = metadata.fragments[0]
    ensemble = (*first.ensemble[:2], tuple(member("b6")))
    overwrite(world, ledger_id, fragments=(Fragment(0, 0, ensemble), *metadata.fragments[1:]))


def test_a_change_that_landed_unheard_and_was_followed_by_repair_is_ours_all_the_same() -> None:
    """P2.2, P4.3: unknown, landed, and then repair published a newer version: the last fragment is what we sent."""
    world, writer, pen = it = scene(bookies=6)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle()
    world.catalog.tell_unknown(it.change(), lands=True)
    repair_first_fragment(world, pen.ledger_id)
    world.catalog.is_held = False
    world.settle()
    assert writer.failure is None
    assert writer.confirmed == 1
    world.add(writer, pen, b"two")
    world.close(writer)
    world.settle()
    assert writer.ended.error is None


# P4.4: replaced seats count no more.


def test_a_replaced_seat_counts_no_more() -> None:
    """P4.4, scenario 4 of STYLE 10: b1 acknowledged e0 and was replaced; e0 is pending again until b4 has it."""
    world, writer, pen = scene(Quorum(3, 3, 3))
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b2", "b3", "b4"))
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b1"))
    world.settle(hold=but("b4"))
    assert writer.confirmed == NO_ENTRY  # b2 and b3 hold both; b1 counts no more, b4 has nothing yet.
    world.settle()
    assert writer.confirmed == 1


def test_a_late_answer_of_a_replaced_seat_changes_nothing() -> None:
    """P4.4, P3.8: its acknowledgement comes after the change was published."""
    world, writer, pen = it = scene(Quorum(3, 3, 2))
    world.add(writer, pen, b"zero")
    world.settle(hold=lambda packet: packet.bookie_id != "b1" or not packet.is_request)
    late = world.packets(to="b1")[0]
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b1", kind=AddRequest))
    world.settle(hold=lambda packet: True)
    assert it.ensembles() == [(0, ["b4", "b2", "b3"])]
    world.settle(hold=lambda packet: packet is not late)
    world.settle(hold=but("b1", "b3", "b4"))
    assert writer.confirmed == NO_ENTRY  # One copy that counts; b1's is not of this ensemble.
    world.settle(hold=but("b3"))
    assert writer.confirmed == 1


def test_overlapping_changes_of_a_striped_ledger_reach_every_write_set() -> None:
    """P4.4, scenario 17: E6 Qw2 Qa2, several pending entries, two changes: each acknowledged entry is on the write
    set that committed metadata names. The world counts the copies at every step."""
    world, writer, pen = it = scene(Quorum(6, 2, 2), 9)
    world.catalog.is_held = True
    for number in range(12):
        world.add(writer, pen, b"entry %d" % number)
    for packet in world.packets(to="b2") + world.packets(to="b5"):
        world.fail(packet)
    world.settle(hold=but("b4"))
    world.catalog.answer(it.change())
    for packet in world.packets(to="b4"):
        world.fail(packet)
    world.catalog.is_held = False
    world.settle()
    assert writer.confirmed == 11
    names = {name for _, ensemble in it.ensembles()[-1:] for name in ensemble}
    assert {"b2", "b4", "b5"}.isdisjoint(names)
    world.close(writer)
    world.settle()
    world.check_end(pen.ledger_id)


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
    world, writer, pen = scene(quorum)
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


# Together with closing (P5.1).


def test_nothing_is_proposed_while_the_close_is_in_flight() -> None:
    """P2.3, P4.2: b3 never answered; its time runs out while the closing compare-and-set is under way. A change sent
    over it would give a CLOSED ledger another fragment."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    world.catalog.is_held = True
    world.close(writer)
    (closing,) = world.catalog.waiting
    world.run(seconds=6, hold=but("b3"))
    assert world.catalog.waiting == [closing]
    world.tell_bookies()
    assert world.catalog.waiting == [closing]
    world.catalog.answer(closing)
    assert writer.ended.error is None
    world.run(seconds=20, hold=but("b3"))
    world.tell_bookies()
    assert world.catalog.waiting == []
    assert it.ensembles() == [(0, ["b1", "b2", "b3"])]
    assert it.core.state is WriterState.ENDED


def test_a_close_does_not_wait_for_one_more_change() -> None:
    """P5.1: what is acknowledged needs no replacement: b2 failed during the change of b1, and nothing is pending."""
    world, writer, pen = it = scene(Quorum(3, 3, 1), 6)
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.fail(world.packet(to="b1"))
    change = it.change()
    world.fail(world.packet(to="b2"))
    world.settle()
    assert writer.confirmed == 0
    world.close(writer)
    world.catalog.answer(change)
    world.catalog.answer(it.change())
    assert writer.ended.error is None
    assert world.check_end(pen.ledger_id).last_entry == 0


def test_a_failed_handle_proposes_nothing() -> None:
    """P3.6: only close remains."""
    world, writer, pen = scene()
    world.add(writer, pen, b"zero")
    world.ask("b1", FenceRequest(world.nodes["b1"].member.incarnation, pen.ledger_id, KEY))
    world.settle()
    assert isinstance(writer.failure, LedgerFenced)
    world.down.add("b2")
    world.tell_bookies()
    world.run(seconds=10)
    assert world.catalog.waiting == []
    assert [told for told in writer.told if isinstance(told, AddFailed)] == [AddFailed(writer.failure)]


def test_confirmations_come_once_each_and_in_order_across_changes() -> None:
    """I13: acks come in id order, once each; the world would fail on a repeated one."""
    world, writer, pen = scene(bookies=6)
    for number in range(30):
        if number in (5, 11, 17):
            world.down.add(f"b{1 + number // 6}")
        world.add(writer, pen, b"%d" % number)
        if number % 4 == 3:
            world.settle()
    world.settle()
    told = [effect.lac for effect in writer.told if isinstance(effect, Confirmed)]
    assert told == sorted(set(told))
    assert told[-1] == 29


def test_the_compare_is_on_the_version_last_read() -> None:
    """P2.2: every change is one compare-and-set on the version last read."""
    world, _, pen = it = scene()
    world.catalog.is_held = True
    world.add(it.writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    _, revision = world.catalog.metadata(pen.ledger_id)
    assert it.change().effect.when == [Compare(ledger_key_path(pen.ledger_id), revision)]


# P4.6: delayed change, and the limit on changes.


def delaying(quorum: Quorum = THREE, bookies: int = 5, **options: int) -> Scene:
    world = World(bookies)
    metadata, revision = world.create(quorum)
    writer = world.writer(metadata, revision, options=WriterOptions(delays_change=True, **options))
    return Scene(world, writer, Pen(metadata.ledger_id))


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
    assert it.core.change_count == 2
    assert writer.confirmed == 2
    world.down.add(it.core.in_flight.seatings[1].member.bookie_id)
    world.add(writer, pen, b"one too many")
    world.settle()
    assert isinstance(writer.failure, NotEnoughBookies)
    assert "changed its ensemble 2 times, which is its limit" in str(writer.failure)
    assert WriterOptions().changes_max == 100


# RP10, RP08, and scenarios 16 to 22 of the known bugs.


@pytest.mark.parametrize("reason", ["link", "unknown"])
def test_a_failure_after_the_quorum_changes_the_ensemble_too(reason: str) -> None:
    """RP10: e0 is done on b1 and b2 when b3 fails it late: under-replicated, so that b3 is replaced for what comes."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    late = world.packet(to="b3")
    if reason == "link":
        world.fail(late)
    else:
        world.nodes["b3"].storage.fail_next_sync("the disk is gone")
    world.settle()
    assert it.ensembles()[-1] == (1, ["b1", "b2", "b4"])


def test_late_errors_without_metadata_acknowledge_nothing_on_an_ensemble_that_nobody_knows() -> None:
    """Scenario 16: WQ3 AQ2, metadata cannot be written; b1, b2, b3 fail one after the other with late errors. The
    world checks at each confirmation that Qa members named by the metadata hold the entry."""
    world, writer, pen = it = scene(bookies=6)
    world.catalog.is_held = True
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    assert writer.confirmed == 0
    world.fail(world.packet(to="b3"))
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b2"))
    world.settle()
    assert writer.confirmed == 0  # b1 alone is no quorum of b1 b2 b3, whatever b4 may be.
    world.add(writer, pen, b"two")
    world.fail(world.packet(to="b1"))
    world.settle()
    assert writer.confirmed == 0
    world.catalog.is_held = False
    world.settle()
    assert writer.confirmed == 2
    assert {"b1", "b2", "b3"}.isdisjoint(it.ensembles()[-1][1])


def test_a_member_put_back_by_somebody_else_does_not_bring_its_old_acknowledgements() -> None:
    """Scenario 18: a change that replaces b1 by b4 is under way; another one puts b1 back into the last fragment. The
    first is refused and read again; whoever rewrites the last fragment of an open ledger has taken it from us."""
    world, writer, pen = it = scene(Quorum(3, 3, 3))
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))  # b1 and b2 acknowledged e0.
    world.catalog.is_held = True
    world.add(writer, pen, b"one")
    world.fail(world.packet(to="b1"))
    overwrite(world, pen.ledger_id, custom={"touched": b"1"})  # Content apart from fragments: still OPEN.
    world.catalog.is_held = False
    world.settle(hold=but("b3"))
    assert it.ensembles() == [(0, ["b4", "b2", "b3"])]  # Decided again on the new version.
    assert writer.confirmed == NO_ENTRY
    world.settle()
    assert writer.confirmed == 1
    assert world.nodes["b4"].holds(pen.ledger_id) == [0, 1]


def test_a_close_and_a_change_that_cross_keep_both_contents() -> None:
    """Scenario 19: a closer's and a changer's writes cross: whoever loses reads again, and neither overwrites the
    other's last entry or fragments."""
    for closer_first in (True, False):
        world, writer, pen = it = scene()
        world.add(writer, pen, b"zero")
        world.settle()
        recovery = world.recovery(pen.ledger_id)
        world.catalog.is_held = True
        world.add(writer, pen, b"one")
        world.fail(world.packet(to="b3"))
        change = it.change()
        recovery.start()
        marking = next(o for o in world.catalog.waiting if o.client is recovery)
        for operation in (marking, change) if closer_first else (change, marking):
            world.catalog.answer(operation)
        world.catalog.is_held = False
        world.run(until=lambda r=recovery: r.has_ended)
        assert recovery.ended.error is None
        assert world.check_end(pen.ledger_id).last_entry in (0, 1)
        assert len(it.ensembles()) == (1 if closer_first else 2)


def test_a_close_that_meets_a_repair_ends_with_the_right_last_entry() -> None:
    """Scenario 20: a bookie is repaired out of an earlier fragment while the writer closes."""
    world, writer, pen = it = scene(bookies=6)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle()
    copy = AddRequest(world.nodes["b6"].member.incarnation, 99, 1, recovery=True)
    world.ask("b6", copy, Pen(pen.ledger_id).frame(b"zero"))  # The copy that repair made.
    world.settle()
    world.catalog.is_held = True
    world.close(writer)
    repair_first_fragment(world, pen.ledger_id)
    world.catalog.is_held = False
    world.settle()
    assert writer.ended.error is None
    metadata, _ = world.catalog.metadata(pen.ledger_id)
    assert (metadata.last_entry, metadata.length) == (1, 7)
    assert it.ensembles()[0][1] == ["b1", "b2", "b6"]


def test_two_members_that_fail_while_repair_edits_are_both_replaced() -> None:
    """Scenario 21: two members fail together, the compare-and-set is refused because of repair; writing goes on."""
    world, writer, pen = it = scene(bookies=8)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle()
    world.catalog.is_held = True
    gone = {seating.member.bookie_id for seating in it.core.in_flight.seatings[:2]}
    world.down |= gone
    world.add(writer, pen, b"two")
    world.settle()
    repair_first_fragment(world, pen.ledger_id)
    world.catalog.is_held = False
    world.settle()
    assert writer.confirmed == 2
    assert gone.isdisjoint(it.ensembles()[-1][1])
    assert it.ensembles()[0][1][2] == "b6"


def test_an_entry_outside_the_changed_write_set_is_looked_at_again() -> None:
    """Scenario 22, RP08: E4 Qw2 Qa2. b1 fails e0 (b1 b2), e1 (b2 b3) has its quorum behind it, and e2 (b3 b4) too:
    when the change is settled, the head is done and everything behind it is confirmed in one go."""
    world, writer, pen = scene(Quorum(4, 2, 2), 5)
    world.catalog.is_held = True
    for number in range(3):
        world.add(writer, pen, b"%d" % number)
    (lost,) = [packet for packet in world.packets(to="b1") if packet.tag[2] == 0]
    world.fail(lost)
    world.settle()
    assert writer.confirmed == NO_ENTRY
    world.catalog.is_held = False
    world.settle(hold=lambda packet: packet.bookie_id == "b5" and not packet.is_request)
    assert writer.confirmed == NO_ENTRY
    told = world.deliver(world.packet(to="b5"))
    assert told == [Confirmed(2, 3)]
    # And where the head's own write set is not touched: b3 replaced, e0 on b1 b2 done the moment it is settled.
    world, writer, pen = scene(Quorum(4, 2, 2), 5)
    world.catalog.is_held = True
    world.add(writer, pen, b"0")
    world.add(writer, pen, b"1")
    (lost,) = [packet for packet in world.packets(to="b3") if packet.tag[2] == 1]
    world.fail(lost)
    world.settle()
    assert (
        writer.confirmed == 0
    )  # Its write set holds in both ensembles: the change does not stall it (P4.2).
    world.catalog.is_held = False
    world.settle()
    assert writer.confirmed == 1
