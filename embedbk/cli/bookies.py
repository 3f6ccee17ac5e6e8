"""`embedbk bookie VERB --at CLUSTER` and `embedbk cluster VERB`: bookies, and taking them out of service.

Decides what is shown, how a drain's progress is printed, and the exit status: 0 for yes, done and empty.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.cli.restarting import add_rolling, split_command
from embedbk.client.bookie_reports import BookieReport
from embedbk.client.bookie_states import BookieState
from embedbk.client.client import Client
from embedbk.codec.registration import UNBOUNDED, ReadBounds
from embedbk.errors import UsageError
from embedbk.host.loop import utc_text

__all__ = ["run_bookies", "run_cluster", "state_text"]

LINES_MAX = 20
LOOK_S = 0.5  # Pause between two looks at a drain.
Reach = Callable[[], Client]


def run_bookies(arguments: Sequence[str]) -> int:
    commands = Commands("bookie", "The bookies of a cluster, and taking them out of service.")
    _add(commands, "list", _list, "all bookies: which take entries, which do not and why, which are away")
    _of_one(_add(commands, "show", _show, "one bookie, the ledgers that name it, and what each waits for"))
    made = _of_one(_add(commands, "drain", _drain, "move what it has to others, while it goes on serving"))
    made.add_argument("--cancel", action="store_true", help="it takes new ledgers again")
    made.add_argument("--why", default="", help="is shown to others")
    made.add_argument(
        "--wait-s",
        type=float,
        default=0.0,
        help="until nothing names it, at most so long; progress on standard error",
    )
    made = _of_one(
        _add(
            commands,
            "read-only",
            _read_only,
            "let it take no new ledgers and seats while it serves on what it has, open ledgers too, and keeps it; by a "
            "word in the metadata, from anywhere. (embedbk storage read-only puts a word into the directory of a "
            "bookie on this machine: it then refuses all normal adds, and open ledgers leave it)",
        )
    )
    made.add_argument("--off", action="store_true", help="it takes new ledgers again, unless it is drained")
    made.add_argument(
        "--force",
        action="store_true",
        help="also if fewer others take entries than open ledgers, and next ones of logs, have seats",
    )
    made.add_argument("--why", default="", help="is shown to others; needed without --off")
    made = _of_one(
        _add(
            commands,
            "reads",
            _reads,
            "how many bytes per second it reads for each class of reads; the newest entries are bounded by nothing",
        )
    )
    for name, text in (
        ("--catch-up", "for readers that go forward through many entries"),
        ("--batch", "for jobs, such as Spark's"),
        ("--upkeep", "for repair and scrubs"),
    ):
        made.add_argument(name, type=int, metavar="BYTES", help=f"{text}; 0: as fast as it goes")
    made = _of_one(
        _add(
            commands,
            "decommission",
            _decommission,
            "forget one that no ledger names and that is drained or away",
        )
    )
    made.add_argument("--why", default="", help="is shown to others")
    made.add_argument("--yes", action="store_true", help="do not ask for its id")
    for name, run, text in (
        ("replace", _replace, "one that is away has new disks: empty directories may take its place"),
        (
            "gone",
            _gone,
            "the directories of one that is away are gone for good, and are refused if they come back",
        ),
    ):
        made = _of_one(_add(commands, name, run, text))
        made.add_argument("--why", required=run is _gone, default="", help="is shown to others")
        made.add_argument("--yes", action="store_true", help="do not ask for its id")
        made.add_argument(
            "--accept-loss",
            action="store_true",
            help="also where nobody else who is there has a copy of a ledger",
        )
    made.add_argument("--incarnation", required=True, metavar="HEX", help="as embedbk bookie show says")
    return commands.run(arguments)


def run_cluster(arguments: Sequence[str]) -> int:
    commands = Commands("cluster", "A cluster as a whole.")
    made = _add(commands, "can-stop", _can_stop, "whether these bookies and members may stop at once; 0: yes")
    made.add_argument("nodes", nargs="+", metavar="NODE")
    made.add_argument("--for-good", action="store_true", help="whether they may be lost, with their disks")
    given, command = split_command(arguments)
    add_rolling(commands, command)
    return commands.run(given)


def _add(
    commands: Commands, name: str, run: Callable[[Reach, argparse.Namespace], CommandResult], text: str
) -> argparse.ArgumentParser:
    return commands.add(name, run, text, reach=client_of)


def _of_one(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    made.add_argument("id", metavar="ID", help="of the bookie")
    return made


def _list(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        states = client.bookies()
    return CommandResult(
        {"bookies": [each._asdict() for each in states]}, "\n".join(map(state_text, states)) or "none"
    )


def _show(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        report = client.bookie(options.id)
    return CommandResult(_data(report), _text(report))


def _drain(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        if options.cancel:
            client.cancel_drain(options.id, options.why)
            return CommandResult(
                {"bookie": options.id, "draining": False}, f"bookie {options.id} takes new ledgers again"
            )
        report = client.drain_bookie(options.id, options.why)
        until, told = time.monotonic() + options.wait_s, -1
        while not report.is_empty and time.monotonic() < until:
            if report.ledger_count != told:
                told = report.ledger_count
                print(f"{told} ledgers left", file=sys.stderr)
            time.sleep(LOOK_S)
            report = client.bookie(options.id)
    return CommandResult(_data(report), _text(report), 0 if report.is_empty or not options.wait_s else 1)


def _read_only(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        if options.off:
            report = client.end_read_only(options.id)
        else:
            report = client.put_to_read_only(options.id, options.why, force=options.force)
    # The first line is what the bookie listed itself as before it saw that.
    later = "its list of itself follows within seconds, where it runs"
    return CommandResult(_data(report), f"{_text(report)}\n{later}")


def _reads(reach: Reach, options: argparse.Namespace) -> CommandResult:
    wanted = {"catch_up": options.catch_up, "batch": options.batch, "upkeep": options.upkeep}
    with reach() as client:
        if all(each is None for each in wanted.values()):
            report = client.bookie(options.id)
        else:
            report = client.bound_reads(options.id, **wanted)
    bounds = msgspec.structs.asdict(report.read_bounds)
    return CommandResult({"bookie": options.id, **bounds}, _bounds_text(report.read_bounds))


def _bounds_text(bounds: ReadBounds) -> str:
    told = (("catch-up", bounds.catch_up), ("batch", bounds.batch), ("repair and scrubs", bounds.upkeep))
    said = f", since {_when(bounds.since_ms)} by {bounds.by}" if bounds.since_ms else ""
    return "reads: " + ", ".join(f"{name} {_rate(bound)}" for name, bound in told) + said


def _rate(bytes_per_s: int) -> str:
    return f"{bytes_per_s} bytes/s" if bytes_per_s else "as fast as it goes"


def _decommission(reach: Reach, options: argparse.Namespace) -> CommandResult:
    _confirm(options, f"the cluster forgets bookie {options.id} for good")
    with reach() as client:
        client.decommission_bookie(options.id, options.why)
    text = f"bookie {options.id} is decommissioned; its directories may be removed"
    return CommandResult({"bookie": options.id, "decommissioned": True}, text)


def _replace(reach: Reach, options: argparse.Namespace) -> CommandResult:
    _confirm(options, f"the old directories of bookie {options.id} never come back")
    with reach() as client:
        gone = client.replace_bookie(options.id, options.why, accepts_loss=options.accept_loss)
    text = f"bookie {options.id} may be started in empty directories; {gone} is refused from now on"
    return CommandResult({"bookie": options.id, "retired": gone}, text)


def _gone(reach: Reach, options: argparse.Namespace) -> CommandResult:
    _confirm(options, f"incarnation {options.incarnation} of bookie {options.id} never comes back")
    with reach() as client:
        client.give_up_bookie(options.id, options.incarnation, options.why, accepts_loss=options.accept_loss)
    text = f"incarnation {options.incarnation} of bookie {options.id} is refused from now on"
    return CommandResult({"bookie": options.id, "retired": options.incarnation}, text)


def _confirm(options: argparse.Namespace, what: str) -> None:
    """Ask for the bookie's id, as what follows cannot be taken back."""
    if options.yes:
        return
    print(f"{what}; type its id: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != options.id:
        raise UsageError("that is not its id; nothing was changed", hint="or say --yes")


def _can_stop(reach: Reach, options: argparse.Namespace) -> CommandResult:
    nodes = list(dict.fromkeys(options.nodes))
    with reach() as client:
        verdict = client.can_i_lose(nodes) if options.for_good else client.can_i_stop(*nodes)
    return CommandResult(verdict._asdict(), str(verdict), 0 if verdict.is_safe else 1)


def _data(report: BookieReport) -> dict[str, Any]:
    return {
        **report._asdict(),
        "bookie": report.bookie._asdict(),
        "ledgers": [each._asdict() for each in report.ledgers],
        "read_only": msgspec.structs.asdict(report.read_only) if report.read_only is not None else None,
        "read_bounds": msgspec.structs.asdict(report.read_bounds),
        "is_empty": report.is_empty,
    }


def state_text(each: BookieState) -> str:
    """One line for people."""
    why = f" ({each.why})" if each.why else ""
    where = f", at {', '.join(each.endpoints)}" if each.endpoints else ""
    place = f", in {each.location}" if each.location else ""
    space = f", {each.free_bytes / 2**30:.1f} GiB free" if each.free_bytes else ""
    dark = f"; {_dark(each)}" if each.dark_logs else ""
    return f"{each.bookie_id}: {each.state}{why}{where}{place}{space}{dark}"


def _dark(each: BookieState) -> str:
    logs = "1 entry log hides" if each.dark_logs == 1 else f"{each.dark_logs} entry logs hide"
    return (
        f"{logs} something from it, so that it denies no entry (its log says whether it still looks; if not: embedbk "
        f"bookie drain {each.bookie_id}, then decommission)"
    )


def _when(unix_ms: int) -> str:
    return utc_text(unix_ms)


def _text(report: BookieReport) -> str:
    bound = f"; incarnation {report.incarnation}" if report.incarnation else ""
    lines = [state_text(report.bookie) + bound]
    if report.is_draining:
        why = f": {report.why}" if report.why else ""
        lines.append(f"drained since {_when(report.since_ms)} by {report.by}{why}")
    if report.read_only is not None:
        word = report.read_only
        lines.append(f"read-only since {_when(word.since_ms)} by {word.by}: {word.why}")
    if report.read_bounds != UNBOUNDED:
        lines.append(_bounds_text(report.read_bounds))
    lines.append(f"{report.ledger_count} ledgers name it" if report.ledger_count else "no ledger names it")
    for each in report.ledgers[:LINES_MAX]:
        last = "; nobody else with copies is there" if each.is_last else ""
        waits = f": {each.waits_for}" if report.is_draining or not each.fragments else ""
        lines.append(f"  ledger {each.ledger_id}, {each.state}, {each.fragments} fragments{waits}{last}")
    if report.ledger_count > LINES_MAX:
        lines.append(f"  ... {report.ledger_count - LINES_MAX} more: --json")
    if report.is_draining and report.is_empty:
        lines.append(f"it may go: embedbk bookie decommission {report.bookie.bookie_id}")
    return "\n".join(lines)
