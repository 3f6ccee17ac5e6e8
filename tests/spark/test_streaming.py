"""The stream source driven in Spark's call order without a JVM: micro-batches, restarts, limits, what is lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import embedbk
from embedbk.client.client import Client
from embedbk.errors import (
    MetadataUnavailable,
    NoSuchCursor,
    NoSuchLedger,
    Truncated,
    UsageError,
    WrongPassword,
)
from embedbk.spark.clients import close_clients
from embedbk.spark.options import read_options
from embedbk.spark.source import EmbedbkSource
from embedbk.spark.streaming import EmbedbkStreamReader


class Engine:
    """What Spark does with a stream reader: offsets in the checkpoint as JSON, reading by another instance, pickled."""

    def __init__(self, options: dict[str, str], checkpoint: str | None = None) -> None:
        source = EmbedbkSource(options)
        self.reader = source.streamReader(source.schema())
        self.other = source.streamReader(source.schema())
        assert isinstance(self.reader, EmbedbkStreamReader)
        self.start = self.reader.initialOffset() if checkpoint is None else json.loads(checkpoint)
        self.start = json.loads(json.dumps(self.start))

    def batch(self, limit: ReadLimit | None = None) -> list[tuple[str, int, bytes]]:
        end = self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())
        end = json.loads(json.dumps(end))
        found = [] if end == self.start else list(self.rows(self.start, end))
        self.reader.commit(end)
        self.start = end
        return found

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[str, int, bytes]]:
        for partition in self.reader.partitions(start, end):
            there, part = cloudpickle.loads(cloudpickle.dumps((self.other, partition)))
            for batch in there.read(part):
                for row in batch.to_pylist():
                    yield row["log"], row["offset"], row["value"]

    @property
    def checkpoint(self) -> str:
        return json.dumps(self.start)


def options(bk: Client, log: str, **more: str) -> dict[str, str]:
    assert bk.url is not None
    return {"cluster": bk.url, "log": log, "pollWaitMs": "0", "startingOffsets": "earliest", **more}


def write(bk: Client, log: str, *counts: int) -> None:
    """A ledger for each count, of entries of 10 bytes."""
    for count in counts:
        with bk.log(log).writer() as writer:
            writer.append_many([b"%010d" % number for number in range(count)])


def offsets(rows: list[tuple[str, int, bytes]]) -> list[int]:
    return [offset for _, offset, _ in rows]


def test_a_stream_begins_where_a_cursor_stands_or_at_a_time(bk: Client) -> None:
    write(bk, "from", 7, 5)
    log = bk.log("from")
    log.cursor("billing", holds=False).set(9)
    assert offsets(Engine(options(bk, "from", startingOffsets="cursor:billing")).batch()) == [9, 10, 11]
    told = options(bk, "from", startingTimestamp=str(log.time_at(7)))
    del told["startingOffsets"]
    first = log.first_at(log.time_at(7) or 0)
    assert offsets(Engine(told).batch()) == list(range(first, 12))
    with pytest.raises(UsageError, match="no entry at or behind"):
        Engine({**told, "startingTimestamp": str(2**62)})
    engine = Engine({**told, "startingTimestamp": str(2**62), "onNoMatch": "latest"})
    assert engine.batch() == []
    write(bk, "from", 1)
    assert offsets(engine.batch()) == [12]


def test_micro_batches_have_every_row_once_across_ledgers_and_restarts(bk: Client) -> None:
    write(bk, "once", 7, 5)
    engine = Engine(options(bk, "once", maxRowsPerTrigger="4"))
    seen = engine.batch()
    engine = Engine(options(bk, "once", maxRowsPerTrigger="4"), engine.checkpoint)
    while rows := engine.batch():
        assert len(rows) <= 4
        seen += rows
        engine = Engine(options(bk, "once", maxRowsPerTrigger="4"), engine.checkpoint)
    assert offsets(seen) == list(range(12))
    write(bk, "once", 3)
    assert offsets(engine.batch()) == [12, 13, 14]


def test_a_micro_batch_that_runs_again_has_the_same_rows(bk: Client) -> None:
    """The driver died behind the sink's commit: Spark runs the batch of its offset log again."""
    write(bk, "again", 7)
    engine = Engine(options(bk, "again", maxRowsPerTrigger="5"))
    start = engine.start
    first = engine.batch()
    write(bk, "again", 4)
    fresh = Engine(options(bk, "again"), json.dumps(start))
    assert list(fresh.rows(start, engine.start)) == first


