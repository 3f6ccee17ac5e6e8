"""The same names as the blocking face, awaited: `async with embedbk.aio.open("./data") as bk: ...`.

Each object belongs to no event loop: it may be made anywhere and used in whichever loop runs. A call that opens
something may be awaited, or entered at once: `async with bk.log("orders").writer() as orders: ...`.
"""

from __future__ import annotations

from embedbk.aio.client import Client, open  # noqa: A004  # As `embedbk.open`.
from embedbk.aio.cursors import Consumer, Cursor
from embedbk.aio.lock import Lock
from embedbk.aio.log import Log
from embedbk.aio.readers import LedgerReader, LogReader
from embedbk.aio.writers import LedgerWriter, LogWriter

__all__ = [
    "Client",
    "Consumer",
    "Cursor",
    "LedgerReader",
    "LedgerWriter",
    "Lock",
    "Log",
    "LogReader",
    "LogWriter",
    "open",
]
