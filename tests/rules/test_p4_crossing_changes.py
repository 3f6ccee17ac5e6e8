"""P4.3, P4.4: changes that others cross, and answers of seats that were replaced."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.ledger_metadata import Fragment, LedgerState, ledger_key_path
from embedbk.codec.metadata_messages import Delete
from embedbk.config import Quorum
from embedbk.core.client_words import Confirmed, EnsembleChanged
from embedbk.core.metadata_words import KeyRead, Transact, Transacted
from embedbk.errors import LedgerClosed, LedgerFenced, NoSuchLedger
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import but, overwrite, scene
from tests.rules.world import MS, Pen, World, member

# P4.3: refused.


def test_a_change_refused_because_of_recovery_fails_the_adds_as_fenced() -> None:
    """P4.3: state not OPEN -> LedgerFenced (in recovery)."""
    world, writer, pen = scene(bookies=4)
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
        world, writer, pen = scene(bookies=4)
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


def test_a_refused_change_whose_read_gets_no_answer_is_read_again() -> None:
    """P2.2, P4.3: refused says only that something changed. What it is has to be read, and read again until an answer
    comes: till then nothing is settled, and no other change can be."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), bookies=4)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.settle()
    overwrite(world, pen.ledger_id, custom={"repair": b"was here"})
    world.catalog.answer(it.change())
    for _ in range(3):
        world.catalog.fail(it.change())
        world.tick(writer, 200 * MS)
    world.catalog.is_held = False
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 1)
    assert "b2" not in it.ensembles()[-1][1]
    assert world.catalog.metadata(pen.ledger_id)[0].custom == {"repair": b"was here"}


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


def test_an_outcome_that_comes_late_says_nothing_of_the_change_behind_it() -> None:
    """P2.2, P4.2: the writer reads that its change is published before it hears so, and begins another one. The outcome
    of the first, which comes then, does not publish the second."""
    world, writer, pen = it = scene(Quorum(2, 2, 2), bookies=5)
    world.add(writer, pen, b"zero")
    world.settle()
    world.catalog.is_held = True
    world.down.add("b2")
    world.add(writer, pen, b"one")
    world.settle()
    first = it.change()
    assert isinstance(first.effect, Transact) and world.catalog.land(first)
    world.catalog.waiting.remove(first)
    key = ledger_key_path(pen.ledger_id)
    value, revision = world.catalog.values[key]
    writer.step(KeyRead(world.now_ns, "read", value, revision))
    (fresh,) = {name for _, ensemble in it.ensembles() for name in ensemble} - {"b1", "b2"}
    world.down.add(fresh)
    world.settle()
    second = it.change()
    assert isinstance(second.effect, Transact) and second.effect.tag != first.effect.tag
    effects = writer.step(Transacted(world.now_ns, first.effect.tag, True, revision))
    assert not any(isinstance(effect, EnsembleChanged) for effect in effects)
    world.settle()
    assert writer.confirmed == 0, "on seats that nobody knows"
    world.catalog.is_held = False
    world.settle()
    assert (writer.failure, writer.confirmed) == (None, 1)


# P4.4: replaced seats count no more.


def test_a_replaced_seat_counts_no_more() -> None:
    """P4.4: b1 acknowledged e0 and was replaced; e0 is pending again until b4 has it."""
    world, writer, pen = scene(Quorum(3, 3, 3), bookies=4)
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
    world, writer, pen = it = scene(Quorum(3, 3, 2), bookies=4)
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


# RP10, RP08, and scenarios 16 to 22 of the known bugs.


@pytest.mark.parametrize("reason", ["link", "unknown"])
def test_a_failure_after_the_quorum_changes_the_ensemble_too(reason: str) -> None:
    """RP10: e0 is done on b1 and b2 when b3 fails it late: under-replicated, so that b3 is replaced for what comes."""
    world, writer, pen = it = scene(bookies=4)
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
    world, writer, pen = it = scene(Quorum(3, 3, 3), bookies=4)
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
        world, writer, pen = it = scene(bookies=4)
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
