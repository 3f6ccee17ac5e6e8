"""The second digest of an entry, its tag: made by clients (P3.1; WIRE.md section 1).

Every entry has a CRC32C, which bookies and readers check. A ledger may ask for a tag beside it: XXH3, against damage
that a CRC of 32 bits can miss, which the scan of a frame checks too, so that no bookie stores a wrong one; or HMAC
under a key from the password, which no bookie knows, against entries that its writer did not make. The tag covers the
entry without itself and its CRC32C, also what stands behind it: the time, and what belongs to records. A copy without a
right tag is a failed copy.
"""

from __future__ import annotations

import enum
import hmac
import struct

import xxhash

from embedbk.codec.entry import ENTRY_HEADER, encode_entry
from embedbk.codec.frame import Frame, split
from embedbk.codec.kernels import crc32c
from embedbk.errors import PeerError
from embedbk.ids import NO_ENTRY

__all__ = ["DigestType", "check_tags", "digest_of_entry", "encode_tagged", "tag_bytes"]

_ATTRIBUTE = struct.Struct("<BBH")
_CRC_BYTES = 4


class DigestType(enum.IntEnum):
    """How the entries of a ledger are checked. Numbers are on disk: never re-used."""

    CRC32C = 0
    XXH3 = 1  # And XXH3 of 64 bits.
    HMAC = 2  # And HMAC-SHA256.


_KIND_AND_SIZE = {DigestType.XXH3: (3, 8), DigestType.HMAC: (4, 32)}  # The attribute's.


_OF_KIND = {kind: digest for digest, (kind, _) in _KIND_AND_SIZE.items()}


def tag_bytes(digest: int) -> int:
    """How many bytes the tag adds to each entry."""
    found = _KIND_AND_SIZE.get(DigestType(digest))
    return _ATTRIBUTE.size + found[1] if found is not None else 0


def digest_of_entry(entry: memoryview) -> DigestType:
    """The digest of the ledger of a scanned entry, by the entry's tag."""
    tagged = (digest for kind, digest in _OF_KIND.items() if _tag_at(entry, kind))
    return next(tagged, DigestType.CRC32C)


def encode_tagged(
    digest: int,
    mac_key: bytes,
    ledger_id: int,
    entry_id: int,
    length: int,
    payload: bytes | memoryview,
    lac: int = NO_ENTRY,
    lac_length: int = 0,
    attributes: bytes = b"",
    behind: bytes = b"",
) -> bytes:
    """As `encode_entry`, with the tag of this digest after the attributes; behind: attributes that come after the
    tag."""
    kind, size = _KIND_AND_SIZE[DigestType(digest)]
    untagged = attributes + _ATTRIBUTE.pack(kind, 0, size) + bytes(size) + behind
    entry = encode_entry(ledger_id, entry_id, length, payload, lac, lac_length, untagged)
    begin = ENTRY_HEADER.size + len(attributes) + _ATTRIBUTE.size
    head, rest = entry[:begin], entry[begin + size : -_CRC_BYTES]
    checked = head + _tag(digest, mac_key, head + rest) + rest
    return checked + crc32c(checked).to_bytes(_CRC_BYTES, "little")


def check_tags(frame: Frame, digest: int, mac_key: bytes) -> None:
    """Check the tag of every entry of a frame that was scanned; with CRC32C alone there is nothing left to check.

    Raises:
        PeerError: an entry has no tag of this kind, or a wrong one; says which.
    """
    if digest == DigestType.CRC32C:
        return
    kind, size = _KIND_AND_SIZE[DigestType(digest)]
    for entry_id, entry in split(frame):
        begin = _tag_at(entry, kind)
        covered = bytes(entry[:begin]) + bytes(entry[begin + size : -_CRC_BYTES])
        tag = entry[begin : begin + size]
        if not begin or not hmac.compare_digest(tag, _tag(digest, mac_key, covered)):
            name = DigestType(digest).name
            raise PeerError(f"ledger {frame.ledger_id}, entry {entry_id} fails its {name} tag")


def _tag_at(entry: memoryview, wanted: int) -> int:
    """Where the value of the tag begins in a scanned entry; 0: it has none of this kind."""
    at, end = ENTRY_HEADER.size, ENTRY_HEADER.size + ENTRY_HEADER.unpack_from(entry)[2]
    while at < end:
        kind, _, size = _ATTRIBUTE.unpack_from(entry, at)
        at += _ATTRIBUTE.size
        if kind == wanted:
            return at
        at += size
    return 0


def _tag(digest: int, mac_key: bytes, covered: bytes) -> bytes:
    if digest == DigestType.XXH3:
        return xxhash.xxh3_64_digest(covered)
    return hmac.digest(mac_key, covered, "sha256")
