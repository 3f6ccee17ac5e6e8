"""What counts as healthy, of what stands in the metadata (P11.1)."""

from __future__ import annotations

from embedbk.codec.ledger_metadata import encode_ledger_metadata, ledger_key_path
from embedbk.codec.repair_mark import (
    MarkProgress,
    RepairMark,
    encode_repair_mark,
    repair_mark_path,
    with_progress,
)
from embedbk.codec.repair_state import Unrepairable, encode_unrepairable, unrepairable_path
from embedbk.config import Quorum
from embedbk.core.quorum import count_ids
from embedbk.ids import Member
from embedbk.metadata.claims import repairing_path
from embedbk.repair.health import judge
from embedbk.repair.holdings import Shortage, entries_short
from embedbk.repair.owed import owed_by_seat
from tests.repair.healed import GRACE_S, healed
from tests.repair.test_auditor import ledger
from tests.repair.test_filling import short
from tests.repair.test_repaired import closed

ALL = [Member(f"b{number}", bytes(16)) for number in (1, 2, 3, 4)]
LEDGERS = {ledger_key_path(1): encode_ledger_metadata(ledger(1, 1, 2, 3))}
MARK = {
    repair_mark_path(1): encode_repair_mark(with_progress(RepairMark(1, ("b1",), 5), MarkProgress((), "why")))
}
LOST = {unrepairable_path(1): encode_unrepairable(Unrepairable(1, 0, 4, ("b1",), "entry 4", bytes(16), 7))}


def test_all_is_seated_only_where_nothing_lacks_and_nothing_is_marked() -> None:
    assert judge(LEDGERS, ALL, {}, {}, (), 10).is_seated
    assert judge({}, (), {}, {}, (), 10).is_seated
    assert not judge(LEDGERS, ALL[1:], {}, {}, (), 10).is_seated
    assert not judge(LEDGERS, [Member("b1", b"x" * 16), *ALL[1:]], {}, {}, (), 10).is_seated
    assert not judge(LEDGERS, ALL, MARK, {}, (), 10).is_seated
    assert not judge(LEDGERS, ALL, {}, LOST, (), 10).is_seated
    assert not judge({}, ALL, MARK, {}, (), 10).is_seated
    assert not judge({ledger_key_path(1): b"strange"}, ALL, {}, {}, (), 10).is_seated


def test_it_says_what_lacks_since_when_and_what_is_done() -> None:
    away = ALL[1:]
    for marks, given_up, held, told in (
        ({}, {}, (), (0, "not marked yet", "")),
        (MARK, {}, (), (5, "waiting", "why")),
        (MARK, {}, (repairing_path(1),), (5, "copying", "why")),
        ({}, LOST, (), (7, "given up", "entry 4")),
    ):
        health = judge(LEDGERS, away, marks, given_up, held, 10)
        (found,) = health.ledgers
        assert (found.since_ms, found.doing, found.why) == told
        assert found.missing == ((0, "b1"),)
        assert health.away == ("b1",)
        assert "1 of 1 ledgers" in str(health)


def test_a_list_has_a_bound_and_a_count_has_none() -> None:
    many = {ledger_key_path(n): encode_ledger_metadata(ledger(n, 1, 2, 3)) for n in range(20)}
    health = judge(many, ALL[1:], {}, {}, (), 3)
    assert (health.lacking, len(health.ledgers)) == (20, 3)
    assert "and 12 more" in str(health)


def test_no_seat_lacks_its_bookie_again_behind_a_loss() -> None:
    """P11: seats are lacking while a bookie that is away is named, and while a mark is there."""
    with healed() as story:
        bk = story.cluster.client()
        ledger_id = closed(story)
        story.repairer()
        story.cluster.run_for(1)
        assert bk.health().is_seated
        story.cluster.crash("b1")
        story.cluster.run_for(GRACE_S)
        health = bk.health()
        assert not health.is_seated
        assert [each.ledger_id for each in health.ledgers] == [ledger_id]
        bk.stop_repair("a test")
        story.cluster.run_for(2 * GRACE_S)
        assert bk.health().is_stopped
        assert not bk.health().is_seated
        bk.start_repair()
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        story.cluster.run_for(1)
        assert bk.health().is_good
        assert "healer" in bk.health().auditor
        assert bk.health().audited_ms > 0
        bk.trigger_audit()


def test_entries_that_lack_a_copy_are_counted_until_they_have_it() -> None:
    """P11.4: "health never says good while a bookie that is there lacks what it owes"; how many, since when, what is
    done about it."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        ledger_id = short(story, 12, [3, 4, 9])
        closed(story)
        health = bk.health()
        assert health.is_seated
        assert not health.is_good
        assert (health.entries, health.copies, health.counted, health.lacking) == (3, 3, 1, 1)
        (found,) = health.ledgers
        assert (found.ledger_id, found.lacking, found.doing) == (ledger_id, (("b3", 3),), "not marked yet")
        assert "3 entries lack a copy" in str(health)
        story.repairer()
        assert story.cluster.run_until(lambda: bool(story.marks()))
        assert bk.health().ledgers[0].since_ms > 0
        assert story.cluster.run_until(lambda: not story.marks())
        assert bk.health().is_good
        assert (bk.health().entries, bk.health().counted) == (0, 2)


def test_where_a_bookie_does_not_say_nothing_is_good() -> None:
    """P11.4: "cannot tell" is neither good nor short."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        ledger_id = closed(story)
        assert bk.health().is_good
        rule = story.cluster.drop_messages("HoldingsAnswer", sender="b2")
        health = bk.health()
        assert (health.is_seated, health.is_good, health.untold, health.entries) == (True, False, 1, 0)
        assert [(each.ledger_id, each.doing, each.untold) for each in health.ledgers] == [
            (ledger_id, "cannot tell", ("b2",))
        ]
        assert "cannot be told" in str(health)
        rule()
        assert bk.health().is_good


def test_an_entry_that_two_bookies_lack_is_one_entry_and_two_copies() -> None:
    """P3.7: also of a striped ledger, where each seat owes others."""
    for quorum, lacking, entries in (
        (Quorum(3, 3, 2), {0: [(4, 6)], 1: [(6, 7)]}, 4),
        (Quorum(5, 3, 2), {0: [(0, 9)], 1: [(0, 9)]}, 8),
        (Quorum(5, 3, 2), {0: [(4, 4)], 2: [(5, 5)]}, 2),
    ):
        metadata = ledger(1, *range(1, quorum.ensemble_size + 1)).with_changes(
            ensemble_size=quorum.ensemble_size, write_quorum=quorum.write_quorum, ack_quorum=quorum.ack_quorum
        )
        shortages = []
        for seat, ranges in lacking.items():
            (owed,) = owed_by_seat(metadata, 0, seat, 1 << 18)
            copies = sum(count_ids(*each, owed.modulus, owed.residues) for each in ranges)
            shortages.append(Shortage(copies, [(owed, ranges)]))
        assert entries_short(shortages, quorum.ensemble_size) == entries
