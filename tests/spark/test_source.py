"""The batch source driven in Spark's call order without a JVM: options, partitions, pickling, exact record batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from embedbk.client.client import Client
from embedbk.errors import EntryUnreadable, NoSuchCursor, UsageError
from embedbk.spark import rows
from embedbk.spark.options import COLUMN_NAMES, RECORD_COLUMNS, read_options
from embedbk.spark.partitions import RangePartition, split
from embedbk.spark.reading import LedgerRange
from embedbk.spark.source import EmbedbkReader, EmbedbkSource, PruningReader
from embedbk.spark.view_reading import ViewReader
from embedbk.views import VIEWS

URL = "embedbk://127.0.0.1:4181"
LOG = {"cluster": URL, "log": "orders"}


@pytest.fixture(scope="module")
def logs(bk: Client) -> dict[str, str]:
    """A log of two ledgers with 10 and 5 entries, and one that holds an atomic batch and bytes that are no text."""
    for count in (10, 5):
        with bk.log("orders").writer() as writer:
            writer.append_many([f"{count}:{number}".encode() for number in range(count)])
    with bk.log("batches").writer() as writer:
        writer.append(b"plain")
        writer.append_batch([b"one", b"two", b"\xff"])
        writer.append(b"behind")
    with bk.log("empty").writer():
        pass
    assert bk.url is not None
    return {"cluster": bk.url, "log": "orders"}


def reader_of(options: dict[str, str]) -> EmbedbkReader:
    source = EmbedbkSource(options)
    return source.reader(source.schema())


def partitions_of(reader: EmbedbkReader) -> list[LedgerRange]:
    return [part.range for part in reader.partitions() if isinstance(part, RangePartition)]


def read_all(reader: EmbedbkReader) -> list[dict[str, Any]]:
    """As Spark does it: everything pickled on its way to a worker, and an empty list read as partition None."""
    found = []
    for partition in reader.partitions() or [None]:
        there, part = cloudpickle.loads(cloudpickle.dumps((reader, partition)))
        for batch in there.read(part):
            options = reader.options
            assert batch.schema.equals(rows.arrow_schema(options.columns, is_text=options.is_text))
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def test_every_entry_is_one_row_with_its_dense_offset(logs: dict[str, str]) -> None:
    found = read_all(reader_of(logs))
    assert [row["offset"] for row in found] == list(range(15))
    assert [row["entryId"] for row in found] == [*range(10), *range(5)]
    assert [row["value"] for row in found] == [f"{n}:{i}".encode() for n in (10, 5) for i in range(n)]
    assert {(row["log"], row["slot"]) for row in found} == {("orders", 0)}
    assert len({row["ledgerId"] for row in found}) == 2


def test_the_records_of_an_atomic_batch_are_rows_with_one_offset_and_slots(logs: dict[str, str]) -> None:
    found = read_all(reader_of({**logs, "log": "batches"}))
    assert [(row["offset"], row["slot"]) for row in found] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert [row["value"] for row in found] == [b"plain", b"one", b"two", b"\xff", b"behind"]


def test_columns_are_those_that_were_asked_for_and_text_is_text(logs: dict[str, str]) -> None:
    reader = reader_of({**logs, "columns": "value, offset", "payload": "string", "endingOffsets": "2"})
    assert read_all(reader) == [{"value": "10:0", "offset": 0}, {"value": "10:1", "offset": 1}]


def test_bytes_that_are_no_text_are_an_error_that_says_where(logs: dict[str, str]) -> None:
    with pytest.raises(EntryUnreadable, match=r"log 'batches', ledger .* no text in UTF-8"):
        read_all(reader_of({**logs, "log": "batches", "payload": "string"}))


def test_several_logs_are_one_table(logs: dict[str, str], bk: Client) -> None:
    several = {"cluster": logs["cluster"]}
    for which in ({"logs": "batches, empty,orders"}, {"logPrefix": ""}):
        found = read_all(reader_of({**several, **which, "startingOffsets": '{"orders": 12}'}))
        assert [(row["log"], row["offset"]) for row in found if row["log"] == "orders"] == [
            ("orders", offset) for offset in (12, 13, 14)
        ]
        assert sum(row["log"] == "batches" for row in found) == 5


def test_a_read_begins_and_ends_where_a_cursor_stands(logs: dict[str, str], bk: Client) -> None:
    bk.log("orders").cursor("billing", holds=False).set(12)
    behind = {**logs, "startingOffsets": "cursor:billing"}
    assert [row["offset"] for row in read_all(reader_of(behind))] == [12, 13, 14]
    before = {**logs, "endingOffsets": "cursor:billing"}
    assert [row["offset"] for row in read_all(reader_of(before))] == list(range(12))
    assert bk.log("orders").cursor("billing").get().offset == 12, "a read moves no cursor"
    with pytest.raises(NoSuchCursor, match="no cursor 'other'"):
        reader_of({**logs, "startingOffsets": "cursor:other"}).partitions()


def test_a_read_begins_and_ends_at_times(logs: dict[str, str], bk: Client) -> None:
    """P8.11: from the first entry at or behind a time; what stands there is told by the log, and does not change."""
    log = bk.log("orders")
    for offset in (0, 7, 14):
        time = log.time_at(offset)
        assert time is not None
        first = log.first_at(time)
        for text in (str(time), datetime.fromtimestamp(time / 1000, UTC).isoformat()):
            found = read_all(reader_of({**logs, "startingTimestamp": text}))
            assert [row["offset"] for row in found] == list(range(first, 15))
            found = read_all(reader_of({**logs, "endingTimestamp": text}))
            assert [row["offset"] for row in found] == list(range(first))
    late = str(2**62)
    assert len(read_all(reader_of({**logs, "endingTimestamp": late}))) == 15
    with pytest.raises(UsageError, match="log 'orders' has no entry at or behind"):
        reader_of({**logs, "startingTimestamp": late}).partitions()
    assert read_all(reader_of({**logs, "startingTimestamp": late, "onNoMatch": "latest"})) == []


def test_a_log_without_entries_has_no_rows(logs: dict[str, str]) -> None:
    """An empty list of partitions comes back as one partition None."""
    assert read_all(reader_of({**logs, "log": "empty"})) == []
    assert read_all(reader_of({**logs, "startingOffsets": "latest"})) == []


def test_partitions_are_a_real_list_and_split_long_ledgers(logs: dict[str, str]) -> None:
    reader = reader_of({**logs, "maxRowsPerPartition": "4", "startingOffsets": "5"})
    assert type(reader.partitions()) is list
    found = partitions_of(reader)
    assert [(part.first_entry, part.last_entry) for part in found] == [(5, 6), (7, 9), (0, 1), (2, 4)]
    assert len(read_all(reader)) == 10


@pytest.mark.parametrize(("entry_count", "rows_max"), [(1, 1), (10, 3), (10, 10), (11, 10), (1000, 7)])
def test_the_parts_of_a_range_are_the_range(entry_count: int, rows_max: int) -> None:
    whole = LedgerRange("orders", 3, 40, 40 + entry_count - 1, 0)
    parts = list(split(whole, rows_max))
    entries = [entry for part in parts for entry in range(part.first_entry, part.last_entry + 1)]
    assert entries == list(range(40, 40 + entry_count))
    assert all(1 <= part.entry_count <= rows_max for part in parts)
    assert max(part.entry_count for part in parts) - min(part.entry_count for part in parts) <= 1


def test_a_read_pins_where_it_begins_and_truncation_stops_there(logs: dict[str, str], bk: Client) -> None:
    """P8.8: "a pin is a leased key below which nothing is truncated". Spark plans once, and reads whenever it likes."""
    reader = reader_of({**logs, "startingOffsets": "3", "pinSeconds": "100"})
    reader.partitions()
    reader.partitions()
    mine = [(pin.name, pin.offset) for pin in bk.log("orders").pins() if pin.name.endswith("-100")]
    assert mine == [("spark-batch-3-100", 3)]
    reader_of({**logs, "startingOffsets": "4", "pinSeconds": "0"}).partitions()
    assert not [pin for pin in bk.log("orders").pins() if pin.offset == 4]


def test_a_task_that_begins_late_renews_the_pin_of_its_read(logs: dict[str, str], bk: Client) -> None:
    reader = reader_of({**logs, "startingOffsets": "2", "pinSeconds": "200"})
    (part, *_) = reader.partitions()
    bk.log("orders").unpin("spark-batch-2-200")
    assert isinstance(part, RangePartition)
    list(reader.read(part))
    assert not [pin for pin in bk.log("orders").pins() if pin.offset == 2]  # It was made just now.
    object.__setattr__(part, "pinned_s", part.pinned_s - 51)
    list(reader.read(part))
    assert [pin.name for pin in bk.log("orders").pins() if pin.offset == 2] == ["spark-batch-2-200"]


@pytest.mark.parametrize(
    ("filters", "offsets"),
    [
        ([EqualTo(("offset",), 3)], [3]),
        ([GreaterThan(("offset",), 12)], [13, 14]),
        ([GreaterThanOrEqual(("offset",), 8), LessThan(("offset",), 11)], [8, 9, 10]),
        ([LessThanOrEqual(("entryId",), 0)], [0, 10]),
        ([In(("entryId",), (3, 4))], [3, 4, 13, 14]),
        ([In(("offset",), (2, 4))], [2, 3, 4]),  # From the least to the greatest; Spark takes 3 out again.
        ([EqualTo(("log",), "another")], []),
        ([EqualTo(("ledgerId",), 1 << 40)], []),
        ([StringStartsWith(("log",), "x"), EqualTo(("value",), b"")], list(range(15))),
    ],
)
def test_filters_leave_out_what_no_row_can_come_from(
    logs: dict[str, str], filters: list[Any], offsets: list[int]
) -> None:
    reader = reader_of({**logs, "pushdown": "true"})
    assert isinstance(reader, PruningReader)
    assert list(reader.pushFilters(filters)) == filters  # Spark applies every one again.
    assert [row["offset"] for row in read_all(reader)] == offsets


def test_the_arrow_schema_is_the_one_that_spark_makes_of_the_columns() -> None:
    """Spark refuses a first batch whose schema differs in order, type or nullability."""
    for is_text in (False, True):
        names = COLUMN_NAMES + RECORD_COLUMNS
        made = rows.arrow_schema(names, is_text=is_text)
        assert to_arrow_schema(rows.spark_schema(names, is_text=is_text)).equals(made)
    assert pa.types.is_string(made.field("value").type)


def test_option_names_arrive_in_lower_case() -> None:
    assert read_options({**LOG, "maxrowsperpartition": "12"}, is_stream=False).rows_per_partition == 12


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"log": "orders"}, "cluster missing"),
        ({"cluster": URL}, "log missing"),
        ({**LOG, "logs": "a,b"}, "log and logs beside each other"),
        ({"cluster": URL, "logs": "a,b, a"}, "a log twice"),
        ({**LOG, "topic": "orders"}, "unknown option topic"),
        ({**LOG, "maxRowsPerTrigger": "5"}, "maxRowsPerTrigger is not one of a batch"),
        ({**LOG, "cluster": "./data"}, "listen="),
        ({**LOG, "cluster": "embedbk://somewhere"}, "no member"),
        ({**LOG, "log": "a/b"}, "log name 'a/b'"),
        ({**LOG, "maxRowsPerPartition": "0"}, "at least 1"),
        ({**LOG, "maxRowsPerPartition": "many"}, "at least 1"),
        ({**LOG, "columns": "offset,offset"}, "each once"),
        ({**LOG, "columns": "offset,colour"}, "allowed are names"),
        ({**LOG, "payload": "json"}, "binary and string"),
        ({**LOG, "startingOffsets": "-1"}, 'allowed are "earliest"'),
        ({**LOG, "startingOffsets": '{"others": 3}'}, "'others', which is not read"),
        ({**LOG, "startingOffsets": '{"orders": true}'}, 'allowed are "earliest"'),
        ({**LOG, "endingOffsets": "soon"}, "option endingOffsets='soon'"),
        ({**LOG, "startingOffsets": "cursor:a/b"}, "cursor name 'a/b'"),
        ({**LOG, "startingTimestamp": "soon"}, "option startingTimestamp='soon'"),
        ({**LOG, "startingTimestamp": "2026-11-26"}, "no time zone"),
        ({**LOG, "endingTimestamp": "1969-12-31T23:59:59Z"}, "ms since 1970"),
        ({**LOG, "startingTimestamp": "5", "startingOffsets": "7"}, "beside each other"),
        ({**LOG, "onNoMatch": "earliest"}, "error and latest"),
        ({**LOG, "failOnDataLoss": "maybe"}, "true and false"),
        ({**LOG, "pinSeconds": "1.5"}, "whole number"),
        ({**LOG, "pinSeconds": "1000000000"}, "from 0 to 999999999"),
        ({**LOG, "pinSeconds": "9" * 400}, "from 0 to 999999999"),
        ({**LOG, "maxRowsPerPartition": "9" * 5_000}, "at least 1"),
        ({**LOG, "startingOffsets": str(1 << 63)}, 'allowed are "earliest"'),
        ({**LOG, "startingOffsets": "[" * 100_000}, 'allowed are "earliest"'),
        ({**LOG, "startingTimestamp": "9" * 5_000}, "ms since 1970"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as told:
        read_options(options, is_stream=False)
    assert says in f"{told.value} {told.value.hint}"


def test_an_offset_for_each_of_several_logs_is_given_by_name() -> None:
    with pytest.raises(UsageError, match="of one log"):
        read_options({"cluster": URL, "logs": "a,b", "startingOffsets": "3"}, is_stream=False)


def test_the_format_is_called_embedbk() -> None:
    assert EmbedbkSource.name() == "embedbk"
    schema = EmbedbkSource(LOG).schema()
    assert schema.simpleString() == rows.spark_schema(COLUMN_NAMES, is_text=False).simpleString()


def test_a_table_has_what_it_was_made_with_but_no_password(logs: dict[str, str], bk: Client) -> None:
    """Spark gives a table's options to `schema()` only, and its schema to all. It knows no other way."""
    made = EmbedbkSource(
        {**logs, "columns": "offset,value", "password": "p", "maxRowsPerPartition": "4"}
    ).schema()
    kept = StructType.fromJson(json.loads(made.json()))
    assert "password" not in kept.json()
    reader = EmbedbkSource({}).reader(kept)
    assert isinstance(reader, EmbedbkReader) and reader.options.rows_per_partition == 4
    assert [row["offset"] for row in read_all(reader)] == list(range(15))
    view = EmbedbkSource({"cluster": logs["cluster"], "view": "logs"}).schema()
    assert isinstance(EmbedbkSource({}).reader(StructType.fromJson(json.loads(view.json()))), ViewReader)
    rows_of = EmbedbkSource({**logs, "columns": "value", "inlineMaxBytes": "7", "pushdown": "true"}).schema()
    writer = EmbedbkSource({}).writer(inserted(rows_of), False)
    assert (writer.options.log, writer.options.inline_bytes_max) == ("orders", 7)
    with pytest.raises(UsageError, match="option cluster missing"):
        EmbedbkSource({}).reader(rows.spark_schema(COLUMN_NAMES, is_text=False))


