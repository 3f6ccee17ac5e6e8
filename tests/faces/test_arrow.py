"""Entries as Arrow record batches (embedbk/arrow.py), from ledgers and logs, through both faces."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import embedbk
from embedbk import aio
from embedbk.client.batches import Located, batch_of
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import frame_of

pa = pytest.importorskip("pyarrow")
arrow = pytest.importorskip("embedbk.arrow")


def test_a_column_stands_on_the_buffers_of_the_batch() -> None:
    """No value is copied: ids, ends and bytes of the column are where those of the batch are."""
    body, length = b"", 0
    for number in range(5):
        length += number
        body += encode_entry(7, number, length, b"x" * number)
    batch = batch_of(Located(frame_of(memoryview(body)), 100))
    table = arrow.record_batch(batch)
    table.validate(full=True)
    assert table.schema == arrow.SCHEMA
    assert table.to_pydict() == {
        "ledgerId": [7] * 5,
        "entryId": list(range(5)),
        "offset": list(range(100, 105)),
        "value": [b"x" * number for number in range(5)],
    }
    _, ends, data = table.column("value").buffers()
    assert ends.address == pa.py_buffer(batch.ends).address
    assert data.address == pa.py_buffer(batch.data).address
    assert table.column("entryId").buffers()[1].address == pa.py_buffer(batch.ids).address


def test_what_records_have_beside_their_values_are_columns(bk: embedbk.Client, log_name: str) -> None:
    """One row for a record, with nulls where it has nothing; a batch without any is made of nulls."""
    log, record = bk.log(log_name), embedbk.EntryRecord
    with log.writer() as writer:
        writer.append_many([b"%d" % number for number in range(200)])
        writer.flush()
        writer.append(record(b"one", b"k", 7, {"b": b"2", "a": b""}))
        writer.append_batch([b"two", record(b"three", b""), record(b"four", headers={"c": b"\xff"})])
        writer.append(b"five")
    table = pa.table(log.record_batches(with_records=True))
    assert table.schema == arrow.SCHEMA_WITH_RECORDS
    assert table.column("value").to_pylist()[200:] == [b"one", b"two", b"three", b"four", b"five"]
    assert table.column("key").to_pylist() == [None] * 200 + [b"k", None, b"", None, None]
    assert table.column("timestamp").to_pylist() == [None] * 200 + [7, None, None, None, None]
    headers = [[("a", b""), ("b", b"2")], None, None, [("c", b"\xff")], None]
    assert table.column("headers").to_pylist() == [None] * 200 + headers
    assert pa.table(log.record_batches()).schema == arrow.SCHEMA
    some = pa.table(log.record_batches(200, 202, with_records=True))
    assert some.column("key").to_pylist() == [b"k", None, b"", None]
    with bk.open_ledger(writer.ledger_id) as ledger:
        assert pa.table(ledger.record_batches(201, 201, with_records=True)).num_rows == 3


def test_a_bulk_that_was_split_has_the_records_of_its_rows(bk: embedbk.Client, log_name: str) -> None:
    record = embedbk.EntryRecord
    with bk.log(log_name).writer() as writer:
        writer.append_many([record(b"%d" % number, b"k%d" % number) for number in range(10)])
        writer.append_many([b"plain"] * 3)
    with bk.log(log_name).reader() as reader:
        told = [batch.records() for size in (3, 4, 100) for batch in reader.read_bulk(size, wait_s=9).batches]
    assert [len(each or ()) for each in told][:2] == [3, 4]
    assert [each.key for batch in told for each in batch or ()][:10] == [
        b"k%d" % number for number in range(10)
    ]
    with bk.log(log_name).writer() as writer:
        writer.append(b"alone")
    (batch,) = bk.log(log_name).read_batches(13)
    assert batch.records() is None and batch.body is None


def test_a_log_and_its_ledgers_are_read_as_record_batches(bk: embedbk.Client, log_name: str) -> None:
    """Rows are records: an entry, or each part of an atomic batch, under its entry's id."""
    given = [b"%d" % number for number in range(100)]
    with bk.log(log_name).writer() as writer:
        writer.append_many(given[:50])
    with bk.log(log_name).writer() as writer:
        writer.append_many(given[50:])
        writer.append_batch([b"a", b"", b"ccc"])
        ledger_id = writer.ledger_id
    table = pa.Table.from_batches(bk.log(log_name).record_batches())
    assert table.column("value").to_pylist() == [*given, b"a", b"", b"ccc"]
    assert table.column("offset").to_pylist() == [*range(100), 100, 100, 100]
    part = pa.Table.from_batches(bk.log(log_name).record_batches(20, 60))
    assert part.column("value").to_pylist() == given[20:60]
    with bk.open_ledger(ledger_id) as ledger:
        some = pa.Table.from_batches(ledger.record_batches(48))
    assert some.column("value").to_pylist() == [*given[98:], b"a", b"", b"ccc"]
    assert some.column("entryId").to_pylist() == [48, 49, 50, 50, 50]
    assert set(some.column("ledgerId").to_pylist()) == {ledger_id}


def test_a_striped_ledger_gives_the_same(data: Path, settings: embedbk.Settings) -> None:
    """Rule P3.7: the members' parts are put together; rows are dense and in order."""
    given = [b"%d" % number * (number % 7) for number in range(3000)]
    with embedbk.open(data, bookies=5, settings=settings) as bk:
        with bk.create_ledger(ensemble_size=5, write_quorum=3, ack_quorum=2) as writer:
            writer.add_many(given)
        with bk.open_ledger(writer.ledger_id) as ledger:
            table = pa.Table.from_batches(ledger.record_batches())
            assert [bytes(entry) for entry in ledger.read()] == given
    assert table.column("value").to_pylist() == given
    assert table.column("entryId").to_pylist() == list(range(3000))


