"""How a snapshot of the metadata lies in a file of its own (METADATA.md, 2).

Decides the bytes and when they are believed: header, chunks with a sum each, an index of them and a closing record.
A reader trusts no byte unchecked; snapshots.py compares the file with what the log says of it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from embedbk.codec.kernels import crc32c
from embedbk.errors import StorageError, ensure
from embedbk.metadata.cutting import PIECE_BYTES_MAX
from embedbk.storage.raw_files import RawFile

__all__ = [
    "ASIDE_SUFFIX",
    "CHUNK",
    "CLOSING",
    "DIGEST_BYTES",
    "FETCHED_SUFFIX",
    "HEADER",
    "INDEX_ROW",
    "PART_SUFFIX",
    "SNAPSHOT_DIRECTORY",
    "SnapshotHeader",
    "encode_chunk",
    "encode_end",
    "parse_snapshot_name",
    "read_header",
    "read_pieces",
    "snapshot_name",
]

SNAPSHOT_DIRECTORY = "snapshots"  # In a member's directory.
PART_SUFFIX = ".part"  # Behind the name of one that is being written.
FETCHED_SUFFIX = ".fetched"  # Behind the name of one of another member that is being pulled, or was.
ASIDE_SUFFIX = ".aside"  # Behind the name of one that is damaged, or not what the log says.

# crc, magic, version, config_bytes, chunk_count, cluster_token, incarnation, index, term, revision, config_index,
# digest, record_count, session_count, file_bytes
HEADER = struct.Struct("<I4sHHI16s16sQQQQ16sQQQ")
# crc, size, number, reserved
CHUNK = struct.Struct("<IIII")
# offset, size, crc
INDEX_ROW = struct.Struct("<QII")
# crc, magic, chunk_count, reserved, index_offset
CLOSING = struct.Struct("<I4sIIQ")
MAGIC, END_MAGIC = b"EBKS", b"EBKE"
VERSION = 1
BLOCK_BYTES = 4096
CONFIG_BYTES_MAX = (1 << 16) - 1
DIGEST_BYTES = 16

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.snap")


def snapshot_name(index: int, term: int) -> str:
    return f"{index:020}-{term:010}.snap"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(index, term); None: it is no snapshot's name."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The state that a snapshot has. config: of the quorum, opaque here; empty in a quorum of one."""

    cluster_token: bytes
    incarnation: bytes  # That of the member that cut it.
    index: int
    term: int
    revision: int
    record_count: int
    session_count: int
    config: bytes = b""
    config_index: int = 0
    chunk_count: int = 0  # These three are known when it is whole.
    file_bytes: int = 0
    digest: bytes = bytes(DIGEST_BYTES)

    @property
    def size(self) -> int:
        """Bytes of the header itself, in whole blocks."""
        return _header_bytes(len(self.config))

    def encode(self) -> bytes:
        ensure(len(self.config) <= CONFIG_BYTES_MAX, "a configuration is small")
        fields = (
            *(MAGIC, VERSION, len(self.config), self.chunk_count, self.cluster_token, self.incarnation),
            *(self.index, self.term, self.revision, self.config_index, self.digest),
            *(self.record_count, self.session_count, self.file_bytes),
        )
        block = (HEADER.pack(0, *fields) + self.config).ljust(self.size, b"\0")
        return crc32c(block[4:]).to_bytes(4, "little") + block[4:]


def encode_chunk(number: int, piece: bytes) -> tuple[bytes, int]:
    """The chunk's header, and its sum; the piece follows."""
    ensure(len(piece) <= PIECE_BYTES_MAX, f"a chunk of {len(piece)} bytes")
    head = CHUNK.pack(0, len(piece), number, 0)
    crc = crc32c(piece, crc32c(head[4:]))
    return crc.to_bytes(4, "little") + head[4:], crc


def encode_end(rows: list[tuple[int, int, int]], index_offset: int) -> bytes:
    """Index and closing record. rows: offset, size and sum of each chunk."""
    index = b"".join(INDEX_ROW.pack(*row) for row in rows)
    closing = CLOSING.pack(0, END_MAGIC, len(rows), 0, index_offset)
    crc = crc32c(closing[4:], crc32c(index))
    return index + crc.to_bytes(4, "little") + closing[4:]


def read_header(file: RawFile) -> SnapshotHeader:
    """Raises StorageError: it is none; OSError: the file cannot be read."""
    block = file.read(0, BLOCK_BYTES)
    if len(block) < BLOCK_BYTES:
        raise StorageError(f"it has {len(block)} bytes, less than a header")
    crc, magic, version, config_bytes, chunk_count, *rest = HEADER.unpack_from(block)
    if magic != MAGIC:
        raise StorageError(f"it begins with {magic!r}, not as a snapshot")
    if version != VERSION:
        raise StorageError(f"it has version {version}; this embedbk knows {VERSION}")
    token, incarnation, index, term, revision, config_index, digest, records, sessions, size = rest
    header_bytes = _header_bytes(config_bytes)
    block += file.read(BLOCK_BYTES, header_bytes - BLOCK_BYTES)
    if len(block) < header_bytes or crc32c(block[4:]) != crc:
        raise StorageError("its header is damaged")
    config = block[HEADER.size : HEADER.size + config_bytes]
    return SnapshotHeader(
        *(token, incarnation, index, term, revision, records, sessions),
        *(config, config_index, chunk_count, size, digest),
    )


def _header_bytes(config_bytes: int) -> int:
    return -(-(HEADER.size + config_bytes) // BLOCK_BYTES) * BLOCK_BYTES


def read_pieces(file: RawFile, header: SnapshotHeader) -> Iterator[bytes]:
    """Its pieces in order. The last step checks what no single chunk shows: digest, index, end of the file.

    Raises:
        StorageError: it is not whole, or not what was written.
        OSError: it cannot be read.
    """
    found = file.size()
    if found != header.file_bytes:
        raise StorageError(f"it has {found} bytes, and {header.file_bytes} were written")
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    rows: list[tuple[int, int, int]] = []
    at = header.size
    for number in range(header.chunk_count):
        head = file.read(at, CHUNK.size)
        crc, size, named, _ = CHUNK.unpack(head.ljust(CHUNK.size, b"\0"))
        if named != number or size > PIECE_BYTES_MAX:
            raise StorageError(f"chunk {number} of {header.chunk_count} is damaged at byte {at}")
        piece = file.read(at + CHUNK.size, size)
        if len(piece) < size or crc32c(piece, crc32c(head[4:])) != crc:
            raise StorageError(f"chunk {number} of {header.chunk_count} is damaged at byte {at}")
        rows.append((at, size, crc))
        at += CHUNK.size + size
        digest.update(piece)
        yield piece
    end = encode_end(rows, at)
    if file.read(at, len(end) + 1) != end:
        raise StorageError(f"its index of chunks is damaged at byte {at}")
    if digest.digest() != header.digest:
        raise StorageError("its chunks are whole, and together not what its header says")
