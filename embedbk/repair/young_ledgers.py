"""Ledgers that were open lately: their bookies are asked soon, and not only by the next round over all (P11.4).

Decides which of them are looked at now. A ledger that is closed may lack copies that its writer does not send any more.
So one that is seen as open is read again until it is closed, and its bookies are asked a while after that. If one of
them does not answer, it is asked once more. A few at a time: a ledger that finds no room waits for the next round.
"""

from __future__ import annotations

from embedbk.codec.ledger_metadata import LedgerMetadata

__all__ = ["YoungLedgers"]

YOUNG_MAX = 10_000
DUE_MAX = 10  # Looked at by one look.
_OPEN = -1


class YoungLedgers:
    """settle_ns: from when a ledger is seen as closed until its bookies are asked."""

    def __init__(self, settle_ns: int) -> None:
        self._settle_ns = settle_ns
        self._closed_ns: dict[
            int, int
        ] = {}  # Ledger -> when it was seen as closed; those looked at last at the end.
        self.newest = -1  # The highest id that was met.

    def __len__(self) -> int:
        return len(self._closed_ns)

    def pass_by(self, ledger_id: int) -> None:
        """The ledger was met, and the round itself asks about it."""
        self.newest = max(self.newest, ledger_id)

    def meet(self, ledger_id: int, now_ns: int, *, is_closed: bool) -> None:
        """It was met, and is to be asked about, unless too many are."""
        self.pass_by(ledger_id)
        if ledger_id in self._closed_ns or len(self._closed_ns) < YOUNG_MAX:
            self._closed_ns[ledger_id] = now_ns if is_closed else _OPEN

    def due(self, now_ns: int) -> list[int]:
        """Those to be read now."""
        settled_ns = now_ns - self._settle_ns
        found: list[int] = []
        for ledger_id, closed_ns in self._closed_ns.items():
            if closed_ns == _OPEN or closed_ns <= settled_ns:
                found.append(ledger_id)
                if len(found) == DUE_MAX:
                    break
        return found

    def see(self, ledger_id: int, metadata: LedgerMetadata | None, now_ns: int) -> bool:
        """metadata: as it is now; None: it is gone or cannot be read. Returns whether its bookies are to be asked."""
        closed_ns = self._closed_ns.pop(ledger_id, None)
        if metadata is None or closed_ns is None:
            return False
        if metadata.is_closed and closed_ns != _OPEN:
            return True
        self._closed_ns[ledger_id] = now_ns if metadata.is_closed else _OPEN
        return False
