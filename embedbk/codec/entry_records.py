"""What the records of an entry have beside their values: keys, timestamps and headers (WIRE.md section 1, RECORDS).

An entry is one record, or an atomic batch of several; the attribute has a set for each. Decides what a record may have,
and its bytes. The scan of a frame checks the whole attribute (`twins.are_records_sound`), so what is read here is
sound.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from embedbk.codec.twins import (
    HEADERS_MAX,
    RECORD_HAS_KEY,
    RECORD_HAS_TIMESTAMP,
    is_header_name,
)
from embedbk.errors import UsageError

__all__ = [
    "NO_HEADERS",
    "RECORDS_BYTES_MAX",
    "EntryRecord",
    "RecordRun",
    "records_in",
    "encode_records",
]

# Records of one entry: beside them, the ends of 8,192 parts, a tag and a time fit the u16 of `attributes_size`.
RECORDS_BYTES_MAX = 32_000
NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})

_HEAD = struct.Struct("<BB")
_TIMESTAMP = struct.Struct("<q")
_SIZE = struct.Struct("<H")

Buffer = bytes | bytearray | memoryview


class EntryRecord(NamedTuple):
    """A value with what stands beside it. Readers get the same type (`Entry.records`).

    Args:
        value: the payload, bytes or a buffer of them.
        key: bytes by which readers tell records apart or join them; b"" is a key, None is none.
        timestamp: ms since 1970, with the meaning that the application gives it. When the entry was appended stands in
            the log beside it (`Log.time_at`).
        headers: name -> bytes. A name has 1 to 255 printable ASCII characters and no blank; at most 255 headers.

    Keys and headers of one entry may have 32,000 bytes together.
    """

    value: Buffer
    key: bytes | None = None
    timestamp: int | None = None
    headers: Mapping[str, bytes] = NO_HEADERS

    @property
    def is_bare(self) -> bool:
        """Whether the record has nothing but its value."""
        return self.key is None and self.timestamp is None and not self.headers


class RecordRun:
    """Entries of one record each, to be appended one behind the other: their values, and their attributes."""

    __slots__ = ("attributes", "values")

    def __init__(self, values: list[Buffer], attributes: list[bytes]) -> None:
        self.values = values
        self.attributes = attributes

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, wanted: slice) -> RecordRun:
        return RecordRun(self.values[wanted], self.attributes[wanted])


def encode_records(records: Sequence[EntryRecord]) -> bytes:
    """The value of the attribute; empty where every record is bare.

    Raises UsageError: a key, a timestamp or a header is none, or they have too many bytes together.
    """
    if all(record.is_bare for record in records):
        return b""
    value = b"".join(map(_encode_record, records))
    if len(value) > RECORDS_BYTES_MAX:
        raise UsageError(
            f"keys and headers of {len(value)} bytes in one entry: at most {RECORDS_BYTES_MAX} are allowed",
            hint="what is longer belongs into the value, or into an entry of its own",
        )
    return value


def _encode_record(record: EntryRecord) -> bytes:
    flags, encoded = 0, b""
    if record.key is not None:
        flags |= RECORD_HAS_KEY
        encoded += _sized(record.key, "a key")
    if record.timestamp is not None:
        at = record.timestamp
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < 2**63:
            raise UsageError(f"timestamp={at!r}: a whole number of ms since 1970, from 0 to 2^63 - 1")
        flags |= RECORD_HAS_TIMESTAMP
        encoded += _TIMESTAMP.pack(at)
    if not isinstance(record.headers, Mapping) or len(record.headers) > HEADERS_MAX:
        raise UsageError(f"headers are a mapping of at most {HEADERS_MAX} names to bytes")
    names = {}
    for name in record.headers:
        if not isinstance(name, str) or not name.isascii() or not is_header_name(name.encode()):
            raise UsageError(f"{name!r} names no header: 1 to 255 printable ASCII characters without a blank")
        names[name.encode()] = record.headers[name]
    for encoded_name in sorted(names):
        what = f"header {encoded_name.decode()!r}"
        encoded += bytes([len(encoded_name)]) + encoded_name + _sized(names[encoded_name], what)
    return _HEAD.pack(flags, len(names)) + encoded


def _sized(value: Buffer, what: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"{what} is bytes or a buffer of them, not {type(value).__name__}")
    if (size := memoryview(value).nbytes) > RECORDS_BYTES_MAX:
        raise UsageError(f"{what} of {size} bytes: at most {RECORDS_BYTES_MAX} are allowed in one entry")
    taken = bytes(value)  # Another thread may have changed it since.
    return _SIZE.pack(len(taken)) + taken


def records_in(value: Buffer, values: Sequence[memoryview]) -> Iterator[EntryRecord]:
    """The records of a checked entry. value: of the attribute, empty where there is none. values: of the records."""
    if not len(value):
        yield from map(EntryRecord, values)
        return
    at = 0
    for each in values:
        flags, count = _HEAD.unpack_from(value, at)
        at += _HEAD.size
        key = timestamp = None
        if flags & RECORD_HAS_KEY:
            key, at = _read_sized(value, at)
        if flags & RECORD_HAS_TIMESTAMP:
            (timestamp,) = _TIMESTAMP.unpack_from(value, at)
            at += _TIMESTAMP.size
        headers: dict[str, bytes] = {}
        for _ in range(count):
            end = at + 1 + value[at]
            name = bytes(value[at + 1 : end]).decode("ascii")
            headers[name], at = _read_sized(value, end)
        yield EntryRecord(each, key, timestamp, headers or NO_HEADERS)


def _read_sized(value: Buffer, at: int) -> tuple[bytes, int]:
    begin = at + _SIZE.size
    end = begin + int(_SIZE.unpack_from(value, at)[0])
    return bytes(value[begin:end]), end
