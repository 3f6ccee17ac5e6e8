"""Statements of a replicated SQLite file: which do the same on every node, and what runs one of them.

Decides what is refused: functions of time and chance (also in defaults of columns, which no authorizer sees), temporary
tables, tables of this connection and of how its file lies on the disk, pragmas, attached files, changes of the tables
that keep the offset and the log's id; and values that an adapter of one process would have to make. Leaves to `sqlite`
what a transaction is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from embedbk.errors import UsageError

__all__ = ["LOG_TABLE", "OFFSET_TABLE", "Rows", "attempt", "decoded", "encoded", "read_only", "run"]

Rows = list[tuple[Any, ...]]
OFFSET_TABLE, LOG_TABLE = "embedbk_offset", "embedbk_log_id"
_ALLOWED = {
    getattr(sqlite3, f"SQLITE_{each}")
    for each in "READ SELECT RECURSIVE INSERT UPDATE DELETE CREATE_TABLE CREATE_INDEX CREATE_TRIGGER CREATE_VIEW "
    "DROP_TABLE DROP_INDEX DROP_TRIGGER DROP_VIEW ALTER_TABLE REINDEX ANALYZE FUNCTION".split()
}
# Their table is named behind an index or a trigger, or behind the database; a function behind nothing.
_NAMED_SECOND = {
    getattr(sqlite3, f"SQLITE_{each}") for each in "FUNCTION ALTER_TABLE CREATE_INDEX CREATE_TRIGGER".split()
}
_WITH_COLUMNS = {sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_ALTER_TABLE}
# What outlives its statement in a connection.
_ENDURING = {getattr(sqlite3, f"SQLITE_{each}") for each in "TRANSACTION SAVEPOINT ATTACH DETACH".split()}
# Pragmas whose argument says what they are about; any other one sets something with it.
_ASKING = set(
    "table_info table_xinfo table_list index_info index_xinfo index_list foreign_key_list foreign_key_check "
    "integrity_check quick_check".split()
)
_DEFAULTS = (
    "SELECT dflt_value FROM sqlite_schema s JOIN pragma_table_xinfo(s.name) "
    "WHERE s.type = 'table' AND dflt_value NOTNULL"
)
_OTHERWISE = set(
    "random randomblob changes total_changes last_insert_rowid load_extension current_time current_date "
    "current_timestamp date time datetime julianday unixepoch strftime timediff sqlite_version sqlite_source_id "
    "sqlite_compileoption_get sqlite_compileoption_used sqlite_offset".split()
)
# Tables that SQLite makes up, of what this connection has prepared and how this file lies on its disk.
_OF_HERE = set(
    "sqlite_stmt dbstat sqlite_dbpage bytecode tables_used sqlite_memstat sqlite_dbdata sqlite_dbptr".split()
)

_Authorizer = Callable[..., int]


def encoded(sql: str, values: Any) -> bytes:
    """The statement as an entry holds it. Raises UsageError: nothing holds these values."""
    try:
        return msgspec.msgpack.encode((sql, values))
    except (TypeError, ValueError, OverflowError) as strange:
        raise UsageError(f"{sql!r:.200}: {strange}; nothing of it was done") from strange


def decoded(statement: bytes) -> tuple[str, Any]:
    """The statement as it comes back from the log. Raises UsageError: sqlite3 would need an adapter for a value."""
    sql, values = msgspec.msgpack.decode(statement)
    for value in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        if value is not None and not isinstance(value, int | float | str | bytes):
            raise UsageError(
                f"{sql!r:.200}: a {type(value).__name__} is no value of SQLite; nothing of it was done",
                hint="give text, bytes, a number or None",
            )
    return sql, values


def run(file: sqlite3.Connection, sql: str, values: Any, *, is_new: bool = False) -> Rows:
    """Run it, or raise UsageError, as it is refused. is_new: no entry has it yet, so that it can still be refused for a
    default; those that are in the log were checked by the copy that led then."""
    refused: list[str] = []
    has_columns = False  # It may have given a column its default.

    def authorize(action: int, what: str | None, second: str | None, *_: object) -> int:
        nonlocal has_columns
        has_columns = has_columns or action in _WITH_COLUMNS
        name = str(second if action in _NAMED_SECOND else what).lower()
        if action == sqlite3.SQLITE_FUNCTION:
            is_same = name not in _OTHERWISE
        else:
            is_same = (
                name not in _OF_HERE
                if action == sqlite3.SQLITE_READ
                else name not in (OFFSET_TABLE, LOG_TABLE)
            )
        if action in _ALLOWED and is_same:
            return sqlite3.SQLITE_OK
        refused.append(name)
        return sqlite3.SQLITE_DENY

    try:
        file.set_authorizer(authorize)
        rows = file.execute(sql, values).fetchall()
        if is_new and has_columns:
            _check_defaults(file, authorize, refused)
        return rows
    except sqlite3.DatabaseError as error:
        if refused:
            what = (
                f"{sql[:200]!r}: {refused[0]} may do something else on another node, or is not for statements"
            )
            raise UsageError(f"{what}; nothing of it was done") from error
        raise
    finally:
        file.set_authorizer(None)


def _check_defaults(file: sqlite3.Connection, authorize: _Authorizer, refused: list[str]) -> None:
    """Raises sqlite3.DatabaseError where a default of some column is refused. SQLite asks about it only when it is
    used, and then not the authorizer."""
    file.set_authorizer(None)
    found = file.execute(_DEFAULTS).fetchall()
    file.set_authorizer(authorize)
    for (default,) in found:
        try:
            file.execute(f"SELECT ({default})")
        except sqlite3.DatabaseError:  # A bare word, say, which is text as a default and a column here.
            if refused:
                raise


def attempt(file: sqlite3.Connection, sql: str, values: Any) -> Rows:
    """As `run`, of a statement behind whose error its transaction may go on: nothing is left then of one that failed,
    also not the rows before the conflict of an OR FAIL."""
    file.execute(f"SAVEPOINT {OFFSET_TABLE}")
    try:
        return run(file, sql, values, is_new=True)
    except BaseException:
        if file.in_transaction:
            file.execute(f"ROLLBACK TO {OFFSET_TABLE}")
        raise
    finally:
        if file.in_transaction:
            file.execute(f"RELEASE {OFFSET_TABLE}")


def read_only(file: sqlite3.Connection, sql: str, values: Any) -> Rows:
    """The rows of a SELECT. Raises UsageError: the statement would begin or end a transaction, attach a file, or set
    something of the connection, by which commands do here what they do nowhere else."""
    refused: list[int] = []

    def authorize(action: int, what: str | None, second: str | None, *_: object) -> int:
        sets = action == sqlite3.SQLITE_PRAGMA and second is not None and str(what).lower() not in _ASKING
        if action not in _ENDURING and not sets:
            return sqlite3.SQLITE_OK
        refused.append(action)
        return sqlite3.SQLITE_DENY

    file.execute("PRAGMA query_only=1")
    try:
        file.set_authorizer(authorize)
        return file.execute(sql, values).fetchall()
    except sqlite3.DatabaseError as error:
        if refused:
            raise UsageError(f"{sql!r:.200} is no read; nothing was done") from error
        raise
    finally:
        file.set_authorizer(None)
        file.execute("PRAGMA query_only=0")
