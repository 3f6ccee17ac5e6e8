"""Which ledgers a scrub of what is new passes over: those that were closed before a time (SCRUB.md).

Metadata has no time at which a ledger was closed. A log's list has times behind the end of its older ledgers
(`core/truncation.py`), and they alone prove that one was closed before. Whatever proves nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from embedbk.client.log_checking import listed_ledgers
from embedbk.client.log_identity import find
from embedbk.client.runtime import Runtime
from embedbk.core.truncation import ended_ms
from embedbk.errors import NoSuchLedger, StorageError

__all__ = ["closed_before"]


async def closed_before(runtime: Runtime, logs: Iterable[str], since_ms: int, what: str) -> set[int]:
    """Ledgers of these logs of which a list says that they ended before this time. A list that cannot be read to its
    end proves as much as was read of it."""
    found: set[int] = set()
    now_ms = runtime.wall_ms()
    for name in logs:
        try:
            log_id = await find(runtime, name)
            segments = () if log_id is None else tuple((await listed_ledgers(runtime, log_id, what)).segments)
        except (NoSuchLedger, StorageError):
            continue  # It was deleted meanwhile, or what its name leads to cannot be read, and proves nothing.
        for index, segment in enumerate(segments):
            ended = ended_ms(segments, index, now_ms)
            if segment.last_entry is not None and ended is not None and ended < since_ms:
                found.add(segment.ledger_id)
    return found
