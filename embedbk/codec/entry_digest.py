"""One number for one copy of an entry, and the sum of those of many: the plain form of native/wire/entry_digest.h.

Made of id, CRC32C and size. Two copies of one entry that differ in CRC or size have different digests, always; two
sums over the same ids that differ somewhere are equal by a chance of 2^-64. What it does not find: other bytes under
the same CRC and size, by a chance of 2^-32 or by intent.
"""

from __future__ import annotations

from embedbk.codec.entry import ENTRY_HEADER
from embedbk.codec.twins import digest_of

__all__ = ["DIGEST_MASK", "entry_digest"]

DIGEST_MASK = 2**64 - 1


def entry_digest(entry: bytes | memoryview) -> int:
    """Digest of one whole entry, header and CRC included, which the caller has checked."""
    entry_id = ENTRY_HEADER.unpack_from(entry)[5]
    crc = int.from_bytes(entry[-4:], "little")
    return digest_of(entry_id, len(entry), crc)
