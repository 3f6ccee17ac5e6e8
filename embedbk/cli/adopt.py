"""`embedbk ledger adopt`: a ledger that a lost future made is put back into the metadata (P7.7, P10.5).

Decides what an operator sees before it is done and has to type for it, and how unknown facts are printed.
"""

from __future__ import annotations

import argparse
import getpass
import socket
import time
from collections.abc import Callable
from typing import Any

from embedbk.cli.log import password_of
from embedbk.cli.lost_ledgers import parse_ids
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.adopting import adopt, cluster_token
from embedbk.client.client import Client
from embedbk.client.password import Password
from embedbk.config import Quorum
from embedbk.core.adopting import AdoptionOptions
from embedbk.core.adoption_plan import AdoptionPlan
from embedbk.errors import EmbedbkError, UsageError

__all__ = ["add_adopt", "unknown_of"]

AT_ONCE_MAX = 1000  # Ledgers in one command.
BY_CHARS = 200


def add_adopt(commands: Commands) -> None:
    made = commands.add(
        "adopt", _run, "put those that a lost future made back into the metadata", reach=client_of
    )
    made.add_argument("ids", metavar="IDS", help="of ledgers, as in 5,7-9")
    made.add_argument(
        "--token", help="of the cluster; without it nothing is changed, and it is said what would be done"
    )
    made.add_argument("--dry-run", action="store_true", help="say what would be done; nobody is fenced")
    made.add_argument(
        "--gone",
        action="append",
        default=[],
        metavar="BOOKIE",
        help="never comes back, or cannot tell: what it alone has is given up; may be given again",
    )
    made.add_argument(
        "--accept-loss",
        action="store_true",
        help="acknowledged entries that nobody has are given up for ever; the others are kept",
    )
    made.add_argument(
        "--quorum",
        metavar="E/QW/QA",
        help="as the ledgers were made with (default: as the copies look, Qa the majority of Qw)",
    )
    made.add_argument("--password-file", metavar="FILE", help="holds their password")


def _run(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    ids = _ids_of(options.ids)
    quorum, password = _quorum_of(options.quorum), Password(password_of(options))
    is_dry = options.dry_run or options.token is None
    asked = AdoptionOptions(
        quorum=quorum,
        is_dry=is_dry,
        accepts_loss=options.accept_loss,
        by=f"{getpass.getuser()}@{socket.gethostname()}"[:BY_CHARS],
        wall_ms=time.time_ns() // 1_000_000,
    )
    plans: dict[int, AdoptionPlan] = {}
    refused: dict[int, EmbedbkError] = {}
    with reach() as client:
        token = cluster_token(client).hex()
        if options.token not in (None, token):
            raise UsageError(
                f"--token {options.token}: this cluster's token is another one", hint="nothing was changed"
            )
        for ledger_id in ids:
            try:
                plans[ledger_id] = adopt(client, ledger_id, password, options.gone, asked)
            except EmbedbkError as why:
                refused[ledger_id] = why
    if len(ids) == 1 and refused:
        raise next(iter(refused.values()))
    lines = [line for plan in plans.values() for line in _lines(plan, quorum, is_dry=is_dry)]
    lines += [f"ledger {each} is not adopted: {why}" for each, why in refused.items()]
    if is_dry and not options.dry_run:
        raise UsageError(
            "\n".join(["this would be done:", *lines]),
            hint=f"say that it is meant: --token {token}; nothing was changed",
        )
    data = {
        "adopted": {} if is_dry else _data(plans, quorum),
        "would_be": _data(plans, quorum) if is_dry else {},
        "refused": {str(each): why.args[0] for each, why in refused.items()},
    }
    return CommandResult(data, "\n".join(lines), 1 if refused else 0)


def unknown_of(plan: AdoptionPlan, quorum: Quorum | None) -> list[str]:
    """The unknown facts about the ledger, in sentences."""
    record, found = plan.record, plan.metadata.quorum
    told = [
        "where it ended, if it was closed behind the copy: entries that nobody was told of may be kept behind that",
        f"bookies that joined behind the copy and are not here: asked were {', '.join(record.heard)}",
    ]
    if not plan.is_known:
        what = "its log, if it was of one, its place there, what was attached to it and when it was made"
        told.insert(0, f"{what}: no entry says so")
    if quorum is None and not plan.is_known:
        told.append(f"{_text(found)} is what its copies look like; --quorum says how it was made")
    if record.gone:
        names = ", ".join(name for name, _ in record.gone)
        count = len(record.gone)
        told.append(
            f"what only {names} had: where Qa was {count} or less, acknowledged entries may be among it"
        )
    return told


def _text(quorum: Quorum) -> str:
    return f"E {quorum.ensemble_size} Qw {quorum.write_quorum} Qa {quorum.ack_quorum}"


def _lines(plan: AdoptionPlan, quorum: Quorum | None, *, is_dry: bool) -> list[str]:
    metadata, record = plan.metadata, plan.record
    verb = "would be adopted" if is_dry else "is adopted"
    made = "copies to be made" if is_dry else "copies made"
    holders = ", ".join(f"{name} {count}" for name, count in plan.entries_of.items())
    lines = [
        f"ledger {metadata.ledger_id} {verb}: CLOSED, last entry {metadata.last_entry}, {metadata.length} bytes",
        f"  entries on {holders}; acknowledged are those up to {record.lac} for certain",
        f"  {_text(metadata.quorum)}, {len(metadata.fragments)} fragments; {made}: {record.copied}",
    ]
    if record.gone:
        lines.append(f"  not waited for, by your word: {', '.join(name for name, _ in record.gone)}")
    if plan.silent:
        lines.append(f"  did not answer at all: {', '.join(plan.silent)}")
    for first, last in record.lost:
        which = f"entries {first} to {last}" if first < last else f"entry {first}"
        lines.append(f"  acknowledged, and nobody has: {which}; given up for ever")
    lines += [f"  cannot be known: {each}" for each in unknown_of(plan, quorum)]
    if not is_dry:
        listed = "" if plan.is_known else "; no log lists it"
        lines.append(f"  read it: embedbk ledger read {metadata.ledger_id}{listed}")
    return lines


def _data(plans: dict[int, AdoptionPlan], quorum: Quorum | None) -> dict[str, Any]:
    return {str(ledger_id): _facts(plan, quorum) for ledger_id, plan in plans.items()}


def _facts(plan: AdoptionPlan, quorum: Quorum | None) -> dict[str, Any]:
    metadata, record = plan.metadata, plan.record
    return {
        "last_entry": metadata.last_entry,
        "length": metadata.length,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "fragments": [
            {"first_entry": each.first_entry, "ensemble": [name for name, _ in each.ensemble]}
            for each in metadata.fragments
        ],
        "entries_of": plan.entries_of,
        "lac": record.lac,
        "lost": record.lost,
        "gone": [name for name, _ in record.gone],
        "silent": plan.silent,
        "copied": record.copied,
        "unknown": unknown_of(plan, quorum),
    }


def _ids_of(text: str) -> list[int]:
    ranges = parse_ids(text)
    count = sum(end - first for first, end in ranges)
    if count > AT_ONCE_MAX:
        raise UsageError(
            f"{count} ids in {text[:80]!r}; one command adopts at most {AT_ONCE_MAX}",
            hint="embedbk ledger lost names those that bookies hold",
        )
    return list(dict.fromkeys(each for first, end in ranges for each in range(first, end)))


def _quorum_of(text: str | None) -> Quorum | None:
    if text is None:
        return None
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise UsageError(f"--quorum {text[:80]!r}: three numbers are wanted, as in 3/3/2")
    return Quorum(*map(int, parts))
