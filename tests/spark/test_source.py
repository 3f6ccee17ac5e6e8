"""The data source driven in Spark's call order without a JVM: options, partitions, pickling, exact batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema

from embedbk.client.batches import Batch
from embedbk.codec.entry import encode_entry
from embedbk.codec.kernels import values
from embedbk.errors import UsageError
from embedbk.spark import source
from embedbk.spark.reading import LedgerRange, ReadPlace
from embedbk.spark.source import EmbedbkReader, EmbedbkSource, RangePartition, split

URL = "embedbk://127.0.0.1:4181"
LOG = {"cluster": URL, "log": "orders"}
FIRST_OFFSET_OF = {7: 0, 9: 15}
FRAME_ENTRIES = 4  # So that a range takes several batches and its last one is short.


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    return b"" if entry_id == 3 else f"{ledger_id}:{entry_id}".encode()


def plan_two_ledgers(place: ReadPlace) -> list[LedgerRange]:
    """A log of two ledgers, of which the first begins at entry 5."""
    assert (place.cluster, place.log) == (URL, "orders")
    return [LedgerRange(7, 5, 14), LedgerRange(9, 0, 4)]


def plan_nothing(place: ReadPlace) -> list[LedgerRange]:
    return []


def read_frames(place: ReadPlace, part: LedgerRange) -> Iterator[Batch]:
    """Real frames of real entries, read out as a reader does."""
    assert place.cluster == URL
    for first in range(part.first_entry, part.last_entry + 1, FRAME_ENTRIES):
        length, body = 0, b""
        for entry_id in range(first, min(first + FRAME_ENTRIES, part.last_entry + 1)):
            payload = payload_of(part.ledger_id, entry_id)
            length += len(payload)
            body += encode_entry(part.ledger_id, entry_id, length, payload)
        yield Batch(part.ledger_id, FIRST_OFFSET_OF[part.ledger_id], *values(body))


def read_all(reader: EmbedbkReader) -> list[dict[str, object]]:
    """As Spark does it: everything pickled on its way to a worker, and an empty list read as partition None."""
    rows = []
    for partition in reader.partitions() or [None]:
        there, part = cloudpickle.loads(cloudpickle.dumps((reader, partition)))
        for batch in there.read(part):
            assert batch.schema.equals(source.SCHEMA)
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def test_every_entry_is_one_row_with_its_dense_offset() -> None:
    rows = read_all(EmbedbkReader(LOG, plan_two_ledgers, read_frames))
    ids = [(7, entry_id) for entry_id in range(5, 15)] + [(9, entry_id) for entry_id in range(5)]
    assert [(row["ledgerId"], row["entryId"]) for row in rows] == ids
    assert [row["offset"] for row in rows] == list(range(5, 20))
    assert [row["value"] for row in rows] == [payload_of(*position) for position in ids]
    assert {row["log"] for row in rows} == {"orders"}


def test_a_log_without_entries_has_no_rows() -> None:
    """An empty list of partitions comes back as one partition None."""
    assert read_all(EmbedbkReader(LOG, plan_nothing, read_frames)) == []


def test_partitions_are_a_real_list_and_split_long_ledgers() -> None:
    reader = EmbedbkReader({**LOG, "maxRowsPerPartition": "4"}, plan_two_ledgers, read_frames)
    partitions = reader.partitions()
    assert type(partitions) is list
    ranges = [part.range for part in partitions if isinstance(part, RangePartition)]
    assert ranges == [
        LedgerRange(7, 5, 7),
        LedgerRange(7, 8, 10),
        LedgerRange(7, 11, 14),
        LedgerRange(9, 0, 1),
        LedgerRange(9, 2, 4),
    ]
    assert len(read_all(reader)) == 15


@pytest.mark.parametrize(("entry_count", "rows_max"), [(1, 1), (10, 3), (10, 10), (11, 10), (1000, 7)])
def test_the_parts_of_a_range_are_the_range(entry_count: int, rows_max: int) -> None:
    whole = LedgerRange(3, 40, 40 + entry_count - 1)
    parts = list(split(whole, rows_max))
    entries = [entry for part in parts for entry in range(part.first_entry, part.last_entry + 1)]
    assert entries == list(range(40, 40 + entry_count))
    assert all(1 <= part.entry_count <= rows_max for part in parts)
    assert max(part.entry_count for part in parts) - min(part.entry_count for part in parts) <= 1


def test_the_arrow_schema_is_the_one_that_spark_makes_of_the_columns() -> None:
    """Spark refuses a first batch whose schema differs in order, type or nullability."""
    assert to_arrow_schema(source.COLUMNS).equals(source.SCHEMA)
    assert pa.types.is_string(source.SCHEMA.field("log").type)


def test_option_names_arrive_in_lower_case() -> None:
    reader = EmbedbkReader({**LOG, "maxrowsperpartition": "12"}, plan_nothing, read_frames)
    assert reader.rows_max == 12


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"log": "orders"}, "cluster missing"),
        ({"cluster": URL}, "log missing"),
        ({**LOG, "topic": "orders"}, "unknown option topic"),
        ({**LOG, "cluster": "./data"}, "listen="),
        ({**LOG, "cluster": "embedbk://somewhere"}, "no member"),
        ({**LOG, "log": "a/b"}, "log name 'a/b'"),
        ({**LOG, "maxRowsPerPartition": "0"}, "at least 1"),
        ({**LOG, "maxRowsPerPartition": "many"}, "at least 1"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(options: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        EmbedbkReader(options, plan_nothing, read_frames)


def test_the_format_is_called_embedbk() -> None:
    assert EmbedbkSource.name() == "embedbk"
    assert EmbedbkSource({}).schema() is source.COLUMNS
