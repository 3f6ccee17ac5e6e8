"""An audit that is waited for, and the grace of bookies that are away, changed while a cluster runs (P11.1)."""

from __future__ import annotations

from typing import Any

import pytest

import embedbk
from embedbk.metadata.levels import LEVEL_OF_GRACES, LEVEL_OF_KEEPERS
from tests.repair.healed import GRACE_S, healed
from tests.repair.test_filling import rot, short
from tests.repair.test_repaired import closed


def test_an_audit_is_over_when_all_ledgers_were_looked_at() -> None:
    """P11.1, issue 15: it tells what b3 lacks, though the next round of this auditor is a minute away."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        story.repairer()
        story.cluster.run_for(5.0)
        ledger_id = short(story, 5, [])
        story.cluster.run_for(20.0)
        assert bk.audit().is_good
        rounds = bk.health().audited_ms
        story.cluster.run_for(1.0)
        rot(story, "b3", ledger_id, 2)
        began = story.cluster.now_s
        health = bk.audit(30.0)
        assert story.cluster.now_s - began < 10.0
        assert health.audited_ms > rounds
        assert story.cluster.run_until(lambda: bk.health().is_good, 60.0)


def test_an_audit_that_cannot_end_says_who_would_make_it() -> None:
    """Nobody is the auditor here; then repair is switched off."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        with pytest.raises(embedbk.OperationTimeout, match=r"2 s; it goes on. The auditor is nobody") as late:
            bk.audit(2.0)
        assert "hosts a bookie" in str(late.value)
        with pytest.raises(embedbk.OperationTimeout, match=r"The auditor is nobody"):
            bk.audit()  # Without a limit, too, as nobody would ever come.
        bk.stop_repair("moving racks")
        with pytest.raises(embedbk.UsageError, match=r"switched off by client .moving racks."):
            bk.audit()
        bk.start_repair()
        story.repairer()
        assert bk.audit(60.0).is_good  # The one from before is part of it.


def test_a_round_that_began_before_counts_for_no_audit() -> None:
    """P11.1: what it had looked at may have changed since; another round begins behind it."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        for _ in range(6):
            closed(story, count=1)
        service = story.repairer()
        assert story.cluster.run_until(lambda: service.auditor.is_round)
        looked_at = service.auditor.note.rounds
        bk.audit(60.0)
        assert service.auditor.note.rounds >= looked_at + 2


def test_the_grace_is_changed_while_the_cluster_runs() -> None:
    """AR02: longer, a bookie that has been away is not lost yet, by no auditor; shorter again, it is, at once."""
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        ledger_id = closed(story)
        lost = sorted(story.named(ledger_id))[0]
        story.repairer()
        story.cluster.run_for(2.0)
        bk.set_repair_grace(60.0, "a long upgrade")
        assert bk.health().grace_s == 60.0
        story.cluster.run_for(1.0)
        story.cluster.crash(lost)
        story.cluster.run_for(8 * GRACE_S)
        assert lost in story.named(ledger_id)
        story.cluster.crash("healer")
        story.repairer("another")
        story.cluster.run_for(8 * GRACE_S)
        assert lost in story.named(ledger_id)
        bk.set_repair_grace(None)
        assert bk.health().grace_s == 0.0
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, lost), 10 * GRACE_S)


def test_each_word_of_the_switch_stands_for_itself() -> None:
    """AR02, AR16: who stops repair leaves the grace as it is, and the other way round."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        bk.set_repair_grace(60.0)
        bk.stop_repair()
        assert bk.health().grace_s == 60.0
        bk.set_repair_grace(5.0)
        assert bk.health().is_stopped
        bk.start_repair()
        assert bk.health().grace_s == 5.0


