"""Voters that change within worlds, and what befalls them meanwhile (RAFT.md, 7; TESTING.md, 5)."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from embedbk.metadata.membership import Change
from embedbk.testing import members_liveness
from embedbk.testing.clocks import SECOND
from embedbk.testing.plan import Plan, make_plan
from embedbk.testing.run import run_plan


def plans(kind: str, first_seed: int) -> Iterator[Plan]:
    """Of the seeds from this one on that draw such a fault."""
    return (plan for seed in itertools.count(first_seed) if kind in (plan := make_plan(seed)).on)


@pytest.mark.parametrize(
    ("kind", "mark", "first_seed"),
    [
        ("voters-change", "metadata voters changed", 1003),
        ("joint-wipe", "two members wiped while voters changed", 2058),
        ("joint-crash", "snapshot of members between two sets of voters", 3107),
        ("follower-old-disk", "metadata member with less than it said", 1005),
        ("member-slow-apply", "metadata member applied slowly", 3563),
        ("slow-follower", "slow follower offered a snapshot", 3618),
        ("slow-follower", "slow follower sent ahead of its answers", 3667),
        ("slow-follower", "slow follower whose log was not known", 3604),
        ("member-copy", "copy of a metadata member refused", 5024),
        ("member-copy", "copy of a metadata member counted", 5596),
        ("member-torn", "metadata log torn", 5021),
        ("member-flip", "damaged metadata log gone on with in doubt", 6060),
        ("member-flip", "damaged metadata log refused", 7075),
        ("member-rejoin", "", 2076),
        ("beside-pause", "", 2042),
        ("member-duplication", "", 2017),
        ("level-raise", "level raised", 1003),
        ("level-raise", "level not raised over older builds", 1080),
        ("level-raise", "older build refused", 1008),
    ],
)
def test_what_befalls_members_is_met_and_costs_nothing(kind: str, mark: str, first_seed: int) -> None:
    """S2, L5 to L7, I60 to I75: the first seed reaches it, or one of the next few, and all keep every promise."""
    seen: Counter[str] = Counter()
    for plan in itertools.islice(plans(kind, first_seed), 12):
        outcome = run_plan(plan)
        assert not outcome.violation, f"seed {plan.seed}: {outcome.violation}"
        seen += outcome.sometimes if mark else outcome.faults
        if seen[mark or kind]:
            break
    assert seen[mark or kind]


def growing() -> Plan:
    """A world that begins with one member and has no fault, in which a change is wanted."""
    plan = next(plan for plan in plans("voters-change", 2000) if plan.first_members == 1)
    change = next(step for step in plan.steps if step.kind == "voters-change")
    steps = (*(step for step in plan.steps if not step.is_fault), change)
    return dataclasses.replace(plan, steps=steps).calmed()


def test_voters_grow_and_shrink_within_one_seed() -> None:
    """L7: from one to three, five or one, and so on, one joint change each."""
    plan = growing()
    *rest, change = plan.steps
    changes = [dataclasses.replace(change, number=900 + at, seed=at) for at in range(4)]
    outcome = run_plan(dataclasses.replace(plan, steps=(*rest, *changes)))
    assert not outcome.violation
    assert outcome.sometimes["metadata voters changed"] == 4


def test_a_change_that_is_left_half_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """L7: the checks of every seed see a leader that lets both sets of voters count for ever."""
    monkeypatch.setattr(Change, "go_on", lambda self, state, peers: None)
    monkeypatch.setattr(members_liveness, "CHANGED_NS", 5 * SECOND)
    assert run_plan(growing()).invariant == "L7"