def test_a_log_that_a_stream_reads_no_more_may_be_deleted(bk: Client) -> None:
    """SPARK.md, what can fail: no such log. That is one of the options, and none that a restart has left out."""
    write(bk, "kept", 3)
    write(bk, "left-out", 2)
    told = options(bk, "kept")
    both = {**told, "logs": "kept,left-out"}
    del both["log"]
    engine = Engine(both)
    assert len(engine.batch()) == 5
    behind = engine.checkpoint
    write(bk, "kept", 1)
    write(bk, "left-out", 1)
    assert len(engine.batch()) == 2
    ran = [json.loads(behind), engine.start]
    again = Engine(told, behind)
    assert offsets(list(again.rows(*ran))) == [3, 2]  # What was planned for it before is read.
    bk.delete_log("left-out")
    write(bk, "kept", 1)
    assert offsets(Engine(told, engine.checkpoint).batch()) == [4]
    with pytest.raises(NoSuchLedger, match="no log 'left-out'"):
        Engine(both, engine.checkpoint).batch()
    with pytest.raises(NoSuchLedger, match="no log 'left-out'"):
        list(again.rows(*ran))


def test_a_stream_begins_with_what_comes_if_nothing_else_is_said(bk: Client) -> None:
    write(bk, "latest", 7)
    told = options(bk, "latest")
    del told["startingOffsets"]
    engine = Engine(told)
    assert engine.batch() == []
    with bk.log("latest").writer() as writer:
        writer.append(b"new")
        assert engine.batch() == [("latest", 7, b"new")]


def test_what_was_appended_a_moment_ago_ends_the_wait(bk: Client) -> None:
    """One that waits forever would make this test hang: news are pushed, not polled."""
    write(bk, "wait", 2)
    engine = Engine(options(bk, "wait", startingOffsets="2", pollWaitMs="60000"))
    with bk.log("wait").writer() as writer:
        writer.append_nowait(b"now")
        assert offsets(engine.batch()) == [2]


def test_available_now_ends_where_the_log_ended_when_it_began(bk: Client) -> None:
    write(bk, "now", 7)
    engine = Engine(options(bk, "now", maxRowsPerTrigger="3"))
    engine.reader.prepareForTriggerAvailableNow()
    write(bk, "now", 5)
    seen = []
    while rows := engine.batch():
        seen += rows
    assert offsets(seen) == list(range(7))
    later = Engine(options(bk, "now"), engine.checkpoint)
    later.reader.prepareForTriggerAvailableNow()
    assert offsets(later.batch()) == list(range(7, 12))
    assert later.batch() == []


@pytest.mark.parametrize(
    ("more", "kind", "count"),
    [
        ({}, ReadAllAvailable, 12),
        ({"maxRowsPerTrigger": "4"}, ReadMaxRows, 4),
        ({"maxBytesPerTrigger": "60"}, ReadMaxBytes, 6),
        ({"maxRowsPerTrigger": "4", "maxBytesPerTrigger": "30"}, ReadMaxRows, 3),
        ({"maxRowsPerTrigger": "4", "maxBytesPerTrigger": "60"}, ReadMaxRows, 4),
    ],
)
def test_limits_of_rows_and_bytes_hold_together(
    bk: Client, more: dict[str, str], kind: type[ReadLimit], count: int
) -> None:
    name = f"limits-{'-'.join(more.values())}x"
    write(bk, name, 7, 5)
    engine = Engine(options(bk, name, **more))
    assert isinstance(engine.reader.getDefaultReadLimit(), kind)
    assert len(engine.batch()) == count
    assert len(engine.batch(ReadAllAvailable())) == 12 - count  # Spark's word for all is stronger.


def test_a_batch_waits_for_as_many_rows_as_spark_wants(bk: Client) -> None:
    write(bk, "least", 7)
    engine = Engine(options(bk, "least"))
    assert engine.batch(ReadMinRows(8)) == []
    assert len(engine.batch(ReadMinRows(7))) == 7