def test_the_awaited_face_gives_the_same(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk:
            async with bk.log("rows").writer() as writer:
                await writer.append_many([b"x", b"yy"])
                ledger_id = writer.ledger_id
            batches = [batch async for batch in bk.log("rows").record_batches()]
            assert pa.Table.from_batches(batches).column("value").to_pylist() == [b"x", b"yy"]
            async with bk.open_ledger(ledger_id) as ledger:
                assert sum([batch.num_rows async for batch in ledger.record_batches(1)]) == 1

    asyncio.run(story())


def test_without_pyarrow_it_says_what_to_install(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input gets a clear error at once, not at the first row."""
    monkeypatch.setitem(sys.modules, "embedbk.arrow", None)
    monkeypatch.delattr(embedbk, "arrow", raising=False)
    with pytest.raises(embedbk.UsageError, match=r"pip install 'embedbk\[arrow\]'"):
        bk.log(log_name).record_batches()


def test_record_batches_are_a_stream_for_whoever_takes_one(bk: embedbk.Client, log_name: str) -> None:
    """The Arrow C stream interface: nobody has to iterate; it crosses ledgers, and says where it got to."""
    given = [b"%d" % number for number in range(90)]
    for begin in range(0, 90, 30):
        with bk.log(log_name).writer() as writer:
            writer.append_many(given[begin : begin + 30])
            ledger_id = writer.ledger_id
    stream = bk.log(log_name).record_batches(5)
    assert stream.schema == arrow.SCHEMA
    assert stream.next_offset is None
    table = pa.table(stream)
    assert table.schema == arrow.SCHEMA
    assert table.column("value").to_pylist() == given[5:]
    assert table.column("offset").to_pylist() == list(range(5, 90))
    assert len(set(table.column("ledgerId").to_pylist())) == 3
    assert (stream.next_offset, stream.error) == (90, None)
    assert list(stream) == []
    with bk.open_ledger(ledger_id) as ledger:
        reader = pa.RecordBatchReader.from_stream(ledger.record_batches(20))
        assert reader.read_all().column("value").to_pylist() == given[80:]


def test_a_stream_that_is_cut_off_keeps_the_error_itself(bk: embedbk.Client, log_name: str) -> None:
    """LG28: the C interface carries a text only; the gap's type and where to go on stand on the stream."""
    with bk.log(log_name).writer(roll=embedbk.Roll(bytes=None)) as writer:
        for number in range(3):
            writer.append_many([b"%d" % number] * 4)
            writer.roll()
    bk.log(log_name).truncate(8)
    stream = bk.log(log_name).record_batches(2)
    with pytest.raises(Exception, match="below its start, offset 8"):
        pa.table(stream)
    assert isinstance(stream.error, embedbk.Truncated)
    assert stream.error.first_offset == 8
    with pytest.raises(Exception, match="below its start, offset 8"):
        pa.table(stream)
    with pytest.raises(embedbk.Truncated):
        next(stream)
    assert pa.table(bk.log(log_name).record_batches(stream.error.first_offset)).num_rows == 4


def test_a_stream_that_was_interrupted_is_never_at_its_end(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were read and not given are not behind its place; who asks again is told, and gets no empty table."""
    with bk.log(log_name).writer() as writer:
        writer.append_many([b"row"] * 4)
    stream = bk.log(log_name).record_batches()

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(arrow, "record_batch", no_memory)
        with pytest.raises(MemoryError):
            next(stream)
    assert stream.next_offset is None
    with pytest.raises(Exception, match="were ended by MemoryError"):
        pa.table(stream)
    assert isinstance(stream.error, embedbk.UsageError)


def test_what_is_read_in_bulk_is_a_stream_in_both_faces(data: Path, settings: embedbk.Settings) -> None:
    """It is in memory: nothing waits. Rows that a bound cut off are not in it."""

    async def story() -> None:
        async with aio.open(data, settings=settings) as bk:
            async with bk.log("rows").writer() as writer:
                await writer.append_many([b"%d" % number for number in range(10)])
            async with bk.log("rows").reader() as reader:
                one, two = await reader.read_bulk(4), await reader.read_bulk(wait_s=1)
                assert not await reader.read_bulk()
            assert reader.next_offset == 10
            with pytest.raises(embedbk.UsageError, match="was closed"):
                await reader.read_bulk()
        for bulk, rows in ((one, range(4)), (two, range(4, 10))):
            table = pa.table(bulk)
            table.validate(full=True)
            assert table.column("value").to_pylist() == [b"%d" % number for number in rows]
            assert table.column("offset").to_pylist() == list(rows)

    asyncio.run(story())


def test_a_reader_that_is_cancelled_has_missed_nothing(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> None:
        async with aio.open(data, settings=settings) as bk, bk.log("rows").writer() as writer:
            reader = bk.log("rows").reader()
            waiting = asyncio.create_task(reader.read_bulk(wait_s=None))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await writer.append_many([b"x"] * 5)
            waiting = asyncio.create_task(reader.read_bulk(wait_s=None, min_entries=9))
            for _ in range(3):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert len(await reader.read_bulk(wait_s=60)) == 5

    asyncio.run(story())
