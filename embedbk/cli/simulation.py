"""`embedbk sim`: campaigns of whole clusters in virtual time, the replay of one seed, and its trace.

Progress and, as the last line, the verdict go to standard error, the report to standard output. Exit code 1: a promise
was broken, or a campaign that is long enough to meet everything (BLIND_SEEDS) has missed something; 130: Ctrl-C or
SIGTERM ended it, and the report is of what ran until then.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from embedbk.cli import INTERRUPTED
from embedbk.testing.campaign import Report, run_campaign
from embedbk.testing.plan import make_plan
from embedbk.testing.run import replay_line, run_plan, shrink
from embedbk.testing.trace import Trace

__all__ = ["run_sim", "sigterm_interrupts"]

SEEDS = 500
EXPLAINED_MAX = 3  # Violations that are shrunk at once; only the seeds of the others are printed.
BLIND_SEEDS = 2_000  # A campaign of so many seeds must have met all of SOMETIMES.


def run_sim(arguments: Sequence[str]) -> int:
    """Run the command; its exit code."""
    options = _parser().parse_args(arguments)
    before = logging.root.manager.disable
    # Log lines of nodes under faults are expected; a trace shows them in order.
    logging.disable(logging.CRITICAL)
    try:
        return _run(options)
    finally:
        logging.disable(before)


def _run(options: argparse.Namespace) -> int:
    is_native = True if options.native else False if options.twin else None
    without = [int(number) for number in options.without.split(",") if number]
    if options.trace is not None or without:
        seed = options.first_seed if options.trace is None else options.trace
        return _show(seed, without, is_native, options)
    seeds = options.seeds
    if seeds is None:
        seeds = SEEDS if options.minutes is None else 1_000_000_000
    with sigterm_interrupts():
        report = run_campaign(
            seeds,
            options.first_seed,
            minutes=options.minutes,
            processes=options.processes,
            is_outside=options.outside,
            is_native=is_native,
            ends_at_first=options.first,
            progress=_say,
        )
    for failure in () if report.is_cut_off else report.failures[:EXPLAINED_MAX]:
        _explain(failure["seed"], is_native, options)
    if options.json:
        print(json.dumps(report.as_json()))
    else:
        _print_report(report)
    is_blind = report.seeds >= BLIND_SEEDS and bool(report.missed) and not options.outside
    _say(report.verdict(is_blind))
    if report.violations or is_blind:
        return 1
    return INTERRUPTED if report.is_cut_off else 0


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, as a campaign in the background ignores that one."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="embedbk sim", description="Whole clusters in virtual time.")
    parser.add_argument("--seeds", type=int, help=f"how many ({SEEDS}, or as many as --minutes allow)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--first", action="store_true", help="end at the first violation")
    parser.add_argument("--processes", type=int, help="as many as there are cores, if not given")
    parser.add_argument("--json", action="store_true", help="the report as one line")
    parser.add_argument(
        "--outside", action="store_true", help="lose more than was promised: must end in refusals"
    )
    parser.add_argument("--native", action="store_true", help="all bookies on the storage in C")
    parser.add_argument("--twin", action="store_true", help="all bookies on its Python twin")
    parser.add_argument("--without", default="", metavar="N,N", help="leave these steps of the plan out")
    parser.add_argument("--trace", type=int, metavar="SEED", help="print who sent what to whom")
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="with --trace: draw it as well")
    return parser


def _say(text: str) -> None:
    print(f"sim: {text}", file=sys.stderr, flush=True)


def _show(seed: int, without: list[int], is_native: bool | None, options: argparse.Namespace) -> int:
    """One run with its plan, and its trace when that is asked for."""
    plan = make_plan(seed, is_outside=options.outside, is_native=is_native).without(without)
    trace = Trace()
    outcome = run_plan(plan, prepare=trace.attach)
    disks = "native" if plan.is_native else "twin"
    _say(f"seed {seed}: {plan.bookies} bookies ({disks} disks), {plan.quorum}, {plan.network}")
    for step in plan.steps:
        _say(str(step))
    if options.trace is not None:
        for line in trace.lines():
            print(line)
        if options.chart is not None:
            _say(f"{trace.save_chart(options.chart)} events drawn in {options.chart}")
    _say(outcome.violation or f"no violation, {outcome.events} events, trace {outcome.digest}")
    return 1 if outcome.violation else 0


def _explain(seed: int, is_native: bool | None, options: argparse.Namespace) -> None:
    """The replay line at once, then a smaller run that breaks the same promise."""
    plan = make_plan(seed, is_outside=options.outside, is_native=is_native)
    disks = " --native" if options.native else " --twin" if options.twin else ""
    failed = run_plan(plan)
    _say(f"seed {seed}: {failed.violation}")
    _say(f"replay: {replay_line(plan)}{disks}")
    if not failed.violation:
        _say("it did not fail again in this process: the run is not deterministic")
        return
    best, without = shrink(failed)
    if without:
        _say(f"smaller ({len(best.plan.steps)} steps): {replay_line(plan, without)}{disks}")


def _print_report(report: Report) -> None:
    rate = report.events / report.real_s if report.real_s else 0.0
    print(
        f"{report.seeds} seeds, {report.violations} violations, {report.events} events ({rate:.0f} a second), "
        f"{report.simulated_s:.0f} s simulated in {report.real_s:.1f} s, {report.acked} entries acknowledged"
    )
    if report.refusals:
        print(f"{report.refusals} ledgers were refused, as so many lost disks allow")
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(report.faults.items())))
    for failure in report.failures:
        print(f"seed {failure['seed']}: {failure['violation']}")
    if report.missed:
        print("never met: " + "; ".join(report.missed))
