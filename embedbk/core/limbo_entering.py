"""How ledgers enter limbo when a bookie may have lost entries (P7.3, P7.4, I32).

Decides which ledgers are fenced, which are in limbo and which count as dropped, by what metadata lists, queues the
records, and decides that nothing is served before these are durable. Leaves to others when metadata is asked
(`host/limbo.py`), and what is answered meanwhile (`core/bookie.py`).

    may have lost ── listed, records queued ──▶ entering ── the last of them is durable ──▶ serving
          ▲      '────────────────────── listed, nothing to queue ─────────────────────────▶  │
          '────────────────────────────────── a loss is found ────────────────────────────────'
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.journal_records import LIMBO_BEGINS, RecordKind
from embedbk.core.bookie_words import LimboListed
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.limbo import gone_of
from embedbk.core.limbo_search import LimboSearch
from embedbk.core.machine import Effect
from embedbk.core.pending_replies import PendingReplies
from embedbk.core.record_tokens import RecordTokens
from embedbk.errors import StorageError

__all__ = ["LimboEntering"]


class LimboEntering:
    """Whether a bookie serves, and the record that it waits for before."""

    __slots__ = ("_limbo", "_records", "_replies", "_table", "is_serving", "token")

    def __init__(
        self,
        table: AnyLedgerTable,
        records: RecordTokens,
        replies: PendingReplies,
        limbo: LimboSearch,
        *,
        may_have_lost: bool,
    ) -> None:
        self._table = table
        self._records = records
        self._replies = replies
        self._limbo = limbo
        self.is_serving = not may_have_lost
        self.token: int | None = None  # While not serving: the last record that limbo waits for.

    def getstate(self) -> dict[str, Any]:
        """The state for digests, without what is the bookie's."""
        return {"is_serving": self.is_serving, "token": self.token}

    def on_listed(self, event: LimboListed) -> list[Effect]:
        """Put the listed ledgers into limbo before anything is served (I32)."""
        if self.is_serving or self.token is not None or self._replies.failure is not None:
            return []
        effects: list[Effect] = []
        try:
            _enter_limbo(event, self._table, self._records, self._limbo, effects)
        except StorageError as full:
            self._replies.failure = f"not every ledger could be put into limbo: {full}"
            return effects
        if effects:
            self.token = self._records.next_token - 1
        else:
            self.is_serving = True
        return effects

    def on_durable(self) -> None:
        """More records are durable."""
        if self.token is not None and self.token <= self._replies.durable:
            self.token, self.is_serving = None, True

    def on_loss(self) -> None:
        """Serve nothing from now on until limbo is durable: as after a start that knew of the loss."""
        self.is_serving, self.token = False, None


def _enter_limbo(
    listed: LimboListed,
    table: AnyLedgerTable,
    records: RecordTokens,
    limbo: LimboSearch,
    effects: list[Effect],
) -> None:
    """Every such ledger is fenced and in limbo, with or without a local trace (I32). The records are added to the
    effects.

    A closed one is only fenced again. (W is paused; recovery fenced b1 b2 and closed; b2 loses all it had: with its
    fence forgotten, b2 and b3 would acknowledge W's next entry, which is beyond the end for ever.) Every other one
    with a trace here is fenced too: the closing change may have taken this bookie out of its only fragment. Without
    a trace, a closed one of others is as a dropped one: fenced, in limbo, no data (P7.3), an id in a range. So is
    one that is gone. (W is paused; recovery fenced all seats and closed its ledger empty, whose key was then
    deleted; b2 forgets its fence, and W's next entry would be acknowledged.) One that a lost future made is in
    limbo, with a trace or without: no listing says whether it named this bookie. (b1 and b2 acknowledged e0, b1 is
    gone, b2 forgets e0: an adoption of the ledger would get "no" from b2 and b3, and end it before e0.)

    Raises:
        StorageError: the table took no further ledger; what is in the effects was done before.
    """
    named = [*listed.not_closed, *listed.closed]
    others = sorted(set(table.ids()) - set(named))
    told = listed.told
    for number, ledger_id in enumerate([*named, *others]):
        row = table.get(ledger_id) or table.create(ledger_id, from_reserve=True)
        if not row.is_fenced:
            row.is_fenced = 1
            effects.append(records.append(row, RecordKind.FENCE, table.key(row) or b""))
        is_owed = number < len(listed.not_closed) or (
            number >= len(named) and told is not None and told.is_spared(ledger_id)
        )
        if not row.in_limbo and is_owed:
            row.in_limbo = 1
            limbo.enter(ledger_id)
            effects.append(records.append(row, RecordKind.LIMBO, LIMBO_BEGINS))
    for ledger_id in listed.elsewhere:
        if table.get(ledger_id) is None:
            row = table.create(ledger_id, from_reserve=True)
            row.is_fenced = row.in_limbo = row.is_dropped = 1
            effects.append(records.append(row, RecordKind.DROP, b""))
    if told is not None:
        known = {*named, *listed.elsewhere, *listed.open_elsewhere, *table.ids()}
        for first, last in gone_of(told, known, table.ranges()):
            effects.append(records.drop_range(first, last))
