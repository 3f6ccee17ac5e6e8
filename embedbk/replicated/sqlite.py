"""A SQLite file that is the same on several nodes: each transaction is one command, its statements with their values.

The leader runs a transaction in its file, appends it, and commits it there when it is durable in the log, with its
offset in the same local commit. So no file ever holds what the log does not, and one that was cut off between the two
gets it from the log. Statements that could do something else on another node are refused: functions of time and chance
(also in defaults of columns, which no authorizer sees), temporary tables, pragmas, attached files. All nodes run one
version of SQLite.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from embedbk.client.client import Client
from embedbk.errors import StorageError, UsageError
from embedbk.replicated.machine import StateMachine
from embedbk.replicated.replica import Replica

__all__ = ["ReplicatedSqlite"]

Rows = list[tuple[Any, ...]]
_TABLE = "embedbk_offset"
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
_DEFAULTS = (
    "SELECT dflt_value FROM sqlite_schema s JOIN pragma_table_xinfo(s.name) "
    "WHERE s.type = 'table' AND dflt_value NOTNULL"
)
_OTHERWISE = set(
    "random randomblob changes total_changes last_insert_rowid load_extension current_time current_date "
    "current_timestamp date time datetime julianday unixepoch strftime timediff sqlite_version sqlite_source_id "
    "sqlite_compileoption_get sqlite_compileoption_used sqlite_offset".split()
)


class _Machine(StateMachine):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        # One call at a time, but from asyncio each may come from another thread.
        self.file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.file.execute("PRAGMA journal_mode=WAL")
        self.file.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} (behind INTEGER NOT NULL)")

    @property
    def offset(self) -> int:
        return int(self.file.execute(f"SELECT max(behind) FROM {_TABLE}").fetchone()[0] or 0)

    @contextmanager
    def begun(self, offset: int) -> Iterator[None]:
        self.file.execute("BEGIN IMMEDIATE")
        try:
            if self.offset > offset:
                raise StorageError("another process keeps this file: give each copy its own")
            yield
        finally:
            if self.file.in_transaction:
                self.file.execute("ROLLBACK")

    def commit(self, offset: int) -> None:
        self.file.execute(f"DELETE FROM {_TABLE}")
        self.file.execute(f"INSERT INTO {_TABLE} VALUES (?)", (offset + 1,))
        self.file.execute("COMMIT")

    def run(self, sql: str, values: Any, *, is_new: bool = False) -> Rows:
        """is_new: no entry has it yet, so that it can still be refused for a default. Those that are in the log were
        checked by who led then."""
        refused: list[str] = []
        has_columns = False  # It may have given a column its default.

        def authorize(action: int, what: str | None, second: str | None, *_: object) -> int:
            nonlocal has_columns
            has_columns = has_columns or action in _WITH_COLUMNS
            name = str(second if action in _NAMED_SECOND else what).lower()
            is_same = name not in _OTHERWISE if action == sqlite3.SQLITE_FUNCTION else name != _TABLE
            if action in _ALLOWED and (is_same or action == sqlite3.SQLITE_READ):
                return sqlite3.SQLITE_OK
            refused.append(name)
            return sqlite3.SQLITE_DENY

        try:
            self.file.set_authorizer(authorize)
            rows = self.file.execute(sql, values).fetchall()
            if is_new and has_columns:
                self._check_defaults(authorize, refused)
            return rows
        except sqlite3.DatabaseError as error:
            if refused:
                what = f"{sql[:200]!r}: {refused[0]} may do something else on another node, or is not for statements"
                raise UsageError(f"{what}; nothing of it was done") from error
            raise
        finally:
            self.file.set_authorizer(None)

    def _check_defaults(self, authorize: Callable[..., int], refused: list[str]) -> None:
        """Raises sqlite3.DatabaseError where a default of some column is refused. SQLite asks about it only when it is
        used, and then not the authorizer."""
        self.file.set_authorizer(None)
        found = self.file.execute(_DEFAULTS).fetchall()
        self.file.set_authorizer(authorize)
        for (default,) in found:
            try:
                self.file.execute(f"SELECT ({default})")
            except sqlite3.DatabaseError:  # A bare word, say, which is text as a default and a column here.
                if refused:
                    raise

    def attempt(self, sql: str, values: Any) -> Rows:
        """As `run`, for who may go on behind an error: nothing is left then of a statement that failed, also not the
        rows before the conflict of an OR FAIL."""
        self.file.execute(f"SAVEPOINT {_TABLE}")
        try:
            return self.run(sql, values, is_new=True)
        except BaseException:
            if self.file.in_transaction:
                self.file.execute(f"ROLLBACK TO {_TABLE}")
            raise
        finally:
            if self.file.in_transaction:
                self.file.execute(f"RELEASE {_TABLE}")

    def apply(self, command: bytes, offset: int) -> None:
        with self.begun(offset):
            for sql, values in msgspec.msgpack.decode(command):
                self.run(sql, values)
            self.commit(offset)

    def save(self) -> list[bytes]:
        if self.file.in_transaction:
            raise UsageError(
                "a transaction is open, and what it did so far would be saved; nothing was saved",
                hint="call checkpoint() outside of its block",
            )
        return [self.file.serialize()]

    def load(self, parts: Iterator[bytes], offset: int) -> None:
        data = bytearray(b"".join(parts))
        data[18:20] = b"\1\1"  # For a database without a WAL, as one in memory.
        with sqlite3.connect(":memory:") as saved:
            saved.deserialize(data)
            saved.backup(self.file)  # In one transaction.


def _plain(sql: str, values: Any) -> tuple[str, Any]:
    """The same, where sqlite3 takes these values without an adapter, of which each process has its own."""
    for value in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        if value is not None and not isinstance(value, int | float | str | bytes):
            raise UsageError(
                f"{sql!r:.200}: a {type(value).__name__} is no value of SQLite; nothing of it was done",
                hint="give text, bytes, a number or None",
            )
    return sql, values


class ReplicatedSqlite(Replica[_Machine]):
    """One copy of the database, in a file of its own."""

    def __init__(self, bk: Client, name: str, path: str | os.PathLike[str], *, password: bytes = b"") -> None:
        super().__init__(bk, name, _Machine(path), password=password)
        self.path = os.fspath(path)

    def read(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> Rows:
        """The rows of a SELECT on this copy, as fresh as `freshness` tells.

        Raises UsageError: it would begin or end a transaction, or attach a file, with which this copy goes no further.
        """
        refused: list[int] = []

        def authorize(action: int, *_: object) -> int:
            if action not in _ENDURING:
                return sqlite3.SQLITE_OK
            refused.append(action)
            return sqlite3.SQLITE_DENY

        file = self.machine.file
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

    @contextmanager
    def transaction(self) -> Iterator[Callable[..., Rows]]:
        """`with db.transaction() as execute: execute("INSERT INTO t VALUES (?)", (1,))`, on the copy that leads.

        Done on leaving the block, durable; or, by whatever it raises, not done here: after an error that is not
        `definite` the next leader knows. UsageError: a statement is refused, or this is larger than an entry. After an
        error of one statement, of which nothing was done, the block may go on; unless that rolled all of it back.
        """
        leader, statements = self.leader, list[msgspec.Raw]()
        file, is_open = self.machine.file, True

        def check() -> None:
            """Outside of its transaction each statement would be a change of this file alone."""
            if not is_open or not file.in_transaction:
                why = (
                    "a statement that failed rolled it back (OR ROLLBACK, say)"
                    if is_open
                    else "its block was left"
                )
                raise UsageError(
                    f"this transaction is over: {why}; nothing was done", hint="begin another one"
                )

        def execute(sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> Rows:
            check()
            try:
                statement = msgspec.msgpack.encode((sql, values))
            except (TypeError, ValueError, OverflowError) as strange:
                raise UsageError(f"{sql!r:.200}: {strange}; nothing of it was done") from strange
            # As it comes back from the log: a list may change behind this call, and an adapter of sqlite3 is here only.
            rows = self.machine.attempt(*_plain(*msgspec.msgpack.decode(statement)))
            statements.append(msgspec.Raw(statement))
            return rows

        with self.machine.begun(self.machine.offset):
            try:
                yield execute
                check()
            finally:
                is_open = False
            if statements:
                leader.submit(msgspec.msgpack.encode(statements), carry_out=self.machine.commit)

    def close(self) -> None:
        self.machine.file.close()
