"""Which ledgers keep an entry log on the disk: asked of each bookie, log by log, page by page (VIEWS.md)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import (
    LOG_KEEPERS_MAX,
    LogKeeperRow,
    LogKeepersAnswer,
    LogKeepersRequest,
)
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.bookie_words import RequestReceived, TellKeepers
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.entry_logs_query import ANSWER_NS, LogKeepersQuery
from embedbk.core.upkeep_words import EntryLogKeeper
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NotEnoughBookies
from embedbk.host.telling import keepers_told
from embedbk.ids import Member
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.testing import Cluster
from embedbk.views import VIEWS
from tests.rules.world import World
from tests.storage.log_places import places_in
from tests.storage.looking_through import look_through
from tests.storage.stored_entries import make_frame
from tests.storage.test_entry_store import DIRECTORY, flush, make_disk, open_store
from tests.views.test_entry_logs import flushed

B1 = Member("b1", b"1" * 16)


def rows_of(bk: Any, name: str = "keepers") -> list[dict[str, Any]]:
    columns = [column for column, _ in VIEWS[name].columns]
    return [dict(zip(columns, row, strict=True)) for row in VIEWS[name].rows(bk)]


def test_a_log_goes_when_nothing_keeps_it_any_more_and_until_then_is_told_what_does() -> None:
    """bookkeeper #2358: "which ledgers keep an entry log alive", because disks fill up for reasons that nobody sees."""
    with Cluster(seed=5, bookies=3, native=True) as cluster:
        bk = cluster.client()
        assert rows_of(bk) == []
        first = flushed(cluster, bk, [b"x" * 1_000] * 50)
        second = flushed(cluster, bk, [b"y" * 1_000] * 20)
        logs = {(row["bookie"], row["entryLog"]): row["liveBytes"] for row in rows_of(bk, "entrylogs")}
        found = rows_of(bk)
        assert {(row["bookie"], row["entryLog"]): row["liveBytes"] for row in found} == logs
        assert [row["ledgerId"] for row in found] == [first, second] * 3
        assert [row["liveEntries"] for row in found] == [50, 20] * 3
        assert {row["why"] for row in found} == {None}
        storage: Any = cluster.world.nodes["b2"].storage
        storage.drop(first)
        found = rows_of(bk)
        assert [row["ledgerId"] for row in found if row["bookie"] == "b2"] == [second]
        assert [row["ledgerId"] for row in found if row["bookie"] == "b1"] == [first, second]


def test_a_bookie_that_does_not_tell_has_a_row_that_says_so() -> None:
    """What is missing is no bookie of which nothing keeps a log."""
    with Cluster(seed=6, bookies=3, native=True) as cluster:
        bk = cluster.client()
        flushed(cluster, bk, [b"x"])
        cluster.pause("b1")
        cluster.crash("b3")
        rows = rows_of(bk)
        assert [(row["bookie"], row["entryLog"] is None, row["why"] is None) for row in rows] == [
            ("b1", True, False),
            ("b2", False, True),
            ("b3", True, False),
        ]


def test_a_cluster_of_a_lower_level_is_told_so() -> None:
    """P10.8: a bookie of a build before would end its link, and with it what others ask over it."""
    with Cluster(seed=6, bookies=3, native=True) as cluster:
        bk = cluster.client()
        flushed(cluster, bk, [b"x"])
        bk._runtime.node.metadata.client.cluster_level = 31
        rows = rows_of(bk)
        assert [(row["entryLog"], "level" in row["why"]) for row in rows] == [(None, True)] * 3


# --- The store -----------------------------------------------------------------------------------------------


def by_index(store: Any) -> dict[int, int]:
    """Live bytes of each log by what keeps it; each page has three."""
    found: dict[int, int] = {}
    for facts in store.log_facts():
        keepers: list[EntryLogKeeper] = []
        while page := store.log_keepers(facts.log_id, keepers[-1].ledger_id if keepers else -1, 3):
            keepers += page
        ids = [each.ledger_id for each in keepers]
        assert ids == sorted(set(ids))
        assert all(each.live_entries > 0 and each.live_bytes > 0 for each in keepers)
        found[facts.log_id] = sum(each.live_bytes for each in keepers)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_keepers_have_what_is_live_in_a_log_and_nothing_else(seed: int) -> None:
    """Whatever was put, flushed, put again, dropped, copied, or read in by a start."""
    chance, disk = random.Random(seed), make_disk()
    store, table, mark = open_store(disk), NativeLedgerTable(), 0
    for _ in range(60):
        act = chance.random()
        if act < 0.5:
            ledger_id, first = chance.randrange(12), chance.randrange(60)
            step = chance.choice([1, 1, 2])
            store.put(make_frame(ledger_id, range(first, first + chance.randrange(1, 30), step), size=30))
        elif act < 0.7:
            mark += 1
            flush(store, mark)
        elif act < 0.85:
            store.drop(chance.randrange(12))
        elif act < 0.95 and (logs := [each.log_id for each in store.log_facts() if not each.is_damaged]):
            store.begin_copy(logs[:2])
            while True:
                store.copy_slice(1 << 20, threaded=False)
                told = store.poll_copy()
                assert told is not None
                if told[1]:
                    break
            store.commit_copy(table)
            mark += 1
            flush(store, mark)
            store.remove_left()
        else:
            mark += 1
            flush(store, mark)
            store.close()
            store = open_store(disk)
        live = {each.log_id: each.live_bytes for each in store.log_facts()}
        assert by_index(store) == live
    store.close()


