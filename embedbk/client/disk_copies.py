"""Waiting until so many bookies hold an entry durably: more than its ack quorum, which every acknowledged entry has.

The handle is asked where the entry is by now, and bookies are asked who holds it, again and again with growing pauses.
Leaves to `core/entry_copies` whom to ask and what the answers amount to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embedbk.client.tickets import Ticket, acknowledged
from embedbk.client.waiting import Moved
from embedbk.core.entry_copies import CopiesKnown, CopiesQuery
from embedbk.errors import OperationTimeout, UsageError

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = ["wait_for_copies"]

_COPIES_PAUSE_S = 0.02  # Pause before bookies are asked again whether they hold an entry, doubled ...
_COPIES_PAUSE_S_MAX = 1.0  # ... up to this.


async def wait_for_copies(queued_in: Appending, entry_id: int, copies: int, timeout_s: float | None) -> int:
    """Wait until so many bookies hold the entry durably; return how many do, at least (`Ticket.at_least`).

    queued_in: the handle that took the entry, which may stand in a later ledger by now.
    """
    runtime = queued_in.runtime
    handle, moved = queued_in.now(entry_id)
    quorum = handle.writing.metadata.quorum
    if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies <= quorum.write_quorum:
        raise UsageError(f"copies={copies!r}: allowed are 1 to {quorum.write_quorum}, the write quorum")
    until_s = math.inf if timeout_s is None else runtime.clock_s() + timeout_s
    await acknowledged(queued_in, entry_id, timeout_s, is_synced=True)
    handle, moved = queued_in.now(entry_id)  # It is there for good.
    if copies <= quorum.ack_quorum:
        return quorum.ack_quorum
    what, pause_s = f"asking who holds entry {moved} of ledger {handle.ledger_id}", _COPIES_PAUSE_S
    while True:
        known: CopiesKnown = await runtime.run(CopiesQuery(handle.writing.metadata, moved, copies), what)
        if known.copies >= copies:
            return known.copies
        if known.is_below_level:
            raise UsageError(
                f"{what}: the cluster's level is too low to ask; {quorum.ack_quorum} copies are known",
                hint="embedbk quorum raise",
            )
        left_s = until_s - runtime.clock_s()
        if left_s <= 0:
            others = ", ".join(f"{name}: {why}" for name, why in sorted(known.others.items()))
            late = OperationTimeout(
                f"{what}: {max(known.copies, quorum.ack_quorum)} copies are known after {timeout_s:g} s, and "
                f"{copies} were asked for ({others})",
                hint="the entry is acknowledged; repair brings back copies that are lost",
            )
            late.ticket = Ticket(queued_in, entry_id)
            raise late
        await Moved(runtime.signal, lambda: runtime.is_ended, min(left_s, pause_s))
        runtime.check()
        pause_s = min(2 * pause_s, _COPIES_PAUSE_S_MAX)
