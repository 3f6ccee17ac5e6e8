"""How fast copies are read, by all repairs of one process together, and how much at once (AR12).

Decides when the next frame may be asked for, and how large it may be. Who appends and reads comes first: where bookies,
disks or processors are busy with them, reads for copies take longer than they did lately. Then the rate falls by half,
and again, down to a sixteenth of the bound: a copy that is lost must not stay lost while a cluster is busy. There it
begins, and rises while reads take no longer than usual. That a delay beyond the least one shows who else waits is the
idea of LEDBAT (RFC 6817, section 2).
"""

from __future__ import annotations

from embedbk.config import FRAME_BYTES_MAX

__all__ = ["CopyPace"]

_MS = 1_000_000
_SECOND = 1_000 * _MS
_LATE_NS = _MS // 2  # A read is late that takes so much longer than one and a half times the least time.
_JUDGED_NS = 50 * _MS  # The rate changes once in this time.
_PERIOD_NS = 60 * _SECOND  # The least time is that of one or two such periods.
_STEPS = 16  # The rate rises by this part of the bound, and falls to it.
# A frame is what the rate allows in this part of a second, so that no bookie works on one for long.
_FRAMES_PER_S = 256
_FRAME_BYTES_MIN = 64 << 10  # What a read costs beside its bytes is little then.


class CopyPace:
    """bytes_per_s: the bound; 0: as fast as it goes, which yields to nobody. A burst is one frame: what was not used is
    not saved up."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bound, self._least = bytes_per_s, -(-bytes_per_s // _STEPS)
        self._rate = self._least
        self._free_ns = 0
        self._is_late = False  # A read was, since the rate was judged.
        self._judged_ns = 0
        self._quickest_ns = self._before_ns = _SECOND  # Of this period, and of the one before.
        self._period_ns = 0  # When it began.

    @property
    def rate(self) -> int:
        """Bytes per second, now; 0: no bound."""
        return self._rate

    @property
    def frame_bytes(self) -> int:
        """The most that one read asks for."""
        if not self._bound:
            return FRAME_BYTES_MAX
        return min(max(self._rate // _FRAMES_PER_S, _FRAME_BYTES_MIN), FRAME_BYTES_MAX)

    def free_ns(self, now_ns: int) -> int:
        """When the next frame may be asked for; not later than now: at once."""
        return self._free_ns if self._bound else now_ns

    def note(self, now_ns: int, size: int, took_ns: int = 0) -> None:
        """A frame of so many bytes came, so long after it was asked for."""
        if self._bound:
            self._judge(now_ns, took_ns)
            self._free_ns = max(self._free_ns, now_ns) + size * _SECOND // self._rate

    def _judge(self, now_ns: int, took_ns: int) -> None:
        if now_ns >= self._period_ns + _PERIOD_NS:
            self._period_ns, self._before_ns, self._quickest_ns = now_ns, self._quickest_ns, took_ns
        self._quickest_ns = min(self._quickest_ns, took_ns)
        least_ns = min(self._quickest_ns, self._before_ns)
        self._is_late |= took_ns > least_ns + least_ns // 2 + _LATE_NS
        if now_ns < self._judged_ns + _JUDGED_NS:
            return
        if self._is_late:
            self._rate = max(self._rate // 2, self._least)
        else:
            self._rate = min(self._rate + self._least, self._bound)
        self._judged_ns, self._is_late = now_ns, False
