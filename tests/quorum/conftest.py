from __future__ import annotations

import pytest

from tests.campaigns import add_flag


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flag(parser, "--wiped-seeds", 24, "worlds in which a metadata member is wiped")
    add_flag(parser, "--quorum-seeds", 60, "random worlds of several metadata members")
    add_flag(parser, "--whole-seeds", 36, "random worlds of whole metadata members")
    add_flag(parser, "--repair-marks", 240, "marks of the story of repairs; 10000")
    add_flag(parser, "--partitions", 40, "graphs of links among five members, of 1,024")
    add_flag(parser, "--quorum-worlds", False, "explore the larger small worlds of a quorum")
    add_flag(parser, "--free-messages", 0, "states of a small quorum with free messages; 10000000")
