"""What follows from what members measured: costs, shares, the base of elections, the log worth keeping (RAFT.md, 8)."""

from __future__ import annotations

import random

import pytest

from embedbk.host.measuring import Measuring
from embedbk.metadata.calibration import (
    BASE_MS_MAX,
    BASE_MS_MIN,
    FETCH_NS,
    MIB,
    RETAINED_BYTES_LEAST,
    Cost,
    Measured,
    Often,
    advise,
)
from embedbk.metadata.raft_vocabulary import Heartbeat, HeartbeatReply

MS = 1_000_000
CAP = 64 << 20


def test_a_cost_is_right_within_few_samples_whatever_was_assumed() -> None:
    """Story 16: begun a hundred times wrong, both ways, the estimate is soon not far from what is so."""
    for prior in (FETCH_NS * 100, FETCH_NS // 100):
        cost = Cost(prior)
        for _ in range(60):
            cost.note(MIB, 50 * MS)
        assert 45 * MS <= cost.cost_ns <= 55 * MS
        assert cost.estimate_ns < 80 * MS


def test_a_small_piece_says_nothing_of_a_mib() -> None:
    cost = Cost(FETCH_NS)
    cost.note(1, 10 * MS)  # As 64 KiB: 160 ms for a MiB, not three hours.
    assert cost.cost_ns < 2 * 160 * MS


@pytest.mark.parametrize("seed", range(5))
def test_a_share_is_told_to_a_tenth(seed: int) -> None:
    """Never too low, and at most by a doubling's eighth too high."""
    chance, often = random.Random(seed), Often()
    values = sorted(int(chance.expovariate(1 / (3 * MS))) + 1 for _ in range(5000))
    for value in values:
        often.note(value)
    for per_mille in (500, 950, 990, 999):
        exact = values[len(values) * per_mille // 1000 - 1]
        assert exact <= often.below(per_mille) <= exact * 1.2


def test_of_few_samples_the_largest_counts_and_of_none_nothing() -> None:
    often = Often()
    assert often.below(999) == 0
    often.note(7 * MS)
    often.note(MS)
    assert 7 * MS <= often.below(990) <= 8 * MS


def test_what_is_old_fades() -> None:
    """A loop that stood still an hour ago does not raise the base for ever."""
    often = Often()
    for _ in range(200):
        often.note(900 * MS)
    for _ in range(100_000):
        often.note(MS)
    assert often.below(999) < 2 * MS


@pytest.mark.parametrize(
    ("stall_ms", "trip_ms", "sync_ms", "base_ms", "binds"),
    [
        (0, 0, 0, BASE_MS_MIN, "floor"),
        (40, 1, 1, 400, "stall"),
        (1, 10, 21, 650, "round_trip_and_sync"),
        (3000, 0, 0, BASE_MS_MAX, "cap"),
    ],
)
def test_the_base_follows_its_largest_term(
    stall_ms: int, trip_ms: int, sync_ms: int, base_ms: int, binds: str
) -> None:
    """10 x stall, 20 x (round trip + sync), 150 ms; of the slowest member, whoever that is."""
    slow = Measured(stall_ns=stall_ms * MS, sync_ns=sync_ms * MS)
    advice = advise([Measured(), slow, Measured(round_trip_ns=trip_ms * MS)], CAP)
    assert (advice.base_ms, advice.base_binds) == (base_ms, binds)


def test_the_log_worth_keeping_is_rate_and_time() -> None:
    """2 x rate x what the slowest member needs for the state; between the floor and what is allowed."""
    quick = Measured(
        snapshot_bytes=100 * MIB, log_bytes_per_s=4 * MIB, fetch_ns=10 * MS, fetch_deviation_ns=0
    )
    quick = quick._replace(load_ns=10 * MS, load_deviation_ns=0)
    slow = quick._replace(fetch_ns=30 * MS, log_bytes_per_s=0)
    advice = advise([quick, slow], CAP)
    assert advice.catch_up_s == pytest.approx(100 * 0.04)
    assert advice.log_bytes == pytest.approx(2 * 4 * MIB * 4, abs=1)
    assert (advice.log_kept_bytes, advice.log_binds) == (advice.log_bytes, "rate and time")
    assert advise([quick], 1 << 20).log_kept_bytes == 1 << 20
    assert advise([quick], 1 << 20).log_binds == "cap"
    assert advise([Measured()], CAP).log_kept_bytes == RETAINED_BYTES_LEAST
    assert advise([], 0).log_kept_bytes == 0


def test_what_if_takes_the_place_of_what_was_measured() -> None:
    advice = advise([Measured()], CAP, state_bytes=1000 * MIB, log_bytes_per_s=MIB)
    assert advice.catch_up_s == pytest.approx(1000 * (5 * 50 + 5 * 20) / 1000)
    assert advice.log_binds == "cap" and advice.log_s == pytest.approx(64)


def test_what_another_build_measures_more_is_passed_over() -> None:
    """P10.8: fields by name; what is missing is as it is assumed."""
    told = (("sync_ns", 5), ("of_the_next_build", 3))
    assert Measured.of(told) == Measured(sync_ns=5)
    assert Measured.of(Measured(loads=3).told()) == Measured(loads=3)
    assert Measured.of(()) == Measured()


# --- What is compared with what ----------------------------------------------------------------------------


def measured(measuring: Measuring) -> Measured:
    return measuring.measured(0, None)


def test_a_turn_is_late_behind_what_was_due_and_not_behind_what_came() -> None:
    measuring = Measuring(0)
    measuring.turn(5 * MS, None)
    measuring.turn(5 * MS, 9 * MS)  # Something arrived before.
    assert measured(measuring).stalls == 0
    measuring.turn(30 * MS, 9 * MS)
    assert measured(measuring).stalls == 1
    assert 21 * MS <= measured(measuring).stall_ns <= 24 * MS


def test_a_sync_lasts_from_its_record_to_its_durability() -> None:
    measuring = Measuring(0)
    measuring.persist(0, 1, 132)
    measuring.persist(2 * MS, 2, 0)
    measuring.durable(10 * MS, 2)
    assert measured(measuring).syncs == 2
    assert 10 * MS <= measured(measuring).sync_ns <= 11 * MS


def test_a_round_trip_is_of_this_leaderships_rounds() -> None:
    """Rounds of the next leadership bear the same numbers: an answer of long ago is no round trip of theirs."""
    measuring = Measuring(0)
    measuring.sent(0, Heartbeat(0, 1))
    measuring.sent(3 * MS, Heartbeat(0, 1))  # To the next member, in the same round.
    measuring.heard(4 * MS, HeartbeatReply(1, 0, False))
    assert measured(measuring).round_trips == 1
    assert measured(measuring).round_trip_ns >= 4 * MS
    measuring.lost_leadership()
    measuring.heard(9000 * MS, HeartbeatReply(1, 0, False))
    assert measured(measuring).round_trips == 1


def test_the_rate_is_of_seconds_in_which_something_was_written() -> None:
    """An idle night does not make the log short."""
    measuring = Measuring(0)
    for second in (0, 1, 2, 3600, 3601):
        measuring.persist(second * 1000 * MS + 1000 * MS, second + 1, 10_000)
    assert measured(measuring).log_seconds == 4
    assert 10_000 <= measured(measuring).log_bytes_per_s <= 11_000


def test_a_load_is_measured_where_it_began_here() -> None:
    measuring = Measuring(0)
    measuring.loaded(5 * MS, MIB)  # Of a start: nobody saw its beginning.
    assert measured(measuring).loads == 0
    measuring.load_began(0)
    measuring.loaded(400 * MS, 2 * MIB)
    assert measured(measuring).loads == 1
    assert measured(measuring).load_ns > 20 * MS
