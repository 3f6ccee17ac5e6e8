"""Entry logs of versions 1 to 3, made of one of version 4 as STORAGE.md says: nobody writes them any more, and they are
read for ever."""

from __future__ import annotations

import struct

from embedbk.codec.kernels import crc32c

BLOCK = 4096
SIZES = struct.Struct("<QQQQQ")  # At 56: states, entries, entry count, index, file.


def as_version(version: int, content: bytes) -> bytes:
    """The same log as version 1 (a whole flush, without marks of journals), 2 or 3."""
    states_size, entries_size, entry_count, index_size, _ = SIZES.unpack_from(content, 56)
    run_count = struct.unpack_from("<I", content, 96)[0]
    assert struct.unpack_from("<I", content, 4)[0] == 4
    states = content[BLOCK : BLOCK + states_size]
    entries_at = BLOCK + states_size + index_size
    runs = _runs(content[BLOCK + states_size : entries_at], run_count)
    head = bytearray(content[:128])
    struct.pack_into("<I", head, 4, version)
    if version == 1:
        assert head[116:122] == b"\0\0\1\0\0\0"
        head[116:122] = bytes(6)
    seed = crc32c(bytes(head[:48]))
    index = _index(runs, seed if version == 3 else None, index_size)
    first = index if version == 3 else b""
    entries_end = BLOCK + states_size + len(first) + entries_size
    gap = -entries_end % BLOCK if version == 3 else 0
    end = entries_end + gap + len(index) + states_size + 128
    file_size = -(-end // BLOCK) * BLOCK
    SIZES.pack_into(head, 56, states_size, entries_size, entry_count, len(index), file_size)
    struct.pack_into("<II", head, 104, crc32c(states, seed), crc32c(index, seed))
    struct.pack_into("<I", head, 124, crc32c(bytes(head[:124])))
    entries = content[entries_at : entries_at + entries_size]
    middle = states + first + entries + bytes(gap) + index + states
    return (
        bytes(head) + bytes(BLOCK - 128) + middle + bytes(file_size - BLOCK - len(middle) - 128) + bytes(head)
    )


def _runs(index: bytes, run_count: int) -> list[bytes]:
    """Head and coded numbers of each."""
    runs, at = [], 0
    for _ in range(run_count):
        size = 56 + struct.unpack_from("<I", index, at + 48)[0]
        residues, modulus = struct.unpack_from("<Q", index, at + 24)[0], index[at + 52]
        runs.append(index[at : at + 54] + bytes(2) + index[at + 56 : at + size])
        at += size + 8 * (residues.bit_count() if modulus else 1) + 4
    assert at == len(index)
    return runs


def _index(runs: list[bytes], seed: int | None, moved: int) -> bytes:
    """seed: of the CRC of each run; None: they have none, and no index stands before the entries."""
    before = 0 if seed is None else sum(len(run) + 4 for run in runs)
    kept = bytearray()
    for raw in runs:
        run = bytearray(raw)
        struct.pack_into("<Q", run, 32, struct.unpack_from("<Q", run, 32)[0] - moved + before)
        if seed is not None:
            run += struct.pack("<I", crc32c(bytes(run), crc32c(len(kept).to_bytes(8, "little"), seed)))
        kept += run
    return bytes(kept)
