"""How many bytes per second a bookie reads for each class of reads (P6.7).

Decides whether a read may be made now, and for how long the reader is told to wait otherwise. A read that is allowed is
counted as a whole frame until it is known what it found, so that many readers together keep the bound as well. Leaves
to others: what each read is for (the reader says so), the order in which reads are made (`host/reading.py`), and the
bounds themselves (an operator sets them in the bookie's placement).
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.read_messages import ReadClass
from embedbk.config import FRAME_BYTES_MAX, READ_WAIT_MS_MAX

__all__ = ["ReadBudget", "read_class"]

_S = 1_000_000_000
_MS = 1_000_000


def read_class(number: int) -> ReadClass:
    """The class of a read; what a later build calls by a higher number counts as the last one."""
    return ReadClass(min(number, ReadClass.UPKEEP))


class ReadBudget:
    """Bounds in bytes per second, by class; 0: none. What was not used is not saved up."""

    def __init__(self) -> None:
        self.bounds: tuple[int, ...] = (0,) * len(ReadClass)
        self._free_ns = [0] * len(ReadClass)

    def set_bounds(self, bytes_per_s: Sequence[int]) -> None:
        """From now on; what was read before under another bound is forgotten. The first class has none, ever."""
        bounds = (0, *bytes_per_s[1:])
        if bounds != self.bounds:
            self.bounds = bounds
            self._free_ns = [0] * len(ReadClass)

    def take(self, now_ns: int, kind: ReadClass) -> int:
        """Count a read that is about to be made, and return 0; or return for how many ms its reader is to wait."""
        if not self.bounds[kind]:
            return 0
        wait_ns = self._free_ns[kind] - now_ns
        if wait_ns > 0:
            return min(-(-wait_ns // _MS), READ_WAIT_MS_MAX)
        self._free_ns[kind] = now_ns + self._ns(kind, FRAME_BYTES_MAX)
        return 0

    def settle(self, kind: ReadClass, byte_count: int) -> None:
        """The read found so many bytes."""
        if self.bounds[kind]:
            self._free_ns[kind] -= self._ns(kind, FRAME_BYTES_MAX - byte_count)

    def _ns(self, kind: ReadClass, byte_count: int) -> int:
        return byte_count * _S // self.bounds[kind]
