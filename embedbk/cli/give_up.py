"""`embedbk ledger give-up ID --why REASON`: entries that are lost for good are given up (P11.5).

Decides what an operator sees before, and what has to be typed for it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from embedbk.cli.log import password_of
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.client import Client
from embedbk.client.giving_up import LostEntries
from embedbk.errors import UsageError

__all__ = ["add_give_up"]

RUNS_SHOWN_MAX = 20


def add_give_up(commands: Commands) -> None:
    made = commands.add(
        "give-up",
        _run,
        "entries that only bookies had which are gone for good are lost, and readers are told so",
        reach=client_of,
    )
    made.add_argument("ledger_id", type=int, metavar="ID", help="of the ledger")
    made.add_argument("--why", required=True, help="stays with the decision")
    made.add_argument("--dry-run", action="store_true", help="only say what would be given up")
    made.add_argument("--yes", action="store_true", help="do not ask for its id")
    made.add_argument("--password-file", metavar="FILE", help="holds its password")


def _run(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        shown = client.lost_entries(options.ledger_id, password=password_of(options))
        if options.dry_run:
            return CommandResult(_data(shown, is_done=False), _text(shown, "would be"))
        _confirm(options, shown)
        client.give_up_entries(shown, options.why)
    return CommandResult(_data(shown, is_done=True), _text(shown, "is"))


def _confirm(options: argparse.Namespace, shown: LostEntries) -> None:
    """Ask for the ledger's id, as this cannot be taken back."""
    if options.yes:
        return
    print(
        f"{_text(shown, 'would be')}\nthat cannot be taken back; type the ledger's id: ",
        end="",
        file=sys.stderr,
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip() != str(shown.ledger_id):
        raise UsageError("that is not its id; nothing was changed", hint="or say --yes")


def _text(shown: LostEntries, verb: str) -> str:
    lines: list[str] = []
    if shown.is_end_named:
        lines.append(
            f"ledger {shown.ledger_id} {verb} closed at entry {shown.last_entry}, {shown.length} bytes; what only "
            "those who are gone had behind that cannot be known"
        )
    lines.append(f"of ledger {shown.ledger_id} {shown.entry_count} entries {verb} given up for ever")
    for first, last, step in shown.runs[:RUNS_SHOWN_MAX]:
        each = f", each {step}th" if step > 1 else ""
        lines.append(f"  entries {first} to {last}{each}" if first < last else f"  entry {first}")
    if len(shown.runs) > RUNS_SHOWN_MAX:
        lines.append(f"  ... {len(shown.runs) - RUNS_SHOWN_MAX} more: --json")
    gone = ", ".join(f"{name} ({incarnation})" for name, incarnation in shown.gone)
    lines.append(f"  gone are: {gone or 'none; those that are there never had them, or have them no more'}")
    return "\n".join(lines)


def _data(shown: LostEntries, *, is_done: bool) -> dict[str, Any]:
    return {
        "ledger_id": shown.ledger_id,
        "given_up": is_done,
        "runs": [list(run) for run in shown.runs],
        "count": shown.entry_count,
        "last_entry": shown.last_entry,
        "length": shown.length,
        "gone": [list(each) for each in shown.gone],
        "is_end_named": shown.is_end_named,
    }
