"""Ledgers that a bookie may drop: the ones metadata is asked about, and the ones whose DROP record is queued (P7.3,
P7.7).

Decides whether a ledger is dropped: nothing of it changed since the question was put, and nothing waits for what it
holds; whose entries may go: those of a drop that is durable, so that a crash never finds a ledger without its entries
and without its DROP record (P7.3); and what becomes of a dropped one that a recovery brings back. Leaves to others when
metadata is asked (`core/collector.py`).

    held ── metadata is asked, allows it, and nothing came since ──▶ dropped ── its record is durable ──▶ entries go
      ▲                                                                 │
      '────────────── a recovery adds to it: in limbo meanwhile ────────'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from embedbk.codec.journal_records import HELD_AGAIN, RecordKind
from embedbk.core.bookie_words import DropEntries, JournalAppend
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.limbo_search import LimboSearch
from embedbk.core.lookups import Lookups
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens
from embedbk.ids import NO_ENTRY

__all__ = ["Drops"]


class Drops:
    """Questions to metadata that are open, and drops that are not durable yet."""

    __slots__ = ("_asked", "_limbo", "_looks", "_queued", "_records", "_replies", "_table")

    def __init__(
        self,
        table: AnyLedgerTable,
        records: RecordTokens,
        replies: PendingReplies,
        looks: Lookups,
        limbo: LimboSearch,
    ) -> None:
        self._table = table
        self._records = records
        self._replies = replies
        self._looks = looks
        self._limbo = limbo
        self._asked: dict[int, int] = {}  # Ledgers that metadata is asked about -> their last token then.
        self._queued: dict[int, int] = {}  # Token of a DROP record -> its ledger.

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without what is the bookie's."""
        return {"asked": self._asked, "queued": self._queued}

    def __bool__(self) -> bool:
        """Whether a drop waits for the journal."""
        return bool(self._queued)

    def ask(self, ledger_ids: Iterable[int]) -> None:
        """Note that metadata is asked about these, and no longer about earlier ones."""
        rows = [row for each in ledger_ids if (row := self._table.get(each)) is not None]
        self._asked = {row.ledger_id: row.last_token for row in rows if not row.is_dropped}

    def on_allowed(self, ledger_id: int, *, is_serving: bool) -> list[Effect]:
        """Drop a ledger for which no add came since metadata was asked (P7.7); without an effect, it is not.

        Else: metadata says that no fragment names b1; a mark makes b1 the target of a repair, its entries are copied
        here, acknowledged, and published; then they are dropped for what was read before.
        """
        row = self._table.get(ledger_id)
        token = self._asked.pop(ledger_id, None)
        if token is None or row is None or row.last_token != token or row.is_dropped:
            return []
        if self._replies.failure is not None or not is_serving:
            return []
        if token > self._replies.durable:
            return []  # Answers wait for it: they would acknowledge what was dropped meanwhile (I34, I40).
        if self._looks.has_add(row.ledger_id):
            return []  # An add that looks what is held: what it finds must still be there when it is acknowledged.
        row.is_fenced = row.in_limbo = row.is_dropped = 1
        self._limbo.leave(row.ledger_id)
        effects: list[Effect] = [self._records.append(row, RecordKind.DROP, b"")]
        self._queued[row.last_token] = row.ledger_id
        return effects

    def on_add(self, row: AnyLedgerRow, effects: list[Effect]) -> None:
        """An add of this ledger is about to be stored. A dropped one is in limbo then, until its share is found whole
        (P7.3, P7.4): the record of that is added to the effects."""
        # Metadata was read before this add, so the answer does not cover it (P7.7).
        self._asked.pop(row.ledger_id, None)
        if row.is_dropped:
            effects.append(self._hold_again(row))

    def finished(self) -> list[Effect]:
        """The entries that may go by now, in the order of the DROP records; each ledger once."""
        tokens = [each for each in self._queued if each <= self._replies.durable]
        effects: list[Effect] = []
        for ledger_id in [self._queued.pop(each) for each in tokens]:
            row = self._table.get(ledger_id)
            if row is not None and row.is_dropped:
                row.last_entry = NO_ENTRY  # What it holds from now on comes behind this, if it is held again.
                effects.append(DropEntries(ledger_id))
        return effects

    def _hold_again(self, row: AnyLedgerRow) -> JournalAppend:
        """Recovery brings entries of a dropped ledger."""
        row.is_dropped = 0
        self._limbo.enter(row.ledger_id)
        return self._records.append(row, RecordKind.LIMBO, HELD_AGAIN)
