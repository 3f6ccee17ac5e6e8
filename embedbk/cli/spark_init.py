"""`embedbk spark init DIR --at CLUSTER --log LOG`: a project for Spark's Declarative Pipelines (spark/SPARK.md)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from embedbk.cli.operators import CommandResult, Commands, endpoints_at
from embedbk.client.address import url_of
from embedbk.spark.pipeline_project import run_command, write_project

__all__ = ["add_init"]


def add_init(commands: Commands) -> None:
    made = commands.add(
        "init",
        _init,
        "write a project for spark-pipelines, with a log as source and another one as sink",
        reach=_address_of,
    )
    made.add_argument("directory", type=Path, metavar="DIR")
    made.add_argument("--log", required=True, help="the log that is read")
    made.add_argument("--into", help="the log that is written (default: LOG-copy)")


def _address_of(options: argparse.Namespace) -> str:
    """The address by which Spark's workers, which are other processes, find the cluster."""
    return url_of(endpoints_at(options.at))


def _init(reach: Callable[[], str], options: argparse.Namespace) -> CommandResult:
    into = options.into or f"{options.log}-copy"
    directory = write_project(options.directory, reach(), options.log, into, sys.executable)
    what = f"{directory}: a pipeline from log {options.log} to log {into}"
    text = f"{what}\n  cd {directory}\n  {run_command(sys.executable)}"
    return CommandResult({"directory": str(directory), "log": options.log, "into": into}, text)
