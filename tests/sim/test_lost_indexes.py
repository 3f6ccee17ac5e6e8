"""Bookies that lose an index on disk serve beside the search for what it located (ST38; S2: the four marks are met)."""

from __future__ import annotations

import dataclasses
from collections import Counter

from embedbk.testing import make_plan, run_plan
from embedbk.testing.plan import SECOND, Plan, Step

MARKS = {f"lost index {what}" for what in ("looked for", "made again", "left dark", "put right on disk")}


def calm_plan(seed: int) -> Plan | None:
    """Only the one fault, late in the run, on a bookie whose copies nobody is alone with."""
    plan = make_plan(seed, is_native=True)
    if plan.quorum.ack_quorum < 2 or plan.duration_ns < 2 * SECOND or plan.near_clients:
        return None
    plan = plan.without([step.number for step in plan.steps if step.is_fault]).calmed()
    number = 1 + max(step.number for step in plan.steps)
    rot = Step(number, plan.duration_ns // 2, "index-rot", "b1", for_ns=SECOND // 10, seed=seed)
    return dataclasses.replace(
        plan, steps=tuple(sorted((*plan.steps, rot), key=lambda step: step.at_ns)), devices=1
    )


def test_a_bookie_looks_for_what_a_lost_index_located_beside_its_work() -> None:
    """ST38, P7.1, I31: whatever clients do meanwhile, nothing is called absent that it held; then the log is whole and
    is copied, or stays in the dark."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        plan = calm_plan(seed)
        if plan is None:
            continue
        outcome = run_plan(plan)
        assert not outcome.violation, (seed, outcome.violation)
        seen += Counter({mark: outcome.sometimes[mark] for mark in MARKS})
        if set(seen) == MARKS:
            return
    raise AssertionError(f"only {set(seen)} in 200 seeds")