def test_several_logs_share_a_limit_and_a_new_one_is_read_from_its_start(bk: Client) -> None:
    write(bk, "many-a", 30)
    write(bk, "many-b", 10)
    told = {**options(bk, ""), "logPrefix": "many-", "maxRowsPerTrigger": "20"}
    del told["log"]
    engine = Engine(told)
    first = engine.batch()
    assert [sum(log == name for log, _, _ in first) for name in ("many-a", "many-b")] == [15, 5]
    write(bk, "many-c", 2)
    rest = []
    while rows := engine.batch():
        rest += rows
    assert [sum(log == name for log, _, _ in rest) for name in ("many-a", "many-b", "many-c")] == [15, 5, 2]


def test_rows_that_were_truncated_end_the_query_with_the_exact_gap(bk: Client) -> None:
    write(bk, "gone", 7, 5, 1)
    engine = Engine(options(bk, "gone", maxRowsPerTrigger="3", pinSeconds="0"))
    engine.batch()
    bk.log("gone").truncate(12)
    with pytest.raises(Truncated, match="offsets 3 to 11 were truncated"):
        Engine(options(bk, "gone", pinSeconds="0"), engine.checkpoint).batch()
    going_on = Engine(options(bk, "gone", pinSeconds="0", failOnDataLoss="false"), engine.checkpoint)
    assert offsets(going_on.batch()) == [12]


def test_a_lost_stretch_with_nothing_behind_it_is_passed_once(bk: Client) -> None:
    write(bk, "passed", 7)
    engine = Engine(options(bk, "passed", maxRowsPerTrigger="3", pinSeconds="0", failOnDataLoss="false"))
    engine.batch()
    with bk.log("passed").writer():
        pass
    bk.log("passed").truncate(7)
    assert engine.batch() == []
    assert json.loads(engine.checkpoint)["logs"]["passed"]["offset"] == 7


def test_a_stream_holds_what_it_has_not_read(bk: Client) -> None:
    """P8.8: a pin, which moves along with the stream and ends by itself."""
    write(bk, "held", 7, 5, 1)
    engine = Engine(options(bk, "held", maxRowsPerTrigger="3"))
    engine.batch()
    assert bk.log("held").truncate(12, may_do_nothing=True).held_by == "pin"
    assert offsets(engine.batch()) == [3, 4, 5]
    engine.reader.stop()
    assert bk.log("held").pins() == []


def test_a_log_that_was_deleted_and_begun_anew_is_not_read_over(bk: Client) -> None:
    write(bk, "anew", 7)
    engine = Engine(options(bk, "anew", pinSeconds="0"))
    engine.batch()
    bk.delete_log("anew")
    write(bk, "anew", 9)
    with pytest.raises(NoSuchLedger, match="deleted and begun anew"):
        Engine(options(bk, "anew"), engine.checkpoint).batch()
    anew = Engine(options(bk, "anew", failOnDataLoss="false"), engine.checkpoint)
    assert offsets(anew.batch()) == list(range(9))


@pytest.mark.parametrize("entries", [3, 9])
@pytest.mark.parametrize("may_lose", ["true", "false"])
def test_a_micro_batch_that_runs_again_has_no_rows_of_a_log_that_was_begun_anew(
    bk: Client, entries: int, may_lose: str
) -> None:
    """Seen: it had the first rows of the new log, which the next micro-batch had again."""
    name = f"run-again-{entries}-{may_lose}"
    write(bk, name, 7)
    engine = Engine(options(bk, name, pinSeconds="0"))
    start = engine.start
    engine.batch()
    bk.delete_log(name)
    write(bk, name, entries)
    fresh = Engine(options(bk, name, failOnDataLoss=may_lose), engine.checkpoint)
    if may_lose == "true":
        with pytest.raises(NoSuchLedger, match="deleted and begun anew"):
            list(fresh.rows(start, engine.start))
        return
    assert list(fresh.rows(start, engine.start)) == []
    assert offsets(fresh.batch()) == list(range(entries))


def test_a_deleted_log_of_several_ends_a_stream_only_where_losses_do(bk: Client) -> None:
    """Seen: with failOnDataLoss=false, too, no micro-batch of the others came any more."""
    for name in ("some-a", "some-b"):
        write(bk, name, 3)
    told = {**options(bk, "", pinSeconds="0"), "logPrefix": "some-"}
    del told["log"]
    engine = Engine({**told, "failOnDataLoss": "false"})
    start = engine.start
    assert len(engine.batch()) == 6
    checkpoint = engine.checkpoint
    bk.delete_log("some-a")
    write(bk, "some-b", 2)
    assert engine.batch() == [("some-b", 3, b"%010d" % 0), ("some-b", 4, b"%010d" % 1)]
    behind = Engine({**told, "failOnDataLoss": "false"}, checkpoint)
    assert [row[0] for row in behind.rows(start, json.loads(checkpoint))] == ["some-b"] * 3, "it runs again"
    assert offsets(behind.batch()) == [3, 4]
    with pytest.raises(NoSuchLedger, match="no log 'some-a'"):
        Engine(told, checkpoint).batch()


