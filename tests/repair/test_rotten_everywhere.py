"""An entry that is bad on every bookie that is there: repair stops at it, visibly, and goes on with the rest (P11.2).

The one good copy is on a bookie that is away, and may come back.
"""

from __future__ import annotations

import argparse

from embedbk.cli import repair as commands
from embedbk.codec.repair_state import decode_unrepairable, unrepairable_path
from embedbk.ids import NO_ENTRY
from tests.repair.healed import Healed, healed
from tests.repair.test_filling import held, rot, short
from tests.repair.test_repaired import holders_hold

BAD = 5


def rotten(story: Healed) -> tuple[int, int]:
    """A ledger whose entry 5 only b1 has good, which is away, and of which b3 lacks others; and a plain one."""
    ledger_id, other = short(story, 12, [2, 9]), short(story, 12, [3], victim="b2")
    for name in ("b2", "b3"):
        rot(story, name, ledger_id, BAD)
    story.cluster.crash("b1")
    story.repairer()
    assert story.cluster.run_until(lambda: named(story, ledger_id) == BAD, 400)
    return ledger_id, other


def named(story: Healed, ledger_id: int) -> int:
    """The entry that stopped the repair of the ledger."""
    value = story.given_up().get(unrepairable_path(ledger_id))
    return NO_ENTRY if value is None else decode_unrepairable(value).entry_id


def test_it_is_named_by_health_marks_and_explain_with_its_ledger() -> None:
    """P11.2, issue 15: "stops that fragment visibly and names it"."""
    with healed(bookies=3) as story:
        ledger_id, _ = rotten(story)
        bk = story.cluster.client("looker")
        health = bk.health()
        assert f"no bookie that is there has a good copy of entry {BAD} of ledger {ledger_id}" in str(health)
        (found,) = [each for each in health.ledgers if each.ledger_id == ledger_id]
        assert (found.doing, found.no_copy) == ("given up", BAD)
        told = commands._marks(lambda: story.cluster.client("another"), argparse.Namespace())
        (line,) = [each for each in told.text.splitlines() if f"ledger {ledger_id}:" in each]
        assert f"entry {BAD} has no good copy" in line
        explained = story.cluster.client("third").explain(ledger_id)
        assert any(each.startswith(f"a good copy of entry {BAD}: ") for each in explained.missing)
        assert f"good copy of entry {BAD}" in explained.next_step


def test_all_else_is_repaired_and_a_good_copy_that_comes_back_heals_it() -> None:
    """P11.2, AR10: other entries of the ledger, and other ledgers, get their copies; when b1 is there again, the entry
    is copied from it, and nothing is left of the word."""
    with healed(bookies=3) as story:
        ledger_id, other = rotten(story)
        assert story.cluster.run_until(lambda: held(story, "b2", other) == list(range(12)), 400)
        assert {*held(story, "b3", ledger_id)} >= {each for each in range(12) if each != BAD}
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: not story.given_up() and not story.marks(), 400)
        assert story.cluster.run_until(lambda: story.cluster.client("looker").health().is_good, 400)
        holders_hold(story, ledger_id, 12)
        holders_hold(story, other, 12)
