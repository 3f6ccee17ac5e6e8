"""`embedbk sql "SELECT ..." --at CLUSTER`: a question over what the metadata says (views/VIEWS.md)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
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
    names = _each_once(answer.columns)
    rows = [dict(zip(names, map(_of_json, row), strict=True)) for row in answer.rows]
    return CommandResult({"rows": rows}, _table(answer.columns, answer.rows))


def _each_once(columns: Sequence[str]) -> list[str]:
    """Their names, the second `log` as `log_1`: an object of JSON has a name only once."""
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names or (number and name in columns):
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _of_json(value: Any) -> Any:
    """What DuckDB gives, as JSON has it: a time, and a number that is none, as text; bytes in hex."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_of_json(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _of_json(each) for name, each in value.items()}
    return str(value)


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    lines = [list(columns), *(["" if each is None else str(each) for each in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