def of_prefix(bk: Client, prefix: str, **more: str) -> dict[str, str]:
    told = {**options(bk, "", pinSeconds="0"), "logPrefix": prefix, **more}
    del told["log"]
    return told


def without_ids(offset: dict[str, Any]) -> dict[str, Any]:
    """As an earlier build wrote it."""
    logs = {
        name: {each: told[each] for each in ("offset", "ledger", "entry")}
        for name, told in offset["logs"].items()
    }
    return {**offset, "logs": logs}


@pytest.mark.parametrize("may_lose", [False, True])
def test_a_log_that_was_new_in_a_micro_batch_has_the_same_rows_when_that_runs_again(
    bk: Client, may_lose: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SPARK.md, "rows never change". Seen: truncated meanwhile, it had fewer rows, and nothing said so."""
    prefix = f"rerun-{may_lose}-"
    told = of_prefix(bk, prefix, failOnDataLoss=str(not may_lose).lower())
    write(bk, f"{prefix}a", 3)
    engine = Engine(told)
    engine.batch()
    write(bk, f"{prefix}b", 7, 5, 1)
    start, rows = engine.start, engine.batch()
    assert offsets(rows) == list(range(13))
    fresh = Engine(told, json.dumps(start))
    assert list(fresh.rows(start, engine.start)) == rows
    bk.log(f"{prefix}b").truncate(7)
    fresh = Engine(told, json.dumps(start))
    if not may_lose:
        with pytest.raises(Truncated, match="offsets 0 to 6 were truncated"):
            list(fresh.rows(start, engine.start))
        with pytest.raises(Truncated, match=r"begins at offset 7, .* an earlier build planned"):
            list(fresh.rows(start, without_ids(engine.start)))
        return
    assert list(fresh.rows(start, engine.start)) == rows[7:]
    assert "offsets 0 to 6 were truncated" in caplog.text
    assert list(fresh.rows(start, without_ids(engine.start))) == rows[7:]


def test_a_micro_batch_that_passed_over_a_loss_has_the_same_rows_when_it_runs_again(bk: Client) -> None:
    """Its offset says where its rows begin, also behind an undo of the truncation."""
    write(bk, "loss", 7, 5, 1)
    told = options(bk, "loss", pinSeconds="0", maxRowsPerTrigger="3")
    engine = Engine({**told, "failOnDataLoss": "false"})
    engine.batch()
    bk.log("loss").truncate(7)
    start, rows = engine.start, engine.batch()
    assert offsets(rows) == [7, 8, 9]
    with pytest.raises(Truncated, match="offsets 3 to 6 were truncated"):
        list(Engine(told, json.dumps(start)).rows(start, engine.start))
    bk.log("loss").undelete()
    assert bk.log("loss").segments()[0].first_offset == 0
    for may_lose in ("true", "false"):
        again = Engine({**told, "failOnDataLoss": may_lose}, json.dumps(start))
        assert list(again.rows(start, engine.start)) == rows


@pytest.mark.parametrize("start", ["earliest", "5"])
@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_a_checkpoint_in_front_of_its_first_row_is_of_one_log_too(bk: Client, start: str, how: str) -> None:
    """P8.12: the id tells it. Seen: rows of the new log below that offset were passed over, and nothing said so."""
    name = f"first-{start}-{how}"
    write(bk, name, 7)
    told = options(bk, name, pinSeconds="0", startingOffsets=start)
    engine = Engine(told)
    checkpoint = engine.checkpoint
    if how == "deleted":
        bk.delete_log(name)
    else:
        bk.log(name).rename(f"{name}-before")
    write(bk, name, 9)
    for each in (engine, Engine(told, checkpoint)):
        with pytest.raises(NoSuchLedger, match=r"is not the log with the id .*or the name is another log's"):
            each.batch()
    anew = Engine({**told, "failOnDataLoss": "false"}, checkpoint)
    assert offsets(anew.batch()) == list(range(9))
    fresh = Engine({**told, "failOnDataLoss": "false"}, checkpoint)
    assert offsets(list(fresh.rows(json.loads(checkpoint), anew.start))) == list(range(9)), "it runs again"


def test_a_cursor_is_one_of_its_log_and_not_of_the_next_of_that_name(bk: Client) -> None:
    """P8.12: a stream that begins at a cursor begins nowhere else, and a handle of before stays with the former log."""
    write(bk, "cursors", 7)
    before = bk.log("cursors").cursor("billing")
    before.set(5)
    bk.delete_log("cursors")
    write(bk, "cursors", 9)
    with pytest.raises(NoSuchCursor, match="has no cursor 'billing'"):
        Engine(options(bk, "cursors", startingOffsets="cursor:billing"))
    with pytest.raises(NoSuchLedger):
        before.set(6)
    assert bk.log("cursors").cursors() == []


def test_the_checkpoint_of_another_cluster_at_the_same_address_is_refused(bk: Client, tmp_path: Path) -> None:
    """Logs, ledgers and entries are alike there. Seen: what the other one has behind that offset was read on."""
    checkpoint, settings = None, embedbk.Settings(journal_file_bytes=2 << 20)
    for count in (7, 9):
        where = tmp_path / str(count)
        with embedbk.open(where, bookies=1, listen="tcp://127.0.0.1:0", settings=settings) as one:
            write(one, "alike", count)
            engine = Engine(options(one, "alike", pinSeconds="0"), checkpoint)
            if checkpoint is None:
                assert len(engine.batch()) == 7
                checkpoint = engine.checkpoint
            else:
                with pytest.raises(
                    NoSuchLedger, match=r"is not the log with the id .*, which was read up to"
                ):
                    engine.batch()
            close_clients()


def test_a_log_that_is_begun_anew_while_a_micro_batch_is_planned_gives_it_no_rows(bk: Client) -> None:
    """Seen: it had the rows of the new log, under the offsets of the old one."""
    write(bk, "between", 7)
    engine = Engine(options(bk, "between", pinSeconds="0"))
    end = engine.reader.latestOffset(engine.start, engine.reader.getDefaultReadLimit())
    bk.delete_log("between")
    write(bk, "between", 9)
    with pytest.raises(NoSuchLedger, match="deleted and begun anew"):
        list(engine.rows(engine.start, end))


@pytest.mark.parametrize("may_lose", ["true", "false"])
def test_a_log_that_is_begun_anew_beside_an_idle_stream_is_found_at_the_next_look(
    bk: Client, may_lose: str
) -> None:
    """Its end was checked before; the id of the log is compared all the same."""
    name = f"idle-{may_lose}"
    write(bk, name, 7)
    engine = Engine(options(bk, name, pinSeconds="0", failOnDataLoss=may_lose))
    assert [len(engine.batch()) for _ in range(3)] == [7, 0, 0]
    bk.delete_log(name)
    write(bk, name, 9)
    before = engine.checkpoint
    assert engine.batch() == [] and engine.checkpoint == before, "the next look tells what follows"
    if may_lose == "true":
        with pytest.raises(NoSuchLedger, match="deleted and begun anew"):
            engine.batch()
        return
    assert offsets(engine.batch()) == list(range(9))
    told = json.loads(engine.checkpoint)["logs"][name]
    assert (told["begin"], told["id"]) == (0, bk.log(name).log_id())


def test_what_is_available_now_is_of_the_log_that_there_was(bk: Client) -> None:
    """Seen: up to the end that the former log had the new one was read, and its rest by the next query."""
    write(bk, "now-anew", 7)
    told = options(bk, "now-anew", pinSeconds="0", failOnDataLoss="false", maxRowsPerTrigger="3")
    engine = Engine(told)
    engine.reader.prepareForTriggerAvailableNow()
    assert offsets(engine.batch()) == [0, 1, 2]
    bk.delete_log("now-anew")
    write(bk, "now-anew", 9)
    assert [engine.batch() for _ in range(3)] == [[], [], []]
    assert offsets(Engine({**told, "maxRowsPerTrigger": "9"}, engine.checkpoint).batch()) == list(range(9))


def test_a_log_of_several_that_is_renamed_goes_on_where_it_was_read_up_to(bk: Client) -> None:
    """P8.12: it is the same log. Seen: all its rows came once more, under the new name."""
    write(bk, "named-a", 7)
    told = of_prefix(bk, "named-")
    engine = Engine(told)
    assert len(engine.batch()) == 7
    bk.log("named-a").rename("named-b")
    write(bk, "named-b", 2)
    start, rows = engine.start, engine.batch()
    assert [row[:2] for row in rows] == [("named-b", 7), ("named-b", 8)]
    assert list(Engine(told, json.dumps(start)).rows(start, engine.start)) == rows
    assert list(engine.start["logs"]) == ["named-b"]
    write(bk, "named-a", 3)  # Another log, which is new here.
    assert [row[:2] for row in engine.batch()] == [("named-a", 0), ("named-a", 1), ("named-a", 2)]
    assert Engine(told, engine.checkpoint).batch() == []


def test_the_checkpoint_of_an_earlier_build_is_read_on(bk: Client) -> None:
    """Without an id it is compared as it was then; the next rows bring one."""
    write(bk, "earlier", 7)
    told = options(bk, "earlier", pinSeconds="0")
    engine = Engine(told)
    engine.batch()
    old = without_ids(engine.start)
    engine = Engine(told, json.dumps(old))
    assert engine.batch() == [] and engine.start == old
    write(bk, "earlier", 1)
    assert offsets(engine.batch()) == [7]
    assert engine.start["logs"]["earlier"]["id"] == bk.log("earlier").log_id()


def edited(**told: Any) -> dict[str, Any]:
    return {"v": 1, "logs": {"nothing": {"offset": 1, "ledger": 1, "entry": 0, **told}}}


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"v": 2, "logs": {}},
        {"v": 1, "logs": {"a": 3}},
        {"file": "x"},
        edited(offset=-1),
        edited(offset=1.5),
        edited(offset=float("inf")),
        edited(offset="1"),
        edited(offset=1 << 64),
        edited(ledger=True),
        edited(entry=-2),
        edited(id=7),
        edited(id="no id"),
        edited(begin=-1),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(bk: Client, offset: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="checkpoint"):
        Engine(options(bk, "nothing"), json.dumps(offset)).batch()


def test_a_checkpoint_of_another_log_is_refused(bk: Client) -> None:
    """Seen: the other log was read from its start, and the batch that ran again had rows of the first one."""
    for name in ("mine", "yours"):
        write(bk, name, 7)
    mine = Engine(options(bk, "mine", maxRowsPerTrigger="3"))
    start = mine.start
    mine.batch()
    yours = Engine(options(bk, "yours"), mine.checkpoint)
    with pytest.raises(UsageError, match="the checkpoint is one of mine, and yours is to be read"):
        yours.batch()
    with pytest.raises(UsageError, match="the checkpoint is one of mine"):
        list(yours.rows(start, mine.start))
    told = {**options(bk, ""), "logs": "mine,yours"}
    del told["log"]
    assert len(Engine(told, mine.checkpoint).batch()) == 4 + 7


def test_a_cluster_that_is_away_is_said_on_the_driver(bk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        away = f"embedbk://127.0.0.1:{nobody.getsockname()[1]}"
    monkeypatch.setattr(embedbk, "open", partial(embedbk.open, settings=embedbk.Settings(open_timeout_s=0.5)))
    with pytest.raises(MetadataUnavailable, match=r"nobody answered .* \(start that cluster, or give"):
        Engine({**options(bk, "away"), "cluster": away})


def test_a_wrong_password_is_said_on_the_driver(bk: Client) -> None:
    with bk.log("secret", password=b"right").writer() as writer:
        writer.append(b"row")
    assert offsets(Engine(options(bk, "secret", password="right")).batch()) == [0]
    for given in ({}, {"password": "wrong"}):
        with pytest.raises(WrongPassword, match="has another password"):
            Engine(options(bk, "secret", **given)).batch()
        source = EmbedbkSource({"cluster": str(bk.url), "log": "secret", **given})
        with pytest.raises(WrongPassword, match="has another password"):
            list(source.reader(source.schema()).partitions())


def test_a_log_that_nobody_wrote_to_is_an_error_at_the_start(bk: Client) -> None:
    with pytest.raises(NoSuchLedger, match="no log 'nobody'"):
        Engine(options(bk, "nobody"))


def test_what_only_a_batch_takes_is_refused(bk: Client) -> None:
    with pytest.raises(UsageError, match="endingOffsets is not one of a stream"):
        read_options({**options(bk, "x"), "endingOffsets": "3"}, is_stream=True)
