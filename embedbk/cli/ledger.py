"""`embedbk ledger VERB [ID] --at CLUSTER`: what people do with one ledger at a terminal.

Decides what is shown of ledgers, and what has to be typed before one is deleted. For metadata that was brought back
`lost` and `forget` stand in lost_ledgers.py, `adopt` in adopt.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from itertools import chain

from embedbk.cli.adopt import add_adopt
from embedbk.cli.choose_copy import add_choose_copy
from embedbk.cli.dump import add_dump
from embedbk.cli.entries_out import add_format, write_entries, write_entry
from embedbk.cli.give_up import add_give_up
from embedbk.cli.log import password_of
from embedbk.cli.lost_ledgers import add_lost_ledgers
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.batches import Located, entries_of
from embedbk.client.client import Client
from embedbk.client.compression import plain
from embedbk.client.copy_reading import read_copy
from embedbk.client.password import Password
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState
from embedbk.errors import UsageError

__all__ = ["run_ledger"]

Reach = Callable[[], Client]


def run_ledger(arguments: Sequence[str]) -> int:
    commands = Commands("ledger", "Ledgers of a cluster.")
    commands.add("list", _list, "the ids of all ledgers", reach=client_of)
    _add(commands, "show", _show, "its metadata")
    made = _add(
        commands, "read", _read, "its entries: all of a closed one, of an open one what is acknowledged"
    )
    made.add_argument(
        "--from", dest="first", type=int, default=0, metavar="ENTRY", help="the first entry that is read"
    )
    made.add_argument(
        "--to", dest="end", type=int, metavar="ENTRY", help="the first that is not read any more"
    )
    made.add_argument(
        "--bookie", metavar="ID", help="only what this bookie has; what it lacks or cannot tell is said, too"
    )
    add_format(made)
    _add(commands, "recover", _recover, "fence whoever writes it, and close it")
    made = _add(commands, "delete", _delete, "delete it; until its grace is over it can be brought back")
    made.add_argument(
        "--force", action="store_true", help="whatever its state: one that is not CLOSED is gone for ever"
    )
    made.add_argument("--yes", action="store_true", help="it is meant; else it is said what would go")
    _add(commands, "undelete", _undelete, "bring a deleted one back")
    commands.add("deleted", _deleted, "those that can be brought back", reach=client_of)
    _add(commands, "explain", _explain, "why it is as it is, and what is safe to do next")
    add_lost_ledgers(commands)
    add_adopt(commands)
    add_dump(commands)
    add_choose_copy(commands)
    add_give_up(commands)
    return commands.run(arguments)


def _add(
    commands: Commands, name: str, run: Callable[[Reach, argparse.Namespace], CommandResult], text: str
) -> argparse.ArgumentParser:
    made = commands.add(name, run, text, reach=client_of)
    made.add_argument("ledger_id", type=int, metavar="ID", help="of the ledger")
    made.add_argument("--password-file", metavar="FILE", help="holds its password")
    return made


def _list(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        ids = client.ledgers()
    return CommandResult({"ledgers": ids}, "\n".join(map(str, ids)) if ids else "no ledger")


def _show(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with (
        reach() as client,
        client.open_ledger(options.ledger_id, password=password_of(options)) as ledger,
    ):
        return _shown(ledger.metadata)


def _shown(metadata: LedgerMetadata) -> CommandResult:
    quorum = metadata.quorum
    fragments = [
        {"first_entry": each.first_entry, "ensemble": [bookie_id for bookie_id, _ in each.ensemble]}
        for each in metadata.fragments
    ]
    data = {
        "ledger_id": metadata.ledger_id,
        "state": LedgerState(metadata.state).name,
        "ensemble_size": quorum.ensemble_size,
        "write_quorum": quorum.write_quorum,
        "ack_quorum": quorum.ack_quorum,
        "last_entry": metadata.last_entry,
        "length": metadata.length,
        "fragments": fragments,
    }
    end = (
        "" if metadata.last_entry is None else f", last entry {metadata.last_entry}, {metadata.length} bytes"
    )
    lines = [
        f"ledger {metadata.ledger_id}: {LedgerState(metadata.state).name}{end}",
        f"  E {quorum.ensemble_size} Qw {quorum.write_quorum} Qa {quorum.ack_quorum}",
    ]
    lines += [
        f"  from entry {each.first_entry} on: {', '.join(bookie_id for bookie_id, _ in each.ensemble)}"
        for each in metadata.fragments
        if metadata.freed is None
    ]
    if metadata.freed is not None:
        freed = metadata.freed
        data["archive"] = {
            "path": freed.path,
            "id": freed.archive_id.hex(),
            "manifest": freed.manifest.hex(),
            "freed_ms": freed.freed_ms,
            "by": freed.by,
        }
        lines.append(
            f"  in the archive in {freed.path}, by the manifest {freed.manifest.hex()}; on no bookie"
        )
    return CommandResult(data, "\n".join(lines))


def _read(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with (
        reach() as client,
        client.open_ledger(options.ledger_id, password=password_of(options)) as ledger,
    ):
        last = ledger.last_add_confirmed() if ledger.last_entry is None else ledger.last_entry
        if options.end is not None:
            last = min(last, options.end - 1)
        if options.bookie is not None:
            return _read_copy(client, options, last)
        if options.first <= last:
            gaps = write_entries(
                lambda first: ledger.read(first, last) if first <= last else (), options.first, options
            )
            return CommandResult(None, "", 1 if gaps else 0)
    return CommandResult(None)


def _read_copy(client: Client, options: argparse.Namespace, last: int) -> CommandResult:
    """Write the entries to standard output, and report those that are not there. Exit status 1: some are not."""
    password, first, gaps = Password(password_of(options)), options.first, 0
    for part in read_copy(client, options.ledger_id, options.bookie, password, first, last):
        for frame in part.frames:
            for entry in chain.from_iterable(map(entries_of, plain(Located(frame, 0)))):
                if first <= entry.entry_id < part.next_entry:
                    write_entry(entry, options)
        for word, ranges in (("absent", part.absent), ("unknown", part.unknown)):
            for begin, end in ranges:
                gaps += 1
                _write_gap(options, word, begin, end)
        first = part.next_entry
    return CommandResult(None, "", 1 if gaps else 0)


def _write_gap(options: argparse.Namespace, word: str, first: int, last: int) -> None:
    if options.json:
        print(json.dumps({"bookie": options.bookie, word: [first, last]}), flush=True)
        return
    verb = "has not" if word == "absent" else "cannot tell about"
    sys.stdout.flush()
    print(f"embedbk: {options.bookie} {verb} entries {first} to {last}", file=sys.stderr)


def _recover(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with (
        reach() as client,
        client.open_ledger(options.ledger_id, recover=True, password=password_of(options)) as ledger,
    ):
        return _shown(ledger.metadata)


def _delete(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        if not options.yes:
            raise UsageError(
                f"this would delete: {client.explain(options.ledger_id)}\nnothing was changed",
                hint="say that it is meant: --yes",
            )
        client.delete_ledger(options.ledger_id, password=password_of(options), force=options.force)
    return CommandResult({"deleted": options.ledger_id}, f"ledger {options.ledger_id} is deleted")


def _undelete(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        client.undelete_ledger(options.ledger_id, password=password_of(options))
    return CommandResult({"undeleted": options.ledger_id}, f"ledger {options.ledger_id} is back")


def _deleted(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        found = client.deleted_ledgers()
    data = {"deleted": [each.ledger_id for each in found]}
    return CommandResult(data, "\n".join(str(each.ledger_id) for each in found) if found else "none")


def _explain(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        told = client.explain(options.ledger_id)
    data = {"ledger_id": told.ledger_id, "state": told.state, "rules": told.rules, "missing": told.missing}
    return CommandResult({**data, "next_step": told.next_step}, str(told))
