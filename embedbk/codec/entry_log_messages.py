"""What a bookie has on disk: its entry logs, and the ledgers that keep one (WIRE.md section 3)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.bookie_fields import (
    Count,
    Incarnation,
    LedgerId,
    Status,
)
from embedbk.ids import LEDGER_ID_MAX

__all__ = [
    "ENTRY_LOGS_MAX",
    "LAST_LOG_ID",
    "LOG_KEEPERS_MAX",
    "EntryLogsRequest",
    "EntryLogRow",
    "EntryLogsAnswer",
    "LogKeepersRequest",
    "LogKeeperRow",
    "LogKeepersAnswer",
]

ENTRY_LOGS_MAX = 1_024  # In one answer.
LOG_KEEPERS_MAX = 4_096  # Likewise.
LAST_LOG_ID = 2**32 - 1


class EntryLogsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Which entry logs are here, of those with higher ids than `after`? From LEVEL_OF_ENTRY_LOGS on."""

    incarnation: Incarnation
    after: Annotated[int, msgspec.Meta(ge=-1, le=LAST_LOG_ID)] = -1


class EntryLogRow(msgspec.Struct, frozen=True, array_like=True):
    """One entry log: the number of its ledger directory, what it takes on disk, and how much of that still counts."""

    log_id: Annotated[int, msgspec.Meta(ge=0, le=LAST_LOG_ID)]
    directory: Count
    file_bytes: Count
    entries_bytes: Count
    live_bytes: Count
    is_damaged: bool = False


class EntryLogsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The next entry logs, by ascending id; has_more: others come behind them."""

    status: Status
    logs: Annotated[list[EntryLogRow], msgspec.Meta(max_length=ENTRY_LOGS_MAX)] = []
    has_more: bool = False


class LogKeepersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Which ledgers, of those with higher ids than `after`, keep this entry log? From LEVEL_OF_KEEPERS on."""

    incarnation: Incarnation
    log_id: Annotated[int, msgspec.Meta(ge=0, le=LAST_LOG_ID)]
    after: Annotated[int, msgspec.Meta(ge=-1, le=LEDGER_ID_MAX)] = -1


class LogKeeperRow(msgspec.Struct, frozen=True, array_like=True):
    """What of one ledger still counts in an entry log."""

    ledger_id: LedgerId
    live_entries: Count
    live_bytes: Count


class LogKeepersAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The next of those ledgers, by ascending id; has_more: others may come behind them. None: the log is not there any
    more, or nothing of it counts."""

    status: Status
    log_id: Annotated[int, msgspec.Meta(ge=0, le=LAST_LOG_ID)] = 0
    keepers: Annotated[list[LogKeeperRow], msgspec.Meta(max_length=LOG_KEEPERS_MAX)] = []
    has_more: bool = False
