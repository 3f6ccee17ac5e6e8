"""What is kept for bookies that are behind: how much it may be, and which seat has failed at that bound (P4.5, RP33).

A frame that has its ack quorum is kept until every seat has answered. Decides what that counts for, and when
a seat that answers nothing has failed. Leaves to `in_flight` what is kept, to the writer what follows.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FRAME_PRICE", "SILENT_AT_BOUND", "SILENT_NS", "Backlog", "look_at_ns", "silent_seats"]

_MS = 1_000_000
# Bytes that a kept frame counts for besides its body: its places in tables, and its share of a block.
FRAME_PRICE = 4096
# At the bound a seat that has answered nothing for so long counts as failed. Together with the second look it is less
# than the 300 ms for which an append may wait there.
SILENT_NS = 200 * _MS
SECOND_LOOK_NS = 20 * _MS
SILENT_AT_BOUND = "it answers nothing, and what is kept for it is at its bound"  # Why such a seat has failed.
_IN_TIME_NS = 40 * _MS  # So late the second look may be. A client that stood still looks twice anew.


class Backlog:
    """Bytes that all handles of one process keep for bookies that are behind. native/road/in_flight.h has the form in
    C."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._kept_bytes = 0

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def add(self, byte_count: int) -> None:
        """Count that so many bytes more are kept, or less. Any thread."""
        self._kept_bytes += byte_count

    @property
    def is_full(self) -> bool:
        return self.kept_bytes >= self.bytes_max


def look_at_ns(silent_ns: Mapping[int, int], again_ns: int) -> int | None:
    """When to look for silent seats. silent_ns: by seat, since when it has answered nothing of what it owes. again_ns:
    when the second look is due, 0 before the first."""
    return max(min(silent_ns.values()) + SILENT_NS, again_ns) if silent_ns else None


def silent_seats(silent_ns: Mapping[int, int], again_ns: int, now_ns: int) -> tuple[list[int], int]:
    """The seats to blame, the longest silent first, and when the second look is due. Seats are blamed only at the
    second of two looks that are each in time: a client that stood still itself finds the answers of that time in
    between."""
    if not 0 < again_ns <= now_ns <= again_ns + _IN_TIME_NS:
        return [], now_ns + SECOND_LOOK_NS
    found = [seat for seat, since_ns in silent_ns.items() if now_ns - since_ns >= SILENT_NS]
    return sorted(found, key=silent_ns.__getitem__), 0
