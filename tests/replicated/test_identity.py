"""A replicated state stays with its log: what was kept of one never goes on with another of the same name (P8.12)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedbk.errors import NoSuchLedger, StorageError
from embedbk.replicated import ReplicatedDict, ReplicatedSqlite
from embedbk.replicated.sqlite import _Machine
from embedbk.testing import Cluster

NAME = "db"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=1, bookies=3) as made:
        yield made


def written(cluster: Cluster, path: Path, rows: list[int], *, checkpoint: bool = False) -> str:
    """Lead with a copy in this file, and put these rows into it; the id of the log."""
    client = cluster.client("a")
    with closing(ReplicatedSqlite(client, NAME, path)) as db, db.lead() as leader:
        for row in rows:
            with db.transaction() as execute:
                execute("CREATE TABLE IF NOT EXISTS t (a)")
                execute("INSERT INTO t VALUES (?)", (row,))
        if checkpoint:
            leader.checkpoint()
    return client.log(NAME).log_id()


def as_the_build_before_left_it(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("DROP TABLE embedbk_log_id")
        file.commit()


def rows(db: ReplicatedSqlite) -> list[int]:
    return [row for (row,) in db.read("SELECT a FROM t")]


def test_a_copy_does_not_go_on_with_another_log_of_the_name(cluster: Cluster, tmp_path: Path) -> None:
    """P8.12: it is refused, following and leading, before anybody is fenced; the error names both logs. The former log,
    when it is back, goes on."""
    client = cluster.client("a")
    old = written(cluster, tmp_path / "a", [1, 2])
    client.delete_log(NAME)
    new = written(cluster, tmp_path / "b", [7, 8, 9])
    ledgers = client.log(NAME).segments()
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "a")) as db:
        for act in (db.follow, lambda: db.lead().__enter__()):
            with pytest.raises(
                NoSuchLedger, match=f"(?s)state of log {old},.*log {new} has that name.*{old}"
            ):
                act()
        assert client.log(NAME).segments() == ledgers, "nobody took the log over"
        assert (db.machine.offset, rows(db)) == (2, [1, 2])
        client.log(NAME).rename("another")
        client.undelete_log(old)
        with db.lead(), db.transaction() as execute:
            execute("INSERT INTO t VALUES (3)")
        assert rows(db) == [1, 2, 3]


def test_a_copy_whose_log_is_gone_says_so_and_makes_none(cluster: Cluster, tmp_path: Path) -> None:
    """P8.12: that there is no log is no news of a log; and to lead would make another one."""
    client = cluster.client("a")
    old = written(cluster, tmp_path / "a", [1])
    client.delete_log(NAME)
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "a")) as db:
        for act in (db.follow, lambda: db.lead().__enter__()):
            with pytest.raises(NoSuchLedger, match=f"state of log {old},.*there is no log of that name"):
                act()
    assert NAME not in client.logs()


def test_a_copy_that_runs_notices_that_its_log_was_begun_anew(cluster: Cluster) -> None:
    """P8.12, of a copy in memory; one that has nothing of the former log in it goes on with the new one."""
    client = cluster.client("a")
    first, second, empty = (ReplicatedDict(client, NAME) for _ in range(3))
    with empty.lead() as leader:
        leader.confirm()
        leader.confirm()
    with first.lead():
        first["a"] = 1
    second.follow()
    client.delete_log(NAME)
    third = ReplicatedDict(client, NAME)
    with third.lead():
        third["b"], third["c"] = 2, 3
    for each in (first, second):
        with pytest.raises(NoSuchLedger, match="has the state of log"):
            each.follow()
    assert (dict(first), dict(second)) == ({"a": 1}, {"a": 1})
    empty.follow()
    assert dict(empty) == {"b": 2, "c": 3}


def test_a_snapshot_of_another_log_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """P8.12: else a copy that begins has the state of a log that was deleted, and a leader lets that snapshot go."""
    client = cluster.client("a")
    old = written(cluster, tmp_path / "a", [1, 2, 3], checkpoint=True)
    leading = ReplicatedDict(client, NAME)
    client.delete_log(NAME)
    with leading._log.writer():
        new = client.log(NAME).log_id()
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "b")) as db:
        for act in (db.follow, lambda: db.lead().__enter__()):
            with pytest.raises(StorageError, match=f"(?s)'db.snapshots'.* of log {old},.* log {new} by now"):
                act()
        assert db.machine.offset == 0
        client.log(NAME + ".snapshots").rename("kept")
        assert db.follow().offset == 0
        with db.lead() as leader:
            with db.transaction() as execute:
                execute("CREATE TABLE t (a)")
            client.log("kept").rename(NAME + ".snapshots")
            with pytest.raises(StorageError, match="holds a snapshot of log"):
                leader.checkpoint()
    assert client.log(NAME + ".snapshots").segments()[0].last_entry == 2, "nothing of it was let go"


def test_a_file_of_the_build_before_learns_its_log_where_its_place_fits(
    cluster: Cluster, tmp_path: Path
) -> None:
    """P8.12: it says of no log. It opens as it is; with a log that ends before its place it is refused."""
    client = cluster.client("a")
    old = written(cluster, tmp_path / "a", [1, 2])
    as_the_build_before_left_it(tmp_path / "a")
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "a")) as db:
        assert db.machine.log_id == ""
        assert db.follow().offset == 2
        assert db.machine.log_id == old
    as_the_build_before_left_it(tmp_path / "a")
    client.delete_log(NAME)
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "a")) as db:
        with pytest.raises(NoSuchLedger, match="of a log that this copy followed"):
            db.follow()
        new = written(cluster, tmp_path / "b", [7])
        for act in (db.follow, lambda: db.lead().__enter__()):
            with pytest.raises(
                StorageError, match=f"state at offset 2, and log {new} of that name ends at 1"
            ):
                act()
        assert (db.machine.log_id, rows(db)) == ("", [1, 2])


def test_a_snapshot_of_the_build_before_counts_where_its_place_fits(cluster: Cluster, tmp_path: Path) -> None:
    """P8.12: it says of no log, either."""
    client = cluster.client("a")
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "a")) as db, db.lead():
        with db.transaction() as execute:
            execute("CREATE TABLE t (a)")
        saved = [b"".join(db.machine.save())]
        db._snapshots.write(1, saved)
        with closing(ReplicatedSqlite(client, NAME, tmp_path / "b")) as other:
            cluster.run_for(1)
            assert other.follow().offset == 1
            assert other.machine.log_id == db.machine.log_id == client.log(NAME).log_id()
    settings = ReplicatedDict(client, "settings")
    with settings.lead():
        settings["a"] = 1
    settings._snapshots.write(5, settings.machine.save())
    for act in (lambda late: late.follow(), lambda late: late.lead().__enter__()):
        with pytest.raises(StorageError, match=r"a state at offset 5, and log .* ends at 1"):
            act(ReplicatedDict(client, "settings"))


def test_a_file_keeps_its_log_through_a_load(tmp_path: Path) -> None:
    """P8.12: by the one transaction that brings the state."""
    with closing(_Machine(tmp_path / "a").file) as saved:
        data = saved.serialize()
    as_the_build_before_left_it(tmp_path / "a")
    with closing(sqlite3.connect(tmp_path / "a")) as file:
        before = file.serialize()
    machine = _Machine(tmp_path / "b")
    with closing(machine.file):
        machine.log_id = "~0123456789abcdef"
        for each in (data, before):
            machine.load(iter([each]), 0)
            assert machine.log_id == "~0123456789abcdef"


def test_a_snapshot_with_pages_of_another_size_is_refused_in_a_sentence(
    cluster: Cluster, tmp_path: Path
) -> None:
    """SQLite calls that an attempt to write a file that is read-only. With what the hint says it goes on."""
    client = cluster.client("a")
    written(cluster, tmp_path / "a", [1], checkpoint=True)
    with closing(sqlite3.connect(tmp_path / "b")) as made:
        made.execute("PRAGMA page_size=8192")
        made.execute("VACUUM")
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "b")) as db:
        with pytest.raises(StorageError, match=r"pages of 4096 bytes, and .*b of 8192") as told:
            db.follow()
        assert db.machine.offset == 0 and "PRAGMA page_size=4096" in str(told.value.hint)
    with closing(sqlite3.connect(tmp_path / "c")) as made:
        made.execute("PRAGMA page_size=4096")
        made.execute("VACUUM")
    with closing(ReplicatedSqlite(client, NAME, tmp_path / "c")) as db:
        db.follow()
        assert rows(db) == [1]


def test_a_file_that_sqlite_cannot_have_is_refused_in_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    """Also a snapshot of another machine, which is no SQLite file."""
    client = cluster.client("a")
    (tmp_path / "text").write_text("no database" * 100)
    for path in (tmp_path / "text", tmp_path, tmp_path / "nowhere" / "file"):
        with pytest.raises(StorageError, match=f"SQLite cannot keep a copy in {path}: "):
            ReplicatedSqlite(client, NAME, path)
    words = ReplicatedDict(client, NAME)
    with words.lead() as leader:
        words["a"] = 1
        leader.checkpoint()
    with (
        closing(ReplicatedSqlite(client, NAME, tmp_path / "a")) as db,
        pytest.raises(StorageError, match=r"the state at offset 1 cannot be loaded into .*a: "),
    ):
        db.follow()
