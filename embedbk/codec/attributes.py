"""What an entry may carry between header and payload (WIRE.md section 1): parts, and its producer.

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
    "Producer",
    "encode_attributes",
    "parts_of",
    "producer_of",
    "producers_in",
]

PARTS_MAX = 8192  # In one entry: their ends are 32 KiB of it.
SEQUENCE_MAX = 2**63 - 1

_HEADER = struct.Struct("<BBH")
_PRODUCER = struct.Struct("<QQ")


class AttributeKind(enum.IntEnum):
    """Numbers are on disk: never re-used."""

    PARTS = 1  # u32 ends of the parts in the payload.
    PRODUCER = 2  # u64 producer id, u64 sequence.
    XXH3 = 3  # Tags (codec.digest).
    HMAC = 4


class Producer(NamedTuple):
    """Who appended an entry, and as the how-manieth: what makes an append idempotent."""

    producer_id: int
    sequence: int


def encode_attributes(part_ends: Sequence[int] = (), producer: Producer | None = None) -> bytes:
    """Raises UsageError for more parts than are allowed, and for numbers out of range."""
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
    return attributes


def producers_in(frame: Frame) -> Iterator[tuple[int, Producer]]:
    """(entry id, its producer) of those entries of a checked frame that name one."""
    for entry_id, entry in split(frame):
        size = ENTRY_HEADER.unpack_from(entry)[2]
        producer = producer_of(entry[ENTRY_HEADER.size : ENTRY_HEADER.size + size]) if size else None
        if producer is not None:
            yield entry_id, producer


def producer_of(attributes: bytes | bytearray | memoryview) -> Producer | None:
    """Who produced a checked entry with these attributes; None when it does not say."""
    offset = 0
    while offset < len(attributes):
        kind, _, size = _HEADER.unpack_from(attributes, offset)
        offset += _HEADER.size
        if kind == AttributeKind.PRODUCER:
            return Producer(*_PRODUCER.unpack_from(attributes, offset))
        offset += size
    return None
