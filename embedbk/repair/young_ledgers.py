"""Ledgers that were open lately: their bookies are asked soon, and not only by the next round over all (P11.4).

Decides which of them are looked at now. A ledger that is closed may lack copies that its writer does not send any more.
So one that is seen as open is read again until it is closed, and its bookies are asked a while after that. If one of
them does not answer, it is asked once more. A few at a time: a ledger that finds no room waits for the next round.

At each look of the auditor the keys are read that are named here, and then those of ledgers that are new are listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.errors import StorageError

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
        self._newest = -1  # The highest id that was met.
        self._reading: list[int] = []  # By the look that goes on.

    def __len__(self) -> int:
        return len(self._closed_ns)

    def pass_by(self, ledger_id: int) -> None:
        """The ledger was met, and the round itself asks about it."""
        self._newest = max(self._newest, ledger_id)

    def meet(self, ledger_id: int, now_ns: int, *, is_closed: bool) -> None:
        """It was met, and is to be asked about, unless too many are."""
        self.pass_by(ledger_id)
        if ledger_id in self._closed_ns or len(self._closed_ns) < YOUNG_MAX:
            self._closed_ns[ledger_id] = now_ns if is_closed else _OPEN

    # A look.

    def begin_look(self, now_ns: int) -> None:
        self._reading = self._due(now_ns)

    def next_key(self) -> str | None:
        """The key that is read next; None: there is no other."""
        return ledger_key_path(self._reading[0]) if self._reading else None

    def take(self, value: bytes | None, now_ns: int) -> tuple[int, LedgerMetadata] | None:
        """The key that was named last has this value. Returns the ledger, where its bookies are to be asked."""
        ledger_id, metadata = self._reading.pop(0), None
        if value is not None:
            with contextlib.suppress(StorageError):
                metadata = decode_ledger_metadata(value, ledger_id)
        is_to_ask = self._see(ledger_id, metadata, now_ns)
        return (ledger_id, metadata) if is_to_ask and metadata is not None else None

    @property
    def newest_key(self) -> str:
        """Behind it the keys of ledgers stand that were not met yet."""
        return ledger_key_path(self._newest) if self._newest >= 0 else LEDGERS_PREFIX

    def take_newest(self, records: Iterable[tuple[str, bytes]], now_ns: int) -> None:
        """These keys were listed behind that one."""
        for key, value in records:
            ledger_id = ledger_of_key(key)
            if ledger_id is not None:
                with contextlib.suppress(StorageError):
                    is_closed = decode_ledger_metadata(value, ledger_id).is_closed
                    self.meet(ledger_id, now_ns, is_closed=is_closed)

    def _due(self, now_ns: int) -> list[int]:
        """Those to be read now."""
        settled_ns = now_ns - self._settle_ns
        found: list[int] = []
        for ledger_id, closed_ns in self._closed_ns.items():
            if closed_ns == _OPEN or closed_ns <= settled_ns:
                found.append(ledger_id)
                if len(found) == DUE_MAX:
                    break
        return found

    def _see(self, ledger_id: int, metadata: LedgerMetadata | None, now_ns: int) -> bool:
        """metadata: as it is now; None: it is gone or cannot be read. Returns whether its bookies are to be asked."""
        closed_ns = self._closed_ns.pop(ledger_id, None)
        if metadata is None or closed_ns is None:
            return False
        if metadata.is_closed and closed_ns != _OPEN:
            return True
        self._closed_ns[ledger_id] = now_ns if metadata.is_closed else _OPEN
        return False
