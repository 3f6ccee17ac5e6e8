"""`embedbk sql "SELECT ..." --at CLUSTER`: a question over what the metadata says (views/VIEWS.md)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.client import Client
from embedbk.views.sql import sql
from embedbk.views.tables import VIEWS

__all__ = ["run_sql"]

Reach = Callable[[], Client]


def run_sql(arguments: Sequence[str]) -> int:
    """Without a verb: `embedbk sql "SELECT ..." --at CLUSTER`."""
    commands = Commands("sql", f"A question over what the metadata says. Tables: {', '.join(VIEWS)}.")
    made = commands.add("answer", _sql, "answer it", reach=client_of)
    made.prog = "embedbk sql"  # The user types this.
    made.add_argument("question", metavar="SELECT", help="in SQL, as DuckDB speaks it (embedbk[sql])")
    return commands.run(["answer", *arguments])


def _sql(reach: Reach, options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        answer = sql(client, options.question)
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    return CommandResult({"rows": rows}, _table(answer.columns, answer.rows))


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    lines = [list(columns), *(["" if each is None else str(each) for each in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
