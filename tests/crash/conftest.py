"""How long the campaigns of this folder are."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-cycles", type=int, default=20, help="cycles of SIGKILL in tests/crash")
