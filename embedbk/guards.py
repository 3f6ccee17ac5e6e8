"""Checks of an epoch for an application's own resources: a file, a SQL row, a function (P9.3).

Decides when an act is refused: under an epoch below the highest that its resource has met. A holder that slept does not
know that another came (P9.1), so it is the resource that looks, and look and act are one: no other act of that resource
comes in between. A higher epoch is noted, durably where the resource is, before anything is done under it; so a
holder of a lower one is refused from then on, even if the act itself fails. An epoch is `LogWriter.epoch` or
`Lock.epoch`.

Nothing here asks the cluster. All calls block; from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from embedbk.config import check_seconds
from embedbk.errors import OperationTimeout, StaleEpoch, StorageError, UsageError
from embedbk.storage.noted import NoteFile, sync_directory

__all__ = ["EpochGuard", "FileGuard", "SqlGuard"]

_EPOCH_MAX = (1 << 63) - 1  # The largest BIGINT of SQL; revisions stay below it.
_EPOCH = struct.Struct("<Q")
_MAGIC = b"EBKG"
_POLL_S = 0.01  # Between two looks whether a file is free; flock has no limit of its own.
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
_RESOURCE_CHARS_MAX = 255
# How the n-th value of a statement is written (PEP 249), and whether values are given by name.
_PARAMSTYLES = {
    "qmark": ("?", False),
    "format": ("%s", False),
    "numeric": (":{0}", False),
    "named": (":v{0}", True),
    "pyformat": ("%(v{0})s", True),
}

P = ParamSpec("P")
R = TypeVar("R")


def check_epoch(epoch: object) -> int:
    """Raises UsageError unless it can be the epoch of a log or a lock."""
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 < epoch <= _EPOCH_MAX:
        raise UsageError(
            f"epoch={epoch!r}: allowed are whole numbers from 1 to 2^63-1; nothing was done",
            hint="`LogWriter.epoch`, or `Lock.epoch` while the lock is held (0: it is not)",
        )
    return epoch


def _stale(what: str, epoch: int, highest: int) -> StaleEpoch:
    return StaleEpoch(f"{what} has met epoch {highest} and refuses epoch {epoch}; nothing was done")


class EpochGuard(Generic[P, R]):
    """A function that is called by one holder at a time: `guard(epoch, ...)` calls `act(...)`. Thread-safe; calls wait
    for each other.

    seen: the highest epoch that was met before, by an earlier process. keep(epoch): called before the first act under
    a higher epoch; whatever it raises prevents that act. Without both, a new process takes any epoch first.
    """

    def __init__(
        self, act: Callable[P, R], *, seen: int = 0, keep: Callable[[int], object] | None = None
    ) -> None:
        if not callable(act) or not (keep is None or callable(keep)):
            raise UsageError(f"act={act!r}, keep={keep!r}: functions are allowed")
        self._act, self._keep = act, keep
        self._highest = check_epoch(seen) if seen else 0
        self._lock = threading.Lock()

    @property
    def highest(self) -> int:
        """The highest epoch met so far; 0: none."""
        return self._highest

    def __call__(self, epoch: int, /, *arguments: P.args, **named: P.kwargs) -> R:
        """What `act` returns.

        Raises:
            StaleEpoch: a higher epoch was met; `act` was not called.
            UsageError: it is no epoch.
        """
        check_epoch(epoch)
        with self._lock:
            if epoch < self._highest:
                raise _stale("this guard", epoch, self._highest)
            if epoch > self._highest:
                if self._keep is not None:
                    self._keep(epoch)
                self._highest = epoch
            return self._act(*arguments, **named)


class FileGuard:
    """One file of this machine, for any number of processes. Beside it stand `NAME.epoch`, the highest epoch that it
    has met, and `NAME.lock`, by which processes exclude each other; both stay when the file goes.

    timeout_s: to wait for another process that is in the middle of its act, as one that is stopped there.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float | None = 10.0) -> None:
        check_seconds(timeout_s, "timeout_s")
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise UsageError(f"path={path!r}: a path is allowed")
        self.path = Path(path).resolve()  # By whatever link it is reached, it is one file with one lock.
        if not self.path.name or not self.path.parent.is_dir() or self.path.is_dir():
            raise UsageError(f"{self.path}: allowed is a file in a directory that exists")
        self._timeout_s = timeout_s
        self._note = NoteFile(self.path.with_name(self.path.name + ".epoch"), _MAGIC)
        self._lock_path = self.path.with_name(self.path.name + ".lock")

    def highest(self) -> int:
        """The highest epoch met so far; 0: none. Raises StorageError: the note of it cannot be read."""
        noted = self._note.read()
        if not noted:
            return 0
        if len(noted[-1]) != _EPOCH.size:
            raise StorageError(
                f"{self._note.path} holds no epoch", hint="it is of another program: look at it"
            )
        return int(_EPOCH.unpack(noted[-1])[0])

    def replace(self, data: bytes | bytearray | memoryview, *, epoch: int) -> None:
        """The file is `data`, durably, when this returns; other programs see the old content or the new, never a part.

        Raises:
            StaleEpoch: a higher epoch was met; nothing was done.
            OperationTimeout: another process holds the file; definite, nothing was done.
            StorageError: the system refused; the content is the old one, or, where `definite` is False, either.
            UsageError: it is no epoch, or data are no bytes.
        """
        check_epoch(epoch)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"data={data!r:.80}: bytes are allowed; nothing was done")
        # Its name is known before it is there: a signal may raise at any point, and leaves nothing behind.
        part = self.path.with_name(f".{self.path.name}.{secrets.token_urlsafe(6)}.part")
        try:
            self._write(part, data)  # Before the file is held: a stop here keeps nobody waiting.
            with self.held(epoch):
                try:
                    part.rename(self.path)
                except OSError as refused:
                    raise self._unwritten(refused) from refused
                self._sync_directory()
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def held(self, epoch: int) -> Iterator[Path]:
        """The path, for a block that changes the file in its own way: no other `replace` or block runs meanwhile,
        and no lower epoch's ever again. A process that dies in it lets the file go.

        Raises:
            StaleEpoch, OperationTimeout, StorageError, UsageError: as `replace`; the block was not begun.
        """
        check_epoch(epoch)
        with self._excluded():
            highest = self.highest()
            if epoch < highest:
                raise _stale(str(self.path), epoch, highest)
            if epoch > highest:
                self._note.keep(_EPOCH.pack(epoch))
            yield self.path

    @contextmanager
    def _excluded(self) -> Iterator[None]:
        try:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as refused:
            raise StorageError(
                f"{self._lock_path} cannot be opened: {refused}",
                hint="check the directory and its permissions",
            ) from refused
        holder = os.getpid()
        try:
            self._wait_for(lock)
            yield
        finally:
            # A child that another thread forked meanwhile has the descriptor too, and would hold the file for its life.
            # It lets go of nothing itself, if it comes by here.
            if os.getpid() == holder:
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _wait_for(self, lock: int) -> None:
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if self._timeout_s is None else fcntl.LOCK_NB))
            except BlockingIOError:
                assert self._timeout_s is not None
                if time.monotonic() - began >= self._timeout_s:
                    raise OperationTimeout(
                        f"another process holds {self.path} for more than {self._timeout_s:g} s; nothing was done",
                        definite=True,
                        hint=f"it is in the middle of its act: `fuser {self._lock_path}` names it",
                    ) from None
                time.sleep(_POLL_S)
            except OSError as refused:
                raise StorageError(
                    f"{self._lock_path} cannot be locked: {refused}",
                    hint="the file system must know flock(2)",
                ) from refused
            else:
                return

    def _write(self, part: Path, data: bytes | bytearray | memoryview) -> None:
        try:
            with open(part, "xb", opener=_for_owner) as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), self._mode())
                os.fsync(file.fileno())
        except OSError as refused:
            raise self._unwritten(refused) from refused

    def _mode(self) -> int:
        """The mode of the file that it replaces; for a new file, one that only its owner may read."""
        try:
            return self.path.stat().st_mode & 0o777
        except FileNotFoundError:
            return 0o600

    def _sync_directory(self) -> None:
        try:
            sync_directory(self.path.parent)
        except OSError as refused:
            raise StorageError(
                f"{self.path} was replaced, and may be the old one again after a loss of power: {refused}",
                definite=False,
                hint="check the disk",
            ) from refused

    def _unwritten(self, refused: OSError) -> StorageError:
        return StorageError(
            f"{self.path} cannot be written: {refused}",
            definite=True,
            hint="check its permissions, its disk and the room on it",
        )


