"""How long the histories are, and of which seed."""

from __future__ import annotations

from pathlib import Path

import pytest

SETTLES_S = 1800.0  # Beside the load: for a start, for what heals, and for the check, on a busy machine.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--history-minutes",
        type=float,
        default=1.0,
        help="load and faults of tests/histories; 10: then all must have happened that it is for",
    )
    parser.addoption("--history-seed", type=int, default=1, help="of the faults and of what processes do")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The limit of a test here follows the load that it was told."""
    limit_s = 60 * config.getoption("--history-minutes") + SETTLES_S
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(limit_s))
