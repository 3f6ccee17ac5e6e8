"""`embedbk spark scrub --at CLUSTER`: every copy of every entry, checked (scrub/SCRUB.md).

Decides what is shown, and the exit status: 0 clean, 1 usage or crash, 2 findings, 3 incomplete. It needs no Spark: with
`--on-spark` the reads are tasks of a Spark session.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from embedbk.cli.log import password_of
from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.cli.pages import write_page
from embedbk.client.client import Client
from embedbk.client.times import ms_of, parse_time
from embedbk.errors import UsageError
from embedbk.scrub.judging import CopyFinding
from embedbk.scrub.options import LEVELS, ScrubOptions
from embedbk.scrub.page import findings_page
from embedbk.scrub.scrubbing import scrub

__all__ = ["add_scrub"]

Reach = Callable[[], Client]


def add_scrub(commands: Commands) -> None:
    made = commands.add(
        "scrub",
        _scrub,
        "read every copy of every entry, and say what is wrong; 0: clean, 2: findings, 3: incomplete",
        reach=client_of,
    )
    made.add_argument(
        "--level",
        choices=LEVELS,
        default="compare",
        help="meta: what bookies know by their indexes; crc: each copy is read; compare: copies are compared; "
        "mac: HMAC tags, too (default: compare)",
    )
    made.add_argument(
        "--max-mbps",
        type=float,
        default=0.0,
        metavar="MB",
        help="per second, of each bookie (default: no limit)",
    )
    made.add_argument(
        "--state", type=Path, metavar="FILE", help="of what is done: a later scrub goes on there"
    )
    made.add_argument(
        "--since",
        metavar="TIME",
        help="pass over ledgers that were closed before it for certain (2026-11-26T08:30:00Z); not with --state",
    )
    made.add_argument(
        "--independent",
        action="store_true",
        help="check each copy a second time, by code that shares nothing with the kernels in C: 50 to 500 MB/s",
    )
    made.add_argument("--html", type=Path, metavar="FILE", help="write what is found as a page, too")
    made.add_argument("--repair", choices=["queue"], help="queue: what lacks good copies is handed to repair")
    made.add_argument(
        "--settle-s",
        type=float,
        default=15.0,
        help="what is found is judged again so much later, and reported if it stands (default: 15)",
    )
    made.add_argument("--password-file", metavar="FILE", help="holds the password for --level mac")
    made.add_argument(
        "--on-spark", metavar="MASTER", help="the reads are tasks of this Spark cluster, as in local[2]"
    )


def _since_ms(text: str | None) -> int | None:
    if text is None:
        return None
    time = parse_time(text)
    if time is None:
        raise UsageError(
            f"--since {text!r} is no time; nothing was scrubbed", hint="2026-11-26T08:30:00Z is one"
        )
    return ms_of(time)


def _scrub(reach: Reach, options: argparse.Namespace) -> CommandResult:
    wanted = ScrubOptions(
        level=options.level,
        mbps_max=options.max_mbps,
        password=password_of(options),
        state=options.state,
        queues_repair=options.repair == "queue",
        settle_s=options.settle_s,
        since_ms=_since_ms(options.since),
        is_independent=options.independent,
    )

    def tell(finding: CopyFinding) -> None:
        print(json.dumps(finding._asdict()) if options.json else finding, flush=True)

    with reach() as client:
        if options.on_spark is None:
            result = scrub(client, wanted, tell)
        else:
            from embedbk.spark.scrubbing import scrub_on
            from embedbk.spark.session import session

            result = scrub_on(session(master=options.on_spark), client, wanted, tell)
        made_ms = client._runtime.wall_ms()
    data = {
        "exit_code": result.exit_code,
        "findings": len(result.findings),
        "is_complete": result.is_complete,
        "untold": [
            {"ledger_id": ledger_id, "bookie": bookie, "why": why}
            for (ledger_id, bookie), why in result.untold.items()
        ],
        "ledgers": result.ledgers,
        "skipped": result.skipped,
        "passed": result.passed,
        "copies": result.copies,
        "bytes_read": result.bytes_read,
        "queued": result.queued,
    }
    print(json.dumps(data) if options.json else result)
    sys.stdout.flush()
    if options.html is not None:
        write_page(options.html, findings_page(result, wanted, made_ms, options.at))
    return CommandResult(None, "", result.exit_code)
