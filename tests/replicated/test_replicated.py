"""Replicated states: every copy the same, from commands and snapshots, whatever becomes of whom (P8.1, P8.8)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_128

from embedbk.client.waiting import drive_waits
from embedbk.errors import (
    EmbedbkError,
    LedgerFenced,
    OperationTimeout,
    StorageError,
    Truncated,
    UsageError,
)
from embedbk.replicated import Leader, Replica, ReplicatedDict, ReplicatedSqlite, StateMachine
from embedbk.testing import Cluster

NAME = "settings"


class Words(StateMachine):
    """The words that it was told, in order."""

    offset = 0

    def __init__(self) -> None:
        self.words: list[str] = []
        self.fails = ""

    def apply(self, command: bytes, offset: int) -> int:
        if command.decode() == self.fails:
            raise OSError("the disk of this copy is full")
        self.words.append(command.decode())
        self.offset = offset + 1
        return len(self.words)

    def save(self) -> list[bytes]:
        return [word.encode() + b" " for word in self.words]

    def load(self, parts: Iterator[bytes], offset: int) -> None:
        self.words, self.offset = b"".join(parts).decode().split(), offset


class AskedWords(Words):
    """Counts how often it is asked where it stands."""

    asked, _offset = 0, 0

    @property
    def offset(self) -> int:
        self.asked += 1
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._offset = offset


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=1, bookies=3) as made:
        yield made


def copy(cluster: Cluster, client: str) -> Replica[Words]:
    return Replica(cluster.client(client), NAME, Words())


def words(replica: Replica[Words]) -> str:
    return " ".join(replica.machine.words)


# Leading and following.


def test_who_follows_has_what_the_leader_was_told_was_done(cluster: Cluster) -> None:
    """What `submit` gave is what applying it gave."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    assert second.follow(5.0).offset == 0, "nobody ever led"
    with first.lead() as leader:
        assert [leader.submit(b"one"), leader.submit(b"two")] == [1, 2]
        assert first.freshness.offset == 2
        cluster.run_for(1)
        fresh = second.follow()
        assert (words(second), fresh.offset) == ("one two", 2)
    assert fresh.age_s < 1
    cluster.run_for(30)
    assert second.freshness.age_s >= 30
    with second.lead() as leader:
        assert leader.submit(b"three") == 3
    assert first.follow().offset == 3 and words(first) == "one two three"


def test_a_leader_has_applied_what_every_leader_before_was_told_was_done(cluster: Cluster) -> None:
    """P8.1: who takes over recovers the log and reads it to its end, before a command of its own."""
    first = copy(cluster, "a")
    leading = first.lead()
    leader = leading.__enter__()
    for number in range(20):
        leader.submit(b"w%d" % number)
    cluster.crash("a")
    second = copy(cluster, "b")
    with second.lead() as leader:
        assert words(second) == " ".join(f"w{number}" for number in range(20))
        assert leader.submit(b"next") == 21
    with contextlib.suppress(EmbedbkError):
        leading.__exit__(None, None, None)


def test_one_leads_at_a_time_and_the_next_one_waits_in_turn(cluster: Cluster) -> None:
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead():
        with pytest.raises(OperationTimeout), second.lead(timeout_s=2.0):
            pass
        with pytest.raises(UsageError, match="leads already"), first.lead():
            pass
    with second.lead(timeout_s=2.0) as leader:
        leader.submit(b"mine")
    with pytest.raises(UsageError, match="this copy of 'settings' follows"):
        first.leader.submit(b"nobody's")


