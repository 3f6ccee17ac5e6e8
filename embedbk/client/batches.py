"""What readers receive: an entry, a run of entries as buffers, and how far one ledger of a log may be read.

Decides how entries are cut out of a frame that was read. reading.py decides how far may be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from embedbk.codec import kernels
from embedbk.codec.attributes import AttributeKind, Producer, parts_of, producer_of, value_of
from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.entry_records import NO_HEADERS, EntryRecord, records_in
from embedbk.codec.frame import Frame
from embedbk.codec.packing import Buffer
from embedbk.ids import Position

__all__ = ["Batch", "Entry", "Located", "Segment", "batch_of", "entries_of"]


_CRC_BYTES = ENTRY_OVERHEAD_BYTES - ENTRY_HEADER.size
_FEW = 4  # Entries with attributes are few if at most one entry in so many has some.


class Entry:
    """One entry. `data` is a memoryview on the block it was read in, which lives as long as it is referenced."""

    __slots__ = ("_attributes", "data", "entry_id", "ledger_id", "offset")

    def __init__(
        self, ledger_id: int, entry_id: int, offset: int, data: memoryview, attributes: Buffer = b""
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.offset = offset  # Dense, in the log it was read from; in a ledger by itself, the entry id.
        self.data = data
        self._attributes = attributes

    @property
    def parts(self) -> list[memoryview]:
        """The records of an atomic batch; an entry that is none is one record."""
        ends = parts_of(self._attributes) or (len(self.data),)
        return [self.data[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]

    @property
    def records(self) -> list[EntryRecord]:
        """The same records, each with its key, timestamp and headers."""
        beside = value_of(self._attributes, AttributeKind.RECORDS)
        return list(records_in(b"" if beside is None else beside, self.parts))

    @property
    def key(self) -> bytes | None:
        """The key of an entry that is one record; in an atomic batch each of `records` has its own."""
        return self._only.key

    @property
    def timestamp(self) -> int | None:
        """ms since 1970, as the application gave it, of an entry that is one record."""
        return self._only.timestamp

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers of an entry that is one record."""
        return self._only.headers

    @property
    def _only(self) -> EntryRecord:
        beside = value_of(self._attributes, AttributeKind.RECORDS)
        if beside is None or parts_of(self._attributes):
            return EntryRecord(self.data, headers=NO_HEADERS)
        return next(records_in(beside, [self.data]))

    @property
    def producer(self) -> Producer | None:
        """(producer id, sequence) under which it was appended, None without."""
        return producer_of(self._attributes)

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"Entry({self.ledger_id}, {self.entry_id}, offset={self.offset}, {len(self.data)} bytes)"

    def __reduce__(self) -> Any:
        given = (self.ledger_id, self.entry_id, self.offset, bytes(self.data), bytes(self._attributes))
        return _rebuilt, given


def _rebuilt(ledger_id: int, entry_id: int, offset: int, data: bytes, attributes: bytes) -> Entry:
    return Entry(ledger_id, entry_id, offset, memoryview(data), attributes)


class Batch(NamedTuple):
    """A run of entries of one ledger as buffers: record i is data[ends[i] : ends[i + 1]], of entry ids[i].

    An entry is one record, an atomic batch as many as it has parts. The layout is that of an Arrow int64 and an Arrow
    binary array. `body`, the frame it came in, is kept if a record has a key, a timestamp or headers.
    """

    ledger_id: int
    first_offset: (
        int  # Dense offset in the log of the ledger's entry 0: the offset of entry i is this + ids[i].
    )
    ids: memoryview  # int64
    ends: memoryview  # int32, one more than ids
    data: memoryview
    body: memoryview | None = None

    def records(self) -> list[EntryRecord] | None:
        """Each record with its key, timestamp and headers, as an object for each. None: all have values only."""
        if self.body is None or not self.ids:
            return None
        first, last = self.ids[0], self.ids[-1]
        entries = _entries_in(self.ledger_id, self.first_offset, self.body)
        return [record for entry in entries if first <= entry.entry_id <= last for record in entry.records]

    @property
    def entry_count(self) -> int:
        return len(self.ids)


class Segment(NamedTuple):
    """One ledger of a log, as far as it may be read now."""

    ledger_id: int
    first_offset: int
    last_entry: int  # The last of a closed ledger, else the LAC; NO_ENTRY when there is none.
    is_closed: bool
    length: int | None = None  # Payload bytes up to there; None: not known.


class Located(NamedTuple):
    """A frame, and the dense offset of its ledger's entry 0."""

    frame: Frame
    first_offset: int


def entries_of(located: Located) -> Iterator[Entry]:
    frame, first_offset = located
    return _entries_in(frame.ledger_id, first_offset, frame.body)


def _entries_in(ledger_id: int, first_offset: int, body: memoryview) -> Iterator[Entry]:
    ids, spans = kernels.offsets(body)
    numbers, begins, sizes = ids.tolist(), spans[::2].tolist(), spans[1::2].tolist()
    if len(body) != ENTRY_OVERHEAD_BYTES * len(ids) + sum(sizes):
        places = kernels.attributed(body, len(numbers)).tolist()
        if len(places) > len(numbers) // _FEW:
            yield from _with_attributes(ledger_id, first_offset, body, numbers, begins, sizes)
            return
        # In a log few entries have attributes, for their times; the others must cost nothing extra.
        done = 0
        for place in places:
            plain = zip(numbers[done:place], begins[done:place], sizes[done:place], strict=True)
            for entry_id, begin, size in plain:
                yield Entry(ledger_id, entry_id, first_offset + entry_id, body[begin : begin + size])
            entry_id, begin, size = numbers[place], begins[place], sizes[place]
            at = begins[place - 1] + sizes[place - 1] + _CRC_BYTES if place else 0
            attributes = body[at + ENTRY_HEADER.size : begin]
            yield Entry(ledger_id, entry_id, first_offset + entry_id, body[begin : begin + size], attributes)
            done = place + 1
        numbers, begins, sizes = numbers[done:], begins[done:], sizes[done:]
    for entry_id, begin, size in zip(numbers, begins, sizes, strict=True):
        yield Entry(ledger_id, entry_id, first_offset + entry_id, body[begin : begin + size])


def _with_attributes(
    ledger_id: int, first_offset: int, body: memoryview, ids: list[int], begins: list[int], sizes: list[int]
) -> Iterator[Entry]:
    """The same for a frame in which many entries have attributes, between their header and their payload."""
    at = 0
    for entry_id, begin, size in zip(ids, begins, sizes, strict=True):
        attributes = body[at + ENTRY_HEADER.size : begin]
        yield Entry(ledger_id, entry_id, first_offset + entry_id, body[begin : begin + size], attributes)
        at = begin + size + _CRC_BYTES


def batch_of(located: Located) -> Batch:
    frame, first_offset = located
    ids, ends, data, has_records = kernels.values(frame.body)
    return Batch(frame.ledger_id, first_offset, ids, ends, data, frame.body if has_records else None)
