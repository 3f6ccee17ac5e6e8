"""What a bookie says of its storage to people: which entry logs it has, what keeps them, which ledgers it holds.

Values made of what the storage says, a page in each answer. No promise hangs on them, so no core decides on them.
"""

from __future__ import annotations

import heapq

from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import (
    ENTRY_LOGS_MAX,
    LOG_KEEPERS_MAX,
    EntryLogRow,
    EntryLogsAnswer,
    LogKeeperRow,
    LogKeepersAnswer,
)
from embedbk.codec.quorum_messages import HELD_IDS_MAX, AskHeld, HeldTold
from embedbk.core.bookie_words import TellKeepers, TellLogs
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.ports.durable_bookie import DurableBookie

__all__ = ["held_told", "keepers_told", "logs_told"]


def logs_told(storage: DurableBookie, asked: TellLogs) -> EntryLogsAnswer:
    """The entry logs behind the one that was named."""
    found = [
        EntryLogRow(
            each.log_id,
            each.directory,
            each.file_bytes,
            each.entries_bytes,
            each.live_bytes,
            each.is_damaged,
        )
        for each in storage.log_facts()
        if each.log_id > asked.after
    ]
    return EntryLogsAnswer(Status.OK, found[:ENTRY_LOGS_MAX], len(found) > ENTRY_LOGS_MAX)


def keepers_told(storage: DurableBookie, asked: TellKeepers) -> LogKeepersAnswer:
    """The ledgers that keep an entry log, behind the one that was named."""
    found = storage.log_keepers(asked.log_id, asked.after, LOG_KEEPERS_MAX)
    rows = [LogKeeperRow(*each) for each in found]
    return LogKeepersAnswer(Status.OK, asked.log_id, rows, len(rows) == LOG_KEEPERS_MAX)


def held_told(bookie_id: str, table: AnyLedgerTable, asked: AskHeld) -> HeldTold:
    """The ledgers of a range that the bookie holds; one that was dropped is held no more (P7.7)."""
    within = (each for each in table.ids() if asked.first <= each < asked.end)
    found = heapq.nsmallest(HELD_IDS_MAX + 1, within)
    rows = ((each, table.get(each)) for each in found[:HELD_IDS_MAX])
    held = [each for each, row in rows if row is not None and not row.is_dropped]
    return HeldTold(bookie_id, held, found[HELD_IDS_MAX] if len(found) > HELD_IDS_MAX else 0)
