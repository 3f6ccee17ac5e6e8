from __future__ import annotations

import pytest

from tests.campaigns import add_flag


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--member-faults", 2, "leaders killed and stopped under two clients")
    add_flag(
        parser,
        "--quiet-minutes",
        0.0,
        "metadata members at half of their load, in which nobody else may be elected; 30",
    )
    add_flag(parser, "--beside-etcd", False, "the wiped disk in every start order, and etcd's too")
