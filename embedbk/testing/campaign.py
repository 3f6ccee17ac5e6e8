"""Many seeds over all cores: progress while it runs, each violation as it is found, and a report.

A worker process runs seeds and gives small results; nothing of a run is shared. Which worker runs which seed changes
nothing: a run depends on its seed alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from embedbk.testing.plan import make_plan
from embedbk.testing.run import run_plan
from embedbk.testing.sometimes import SOMETIMES, Sometimes
from embedbk.testing.violation import Violation

__all__ = ["Report", "collect", "run_campaign", "run_seed", "within_cpu"]

PROGRESS_S = 5.0
SEED_CPU_S = 900.0  # Processor time of one seed. Nearly all take one second, the longest some twenty.
CHUNKS_PER_PROCESS = 32  # Then a fresh one takes its place: each world leaves some 10 MB of memory in pieces.


@dataclass
class Report:
    """The counts and findings of a campaign; `as_json` is the line of `./run sim --json`."""

    seeds: int = 0
    violations: int = 0
    events: int = 0
    simulated_s: float = 0.0
    real_s: float = 0.0
    ledgers: int = 0
    acked: int = 0
    refusals: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)  # seed, invariant, violation.
    is_cut_off: bool = False  # A signal ended it before the last seed.

    def add(self, found: dict[str, Any]) -> None:
        self.seeds += 1
        self.events += found["events"]
        self.simulated_s += found["simulated_ns"] / 1e9
        self.ledgers += found["ledgers"]
        self.acked += found["acked"]
        self.refusals += found["refusals"]
        self.faults.update(found["faults"])
        unknown = found["sometimes"].keys() - SOMETIMES.keys()
        assert not unknown, f"not on the list: {unknown}"
        self.sometimes.update(found["sometimes"])
        if found["violation"]:
            self.violations += 1
            self.failures.append({key: found[key] for key in ("seed", "invariant", "violation")})

    @property
    def missed(self) -> list[str]:
        return Sometimes(self.sometimes).missed()

    def verdict(self, is_blind: bool) -> str:
        """The last line, so that who looks at nothing else cannot take a failed campaign for a clean one. is_blind: it
        was long enough to meet everything, and did not."""
        if self.violations:
            seeds = ", ".join(str(failure["seed"]) for failure in self.failures)
            return f"FAILED: {self.violations} of {self.seeds} seeds break a promise: {seeds}"
        if is_blind:
            return f"FAILED: {self.seeds} seeds never met: {'; '.join(self.missed)}"
        if self.is_cut_off:
            return f"CUT OFF: {self.seeds} seeds, no violation in these"
        return f"passed: {self.seeds} seeds, no violation"

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        told["simulated_s"], told["real_s"] = round(self.simulated_s, 3), round(self.real_s, 3)
        told["faults"] = dict(sorted(self.faults.items()))
        reached = {name: self.sometimes[name] for name in SOMETIMES if self.sometimes[name]}
        told["sometimes"] = {"reached": reached, "missed": self.missed}
        return told


def run_seed(seed: int, *, is_outside: bool = False, is_native: bool | None = None) -> dict[str, Any]:
    """One seed; plain values, fit to cross between processes."""
    with within_cpu(SEED_CPU_S):
        outcome = run_plan(make_plan(seed, is_outside=is_outside, is_native=is_native))
    return {
        "seed": seed,
        "violation": outcome.violation,
        "invariant": outcome.invariant,
        "events": outcome.events,
        "simulated_ns": outcome.simulated_ns,
        "ledgers": outcome.ledgers,
        "acked": outcome.acked,
        "refusals": outcome.refusals,
        "digest": outcome.digest,
        "faults": dict(outcome.faults),
        "sometimes": dict(outcome.sometimes),
    }


@contextmanager
def within_cpu(seconds: float) -> Iterator[None]:
    """L14: raise `Violation` where the body is when it has used so much processor time. A seed that turns in a circle
    inside one step would else keep its process for ever, and the campaign would go on without it and say nothing.

    Only on the main thread, where Python handles signals; elsewhere there is no bound.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Violation("L14", f"the seed does not end: it has used {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_campaign(
    seeds: int,
    first_seed: int = 0,
    *,
    minutes: float | None = None,
    processes: int | None = None,
    is_outside: bool = False,
    is_native: bool | None = None,
    ends_at_first: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Run seeds first_seed .. first_seed + seeds - 1, or until the minutes are over; a violation ends nothing, unless
    ends_at_first."""
    run = partial(run_seed, is_outside=is_outside, is_native=is_native)
    results = _results(run, range(first_seed, first_seed + seeds), processes or os.cpu_count() or 1)
    return collect(results, seeds, minutes=minutes, ends_at_first=ends_at_first, progress=progress)


def collect(
    results: Generator[dict[str, Any], None, None],
    seeds: int,
    *,
    minutes: float | None = None,
    ends_at_first: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Collect the results of seeds as they come; end the remaining ones when the report is complete. An interruption
    ends them, too: hours of seeds keep their report."""
    report = Report()
    begun = told = time.monotonic()
    give_up = begun + minutes * 60 if minutes is not None else None
    try:
        for found in results:
            report.add(found)
            now = time.monotonic()
            report.real_s = now - begun
            if progress is not None and found["violation"]:
                progress(f"seed {found['seed']}: {found['violation']}")
            if progress is not None and now - told >= PROGRESS_S:
                told = now
                rate = report.events / report.real_s
                progress(f"{report.seeds} of {seeds} seeds, {report.events} events, {rate:.0f} a second")
            if (report.violations and ends_at_first) or (give_up is not None and now >= give_up):
                break
    except KeyboardInterrupt:
        report.is_cut_off = True
    finally:
        results.close()
    report.real_s = time.monotonic() - begun
    return report


def _results(
    run: Callable[[int], dict[str, Any]], seeds: range, processes: int
) -> Generator[dict[str, Any], None, None]:
    if processes == 1 or len(seeds) < 4:
        yield from map(run, seeds)
        return
    spawn = multiprocessing.get_context("spawn")
    # Ends its workers on the way out.
    with spawn.Pool(processes, _quieten, maxtasksperchild=CHUNKS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=2)


def _quieten() -> None:
    """A worker logs nothing: what nodes say under faults is expected. Worlds make much garbage that is none yet. Ctrl-C
    is for the campaign, which ends its workers."""
    import gc
    import logging

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    logging.disable(logging.CRITICAL)
    sys.stdin = open(os.devnull)  # noqa: SIM115  For as long as the worker lives.
