"""Entries that are stored compressed, through both faces (WIRE.md 1, ZSTD; P8.7)."""

from __future__ import annotations

import asyncio
import builtins
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import embedbk
from embedbk import aio
from embedbk.client import compression
from embedbk.client.batches import Located
from embedbk.client.runtime import Runtime
from embedbk.codec import frame as entries
from embedbk.codec.attributes import (
    AttributeKind,
    Producer,
    ZstdClaim,
    claim_of,
    encode_attributes,
    encode_claim,
)
from embedbk.codec.entry import encode_entry
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BYTES_MAX
from embedbk.metadata.levels import LEVEL_OF_COMPRESSION

Record = embedbk.EntryRecord

TEXT = b"all of this is said over and over again. " * 40
NOISE = random.Random(4).randbytes(len(TEXT))
SMALL = b"over and over"
RECORDS = [
    Record(TEXT, b"k", 7, {"trace": TEXT[:300]}),
    Record(SMALL),
    Record(b""),
    Record(NOISE, headers={"a": b""}),
]
zstd: Any = compression._library()


def stored_sizes(log: embedbk.Log) -> list[int]:
    """Payload bytes of each entry as it is stored."""
    lengths = [0]
    for located in embedbk.client.iterating.iterate(
        log._reading.read(None, None, is_stored=True), "the test"
    ):
        for entry in embedbk.client.batches.entries_of(located):
            lengths.append(lengths[-1] + len(entry))
    return [b - a for a, b in zip(lengths, lengths[1:], strict=False)]


def test_each_way_to_append_is_compressed_and_each_way_to_read_gives_what_was_appended(
    bk: embedbk.Client, log_name: str
) -> None:
    """WIRE.md 1: "what was appended as one entry is compressed as one, where that makes it smaller": every record keeps
    its offset, its slot and what stands beside its value."""
    log = bk.create_log(log_name, compression="zstd")
    rows = pa.record_batch({"value": pa.array([TEXT, SMALL, NOISE], pa.binary())})
    with log.writer() as writer:
        writer.append(TEXT)
        writer.append(NOISE)
        writer.append_nowait(TEXT).result()
        writer.append(RECORDS[0])
        writer.append_many([TEXT, SMALL, bytearray(TEXT)])
        writer.append_many([*RECORDS, TEXT])
        writer.append_batch([TEXT, *RECORDS, memoryview(TEXT)])
        at = writer.append(TEXT, producer=(1, 1))
        assert writer.append(SMALL, producer=(1, 1)) == at
        writer.append_batch([TEXT] * 3, after=writer.last_position)
        writer.append_arrow(rows)
        length = writer.length
    records = [
        *([Record(value)] for value in (TEXT, NOISE, TEXT)),
        [RECORDS[0]],
        *([Record(value)] for value in (TEXT, SMALL, TEXT)),
        *([record] for record in [*RECORDS, Record(TEXT)]),
        [Record(TEXT), *RECORDS, Record(TEXT)],
        [Record(TEXT)],
        [Record(TEXT)] * 3,
        *([Record(value)] for value in (TEXT, SMALL, NOISE)),
    ]
    values = [b"".join(bytes(each.value) for each in entry) for entry in records]
    flat = [record for entry in records for record in entry]
    read = list(log.read())
    assert [entry.records for entry in read] == records
    assert [entry.offset for entry in read] == list(range(len(records)))
    assert [bytes(entry) for entry in read] == values and read[13].producer == (1, 1)
    assert [bytes(entry) for entry in log.tail(0, idle_s=0.2)] == values
    batches = list(log.read_batches())
    taken = [b.data[b.ends[i] : b.ends[i + 1]] for b in batches for i in range(len(b.ids))]
    assert taken == [record.value for record in flat]
    table = pa.table(log.record_batches(with_records=True))
    assert table.column("value").to_pylist() == [record.value for record in flat]
    assert table.column("key").to_pylist() == [record.key for record in flat]
    offsets = [offset for offset, entry in enumerate(records) for _ in entry]
    assert table.column("offset").to_pylist() == offsets
    with log.reader() as reader:
        bulk = reader.read_bulk(max_bytes=1 << 30)
        assert bulk.byte_count == sum(map(len, values)) and len(bulk) == len(records)
    with log.cursor("c").consume(idle_s=0.2) as consumed:
        assert [bytes(entry) for entry in consumed] == values
    sizes = stored_sizes(log)
    assert length == sum(sizes), "a log's bytes are bytes as they are stored"
    is_smaller = [stored < len(value) for stored, value in zip(sizes, values, strict=True)]
    assert [place for place, smaller in enumerate(is_smaller) if not smaller] == [1, 5, 8, 9, 10, 16, 17]
    with bk.open_ledger(at.ledger_id) as ledger:
        assert [bytes(entry) for entry in ledger.read()] == values
        assert [bytes(entry) for entry in ledger.read_unconfirmed(0)] == values
        assert bytes(ledger.read_last()) == NOISE


