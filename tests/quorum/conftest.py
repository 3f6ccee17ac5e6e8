from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--wiped-seeds", type=int, default=24, help="worlds in which a metadata member is wiped")
    parser.addoption("--quorum-seeds", type=int, default=60, help="random worlds of several metadata members")
    parser.addoption("--whole-seeds", type=int, default=36, help="random worlds of whole metadata members")
    parser.addoption("--repair-marks", type=int, default=240, help="marks of the story of repairs; 10000")
    parser.addoption(
        "--partitions", type=int, default=40, help="graphs of links among five members, of 1,024"
    )
    parser.addoption(
        "--quorum-worlds", action="store_true", help="explore the larger small worlds of a quorum"
    )
    parser.addoption(
        "--free-messages", type=int, default=0, help="states of a small quorum with free messages; 10000000"
    )
