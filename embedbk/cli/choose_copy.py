"""`embedbk ledger copies | choose-copy`: copies of one entry that differ, and which one is right (P11.5).

Decides what an operator sees and has to type before a copy is replaced: the digest of the copy that is right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from embedbk.cli.log import password_of
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.client import Client
from embedbk.client.copy_choosing import EntryCopies, EntryCopy
from embedbk.codec.copy_decision import CopyDecision
from embedbk.codec.entry import read_entry
from embedbk.errors import UsageError
from embedbk.host.loop import utc_text

__all__ = ["add_choose_copy"]

Reach = Callable[[], Client]
SHOWN_BYTES = 48  # Bytes of a payload that are shown.


def add_choose_copy(commands: Commands) -> None:
    """Two commands of the noun `ledger`."""
    _add(
        commands,
        "copies",
        _copies,
        "what each bookie holds of one entry; 1: they differ, or from what was published",
    )
    made = _add(
        commands, "choose-copy", _choose, "say which bookie's copy of an entry is right: others get it"
    )
    made.add_argument("bookie", metavar="BOOKIE", help="that holds the right copy")
    made.add_argument("--why", required=True, help="stays with the decision")
    made.add_argument("--digest", help="of the right copy: what would else be asked for")


def _add(
    commands: Commands, name: str, run: Callable[[Reach, argparse.Namespace], CommandResult], text: str
) -> argparse.ArgumentParser:
    made = commands.add(name, run, text, reach=client_of)
    made.add_argument("ledger_id", type=int, metavar="ID", help="of the ledger")
    made.add_argument("entry_id", type=int, metavar="ENTRY")
    made.add_argument("--password-file", metavar="FILE", help="holds its password")
    return made


def _copies_of(client: Client, options: argparse.Namespace) -> EntryCopies:
    return client.copies_of_entry(options.ledger_id, options.entry_id, password=password_of(options))


def _copies(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        shown = _copies_of(client, options)
    return CommandResult(_data(shown), _text(shown), 1 if _needs_word(shown) else 0)


def _needs_word(shown: EntryCopies) -> bool:
    return shown.is_conflict or shown.unlike is not None


def _choose(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        shown = _copies_of(client, options)
        _confirm(options, shown)
        chosen = client.choose_copy(shown, options.bookie, options.why)
        after = _copies_of(client, options)
    lines = [_decision(chosen.decision), _text(after)]
    lines += [f"not replaced on {name}: {why}; say it again" for name, why in sorted(chosen.left.items())]
    data = {**_data(after), "left": dict(chosen.left)}
    return CommandResult(data, "\n".join(lines), 1 if chosen.left else 0)


def _confirm(options: argparse.Namespace, shown: EntryCopies) -> None:
    """Ask for the digest: it names the copy, whichever bookie has it by then."""
    chosen = next((each for each in shown.copies if each.member.bookie_id == options.bookie), None)
    wanted = "" if chosen is None or chosen.digest is None else f"{chosen.digest:016x}"
    given = options.digest
    if given is None and wanted and _needs_word(shown):
        goes = "copies of others go" if shown.is_conflict else "what its writer published goes"
        print(
            f"{_text(shown)}\n{goes} for ever; type the digest of the right one: ",
            end="",
            file=sys.stderr,
        )
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
    if wanted and _needs_word(shown) and given != wanted:
        raise UsageError(
            f"that is not the digest of the copy of {options.bookie}; nothing was changed",
            hint=f"embedbk ledger copies {options.ledger_id} {options.entry_id}",
        )


def _data(shown: EntryCopies) -> dict[str, Any]:
    return {
        "ledger_id": shown.metadata.ledger_id,
        "entry_id": shown.entry_id,
        "differ": shown.is_conflict,
        "unlike": shown.unlike,
        "copies": [
            {
                "bookie": each.member.bookie_id,
                "digest": None if each.digest is None else f"{each.digest:016x}",
                "bytes": None if each.entry is None else len(each.entry),
                "why": each.why,
            }
            for each in shown.copies
        ],
        "decisions": [
            {
                "chosen": {"bookie": each.chosen.bookie_id, "digest": f"{each.chosen.digest:016x}"},
                "replaced": [
                    {"bookie": copy.bookie_id, "digest": f"{copy.digest:016x}"} for copy in each.replaced
                ],
                "by": each.by,
                "why": each.why,
                "decided_ms": each.decided_ms,
                "is_done": each.is_done,
            }
            for each in shown.decisions
        ],
    }


def _text(shown: EntryCopies) -> str:
    lines = [f"entry {shown.entry_id} of ledger {shown.metadata.ledger_id}:"]
    lines += [f"  {_copy(each)}" for each in shown.copies]
    if shown.unlike is not None:
        first, last = shown.unlike
        lines.append(
            f"  alike on all bookies, and entries {first} to {last} are not what the ledger's writer published; "
            "choose-copy lets them stand for it"
        )
    return "\n".join([*lines, *(f"  {_decision(each)}" for each in shown.decisions)])


def _copy(copy: EntryCopy) -> str:
    if copy.entry is None:
        return f"{copy.member.bookie_id}: {copy.why}"
    payload = bytes(read_entry(memoryview(copy.entry)).data)
    more = f" ... ({len(payload)} bytes)" if len(payload) > SHOWN_BYTES else ""
    why = f" ({copy.why})" if copy.why else ""
    return f"{copy.member.bookie_id}: {copy.digest:016x}  {payload[:SHOWN_BYTES]!r}{more}{why}"


def _decision(each: CopyDecision) -> str:
    when = utc_text(each.decided_ms)
    if each.chosen in each.replaced:  # All were alike.
        return f"{when}, {each.by}: the copy of {each.chosen.bookie_id} stands for what was published: {each.why}"
    others = ", ".join(copy.bookie_id for copy in each.replaced)
    done = "" if each.is_done else "; not all are replaced yet"
    return f"{when}, {each.by}: the copy of {each.chosen.bookie_id} is right, for {others}: {each.why}{done}"
