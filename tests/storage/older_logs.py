"""Entry logs of versions 1 and 2, made of one of version 3 as STORAGE.md says: nobody writes them any more, and they
are read for ever."""

from __future__ import annotations

import struct

from embedbk.codec.kernels import crc32c

BLOCK = 4096
SIZES = struct.Struct("<QQQQQ")  # At 56: states, entries, entry count, index, file.


def as_version(version: int, content: bytes) -> bytes:
    """The same log as version 1 (a whole flush, without marks of journals) or 2."""
    states_size, entries_size, entry_count, index_size, _ = SIZES.unpack_from(content, 56)
    run_count = struct.unpack_from("<I", content, 96)[0]
    assert struct.unpack_from("<I", content, 4)[0] == 3
    states = content[BLOCK : BLOCK + states_size]
    entries_at = BLOCK + states_size + index_size
    index = _without_sums(content[BLOCK + states_size : entries_at], run_count, index_size)
    file_size = -(-(BLOCK + 2 * states_size + entries_size + len(index) + 128) // BLOCK) * BLOCK
    head = bytearray(content[:128])
    struct.pack_into("<I", head, 4, version)
    SIZES.pack_into(head, 56, states_size, entries_size, entry_count, len(index), file_size)
    if version == 1:
        assert head[116:122] == b"\0\0\1\0\0\0"
        head[116:122] = bytes(6)
    seed = crc32c(bytes(head[:48]))
    struct.pack_into("<II", head, 104, crc32c(states, seed), crc32c(index, seed))
    struct.pack_into("<I", head, 124, crc32c(bytes(head[:124])))
    middle = states + content[entries_at : entries_at + entries_size] + index + states
    return (
        bytes(head) + bytes(BLOCK - 128) + middle + bytes(file_size - BLOCK - len(middle) - 128) + bytes(head)
    )


def _without_sums(index: bytes, run_count: int, moved: int) -> bytes:
    kept, at = bytearray(), 0
    for _ in range(run_count):
        size = 56 + struct.unpack_from("<I", index, at + 48)[0]
        run = bytearray(index[at : at + size])
        struct.pack_into("<Q", run, 32, struct.unpack_from("<Q", run, 32)[0] - moved)
        kept += run
        at += size + 4
    assert at == len(index)
    return bytes(kept)