def test_who_slept_while_another_led_changes_nothing(cluster: Cluster) -> None:
    """P9.1: no time limit protects anything: its first command fails, and is applied nowhere."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead() as leader:
        leader.submit(b"before")
        cluster.pause("a")
        with second.lead() as other:
            assert words(second) == "before"
            other.submit(b"after")
        cluster.resume("a")
        with pytest.raises(LedgerFenced):
            leader.submit(b"late")
        with pytest.raises(LedgerFenced):
            leader.submit(b"later still")
        assert words(first) == "before"
    first.follow()
    assert words(first) == "before after"


def test_reads_behind_a_confirmation_are_linearizable(cluster: Cluster) -> None:
    """An ex-leader that has not heard of it is told by the log before it says anything; no copy sees a barrier."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead() as leader:
        leader.submit(b"before")
        leader.confirm()
        assert leader.submit(b"next") == 2
        cluster.pause("a")
        with second.lead() as other:
            other.submit(b"after")
        cluster.resume("a")
        with pytest.raises(LedgerFenced):
            leader.confirm()
    assert words(second) == "before next after"
    first.follow()
    assert words(first) == "before next after"


def test_who_follows_waits_behind_confirmations(cluster: Cluster) -> None:
    """They are no commands: a copy that has read them has nothing new, and waits for what comes, without asking on."""
    machine = AskedWords()
    first, second = copy(cluster, "a"), Replica(cluster.client("b"), NAME, machine)
    with first.lead() as leader:
        leader.submit(b"one")
        for _ in range(3):
            leader.confirm()
        cluster.run_for(1)
        assert second.follow().offset == 1
        began_s, machine.asked = cluster.now_s, 0
        assert second.follow(5.0).offset == 1
        assert cluster.now_s >= began_s + 5 and machine.asked < 50
        assert leader.submit(b"two") == 2
        assert second.follow(5.0).offset == 5 and words(second) == "one two"


@pytest.mark.parametrize("survives", [True, False])
def test_who_does_not_hear_what_became_of_a_command_leads_no_more(cluster: Cluster, survives: bool) -> None:
    """P3.6: the log alone knows. It is applied by the next leader or by nobody, and here not before that one led."""
    first = copy(cluster, "a")
    with first.lead() as leader:
        leader.submit(b"before")
        bookies = ["b1", "b2", "b3"]
        if survives:
            cluster.partition(["a"], bookies[1:])
        else:
            cluster.partition(["a"], bookies)
        with pytest.raises(OperationTimeout) as told:
            leader.submit(b"unknown", timeout_s=1.0)
        assert not told.value.definite
        with pytest.raises(OperationTimeout):
            leader.submit(b"next")
        with pytest.raises(OperationTimeout):
            leader.checkpoint()
        assert words(first) == "before"
        cluster.heal()
    second = copy(cluster, "b")
    with second.lead() as leader:
        leader.submit(b"after")
    first.follow()
    assert words(first) == words(second)
    assert words(first) in ("before after", "before unknown after")


def test_who_is_interrupted_in_a_command_leads_no_more(cluster: Cluster) -> None:
    """By a signal, say, which a block may outlive: the command counts by then, and this state lacks it."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead() as leader:
        leader.submit(b"before")
        driver = drive_waits.get()
        assert driver is not None

        def cut(predicate: Callable[[], bool], timeout_s: float | None) -> bool:
            driver(predicate, timeout_s)
            raise KeyboardInterrupt

        token = drive_waits.set(cut)
        with pytest.raises(KeyboardInterrupt):
            leader.submit(b"cut off")
        drive_waits.reset(token)
        for act in (lambda: leader.submit(b"next"), leader.confirm, leader.checkpoint):
            with pytest.raises(UsageError, match="was interrupted in a command"):
                act()
        assert words(first) == "before"
    with second.lead() as leader:
        leader.submit(b"after")
    first.follow()
    assert words(first) == words(second) == "before cut off after"


@pytest.mark.parametrize("wrong", [b"", "text", None, bytearray(b"x"), b"x" * (2 << 20)])
def test_a_command_that_is_none_does_nothing(cluster: Cluster, wrong: Any) -> None:
    first = copy(cluster, "a")
    with first.lead() as leader:
        with pytest.raises(UsageError):
            leader.submit(wrong)
        assert leader.submit(b"right") == 1


@pytest.mark.parametrize("wrong", [-1, "5", float("nan"), True, pytest.param(10**400, id="huge")])
def test_a_command_with_a_time_that_is_none_does_nothing(cluster: Cluster, wrong: Any) -> None:
    """It was appended, refused while it was waited for, and lacked from then on in the state of a copy that led on."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead() as leader:
        for act in (lambda: leader.submit(b"one", timeout_s=wrong), lambda: leader.confirm(wrong)):
            with pytest.raises(UsageError, match="timeout_s"):
                act()
        assert leader.submit(b"two") == 1
    second.follow()
    assert words(first) == words(second) == "two"


