"""The kernels once more in plain Python: what the C code must give, byte for byte, and the fallback for reading by hand.

Both pass the same tests (`tests/codec/test_kernels.py`). Entry sizes are computed here from the header without
`entry.read_entry`, because that module itself stands on the kernels.
"""

from __future__ import annotations

import struct

import crcmod.predefined

from embedbk.config import ENTRY_BYTES_MAX
from embedbk.errors import PeerError

__all__ = ["crc32c", "cut", "scan"]

_HEADER = struct.Struct("<BBHIQqQqQ")
_CRC = struct.Struct("<I")
_crc = crcmod.predefined.mkPredefinedCrcFun("crc-32c")


def crc32c(data: bytes | memoryview, crc: int = 0) -> int:
    """CRC32C of data, going on from crc."""
    return int(_crc(bytes(data), crc))


def scan(body: bytes | memoryview) -> tuple[int, int, int, int, int]:
    """Check every entry of a frame's body. Returns (first, last, count, length, ledger_id).

    Raises:
        PeerError: empty, an entry cut short, a wrong digest, unknown version or flags, ids that do not ascend,
            lengths that do not grow by the payload where ids are consecutive, or two ledgers in one body.
    """
    block = memoryview(body)
    offset, count, first, last, total, ledger = 0, 0, -1, -1, 0, -1
    while offset < len(block):
        if len(block) - offset < _HEADER.size + _CRC.size:
            raise PeerError(f"frame body: entry at offset {offset} is cut short")
        version, flags, attributes, size, ledger_id, entry_id, length, lac, lac_length = _HEADER.unpack_from(
            block, offset
        )
        if version != 1 or flags or attributes:
            raise PeerError(
                f"frame body: entry at offset {offset} has unknown version {version} or flags {flags:#x}"
            )
        end = offset + _HEADER.size + size
        if size > ENTRY_BYTES_MAX or end + _CRC.size > len(block):
            raise PeerError(f"frame body: entry at offset {offset} claims {size} payload bytes")
        if _CRC.unpack_from(block, end)[0] != crc32c(block[offset:end]):
            raise PeerError(f"frame body: entry at offset {offset} fails its digest")
        if entry_id <= last or length < size or not -1 <= lac < entry_id or lac_length > length:
            raise PeerError(f"frame body: entry at offset {offset} has impossible numbers (entry {entry_id})")
        if count and (
            ledger_id != ledger or (entry_id == last + 1 and length != total + size) or length < total + size
        ):
            raise PeerError(f"frame body: entry at offset {offset} does not continue the entry before it")
        first = entry_id if count == 0 else first
        last, total, ledger = entry_id, length, ledger_id
        count += 1
        offset = end + _CRC.size
    if not count:
        raise PeerError("frame body: empty")
    return first, last, count, total, ledger


def cut(body: bytes | memoryview, ensemble_size: int, write_quorum: int, seat: int) -> bytes:
    """The entries of a checked body whose write set has the seat: (seat - entry) mod E < Qw (P1)."""
    block = memoryview(body)
    parts, offset = [], 0
    while offset < len(block):
        size, entry_id = _HEADER.unpack_from(block, offset)[3], _HEADER.unpack_from(block, offset)[5]
        end = offset + _HEADER.size + size + _CRC.size
        if (seat - entry_id) % ensemble_size < write_quorum:
            parts.append(block[offset:end])
        offset = end
    return b"".join(parts)
