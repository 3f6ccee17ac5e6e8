"""P4.1, P4.2: ensemble change. Whom to seat, and what counts while its compare-and-set is in flight."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.metadata_messages import Compare
from embedbk.config import Quorum
from embedbk.core.client_words import AddFailed, Answered, Confirmed, EnsembleChanged
from embedbk.core.writer import WriterState
from embedbk.errors import LedgerFenced, NotEnoughBookies
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import but, scene
from tests.rules.world import KEY, MS, member

# P4.1: replace, from LAC+1 on.


def test_a_failed_bookie_is_replaced_from_the_lac_on() -> None:
    """P4.1: a fragment whose first entry is LAC+1; everything outstanding goes to the new member (P4.4)."""
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = it = scene(bookies=4)
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
    world, _, pen = it = scene(bookies=4)
    world.catalog.is_held = True
    world.add(it.writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    first = it.change()
    world.catalog.tell_unknown(first)
    world.catalog.answer(it.change())  # The read: still the old version.
    world.catalog.answer(it.change())  # The same again: done.
    assert it.core.changes.proposal is None
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


# Together with closing (P5.1).


def test_nothing_is_proposed_while_the_close_is_in_flight() -> None:
    """P2.3, P4.2: b3 never answered; its time runs out while the closing compare-and-set is under way. A change sent
    over it would give a CLOSED ledger another fragment."""
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = scene(bookies=4)
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
    world, _, pen = it = scene(bookies=4)
    world.catalog.is_held = True
    world.add(it.writer, pen, b"zero")
    world.fail(world.packet(to="b3"))
    _, revision = world.catalog.metadata(pen.ledger_id)
    assert it.change().effect.when == [Compare(ledger_key_path(pen.ledger_id), revision)]
