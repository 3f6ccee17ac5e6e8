"""The attributes that an entry may carry between header and payload (WIRE.md section 1): parts, its producer, its
time, what its records have beside their values.

Attributes stand in the order of their kinds, each once; an unknown kind refuses the entry. The scan of a frame checks
them, so what is read here is sound.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from embedbk.codec.entry import ENTRY_HEADER
from embedbk.codec.frame import Frame, split
from embedbk.codec.twins import parts_of
from embedbk.errors import UsageError

__all__ = [
    "PARTS_MAX",
    "AttributeKind",
    "ZstdClaim",
    "Producer",
    "claim_of",
    "encode_attributes",
    "encode_claim",
    "encode_time",
    "kinds_in",
    "last_time_in",
    "parted",
    "parts_of",
    "producer_of",
    "producers_in",
    "time_of",
    "value_of",
    "without",
]

PARTS_MAX = 8192  # In one entry: their ends are 32 KiB of it.
SEQUENCE_MAX = 2**63 - 1

_HEADER = struct.Struct("<BBH")
_PRODUCER = struct.Struct("<QQ")
_TIME = struct.Struct("<q")
_CLAIM = struct.Struct("<IH")

Buffer = bytes | bytearray | memoryview


class AttributeKind(enum.IntEnum):
    """Numbers are on disk: never re-used."""

    PARTS = 1  # u32 ends of the parts in the payload.
    PRODUCER = 2  # u64 producer id, u64 sequence.
    XXH3 = 3  # Tags (codec.digest).
    HMAC = 4
    TIME = 5  # i64 ms since 1970: when the packer of a log made the entry.
    RECORDS = 6  # Keys, timestamps and headers of its records (codec.entry_records).
    ZSTD = 7  # u32 bytes, u16 of them attributes: what the payload is when it is unpacked.


class Producer(NamedTuple):
    """The producer of an entry, and the entry's number among those of the producer: these make an append idempotent."""

    producer_id: int
    sequence: int


class ZstdClaim(NamedTuple):
    """What a compressed entry claims to unpack to: so many bytes, and so many of them attributes."""

    byte_count: int
    attribute_bytes: int


def encode_attributes(
    part_ends: Sequence[int] = (), producer: Producer | None = None, records: bytes = b""
) -> bytes:
    """records: as `encode_records` gives them.

    Raises UsageError for more parts than are allowed, and for numbers out of range.
    """
    if len(part_ends) > PARTS_MAX:
        raise UsageError(f"a batch of {len(part_ends)} records: at most {PARTS_MAX} are allowed")
    attributes = b""
    if part_ends:
        ends = struct.pack(f"<{len(part_ends)}I", *part_ends)
        attributes += _HEADER.pack(AttributeKind.PARTS, 0, len(ends)) + ends
    if producer is not None:
        for value in producer:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SEQUENCE_MAX:
                raise UsageError(f"{producer}: both are whole numbers of 0 to {SEQUENCE_MAX}")
        attributes += _HEADER.pack(AttributeKind.PRODUCER, 0, _PRODUCER.size) + _PRODUCER.pack(*producer)
    if records:
        attributes += _HEADER.pack(AttributeKind.RECORDS, 0, len(records)) + records
    return attributes


def producers_in(frame: Frame) -> Iterator[tuple[int, Producer]]:
    """(entry id, its producer) of those entries of a checked frame that name one."""
    for entry_id, entry in split(frame):
        size = ENTRY_HEADER.unpack_from(entry)[2]
        producer = producer_of(entry[ENTRY_HEADER.size : ENTRY_HEADER.size + size]) if size else None
        if producer is not None:
            yield entry_id, producer


def producer_of(attributes: Buffer) -> Producer | None:
    """The producer in the attributes of a checked entry; None: there is none."""
    value = value_of(attributes, AttributeKind.PRODUCER)
    return None if value is None else Producer(*_PRODUCER.unpack(value))


def time_of(attributes: Buffer) -> int | None:
    """The time, in ms since 1970, that a checked entry with these attributes carries; None: that of the one before it
    (packing.carries_time)."""
    value = value_of(attributes, AttributeKind.TIME)
    return None if value is None else int(_TIME.unpack(value)[0])


def last_time_in(frame: Frame) -> int | None:
    """The time of the last entry of a checked frame, as far as an entry in it carries one."""
    found = None
    for _, entry in split(frame):
        size = ENTRY_HEADER.unpack_from(entry)[2]
        told = time_of(entry[ENTRY_HEADER.size : ENTRY_HEADER.size + size]) if size else None
        found = found if told is None else told
    return found


def encode_time(time_ms: int) -> bytes:
    """The attribute."""
    return _HEADER.pack(AttributeKind.TIME, 0, _TIME.size) + _TIME.pack(time_ms)


def encode_claim(claim: ZstdClaim) -> bytes:
    """The attribute."""
    return _HEADER.pack(AttributeKind.ZSTD, 0, _CLAIM.size) + _CLAIM.pack(*claim)


def claim_of(attributes: Buffer) -> ZstdClaim | None:
    """What a checked entry with these attributes has when it is unpacked; None: it is not compressed."""
    value = value_of(attributes, AttributeKind.ZSTD)
    return None if value is None else ZstdClaim(*_CLAIM.unpack(value))


def kinds_in(attributes: Buffer) -> Iterator[int]:
    """The kinds of attributes that were not checked; ends with 0 where one is cut short."""
    offset = 0
    while offset < len(attributes):
        if offset + _HEADER.size > len(attributes):
            yield 0
            return
        kind, _, size = _HEADER.unpack_from(attributes, offset)
        yield kind
        offset += _HEADER.size + size
    if offset != len(attributes):
        yield 0


def value_of(attributes: Buffer, wanted: int) -> bytes | bytearray | memoryview | None:
    """The value of one kind among sound attributes."""
    offset = 0
    while offset < len(attributes):
        kind, _, size = _HEADER.unpack_from(attributes, offset)
        offset += _HEADER.size
        if kind == wanted:
            return attributes[offset : offset + size]
        offset += size
    return None


def parted(attributes: bytes, kind: int) -> tuple[bytes, bytes]:
    """Sound attributes in two parts: the kinds below this one, and the others."""
    offset = 0
    while offset < len(attributes) and attributes[offset] < kind:
        offset += _HEADER.size + _HEADER.unpack_from(attributes, offset)[2]
    return attributes[:offset], attributes[offset:]


def without(attributes: bytes, *kinds: int) -> bytes:
    """Sound attributes without those of these kinds."""
    kept, offset = b"", 0
    while offset < len(attributes):
        kind, _, size = _HEADER.unpack_from(attributes, offset)
        end = offset + _HEADER.size + size
        kept += b"" if kind in kinds else attributes[offset:end]
        offset = end
    return kept
