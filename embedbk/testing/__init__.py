"""Whole clusters in one process under one seed: production code, virtual time, faults, and observers that find broken
promises.

`TESTING.md` beside this file describes what is here and how to use it.
"""

from __future__ import annotations

from embedbk.testing.actors import Sleep, Until
from embedbk.testing.campaign import Report, run_campaign
from embedbk.testing.cluster import Cluster
from embedbk.testing.network_faults import rule_for
from embedbk.testing.observer import Observer
from embedbk.testing.plan import Plan, Step, make_plan
from embedbk.testing.run import Outcome, run_plan, shrink
from embedbk.testing.trace import Trace
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = [
    "Cluster",
    "Observer",
    "Outcome",
    "Plan",
    "Report",
    "Sleep",
    "Step",
    "Trace",
    "Until",
    "Violation",
    "World",
    "make_plan",
    "rule_for",
    "run_campaign",
    "run_plan",
    "shrink",
]
