"""Metadata put back from an older copy behind simulated runs (P7.7, P10.5, P9.2; TESTING.md, D13)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from embedbk.core import witness
from embedbk.core.witness import Witness
from embedbk.storage import log_use
from embedbk.testing.plan import Plan, make_plan
from embedbk.testing.run import Outcome, run_plan


def plans(first_seed: int) -> Iterator[Plan]:
    """Of the seeds that put an older copy of all metadata back, that of one member, from this one on."""
    for seed in itertools.count(first_seed):
        plan = make_plan(seed)
        if plan.members == 1 and any(step.kind == "older-metadata" for step in plan.steps):
            yield plan


@pytest.mark.parametrize("first_seed", [1, 100, 200, 300])
def test_an_older_copy_loses_nothing_and_gives_no_id_twice(first_seed: int) -> None:
    """Story 22, P7.7, P10.5: beside it nothing is dropped and no ledger made; the newest goes on, or a
    generation begins."""
    seen: set[str] = set()
    for plan in itertools.islice(plans(first_seed), 2):
        outcome = run_plan(plan)
        assert not outcome.violation, outcome.violation
        seen |= {name for name, count in outcome.sometimes.items() if count}
    assert {"older metadata met", "metadata cut back"} <= seen


def broken() -> Outcome:
    """The first of some runs that breaks a promise."""
    return next(outcome for plan in itertools.islice(plans(1), 8) if (outcome := run_plan(plan)).violation)


def test_a_bookie_that_believes_any_metadata_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise of the run above sees what it is there for."""
    monkeypatch.setattr(witness, "doubt_of", lambda met, told: "")
    assert broken().invariant == "P10.5"


def test_a_bookie_that_looks_at_the_count_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.5: also once the copy has caught up."""
    monkeypatch.setattr(
        witness, "doubt_of", lambda met, told: "older" if met is not None and told.count < met.count else ""
    )
    assert broken().invariant == "P10.5"


def test_a_bookie_that_goes_on_under_what_it_cannot_keep_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.5: durably before anything else is done under it."""
    plan = next(plans(132))  # In which bookies have no room when a generation begins.
    outcome = run_plan(plan)
    assert not outcome.violation
    assert outcome.sometimes["met metadata not kept"]
    monkeypatch.setattr(Witness, "is_doubted", property(lambda self: bool(self.doubt)))
    assert run_plan(plan).invariant == "P10.5"


def test_a_log_that_opens_with_less_than_was_used_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """P9.2."""
    monkeypatch.setattr(log_use, "what_is_missing", lambda *_: "")
    assert broken().invariant == "P9.2"


def test_a_bookie_that_takes_every_higher_generation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.5: one copy that two recover; a generation is a number, and does not tell which one it goes on from."""
    plan = next(plans(98))
    outcome = run_plan(plan)
    assert not outcome.violation
    assert outcome.sometimes["copy put back by two"]
    judge = witness.doubt_of
    monkeypatch.setattr(witness, "doubt_of", lambda met, told: judge(met, replace(told, descends=True)))
    assert run_plan(plan).invariant == "P10.5"
