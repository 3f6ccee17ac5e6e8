"""S1: the same seed gives the same bytes, in another process, with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PRINT_DIGESTS = """
import sys
from embedbk.testing.campaign import run_seed
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(seed, run_seed(seed)["digest"])
"""


@pytest.mark.parametrize("first", [0, 25])
def test_the_same_seed_gives_the_same_trace_in_two_processes(first: int) -> None:
    """25 seeds each: every body with its time, sender and receiver, and every note, in order."""
    traces = []
    for hash_seed in ("1", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(PROJECT)}
        traces.append(
            subprocess.run(
                [sys.executable, "-c", PRINT_DIGESTS, str(first), str(first + 25)],
                env=environment, capture_output=True, text=True, check=True, timeout=100,
            ).stdout
        )  # fmt: skip
    assert len(traces[0].splitlines()) == 25
    assert traces[0] == traces[1]
