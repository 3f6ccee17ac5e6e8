"""What the commands of operators have in common: which cluster, how long, what an error and an answer look like.

Decides the arguments that each of them takes, and the exit status: 1 for what is refused or not so. What a command does
is its own file's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from embedbk.client.address import endpoints_of, is_address
from embedbk.client.beginning import holds_log
from embedbk.errors import EmbedbkError, UsageError
from embedbk.quorum import Quorum, listened_at

__all__ = ["Commands", "Run", "Said", "endpoints_at"]

AT_VARIABLE = "EMBEDBK_CLUSTER"


class Said(NamedTuple):
    """What a command tells: for programs, and for people; and its exit status."""

    data: dict[str, Any]
    text: str
    code: int = 0


# Of the cluster that --at names, if the command asks for it.
Run = Callable[[Callable[[], Quorum], argparse.Namespace], Said]


class Commands:
    """Those of one noun."""

    def __init__(self, noun: str, description: str) -> None:
        self._prog = f"embedbk {noun}"
        self._parser = argparse.ArgumentParser(prog=self._prog, description=description, allow_abbrev=False)
        self._commands = self._parser.add_subparsers(required=True, metavar="COMMAND")

    def add(self, name: str, run: Run, text: str, *, is_at: bool = True) -> argparse.ArgumentParser:
        """is_at: it is about a cluster that runs."""
        made = self._commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(run=run)
        add = made.add_argument
        if is_at:
            add(
                "--at",
                metavar="CLUSTER",
                default=os.environ.get(AT_VARIABLE),
                help=f"a cluster's directory, or the address of any member (default: ${AT_VARIABLE})",
            )
        add("--json", action="store_true", help="JSON on standard output")
        add("--timeout-s", type=float, default=30.0, help="for the whole command (default: 30)")
        add(
            "--allow-non-loopback",
            action="store_true",
            help="links are not encrypted: on a trusted network only",
        )
        return made

    def run(self, arguments: Sequence[str]) -> int:
        options = self._parser.parse_args(arguments)
        try:
            said: Said = options.run(
                lambda: Quorum(endpoints_at(options.at), options.timeout_s, options.allow_non_loopback),
                options,
            )
        except EmbedbkError as refused:
            if options.json:
                error = {"error": type(refused).__name__, "message": refused.args[0], "hint": refused.hint}
                print(json.dumps(error))
            print(f"{self._prog}: {refused}", file=sys.stderr)
            return 1
        print(json.dumps(said.data, indent=2) if options.json else said.text)
        return said.code


def endpoints_at(at: str | None) -> list[str]:
    if not at:
        raise UsageError(
            "which cluster? no --at was given",
            hint=f"--at embedbk://HOST:PORT, or --at DIRECTORY, or set {AT_VARIABLE} to one of them",
        )
    if is_address(at):
        return endpoints_of(at)
    endpoints = listened_at(Path(at))
    if not endpoints and holds_log(Path(at) / "metadata"):
        raise UsageError(
            f"--at {at}: nobody reaches its metadata member from another process: it is embedded, and was opened "
            "without listen=, or is not open",
            hint='in the process that has it open: client.listen("tcp://127.0.0.1:0"); else open it with listen=',
        )
    if not endpoints:
        raise UsageError(
            f"--at {at}: no metadata member listened from this directory",
            hint="give the directory of a Cluster or of a member, or an address: embedbk://HOST:PORT",
        )
    return endpoints
