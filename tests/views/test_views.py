"""The views: what the metadata says, as tables, from whole clusters in virtual time (views/VIEWS.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cli import main
from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.errors import UsageError
from embedbk.testing import Cluster
from embedbk.views import VIEWS, sql, view


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=7, bookies=4) as made:
        yield made


def table(bk: Client, name: str) -> list[dict[str, Any]]:
    """The rows by column, of the types that the view says."""
    wanted = view(name)
    found = wanted.rows(bk)
    for row in found:
        for value, (column, kind) in zip(row, wanted.columns, strict=True):
            assert value is None or type(value) is kind, (name, column, value)
    return [dict(zip((column for column, _ in wanted.columns), row, strict=True)) for row in found]


def filled(cluster: Cluster) -> Client:
    """Two logs, one sealed and one with an open ledger, a cursor, a splice, and a ledger of no log."""
    bk = cluster.client()
    log = bk.log("orders")
    for count in (3, 2):
        with log.writer() as writer:
            writer.append_many([b"x" * 10] * count)
    log.cursor("billing").set(4)
    terms = log.staging("import", 9)
    with log.stage(terms) as part:
        part.add_many([b"y" * 10] * 4)
    log.splice(terms, [part.ledger_id])
    with bk.log("done").writer() as writer:
        writer.append(b"z")
    bk.log("done").seal("migrated")
    with bk.create_ledger(ensemble_size=4, write_quorum=2, ack_quorum=2) as ledger:
        ledger.add_many([b"q"] * 5)
    return bk


def test_logs_and_their_ledgers(cluster: Cluster) -> None:
    bk = filled(cluster)
    logs = {row["log"]: row for row in table(bk, "logs")}
    assert set(logs) == {"orders", "done"}
    assert (logs["done"]["sealed"], logs["done"]["end"], logs["done"]["payloadBytes"]) == (
        "migrated",
        1,
        None,
    )
    assert (logs["orders"]["sealed"], logs["orders"]["begin"]) == (None, 0)
    rows = [row for row in table(bk, "segments") if row["log"] == "orders" and row["lastEntry"] is not None]
    assert [(row["firstOffset"], row["lastEntry"], row["payloadBytes"]) for row in rows] == [
        (0, 2, 30), (3, 1, 20), (5, 3, 40),
    ]  # fmt: skip
    assert rows[0]["ledgerId"] in {row["ledgerId"] for row in table(bk, "ledgers")}


def test_an_open_log_has_no_end_yet(cluster: Cluster) -> None:
    bk = cluster.client()
    with bk.log("open").writer() as writer:
        writer.append(b"x")
        (row,) = table(bk, "logs")
        assert (row["begin"], row["end"]) == (0, None)
        (segment,) = table(bk, "segments")
        assert (segment["firstOffset"], segment["lastEntry"], segment["begun"]) == (0, None, "TAKEOVER")


def test_ledgers_and_the_bookies_that_hold_them(cluster: Cluster) -> None:
    bk = filled(cluster)
    (bare,) = [row for row in table(bk, "ledgers") if row["logId"] is None]
    assert (bare["state"], bare["ensembleSize"], bare["writeQuorum"], bare["lastEntry"]) == (
        "CLOSED",
        4,
        2,
        4,
    )
    assert (bare["payloadBytes"], bare["digest"], bare["fragments"], bare["freed"]) == (5, "CRC32C", 1, False)
    seats = [row for row in table(bk, "replicas") if row["ledgerId"] == bare["ledgerId"]]
    assert [(row["firstEntry"], row["lastEntry"], row["seat"]) for row in seats] == [
        (0, 4, n) for n in range(4)
    ]
    assert {row["bookie"] for row in seats} == {row["bookie"] for row in table(bk, "bookies")}
    assert {row["state"] for row in table(bk, "bookies")} == {"writable"}


def test_cursors_and_transactions(cluster: Cluster) -> None:
    bk = filled(cluster)
    (cursor,) = table(bk, "cursors")
    assert (cursor["log"], cursor["cursor"], cursor["offset"], cursor["holds"]) == (
        "orders",
        "billing",
        4,
        True,
    )
    assert cursor["lagEntries"] == 5
    (spliced,) = table(bk, "txns")
    assert (spliced["application"], spliced["number"], spliced["firstOffset"], spliced["end"]) == (
        "import",
        9,
        5,
        9,
    )
    assert table(bk, "gaps") == table(bk, "archives") == []


def test_a_log_of_many_ledgers_and_a_truncated_front(cluster: Cluster) -> None:
    """P8.6: ledgers that stand in pages are rows like any other, and those that were truncated are none."""
    bk = cluster.client()
    log = bk.log("long")
    with log.writer() as writer:
        for _ in range(300):
            writer.append(b"x")
            writer.roll()
        writer.append(b"last")
    rows = table(bk, "segments")
    assert [row["firstOffset"] for row in rows] == list(range(301))
    log.truncate(7)
    rows = table(bk, "segments")
    assert [row["firstOffset"] for row in rows] == list(range(7, 301))
    assert [(row["begin"], row["ledgers"]) for row in table(bk, "logs")] == [(7, 294)]


def test_a_view_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"view 'log': allowed are logs, segments, ledgers"):
        view("log")


class TestSql:
    @pytest.fixture(autouse=True)
    def _needs_it(self) -> None:
        pytest.importorskip("duckdb")

    def test_a_question_reads_the_views_that_it_names(self, cluster: Cluster) -> None:
        bk = filled(cluster)
        told = sql(
            bk,
            "SELECT log, count(*) AS n FROM segments WHERE lastEntry IS NOT NULL GROUP BY log ORDER BY log",
        )
        assert told.columns == ("log", "n")
        assert told.rows == [("done", 1), ("orders", 3)]
        told = sql(bk, "SELECT bookie FROM replicas JOIN bookies USING (bookie) GROUP BY ALL ORDER BY 1")
        assert [name for (name,) in told.rows] == [row["bookie"] for row in table(bk, "bookies")]
        for each in VIEWS.values():
            told = sql(bk, f"SELECT * FROM {each.name}")
            assert told.columns == tuple(name for name, _ in each.columns)
            now = each.rows(bk)
            if each.name == "cursors":  # How long an entry has waited is told anew each time.
                told, now = told._replace(rows=[row[:-1] for row in told.rows]), [row[:-1] for row in now]
            assert sorted(told.rows, key=str) == sorted(now, key=str)

    @pytest.mark.parametrize(
        "question",
        ["SELEC 1", "SELECT * FROM nothing", "SELECT * FROM '/etc/passwd'", "COPY logs TO '/tmp/x.csv'", ""],
    )
    def test_what_is_no_question_is_refused(self, cluster: Cluster, question: str) -> None:
        """It reaches no file: what runs is a question over the metadata, whoever wrote it."""
        with pytest.raises(UsageError, match="cannot be answered"):
            sql(cluster.client(), question)

    def test_the_command_answers_as_a_table_and_as_json(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
        with embedbk.open(tmp_path / "data", bookies=1, settings=settings) as bk:
            with bk.log("orders").writer() as writer:
                writer.append(b"x")
            question = "SELECT log, ledgers, sealed FROM logs"
            assert main(["sql", question, "--at", str(tmp_path / "data")]) == 0
            assert capsys.readouterr().out == "log     ledgers  sealed\norders  1\n"
            assert main(["sql", question, "--at", str(tmp_path / "data"), "--json"]) == 0
            assert json.loads(capsys.readouterr().out) == {
                "rows": [{"log": "orders", "ledgers": 1, "sealed": None}]
            }
            # VIEWS.md: each column is in the answer, and a time or a fraction ended with a stack of Python's.
            question = (
                "SELECT x.log, y.log, 'log_1' AS log_1, 1.5, 2::decimal, 'nan'::double, 'ab'::blob, [now() - now()], "
                "{'at': epoch_ms(0)} FROM logs x, logs y"
            )
            assert main(["sql", question, "--at", str(tmp_path / "data"), "--json"]) == 0
            ((row),) = json.loads(capsys.readouterr().out)["rows"]
            assert list(row)[:3] == ["log", "log_2", "log_1"]
            expected = ["orders", "orders", "log_1", 1.5, 2, "nan", "6162", ["0:00:00"]]
            assert list(row.values()) == [*expected, {"at": "1970-01-01 00:00:00"}]
            assert main(["sql", "SELEC", "--at", str(tmp_path / "data")]) == 1
            assert "the tables are logs, segments" in capsys.readouterr().err


def test_a_log_with_a_password_has_its_cursors(cluster: Cluster) -> None:
    """VIEWS.md: "have their rows, too". Seen: one such log, and no cursor of any log could be seen."""
    bk = filled(cluster)
    log = bk.log("secret", password=b"key")
    writer = log.writer()
    writer.append_many([b"x"] * 3)
    log.cursor("billing").set(1)
    found = {row["log"]: row for row in table(bk, "cursors")}
    assert (found["orders"]["offset"], found["secret"]["offset"]) == (4, 1)
    assert found["secret"]["lagSeconds"] is None


@pytest.mark.parametrize(
    ("key", "missing"),
    [
        ("/log-names/strange", {"logs", "segments", "cursors", "txns"}),
        ("/logs/ID/list", {"logs", "segments"}),
        ("/logs/ID/cursors", {"cursors"}),
        ("/log-cursors/ID/billing", {"cursors"}),
        ("/logs/ID/splices", {"txns"}),
    ],
)
def test_a_key_that_cannot_be_read_has_no_row_and_keeps_no_other(
    cluster: Cluster, key: str, missing: set[str]
) -> None:
    """VIEWS.md, P2.5. Seen: one such key of one log, and the view of all logs was an error."""
    bk = filled(cluster)
    log = bk.log("strange")
    with log.writer() as writer:
        writer.append(b"z")
    log.cursor("billing").set(0)
    terms = log.staging("import", 9)
    with log.stage(terms) as part:
        part.add_many([b"y"])
    log.splice(terms, [part.ledger_id])
    runtime, path = bk._runtime, key.replace("ID", log.log_id())

    async def spoil() -> bool:
        value, revision = await runtime.get(path, "test")
        assert value is not None, path
        return await runtime.transact([Compare(path, revision)], [Put(path, b"\xc1")], "test")

    assert run_blocking(spoil(), "test")
    for name in ("logs", "segments", "cursors", "txns"):
        shown = {row["log"] for row in table(bk, name)}
        assert "orders" in shown and ("strange" in shown) == (name not in missing), name
