"""Flags of the specification: `./run test tests/spec --spec-full` explores what takes minutes."""

from __future__ import annotations

import pytest

from tests.campaigns import add_flag


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--spec-full", False, "explore the specification's large worlds too")
    add_flag(parser, "--traces", 100, "traces of the simulator to check against the rules")
    add_flag(parser, "--quorum-traces", 12, "traces of each kind of worlds of metadata members")


@pytest.fixture
def full(request: pytest.FixtureRequest) -> None:
    """For tests that take minutes: only by flag."""
    if not request.config.getoption("--spec-full"):
        pytest.skip("minutes long: --spec-full")