@pytest.mark.parametrize("grace_s", [0, -1.0, 0.01, 1e12, float("nan"), "5", True])
def test_a_grace_that_nobody_could_mean_is_refused(grace_s: object) -> None:
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        with pytest.raises(embedbk.UsageError, match="grace_s="):
            bk.set_repair_grace(grace_s)  # type: ignore[arg-type]
        assert bk.health().grace_s == 0.0


def test_below_the_level_neither_is_there() -> None:
    """P10.8: an auditor of a build before would drop both words when it writes."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        bk.health()
        bk._runtime.has_level = lambda level: level < LEVEL_OF_GRACES  # type: ignore[method-assign]
        with pytest.raises(embedbk.UsageError, match=f"level {LEVEL_OF_GRACES}"):
            bk.audit()
        with pytest.raises(embedbk.UsageError, match=f"level {LEVEL_OF_GRACES}"):
            bk.set_repair_grace(5.0)


def test_a_stop_of_repair_ends_by_itself_and_says_who_why_and_until_when() -> None:
    """Issue 15: "freezes carry reason, who and until when": the auditor, who has a clock, ends it."""
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        story.world.wall_ms = bk._runtime.wall_ms()  # The clocks of both hosts are right.
        story.repairer()
        ledger_id = closed(story)
        bk.stop_repair("moving racks", for_s=60.0)
        began_ms = bk._runtime.wall_ms()
        health = bk.health()
        assert (health.is_stopped, health.stopped_why) == (True, "moving racks")
        assert health.stopped_by == "client"
        assert abs(health.stopped_until_ms - began_ms - 60_000) < 5_000
        story.cluster.crash("b1")
        story.cluster.run_for(50.0)
        assert bk.health().is_stopped
        assert "b1" in story.named(ledger_id)
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"), 60.0)
        health = bk.health()
        assert (health.is_stopped, health.stopped_by, health.stopped_until_ms) == (False, "", 0)


def test_who_stopped_repair_and_why_is_said_whatever_others_ask_for_meanwhile() -> None:
    """AR02: another operator that asks for a round, or sets the grace, has not stopped it."""
    with healed(bookies=3) as story:
        bk, other = story.cluster.client(), story.cluster.client("other")
        bk.stop_repair("moving racks")
        other.trigger_audit()
        other.set_repair_grace(60.0, "slow disks")
        health = bk.health()
        assert (health.is_stopped, health.stopped_by, health.stopped_why) == (True, "client", "moving racks")
        other.stop_repair("slow disks")
        health = bk.health()
        assert (health.is_stopped, health.stopped_by, health.stopped_why) == (True, "other", "slow disks")


def test_a_stop_without_a_time_and_a_start_before_it_are_an_operators() -> None:
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        story.world.wall_ms = bk._runtime.wall_ms()
        story.repairer()
        bk.stop_repair("moving racks")
        story.cluster.run_for(100.0)
        assert bk.health().is_stopped
        bk.stop_repair("moving racks", for_s=30.0)
        bk.start_repair()
        bk.stop_repair("once more")
        story.cluster.run_for(100.0)
        assert (bk.health().is_stopped, bk.health().stopped_until_ms) == (True, 0)


@pytest.mark.parametrize("for_s", [0.0, -1.0, 31 * 86_400.0, float("nan"), "3"])
def test_a_stop_for_a_strange_time_is_refused(for_s: Any) -> None:
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        with pytest.raises(embedbk.UsageError, match="for_s"):
            bk.stop_repair("moving racks", for_s=for_s)
        assert not bk.health().is_stopped


def test_below_its_level_a_stop_has_no_end() -> None:
    """P10.8: a build before would drop the time when it writes the switch."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        bk._runtime.has_level = lambda level: level < LEVEL_OF_KEEPERS  # type: ignore[method-assign]
        with pytest.raises(embedbk.UsageError, match=f"level {LEVEL_OF_KEEPERS}"):
            bk.stop_repair("moving racks", for_s=60.0)
        bk.stop_repair("moving racks")
        assert bk.health().is_stopped