def test_a_command_that_would_block_an_event_loop_does_nothing(cluster: Cluster) -> None:
    """As above; append_nowait is allowed there, and the wait behind it is not."""
    first, second = copy(cluster, "a"), copy(cluster, "b")

    async def submit(leader: Leader) -> None:
        with pytest.raises(UsageError, match=r"an asyncio event loop runs.*to_thread"):
            leader.submit(b"one")

    with first.lead() as leader:
        asyncio.run(submit(leader))
        assert leader.submit(b"two") == 1
    second.follow()
    assert words(first) == words(second) == "two"


def test_a_copy_that_failed_at_a_command_says_so_and_another_goes_on(cluster: Cluster) -> None:
    """The command counts, and nobody knows what of it is in this state."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    first.machine.fails = "two"
    with first.lead() as leader:
        leader.submit(b"one")
        with pytest.raises(OSError, match="full"):
            leader.submit(b"two")
        for act in (lambda: leader.submit(b"three"), leader.checkpoint, first.follow):
            with pytest.raises(UsageError, match="failed while it applied a command: the disk of this copy"):
                act()
    with second.lead() as leader:
        assert leader.submit(b"three") == 3
    assert words(second) == "one two three"


# Checkpoints.


def test_a_checkpoint_is_a_snapshot_and_then_a_truncation(cluster: Cluster) -> None:
    """Checkpoint, then trim: who comes later begins with the snapshot."""
    first = copy(cluster, "a")
    log = cluster.client("a").log(NAME)
    with first.lead() as leader:
        for number in range(10):
            leader.submit(b"w%d" % number)
        assert leader.checkpoint() == 10
        cluster.run_for(5)
        leader.submit(b"behind")
        assert leader.checkpoint() == 11
        cluster.run_for(5)
        leader.submit(b"last")
        assert leader.checkpoint() == 12
    assert log.segments()[0].first_offset >= 10
    second = copy(cluster, "b")
    second.follow()
    assert words(second) == words(first) and second.freshness.offset == 12
    with second.lead() as leader:
        assert leader.submit(b"more") == 13
    snapshots = cluster.client("a").log(NAME + ".snapshots")
    assert len([each for each in snapshots.segments() if each.last_entry >= 0]) == 1, (
        "only the newest one is kept"
    )


def test_a_copy_that_is_overtaken_by_a_truncation_begins_with_the_snapshot(cluster: Cluster) -> None:
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead() as leader:
        leader.submit(b"zero")
        cluster.run_for(1)
        assert second.follow().offset == 1
        for round_ in range(3):
            leader.submit(b"r%d" % round_)
            leader.checkpoint()
            cluster.run_for(5)
        assert second.follow().offset == 4
        assert words(second) == words(first)


def test_a_snapshot_that_was_cut_short_counts_for_nothing(cluster: Cluster) -> None:
    """Its last entry is missing: the one before it is loaded, and nothing went from the log behind it."""
    first = copy(cluster, "a")
    with first.lead() as leader:
        leader.submit(b"one")
        leader.checkpoint()
        leader.submit(b"two")

        def dies(parts: object = None) -> Iterator[bytes]:
            yield b"one "
            raise OSError("killed")

        leader._writer.roll()
        cluster.run_for(5)
        first.machine.save = dies  # type: ignore[method-assign, assignment]
        with pytest.raises(OSError, match="killed"):
            leader.checkpoint()
        assert leader.submit(b"three") == 3, "it leads on"
    second = copy(cluster, "b")
    second.follow()
    assert words(second) == "one two three"


def test_the_later_state_counts_and_not_the_later_hand(cluster: Cluster) -> None:
    """A leader of before that wakes up saves what it has: a newer snapshot stays, and the log behind that is whole."""
    first, second = copy(cluster, "a"), copy(cluster, "b")
    with first.lead() as leader:
        leader.submit(b"old")
        cluster.pause("a")
        with second.lead() as other:
            for number in range(5):
                other.submit(b"n%d" % number)
            other.checkpoint()
            cluster.run_for(5)
            other.submit(b"last")
            other.checkpoint()
            cluster.run_for(5)
        cluster.resume("a")
        with pytest.raises(LedgerFenced):
            leader.checkpoint()
    third = copy(cluster, "c")
    third.follow()
    assert words(third) == "old n0 n1 n2 n3 n4 last"


def test_parts_that_look_like_an_end_are_none(cluster: Cluster) -> None:
    """What a state holds is never taken for what says where it is."""
    from embedbk.replicated import snapshots

    found = snapshots.StateSnapshots(cluster.client("a"), NAME, b"")
    fake = snapshots._CONTROL + snapshots._encode(snapshots._End(0, 0, b""))
    found.write(7, [fake, fake])
    newest = found.newest()
    assert newest is not None and newest.offset == 7
    assert list(found.parts(newest)) == [fake, fake]
    assert found.write(7, [b"another"]) == newest, "one of this offset is there"
    assert found.write(3, [b"older"]) == newest
    with cluster.client("a").log(NAME + ".snapshots").writer() as cut_short:
        begins = cut_short.append_nowait(snapshots._CONTROL + snapshots._encode(snapshots._Begin(1, 99)))
        begins.result()
        cut_short.append(snapshots._PART + snapshots._encode(snapshots._End(begins.offset, 0, b"")))
    assert found.newest() == newest
    bad = newest._replace(end=snapshots._End(newest.end.begins, newest.end.parts, b"other"))
    with pytest.raises(StorageError, match="is not what was saved"):
        list(found.parts(bad))


def test_a_snapshot_whose_first_part_was_truncated_counts_for_nothing(cluster: Cluster) -> None:
    """It stands in several ledgers, and another hand took the first."""
    from embedbk.replicated import snapshots

    client = cluster.client("a")
    log = client.log(NAME + snapshots.SUFFIX)
    found = snapshots.StateSnapshots(client, NAME, b"")
    with log.writer() as writer:
        begins = writer.append_nowait(snapshots._CONTROL + snapshots._encode(snapshots._Begin(1, 9)))
        writer.append(snapshots._PART + b"a")
        writer.roll()
        writer.append(snapshots._PART + b"b")
        end = snapshots._End(begins.offset, 2, xxh3_128(b"ab").digest())
        writer.append(snapshots._CONTROL + snapshots._encode(end))
    newest = found.newest()
    assert newest is not None and list(found.parts(newest)) == [b"a", b"b"]
    log.truncate(2)
    assert log.segments()[0].first_offset == 2
    assert found.newest() is None
    assert found.write(5, [b"again"]).offset == 5


def test_without_any_snapshot_a_truncated_log_is_an_error(cluster: Cluster) -> None:
    """Nothing is made up: the log was truncated by another hand."""
    first = copy(cluster, "a")
    with first.lead() as leader:
        leader.submit(b"one")
        leader._writer.roll()
        cluster.run_for(5)
        leader.submit(b"two")
    cluster.client("a").log(NAME).truncate(1)
    with pytest.raises(Truncated):
        copy(cluster, "b").follow()


# The dictionary.


def test_a_dictionary_is_one_everywhere(cluster: Cluster) -> None:
    first = ReplicatedDict(cluster.client("a"), NAME)
    second = ReplicatedDict(cluster.client("b"), NAME)
    with first.lead() as leader:
        first["colour"] = "blue"
        first["sizes"] = [1, 2, {"x": b"y"}]
        first["gone"] = None
        del first["gone"]
        with pytest.raises(KeyError):
            del first["gone"]
        with pytest.raises(UsageError, match="nothing was changed"):
            first["strange"] = object()
        first.setdefault("colour", "red")
        leader.checkpoint()
    second.follow()
    assert dict(second) == dict(first) == {"colour": "blue", "sizes": [1, 2, {"x": b"y"}]}
    with pytest.raises(UsageError, match="follows"):
        second["colour"] = "red"


def test_what_a_dictionary_gives_is_no_part_of_it(cluster: Cluster) -> None:
    """A list that is changed where it was read is no command: else this copy, and each snapshot of it, has its own."""
    first = ReplicatedDict(cluster.client("a"), NAME)
    with first.lead() as leader:
        first["sizes"] = given = [1]
        given.append(2)
        first["sizes"].append(3)
        assert first["sizes"] == [1]
        with pytest.raises(UsageError, match="5 is no key: text is; nothing was changed"):
            first[5] = "five"  # type: ignore[index]
        leader.checkpoint()
    second = ReplicatedDict(cluster.client("b"), NAME)
    second.follow()
    assert dict(second) == dict(first) == {"sizes": [1]}


# The database.


@pytest.fixture
def two(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[ReplicatedSqlite, ReplicatedSqlite]]:
    with contextlib.ExitStack() as opened:  # Python 3.13 and later warn of a connection that nobody closes.
        first = ReplicatedSqlite(cluster.client("a"), "db", tmp_path / "a.db")
        opened.callback(first.machine.file.close)
        second = ReplicatedSqlite(cluster.client("b"), "db", tmp_path / "b.db")
        opened.callback(second.machine.file.close)
        yield first, second


def test_a_transaction_is_in_every_file_or_in_none(two: tuple[ReplicatedSqlite, ReplicatedSqlite]) -> None:
    first, second = two
    with first.lead() as leader:
        with first.transaction() as execute:
            execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT DEFAULT 'none', data BLOB)")
            execute("INSERT INTO t (name, data) VALUES (?, ?)", ("one", b"\x00\xff"))
            assert execute("SELECT count(*) FROM t") == [(1,)]
        with pytest.raises(sqlite3.OperationalError), first.transaction() as execute:
            execute("DELETE FROM t WHERE nothing = 1")
        with first.transaction() as execute:
            with pytest.raises(sqlite3.IntegrityError):
                execute("INSERT INTO t (id) VALUES (1)")
            execute("INSERT INTO t (name) VALUES (:name)", {"name": "two"})
        leader.checkpoint()
    second.follow()
    rows = [(1, "one", b"\x00\xff"), (2, "two", None)]
    assert first.read("SELECT * FROM t") == second.read("SELECT * FROM t") == rows
    with pytest.raises(UsageError, match="follows"), second.transaction():
        pass
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        second.read("DELETE FROM t")
    assert second.read("SELECT datetime('now') IS NOT NULL") == [(1,)], "reading may ask a clock"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (random())",
        "INSERT INTO t VALUES (CURRENT_TIMESTAMP)",
        "INSERT INTO t VALUES (datetime('now'))",
        "INSERT INTO t VALUES (last_insert_rowid())",
        "CREATE TABLE u (a DEFAULT CURRENT_TIMESTAMP)",
        "CREATE TABLE u (a DEFAULT (abs(random())))",
        "ALTER TABLE t ADD COLUMN b DEFAULT (1 + changes())",
        "-- a comment\nCREATE TABLE u (a DEFAULT CURRENT_TIMESTAMP)",
        "/* a comment */ ALTER TABLE t ADD COLUMN b DEFAULT (1 + changes())",
        "ALTER\nTABLE t ADD COLUMN b DEFAULT (1 + changes())",
        "; CREATE TABLE u (a DEFAULT (random()))",
        "CREATE TEMP TABLE u (a)",
        "CREATE TRIGGER r AFTER INSERT ON embedbk_offset BEGIN INSERT INTO t VALUES (random()); END",
        "ALTER TABLE embedbk_offset ADD COLUMN b",
        "ALTER TABLE Embedbk_Offset RENAME TO u",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO embedbk_offset VALUES (9); END",
        "PRAGMA user_version=3",
        "ATTACH ':memory:' AS x",
        "SAVEPOINT a",
        "COMMIT",
        "DELETE FROM embedbk_offset",
        "DROP TABLE embedbk_offset",
    ],
)
def test_what_may_do_something_else_elsewhere_is_refused(
    two: tuple[ReplicatedSqlite, ReplicatedSqlite], statement: str
) -> None:
    first, _ = two
    with first.lead():
        with first.transaction() as execute:
            execute("CREATE TABLE t (a)")
        before = first.machine.offset
        refused = pytest.raises(UsageError, match="may do something else on another node")
        with refused, first.transaction() as execute:
            for each in (
                statement,
                "INSERT INTO t VALUES (1)",
            ):  # The second one runs a trigger that was made.
                execute(each)
        assert first.machine.offset == before
        with first.transaction() as execute:
            execute("INSERT INTO t VALUES (1)")
    assert first.read("SELECT count(*) FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("column", "table"), [("sql", "sqlite_stmt"), ("pageno", "dbstat"), ("count(*)", "sqlite_stmt")]
)
def test_what_sqlite_says_of_this_connection_and_this_file_is_refused(
    two: tuple[ReplicatedSqlite, ReplicatedSqlite], column: str, table: str
) -> None:
    """REPLICATED.md: a statement that may do something else on another node is refused. The table of the statements
    that a connection has prepared has other rows in each copy, and each wrote its own. Not each SQLite has it."""
    first, second = two
    with first.lead():
        with first.transaction() as execute:
            execute("CREATE TABLE t (a)")
        refused = pytest.raises(
            (UsageError, sqlite3.OperationalError), match=r"on another node|no such table"
        )
        with refused, first.transaction() as execute:
            execute(f"INSERT INTO t SELECT {column} FROM {table}")
    second.follow()
    assert first.read("SELECT * FROM t") == second.read("SELECT * FROM t") == []


def test_a_file_that_was_cut_off_gets_what_was_acknowledged_from_the_log(
    cluster: Cluster, two: tuple[ReplicatedSqlite, ReplicatedSqlite], tmp_path: Path
) -> None:
    """Durable in the log, then the process dies before its local commit: the file is behind, never ahead."""
    first, second = two
    with first.lead() as leader:
        with first.transaction() as execute:
            execute("CREATE TABLE t (a)")
        commit = first.machine.commit
        first.machine.commit = lambda offset: (_ for _ in ()).throw(OSError("killed"))  # type: ignore[method-assign]
        with pytest.raises(OSError, match="killed"), first.transaction() as execute:
            execute("INSERT INTO t VALUES (1)")
        first.machine.commit = commit  # type: ignore[method-assign]
        with pytest.raises(UsageError, match="failed while it applied"), first.transaction():
            pass
        assert leader.ended is None
    assert first.read("SELECT * FROM t") == []
    first.close()
    with (
        contextlib.closing(ReplicatedSqlite(cluster.client("a"), "db", tmp_path / "a.db")) as again,
        again.lead(),
    ):
        assert again.read("SELECT * FROM t") == [(1,)]
    second.follow()
    assert second.read("SELECT * FROM t") == [(1,)]


def test_a_file_that_dies_inside_its_commit_has_all_of_it_or_nothing(
    two: tuple[ReplicatedSqlite, ReplicatedSqlite],
) -> None:
    """What a transaction did and its offset are one local commit: a file is never between two commands."""
    first, second = two
    with first.lead(), first.transaction() as execute:
        execute("CREATE TABLE t (a)")
        execute("INSERT INTO t VALUES (1)")
    second.follow()
    seen = set[tuple[int, int]]()

    def look(statement: str) -> None:
        with contextlib.closing(sqlite3.connect(second.path)) as other:
            (rows,), (behind,) = (
                other.execute(sql).fetchone()
                for sql in ("SELECT count(*) FROM t", "SELECT max(behind) FROM embedbk_offset")
            )
            seen.add((rows, behind))

    with first.lead(), first.transaction() as execute:
        execute("INSERT INTO t VALUES (2)")
    second.machine.file.set_trace_callback(look)
    second.follow()
    second.machine.file.set_trace_callback(None)
    look("")
    assert seen == {(1, 1), (2, 2)}


def test_a_file_has_one_keeper(
    cluster: Cluster, two: tuple[ReplicatedSqlite, ReplicatedSqlite], tmp_path: Path
) -> None:
    first, second = two
    with first.lead(), first.transaction() as execute:
        execute("CREATE TABLE t (a)")
    with contextlib.closing(ReplicatedSqlite(cluster.client("c"), "db", tmp_path / "b.db")) as twin:
        second.follow()
        with first.lead(), first.transaction() as execute:
            execute("INSERT INTO t VALUES (1)")
        second.follow()
        twin.follow()
        assert twin.read("SELECT * FROM t") == [(1,)], "applied once, whoever did"
        with pytest.raises(StorageError, match="another process keeps this file"):
            twin.machine.apply(b"\x90", 0)


@dataclasses.dataclass
class Money:
    cents: int


def test_every_file_gets_the_values_that_the_log_has(two: tuple[ReplicatedSqlite, ReplicatedSqlite]) -> None:
    """The leader runs what the others will: not what a list holds later, or what an adapter of its own makes of it."""
    first, second = two
    sqlite3.register_adapter(Money, lambda money: f"{money.cents} ct")
    try:
        with first.lead():
            with first.transaction() as execute:
                execute("CREATE TABLE t (a)")
                row: list[Any] = [1]
                execute("INSERT INTO t VALUES (?)", row)
                row[0] = datetime.datetime(2026, 1, 2, 3, 4, 5)
                execute("INSERT INTO t VALUES (?)", row)
                row[0] = bytearray(b"\x00")
            for strange in (Money(5), object(), datetime.datetime.now(datetime.UTC)):
                refused = pytest.raises(UsageError, match="nothing of it was done")
                with refused, first.transaction() as execute:
                    execute("INSERT INTO t VALUES (:a)", {"a": strange})
    finally:
        sqlite3.adapters.pop((Money, sqlite3.PrepareProtocol))
    second.follow()
    rows = [(1,), ("2026-01-02T03:04:05",)]
    assert first.read("SELECT a FROM t") == second.read("SELECT a FROM t") == rows


@pytest.mark.parametrize(
    ("statement", "fails"),
    [
        ("INSERT OR FAIL INTO t VALUES (2), (3), (1), (4)", sqlite3.IntegrityError),
        ("INSERT OR IGNORE INTO t VALUES (2), ('no')", sqlite3.IntegrityError),
        ("CREATE TABLE u (a DEFAULT (random()))", UsageError),
    ],
)
def test_of_a_statement_that_failed_nothing_is_left(
    two: tuple[ReplicatedSqlite, ReplicatedSqlite], statement: str, fails: type[Exception]
) -> None:
    """The entry lacks it, so no file has anything of it, also where SQLite would leave the rows before the conflict."""
    first, second = two
    with first.lead():
        with first.transaction() as execute:
            execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
            execute(
                "CREATE TRIGGER r BEFORE INSERT ON t WHEN new.a = 'no' BEGIN SELECT RAISE(FAIL, 'no'); END"
            )
            execute("INSERT INTO t VALUES (1)")
        with first.transaction() as execute:
            with pytest.raises(fails):
                execute(statement)
            execute("INSERT INTO t VALUES (9)")
    second.follow()
    for each in two:
        assert each.read("SELECT a FROM t") == [(1,), (9,)]
        assert each.read("SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'u'") == []


def test_a_transaction_that_a_statement_rolled_back_is_over(
    two: tuple[ReplicatedSqlite, ReplicatedSqlite],
) -> None:
    """Else the rest would change this file alone, and the entry would have what was rolled back."""
    first, second = two
    with first.lead():
        with first.transaction() as execute:
            execute("CREATE TABLE t (a UNIQUE)")
        for goes_on in (True, False):
            refused = pytest.raises(UsageError, match="is over: a statement that failed")
            with refused, first.transaction() as execute:
                execute("INSERT INTO t VALUES (1)")
                with pytest.raises(sqlite3.IntegrityError):
                    execute("INSERT OR ROLLBACK INTO t VALUES (1)")
                if goes_on:
                    execute("INSERT INTO t VALUES (2)")
        with first.transaction() as execute:
            execute("INSERT INTO t VALUES (3)")
        with pytest.raises(UsageError, match="is over: its block was left"):
            execute("INSERT INTO t VALUES (4)")
    second.follow()
    assert first.read("SELECT a FROM t") == second.read("SELECT a FROM t") == [(3,)]


def test_what_only_looks_like_something_else_is_done(two: tuple[ReplicatedSqlite, ReplicatedSqlite]) -> None:
    """A table may have the name of a function, a default may be a bare word, and a view may have lost its table."""
    first, second = two
    with first.lead(), first.transaction() as execute:
        for statement in (
            "CREATE TABLE date (time, random DEFAULT yes)",
            "CREATE VIEW v AS SELECT time FROM date",
            "INSERT INTO date (time) VALUES (1)",
            "CREATE TABLE u AS SELECT * FROM date",
            "DROP TABLE date",
            "CREATE TABLE w (a DEFAULT 'x', b DEFAULT (1 + 1))",
        ):
            execute(statement)
    second.follow()
    assert first.read("SELECT * FROM u") == second.read("SELECT * FROM u") == [(1, "yes")]


def test_what_is_not_committed_is_in_no_snapshot(
    cluster: Cluster, two: tuple[ReplicatedSqlite, ReplicatedSqlite]
) -> None:
    """The block may still end by an exception: then nobody has what it did."""
    first, second = two
    with first.lead() as leader:
        with first.transaction() as execute:
            execute("CREATE TABLE t (a)")
        refused = pytest.raises(UsageError, match="a transaction is open")
        with refused, first.transaction() as execute:
            execute("INSERT INTO t VALUES (1)")
            leader.checkpoint()
        assert leader.checkpoint() == 1
    second.follow()
    assert first.read("SELECT * FROM t") == second.read("SELECT * FROM t") == []


def test_each_call_may_come_from_another_thread(two: tuple[ReplicatedSqlite, ReplicatedSqlite]) -> None:
    """From asyncio the page says `asyncio.to_thread`, which takes any thread of its pool."""
    first, second = two
    with first.lead(), first.transaction() as execute:
        execute("CREATE TABLE t (a)")
    second.follow()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(second.read, "SELECT * FROM t").result() == []
        assert pool.submit(lambda: second.freshness.offset).result() == 1
        pool.submit(second.close).result()


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN",
        "COMMIT",
        "SAVEPOINT a",
        "ATTACH ':memory:' AS x",
        "PRAGMA foreign_keys=ON",
        "PRAGMA Synchronous(0)",
    ],
)
def test_a_read_leaves_the_copy_as_it_is(
    two: tuple[ReplicatedSqlite, ReplicatedSqlite], statement: str
) -> None:
    """Else it stops at its next command, or has what the log does not."""
    first, second = two
    with first.lead():
        with first.transaction() as execute:
            execute("CREATE TABLE t (a)")
            with pytest.raises(UsageError, match="is no read; nothing was done"):
                first.read(statement)
        second.follow()
        with pytest.raises(UsageError, match="is no read; nothing was done"):
            second.read(statement)
        with first.transaction() as execute:
            execute("INSERT INTO t VALUES (1)")
    second.follow()
    assert first.read("SELECT * FROM t") == second.read("SELECT * FROM t") == [(1,)]
    assert second.read("PRAGMA user_version") == second.read("PRAGMA foreign_keys") == [(0,)]
    assert second.read("PRAGMA table_info(t)") == [(0, "a", "", 0, None, 0)]
