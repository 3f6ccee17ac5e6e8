"""Flags that make tests long, as `./run test tests/crash --kill-cycles 1000`: a campaign takes as long as it must."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["LIMIT_S", "add_flag", "is_campaign"]

LIMIT_S = 24 * 3600.0  # Of one test of a campaign, which a person starts and looks after.

_USUAL: dict[str, Any] = {}  # Flag -> its value in every run.


def add_flag(parser: pytest.Parser, flag: str, usual: bool | float, help: str) -> None:
    """usual: what every run has; False: the flag takes no value."""
    _USUAL[flag] = usual
    if usual is False:
        parser.addoption(flag, action="store_true", help=help)
    else:
        parser.addoption(flag, type=type(usual), default=usual, help=help)


def is_campaign(config: pytest.Config) -> bool:
    """Whether any of the flags asks for something else than every run has."""
    return any(config.getoption(flag) != usual for flag, usual in _USUAL.items())
