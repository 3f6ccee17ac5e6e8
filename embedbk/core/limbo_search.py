"""The ledgers that a bookie has in limbo, and the search for the entries it owes, by which limbo ends (P7.4).

Decides which entries are looked for next, and when a share was found whole, so that limbo ends. One ledger is searched
at a time, with a pause between two lookups, because requests of clients come first. Leaves to others: which ledgers
enter limbo (`limbo_entering`), and what the share of a bookie is (`core/limbo.py`).

    share told --> part --lookup finds its next entries--> part, after a pause --> ... --> no part: the share is whole
                     '--the next entry is missing or unreadable--> end: limbo stays, until the share is told again
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.frame import Frame, split
from embedbk.codec.journal_records import LIMBO_ENDS, RecordKind
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.bookie_words import SharePart, ShareTold
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.lookups import Lookup, Lookups
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens

__all__ = ["LimboSearch"]

_PAUSE_NS = 2_000_000  # Between two lookups.


class LimboSearch:
    """Which ledgers are in limbo, and how far the search for their entries is."""

    __slots__ = ("_looks", "_records", "_replies", "_table", "due_ns", "ledgers", "shares")

    def __init__(
        self, table: AnyLedgerTable, records: RecordTokens, replies: PendingReplies, looks: Lookups
    ) -> None:
        self._table = table
        self._records = records
        self._replies = replies
        self._looks = looks
        # In limbo, without dropped ones, which stay in limbo for ever (P7.3).
        self.ledgers: dict[int, None] = dict.fromkeys(table.limbo())
        # By ledger, what is still to be found; the first is searched.
        self.shares: dict[int, list[SharePart]] = {}
        self.due_ns: int | None = None  # When the next lookup is due.

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without what is the bookie's."""
        return {"due_ns": self.due_ns, "ledgers": self.ledgers, "shares": self.shares}

    @property
    def _current(self) -> int | None:
        """The ledger that is searched; None: no share is known."""
        return next(iter(self.shares), None)

    def enter(self, ledger_id: int) -> None:
        self.ledgers[ledger_id] = None

    def leave(self, ledger_id: int) -> None:
        self.ledgers.pop(ledger_id, None)

    def on_share(self, event: ShareTold) -> list[Effect]:
        """Search for this share, behind those that were told before; at once, if it is the only one. Limbo ends when
        every entry of the share was found."""
        if event.ledger_id not in self.ledgers or event.ledger_id in self.shares:
            return []
        self.shares[event.ledger_id] = [part for part in event.parts if _first_of(part) is not None]
        return self._search(event.now_ns) if len(self.shares) == 1 else []

    def on_time(self, now_ns: int) -> list[Effect]:
        return self._search(now_ns) if self.due_ns is not None and now_ns >= self.due_ns else []

    def found(self, frame: Frame | None, now_ns: int) -> None:
        """Take what the lookup returned. Limbo needs every entry read, and not only indexed."""
        ledger_id = self._current
        assert ledger_id is not None
        part, *others = self.shares[ledger_id]
        ids = [] if frame is None else [entry_id for entry_id, _ in split(frame)]
        for entry_id in ids:
            if entry_id != _first_of(part):
                ids = []
                break
            part = part._replace(first_entry=entry_id + 1)
        if not ids:
            self._end(now_ns)  # One is missing, or unreadable: limbo stays.
            return
        self.shares[ledger_id] = [part, *others] if _first_of(part) is not None else others
        self.due_ns = now_ns + _PAUSE_NS

    def _search(self, now_ns: int) -> list[Effect]:
        """Look up the next entries that limbo misses, or end the limbo of a ledger whose share was found whole."""
        self.due_ns = None
        ledger_id = self._current
        if ledger_id is None:
            return []
        row = self._table.get(ledger_id)
        assert row is not None
        if self._replies.failure is not None or not row.in_limbo or row.is_dropped:
            self._end(now_ns)
            return []
        part = next(iter(self.shares[ledger_id]), None)
        if part is None:
            row.in_limbo = 0
            self.leave(ledger_id)
            self._end(now_ns)
            return [self._records.append(row, RecordKind.LIMBO, LIMBO_ENDS)]
        look = Lookup(0, 0, None, ledger_id, 0)
        return [
            self._looks.read(
                look, part.first_entry, part.last_entry, FRAME_BYTES_MAX, part.modulus, part.residues
            )
        ]

    def _end(self, now_ns: int) -> None:
        """Search no longer for the current ledger's share; the next ledger's is due after a pause."""
        assert self._current is not None
        del self.shares[self._current]
        self.due_ns = now_ns + _PAUSE_NS if self.shares else None


def _first_of(part: SharePart) -> int | None:
    """The first entry id of a part, None when it has none."""
    for entry_id in range(part.first_entry, min(part.last_entry, part.first_entry + part.modulus - 1) + 1):
        if part.residues >> entry_id % part.modulus & 1:
            return entry_id
    return None
