"""Entries with keys, timestamps and headers through both faces (WIRE.md 1, RECORDS)."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import embedbk
from embedbk import aio
from embedbk.client.runtime import Runtime
from embedbk.codec.entry_records import RECORDS_BYTES_MAX
from embedbk.metadata.levels import LEVEL_OF_RECORDS

Record = embedbk.EntryRecord

RECORDS = [
    Record(b"bare"),
    Record(b"keyed", b"k"),
    Record(b"", b""),
    Record(b"dated", timestamp=0),
    Record(b"whole", b"k" * 400, 2**63 - 1, {"trace": b"\x00\xff", "a": b"", "~!": b"v" * 1000}),
]


class Changing(bytearray):
    """Bytes that another thread changes between two looks at them."""

    def __bytes__(self) -> bytes:
        return b"changed"


class ChangingRecord(embedbk.EntryRecord):
    """Likewise: a value that is one byte longer each time."""

    looks: ClassVar[list[int]] = []

    @property
    def value(self) -> bytes:  # type: ignore[override]
        self.looks.append(0)
        return bytes(len(self.looks))


def test_what_another_thread_changes_meanwhile_ends_nobodys_handle(bk: embedbk.Client) -> None:
    """P3.1: sizes in an entry are those of the bytes beside them; bookies would refuse all that stands behind it."""
    with bk.create_ledger() as ledger:
        ledger.add(embedbk.EntryRecord(b"value", key=Changing(b"key")))
        ledger.add_batch([ChangingRecord(b""), ChangingRecord(b"")])
        ledger.add(b"another caller's", timeout_s=20)
        with pytest.raises(embedbk.UsageError, match="must be contiguous"):
            ledger.add_batch([memoryview(b"abcd")[::2]])
    with bk.open_ledger(ledger.ledger_id) as reader:
        first, batch, last = reader.read()
        assert first.key == b"changed" and bytes(last) == b"another caller's"
        assert sum(map(len, batch.parts)) == len(batch)


def test_each_way_to_append_takes_records(bk: embedbk.Client, log_name: str) -> None:
    """What was given is read: value, key, timestamp and headers; a payload is a record with a value alone."""
    log = bk.log(log_name)
    with log.writer() as writer:
        for record in RECORDS:
            writer.append(record)
        tickets = [writer.append_nowait(record) for record in RECORDS]
        writer.append_many([*RECORDS, b"plain"])
        writer.append_batch([b"plain", *RECORDS])
        assert writer.append(RECORDS[1], producer=(1, 1)) == writer.append(b"again", producer=(1, 1))
        writer.append(RECORDS[4], after=writer.last_position, timeout_s=60)
        assert tickets[-1].result().entry_id == 9
    read = list(log.read())
    singles = [*RECORDS, *RECORDS, *RECORDS, Record(b"plain"), RECORDS[1], RECORDS[4]]
    batch = read.pop(16)
    assert [entry.records for entry in read] == [[record] for record in singles]
    assert [(entry.key, entry.timestamp, entry.headers) for entry in read] == [
        (record.key, record.timestamp, record.headers) for record in singles
    ]
    assert [bytes(entry) for entry in read] == [bytes(record.value) for record in singles]
    assert batch.records == [Record(b"plain"), *RECORDS]
    assert (batch.key, batch.timestamp, batch.headers) == (None, None, {})
    assert [bytes(part) for part in batch.parts] == [b"plain", *(record.value for record in RECORDS)]
    assert pickle.loads(pickle.dumps(batch)).records == batch.records
    assert read[-2].producer == (1, 1)
    assert sum(found.entry_count for found in log.read_batches()) == len(singles) + len(batch.parts)


def test_the_other_face_appends_and_reads_the_same(data: Path, settings: embedbk.Settings) -> None:
    async def story() -> list[Any]:
        async with aio.open(data, settings=settings) as bk:
            log = bk.log("orders")
            async with log.writer() as writer:
                for record in RECORDS:
                    await writer.append(record)
                await writer.append_nowait(RECORDS[1])
                await writer.append_many(RECORDS)
                await writer.append_batch(RECORDS)
            return [entry.records async for entry in log.read()]

    read = asyncio.run(story())
    assert read == [*([record] for record in [*RECORDS, RECORDS[1], *RECORDS]), RECORDS]


@pytest.mark.parametrize("digest", ["crc32c", "xxh3", "hmac"])
def test_records_of_a_ledger_stand_beside_its_tags(bk: embedbk.Client, digest: str) -> None:
    """P3.1: a tag covers keys and headers as it covers the value."""
    with bk.create_ledger(digest=digest, password=b"secret") as writer:
        writer.add(RECORDS[4], producer=(2, 3))
        writer.add_nowait(RECORDS[1]).result()
        writer.add_many(RECORDS)
        writer.add_batch(RECORDS)
    with bk.open_ledger(writer.ledger_id, password=b"secret") as reader:
        read = [entry.records for entry in reader.read()]
    assert read == [[RECORDS[4]], [RECORDS[1]], *([record] for record in RECORDS), RECORDS]


def test_a_batch_with_most_parts_has_room_for_its_records(bk: embedbk.Client, log_name: str) -> None:
    """WIRE.md 1: at most 32000 bytes beside the ends of 8192 parts, a producer, a tag and a time."""
    log = bk.log(log_name)
    parts: list[Any] = [b"x"] * 8_191
    fill = Record(b"y", bytes(RECORDS_BYTES_MAX - 2 * 8_192 - 2))
    with log.writer(digest="hmac") as writer:
        writer.append_batch([*parts, fill], producer=(1, 1))
        with pytest.raises(embedbk.UsageError, match="32001 bytes in one entry: at most 32000"):
            writer.append_batch([*parts, Record(b"y", bytes(RECORDS_BYTES_MAX - 2 * 8_192 - 1))])
    (entry,) = log.read()
    assert entry.records[-1] == fill


@pytest.mark.parametrize(
    ("record", "match"),
    [
        (Record(b"", "key"), "a key is bytes or a buffer of them, not str"),  # type: ignore[arg-type]
        (Record(b"", bytes(RECORDS_BYTES_MAX + 1)), "a key of 32001 bytes: at most 32000"),
        (Record(b"", timestamp=-1), "timestamp=-1: a whole number of ms"),
        (Record(b"", timestamp=2**63), "a whole number of ms"),
        (Record(b"", timestamp=True), "a whole number of ms"),
        (Record(b"", timestamp=1.5), "a whole number of ms"),  # type: ignore[arg-type]
        (Record(b"", headers=[("a", b"")]), "headers are a mapping"),  # type: ignore[arg-type]
        (Record(b"", headers={str(n): b"" for n in range(256)}), "at most 255 names"),
        (Record(b"", headers={"": b""}), "names no header"),
        (Record(b"", headers={"a b": b""}), "'a b' names no header: 1 to 255 printable ASCII"),
        (Record(b"", headers={"\u00e4": b""}), "names no header"),
        (Record(b"", headers={"\ud800": b""}), "names no header"),
        (Record(b"", headers={"n" * 256: b""}), "names no header"),
        (Record(b"", headers={1: b""}), "1 names no header"),  # type: ignore[dict-item]
        (Record(b"", headers={"a": "text"}), "header 'a' is bytes or a buffer of them, not str"),  # type: ignore[dict-item]
        (Record("text", b"k"), "an entry is bytes or a buffer of them, not str"),  # type: ignore[arg-type]
        (Record(Record(b""), b"k"), "an entry is bytes"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_record_is_refused_and_nothing_is_appended(
    bk: embedbk.Client, log_name: str, record: Any, match: str
) -> None:
    with bk.log(log_name[:60]).writer() as writer:
        calls: list[Callable[[], object]] = [
            lambda: writer.append(record),
            lambda: writer.append(record, timeout_s=9),
            lambda: writer.append_nowait(record),
            lambda: writer.append_many([Record(b""), record]),
            lambda: writer.append_batch([Record(b""), record]),
        ]
        for append in calls:
            with pytest.raises(embedbk.UsageError, match=match):
                append()
        with pytest.raises(embedbk.UsageError, match="not EntryRecord"):
            writer.append_many([b"payloads alone", Record(b"")])
        assert writer.last_position.entry_id == -1


def test_below_the_level_no_record_is_written_and_plain_ones_are(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10.8: "what an older build cannot read is written only behind a raised level"."""
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_RECORDS)
    with bk.create_ledger() as writer:
        for append in (
            lambda: writer.add(RECORDS[1]),
            lambda: writer.add_nowait(RECORDS[1]),
            lambda: writer.add_many([RECORDS[1]]),
            lambda: writer.add_batch([RECORDS[1]]),
        ):
            with pytest.raises(embedbk.UsageError, match="need level 15 of the cluster"):
                append()
        assert writer.add(RECORDS[0]) == 0
