"""How long the campaigns of this folder are."""

from __future__ import annotations

import pytest

from tests.campaigns import add_flag


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--kill-cycles", 10, "cycles of SIGKILL in tests/crash")
    add_flag(parser, "--every-byte", False, "change every byte of a store of 16 MiB")
    add_flag(parser, "--fuzz-inputs", 100, "inputs of chance for each reader in tests/crash")
