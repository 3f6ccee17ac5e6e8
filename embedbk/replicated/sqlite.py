"""A SQLite file that is the same on several nodes: each transaction is one command, its statements with their values.

The leader runs a transaction in its file, appends it, and commits it there when it is durable in the log, with its
offset in the same local commit. So no file ever holds what the log does not, and one that was cut off between the two
gets it from the log. Statements that could do something else on another node are refused (`statements`). All nodes run
one version of SQLite.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from embedbk.client.client import Client
from embedbk.errors import StorageError, UsageError
from embedbk.replicated import statements
from embedbk.replicated.machine import StateMachine
from embedbk.replicated.replica import Replica
from embedbk.replicated.statements import LOG_TABLE, OFFSET_TABLE, Rows

__all__ = ["ReplicatedSqlite"]

_MAKE_LOG_TABLE = f"CREATE TABLE IF NOT EXISTS {LOG_TABLE} (id TEXT NOT NULL)"


class _Machine(StateMachine):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            # One call at a time, but from asyncio each may come from another thread.
            self.file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self.file.execute("PRAGMA journal_mode=WAL")
                self.file.execute(f"CREATE TABLE IF NOT EXISTS {OFFSET_TABLE} (behind INTEGER NOT NULL)")
                self.file.execute(_MAKE_LOG_TABLE)
            except BaseException:
                self.file.close()
                raise
        except sqlite3.Error as error:
            raise StorageError(
                f"SQLite cannot keep a copy in {self.path}: {error}",
                hint="give each copy a file of its own, in a directory that is there and may be written",
            ) from error

    @property
    def log_id(self) -> str:
        return str(self.file.execute(f"SELECT max(id) FROM {LOG_TABLE}").fetchone()[0] or "")

    @log_id.setter
    def log_id(self, log_id: str) -> None:
        with self.begun(self.offset):
            _put_log(self.file, log_id)
            self.file.execute("COMMIT")

    @property
    def offset(self) -> int:
        return int(self.file.execute(f"SELECT max(behind) FROM {OFFSET_TABLE}").fetchone()[0] or 0)

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
        self.file.execute(f"DELETE FROM {OFFSET_TABLE}")
        self.file.execute(f"INSERT INTO {OFFSET_TABLE} VALUES (?)", (offset + 1,))
        self.file.execute("COMMIT")

    def apply(self, command: bytes, offset: int) -> None:
        with self.begun(offset):
            for sql, values in msgspec.msgpack.decode(command):
                statements.run(self.file, sql, values)
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
        with closing(sqlite3.connect(":memory:")) as saved:
            try:
                saved.deserialize(data)
                # What an earlier build saved lacks the table; with the state comes the log that it is of.
                saved.execute(_MAKE_LOG_TABLE)
                _put_log(saved, self.log_id)
                saved.commit()
                theirs, ours = _page_bytes(saved), _page_bytes(self.file)
                if theirs != ours:
                    raise StorageError(
                        f"the state at offset {offset} has pages of {theirs} bytes, and {self.path} of {ours}, which "
                        "SQLite cannot change in a file that is in use; nothing was loaded",
                        hint=f"make another file with PRAGMA page_size={theirs} and VACUUM, and a copy with that",
                    )
                saved.backup(self.file)  # In one transaction.
            except sqlite3.Error as error:
                raise StorageError(
                    f"the state at offset {offset} cannot be loaded into {self.path}: {error}",
                    hint="all copies are kept by one version of SQLite; give this one a file of its own",
                ) from error


def _page_bytes(file: sqlite3.Connection) -> int:
    return int(file.execute("PRAGMA page_size").fetchone()[0])


def _put_log(file: sqlite3.Connection, log_id: str) -> None:
    file.execute(f"DELETE FROM {LOG_TABLE}")
    file.execute(f"INSERT INTO {LOG_TABLE} VALUES (?)", (log_id,))


class ReplicatedSqlite(Replica[_Machine]):
    """One copy of the database, in a file of its own."""

    def __init__(self, bk: Client, name: str, path: str | os.PathLike[str], *, password: bytes = b"") -> None:
        super().__init__(bk, name, _Machine(path), password=password)
        self.path = os.fspath(path)

    def read(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> Rows:
        """The rows of a SELECT on this copy, as fresh as `freshness` tells. Raises UsageError: it would begin or end a
        transaction, attach a file, or set a pragma, with which this copy goes no further, or another way."""
        return statements.read_only(self.machine.file, sql, values)

    @contextmanager
    def transaction(self) -> Iterator[Callable[..., Rows]]:
        """`with db.transaction() as execute: execute("INSERT INTO t VALUES (?)", (1,))`, on the copy that leads.

        Done on leaving the block, durable; or, by whatever it raises, not done here: after an error that is not
        `definite` the next leader knows. UsageError: a statement is refused, or this is larger than an entry. After an
        error of one statement, of which nothing was done, the block may go on; unless that rolled all of it back.
        """
        leader, done = self.leader, list[msgspec.Raw]()
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
            statement = statements.encoded(sql, values)
            # The log gives it back so: a list may change behind this call, and an adapter of sqlite3 is here only.
            rows = statements.attempt(file, *statements.decoded(statement))
            done.append(msgspec.Raw(statement))
            return rows

        with self.machine.begun(self.machine.offset):
            try:
                yield execute
                check()
            finally:
                is_open = False
            if done:
                leader.submit(msgspec.msgpack.encode(done), carry_out=self.machine.commit)

    def close(self) -> None:
        self.machine.file.close()
