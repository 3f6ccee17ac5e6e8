"""The sink driven in Spark's call order without a JVM: all is pickled, another instance commits (I98)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from embedbk.client.client import Client
from embedbk.codec.entry_records import EntryRecord
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX
from embedbk.errors import EmbedbkError, UsageError
from embedbk.spark.merging import grouped
from embedbk.spark.source import EmbedbkSource


def through(thing: Any) -> Any:
    """As Spark sends it to another process."""
    return cloudpickle.loads(cloudpickle.dumps(thing))


TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "long": LongType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "array<long>": ArrayType(LongType()),
    "timestamp": TimestampType(),
    "map<string;string>": MapType(StringType(), StringType()),
    "variant": VariantType(),
    "void": NullType(),
    "months": YearMonthIntervalType(),
}


def schema_of(ddl: str = "value binary") -> StructType:
    """As StructType.fromDDL, which asks the JVM."""
    named = [field.strip().split(" ") for field in ddl.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in named])


def rows(*values: bytes) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": pa.array(values, pa.binary())})] if values else []


def options(bk: Client, log: str, **more: str) -> dict[str, str]:
    assert bk.url is not None
    return {"cluster": bk.url, "log": log, **more}


class Job:
    """What Spark does with the writer of a batch: one instance, made on the driver and pickled to tasks and commit."""

    def __init__(self, given: dict[str, str], ddl: str = "value binary") -> None:
        self.writer = EmbedbkSource(given).writer(schema_of(ddl), False)

    def write(self, *tasks: list[pa.RecordBatch]) -> list[Any]:
        return [through(through(self.writer).write(iter(task))) for task in tasks]

    def run(self, *tasks: list[pa.RecordBatch]) -> None:
        self.commit(self.write(*tasks))

    def commit(self, messages: Sequence[Any]) -> None:
        through(self.writer).commit(list(messages))


class Query:
    """And with that of a stream: one instance for the tasks, another for each commit; ids are in the tasks' context."""

    def __init__(self, given: dict[str, str], query: str) -> None:
        # Spark's own, which it shows to the sink.
        self.given = {**given, "checkpointLocation": "where", "queryName": "copy"}
        self.query = query

    def write(self, batch: int, *tasks: list[pa.RecordBatch]) -> list[Any]:
        writer = EmbedbkSource(self.given).streamWriter(schema_of(), False)
        context = TaskContext._getOrCreate()
        context._localProperties = {
            "sql.streaming.queryId": self.query,
            "streaming.sql.batchId": str(batch),
        }
        try:
            return [through(through(writer).write(iter(task))) for task in tasks]
        finally:
            TaskContext._setTaskContext(None)

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        through(EmbedbkSource(self.given).streamWriter(schema_of(), False)).commit(list(messages), batch)

    def run(self, batch: int, *tasks: list[pa.RecordBatch]) -> None:
        self.commit(batch, self.write(batch, *tasks))


def values_of(bk: Client, log: str) -> list[bytes]:
    return [bytes(entry) for entry in bk.log(log).read()]


@pytest.mark.parametrize("inline", ["1000000", "0", "64"])
def test_a_batch_stands_in_partition_order_whatever_travels_in_messages(bk: Client, inline: str) -> None:
    log = f"order{inline}"
    tasks = [rows(b"0 a", b"0 b"), rows(), rows(b"2" * 100, b"2 b"), rows(b"3"), rows(b"4")]
    Job(options(bk, log, inlineMaxBytes=inline)).run(*tasks)
    assert values_of(bk, log) == [b"0 a", b"0 b", b"2" * 100, b"2 b", b"3", b"4"]
    segments = bk.log(log).segments()
    assert len(segments) == {"1000000": 1, "0": 4, "64": 3}[inline]


