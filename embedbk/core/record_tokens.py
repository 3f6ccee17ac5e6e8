"""Records that a bookie queues for its journal, each under its token.

The journal numbers its records in the order in which they come. This counts with it, so that a core knows the token of
a record in the step that queues it, and lets answers wait for that token. One place gives tokens out, and notes in the
row of a ledger which one was its last (P5.2f, P7.7).
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.frame import Frame
from embedbk.codec.journal_records import RecordKind, encode_gone
from embedbk.core.bookie_words import JournalAppend, StoreFrame
from embedbk.core.ledger_table import AnyLedgerRow, AnyLedgerTable
from embedbk.core.machine import Effect
from embedbk.errors import ensure

__all__ = ["RecordTokens"]


class RecordTokens:
    """The next token, and the records that take one."""

    __slots__ = ("_table", "next_token")

    def __init__(self, table: AnyLedgerTable, next_token: int) -> None:
        self._table = table
        self.next_token = next_token  # The journal numbers its records the same way.

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without the table, which is the bookie's."""
        return {"next_token": self.next_token}

    def store(self, row: AnyLedgerRow, frame: Frame) -> StoreFrame:
        row.last_entry = max(row.last_entry, frame.last_entry)
        row.last_token = self._take_token(row)
        return StoreFrame(row.last_token, frame)

    def append(self, row: AnyLedgerRow, kind: RecordKind, body: bytes) -> JournalAppend:
        row.last_token = self._take_token(row)
        return JournalAppend(row.last_token, kind, row.ledger_id, body)

    def row_with_key(
        self, ledger_id: int, key: bytes | None, *, from_reserve: bool
    ) -> tuple[AnyLedgerRow, list[Effect]]:
        """The ledger's row, its key bound; the birth is queued before anything of it can be acknowledged (P3.2). key
        None: no key is bound, and the ledger is born without one, as by a fence."""
        known = self._table.get(ledger_id)
        row = known or self._table.create(ledger_id, from_reserve=from_reserve)
        if key is None:
            return row, [self.append(row, RecordKind.BIRTH, b"")] if known is None else []
        if self._table.key(row) is not None:
            return row, []
        self._table.set_key(row, key)
        return row, [self.append(row, RecordKind.BIRTH, key)]

    def drop_range(self, first: int, last: int) -> JournalAppend:
        """Drop all ledgers from first to last, of which none has a row."""
        self._table.drop_range(first, last)
        token = self.next_token
        self.next_token += 1
        return JournalAppend(token, RecordKind.GONE, first, encode_gone(last))

    def take_taken(self, next_token: int) -> None:
        """Others queued records meanwhile: the next one gets this token."""
        ensure(next_token >= self.next_token, "journal tokens never fall")
        self.next_token = next_token

    def _take_token(self, row: AnyLedgerRow) -> int:
        self._table.mark_dirty(row)
        token = self.next_token
        self.next_token += 1
        return token
