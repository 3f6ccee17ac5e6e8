"""An archive's columns are all of an entry: header, attributes and CRC32C are made of them again, byte for byte."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedbk.archive.columns import SCHEMA, body_of, digest_sum, in_each_row, rows_of
from embedbk.archive.files import EntryRun, sound_rows
from embedbk.codec import kernels
from embedbk.codec.attributes import (
    PARTS_MAX,
    AttributeKind,
    Producer,
    encode_attributes,
    encode_time,
    kinds_in,
)
from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.errors import PeerError

ENTRIES = st.lists(
    st.tuples(
        st.lists(st.binary(max_size=20), min_size=1, max_size=4),  # Its parts.
        st.booleans(),  # By a producer.
        st.one_of(st.none(), st.integers(0, 2**41)),  # With a time of its own.
    ),
    min_size=1,
    max_size=20,
)


def made(
    entries: list[tuple[list[bytes], bool, int | None]], first: int = 0, ledger_id: int = 7
) -> list[bytes]:
    body, length = [], 0
    for number, (parts, is_produced, time_ms) in enumerate(entries, first):
        payload = b"".join(parts)
        ends = [sum(map(len, parts[: 1 + part])) for part in range(len(parts))] if len(parts) > 1 else []
        attributes = encode_attributes(ends, Producer(3, number) if is_produced else None)
        attributes += b"" if time_ms is None else encode_time(time_ms)
        before = length
        length += len(payload)
        lac = (number - 1, before) if number else (-1, 0)
        body.append(encode_entry(ledger_id, number, length, payload, *lac, attributes))
    return body


@given(ENTRIES, st.integers(0, 2**40), st.integers(0, 1000))
def test_entries_are_made_again_byte_for_byte(
    entries: list[tuple[list[bytes], bool, int | None]], first: int, first_offset: int
) -> None:
    body = memoryview(b"".join(made(entries, first)))
    kernels.scan(body)
    rows, _ = rows_of(body, "~log", 7, first_offset, 5)
    table = pa.Table.from_batches([rows])
    table.validate(full=True)
    assert bytes(body_of(table)) == bytes(body)
    records = [
        (first + number, slot, first + number + first_offset, part)
        for number, (parts, _, _) in enumerate(entries)
        for slot, part in enumerate(parts)
    ]
    told = [table.column(column).to_pylist() for column in ("entryId", "slot", "offset", "value")]
    assert list(zip(*told, strict=True)) == records
    times, now = [], 5
    for parts, _, time_ms in entries:
        now = now if time_ms is None else time_ms
        times += [now] * len(parts)
    assert table.column("time").cast(pa.int64()).to_pylist() == times


@given(ENTRIES)
def test_the_sum_of_digests_is_that_of_the_plain_form(
    entries: list[tuple[list[bytes], bool, int | None]],
) -> None:
    """As bookies sum them (native/wire/entry_digest.h)."""
    found = made(entries)
    assert digest_sum(memoryview(b"".join(found))) == sum(map(entry_digest, found)) & DIGEST_MASK


def test_rows_of_a_slice_are_made_again() -> None:
    """Arrow arrays may begin behind their buffers' beginning."""
    body = memoryview(b"".join(made([([b"%d" % number, b"x"], False, None) for number in range(9)])))
    table = pa.Table.from_batches([rows_of(body, "~log", 7, 0, None)[0]])
    some = bytes(body_of(table.slice(4, 8)))
    assert kernels.scan(some)[:3] == (2, 5, 4)


@pytest.mark.parametrize("column", SCHEMA.names)
def test_other_columns_are_refused(column: str) -> None:
    body = memoryview(b"".join(made([([b"a"], False, 5)])))
    table = pa.Table.from_batches([rows_of(body, "~log", 7, 0, None)[0]])
    with pytest.raises(PeerError):
        body_of(table.drop([column]))
    if column not in ("time", "attributes"):
        nulls = pa.nulls(1, SCHEMA.field(column).type)
        with pytest.raises(PeerError, match="null"):
            body_of(table.set_column(SCHEMA.get_field_index(column), SCHEMA.field(column), nulls))


def test_rows_that_begin_inside_an_entry_or_are_none_are_refused() -> None:
    body = memoryview(b"".join(made([([b"a", b"b"], False, 5)])))
    table = pa.Table.from_batches([rows_of(body, "~log", 7, 0, None)[0]])
    with pytest.raises(PeerError, match="first row"):
        body_of(table.slice(1))
    with pytest.raises(PeerError, match="0 rows"):
        body_of(table.slice(2))


def test_the_rows_of_a_large_batch_are_about_as_large_as_it_is() -> None:
    """P8.14: attributes stand in the first row of their entry only. The table of 8,192 parts is 32 KiB, so a copy in
    each row made 268 MB of one entry, and row groups that no reader took."""
    entries = [([b"%d" % part for part in range(PARTS_MAX)], False, 5)] * 2
    body = memoryview(b"".join(made(entries)))
    rows, _ = rows_of(body, "~log", 7, 0, None)
    assert rows.num_rows == 2 * PARTS_MAX
    assert len(rows.column("attributes").drop_null()) == 2
    assert rows.nbytes < 30 * len(body)
    assert bytes(body_of(pa.Table.from_batches([rows]))) == bytes(body)


@given(ENTRIES)
def test_files_with_attributes_in_each_row_are_sound(
    entries: list[tuple[list[bytes], bool, int | None]],
) -> None:
    """Earlier builds wrote them so. One that is another than its entry's is a finding, as ever."""
    body = memoryview(b"".join(made(entries)))
    rows = in_each_row(rows_of(body, "~log", 7, 0, None)[0])
    run = EntryRun("~log", 7, 0, len(entries) - 1, 0)
    assert [bytes(each) for _, each in sound_rows(as_file(rows), run)] == [bytes(body)]
    attributes = rows.column("attributes").to_pylist()
    for row in [row for row, slot in enumerate(rows.column("slot").to_pylist()) if slot]:
        assert AttributeKind.PARTS in kinds_in(attributes[row])
        other = pa.array([*attributes[:row], b"other", *attributes[row + 1 :]], pa.binary())
        at = SCHEMA.get_field_index("attributes")
        with pytest.raises(PeerError, match="columns are not those"):
            list(sound_rows(as_file(rows.set_column(at, SCHEMA.field(at), other)), run))


def as_file(rows: pa.RecordBatch) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), file, write_page_checksum=True)
    file.seek(0)
    return file
