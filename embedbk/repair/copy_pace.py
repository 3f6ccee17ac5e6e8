"""How fast copies are read, by all repairs of one process together (AR12)."""

from __future__ import annotations

__all__ = ["CopyPace"]

_SECOND = 1_000_000_000


class CopyPace:
    """So many bytes per second; 0: as fast as it goes. A burst is one frame: what was not used is not saved up."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_ns = 0

    def free_ns(self, now_ns: int) -> int:
        """When the next frame may be asked for; not later than now: at once."""
        return self._free_ns if self._bytes_per_s else now_ns

    def note(self, now_ns: int, size: int) -> None:
        """A frame of so many bytes came."""
        if self._bytes_per_s:
            self._free_ns = max(self._free_ns, now_ns) + size * _SECOND // self._bytes_per_s
