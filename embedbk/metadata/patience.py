"""How long a transfer may stand still before it is asked for again: by measurements, never by a constant for the whole.

As TCP's retransmission timer: cost per MiB and its deviation, estimated from each piece; the limit is for one piece, so
a large state has all the time that it needs, and a peer that hangs is noticed (METADATA.md, 2; RAFT.md, section 8).
"""

from __future__ import annotations

from embedbk.metadata.calibration import FETCH_NS, MIB, SAMPLE_BYTES_MIN, Cost

__all__ = ["LIMIT_NS_MAX", "LIMIT_NS_MIN", "STALLS_MAX", "Patience"]

LIMIT_NS_MIN = 2_000_000_000
LIMIT_NS_MAX = 120_000_000_000
STALLS_MAX = 3  # Stalls in a row, each twice as long as the one before: then the peer hangs.
MARGIN_MIN, MARGIN_MAX = 2, 64
GOOD_PIECES = 16  # After so many good pieces the margin is halved.


class Patience(Cost):
    """The patience of one stage of one transfer."""

    def __init__(self) -> None:
        super().__init__(FETCH_NS)
        self.margin = MARGIN_MIN
        self.stalls = 0  # Stalls in a row, now.
        self.false_stalls = 0  # Stalls whose answer came later.
        self._good = 0

    def limit_ns(self, size: int) -> int:
        """The time limit of the next piece, of so many bytes."""
        usual = self.margin * (max(size, SAMPLE_BYTES_MIN) / MIB) * self.estimate_ns
        least = min(max(int(usual), LIMIT_NS_MIN), LIMIT_NS_MAX)
        return min(least << self.stalls, LIMIT_NS_MAX)

    def note_piece(self, size: int, took_ns: int) -> None:
        """A piece came, so long after it was first asked for."""
        if self.stalls:
            self.false_stalls += 1
            self.stalls, self._good = 0, 0
            self.margin = min(2 * self.margin, MARGIN_MAX)
        self.note(size, took_ns)
        self._good += 1
        if self._good >= GOOD_PIECES:
            self._good = 0
            self.margin = max(self.margin // 2, MARGIN_MIN)

    def note_stall(self) -> bool:
        """The limit passed; True: so often in a row that the peer hangs."""
        self.stalls += 1
        if self.stalls < STALLS_MAX:
            return False
        self.stalls = 0
        return True
