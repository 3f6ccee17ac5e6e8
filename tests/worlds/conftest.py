"""Flag of the small worlds: `./run test tests/worlds --worlds-full` explores them as far as a machine's memory goes."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--worlds-full", action="store_true", help="explore the large small worlds too")
    parser.addoption("--worlds-states", type=int, default=3_000_000, help="bound of each large world")
