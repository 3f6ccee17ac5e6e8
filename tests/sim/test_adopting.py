"""Ledgers of a lost future are taken back behind simulated runs: what was acknowledged is readable again (P10.5)."""

from __future__ import annotations

import pytest

from embedbk.core import survey
from embedbk.testing.plan import make_plan
from embedbk.testing.run import run_plan

# Seeds whose metadata is put back from an older copy, at a level at which ledgers are adopted.
ADOPTED = (1224, 1297, 1349)


@pytest.mark.parametrize("seed", ADOPTED)
def test_what_a_lost_future_acknowledged_is_there_again(seed: int) -> None:
    """P10.5: metadata is put back, ledgers are adopted under crashes and by two at once, bookies collect: "nothing
    acknowledged is lost", and what is neither adopted nor forgotten stays."""
    outcome = run_plan(make_plan(seed))
    assert not outcome.violation, outcome.violation
    assert outcome.sometimes["left by a lost future, and adopted"]


def test_who_ends_a_ledger_at_the_first_no_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise of the run above sees what it is there for."""
    decide = survey.Survey.decide

    def hasty(self: survey.Survey) -> list[survey.SurveyedBookie]:
        if self.end is None and any(each.says_no(0) for each in self.answering):
            self.end = -1
        return decide(self)

    monkeypatch.setattr(survey.Survey, "decide", hasty)
    assert any(run_plan(make_plan(seed)).violation for seed in ADOPTED)
