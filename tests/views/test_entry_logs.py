"""The view of entry logs: asked of each bookie, page by page; who does not tell has a row that says why (VIEWS.md)."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import ENTRY_LOGS_MAX, EntryLogRow, EntryLogsAnswer, EntryLogsRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.bookie_words import RequestReceived, TellLogs
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.entry_logs_query import ANSWER_NS, EntryLogsQuery
from embedbk.core.upkeep_words import LogFacts
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NotEnoughBookies
from embedbk.host.telling import logs_told
from embedbk.ids import Member
from embedbk.testing import Cluster
from embedbk.views import VIEWS
from tests.rules.world import World
from tests.storage.test_journals import flush

B1 = Member("b1", b"1" * 16)


def rows_of(cluster: Cluster, bk: Any) -> list[dict[str, Any]]:
    columns = [column for column, _ in VIEWS["entrylogs"].columns]
    return [dict(zip(columns, row, strict=True)) for row in VIEWS["entrylogs"].rows(bk)]


def flushed(cluster: Cluster, bk: Any, payloads: list[bytes]) -> int:
    """A closed ledger that each bookie has in an entry log."""
    with bk.create_ledger() as ledger:
        ledger.add_many(payloads)
    cluster.run_for(1)
    for name in ("b1", "b2", "b3"):
        storage: Any = cluster.world.nodes[name].storage
        flush(storage)
    return int(ledger.ledger_id)


def test_each_log_has_its_sizes_and_what_still_counts() -> None:
    """What a ledger that was deleted leaves in a log is in its file, and counts no more."""
    with Cluster(seed=5, bookies=3, native=True) as cluster:
        bk = cluster.client()
        assert rows_of(cluster, bk) == []
        first = flushed(cluster, bk, [b"x" * 1_000] * 50)
        flushed(cluster, bk, [b"y" * 1_000] * 20)
        found = [row for row in rows_of(cluster, bk) if row["bookie"] == "b2"]
        assert [row["entryLog"] for row in found] == sorted(row["entryLog"] for row in found)
        assert len(found) == 2
        for row, count in zip(found, (50, 20), strict=True):
            assert count * 1_000 < row["liveBytes"] <= row["entriesBytes"] <= row["fileBytes"]
            assert (row["directory"], row["damaged"], row["why"]) == (0, False, None)
        storage: Any = cluster.world.nodes["b2"].storage
        storage.drop(first)
        (old, new) = [row for row in rows_of(cluster, bk) if row["bookie"] == "b2"]
        assert (old["liveBytes"], old["fileBytes"]) == (0, found[0]["fileBytes"])
        assert new["liveBytes"] == found[1]["liveBytes"]


def test_a_bookie_that_is_away_or_silent_has_a_row_that_says_so() -> None:
    """What is missing is no bookie without entry logs."""
    with Cluster(seed=6, bookies=3, native=True) as cluster:
        bk = cluster.client()
        flushed(cluster, bk, [b"x"])
        cluster.pause("b1")
        cluster.crash("b3")
        rows = rows_of(cluster, bk)
        assert [row["bookie"] for row in rows] == ["b1", "b2", "b3"]
        assert rows[0]["entryLog"] is None and rows[0]["why"].startswith(
            "bookie b1 does not tell its entry logs: "
        )
        assert rows[1]["entryLog"] is not None and rows[1]["why"] is None
        assert rows[2]["entryLog"] is None and rows[2]["why"]


def test_a_cluster_of_a_lower_level_is_told_so() -> None:
    """P10.8: a bookie of a build before would end its link, and with it what others ask over it."""
    with Cluster(seed=6, bookies=1, native=True) as cluster:
        bk = cluster.client()
        bk._runtime.node.metadata.client.cluster_level = 28
        (row,) = rows_of(cluster, bk)
        assert row["entryLog"] is None and "level" in row["why"]


# --- The question ------------------------------------------------------------------------------------------


def log(log_id: int) -> EntryLogRow:
    return EntryLogRow(log_id, 0, 4096, 100, 50)


def begun() -> EntryLogsQuery:
    query = EntryLogsQuery(B1)
    (sent,) = query.step(Started(5))
    assert isinstance(sent, Send)
    assert sent.control == EntryLogsRequest(B1.incarnation, -1)
    return query


def told(query: EntryLogsQuery, answer: Any) -> Any:
    return query.step(Answered(7, "entry logs", B1, answer))


def test_more_logs_than_one_answer_names_are_asked_for_page_by_page() -> None:
    query = begun()
    page = [log(number) for number in range(ENTRY_LOGS_MAX)]
    (sent,) = told(query, EntryLogsAnswer(Status.OK, page, has_more=True))
    assert sent.control == EntryLogsRequest(B1.incarnation, ENTRY_LOGS_MAX - 1)
    (ended,) = told(query, EntryLogsAnswer(Status.OK, [log(5_000)]))
    assert isinstance(ended, Ended)
    assert [each.log_id for each in ended.result] == [*range(ENTRY_LOGS_MAX), 5_000]


@pytest.mark.parametrize(
    "answer",
    [
        EntryLogsAnswer(Status.OK, [log(2), log(1)]),
        EntryLogsAnswer(Status.OK, [log(2), log(2)]),
        EntryLogsAnswer(Status.OK, [], has_more=True),
        EntryLogsAnswer(Status.WRONG_INCARNATION),
        ErrorAnswer("no"),
    ],
)
def test_an_answer_that_cannot_be_is_none(answer: Any) -> None:
    """Nobody is asked without end, and no row is made of it."""
    (ended,) = told(begun(), answer)
    assert isinstance(ended.error, NotEnoughBookies)


def test_a_page_that_begins_again_ends_it() -> None:
    query = begun()
    told(query, EntryLogsAnswer(Status.OK, [log(4)], has_more=True))
    (ended,) = told(query, EntryLogsAnswer(Status.OK, [log(4)], has_more=True))
    assert isinstance(ended.error, NotEnoughBookies)


def test_silence_and_a_lost_link_end_it() -> None:
    query = begun()
    assert query.step(Tick(5 + ANSWER_NS - 1)) == []
    (ended,) = query.step(Tick(5 + ANSWER_NS))
    assert "no answer in time" in str(ended.error)  # type: ignore[union-attr]
    (ended,) = begun().step(SendFailed(6, "entry logs", B1, "no link"))
    assert "no link" in str(ended.error)  # type: ignore[union-attr]


# --- The bookie --------------------------------------------------------------------------------------------


def test_a_bookie_tells_its_logs_from_a_place_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer names so many, and says whether others follow; another disk's question is refused (P7.2)."""
    with Cluster(seed=5, bookies=1, native=True) as cluster:
        storage: Any = cluster.world.nodes["b1"].storage
        facts = [LogFacts(number, 10, 9, 8, False) for number in range(ENTRY_LOGS_MAX + 2)]
        monkeypatch.setattr(storage, "log_facts", lambda: facts)
        answers = [logs_told(storage, TellLogs(1, 2, after)) for after in (-1, 1, 1_000_000)]
        assert [(len(each.logs), each.has_more) for each in answers] == [
            (ENTRY_LOGS_MAX, True),
            (ENTRY_LOGS_MAX, False),
            (0, False),
        ]
        assert answers[1].logs[0].log_id == 2


def test_another_disk_is_asked_for_nothing() -> None:
    """P7.2."""
    core = World(1).nodes["b1"].core
    (reply,) = core.step(RequestReceived(0, 1, 2, EntryLogsRequest(b"x" * 16)))
    assert reply.control == EntryLogsAnswer(Status.WRONG_INCARNATION)  # type: ignore[union-attr]
    (effect,) = core.step(RequestReceived(0, 1, 2, EntryLogsRequest(core.incarnation, 3)))
    assert effect == TellLogs(1, 2, 3)
