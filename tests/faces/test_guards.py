"""P9.3, for an application's own resources: each refuses an epoch below the highest that it has met."""

from __future__ import annotations

import asyncio
import itertools
import linecache
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import embedbk
from embedbk import EpochGuard, FileGuard, SqlGuard
from embedbk.storage.noted import NoteFile

NOT_EPOCHS = [0, -1, True, "7", 7.0, None, 1 << 63]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "application.db", timeout=0)) as opened:
        opened.execute("CREATE TABLE paid (what TEXT)")
        SqlGuard("billing").prepare(opened)
        yield opened


def paid(path: Path) -> list[str]:
    with closing(sqlite3.connect(path / "application.db")) as other:
        return [row[0] for row in other.execute("SELECT what FROM paid ORDER BY rowid")]


def test_a_function_is_called_under_no_epoch_below_the_highest() -> None:
    """ "Refuse epochs below the highest seen"; the same one may come again."""
    called: list[str] = []
    guard = EpochGuard(called.append)
    for epoch, what in ((5, "a"), (5, "b"), (9, "c")):
        guard(epoch, what)
    with pytest.raises(embedbk.StaleEpoch, match="has met epoch 9 and refuses epoch 5") as refused:
        guard(5, "d")
    assert called == ["a", "b", "c"] and guard.highest == 9
    assert refused.value.definite and "took over" in refused.value.hint


def test_an_epoch_is_kept_before_anything_is_done_under_it() -> None:
    """An act that fails has closed the way for lower epochs; one whose epoch is not kept does not happen."""
    kept: list[int] = []
    done: list[str] = []

    def act(what: str) -> str:
        done.append(what)
        if what == "fails":
            raise RuntimeError(what)
        return what

    def keep(epoch: int) -> None:
        if epoch == 13:
            raise OSError("no room")
        kept.append(epoch)

    guard = EpochGuard(act, seen=7, keep=keep)
    with pytest.raises(embedbk.StaleEpoch):
        guard(6, "of an earlier process")
    with pytest.raises(RuntimeError):
        guard(8, "fails")
    with pytest.raises(embedbk.StaleEpoch):
        guard(7, "late")
    with pytest.raises(OSError, match="no room"):
        guard(13, "not kept")
    assert guard(8, "again") == "again"
    assert (done, kept, guard.highest) == (["fails", "again"], [8], 8)


def test_calls_wait_for_each_other() -> None:
    """Look and act are one: a higher epoch that comes while an act runs is behind it."""
    begun, may_end = threading.Event(), threading.Event()
    order: list[int] = []

    def act(number: int) -> None:
        if number == 1:
            begun.set()
            may_end.wait(60)
        order.append(number)

    guard = EpochGuard(act)
    first = threading.Thread(target=guard, args=(1, 1))
    first.start()
    assert begun.wait(60)
    second = threading.Thread(target=guard, args=(2, 2))
    second.start()
    assert guard.highest == 1 and order == []
    may_end.set()
    first.join(60)
    second.join(60)
    assert order == [1, 2]


