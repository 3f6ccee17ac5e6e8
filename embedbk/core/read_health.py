"""How well bookies answered reads lately: which to ask first, and how long to wait before another one is asked as well.

Decides nothing of the protocol: any order gives the same entries (P6.4). One of these is shared by all reads of a
client, so that a read begins with what the others learnt (RP27, RP28).
"""

from __future__ import annotations

__all__ = ["ReadHealth"]

_MS = 1_000_000
FAILURE_MEMORY_NS = 60_000 * _MS  # A bookie that failed a read is asked after the others for so long.
PATIENCE_NS_MIN = 5 * _MS  # Below, a busy machine would ask twice for nothing.
PATIENCE_NS_MAX = 2_000 * _MS
BOOKIES_MAX = 4096  # Remembered as failed.


class ReadHealth:
    """Plain data; all times are the host's."""

    def __init__(self) -> None:
        self.mean_ns = 0  # Smoothed time to a good answer of any bookie, and its variation: as for TCP's
        # retransmission, so that a slow bookie is left behind at the pace of the others.
        self.deviation_ns = 0
        self.answer_count = 0
        self.failed_ns: dict[str, int] = {}  # Bookie -> when a read of it failed last.

    def note_good(self, bookie_id: str, took_ns: int) -> None:
        self.failed_ns.pop(bookie_id, None)
        if self.answer_count == 0:
            self.mean_ns, self.deviation_ns = took_ns, took_ns // 2
        else:
            self.deviation_ns += (abs(took_ns - self.mean_ns) - self.deviation_ns) // 4
            self.mean_ns += (took_ns - self.mean_ns) // 8
        self.answer_count += 1

    def note_failed(self, bookie_id: str, now_ns: int) -> None:
        self.failed_ns.pop(bookie_id, None)  # The newest stands last.
        while len(self.failed_ns) >= BOOKIES_MAX:
            del self.failed_ns[next(iter(self.failed_ns))]
        self.failed_ns[bookie_id] = now_ns

    def has_failed(self, bookie_id: str, now_ns: int) -> bool:
        """Whether the bookie failed a read lately, and gave no good answer since."""
        when = self.failed_ns.get(bookie_id)
        return when is not None and now_ns - when < FAILURE_MEMORY_NS

    def patience_ns(self, untold_ns: int) -> int:
        """How long to wait for one copy before another is asked as well; untold_ns until a first answer came."""
        if self.answer_count == 0:
            return untold_ns
        return max(PATIENCE_NS_MIN, min(self.mean_ns + 4 * self.deviation_ns, PATIENCE_NS_MAX))
