"""embedbk: a replicated, fenced, durable log inside your process, or across a few.

    import embedbk

    with embedbk.open("./data") as bk:
        with bk.log("orders").writer() as orders:
            orders.append(b"hello")
        for entry in bk.log("orders").read():
            print(entry.position, bytes(entry))

`embedbk.aio` has the same names, awaited. Names are loaded when they are first used, so that tools start quickly.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedbk import aio, replicated, spark
    from embedbk.client.batches import Batch, Entry, Segment
    from embedbk.client.bookie_reports import BookieReport
    from embedbk.client.bookie_states import BookieState
    from embedbk.client.bulk import Bulk, LogReader
    from embedbk.client.client import Client
    from embedbk.client.consumer import Consumer, Cursor
    from embedbk.client.cursors import CursorState
    from embedbk.client.deleting import DeletedLedger
    from embedbk.client.diagnosis import doctor
    from embedbk.client.explaining import Explanation
    from embedbk.client.handles import HandleState
    from embedbk.client.ledger import LedgerReader, LedgerWriter
    from embedbk.client.locking import Holder, Lock
    from embedbk.client.log import Log
    from embedbk.client.log_deleting import DeletedLog
    from embedbk.client.log_settings import LogSettings
    from embedbk.client.log_writer import LogWriter
    from embedbk.client.opening import open_client as open  # noqa: A004  The face's own `open`, used as embedbk.open.
    from embedbk.client.placed import Appended
    from embedbk.client.sealing import Seal
    from embedbk.client.splicing import SpliceOutcome, Staging
    from embedbk.client.tickets import Fate, Ticket
    from embedbk.client.truncating import LogPin, Truncation
    from embedbk.client.undeleting import Undeletion
    from embedbk.codec.entry_records import EntryRecord
    from embedbk.config import Placement, Roll, Settings
    from embedbk.errors import (
        AppendConflict,
        ArchiveUnreadable,
        CursorLost,
        EmbedbkError,
        EntryUnreadable,
        InvariantError,
        LedgerClosed,
        LedgerFenced,
        LockLost,
        LogAtBound,
        LogExists,
        LogFull,
        LogSealed,
        Lost,
        MetadataConflict,
        MetadataUnavailable,
        NoSuchCursor,
        NoSuchEntry,
        NoSuchLedger,
        NotEnoughBookies,
        NotFreed,
        NotTruncated,
        OperationTimeout,
        PeerError,
        RecoveryInconclusive,
        StaleEpoch,
        StorageError,
        Truncated,
        UsageError,
        WrongPassword,
    )
    from embedbk.guards import EpochGuard, FileGuard, SqlGuard
    from embedbk.ids import NO_ENTRY, NO_POSITION, Position
    from embedbk.repair.stopping import StopVerdict

__all__ = [
    "NO_ENTRY",
    "NO_POSITION",
    "AppendConflict",
    "Appended",
    "ArchiveUnreadable",
    "Batch",
    "BookieReport",
    "BookieState",
    "Bulk",
    "Client",
    "Consumer",
    "Cursor",
    "CursorLost",
    "CursorState",
    "DeletedLedger",
    "DeletedLog",
    "EmbedbkError",
    "Entry",
    "EntryRecord",
    "EntryUnreadable",
    "EpochGuard",
    "Fate",
    "FileGuard",
    "HandleState",
    "Explanation",
    "InvariantError",
    "LedgerClosed",
    "LedgerFenced",
    "LedgerReader",
    "LedgerWriter",
    "Log",
    "LockLost",
    "Lock",
    "Holder",
    "LogAtBound",
    "LogExists",
    "LogFull",
    "LogPin",
    "LogReader",
    "LogSealed",
    "LogSettings",
    "LogWriter",
    "Lost",
    "MetadataConflict",
    "MetadataUnavailable",
    "NoSuchCursor",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotEnoughBookies",
    "NotFreed",
    "NotTruncated",
    "OperationTimeout",
    "PeerError",
    "Position",
    "RecoveryInconclusive",
    "Segment",
    "Placement",
    "Roll",
    "Seal",
    "SpliceOutcome",
    "Staging",
    "Settings",
    "SqlGuard",
    "StaleEpoch",
    "StopVerdict",
    "StorageError",
    "Ticket",
    "Truncated",
    "Truncation",
    "Undeletion",
    "UsageError",
    "WrongPassword",
    "aio",
    "doctor",
    "open",
    "replicated",
    "spark",
]

# Where each public name stands; under another name there where a third word says so.
_PLACES = """
aio aio
client.placed Appended
client.tickets Fate Ticket
client.bulk Bulk LogReader
client.client Client
client.opening open=open_client
config Placement Roll Settings
client.diagnosis doctor
errors EmbedbkError EntryUnreadable InvariantError LedgerClosed LedgerFenced MetadataConflict MetadataUnavailable
errors NoSuchEntry NoSuchLedger NotEnoughBookies OperationTimeout PeerError RecoveryInconclusive StorageError
errors AppendConflict CursorLost LockLost LogFull NoSuchCursor NotTruncated StaleEpoch Truncated UsageError
errors ArchiveUnreadable LogAtBound LogExists LogSealed Lost NotFreed WrongPassword
guards EpochGuard FileGuard SqlGuard
ids NO_ENTRY NO_POSITION Position
client.ledger LedgerReader LedgerWriter
client.locking Holder Lock
client.log Log
client.log_writer LogWriter
client.log_deleting DeletedLog
client.log_settings LogSettings
client.sealing Seal
client.splicing SpliceOutcome Staging
client.truncating LogPin Truncation
client.undeleting Undeletion
client.consumer Consumer Cursor
client.cursors CursorState
client.deleting DeletedLedger
client.explaining Explanation
client.handles HandleState
client.bookie_states BookieState
client.bookie_reports BookieReport
repair.stopping StopVerdict
client.batches Batch Entry Segment
codec.entry_records EntryRecord
replicated replicated
spark spark
"""

_PLACE_OF = {
    name: (f"embedbk.{module}", actual or name)
    for module, *names in (line.split() for line in _PLACES.split("\n") if line)
    for name, _, actual in (word.partition("=") for word in names)
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    place = _PLACE_OF.get(name)
    if place is None:
        raise AttributeError(f"module 'embedbk' has no attribute {name!r}")
    module = importlib.import_module(place[0])
    is_module = place == (f"embedbk.{name}", name)
    value = module if is_module else getattr(module, place[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
