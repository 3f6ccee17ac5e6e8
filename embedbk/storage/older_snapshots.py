"""Snapshots inside the log, as builds before snapshots were files wrote them (METADATA.md, 2): read, never written."""

from __future__ import annotations

import struct

from embedbk.errors import StorageError

__all__ = ["CHUNK", "OlderSnapshots"]

# number of the chunk, count of chunks, bytes of the whole snapshot
CHUNK = struct.Struct("<IIQ")


class OlderSnapshots:
    """Chunks as they are found in the log. The newest snapshot of which every chunk was there is kept."""

    def __init__(self) -> None:
        self.index = 0  # Index of the newest whole one; 0: there is none.
        self.data = b""
        self.is_begun = False
        self._index = 0
        self._chunks: list[bytes] = []

    def take(self, token: int, index: int, body: memoryview) -> bool:
        """Take the next chunk; True: it makes a snapshot whole. Raises StorageError: it is no chunk, or has another
        size."""
        self.is_begun = True
        if len(body) < CHUNK.size:
            raise StorageError(f"metadata log: record {token} holds no chunk of a snapshot")
        number, count, size = CHUNK.unpack_from(body)
        if number == 0:
            self._index, self._chunks = index, []
        elif index != self._index or number != len(self._chunks):
            return False  # The end of a snapshot whose beginning was trimmed, or that a crash cut off.
        self._chunks.append(bytes(body[CHUNK.size :]))
        if number + 1 < count:
            return False
        data, self._chunks = b"".join(self._chunks), []
        if len(data) != size:
            raise StorageError(
                f"metadata log: the snapshot of command {index} has {len(data)} of {size} bytes"
            )
        self.index, self.data = index, data
        return True
