"""Members under half of the load that they bear elect nobody else (RAFT.md, 4): by `--quiet-minutes` only."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks._metadata_load import MetadataLoad, put
from embedbk.cluster import Cluster
from embedbk.codec.metadata_messages import Result, TxnDone
from tests.cluster.test_members import PATIENT, status

pytestmark = pytest.mark.xdist_group("processes")

OUTSTANDING = 64
MEASURE_S = 5.0
VALUE = bytes(250)


class Paced:
    """Puts at a rate, whatever becomes of them; a put that finds as many under way as the load bears is left out."""

    def __init__(self, load: MetadataLoad, per_second: float) -> None:
        self._load, self._per_second = load, per_second
        self.asked = self.done = self.refused = self.left_out = self._under_way = 0
        self.longest_ms = 0.0

    def go_on_for(self, seconds: float) -> None:
        began = time.perf_counter()
        due = 0
        while (passed_s := time.perf_counter() - began) < seconds:
            while due < passed_s * self._per_second:
                due += 1
                if self._under_way < OUTSTANDING:
                    self._ask()
                else:
                    self.left_out += 1
            self._load.turn() if self._under_way else time.sleep(1 / self._per_second)
        while self._under_way:
            self._load.turn()

    def _ask(self) -> None:
        asked_s = time.perf_counter()

        def answered(_: int, result: Result) -> None:
            self._under_way -= 1
            is_done = isinstance(result, TxnDone) and result.is_done
            self.done, self.refused = self.done + is_done, self.refused + (not is_done)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - asked_s) * 1e3)

        self._under_way += 1
        self.asked += 1
        self._load.begin(0, put(self.asked, VALUE), answered)


def test_at_half_of_what_they_bear_nobody_else_is_elected(
    tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 12, figures: "0 spurious elections in 30 minutes at half load": three processes, each on its disk."""
    minutes = pytestconfig.getoption("--quiet-minutes")
    if not minutes:
        pytest.skip("takes as long as --quiet-minutes says")
    with Cluster(tmp_path / "data", bookies=1, members=3, settings=PATIENT) as cluster:
        leader = cluster.leader()
        endpoints = [each for name in cluster.members for each in cluster.processes[name].endpoints]
        with MetadataLoad(endpoints, OUTSTANDING) as load:
            load.rate(put, 1.0, VALUE)
            full = load.rate(put, MEASURE_S, VALUE)
            before = status(cluster.url)
            paced = Paced(load, full / 2)
            paced.go_on_for(60 * minutes)
            after = status(cluster.url)
    begun = after["term"] - before["term"]
    with capsys.disabled():
        print(
            f"\n{minutes:g} min at {paced.done / 60 / minutes:,.0f} puts/s, {full:,.0f} at {OUTSTANDING} outstanding: "
            f"{begun} terms begun, longest wait {paced.longest_ms:.0f} ms, {paced.refused} refused, "
            f"{paced.left_out} left out"
        )
    assert (begun, after["leader"]) == (0, before["leader"]) and before["leader"] == leader
    assert paced.refused == 0