def inserted(table: StructType) -> StructType:
    """The rows of an INSERT that Spark casts or renames: a column has the metadata of the table's, and no declared type
    any more (CharVarcharUtils.cleanMetadata)."""
    made = StructType.fromJson(json.loads(table.json()))
    for each in made.fields:
        each.metadata.pop("__CHAR_VARCHAR_TYPE_STRING", None)
    return made


def test_rows_that_were_read_do_not_say_where_they_are_written(logs: dict[str, str], bk: Client) -> None:
    """SPARK.md, tables: they have the metadata of their own log's first column, and went back into that log, once more,
    where a write had no options, and where Spark inserted them into the table of another."""
    columns = {**logs, "columns": "value"}
    for read in (EmbedbkSource(columns).schema(), rows.spark_schema(["value"], is_text=False)):
        with pytest.raises(UsageError, match="which log these rows are for"):
            EmbedbkSource({}).writer(read, False)
        writer = EmbedbkSource({**logs, "log": "copy"}).writer(read, False)
        assert writer.options.log == "copy"


def test_what_the_metadata_says_is_rows_too(logs: dict[str, str], bk: Client) -> None:
    """Each view by its name: its columns and rows are those of `embedbk.views`."""
    for name, wanted in VIEWS.items():
        source = EmbedbkSource({"cluster": logs["cluster"], "view": name})
        assert [field.name for field in source.schema()] == [column for column, _ in wanted.columns]
        there = cloudpickle.loads(cloudpickle.dumps(source.reader(source.schema())))
        (partition,) = there.partitions()
        found = [tuple(row.values()) for batch in there.read(partition) for row in batch.to_pylist()]
        now = wanted.rows(bk)
        if name == "cursors":  # How long an entry has waited is told anew each time.
            found, now = [row[:-1] for row in found], [row[:-1] for row in now]
        assert found == now


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cluster": URL, "view": "tables"}, "allowed are logs"),
        ({**LOG, "view": "logs"}, "options log beside view='logs'"),
        ({"view": "logs"}, "option cluster missing"),
    ],
)
def test_a_wrong_view_is_refused(options: dict[str, str], says: str) -> None:
    source = EmbedbkSource(options)
    with pytest.raises(UsageError, match=says):
        source.reader(source.schema())


def test_a_view_is_no_stream() -> None:
    source = EmbedbkSource({"cluster": URL, "view": "logs"})
    with pytest.raises(UsageError, match="is no stream"):
        source.streamReader(source.schema())
