"""One entry as bytes: header, attributes, payload, CRC32C (WIRE.md section 1; P1, P3.1).

An entry is self-contained: its writer makes it once, everybody stores, copies and serves it verbatim, and the
bookie that stores it and every reader check it. This file is the plain Python form; whole frames are made and
checked in C by `kernels` and `packer`, which pass the same tests.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from embedbk.codec.kernels import crc32c
from embedbk.codec.twins import are_attributes_sound, is_tag_right
from embedbk.config import STORED_BYTES_MAX
from embedbk.errors import PeerError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = ["ENTRY_HEADER", "ENTRY_OVERHEAD_BYTES", "ENTRY_VERSION", "Entry", "encode_entry", "read_entry"]

ENTRY_VERSION = 1
ENTRY_LENGTH_MAX = 2**63 - 1  # Lengths are int64 in everything that is built on them.
# version, flags, attributes_size, payload_size, ledger_id, entry_id, length, lac, lac_length
ENTRY_HEADER = struct.Struct("<BBHIQqQqQ")
_CRC = struct.Struct("<I")
ENTRY_OVERHEAD_BYTES = ENTRY_HEADER.size + _CRC.size

assert ENTRY_HEADER.size == 48


class Entry(NamedTuple):
    """One decoded entry; `data` borrows the block it was read from, `size` is its whole size in bytes there."""

    ledger_id: int
    entry_id: int
    length: int  # Payload bytes of the ledger up to and including this entry.
    lac: int  # LAC known when it was appended, and the length up to it.
    lac_length: int
    data: memoryview
    size: int
    attributes: memoryview  # Between header and payload, checked; `attributes` says what stands in them.


def encode_entry(
    ledger_id: int,
    entry_id: int,
    length: int,
    payload: bytes | memoryview,
    lac: int = NO_ENTRY,
    lac_length: int = 0,
    attributes: bytes = b"",
) -> bytes:
    """The entry as its writer makes it. length counts payload bytes up to and including this entry."""
    assert 0 <= lac < entry_id or lac == NO_ENTRY
    assert len(payload) <= length
    size = len(attributes) + len(payload)
    head = ENTRY_HEADER.pack(
        ENTRY_VERSION, 0, len(attributes), size, ledger_id, entry_id, length, lac, lac_length
    )
    checked = head + attributes + bytes(payload)
    return checked + _CRC.pack(crc32c(checked))


def read_entry(block: memoryview, offset: int = 0) -> Entry:
    """The entry that stands at offset, checked whole.

    Raises:
        PeerError: anything about it is wrong: cut short, unknown version or flags, digest, impossible numbers.
    """
    if len(block) - offset < ENTRY_OVERHEAD_BYTES:
        raise PeerError(f"entry at offset {offset} is cut short: {len(block) - offset} bytes are left")
    version, flags, attributes_size, payload_size, ledger_id, entry_id, length, lac, lac_length = (
        ENTRY_HEADER.unpack_from(block, offset)
    )
    if version != ENTRY_VERSION or flags:
        raise PeerError(
            f"entry at offset {offset} has version {version}, flags {flags:#x}: "
            f"version {ENTRY_VERSION} without any is what this reader knows"
        )
    if payload_size > STORED_BYTES_MAX or len(block) - offset < ENTRY_OVERHEAD_BYTES + payload_size:
        raise PeerError(f"entry at offset {offset} claims {payload_size} payload bytes")
    begin = offset + ENTRY_HEADER.size
    end = begin + payload_size
    (stored,) = _CRC.unpack_from(block, end)
    if crc32c(block[offset:end]) != stored:
        raise PeerError(f"entry at offset {offset} (ledger {ledger_id}, entry {entry_id}) fails its digest")
    attributes = block[begin : begin + attributes_size]
    payload_size -= attributes_size
    if payload_size < 0 or not are_attributes_sound(attributes, payload_size):
        raise PeerError(f"entry at offset {offset} has attributes that are not known or not sound")
    if attributes_size and not is_tag_right(block[offset:end], attributes_size):
        raise PeerError(f"entry at offset {offset} (ledger {ledger_id}, entry {entry_id}) fails its XXH3 tag")
    in_range = entry_id >= 0 and ledger_id <= LEDGER_ID_MAX and payload_size <= length <= ENTRY_LENGTH_MAX
    if not (in_range and NO_ENTRY <= lac < entry_id and lac_length <= length):
        raise PeerError(
            f"entry at offset {offset} has impossible numbers: entry {entry_id}, length {length}, lac {lac}"
        )
    data, size = block[begin + attributes_size : end], end + _CRC.size - offset
    return Entry(ledger_id, entry_id, length, lac, lac_length, data, size, attributes)