class Counting:
    """The compressor of this thread, and how often it was asked."""

    def __init__(self) -> None:
        self._made, self.calls = zstd.ZstdCompressor(), 0

    def compress(self, data: Any, mode: int) -> bytes:
        self.calls += 1
        return bytes(self._made.compress(data, mode))


@pytest.mark.parametrize("given", [TEXT, Record(TEXT, b"k")], ids=["bytes", "record"])
def test_an_append_that_waits_for_room_is_not_compressed_each_time_it_looks(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """Who waits looks 100 times a second: the processor is not spent on the same bytes again and again."""
    monkeypatch.setattr(compression._of_thread, "compressor", counting := Counting(), raising=False)
    with bk.log(log_name).writer(compression="zstd") as writer:
        appending = writer._appending
        appending.writing.packer.hold_for(99)  # Another caller's rest comes first.
        steps = appending.queue(given)
        for _ in range(10):
            assert steps.send(None) is not None
        appending.writing.packer.hold_for(0)
        with pytest.raises(StopIteration, match="0"):
            steps.send(None)
        assert counting.calls == 1
        writer.append(b"behind")
    assert [bytes(entry) for entry in bk.log(log_name).read()] == [TEXT, b"behind"]


@pytest.mark.parametrize("digest", ["crc32c", "xxh3", "hmac"])
def test_the_other_face_and_ledgers_with_tags(data: Path, settings: embedbk.Settings, digest: str) -> None:
    """P3.1: a tag covers what is stored."""

    async def story() -> list[Any]:
        async with aio.open(data, settings=settings) as bk:
            async with bk.create_ledger(digest=digest, password=b"p", compression="zstd") as ledger:
                await ledger.add(TEXT)
                await ledger.add_many(RECORDS)
                await ledger.add_batch(RECORDS, producer=(1, 2))
                length = ledger.length
            async with bk.open_ledger(ledger.ledger_id, password=b"p") as reader:
                return [length, *[entry.records async for entry in reader.read()]]

    length, *read = asyncio.run(story())
    assert read == [[Record(TEXT)], *([record] for record in RECORDS), RECORDS]
    assert length < 3 * len(NOISE)


def test_without_it_nothing_is_compressed(bk: embedbk.Client, log_name: str) -> None:
    log = bk.log(log_name)
    with log.writer() as writer:
        assert type(writer._appending.writing.packer).__name__ == "Packer"
        writer.append(TEXT)
        writer.append_many([TEXT])
        writer.append_batch([TEXT])
    assert stored_sizes(log) == [len(TEXT)] * 3 and log.settings().compression is None


def test_a_writer_makes_it_the_setting_and_another_one_differs(bk: embedbk.Client, log_name: str) -> None:
    """P8.7: of a log without settings, what its writer is given becomes them."""
    log = bk.log(log_name)
    with log.writer(compression="zstd") as writer:
        writer.append(TEXT)
    assert log.settings().compression == "zstd"
    with log.writer() as writer:
        writer.append(TEXT)
    log.change(compression=None)
    with log.writer() as writer:
        writer.append(TEXT)
    sizes = stored_sizes(log)
    assert sizes[0] == sizes[1] < len(TEXT) == sizes[2]
    with pytest.raises(embedbk.UsageError, match="compression='lz4': allowed are 'zstd', or None"):
        log.writer(compression="lz4")
    with pytest.raises(embedbk.UsageError, match="compression='lz4': allowed are 'zstd', or None"):
        log.change(compression="lz4")
    with pytest.raises(embedbk.UsageError, match="compression='lz4': allowed are 'zstd', or None"):
        bk.create_ledger(compression="lz4")


def test_an_entry_over_the_limit_is_refused_however_small_it_would_be(bk: embedbk.Client) -> None:
    """BOUNDS.md: the bound of an entry is of what is appended."""
    whole = bytes(ENTRY_BYTES_MAX)
    with bk.create_ledger(compression="zstd") as ledger:
        for append in (
            lambda: ledger.add(whole + b"x"),
            lambda: ledger.add_many([SMALL, whole + b"x"]),
            lambda: ledger.add_batch([whole[:-10], SMALL]),
            lambda: ledger.add("text"),
        ):
            with pytest.raises(embedbk.UsageError):
                append()
        ledger.add(whole)
        assert ledger.length < 1000
    with bk.open_ledger(ledger.ledger_id) as reader:
        assert [len(entry) for entry in reader.read()] == [ENTRY_BYTES_MAX]


def test_a_small_frame_comes_in_pieces_no_larger_than_a_frame(bk: embedbk.Client) -> None:
    """BOUNDS.md: what is unpacked at once has the bound of a frame."""
    with bk.create_ledger(compression="zstd") as ledger:
        ledger.add_many([bytes(700_000)] * 50)
    with bk.open_ledger(ledger.ledger_id) as reader:
        batches = list(reader.read_batches())
        assert [batch.entry_count for batch in batches] == [1] * 50
        assert all(len(batch.data) <= FRAME_BYTES_MAX for batch in batches)


def frame_of(data: bytes, *, has_size: bool = True, dictionary: Any = None) -> bytes:
    options = {zstd.CompressionParameter.content_size_flag: int(has_size)}
    made: bytes = zstd.compress(data, options=options, zstd_dict=dictionary)
    return made


DICTIONARY = zstd.train_dict([b"%d and %s" % (n, TEXT) for n in range(64)], 1024)
BOMB = frame_of(bytes(8 << 20))
HOSTILE: list[tuple[str, bytes, ZstdClaim, str]] = [
    (
        "less than it claims",
        frame_of(TEXT),
        ZstdClaim(len(TEXT) + 1, 0),
        "says 1640 bytes, and its attribute 1641",
    ),
    (
        "more than it claims",
        frame_of(TEXT),
        ZstdClaim(len(TEXT) - 1, 0),
        "says 1640 bytes, and its attribute 1639",
    ),
    ("a bomb", BOMB, ZstdClaim(1000, 0), f"says {8 << 20} bytes, and its attribute 1000"),
    ("no size", frame_of(TEXT, has_size=False), ZstdClaim(len(TEXT), 0), "says None bytes"),
    ("cut short", frame_of(TEXT)[:-3], ZstdClaim(len(TEXT), 0), "ends at"),
    ("a byte behind", frame_of(TEXT) + b"x", ZstdClaim(len(TEXT), 0), "1 bytes stand behind"),
    ("two frames", frame_of(TEXT) * 2, ZstdClaim(len(TEXT), 0), "bytes stand behind"),
    ("a dictionary", frame_of(TEXT, dictionary=DICTIONARY), ZstdClaim(len(TEXT), 0), "needs the dictionary"),
    ("no frame", b"plain bytes", ZstdClaim(len(TEXT), 0), "is no zstd frame"),
    ("nothing", b"", ZstdClaim(0, 0), "is no zstd frame"),
    ("passed over", b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", ZstdClaim(0, 0), "is no zstd frame"),
    ("damaged", frame_of(NOISE)[:8] + b"\xff" * 60, ZstdClaim(len(NOISE), 0), "is damaged|ends at"),
    ("unsound attributes", frame_of(TEXT), ZstdClaim(len(TEXT), 5), "attributes are compressed in it"),
    (
        "parts that do not fit",
        frame_of(encode_attributes((1, 2)) + TEXT),
        ZstdClaim(len(TEXT) + 12, 12),
        "attributes that are not known or not sound",
    ),
    (
        "compressed twice",
        frame_of(encode_claim(ZstdClaim(9, 0)) + TEXT),
        ZstdClaim(len(TEXT) + 10, 10),
        "attributes are compressed in it that stand outside",
    ),
]


@pytest.mark.parametrize(
    ("packed", "claim", "why"),
    [each[1:] for each in HOSTILE],
    ids=[each[0].replace(" ", "-") for each in HOSTILE],
)
def test_a_frame_that_is_not_what_it_claims(
    bk: embedbk.Client, log_name: str, packed: bytes, claim: ZstdClaim, why: str
) -> None:
    """WIRE.md 1: "an error that names ledger and entry"; what stands before it is given, and what stands behind it can
    be read."""
    log = bk.log(log_name)
    with log.writer() as writer:
        writer.append(b"before")
        writer._appending.writing.try_append_with(packed, encode_claim(claim), -1, [])
        writer.append(b"behind")
        ledger_id = writer.ledger_id
    match = f"entry 1 of ledger {ledger_id} is compressed, and cannot be unpacked: .*({why})"
    given: list[bytes] = []
    with pytest.raises(embedbk.EntryUnreadable, match=match) as raised:
        given.extend(bytes(entry) for entry in log.read())
    assert given == [b"before"] and raised.value.definite
    with log.reader() as reader:
        assert len(reader.read_bulk()) == 1 and reader.next_offset == 1
        with pytest.raises(embedbk.EntryUnreadable, match=match):
            reader.read_bulk()
        reader.seek(2)
        assert bytes(reader.read_bulk().batches[0].data) == b"behind"
    with pytest.raises(embedbk.EntryUnreadable, match=match):
        list(log.tail(1, idle_s=60))
    assert [bytes(entry) for entry in log.read(2)] == [b"behind"]
    with log.writer() as writer:
        writer.append(b"more", producer=(1, 1))


def test_attributes_that_have_no_room_together_are_an_error_that_names_the_entry() -> None:
    """WIRE.md 1: "an error that names ledger and entry": those in the frame and those beside it fit a u16 each, and not
    both of them."""
    count = 0xFFFF // 4 - 1
    inside = struct.pack(f"<BBH{count}I", AttributeKind.PARTS, 0, 4 * count, *[len(TEXT)] * count)
    claim = encode_claim(ZstdClaim(len(inside) + len(TEXT), len(inside)))
    packed = frame_of(inside + TEXT)
    for beside, is_sound in ((b"", True), (encode_attributes(producer=Producer(1, 1)), False)):
        entry = encode_entry(7, 3, len(packed), packed, attributes=beside + claim)
        located = Located(entries.frame_of(memoryview(entry)), 0)
        if is_sound:
            assert len(list(compression.plain(located))) == 1
            continue
        with pytest.raises(
            embedbk.EntryUnreadable, match=r"entry 3 of ledger 7 .* 65552 bytes of attributes"
        ) as raised:
            list(compression.plain(located))
        assert raised.value.definite


@pytest.mark.parametrize("claim", [(ENTRY_BYTES_MAX + 1, 0), (2**32 - 1, 0), (9, 10)])
def test_a_claim_beyond_the_bound_of_an_entry_is_stored_nowhere(
    bk: embedbk.Client, claim: tuple[int, int]
) -> None:
    """WIRE.md 1: "a claim beyond the bound of an append is refused by all who check the entry"."""
    ledger = bk.create_ledger()
    ledger._appending.writing.try_append_with(frame_of(TEXT), encode_claim(ZstdClaim(*claim)), -1, [])
    with pytest.raises(embedbk.EmbedbkError):
        ledger.add(b"behind", timeout_s=20)
    with bk.open_ledger(ledger.ledger_id, recover=True) as reader:
        assert list(reader.read()) == []


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *more: Any) -> Any:
        if name in ("backports", "compression"):
            raise ImportError("No module named 'backports.zstd'")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_without_the_library_it_is_said_what_to_install(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever turns it on, and whoever reads what is compressed, is told; everything else goes on."""
    log = bk.create_log(log_name, compression="zstd")
    with log.writer() as writer:
        writer.append(b"plain")
        writer.append(TEXT, producer=(3, 1))
    other = bk.log(log_name[:50] + ".other")
    without_library(monkeypatch)
    hint = re.escape("pip install 'embedbk[zstd]'")
    turning_on: list[Callable[[], object]] = [
        lambda: log.writer(),
        lambda: other.writer(compression="zstd"),
        lambda: log.change(compression="zstd"),
        lambda: bk.create_log(other.name, compression="zstd"),
        lambda: bk.create_ledger(compression="zstd"),
    ]
    for turn_on in turning_on:
        with pytest.raises(embedbk.UsageError, match=hint):
            turn_on()
    given: list[bytes] = []
    with pytest.raises(
        embedbk.EntryUnreadable, match="is compressed, and what unpacks it is not installed.*" + hint
    ):
        given.extend(bytes(entry) for entry in log.read())
    assert given == [b"plain"]
    log.change(compression=None)
    with log.writer() as writer:  # Which reads back who appended what, and needs nothing for it.
        assert writer.append(b"again", producer=(3, 1)).entry_id == 1
        writer.append(TEXT)


def test_below_the_level_nobody_turns_it_on(
    bk: embedbk.Client, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10.8: "what an older build cannot read is written only behind a raised level"."""
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_COMPRESSION)
    log = bk.create_log(log_name)
    turning_on: list[Callable[[], object]] = [
        lambda: log.writer(compression="zstd"),
        lambda: log.change(compression="zstd"),
        lambda: bk.create_log(log_name[:50] + ".other", compression="zstd"),
        lambda: bk.create_ledger(compression="zstd"),
    ]
    for turn_on in turning_on:
        with pytest.raises(embedbk.UsageError, match="needs level 24 of the cluster"):
            turn_on()
    with log.writer() as writer:
        writer.append(TEXT)
    assert stored_sizes(log) == [len(TEXT)]


def test_what_the_attribute_is() -> None:
    """WIRE.md 1: u32 bytes and u16 attributes; PARTS and RECORDS are compressed, the others stand outside."""
    plain = encode_attributes((len(TEXT),), None, b"\x00\x00") + b""
    found = compression.squeezed(plain, TEXT)
    assert found is not None
    assert found.attributes == struct.pack(
        "<BBHIH", AttributeKind.ZSTD, 0, 6, len(plain) + len(TEXT), len(plain)
    )
    assert claim_of(found.attributes) == ZstdClaim(len(plain) + len(TEXT), len(plain))
    assert zstd.decompress(found.payload) == plain + TEXT
    assert compression.squeezed(b"", SMALL) is None and compression.squeezed(b"", NOISE) is None
