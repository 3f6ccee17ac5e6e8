from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--member-faults", type=int, default=2, help="leaders killed and stopped under two clients"
    )
    parser.addoption(
        "--quiet-minutes",
        type=float,
        default=0.0,
        help="metadata members at half of their load, in which nobody else may be elected; 30",
    )
    parser.addoption(
        "--beside-etcd", action="store_true", help="the wiped disk in every start order, and etcd's too"
    )
