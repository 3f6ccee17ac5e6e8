"""A question in SQL over the views, answered by DuckDB in this process (`pip install embedbk[sql]`).

Decides which views a question names: only those are read, once each, before it is answered.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from embedbk.client.client import Client
from embedbk.errors import UsageError
from embedbk.views.tables import VIEWS, MetadataView

__all__ = ["Answer", "sql"]

_TYPES = {int: "BIGINT", str: "VARCHAR", bool: "BOOLEAN", float: "DOUBLE"}


class Answer(NamedTuple):
    """The answer to a question: the names of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def sql(client: Client, question: str) -> Answer:
    """Answer one question over the views (`embedbk.views.VIEWS`): each stands for a table of its name.

    It cannot reach files or the network, and changes nothing.

    Raises:
        UsageError: DuckDB is not installed, or the question is none that it understands.
        MetadataUnavailable: no member answers.
    """
    try:
        import duckdb
    except ImportError as missing:
        raise UsageError(
            f"what answers SQL is not installed: {missing}", hint="python -m pip install 'embedbk[sql]'"
        ) from missing
    words = {word.lower() for word in re.findall(r"\w+", question)}
    with duckdb.connect(":memory:", config={"enable_external_access": False}) as database:
        for each in VIEWS.values():
            if each.name in words:
                _fill(database, each, each.rows(client))
        try:
            found = database.sql(question)
            if found is not None:
                return Answer(tuple(found.columns), found.fetchall())
            why = "it asks for nothing"
        except duckdb.Error as refused:
            why = str(refused)
    raise UsageError(
        f"this question cannot be answered: {why}",
        hint=f"the tables are {', '.join(VIEWS)}; DESCRIBE logs tells the columns of one",
    )


def _fill(database: Any, view: MetadataView, rows: list[tuple[Any, ...]]) -> None:
    columns = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in view.columns)
    database.execute(f'CREATE TABLE "{view.name}" ({columns})')
    if rows:
        marks = ", ".join("?" for _ in view.columns)
        database.executemany(f'INSERT INTO "{view.name}" VALUES ({marks})', rows)
