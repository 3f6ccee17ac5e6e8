"""Space reports: what is counted where, from whole clusters in virtual time (report/REPORT.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cli import main
from embedbk.report import SpaceReport, space_report
from embedbk.report.figures import DAY_MS, BookieRoom, KeptLog, LedgerSpace, ReportedLog, figures_of
from embedbk.report.page import kept_text, page_of, room_text
from embedbk.testing import Cluster
from tests.storage.test_journals import flush


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=5, bookies=4) as made:
        yield made


def test_space_by_log_with_what_could_be_freed(cluster: Cluster) -> None:
    """Closed and open ledgers, copies, a cursor, a deleted ledger, a deleted log, a ledger of no log."""
    bk = cluster.client()
    with bk.log("orders").writer() as orders:
        orders.append_many([b"x" * 100] * 50)
    with bk.log("gone").writer() as gone:
        gone.append(b"y" * 10)
    bk.delete_log("gone")
    with bk.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=1) as bare:
        bare.add_many([b"z" * 7] * 3)
    with bk.create_ledger() as deleted:
        deleted.add(b"deleted!")
    bk.delete_ledger(deleted.ledger_id)
    writer = bk.create_ledger()
    for _ in range(9):
        writer.add(b"open")
    cluster.run_for(2)
    bk.log("orders").cursor("billing").set(10)
    report = space_report(bk)
    logs = {each.name: each for each in report.logs}
    assert (logs["orders"].entries, logs["orders"].payload_bytes, logs["orders"].stored_bytes) == (
        50,
        5000,
        15000,
    )
    assert (logs["orders"].state, logs["orders"].consumed_bytes) == ("", 1000)
    assert logs["orders"].owner.startswith("client ")
    assert (logs["gone"].state, logs["gone"].stored_bytes) == ("deleted", 30)
    assert (logs[""].ledgers, logs[""].open_ledgers, logs[""].entries) == (2, 1, 12)
    assert logs[""].stored_bytes == 2 * 21 + 3 * 36
    freed = {each.what: each.stored_bytes for each in report.reclaimable}
    assert freed == {
        "deleted ledgers that can be brought back": 24,
        "deleted logs": 30,
        "before all cursors and pins of log orders": 3000,
    }
    assert report.stored_bytes == 15000 + 30 + 42 + 108 + 24
    assert [each.ledger_id for each in report.hot] == [writer.ledger_id]
    assert sum(each.owed_bytes for each in report.bookies) == report.stored_bytes
    assert not report.untold
    assert sum(size for _, size in report.growth) == report.payload_bytes - 8
    writer.close()


def test_a_bookie_that_is_away_leaves_a_ledger_untold_and_nothing_else(cluster: Cluster) -> None:
    bk = cluster.client()
    writer = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    writer.add(b"one")
    (seat,) = bk.ledger_metadata(writer.ledger_id).fragments[0].members
    cluster.crash(seat.bookie_id)
    report = space_report(bk)
    assert report.untold == (writer.ledger_id,)
    assert report.hot == ()


def test_what_grows_is_measured_between_two_looks(cluster: Cluster) -> None:
    bk = cluster.client()
    writers = [bk.create_ledger() for _ in range(2)]
    for writer in writers:
        writer.add(b"x" * 1000)
        writer.add(b"again")
    cluster.run_for(5)
    assert space_report(bk, sample_s=2.0).hot == ()  # Nothing came meanwhile.
    assert [each.is_measured for each in space_report(bk).hot] == [False, False]
    base = LedgerSpace(
        bk.ledger_metadata(writers[0].ledger_id), "", 70, 9000, was_entries=50, was_length=5000
    )
    (hot,) = figures_of([base], {}, [], 1, 2.0).hot
    assert (hot.entries_per_s, hot.bytes_per_s, hot.is_measured) == (10, 2000, True)


def ledger(bk: embedbk.Client, ledger_id: int) -> LedgerSpace:
    return LedgerSpace(bk.ledger_metadata(ledger_id), "a", 10, 1000)


def test_growth_is_spread_from_a_ledger_to_the_next(cluster: Cluster) -> None:
    """1,000 bytes in two days are 500 each; what is younger counts up to now."""
    bk = cluster.client()
    with bk.create_ledger() as made:
        made.add(b"x")
    base, now_ms = ledger(bk, made.ledger_id), 100 * DAY_MS
    old = base._replace(metadata=base.metadata.with_changes(created_ms=now_ms - 4 * DAY_MS))
    new = base._replace(metadata=base.metadata.with_changes(created_ms=now_ms - 2 * DAY_MS))
    report = figures_of([new, old], {"a": ReportedLog("a")}, [], now_ms, 0)
    assert [size for _, size in report.growth[-5:]] == [0, 500, 500, 500, 500]
    assert report.logs[0].day_bytes == 500
    assert dict(report.ages)["a week"] == 6000


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.opened.append(tag)


def test_the_page_is_whole_and_what_others_wrote_is_escaped(cluster: Cluster) -> None:
    """A stranger names a log with markup: it stands there as text. Nothing is loaded from elsewhere."""
    bk = cluster.client()
    with bk.create_ledger(custom={"log": b"<script>alert(1)</script>"}) as made:
        made.add(b"x")
    page = page_of(space_report(bk), "<b>")
    tags = _Tags()
    tags.feed(page)
    assert {"html", "svg", "table", "rect"} <= set(tags.opened)
    assert not {"script", "img", "link", "b"} & set(tags.opened)
    assert "&lt;script&gt;" in page and "http" not in page
    empty = SpaceReport(0, 0, 0, (), (), (), (), (), (), (), (), None, (), ())
    assert "</html>" in page_of(empty)


def test_the_command_gives_text_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, page = tmp_path / "data", tmp_path / "page.html"
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
    with embedbk.open(data, bookies=1, settings=settings) as bk, bk.log("orders").writer() as orders:
        orders.append(b"one")
    assert main(["spark", "report", "--at", str(data), "--html", str(page), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told["logs"]] == ["orders"]
    assert (told["stored_bytes"], len(told["growth"])) == (3, 14)
    assert "orders" in page.read_text()
    assert main(["spark", "report", "--at", str(data)]) == 0
    assert "orders: 3 B in 1 ledgers, 1 entries" in capsys.readouterr().out
    assert main(["spark", "report", "--at", str(data), "--html", str(tmp_path)]) == 1
    assert main(["spark", "report", "--at", str(data), "--sample-s", "-1"]) == 1


def test_what_keeps_entry_logs_is_told_with_what_is_dead_in_them() -> None:
    """Disks fill up for reasons that nobody sees (bookkeeper #2358): which ledgers keep the bytes of others."""
    with Cluster(seed=5, bookies=3, native=True) as cluster:
        bk = cluster.client()
        with bk.log("orders").writer() as orders:
            orders.append_many([b"x" * 100] * 30)
        with bk.create_ledger() as other:
            other.add_many([b"y" * 1000] * 50)
        cluster.run_for(1)
        for name in ("b1", "b2", "b3"):
            node: Any = cluster.world.nodes[name]
            flush(node.storage)
        assert space_report(bk).kept == ()
        for name in ("b1", "b2"):
            node = cluster.world.nodes[name]
            node.storage.drop(other.ledger_id)
        report = space_report(bk)
        assert sorted(each.bookie_id for each in report.kept) == ["b1", "b2"]
        for kept in report.kept:
            ((ledger_id, log, live),) = kept.keepers
            assert (log, kept.keeper_count) == ("orders", 1)
            assert ledger_id != other.ledger_id
            assert 30 * 100 < live < kept.file_bytes
            assert 50 * 1000 < kept.dead_bytes < kept.file_bytes
            sentence = kept_text(kept)
            assert f"kept by ledger {ledger_id} of orders (" in sentence
            assert sentence in page_of(report, "here")
        by_name = {each.bookie_id: each for each in report.bookies}
        assert [by_name[name].dead_bytes for name in ("b1", "b2", "b3")] == [
            *(each.dead_bytes for each in sorted(report.kept, key=lambda each: each.bookie_id)),
            0,
        ]
        assert all((each.disk_bytes or 0) >= 4096 for each in report.bookies)
        cluster.crash("b2")
        later = space_report(bk)
        assert [each.bookie_id for each in later.kept] == ["b1"]
        assert {each.bookie_id: each.disk_bytes is None for each in later.bookies} == {
            "b1": False,
            "b2": True,
            "b3": False,
        }


def test_a_keeper_that_metadata_does_not_know_is_called_so() -> None:
    kept = KeptLog("b1", 3, 9000, 5000, 9, tuple((number, "", 10 - number) for number in range(5)))
    (named,) = figures_of([], {}, [], 1, 0, kept=[kept]).kept
    assert {each[1] for each in named.keepers} == {"(not in the metadata)"}
    assert kept_text(named).endswith("ledger 4 of (not in the metadata) (6 B) and 4 more")


def test_days_that_are_left_follow_from_the_last_week_and_the_copies(cluster: Cluster) -> None:
    """Free bytes over what was stored a day in the last week; none where nothing grew, or no room is known."""
    now_ms = 100 * DAY_MS
    bk = cluster.client()
    with bk.create_ledger() as made:
        made.add(b"x")
    base = ledger(bk, made.ledger_id)
    week = base._replace(metadata=base.metadata.with_changes(created_ms=now_ms - 7 * DAY_MS), length=7_000)
    bookies = [BookieRoom("b1", "writable", 30_000), BookieRoom("b2", "read-only", 500_000)]
    copies = week.metadata.write_quorum
    left = figures_of([week], {"a": ReportedLog("a")}, bookies, now_ms, 0).days_left
    assert left == pytest.approx(30 / copies)
    assert figures_of([], {}, bookies, now_ms, 0).days_left is None
    assert figures_of([week], {"a": ReportedLog("a")}, [], now_ms, 0).days_left is None

    def of_age(days: float) -> float | None:
        young = base._replace(
            metadata=base.metadata.with_changes(created_ms=now_ms - int(days * DAY_MS)), length=7_000
        )
        return figures_of([young], {"a": ReportedLog("a")}, bookies, now_ms, 0).days_left

    assert of_age(2) == pytest.approx(30 / copies * 2 / 7), "it grew in two days"
    assert of_age(0.9) is None, "nobody knows yet"
    assert (room_text(3000), room_text(9e9)) == ("3000 days", "more than 10 years")
