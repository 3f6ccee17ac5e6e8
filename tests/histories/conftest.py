"""How long the histories are, and of which seed."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--history-minutes",
        type=float,
        default=1.0,
        help="load and faults of tests/histories; 10: then all must have happened that it is for",
    )
    parser.addoption("--history-seed", type=int, default=1, help="of the faults and of what processes do")
