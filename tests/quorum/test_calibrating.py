"""What `embedbk quorum status` says of what members measured, and `--what-if` (RAFT.md, 8)."""

from __future__ import annotations

import math

import msgspec
import pytest

from embedbk.cli.calibrating import base_of, calibration_as_json, calibration_as_text, wanted_base, what_if_of
from embedbk.codec.quorum_messages import BaseTold, ChangeBase, MemberName, QuorumTold
from embedbk.errors import UsageError
from embedbk.metadata.calibration import Measured
from embedbk.quorum import Quorum
from tests.quorum.test_room import OLDER

MS = 1_000_000


def told(**measured: int) -> QuorumTold:
    return msgspec.structs.replace(OLDER, measured=Measured(**measured).told())


def of(status: QuorumTold) -> dict[MemberName, QuorumTold]:
    return {status.member: status}


def test_every_number_is_shown_with_what_it_was_made_of() -> None:
    """11: all shown with their inputs."""
    status = of(
        told(stall_ns=30 * MS, stalls=7, sync_ns=2 * MS, round_trip_ns=MS, snapshot_bytes=1 << 20, fetches=3)
    )
    base, time, log = calibration_as_text(status, OLDER, None)
    assert "500 ms; 300 ms suits" in base and "stalls 300" in base and "round trip and sync 60" in base
    assert "7 turns" in base
    assert "1.0 MiB takes a 0.3 s" in time and "3 samples" in time and "assumed" in time
    assert "16.0 MiB are kept (floor)" in log
    shown = calibration_as_json(status, OLDER, None)
    assert shown["election_base_ms"] == {
        "in_force": 500,
        "is_fixed": False,
        "changed_at": None,
        "changed_by": None,
        "changed_for": None,
        "would_be": None,
        "would_be_for": None,
        "stays_for": None,
        "suits": 300,
        "terms": {"stall": 300, "round_trip_and_sync": 60, "floor": 150},
        "binds": "stall",
    }
    assert shown["measured"]["a"]["stalls"] == 7


def test_of_members_that_measure_nothing_nothing_is_said() -> None:
    """P10.8: all are of the build before."""
    assert calibration_as_text(of(OLDER), OLDER, None) == []
    assert calibration_as_json(of(OLDER), OLDER, None)["measured"] == {}


def test_a_supposed_record_is_not_made() -> None:
    """Of any size: it takes no memory here."""
    what_if = what_if_of(["rate=1", "record=1T"])
    assert what_if is not None and what_if.log_bytes_per_s == 10**12 + 32


@pytest.mark.parametrize("timeout_s", [math.nan, math.inf])
def test_a_time_out_that_is_no_time_is_refused(timeout_s: float) -> None:
    """Bad input: of --timeout-s."""
    with pytest.raises(UsageError, match="a number of seconds is wanted"):
        Quorum(["tcp://127.0.0.1:1"], timeout_s)


def test_what_if_tells_memory_time_and_log() -> None:
    what_if = what_if_of(["ledgers=5M", "rate=2k/s"])
    lines = "\n".join(calibration_as_text(of(told()), OLDER, what_if))
    assert "5000000 ledgers take 2.0 GiB" in lines
    assert "1.2 GiB takes a 417.2 s" in lines
    assert "64.0 MiB are kept (cap): a member that is away for more than" in lines
    what_if = what_if_of(["bytes=1.5G"])
    assert what_if is not None and what_if.state_bytes == 1_500_000_000 and what_if.log_bytes_per_s is None
    assert what_if_of([]) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["ledger=5"],
        ["ledgers"],
        ["ledgers=five"],
        ["ledgers=-1"],
        ["rate=1", "rate=2"],
        ["ledgers=1", "bytes=1"],
        ["bytes=" + 400 * "9"],
    ],
)
def test_what_nobody_can_suppose_is_refused(arguments: list[str]) -> None:
    """Bad input: what was given, what is allowed."""
    with pytest.raises(UsageError, match="what-if"):
        what_if_of(arguments)


def test_a_base_that_an_operator_fixed_is_shown_beside_what_would_be() -> None:
    """RAFT.md, 8: every fixed override an operator sets is listed next to the value the estimator would use."""
    fixed = BaseTold(
        True, 1_767_225_600_000, "an operator", "it is fixed", 900, "10 x a stall of 90 ms of b", "fixed"
    )
    status = msgspec.structs.replace(told(), election_base_ms=2000, base=fixed)
    base = calibration_as_text(of(status), status, None)[0]
    assert "2000 ms, by an operator since 2026-01-01T00:00:00+00:00 (it is fixed)" in base
    assert "measured 900 ms (10 x a stall of 90 ms of b), but it stays: fixed" in base
    shown = calibration_as_json(of(status), status, None)["election_base_ms"]
    assert (shown["is_fixed"], shown["would_be"], shown["changed_by"]) == (True, 900, "an operator")


def test_an_operator_says_a_base_as_a_time() -> None:
    """Bad input: what was given, what is allowed; an older leader is named."""
    assert [base_of(said) for said in ("auto", "800ms", "2s", "0.5s")] == [0, 800, 2000, 500]
    for wrong in ("", "2", "149ms", "11s", "-1s", "soon"):
        with pytest.raises(UsageError, match="election-base"):
            base_of(wrong)
    leader = msgspec.structs.replace(OLDER, base=BaseTold(), election_base_ms=500)
    assert wanted_base(leader, 0) is None
    assert wanted_base(leader, 500) == ChangeBase(OLDER.configuration, 500)
    fixed = msgspec.structs.replace(leader, base=BaseTold(True, 1, "an operator", ""))
    assert wanted_base(fixed, 500) is None
    assert wanted_base(fixed, 0) == ChangeBase(OLDER.configuration, 0)
    with pytest.raises(UsageError, match="of a build that changes no election base"):
        wanted_base(OLDER, 500)
