"""Arrow in, through both faces: rows of whoever speaks Arrow become entries (issue: one call, no object per entry)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.testing.arrow_bytes import FORMATS, ArrowBytes

GIVEN = [b"%d " % number * (number % 9) for number in range(1000)]


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_any_layout_become_entries(bk: embedbk.Client, log_name: str, form: str) -> None:
    with bk.log(log_name).writer() as writer:
        appended = writer.append_arrow(ArrowBytes(GIVEN, form, name="value", front=5))
        assert (appended.first_entry, appended.last_entry, appended.entry_count) == (0, 999, 1000)
        assert writer.append_arrow(ArrowBytes(GIVEN, form, chunk=300), timeout_s=60).first_entry == 1000
    assert [bytes(entry) for entry in bk.log(log_name).read()] == GIVEN + GIVEN
    with bk.create_ledger() as ledger:
        assert ledger.append_arrow(ArrowBytes(GIVEN, form, name="payload"), value="payload").last_entry == 999
        assert ledger.append_arrow(ArrowBytes([], form)).entry_count == 0
    with bk.open_ledger(ledger.ledger_id) as reader:
        assert [bytes(entry) for entry in reader.read()] == GIVEN


@pytest.mark.parametrize("digest", ["xxh3", "hmac"])
def test_a_ledger_with_tags_takes_them_too(bk: embedbk.Client, digest: str) -> None:
    with bk.create_ledger(password=b"p", digest=digest) as ledger:
        ledger.append_arrow(ArrowBytes(GIVEN, "vz", chunk=100))
    with bk.open_ledger(ledger.ledger_id, password=b"p") as reader:
        assert [bytes(entry) for entry in reader.read()] == GIVEN


def test_more_rows_than_have_room_wait_and_stand_together(data: Path) -> None:
    """P3.1: as `append_many`: what one call appends has dense ids, however often it waits for room."""
    narrow = embedbk.Settings(journal_file_bytes=2 << 20, append_bytes_max=1 << 20)
    with (
        embedbk.open(data, settings=narrow) as bk,
        bk.log("one").writer(roll=embedbk.Roll(bytes=None)) as writer,
    ):
        appended = writer.append_arrow(ArrowBytes([bytes(1000)] * 5000, "Z", chunk=999))
        assert appended.entry_count == 5000
        assert appended.last_entry - appended.first_entry == 4999


@pytest.mark.parametrize("form", ["z", "vz"])
def test_a_refused_row_means_none_was_appended(bk: embedbk.Client, log_name: str, form: str) -> None:
    with bk.log(log_name).writer() as writer:
        for data in (
            ArrowBytes([b"a", b"b"], form, nulls=[1]),
            ArrowBytes([b"a", bytes((1 << 20) + 1)], form),
            ArrowBytes([b"a"], form, name="payload"),
            ArrowBytes([b"a"], form, chunk=1, error="torn"),
        ):
            with pytest.raises(embedbk.UsageError, match="nothing was appended"):
                writer.append_arrow(data)
        for named in ({"key": "k"}, {"timestamp": "k"}, {"headers": "k"}):
            with pytest.raises(
                embedbk.UsageError, match="no single column 'k' is there, but: one column by itself"
            ):
                writer.append_arrow(ArrowBytes([b"a"], form), **named)  # type: ignore[arg-type]
            with pytest.raises(embedbk.UsageError, match="no single column 'k' is there, but: value"):
                writer.append_arrow(ArrowBytes([b"a"], form, name="value"), **named)  # type: ignore[arg-type]
        with pytest.raises(embedbk.UsageError, match="timeout_s"):
            writer.append_arrow(ArrowBytes([b"a"], form), timeout_s=-1.0)
        assert writer.append(b"first").entry_id == 0
    with pytest.raises(embedbk.UsageError, match="was closed"):
        writer.append_arrow(ArrowBytes([b"a"], form))


def test_the_awaited_face_takes_them_too(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk:
            async with bk.log("rows").writer() as writer:
                assert (await writer.append_arrow(ArrowBytes(GIVEN, "vz", name="value"))).entry_count == 1000
            async with bk.create_ledger() as ledger:
                assert (await ledger.append_arrow(ArrowBytes(GIVEN, chunk=10))).last_entry == 999
            assert [bytes(entry) async for entry in bk.log("rows").read()] == GIVEN

    asyncio.run(story())


def test_pyarrow_s_own_are_taken(bk: embedbk.Client, log_name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    kinds = [pa.binary(), pa.large_binary(), pa.binary_view()]
    texts = [pa.string(), pa.large_string(), pa.string_view()]
    given: list[bytes] = []
    with bk.log(log_name).writer() as writer:
        for kind in kinds + texts:
            values: list[Any] = GIVEN if kind in kinds else [value.decode() for value in GIVEN]
            array = pa.array(values, kind)
            batch = pa.record_batch({"n": pa.array(range(1000)), "value": array})
            struct = pa.StructArray.from_arrays([array], ["value"])
            for data, rows in (
                (array, GIVEN), (batch, GIVEN), (batch.slice(3, 500), GIVEN[3:503]), (struct[10:20], GIVEN[10:20]),
                (array[990:], GIVEN[990:]), (pa.table(batch), GIVEN),
                (pa.chunked_array([array, array[:5]]), [*GIVEN, *GIVEN[:5]]),
                (pa.RecordBatchReader.from_batches(batch.schema, [batch, batch.slice(7)]), [*GIVEN, *GIVEN[7:]]),
                (batch.slice(0, 0), []),
            ):  # fmt: skip
                writer.append_arrow(data)
                given += rows
        nulls = pa.array([b"x", None, b"z"])
        with pytest.raises(embedbk.UsageError, match="row 1 of column 'value' is null"):
            writer.append_arrow(nulls)
        writer.append_arrow(nulls[2:])
        given.append(b"z")
        for strange in (
            pa.array([1, 2]),
            pa.array(["x"]).dictionary_encode(),
            pa.array([b"1234"], pa.binary(4)),
        ):
            with pytest.raises(embedbk.UsageError, match="has the Arrow format"):
                writer.append_arrow(strange)
    assert [bytes(entry) for entry in bk.log(log_name).read()] == given


def test_what_a_log_gives_as_arrow_goes_into_another(bk: embedbk.Client, log_name: str) -> None:
    """Out and in again: a stream that is read while it is appended."""
    pytest.importorskip("pyarrow")
    with bk.log(log_name).writer() as writer:
        writer.append_many(GIVEN)
    with bk.log(f"{log_name}-too").writer() as writer:
        assert writer.append_arrow(bk.log(log_name).record_batches(100)).entry_count == 900
        assert writer.append_arrow(bk.log(log_name).reader().read_bulk(100)).entry_count == 100
    assert [bytes(entry) for entry in bk.log(f"{log_name}-too").read()] == [*GIVEN[100:], *GIVEN[:100]]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("digest", ["crc32c", "hmac"])
def test_keys_timestamps_and_headers_come_along(bk: embedbk.Client, digest: Any, compression: Any) -> None:
    """Each row is the record that `EntryRecord` of the same would be, compressed or with a tag, too."""
    pa = pytest.importorskip("pyarrow")
    given = [
        embedbk.EntryRecord(
            b"%d" % n * 300, b"k%d" % n if n % 2 else None, n or None, {"h": b"x" * n} if n % 3 else {}
        )
        for n in range(200)
    ]
    headers = pa.array([list(each.headers.items()) for each in given], pa.map_(pa.string(), pa.binary()))
    batch = pa.record_batch(
        {
            "value": [each.value for each in given],
            "id": [each.key for each in given],
            "at": pa.array([each.timestamp for each in given], pa.timestamp("ms")),
            "tags": headers,
        }
    )
    with bk.create_ledger(password=b"p", digest=digest, compression=compression) as ledger:
        told = ledger.append_arrow(batch, key="id", timestamp="at", headers="tags")
        assert (told.first_entry, told.last_entry) == (0, 199)
        with pytest.raises(embedbk.UsageError, match="row 1 of column 'at' is no time"):
            ledger.append_arrow(
                pa.record_batch({"value": [b"a", b"b"], "at": [5, -5]}), key=None, timestamp="at"
            )
        assert ledger.add(b"next") == 200
    with bk.open_ledger(ledger.ledger_id, password=b"p") as reader:
        found = [record for entry in reader.read(0, 199) for record in entry.records]
    assert [(bytes(r.value), r.key, r.timestamp, dict(r.headers)) for r in found] == [
        (r.value, r.key, r.timestamp, dict(r.headers)) for r in given
    ]


def test_pyarrow_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import embedbk; from embedbk.codec.arrow_columns import rows_of\n"
        "from embedbk.codec.arrow_rows import ArrowNames\n"
        "from embedbk.testing.arrow_bytes import ArrowBytes\n"
        "assert [*rows_of(ArrowBytes([b'x']), ArrowNames('value'))] == [b'x']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
