"""Flags of the specification: `./run test tests/spec --spec-full` explores what takes minutes."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-full", action="store_true", help="explore the specification's large worlds too")
    parser.addoption(
        "--traces", type=int, default=100, help="traces of the simulator to check against the rules"
    )
    parser.addoption(
        "--quorum-traces", type=int, default=12, help="traces of each kind of worlds of metadata members"
    )


@pytest.fixture
def full(request: pytest.FixtureRequest) -> None:
    """For tests that take minutes: only by flag."""
    if not request.config.getoption("--spec-full"):
        pytest.skip("minutes long: --spec-full")
