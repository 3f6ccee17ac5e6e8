"""How long the campaigns of this folder are."""

from __future__ import annotations

import pytest

from tests.campaigns import add_flag


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--crash-seeds", 1, "crashes at each call in tests/storage")
