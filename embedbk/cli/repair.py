"""`embedbk health`, `embedbk audit` and `embedbk repair VERB --at CLUSTER`: how healthy a cluster is, what repairs it.

Decides what is shown, and the exit status of `health`: 0 only if every seat has its bookie, and that
bookie all entries that it owes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.client import Client
from embedbk.host.loop import utc_text
from embedbk.repair.health import Health, LedgerHealth

__all__ = ["run_audit", "run_health", "run_repair"]

CONFLICTS_SHOWN = 8  # Conflicts of a ledger that are named in its line.
LINES_MAX = 20
Reach = Callable[[], Client]


def run_health(arguments: Sequence[str]) -> int:
    """Without a verb: `embedbk health --at CLUSTER`."""
    commands = Commands("health", "Whether every entry has all of its copies.")
    made = _add(
        commands,
        "show",
        _health,
        "whether every entry of closed ledgers has its copies, and what is done where not",
    )
    made.prog = "embedbk health"  # The user types this.
    return commands.run(["show", *arguments])


def run_audit(arguments: Sequence[str]) -> int:
    """Without a verb: `embedbk audit --at CLUSTER`."""
    commands = Commands("audit", "All ledgers are looked at now, and what comes of that is shown.")
    made = _add(commands, "show", _audit, "look at all ledgers, wait for it, then as embedbk health")
    made.prog = "embedbk audit"  # The user types this.
    made.add_argument("--wait-s", type=float, help="wait no longer; it goes on behind that")
    return commands.run(["show", *arguments])


def run_repair(arguments: Sequence[str]) -> int:
    commands = Commands("repair", "What lost bookies had is copied to others.")
    _add(commands, "status", _health, "as embedbk health, without its exit status").set_defaults(
        is_status=True
    )
    _add(commands, "marks", _marks, "ledgers that lack copies, since when, and what is done about it")
    made = _add(
        commands, "stop", _stop, "nobody repairs anything until it is started again, as for maintenance"
    )
    made.add_argument("--why", default="", help="is shown to others")
    made.add_argument(
        "--for-s", type=float, metavar="SECONDS", help="it goes on by itself after that; default: never"
    )
    _add(commands, "start", _start, "repair goes on")
    _add(commands, "trigger", _trigger, "look at all ledgers now, also at those that could not be repaired")
    made = _add(commands, "grace", _grace, "how long a bookie is away before it counts as lost, from now on")
    made.add_argument("seconds", type=_seconds, help="default: as each host's settings say")
    made.add_argument("--why", default="", help="is shown to others")
    return commands.run(arguments)


def _seconds(text: str) -> float | None:
    try:
        return None if text == "default" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds are allowed, or default") from None


def _add(
    commands: Commands, name: str, run: Callable[[Reach, argparse.Namespace], CommandResult], text: str
) -> argparse.ArgumentParser:
    return commands.add(name, run, text, reach=client_of)


def _health(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        return _told(client.health(), options)


def _audit(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        return _told(client.audit(options.wait_s), options)


def _told(health: Health, options: argparse.Namespace) -> CommandResult:
    lines = [str(health), *_lines(health.ledgers)]
    if health.auditor:
        lines.append(f"auditor: {health.auditor}; last round over all ledgers: {_when(health.audited_ms)}")
    if health.told_ms:
        lines.append(f"of ledgers that were closed by {_when(health.told_ms)}")
    if health.is_stopped:
        why = f" ({health.stopped_why})" if health.stopped_why else ""
        until = f" until {_when(health.stopped_until_ms)}" if health.stopped_until_ms else ""
        lines.append(f"repair was switched off{until} by {health.stopped_by or 'somebody'}{why}")
    if health.grace_s:
        lines.append(f"a bookie counts as lost after {health.grace_s:g} s, by an operator's word")
    code = 0 if health.is_good or getattr(options, "is_status", False) else 1
    return CommandResult(_data(health), "\n".join(lines), code)


def _marks(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        health = client.health()
    data = {"ledgers": _data(health)["ledgers"]}
    return CommandResult(data, "\n".join(_lines(health.ledgers)) or "none")


def _stop(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        client.stop_repair(options.why, for_s=options.for_s)
    until = "" if options.for_s is None else f" for {options.for_s:g} s"
    return CommandResult(
        {"stopped": True},
        f"repair is stopped{until}, in the whole cluster; embedbk repair start lets it go on",
    )


def _start(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        client.start_repair()
    return CommandResult({"stopped": False}, "repair goes on")


def _grace(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        client.set_repair_grace(options.seconds, options.why)
    said = "as each host's settings say" if options.seconds is None else f"after {options.seconds:g} s"
    return CommandResult({"grace_s": options.seconds}, f"a bookie that is away counts as lost {said}")


def _trigger(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        client.trigger_audit()
    return CommandResult({"triggered": True}, "the auditor looks at all ledgers now")


def _data(health: Health) -> dict[str, Any]:
    ledgers = [
        {
            **each._asdict(),
            "missing": [{"first_entry": first, "bookie": name} for first, name in each.missing],
            "lacking": [{"bookie": name, "entries": count} for name, count in each.lacking],
            "conflicts": [
                {"entry": entry_id, "copies": [{"bookie": name, "digest": digest} for name, digest in copies]}
                for entry_id, copies in each.conflicts
            ],
            "unlike": [{"bookie": name, "first": first, "last": last} for name, first, last in each.unlike],
        }
        for each in health.ledgers
    ]
    return {**health._asdict(), "ledgers": ledgers}


def _lines(ledgers: Sequence[LedgerHealth]) -> list[str]:
    lines = [_line(each) for each in ledgers[:LINES_MAX]]
    return lines + ([f"  ... {len(ledgers) - LINES_MAX} more: --json"] if len(ledgers) > LINES_MAX else [])


def _line(each: LedgerHealth) -> str:
    lacks = [f"{bookie_id} from entry {first} on" for first, bookie_id in each.missing]
    lacks += [f"{count} entries on {bookie_id}" for bookie_id, count in each.lacking]
    missing = ", ".join(lacks) or ("nobody knows" if each.untold else "")
    if each.conflicts or each.unlike:
        said = "; ".join(filter(None, (_differing(each) if each.conflicts else "", _unlike(each))))
        return f"  ledger {each.ledger_id}: {said}" + (f"; missing: {missing}" if missing else "")
    since = f", since {_when(each.since_ms)}" if each.since_ms else ""
    why = f" ({each.why})" if each.why else ""
    return f"  ledger {each.ledger_id}: {each.doing}{since}; missing: {missing or 'nothing any more'}{why}"


def _differing(each: LedgerHealth) -> str:
    """The entries whose copies differ, and which bookie holds which copy."""
    named = [
        f"entry {entry_id} ({', '.join(f'{name}: {digest}' for name, digest in copies)})"
        for entry_id, copies in each.conflicts[:CONFLICTS_SHOWN]
    ]
    more = len(each.conflicts) - CONFLICTS_SHOWN
    return f"copies differ, each whole by itself: {'; '.join(named)}" + (
        f" and {more} more" if more > 0 else ""
    )


def _unlike(each: LedgerHealth) -> str:
    """Whose copies are not what their writer published."""
    named = [f"entries {first} to {last} on {name}" for name, first, last in each.unlike[:CONFLICTS_SHOWN]]
    more = len(each.unlike) - CONFLICTS_SHOWN
    said = f"not what their writer published: {', '.join(named)}" if named else ""
    return said + (f" and {more} more" if more > 0 else "")


def _when(unix_ms: int) -> str:
    if not unix_ms:
        return "never"
    return utc_text(unix_ms)
