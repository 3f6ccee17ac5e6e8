"""What the commands about a cluster have in common: which cluster, how long, what an error and an answer look like.

Decides the arguments that each of them takes, how a cluster is reached, and the exit status 1, for refused or no. Each
command has its own file.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from embedbk.client.address import endpoints_of, is_address, url_of
from embedbk.client.beginning import check_path, holds_log
from embedbk.client.client import Client
from embedbk.client.knocking import knock
from embedbk.client.opening import open_client
from embedbk.config import Settings
from embedbk.errors import EmbedbkError, StorageError, UsageError
from embedbk.quorum import ENDPOINTS_FILE, Quorum, listened_at
from embedbk.storage.identity import OWNER_FILE

__all__ = [
    "CommandResult",
    "Commands",
    "Reach",
    "Run",
    "client_of",
    "endpoints_at",
    "quorum_of",
]

AT_VARIABLE = "EMBEDBK_CLUSTER"
LOCK_FILE = "LOCK"  # A journal has this file, and its member's process holds it.
KNOCK_S = 10.0  # Time for the process that has a directory to answer; its loop may be busy.


class CommandResult(NamedTuple):
    """The result of a command: for programs, and for people; and its exit status. None: it has printed all itself."""

    data: dict[str, Any] | None
    text: str = ""
    code: int = 0


# Arguments for the cluster that --at names: its members, or a client of it.
Reach = Callable[[argparse.Namespace], Any]
# The command reaches the cluster when it needs it.
Run = Callable[[Callable[[], Any], argparse.Namespace], CommandResult]


def quorum_of(options: argparse.Namespace) -> Quorum:
    """The metadata members, without a session."""
    return Quorum(endpoints_at(options.at), options.timeout_s, options.allow_non_loopback)


def client_of(options: argparse.Namespace) -> Client:
    """A client, to be closed. A directory is reached through the process that has it, or through those of the members
    in it; one that no process has is opened in this one, and nothing is made there."""
    settings = Settings(
        operation_timeout_s=options.timeout_s,
        open_timeout_s=options.timeout_s,
        allow_non_loopback=options.allow_non_loopback,
    )
    at = _given(options.at)
    if is_address(at):
        return open_client(at, settings=settings)
    path = check_path(at)
    if not holds_log(path / "metadata"):
        return open_client(url_of(endpoints_at(at)), settings=settings)
    url = _knocked(path)
    if not url and (served := _served_at(path)):
        url = url_of(served)
    return open_client(url or path, settings=settings, create=False)


class Commands:
    """The commands of one noun."""

    def __init__(self, noun: str, description: str) -> None:
        self._prog = f"embedbk {noun}"
        self._parser = argparse.ArgumentParser(prog=self._prog, description=description, allow_abbrev=False)
        self._commands = self._parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        self, name: str, run: Run, text: str, *, is_at: bool = True, reach: Reach = quorum_of
    ) -> argparse.ArgumentParser:
        """is_at: the command is about a cluster. reach: the function that reaches it."""
        made = self._commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(run=run, reach=reach)
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
            said: CommandResult = options.run(lambda: options.reach(options), options)
            if said.data is not None:
                print(json.dumps(said.data, indent=2) if options.json else said.text)
        except EmbedbkError as refused:
            if options.json:
                error = {"error": type(refused).__name__, "message": refused.args[0], "hint": refused.hint}
                print(json.dumps(error))
            print(f"{self._prog}: {refused}", file=sys.stderr)
            return 1
        return said.code


def _given(at: str | None) -> str:
    if not at:
        raise UsageError(
            "which cluster? no --at was given",
            hint=f"--at embedbk://HOST:PORT, or --at DIRECTORY, or set {AT_VARIABLE} to one of them",
        )
    return at


def _knocked(path: Path) -> str:
    """The address of the embedded cluster that a process has open there; empty: no process answers."""
    try:
        return knock(path, KNOCK_S)
    except StorageError:
        return ""  # Opening the directory fails if another process has it.


def _served_at(path: Path) -> list[str]:
    """Where those members listen that live in this directory and have processes of their own, as a Cluster's."""
    if _is_held(path / OWNER_FILE):
        return []  # One process has all of it, and did not answer.
    homes = [each.parent for each in sorted(path.glob(f"*/{ENDPOINTS_FILE}"))]
    return [where for home in homes if _is_held(home / LOCK_FILE) for where in listened_at(home)]


def _is_held(lock: Path) -> bool:
    """Whether a process has locked this file. It is locked here for a moment."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # Opening the directory says what is wrong.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def endpoints_at(at: str | None) -> list[str]:
    at = _given(at)
    if is_address(at):
        return endpoints_of(at)
    url = _knocked(Path(at))
    if url:
        return endpoints_of(url)
    endpoints = listened_at(Path(at))
    if not endpoints and holds_log(Path(at) / "metadata"):
        raise UsageError(
            f"--at {at}: its metadata member is embedded, and no process that has it open answers",
            hint='open it, with listen="tcp://127.0.0.1:0" for other users and machines',
        )
    if not endpoints:
        raise UsageError(
            f"--at {at}: no metadata member listened from this directory",
            hint="give the directory of a Cluster or of a member, or an address: embedbk://HOST:PORT",
        )
    return endpoints
