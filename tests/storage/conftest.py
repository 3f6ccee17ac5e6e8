"""How long the campaigns of this folder are."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--crash-seeds", type=int, default=1, help="crashes at each call in tests/storage")