class SqlGuard:
    """A row that the application's statements share a transaction with, in any database with a DB-API connection
    (PEP 249), sqlite3 too. `prepare` makes table and row, once; then `transaction` is one act.

    resource: names the row, one for each thing that one holder may change. paramstyle: of the connection's module.
    """

    def __init__(self, resource: str, *, table: str = "embedbk_epochs", paramstyle: str = "qmark") -> None:
        if not isinstance(resource, str) or not 0 < len(resource) <= _RESOURCE_CHARS_MAX:
            raise UsageError(f"resource={resource!r:.300}: allowed are 1 to {_RESOURCE_CHARS_MAX} characters")
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise UsageError(f"table={table!r:.300}: a plain name is allowed, or SCHEMA.NAME")
        if paramstyle not in _PARAMSTYLES:
            raise UsageError(f"paramstyle={paramstyle!r}: allowed are {', '.join(_PARAMSTYLES)}")
        self.resource, self.table = resource, table
        self._value, self._is_named = _PARAMSTYLES[paramstyle]

    def prepare(self, connection: Any) -> None:
        """Make the table and this resource's row where they are not there yet, and commit; several processes may do so
        at once. Errors are the database's own."""
        try:
            self._prepare(connection)
        except Exception:  # noqa: BLE001  Each driver has errors of its own.
            self._prepare(connection)  # Another made them just now; any other error comes again.

    def _prepare(self, connection: Any) -> None:
        cursor = connection.cursor()
        try:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.table} (resource VARCHAR({_RESOURCE_CHARS_MAX}) PRIMARY KEY, "
                "epoch BIGINT NOT NULL, acts BIGINT NOT NULL)"
            )
            if self._noted(cursor) is None:
                self._execute(
                    cursor, "INSERT INTO {table} (resource, epoch, acts) VALUES ({}, 0, 0)", self.resource
                )
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            cursor.close()

    @contextmanager
    def transaction(self, connection: Any, *, epoch: int) -> Iterator[Any]:
        """A cursor, for a block whose statements are committed behind it together with the epoch, or rolled back where
        it raises. Meanwhile every other act of this resource waits in the database.

        Raises:
            StaleEpoch: a higher epoch was met; rolled back, and the block was not begun.
            UsageError: it is no epoch; `prepare` was not called; the connection commits each statement by itself.
        """
        cursor = connection.cursor()
        try:
            self.claim(connection, cursor, epoch=epoch)
            yield cursor
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            cursor.close()

    def claim(self, connection: Any, cursor: Any, *, epoch: int) -> None:
        """For a transaction that the caller commits or rolls back itself: its first statement, so that it waits for
        others before it reads anything. What follows in it is committed only if no higher epoch was met.

        Raises:
            StaleEpoch, UsageError: as `transaction`; roll back.
        """
        check_epoch(epoch)
        if _commits_alone(connection):
            raise UsageError(
                "this connection commits each statement by itself, so the epoch would not be compared together with "
                "what is done under it; nothing was done",
                hint="turn its autocommit off, or begin a transaction before",
            )
        # `acts` changes each time, since some databases count only rows that did.
        self._execute(
            cursor,
            "UPDATE {table} SET epoch = {}, acts = acts + 1 WHERE resource = {} AND epoch <= {}",
            epoch,
            self.resource,
            epoch,
        )
        if cursor.rowcount == 1:
            return
        if cursor.rowcount != 0:  # What was not counted may have been refused.
            raise UsageError(
                f"the cursor says that {cursor.rowcount} rows of {self.table} were changed; 1 or 0 can be understood",
                hint="use a driver that counts rows, and a table that only guards write",
            )
        highest = self._noted(cursor)
        if highest is None:
            raise UsageError(
                f"{self.table} has no row for {self.resource!r}; nothing was done",
                hint="call `prepare` once, before",
            )
        raise _stale(f"resource {self.resource!r}", epoch, highest)

    def _noted(self, cursor: Any) -> int | None:
        self._execute(cursor, "SELECT epoch FROM {table} WHERE resource = {}", self.resource)
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def _execute(self, cursor: Any, statement: str, *values: object) -> None:
        marks = [self._value.format(n) for n in range(1, len(values) + 1)]
        named = {f"v{n}": value for n, value in enumerate(values, 1)}
        cursor.execute(statement.format(*marks, table=self.table), named if self._is_named else values)


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _commits_alone(connection: Any) -> bool:
    """Whether there is no transaction that a statement of now would be part of. sqlite3 says it by two attributes,
    others by `autocommit`, or `get_autocommit()` where that is a method; one that has none of these follows PEP 249."""
    if getattr(connection, "in_transaction", False) is True:
        return False
    if hasattr(connection, "isolation_level") and hasattr(connection, "in_transaction"):
        alone = getattr(connection, "autocommit", None)
        return alone is True or (connection.isolation_level is None and alone is not False)
    alone = getattr(connection, "autocommit", False)
    return bool(connection.get_autocommit() if callable(alone) else alone)
