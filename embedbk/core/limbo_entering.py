"""How ledgers enter limbo when a bookie may have lost entries (P7.3, P7.4, I32).

Decides which ledgers are fenced, which are in limbo and which count as dropped, by what metadata lists, and queues the
records. Leaves to the bookie when that is due, and that nothing is served before these records are durable.
"""

from __future__ import annotations

from embedbk.codec.journal_records import LIMBO_BEGINS, RecordKind
from embedbk.core.bookie_words import LimboListed
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.limbo import gone_of
from embedbk.core.limbo_search import LimboSearch
from embedbk.core.machine import Effect
from embedbk.core.record_tokens import RecordTokens

__all__ = ["enter_limbo"]


def enter_limbo(
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