@pytest.mark.parametrize("epoch", NOT_EPOCHS)
def test_what_is_no_epoch_is_refused_everywhere(
    epoch: Any, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    """0 is the epoch of a lock that is not held."""
    for use in (
        lambda: EpochGuard(lambda: None)(epoch),
        lambda: FileGuard(tmp_path / "report").replace(b"", epoch=epoch),
        lambda: FileGuard(tmp_path / "report").held(epoch).__enter__(),
        lambda: SqlGuard("billing").transaction(connection, epoch=epoch).__enter__(),
    ):
        with pytest.raises(embedbk.UsageError, match="from 1 to 2\\^63-1"):
            use()
    assert not (tmp_path / "report").exists()


def test_a_file_is_replaced_whole_and_by_the_newest_only(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    mine, theirs = FileGuard(report), FileGuard(str(report))
    assert mine.highest() == 0
    mine.replace(b"first", epoch=3)
    assert report.read_bytes() == b"first" and report.stat().st_mode & 0o777 == 0o600
    report.chmod(0o644)
    theirs.replace(memoryview(b"second"), epoch=4)
    with pytest.raises(embedbk.StaleEpoch, match=r"report\.json has met epoch 4 and refuses epoch 3"):
        mine.replace(b"late", epoch=3)
    assert report.read_bytes() == b"second" and report.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "report.json",
        "report.json.epoch",
        "report.json.lock",
    ]
    with theirs.held(5) as path:
        assert path == report
        path.unlink()
    with pytest.raises(embedbk.StaleEpoch):  # The file is gone, what it has met is not.
        mine.replace(b"late", epoch=4)
    assert mine.highest() == 5


def test_a_file_that_another_holds_is_waited_for_and_never_taken(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with (
        FileGuard(report).held(7),
        pytest.raises(embedbk.OperationTimeout, match="another process holds") as late,
    ):
        FileGuard(report, timeout_s=0).replace(b"beside", epoch=8)
    assert late.value.definite and not report.exists() and FileGuard(report).highest() == 7


def test_a_file_is_let_go_though_a_child_lives_on(tmp_path: Path) -> None:
    """A child that another thread forked in the block has the same open file; `os.dup` gives what it has."""
    report = tmp_path / "report.json"
    with FileGuard(report).held(7):
        lock = tmp_path / "report.json.lock"
        numbers = [int(each.name) for each in Path("/proc/self/fd").iterdir() if each.resolve() == lock]
        of_child = os.dup(numbers[0])
    try:
        FileGuard(report, timeout_s=0).replace(b"next", epoch=8)
    finally:
        os.close(of_child)
    assert report.read_bytes() == b"next"


def test_a_file_behind_a_link_is_the_same_file(tmp_path: Path) -> None:
    """Else its two names would have two locks, and two highest epochs."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "report").symlink_to("real/report")
    FileGuard(tmp_path / "real" / "report").replace(b"new", epoch=6)
    for path in (tmp_path / "link" / "report", tmp_path / "report"):
        with pytest.raises(embedbk.StaleEpoch):
            FileGuard(path).replace(b"late", epoch=5)
    FileGuard(tmp_path / "report").replace(b"newer", epoch=7)
    assert (tmp_path / "report").is_symlink() and (tmp_path / "real" / "report").read_bytes() == b"newer"


def test_the_epoch_is_durable_before_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power leaves the new content beside the old epoch, and a late holder replaces it."""
    report = tmp_path / "report.json"
    guard = FileGuard(report)
    guard.replace(b"old", epoch=1)
    monkeypatch.setattr(
        NoteFile, "keep", lambda self, body: (_ for _ in ()).throw(embedbk.StorageError("no"))
    )
    with pytest.raises(embedbk.StorageError):
        guard.replace(b"new", epoch=2)
    guard.replace(b"same holder", epoch=1)  # Nothing new has to be noted.
    assert report.read_bytes() == b"same holder" and guard.highest() == 1
    assert not list(tmp_path.glob(".report*"))


def test_a_stop_at_any_point_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """A signal's handler raises behind whichever call it came in, as by Ctrl+C; a part that stays takes room, and has
    what was to be written."""
    guard = FileGuard(tmp_path / "report.json")
    guard.replace(b"old", epoch=1)
    for wanted in itertools.count(1):
        met = 0

        def stop(frame: FrameType, event: str, _: object, wanted: int = wanted) -> Any:
            nonlocal met
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            is_ours = frame.f_code.co_name in ("replace", "_write", "_mode", "_sync_directory")
            if is_ours and event == "line" and "(" in line and "with " not in line and "unlink" not in line:
                met += 1
                if met == wanted:
                    raise KeyboardInterrupt
            return stop

        before = sys.gettrace()
        sys.settrace(stop)
        try:
            guard.replace(b"new", epoch=2)
            break
        except KeyboardInterrupt:
            assert not list(tmp_path.glob(".report*")), f"at line {wanted}"
        finally:
            sys.settrace(before)
    assert wanted > 12 and guard.highest() == 2


def test_a_note_that_cannot_be_read_is_never_taken_for_none(tmp_path: Path) -> None:
    """ "Cannot tell" is never "no": every byte of what counts in it is changed in turn."""
    report = tmp_path / "report.json"
    guard = FileGuard(report)
    guard.replace(b"old", epoch=9)
    note = tmp_path / "report.json.epoch"
    whole = note.read_bytes()
    for place in range(24):
        note.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(embedbk.StorageError, match=r"report\.json\.epoch"):
            guard.replace(b"new", epoch=10)
    note.write_bytes(b"")
    with pytest.raises(embedbk.StorageError, match=r"report\.json\.epoch"):
        guard.replace(b"new", epoch=10)
    assert report.read_bytes() == b"old"


@pytest.mark.parametrize("path", ["", "/", "missing/report", b"report", 7, "."])
def test_only_a_file_in_a_directory_that_exists_is_guarded(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(embedbk.UsageError):
        FileGuard(path)
    with pytest.raises(embedbk.UsageError, match="timeout_s"):
        FileGuard("report", timeout_s=-1)
    with pytest.raises(embedbk.UsageError, match="bytes are allowed"):
        FileGuard("report").replace("text", epoch=1)  # type: ignore[arg-type]


def test_a_transaction_is_committed_with_its_epoch_or_not_at_all(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    guard = SqlGuard("billing")
    with guard.transaction(connection, epoch=5) as cursor:
        cursor.execute("INSERT INTO paid VALUES ('a')")

    def fail() -> None:
        with guard.transaction(connection, epoch=6) as cursor:
            cursor.execute("INSERT INTO paid VALUES ('b')")
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError):
        fail()
    with guard.transaction(connection, epoch=5) as cursor:  # What was rolled back was never met.
        cursor.execute("INSERT INTO paid VALUES ('c')")
    with guard.transaction(connection, epoch=7) as cursor:
        cursor.execute("INSERT INTO paid VALUES ('d')")
    with (
        pytest.raises(embedbk.StaleEpoch, match="resource 'billing' has met epoch 7 and refuses epoch 5"),
        guard.transaction(connection, epoch=5),
    ):
        pytest.fail("the block was begun")
    assert connection.execute("SELECT epoch, acts FROM embedbk_epochs").fetchall() == [(7, 3)]
    assert paid(tmp_path) == ["a", "c", "d"]


def test_a_transaction_that_is_open_keeps_others_out(tmp_path: Path, connection: sqlite3.Connection) -> None:
    """An old holder that is paused inside its transaction commits before the new one begins, or never."""
    guard = SqlGuard("billing")
    with closing(sqlite3.connect(tmp_path / "application.db", timeout=0)) as other:
        with guard.transaction(connection, epoch=5) as cursor:
            cursor.execute("INSERT INTO paid VALUES ('old')")
            with pytest.raises(sqlite3.OperationalError, match="locked"), guard.transaction(other, epoch=6):
                pytest.fail("the block was begun")
        with guard.transaction(other, epoch=6) as cursor:
            cursor.execute("INSERT INTO paid VALUES ('new')")
        with pytest.raises(embedbk.StaleEpoch), guard.transaction(connection, epoch=5):
            pytest.fail("the block was begun")
    assert paid(tmp_path) == ["old", "new"]


def test_a_connection_without_a_transaction_is_refused(tmp_path: Path) -> None:
    """There the epoch would be compared, and what is done under it would come later."""
    with closing(sqlite3.connect(tmp_path / "application.db", isolation_level=None)) as alone:
        guard = SqlGuard("billing")
        guard.prepare(alone)
        with pytest.raises(embedbk.UsageError, match="by itself"), guard.transaction(alone, epoch=1):
            pytest.fail("the block was begun")
        alone.execute("BEGIN IMMEDIATE")
        with guard.transaction(alone, epoch=1) as cursor:
            cursor.execute("SELECT 1")
        assert not alone.in_transaction


def test_a_resource_without_a_row_is_named(connection: sqlite3.Connection) -> None:
    """It has met nothing that is known, so nothing is done; `prepare` keeps what was met."""
    with (
        pytest.raises(embedbk.UsageError, match="no row for 'shipping'"),
        SqlGuard("shipping").transaction(connection, epoch=5),
    ):
        pytest.fail("the block was begun")
    with SqlGuard("billing").transaction(connection, epoch=5):
        pass
    SqlGuard("billing").prepare(connection)
    with pytest.raises(embedbk.StaleEpoch), SqlGuard("billing").transaction(connection, epoch=4):
        pytest.fail("the block was begun")


class Driver:
    """A DB-API connection over sqlite3 that has nothing of sqlite3's own, speaks the given paramstyle, and says of the
    rows that a statement changed what it is told to."""

    def __init__(self, connection: sqlite3.Connection, paramstyle: str, rowcount: int | None = None) -> None:
        self._connection, self._paramstyle, self._rowcount = connection, paramstyle, rowcount
        self.commit, self.rollback = connection.commit, connection.rollback

    def cursor(self) -> Driver:
        self._cursor = self._connection.cursor()
        self.fetchone, self.close = self._cursor.fetchone, self._cursor.close
        return self

    def execute(self, statement: str, values: Any = ()) -> None:
        if self._paramstyle == "pyformat":
            for name in values:
                statement = statement.replace(f"%({name})s", f":{name}")
        elif self._paramstyle == "format":
            statement = statement.replace("%s", "?")
        elif self._paramstyle == "numeric":
            for number in range(len(values)):
                statement = statement.replace(f":{number + 1}", f"?{number + 1}")
        self._cursor.execute(statement, values)

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount if self._rowcount is None else self._rowcount


class Beaten(Driver):
    """Before its first INSERT another process prepares the same."""

    def __init__(self, connection: sqlite3.Connection, other: sqlite3.Connection) -> None:
        super().__init__(connection, "qmark")
        self._other: sqlite3.Connection | None = other

    def execute(self, statement: str, values: Any = ()) -> None:
        if statement.startswith("INSERT") and self._other is not None:
            other, self._other = self._other, None
            SqlGuard("billing").prepare(other)
        super().execute(statement, values)


def test_two_processes_prepare_at_once(tmp_path: Path) -> None:
    """Both are right where the row is there behind it; and what its resource has met stays."""
    with (
        closing(sqlite3.connect(tmp_path / "new.db", timeout=0)) as one,
        closing(sqlite3.connect(tmp_path / "new.db", timeout=0)) as other,
    ):
        SqlGuard("billing").prepare(Beaten(one, other))
        assert one.execute("SELECT resource, epoch FROM embedbk_epochs").fetchall() == [("billing", 0)]
        one.close()
        with pytest.raises(sqlite3.ProgrammingError):
            SqlGuard("billing").prepare(one)


@pytest.mark.parametrize("paramstyle", ["qmark", "format", "numeric", "named", "pyformat"])
def test_every_paramstyle_of_pep_249_is_spoken(
    paramstyle: str, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    guard, driver = SqlGuard("it's %s :1", paramstyle=paramstyle), Driver(connection, paramstyle)
    guard.prepare(driver)
    with guard.transaction(driver, epoch=5) as cursor:
        cursor.execute("INSERT INTO paid VALUES ('a')")
    with pytest.raises(embedbk.StaleEpoch), guard.transaction(driver, epoch=4):
        pytest.fail("the block was begun")
    assert paid(tmp_path) == ["a"]


@pytest.mark.parametrize("rowcount", [-1, 2])
def test_a_driver_that_does_not_count_rows_is_refused(rowcount: int, connection: sqlite3.Connection) -> None:
    """PEP 249 allows -1 for "cannot tell", which is never "yes"."""
    driver = Driver(connection, "qmark", rowcount)
    with (
        pytest.raises(embedbk.UsageError, match=f"{rowcount} rows"),
        SqlGuard("billing").transaction(driver, epoch=5),
    ):
        pytest.fail("the block was begun")


def test_a_driver_that_commits_by_itself_is_known_by_either_attribute(connection: sqlite3.Connection) -> None:
    for alone in (True, 1, lambda: None):
        driver = Driver(connection, "qmark")
        driver.autocommit, driver.get_autocommit = alone, lambda: True  # type: ignore[attr-defined]
        with (
            pytest.raises(embedbk.UsageError, match="by itself"),
            SqlGuard("billing").transaction(driver, epoch=5),
        ):
            pytest.fail("the block was begun")


@pytest.mark.parametrize(
    "arguments", [{"resource": ""}, {"resource": 7}, {"table": "a; DROP TABLE paid"}, {"paramstyle": "sql"}]
)
def test_what_a_row_is_named_is_judged_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises(embedbk.UsageError, match=next(iter(arguments))):
        SqlGuard(**{"resource": "billing", **arguments})


PAUSED = """
import sqlite3, sys
from pathlib import Path
import embedbk
url, where = sys.argv[1], Path(sys.argv[2])
with embedbk.open(url) as bk:
    writer = bk.log("orders").writer()
    print(writer.epoch, flush=True)
    sys.stdin.readline()  # Stopped here, and continued when another has the log.
    refused = []
    try:
        embedbk.FileGuard(where / "report").replace(b"of the old leader", epoch=writer.epoch)
    except embedbk.StaleEpoch:
        refused.append("file")
    connection = sqlite3.connect(where / "application.db")
    try:
        with embedbk.SqlGuard("billing").transaction(connection, epoch=writer.epoch) as cursor:
            cursor.execute("INSERT INTO paid VALUES ('of the old leader')")
    except embedbk.StaleEpoch:
        refused.append("row")
    print(*refused, writer.epoch, flush=True)
"""


def test_a_paused_old_leader_fails_at_each(
    data: Path, tmp_path: Path, settings: embedbk.Settings, connection: sqlite3.Connection
) -> None:
    """P9.1: nothing is protected by time alone. A process leads, is stopped by SIGSTOP, another takes over and acts;
    the first goes on without knowing, and each guard refuses it."""
    called: list[str] = []
    at_a_server = EpochGuard(called.append)
    with embedbk.open(data, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as bk:
        old = subprocess.Popen(
            [sys.executable, "-c", PAUSED, bk.url, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert old.stdin is not None and old.stdout is not None
            first = int(old.stdout.readline())
            at_a_server(first, "old")
            os.kill(old.pid, signal.SIGSTOP)
            with bk.log("orders").writer() as mine:
                assert mine.epoch > first
                FileGuard(tmp_path / "report").replace(b"of the new one", epoch=mine.epoch)
                with SqlGuard("billing").transaction(connection, epoch=mine.epoch) as cursor:
                    cursor.execute("INSERT INTO paid VALUES ('of the new one')")
                at_a_server(mine.epoch, "new")
                os.kill(old.pid, signal.SIGCONT)
                told, _ = old.communicate("\n", timeout=300)
                assert told.split() == ["file", "row", str(first)]
        finally:
            if old.poll() is None:
                old.kill()
                old.wait()
    with pytest.raises(embedbk.StaleEpoch):
        at_a_server(first, "late")
    assert called == ["old", "new"]
    assert (tmp_path / "report").read_bytes() == b"of the new one" and paid(tmp_path) == ["of the new one"]


def test_guards_are_used_from_asyncio_by_a_thread(tmp_path: Path) -> None:
    """The example of the module's first lines."""
    guard = FileGuard(tmp_path / "report")
    asyncio.run(asyncio.to_thread(guard.replace, b"awaited", epoch=3))
    assert guard.highest() == 3
