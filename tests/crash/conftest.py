"""How long the campaigns of this folder are."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-cycles", type=int, default=10, help="cycles of SIGKILL in tests/crash")
    parser.addoption("--every-byte", action="store_true", help="change every byte of a store of 16 MiB")
    parser.addoption(
        "--fuzz-inputs", type=int, default=100, help="inputs of chance for each reader in tests/crash"
    )
