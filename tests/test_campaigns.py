"""A campaign takes as long as its flag says: the ten minutes of a test (pyproject.toml) are for what every run has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns import LIMIT_S

ROOT = Path(__file__).parents[1]
COLLECT = """
import sys
import pytest

class Show:
    def pytest_collection_finish(self, session):
        for item in session.items:
            mark = item.get_closest_marker("timeout")
            print("limit", mark.args[0] if mark is not None else "usual")

sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Show()]))
"""


def limits(*arguments: str) -> set[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    told = subprocess.run(
        [sys.executable, "-c", COLLECT, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return {line.split()[1] for line in told.stdout.splitlines() if line.startswith("limit ")}


@pytest.mark.parametrize(
    ("where", "flags"),
    [
        ("tests/cluster/test_quiet_members.py", ["--quiet-minutes", "30"]),
        ("tests/quorum/test_free_messages.py", ["--free-messages", "10000000"]),
        ("tests/quorum/test_free_messages.py", ["--quorum-worlds"]),
    ],
)
def test_a_flag_that_makes_tests_long_lifts_their_limit(where: str, flags: list[str]) -> None:
    """Thirty quiet minutes ended behind ten, by the limit for hangs, and were never seen."""
    assert limits(where) == {"usual"}
    assert limits(where, *flags) == {str(LIMIT_S)}


def test_every_flag_of_a_folder_is_known_as_one() -> None:
    """tests/histories says itself how long its test may take."""
    own = {
        path.parent.name
        for path in ROOT.glob("tests/*/conftest.py")
        if ".addoption(" in path.read_text("utf-8")
    }
    assert own == {"histories"}
