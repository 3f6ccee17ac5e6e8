"""A node's own clock: another beginning, another rate, jumps (C1 to C3). No node reads the world's time.

Nodes get monotonic time: it never falls. No core reads a wall clock.
"""

from __future__ import annotations

__all__ = ["MS", "SECOND", "TRUE", "Clock"]

MS = 1_000_000  # In the nanoseconds of all clocks.
SECOND = 1_000 * MS
_PPM = 1_000_000


class Clock:
    """local = base + (time - since) * rate; a jump begins anew from where it leads."""

    def __init__(self, offset_ns: int = 0, drift_ppm: int = 0) -> None:
        """drift_ppm: 300_000 runs 30 % fast, -300_000 slow."""
        assert drift_ppm > -_PPM
        self._since_ns = 0
        self._base_ns = offset_ns
        self._rate = _PPM + drift_ppm

    def local(self, time_ns: int) -> int:
        if self._rate == _PPM:
            return self._base_ns + time_ns - self._since_ns
        return self._base_ns + (time_ns - self._since_ns) * self._rate // _PPM

    def time(self, local_ns: int) -> int:
        """The first moment of the world at which this clock shows local_ns or more."""
        if self._rate == _PPM:
            return local_ns - self._base_ns + self._since_ns
        return self._since_ns + -(-(local_ns - self._base_ns) * _PPM // self._rate)

    @property
    def has_jumped(self) -> bool:
        return self._since_ns > 0

    def jump(self, time_ns: int, forward_ns: int) -> None:
        """As after a long stall of the machine: all at once it is later."""
        assert forward_ns >= 0
        self._base_ns = self.local(time_ns) + forward_ns
        self._since_ns = time_ns


TRUE = Clock()
