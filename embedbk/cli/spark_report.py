"""`embedbk spark report --at CLUSTER`: where the space is, as text, JSON or a page of HTML (report/REPORT.md)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.cli.pages import write_page
from embedbk.client.client import Client
from embedbk.report.figures import SpaceReport
from embedbk.report.gathering import space_report
from embedbk.report.page import kept_text, page_of, room_text, size_text

__all__ = ["add_report"]

Reach = Callable[[], Client]
LINES_MAX = 20


def add_report(commands: Commands) -> None:
    made = commands.add(
        "report",
        _report,
        "space by log and owner, what could be freed, age, growth, hot ledgers",
        reach=client_of,
    )
    made.add_argument("--html", type=Path, metavar="FILE", help="write it as a page, too")
    made.add_argument(
        "--sample-s",
        type=float,
        default=0.0,
        help="look at open ledgers again after so long, to see which grow",
    )


def _report(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        report = space_report(client, sample_s=options.sample_s)
    if options.html is not None:
        write_page(options.html, page_of(report, options.at))
    return CommandResult(_data(report), _text(report))


def _data(report: SpaceReport) -> dict[str, Any]:
    rows = ("logs", "reclaimable", "hot", "bookies", "kept")
    pairs = {"owners": ("owner", "stored_bytes"), "ages": ("up_to", "stored_bytes")}
    data = report._asdict()
    data |= {key: [each._asdict() for each in data[key]] for key in rows}
    data |= {key: [dict(zip(names, each, strict=True)) for each in data[key]] for key, names in pairs.items()}
    data["growth"] = [{"from_ms": begin, "payload_bytes": size} for begin, size in report.growth]
    return data


def _text(report: SpaceReport) -> str:
    lines = [f"{size_text(report.stored_bytes)} stored, {size_text(report.payload_bytes)} without copies"]
    for log in report.logs[:LINES_MAX]:
        about = f" ({log.state})" if log.state else ""
        lines.append(
            f"  {log.name or 'ledgers of no log'}{about}: {size_text(log.stored_bytes)} in {log.ledgers} ledgers, "
            f"{log.entries} entries; {size_text(log.day_bytes)} in the last day"
        )
    if len(report.logs) > LINES_MAX:
        lines.append(f"  ... {len(report.logs) - LINES_MAX} more: --json")
    lines += [f"could be freed: {size_text(e.stored_bytes)}, {e.what}: {e.how}" for e in report.reclaimable]
    lines += [
        f"hot: ledger {each.ledger_id} of {each.log or 'no log'}, {each.entries_per_s:.1f} entries/s, "
        f"{size_text(each.bytes_per_s)}/s{'' if each.is_measured else ' on the average'}"
        for each in report.hot[:5]
    ]
    lines += [
        f"bookie {each.bookie_id}: {size_text(each.disk_bytes)} in entry logs, "
        f"{size_text(each.dead_bytes or 0)} of it dead"
        for each in report.bookies
        if each.disk_bytes is not None
    ]
    lines += [f"kept: {kept_text(each)}" for each in report.kept[:5]]
    if report.days_left is not None:
        lines.append(f"free room for {room_text(report.days_left)}, if it grows on as in the last week")
    if report.untold:
        lines.append(
            f"no bookie told how long {len(report.untold)} open ledgers are: as of their last fragment"
        )
    return "\n".join(lines)