def test_what_keeps_a_damaged_log_is_told_by_the_whole_index() -> None:
    """Both copies of its index are lost: entries were found by a scan, which no section names."""
    disk = make_disk()
    store = open_store(disk)
    for ledger_id in range(8):
        store.put(make_frame(ledger_id, range(10), size=30))
    flush(store)
    whole = by_index(store)
    store.close()
    store = open_store(MemoryDisk(lost_indexes(disk)))
    assert by_index(store) == {1: 0}, "nothing of it is known yet"
    look_through(store)
    (facts,) = store.log_facts()
    assert by_index(store) == whole == {facts.log_id: facts.live_bytes}
    store.drop(5)
    assert [each.ledger_id for each in store.log_keepers(1, 2, 9)] == [3, 4, 6, 7]
    assert [each.ledger_id for each in store.log_keepers(1, -1, 3)] == [0, 1, 2]
    assert store.log_keepers(77, -1, 9) == []
    store.close()


def lost_indexes(disk: MemoryDisk) -> dict[str, bytes]:
    """The files, with both copies of the index of the only entry log gone."""
    files = disk.files()
    (path,) = [path for path in files if path.endswith(".elog")]
    content, places = bytearray(files[path]), places_in(files[path])
    for begin, end in places.index_ranges():
        content[begin:end] = bytes(each ^ 0xA5 for each in content[begin:end])
    return {**files, path: bytes(content), f"{DIRECTORY}/.made": b""}


# --- The question --------------------------------------------------------------------------------------------


def row(ledger_id: int) -> LogKeeperRow:
    return LogKeeperRow(ledger_id, 1, 100)


def begun() -> LogKeepersQuery:
    query = LogKeepersQuery(B1, 4)
    (sent,) = query.step(Started(5))
    assert isinstance(sent, Send)
    assert sent.control == LogKeepersRequest(B1.incarnation, 4, -1)
    return query


def told(query: LogKeepersQuery, answer: Any) -> Any:
    return query.step(Answered(7, query.TAG, B1, answer))


def test_more_keepers_than_one_answer_names_are_asked_for_page_by_page() -> None:
    query = begun()
    page = [row(number) for number in range(LOG_KEEPERS_MAX)]
    (sent,) = told(query, LogKeepersAnswer(Status.OK, 4, page, has_more=True))
    assert sent.control == LogKeepersRequest(B1.incarnation, 4, LOG_KEEPERS_MAX - 1)
    (ended,) = told(query, LogKeepersAnswer(Status.OK, 4, [row(9_000)]))
    assert isinstance(ended, Ended)
    assert [each.ledger_id for each in ended.result] == [*range(LOG_KEEPERS_MAX), 9_000]


@pytest.mark.parametrize(
    "answer",
    [
        LogKeepersAnswer(Status.OK, 4, [row(2), row(1)]),
        LogKeepersAnswer(Status.OK, 4, [], has_more=True),
        LogKeepersAnswer(Status.OK, 5, [row(1)]),
        LogKeepersAnswer(Status.WRONG_INCARNATION),
        ErrorAnswer("no"),
    ],
)
def test_an_answer_that_cannot_be_is_none(answer: Any) -> None:
    """Nobody is asked without end, and no row is made of it."""
    (ended,) = told(begun(), answer)
    assert isinstance(ended.error, NotEnoughBookies)


def test_silence_and_a_lost_link_end_it() -> None:
    query = begun()
    assert query.step(Tick(5 + ANSWER_NS - 1)) == []
    (ended,) = query.step(Tick(5 + ANSWER_NS))
    assert "no answer in time" in str(ended.error)  # type: ignore[union-attr]
    (ended,) = begun().step(SendFailed(6, "entry logs", B1, "no link"))
    assert "no link" in str(ended.error)  # type: ignore[union-attr]


# --- The bookie ----------------------------------------------------------------------------------------------


def test_a_bookie_tells_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(seed=5, bookies=1, native=True) as cluster:
        storage: Any = cluster.world.nodes["b1"].storage
        keepers = [EntryLogKeeper(number, 1, 9) for number in range(LOG_KEEPERS_MAX + 2)]
        monkeypatch.setattr(
            storage,
            "log_keepers",
            lambda log_id, after, most: [each for each in keepers if each.ledger_id > after][:most],
        )
        answers = [keepers_told(storage, TellKeepers(1, 2, 7, after)) for after in (-1, 5)]
        assert [(each.log_id, len(each.keepers), each.has_more) for each in answers] == [
            (7, LOG_KEEPERS_MAX, True),
            (7, LOG_KEEPERS_MAX - 4, False),
        ]


def test_another_disk_is_asked_for_nothing() -> None:
    """P7.2."""
    core = World(1).nodes["b1"].core
    (reply,) = core.step(RequestReceived(0, 1, 2, LogKeepersRequest(b"x" * 16, 3)))
    assert reply.control == LogKeepersAnswer(Status.WRONG_INCARNATION)  # type: ignore[union-attr]
    (effect,) = core.step(RequestReceived(0, 1, 2, LogKeepersRequest(core.incarnation, 3, 8)))
    assert effect == TellKeepers(1, 2, 3, 8)
