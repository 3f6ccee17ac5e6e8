"""`embedbk cluster rolling -- COMMAND {node}`: restart the nodes of a cluster one after another, with appends going on.

Decides what stands for `{node}` and `{kind}` in COMMAND, how it is run, and what is printed: a line for each step on
standard error, the outcome on standard output. `repair/restarting.py` decides the order and which nodes are whole
again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.cli import INTERRUPTED
from embedbk.cli.operators import CommandResult, Commands, Reach, client_of
from embedbk.client.client import Client
from embedbk.client.restarting import plan_now, restart_nodes
from embedbk.errors import UsageError
from embedbk.repair.restarting import RestartOptions, RestartPlan, RestartReport

__all__ = ["add_rolling", "split_command"]

SECOND = 1_000_000_000
STANDARD_ERROR = 2

_TEXT = """\
Run COMMAND once for each bookie and metadata member, one after another: wait until the node may stop (can-stop), let a
leader hand over, run COMMAND, wait until the node is whole again. COMMAND must stop the node, in good order (SIGTERM),
and start it again; it is run without a shell, {node} and {kind} (bookie, member, or both for one that is both) are
replaced in each of its words, and what it prints goes to standard error. Bookies go first, then members that follow,
and the leader last. A bookie is whole when it is registered by another start, and writable if it was; a member when
the leader hears another start of it, it votes if it did, and its log has what was committed when it came back.
Where COMMAND fails, or a node does not come back, the run ends there and touches nothing more; it may be begun again.
Exit status: 0 for done, 1 for refused or ended before, 130 for interrupted.
"""


def add_rolling(commands: Commands, command: Sequence[str], reach: Reach = client_of) -> None:
    """command: the words behind `--`."""
    made = commands.add("rolling", _rolling, "restart one node after another", reach=reach)
    made.description = _TEXT
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.usage = "embedbk cluster rolling [OPTION ...] -- COMMAND {node}"
    made.set_defaults(command=list(command))
    made.add_argument(
        "--dry", action="store_true", help="say the order, and who may not stop now; 0: all may"
    )
    made.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NODE",
        help="this one, also if it is away; may be repeated",
    )
    made.add_argument(
        "--wait-s", type=float, default=300.0, help="for a node to be allowed to stop (default: 300)"
    )
    made.add_argument(
        "--back-s",
        type=float,
        default=300.0,
        help="for COMMAND, and again for the node to be whole (default: 300); COMMAND is never ended",
    )
    made.add_argument(
        "--accept-outage",
        action="store_true",
        help="also the only voter of the metadata: nothing is created, opened or closed while it restarts",
    )


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before `--`, and the command behind it."""
    given = list(arguments)
    if given[:1] != ["rolling"] or "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]


def _rolling(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    if not options.dry:
        _check_command(options.command)
    for name in ("wait_s", "back_s"):
        if not 0 <= getattr(options, name) <= 1e6:
            raise UsageError(f"--{name.replace('_', '-')}: seconds from 0 to 1000000 are allowed")
    wanted = RestartOptions(
        int(options.wait_s * SECOND),
        int(options.back_s * SECOND),
        tuple(dict.fromkeys(options.only)),
        options.accept_outage,
    )
    with reach() as client:
        if options.dry:
            return _dry(plan_now(client, wanted))

        def run(name: str, kind: str, limit_s: float) -> str:
            return _run([_filled(word, name, kind) for word in options.command], limit_s)

        return _said(restart_nodes(client, run, wanted, _say))


def _check_command(command: Sequence[str]) -> None:
    if not command:
        raise UsageError(
            "no COMMAND; nothing was changed",
            hint="it stands behind --: embedbk cluster rolling --at CLUSTER -- systemctl restart embedbk-{node}",
        )
    if not any("{node}" in word for word in command):
        raise UsageError(
            f"COMMAND {' '.join(command)!r} has no {{node}}: it would do the same for each; nothing was changed",
            hint="write {node} where the name of the node stands",
        )


def _filled(word: str, name: str, kind: str) -> str:
    return word.replace("{node}", name).replace("{kind}", kind)


def _run(command: Sequence[str], limit_s: float) -> str:
    """Run the command; returns why it failed, empty: it did not."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=STANDARD_ERROR)
    except (OSError, ValueError) as refused:
        return f"{command[0]!r} cannot be run: {refused}"
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"COMMAND still runs after {limit_s:g} s, as process {process.pid}, and is left running"
    return f"COMMAND ended with {code}" if code else ""


def _say(name: str, text: str) -> None:
    print(f"{name}: {text}", file=sys.stderr, flush=True)


def _dry(plan: RestartPlan) -> CommandResult:
    not_now, skipped = dict(plan.not_now), dict(plan.skipped)
    nodes: list[dict[str, Any]] = [
        {"node": name, "reason": reason, "may_stop": name not in not_now, "why": not_now.get(name, "")}
        for name, reason in plan.order
    ]
    lines = [
        f"{number}. {name}: {reason}" + (f"; may not stop now: {not_now[name]}" if name in not_now else "")
        for number, (name, reason) in enumerate(plan.order, 1)
    ]
    lines += [f"left out: {name}: {why}" for name, why in plan.skipped]
    return CommandResult(
        {"order": nodes, "skipped": skipped}, "\n".join(lines) or "none", 1 if not_now or not nodes else 0
    )


def _said(report: RestartReport) -> CommandResult:
    data = {
        "is_done": report.is_done,
        "done": list(report.done),
        "failed": report.failed,
        "why": report.why,
        "hint": report.hint,
        "left": list(report.left),
        "skipped": dict(report.skipped),
    }
    lines = [f"restarted, and whole: {', '.join(report.done) or 'none'}"]
    if not report.is_done:
        lines += [f"ended at {report.failed}: {report.why}", report.hint]
        lines += [f"not touched: {', '.join(report.left)}"] if report.left else []
    lines += [f"left out: {name}: {why}" for name, why in report.skipped]
    code = INTERRUPTED if report.is_interrupted else 0 if report.is_done else 1
    return CommandResult(data, "\n".join(lines), code)
