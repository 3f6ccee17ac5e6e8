"""Limits of a quorum from its measurements (RAFT.md, 8). Pure.

Decides how costs and rates are estimated, and what follows from them: how long a state of some size takes to get to a
member, how much of the log is worth keeping for members that lag, which election base suits. Every number comes with
its terms. Leaves to others: the measurements (`host/measuring.py`), and the use of the results.

    cost     of a MiB: c by + (x - c) / 8, d by + (|x - c| - d) / 4 per sample, estimate c + 4 d (as TCP's timer)
    time     of a state of S MiB: S x fetch + S x load, since loading begins behind the last piece
    log      worth keeping: 2 x rate x time, so that a member behind a snapshot finds the entries since
    base     max(10 x stall, 20 x (round trip + sync), 150 ms), of the slowest member
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "BASE_MS_MAX",
    "BASE_MS_MIN",
    "BASE_STEP_MS",
    "RETAINED_BYTES_LEAST",
    "Advice",
    "Cost",
    "Measured",
    "Often",
    "advise",
    "base_that_suits",
]

MIB = 1 << 20
SAMPLE_BYTES_MIN = 64 << 10  # A transfer of fewer bytes shows nothing about a MiB.
BASE_MS_MIN, BASE_MS_MAX = 150, 10_000
BASE_STEP_MS = 50
STALLS_PER_BASE, TRIPS_PER_BASE = 10, 20
RETAINED_BYTES_LEAST = 16 << 20
FETCH_NS, LOAD_NS = 50_000_000, 20_000_000  # Costs of a MiB assumed before anything was measured.
SAMPLES_KEPT = 1 << 14  # Samples; then all counts are halved, so that old ones fade.

# Upper edges of the counted ranges: eight for each doubling, from 1 on; so a quantile is known to about 9 %.
_EDGES = [round(2 ** (place / 8), 3) for place in range(8 * 45)]


class Cost:
    """The cost of a MiB in one stage, in ns."""

    def __init__(self, prior_ns: int) -> None:
        self.cost_ns = float(prior_ns)
        self.deviation_ns = float(prior_ns)
        self.samples = 0

    @property
    def estimate_ns(self) -> float:
        """The cost of a MiB that is seldom exceeded."""
        return self.cost_ns + 4 * self.deviation_ns

    def note(self, size: int, took_ns: int) -> None:
        """Note a transfer: so many bytes took so long."""
        found = took_ns * MIB / max(size, SAMPLE_BYTES_MIN)
        self.deviation_ns += (abs(found - self.cost_ns) - self.deviation_ns) / 4
        self.cost_ns += (found - self.cost_ns) / 8
        self.samples += 1


class Often:
    """Quantiles of a number that is measured again and again."""

    def __init__(self) -> None:
        self.samples = 0
        self._counts = [0] * len(_EDGES)
        self._total = 0

    def note(self, value: int) -> None:
        place = min(bisect_left(_EDGES, value), len(_EDGES) - 1)
        self._counts[place] += 1
        self._total += 1
        self.samples += 1
        if self._total >= SAMPLES_KEPT:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)

    def below(self, per_mille: int) -> int:
        """The number that so many of a thousand samples did not exceed; 0: no sample was noted."""
        above = self._total * (1000 - per_mille) // 1000
        for place in range(len(_EDGES) - 1, -1, -1):
            above -= self._counts[place]
            if above < 0:
                return int(_EDGES[place])
        return 0


class Measured(NamedTuple):
    """Measurements of one member since its process began. Without samples the costs are assumed ones."""

    stall_ns: int = 0  # Lateness of its loop's timers: 999 of 1,000 were at most this.
    stalls: int = 0  # Turns that were measured.
    sync_ns: int = 0  # From a record to its durability: 99 of 100 took at most this.
    syncs: int = 0
    round_trip_ns: int = 0  # Round trip of its heartbeats while it led: 99 of 100 took at most this.
    round_trips: int = 0
    log_bytes_per_s: int = 0  # At most this in 95 of 100 seconds in which anything was written.
    log_seconds: int = 0
    fetch_ns: int = FETCH_NS  # Cost of a MiB of a snapshot that it pulled; its deviation follows.
    fetch_deviation_ns: int = FETCH_NS
    fetches: int = 0
    load_ns: int = LOAD_NS  # Cost of a MiB of a snapshot that it loaded.
    load_deviation_ns: int = LOAD_NS
    loads: int = 0
    snapshot_bytes: int = 0  # Size of its newest snapshot.

    @property
    def catch_up_ns(self) -> float:
        """The cost of a MiB, from the decision for a snapshot until it is loaded."""
        return self.fetch_ns + 4 * self.fetch_deviation_ns + self.load_ns + 4 * self.load_deviation_ns

    def told(self) -> tuple[tuple[str, int], ...]:
        return tuple(zip(self._fields, self, strict=True))

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, int]]) -> Measured:
        """The inverse of `told`; measurements that only another build knows are ignored."""
        return cls(**{name: value for name, value in pairs if name in cls._fields})


class Advice(NamedTuple):
    """A result and its terms. binds: which of the terms, floor or cap gives the number."""

    base_ms: int
    base_terms: dict[str, int]  # The terms of the base, in ms, rounded up.
    base_binds: str
    state_bytes: int
    catch_up_s: float  # Seconds that the slowest member needs.
    log_bytes_per_s: int
    log_bytes: int  # Bytes of the log that are worth keeping.
    log_kept_bytes: int  # The bytes of it that are kept.
    log_binds: str

    @property
    def log_s(self) -> float:
        """Seconds that a member may be away and still find all entries in the log, at that rate."""
        return self.log_kept_bytes / self.log_bytes_per_s if self.log_bytes_per_s else 0.0


def advise(
    members: Sequence[Measured],
    kept_bytes_max: int,
    *,
    state_bytes: int | None = None,
    log_bytes_per_s: int | None = None,
) -> Advice:
    """The limits that follow from the members' measurements. kept_bytes_max: memory for log entries that a snapshot
    replaces. state_bytes, log_bytes_per_s: compute for this state and rate; else for the largest that were measured."""
    each = list(members) or [Measured()]
    terms = _base_terms(each)
    binds, base = _largest(terms)
    size = max(one.snapshot_bytes for one in each) if state_bytes is None else state_bytes
    rate = max(one.log_bytes_per_s for one in each) if log_bytes_per_s is None else log_bytes_per_s
    catch_up_s = max(one.catch_up_ns for one in each) * size / MIB / 1e9
    log_bytes = int(2 * rate * catch_up_s)
    least = min(RETAINED_BYTES_LEAST, kept_bytes_max)
    kept = min(max(log_bytes, least), kept_bytes_max)
    log_binds = "cap" if log_bytes > kept_bytes_max else "floor" if log_bytes < least else "rate and time"
    return Advice(
        min(base, BASE_MS_MAX),
        terms,
        "cap" if base > BASE_MS_MAX else binds,
        size,
        catch_up_s,
        rate,
        log_bytes,
        kept,
        log_binds,
    )


def base_that_suits(members: Mapping[str, Measured]) -> tuple[int, str]:
    """An election base from the measurements of these members, at least one, in ms; and the members that determine
    it."""
    each = list(members.values())
    binds, base = _largest(_base_terms(each))
    base = min(base, BASE_MS_MAX)
    slowest = {
        what: max(members, key=lambda name: getattr(members[name], what))
        for what in ("stall_ns", "sync_ns", "round_trip_ns")
    }
    said = {what: f"{_ms(getattr(members[name], what))} ms of {name}" for what, name in slowest.items()}
    if binds == "stall":
        return base, f"{STALLS_PER_BASE} x a stall of {said['stall_ns']}"
    if binds == "round_trip_and_sync":
        parts = f"a round trip of {said['round_trip_ns']} and a sync of {said['sync_ns']}"
        return base, f"{TRIPS_PER_BASE} x {parts}"
    return base, "the floor"


def _base_terms(members: Sequence[Measured]) -> dict[str, int]:
    """The terms of the base in ms, by the slowest member."""
    trip_ns = max(one.round_trip_ns for one in members) + max(one.sync_ns for one in members)
    return {
        "stall": _ms(STALLS_PER_BASE * max(one.stall_ns for one in members)),
        "round_trip_and_sync": _ms(TRIPS_PER_BASE * trip_ns),
        "floor": BASE_MS_MIN,
    }


def _largest(terms: dict[str, int]) -> tuple[str, int]:
    """Which term is the largest, and the base that follows from it, in steps."""
    binds = max(terms, key=lambda name: terms[name])
    return binds, -(-terms[binds] // BASE_STEP_MS) * BASE_STEP_MS


def _ms(ns: int) -> int:
    return -(-ns // 1_000_000)
