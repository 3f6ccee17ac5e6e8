"""When the election base of a quorum changes, and to what (RAFT.md, 8). Pure.

Decides which measurements suffice, how far one change goes, and how long the next one waits. Members change together,
by an entry of the log (`membership`). calibration.py computes the suitable base; `host/measuring.py` measures.

A base that is too short costs elections, one that is too long costs time without a leader, once, when a leader dies.
So it is raised at once to the suitable one, and lowered by a quarter at most. Only an operator sets it below the one
that a cluster begins with: there a quiet machine gains little, and the first busy minute costs an election.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from embedbk.metadata.calibration import BASE_MS_MAX, BASE_MS_MIN, BASE_STEP_MS, Measured, base_that_suits
from embedbk.metadata.quorum import BASE_MS_FIRST, Configuration, MemberId
from embedbk.metadata.raft_vocabulary import Timing

__all__ = ["BASE_RULES", "BaseRules", "next_base", "suits", "why_no_base", "why_unknown"]

RAISED_FROM = 6, 5  # The base is raised only to one that is longer by at least this ratio.
LOWERED_TO = 3, 4  # The share by which one change lowers it at most, and at least.


class BaseRules(Struct, frozen=True):
    """How much must be known of each voter, and how long a base stays. Worlds of tests have others."""

    measured_ns: int = (
        600_000_000_000  # A process loads and warms up first; its first minutes alone decide nothing.
    )
    stalls: int = 1000  # So that one in 1,000 is at least one sample.
    syncs: int = 100
    round_trips: int = 100  # Measured by the leaders in the whole quorum.
    interval_ns: int = 3_600_000_000_000


BASE_RULES = BaseRules()


def why_unknown(
    configuration: Configuration, timings: Mapping[MemberId, Timing | None], rules: BaseRules
) -> str:
    """Which measurements do not suffice yet; empty: all do. timings: those of voters that the leader hears."""
    for voter in configuration.voters:
        timing = timings.get(voter)
        if timing is None:
            return f"nothing is heard of {voter.name}"
        if timing.measured_ns < rules.measured_ns:
            seconds = rules.measured_ns // 1_000_000_000
            return (
                f"{voter.name} has measured for {timing.measured_ns // 1_000_000_000} s, needed are {seconds}"
            )
        if timing.stalls < rules.stalls or timing.syncs < rules.syncs:
            return (
                f"{voter.name} has measured {timing.stalls} turns and {timing.syncs} syncs, needed are "
                f"{rules.stalls} and {rules.syncs}"
            )
    trips = sum(timing.round_trips for timing in timings.values() if timing is not None)
    if trips < rules.round_trips:
        return f"{trips} round trips were measured, needed are {rules.round_trips}"
    return ""


def suits(timings: Mapping[MemberId, Timing]) -> tuple[int, str]:
    """The base that suits these members, at least one, in ms, and why; never less than a cluster begins with."""
    found_ms, why = base_that_suits({member.name: _measured(timing) for member, timing in timings.items()})
    return (found_ms, why) if found_ms > BASE_MS_FIRST else (BASE_MS_FIRST, "nothing measured needs more")


def next_base(base_ms: int, timings: Mapping[MemberId, Timing]) -> tuple[int, str] | None:
    """The next base, and why; None: it stays."""
    suits_ms, why = suits(timings)
    if suits_ms * RAISED_FROM[1] >= base_ms * RAISED_FROM[0] or base_ms < suits_ms == BASE_MS_MAX:
        return suits_ms, why
    lowest_ms = -(-base_ms * LOWERED_TO[0] // (LOWERED_TO[1] * BASE_STEP_MS)) * BASE_STEP_MS
    if base_ms > BASE_MS_FIRST and suits_ms <= lowest_ms < base_ms:
        return max(lowest_ms, BASE_MS_FIRST), why
    return None


def why_no_base(base_ms: int) -> str:
    """Why an operator may not set this base; empty: it is allowed."""
    if BASE_MS_MIN <= base_ms <= BASE_MS_MAX:
        return ""
    return f"an election base of {base_ms} ms: allowed are {BASE_MS_MIN} to {BASE_MS_MAX}"


def _measured(timing: Timing) -> Measured:
    return Measured(
        timing.stall_ns,
        timing.stalls,
        timing.sync_ns,
        timing.syncs,
        timing.round_trip_ns,
        timing.round_trips,
    )
