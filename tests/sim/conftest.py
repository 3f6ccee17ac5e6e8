"""Seeds: a small number in the ordinary run, as many as asked for by `--seeds`."""

from __future__ import annotations

import pytest

from tests.campaigns import add_flag

SEEDS = 300
GROUP = 10  # Seeds of one test: a worker takes them together.


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--seeds", SEEDS, "seeds of whole clusters under tests/sim")
    add_flag(parser, "--first-seed", 0, "where the seeds begin")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        groups = [range(at, min(at + GROUP, first + count)) for at in range(first, first + count, GROUP)]
        metafunc.parametrize("seeds", groups, ids=[f"{group[0]}-{group[-1]}" for group in groups])
