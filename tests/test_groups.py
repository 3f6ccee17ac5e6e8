"""Tests of one group run on one worker: they share a JVM, or must never run beside each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SIX = """
import os
import pathlib
import pytest

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(6))
def test_one(number):
    pathlib.Path(__file__).with_name(f"{number}.worker").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    """The installed pytest and xdist are asked, for where they do not fit each other, xdist spreads groups unsaid."""
    (tmp_path / "test_six.py").write_text(_SIX)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # So that the tree's own settings do not hold there.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n2", "--dist", "loadgroup"]
    ended = subprocess.run(
        [*command, "test_six.py"], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    workers = [path.read_text() for path in sorted(tmp_path.glob("*.worker"))]
    assert len(workers) == 6
    assert len(set(workers)) == 1, f"six tests of one group ran on {workers}"
