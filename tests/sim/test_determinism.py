"""S1: the same seed gives the same bytes, in another process, with another hash seed, and without assertions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SEEDS = 8
# Its limit is of CPU time: on a busy machine the same work takes any other time.
PRINT_DIGESTS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (200, 200))
from embedbk.testing.campaign import run_seed
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(seed, run_seed(seed)["digest"])
"""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", [0, 25])
def test_the_same_seed_gives_the_same_trace_in_two_processes(first: int) -> None:
    """Eight seeds each: every body with its time, sender and receiver, and every note, in order. One of the two runs
    has its assertions off: an assertion states a fact, and nothing happens by it."""
    traces = []
    for hash_seed, switches in (("1", ()), ("12345", ("-O",))):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(PROJECT)}
        traces.append(
            subprocess.run(
                [sys.executable, *switches, "-c", PRINT_DIGESTS, str(first), str(first + SEEDS)],
                env=environment, capture_output=True, text=True, check=True,
            ).stdout
        )  # fmt: skip
    assert len(traces[0].splitlines()) == SEEDS
    assert traces[0] == traces[1]