@pytest.mark.parametrize("inline", ["1000000", "0", "64"])
def test_a_task_of_several_batches_is_written_whole(bk: Client, inline: str) -> None:
    """SPARK.md: "All rows of a batch become part of the log", also those behind what was too much for a message."""
    log = f"several{inline}"
    batches = [*rows(b"a"), *rows(b"b" * 100), *rows(b"c"), *rows(b"d")]
    Job(options(bk, log, inlineMaxBytes=inline)).run(batches)
    assert values_of(bk, log) == [b"a", b"b" * 100, b"c", b"d"]


@pytest.mark.parametrize("inline", ["1000000", "0"])
def test_keys_timestamps_and_headers_are_written_with_their_values(bk: Client, inline: str) -> None:
    """A row is a record; null is nothing. Times become ms, fractions left off."""
    log = f"records{inline}"
    moment = datetime(2026, 11, 26, 1, 2, 3, 456_789, tzinfo=UTC)
    task = pa.record_batch(
        {
            "value": pa.array(["one", "two"]),
            "key": pa.array([b"k", None], pa.binary()),
            "timestamp": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "headers": pa.array([[("b", "2"), ("a", "")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    ddl = "value string, key binary, timestamp timestamp, headers map<string;string>"
    Job(options(bk, log, inlineMaxBytes=inline), ddl).run([task])
    first, second = bk.log(log).read()
    at_ms = int(moment.timestamp() * 1000)
    assert first.records == [EntryRecord(first.data, b"k", at_ms, {"a": b"", "b": b"2"})]
    assert second.records == [EntryRecord(second.data)]
    ordered = pa.record_batch({"value": pa.array([b"z", b"y"], pa.binary()), "timestamp": pa.array([9, 8])})
    given = options(bk, log, orderBy="timestamp", inlineMaxBytes=inline)
    Job(given, "value binary, timestamp bigint").run([ordered])
    assert [(bytes(entry), entry.timestamp) for entry in bk.log(log).read(2)] == [(b"y", 8), (b"z", 9)]


@pytest.mark.parametrize(
    ("ddl", "columns", "says"),
    [
        ("value binary, key int", {}, "column key is binary or string, and there is int"),
        ("value binary, timestamp string", {}, "column timestamp is bigint or timestamp"),
        ("value binary, headers string", {}, "column headers is map<string,binary>"),
        (
            "value binary, key binary",
            {"value": [b"", None], "key": [b"k", b""]},
            "row 1 of column 'value' is null",
        ),
        (
            "value binary, timestamp bigint",
            {"value": [b""], "timestamp": [-1]},
            "column 'timestamp' is no time",
        ),
    ],
)
def test_rows_that_can_be_no_records_are_refused(
    bk: Client, ddl: str, columns: dict[str, list[Any]], says: str
) -> None:
    rows_of = [pa.record_batch({name: pa.array(values) for name, values in columns.items()})]
    with pytest.raises(UsageError, match=says):
        Job(options(bk, "refused", inlineMaxBytes="0"), ddl).run(rows_of)
    assert not bk.log_exists("refused") or values_of(bk, "refused") == []


def test_an_empty_batch_writes_nothing(bk: Client) -> None:
    Job(options(bk, "empty")).run(rows())
    assert not bk.log_exists("empty")


def test_a_failed_attempt_leaves_nothing_behind(bk: Client) -> None:
    """A retried or speculative task has staged a ledger that nobody names; a job that is called off, all of them."""
    before = len(bk.ledgers())
    job = Job(options(bk, "attempts", inlineMaxBytes="0"))
    job.write(rows(b"lost"))
    job.run(rows(b"kept"))
    assert values_of(bk, "attempts") == [b"kept"]
    assert len(bk.ledgers()) == before + 1
    called_off = Job(options(bk, "attempts", inlineMaxBytes="0"))
    through(called_off.writer).abort([*called_off.write(rows(b"lost")), None])
    assert len(bk.ledgers()) == before + 1


def test_more_tasks_than_a_transaction_has_ledgers_are_written_all_the_same(
    bk: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """SPARK.md: "the driver puts as many of the smallest neighbours together as needed". Keys and headers stay."""
    count, before = SPLICE_LEDGERS_MAX + 5, len(bk.ledgers())
    tasks = [
        pa.record_batch(
            {
                "value": pa.array([b"%d" % n, b"x" * 2000 if n == 1 else b""], pa.binary()),
                "key": pa.array([b"k%d" % n, None], pa.binary()),
                "timestamp": pa.array([n, None], pa.int64()),
                "headers": pa.array([[("n", b"%d" % n)], None], pa.map_(pa.string(), pa.binary())),
            }
        )
        for n in range(count)
    ]
    ddl = "value binary, key binary, timestamp bigint, headers map<string;string>"
    job = Job(options(bk, "many", inlineMaxBytes="0"), ddl)
    job.run(*([task] for task in tasks))
    found = [entry.records[0] for entry in bk.log("many").read()]
    assert found[::2] == [EntryRecord(b"%d" % n, b"k%d" % n, n, {"n": b"%d" % n}) for n in range(count)]
    assert [len(record.value) for record in found[1::2]] == [2000 if n == 1 else 0 for n in range(count)]
    segments = bk.log("many").segments()
    assert len(segments) == SPLICE_LEDGERS_MAX == len(bk.ledgers()) - before
    # The large one is not among those that were copied.
    assert [each.last_entry + 1 for each in segments][:2] == [2, 2]
    assert f"{count} tasks have made ledgers" in caplog.text


@pytest.mark.parametrize(
    ("sizes", "most", "groups"),
    [
        ([5], 1, [[0]]),
        ([1, 1, 1], 3, [[0], [1], [2]]),
        ([9, 1, 1, 9], 3, [[0], [1, 2], [3]]),
        ([1, 9, 9, 9, 1, 1], 4, [[0, 1], [2], [3, 4], [5]]),
        ([3, 3, 3, 3, 3], 4, [[0, 1], [2], [3], [4]]),
        ([0, 0, 0], 1, [[0, 1, 2]]),
    ],
)
def test_no_more_is_put_together_than_needed(sizes: list[int], most: int, groups: list[list[int]]) -> None:
    assert [list(group) for group in grouped(sizes, most)] == groups


def test_a_batch_with_an_application_and_a_version_is_written_once(bk: Client) -> None:
    given = options(bk, "once", txnAppId="nightly", txnVersion="7")
    Job(given).run(rows(b"a"))
    Job(given).run(rows(b"a"))
    Job({**given, "txnVersion": "6"}).run(rows(b"older"))
    Job({**given, "txnVersion": "8"}).run(rows(b"b"))
    Job(options(bk, "once")).run(rows(b"c"))
    Job(options(bk, "once")).run(rows(b"c"))
    assert values_of(bk, "once") == [b"a", b"b", b"c", b"c"]


def test_a_number_that_is_not_new_may_be_an_error(bk: Client) -> None:
    """SPARK.md, onReplay. What was staged for it is given up."""
    given = options(bk, "strict", txnAppId="nightly", txnVersion="7", onReplay="fail", inlineMaxBytes="0")
    Job(given).run(rows(b"a"))
    before = len(bk.ledgers())
    for number in ("7", "6"):
        with pytest.raises(
            UsageError, match=f"has transaction {number} of 'nightly', or a later one, already"
        ):
            Job({**given, "txnVersion": number}).run(rows(b"b"))
    assert values_of(bk, "strict") == [b"a"]
    assert len(bk.ledgers()) == before
    query = Query(options(bk, "strict", onReplay="fail"), "q1")
    query.run(0, rows(b"c"))
    with pytest.raises(UsageError, match="transaction 0 of 'q1'"):
        query.run(0, rows(b"c"))


@pytest.mark.parametrize("inline", ["1000000", "0"])
def test_a_micro_batch_that_runs_again_is_written_once(bk: Client, inline: str) -> None:
    """Killed between the sink's commit and Spark's own, a driver runs the same batch of the same query again."""
    log = f"stream{inline}"
    given = options(bk, log, inlineMaxBytes=inline)
    query = Query(given, "q1")
    query.run(0, rows(b"0"), rows(b"1"))
    for number in range(1, 4):
        query.run(number, rows(b"%d" % (2 * number)), rows(b"%d" % (2 * number + 1)))
        Query(given, "q1").run(number, rows(b"%d" % (2 * number)), rows(b"%d" % (2 * number + 1)))
    query.run(4, rows())
    assert values_of(bk, log) == [b"%d" % number for number in range(8)]
    Query(given, "q2").run(0, rows(b"another query"))
    assert values_of(bk, log)[-1] == b"another query"


def test_a_driver_that_died_before_its_commit_has_written_nothing(bk: Client) -> None:
    query = Query(options(bk, "dies", inlineMaxBytes="0"), "q1")
    query.write(0, rows(b"0"))
    assert bk.log("dies").end() == 0  # There to be staged for, and empty (P8.12).
    query.run(0, rows(b"0"))
    assert values_of(bk, "dies") == [b"0"]


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_what_tasks_staged_for_a_log_is_not_put_into_another_of_its_name(bk: Client, how: str) -> None:
    """P8.12: staged ledgers name the log's id. The micro-batch that runs again is written whole, into the new log."""
    log = f"another-{how}"
    query = Query(options(bk, log, inlineMaxBytes="0"), "q1")
    query.run(0, rows(b"0"))
    messages = query.write(1, rows(b"1"), rows(b"2"))
    if how == "deleted":
        bk.delete_log(log)
    else:
        bk.log(log).rename(f"{log}-before")
    with bk.log(log).writer() as writer:
        writer.append(b"of another log")
    with pytest.raises(UsageError, match="is not staged any more"):
        query.commit(1, messages)
    assert values_of(bk, log) == [b"of another log"]
    if how == "renamed":
        assert values_of(bk, f"{log}-before") == [b"0"]
    query.run(1, rows(b"1"), rows(b"2"))
    assert values_of(bk, log) == [b"of another log", b"1", b"2"]


def test_a_task_without_an_answer_ends_a_commit(bk: Client) -> None:
    """Spark's word for a task that failed is None. Seen: what the others had was written, and the commit succeeded."""
    job, query = Job(options(bk, "untold")), Query(options(bk, "untold"), "q1")
    for commit in (
        lambda: job.commit([*job.write(rows(b"told")), None]),
        lambda: query.commit(0, [*query.write(0, rows(b"told")), None]),
        lambda: query.commit(0, [None]),
    ):
        with pytest.raises(EmbedbkError, match=r"^1 of . tasks gave no answer.*nothing was written"):
            commit()
    assert not bk.log_exists("untold")
    query.run(0, rows(b"told"), rows())
    assert values_of(bk, "untold") == [b"told"]


def test_an_application_that_another_query_holds_is_refused(bk: Client) -> None:
    """ "Never taken for a replay": its first batch would be lost without a word."""
    given = options(bk, "held", txnAppId="copy")
    one, other = Query(given, "q1"), Query(given, "q2")
    one.run(0, rows(b"0"))
    one.run(1, rows(b"1"))
    for batch in (0, 1, 2):
        with pytest.raises(UsageError, match="another query writes as application 'copy'"):
            other.run(batch, rows(b"lost"))
    one.run(2, rows(b"2"))
    assert values_of(bk, "held") == [b"0", b"1", b"2"]


def test_beside_a_writer_the_rows_stand_between_two_of_its_ledgers(bk: Client) -> None:
    with bk.log("beside").writer() as writer:
        writer.append(b"before")
        Job(options(bk, "beside")).run(rows(b"row"))
        writer.append(b"behind")
    assert values_of(bk, "beside") == [b"before", b"row", b"behind"]


@pytest.mark.parametrize("inline", ["1000000", "0"])
def test_an_ordering_column_orders_all_rows(bk: Client, inline: str) -> None:
    def ordered(*pairs: tuple[int, bytes]) -> list[pa.RecordBatch]:
        at, values = zip(*pairs, strict=True)
        return [pa.record_batch({"value": pa.array(values, pa.binary()), "at": pa.array(at, pa.int64())})]

    log = f"ordered{inline}"
    given = options(bk, log, orderBy="at", inlineMaxBytes=inline)
    job = Job(given, "value binary, at long")
    job.run(ordered((9, b"9"), (7, b"7")), ordered((1, b"1"), (0, b"0")), ordered((5, b"5")))
    assert values_of(bk, log) == [b"0", b"1", b"5", b"7", b"9"]
    overlapping = (ordered((10, b"10"), (13, b"13")), ordered((12, b"12"), (11, b"11")))
    if inline == "0":
        with pytest.raises(UsageError, match="same range of 'at'"):
            Job(given, "value binary, at long").run(*overlapping)
    else:
        Job(given, "value binary, at long").run(*overlapping)
        assert values_of(bk, log)[5:] == [b"10", b"11", b"12", b"13"]


@pytest.mark.parametrize("inline", ["1000000", "0"])
def test_a_place_that_says_no_order_is_refused(bk: Client, inline: str) -> None:
    """Seen: rows of another task stood behind a NaN, which is above all of them: no range overlaps one that ends so."""

    def task(*at: float | None) -> list[pa.RecordBatch]:
        return [pa.record_batch({"value": [b"row"] * len(at), "at": pa.array(at, pa.float64())})]

    log = f"no-order{inline}"
    for wrong, why in ((float("nan"), "has a NaN"), (None, "has a null")):
        with pytest.raises(UsageError, match=why):
            Job(options(bk, log, orderBy="at", inlineMaxBytes=inline), "value binary, at double").run(
                task(1.0, wrong), task(2.0, 3.0)
            )
    assert not bk.log_exists(log)


@pytest.mark.parametrize(
    ("ddl", "more", "why"),
    [
        ("value long", {}, "there is bigint"),
        ("key binary", {}, "there is one of key"),
        ("value binary, offset long", {}, "columns offset would be lost"),
        ("value binary", {"orderBy": "at"}, "names no column"),
        ("value binary, at array<long>", {"orderBy": "at"}, "array<bigint> says no order"),
        ("value binary, headers map<string;string>", {"orderBy": "headers"}, "says no order"),
        ("value binary, at variant", {"orderBy": "at"}, "variant says no order"),
        ("value binary, at void", {"orderBy": "at"}, "void says no order"),
        ("value binary, at months", {"orderBy": "at"}, "interval year to month says no order"),
        ("value binary", {"txnAppId": "a"}, "stand together"),
        ("value binary", {"txnVersion": "1"}, "stand together"),
        ("value binary", {"startingOffsets": "earliest"}, "is none of a batch's sink"),
        ("value binary", {"inlineMaxBytes": "many"}, "a whole number"),
        ("value binary", {"onReplay": "again"}, "allowed are skip and fail"),
        ("value binary", {"stagedSeconds": str(10**9)}, "from 0 to 999999999 is allowed"),
        ("value binary", {"commitSeconds": str(2**63 - 1)}, "from 0 to 999999999 is allowed"),
        ("value binary", {"inlineMaxBytes": "9" * 5_000}, "a whole number"),
    ],
)
def test_what_cannot_be_written_is_said_on_the_driver(
    bk: Client, ddl: str, more: dict[str, str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        EmbedbkSource(options(bk, "never", **more)).writer(schema_of(ddl), False)
    with pytest.raises(UsageError, match="never written over"):
        EmbedbkSource(options(bk, "never")).writer(schema_of(), True)
    with pytest.raises(UsageError, match="option log missing"):
        EmbedbkSource({"cluster": bk.url or ""}).writer(schema_of(), False)
    with pytest.raises(UsageError, match="workers are other processes"):
        EmbedbkSource({"cluster": "data", "log": "x"}).streamWriter(schema_of(), False)


def test_text_is_written_as_its_bytes(bk: Client) -> None:
    Job(options(bk, "text"), "value string").run([pa.record_batch({"value": ["one", "zwei"]})])
    assert values_of(bk, "text") == [b"one", b"zwei"]
