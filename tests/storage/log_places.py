"""Where the sections of an entry log stand, of any version, by its first descriptor (STORAGE.md section 1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class LogPlaces:
    """Offsets. indexes: of each copy of the index, that behind the entries last."""

    states: int
    states_size: int
    indexes: tuple[int, ...]
    index_size: int
    entries: int
    entries_end: int
    second_states: int

    def index_ranges(self) -> list[tuple[int, int]]:
        return [(at, at + self.index_size) for at in self.indexes]


def places_in(content: bytes | bytearray) -> LogPlaces:
    version = struct.unpack_from("<I", content, 4)[0]
    states_size, entries_size, _, index_size = struct.unpack_from("<QQQQ", content, 56)
    entries = first = 4096 + states_size
    if version > 2:
        entries += index_size
    entries_end = index = entries + entries_size
    if version > 2:
        index = -(-entries_end // 4096) * 4096
    indexes = (first, index) if version > 2 else (index,)
    return LogPlaces(4096, states_size, indexes, index_size, entries, entries_end, index + index_size)
