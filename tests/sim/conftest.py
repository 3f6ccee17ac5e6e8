"""Seeds: a small number in the ordinary run, as many as asked for by `--seeds`."""

from __future__ import annotations

import pytest

SEEDS = 40


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=SEEDS, help="seeds of each whole-cluster test under tests/sim"
    )
    parser.addoption("--first-seed", type=int, default=0, help="where the seeds begin")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--first-seed")
        metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("--seeds")))
