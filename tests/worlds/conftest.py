"""Flag of the small worlds: `./run test tests/worlds --worlds-full` explores them as far as a machine's memory goes."""

from __future__ import annotations

import pytest

from tests.campaigns import add_flag


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--worlds-full", False, "explore the large small worlds too")
    add_flag(parser, "--worlds-states", 3_000_000, "bound of each large world")
