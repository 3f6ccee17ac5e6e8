"""One call that appends many entries: they are consecutive, in one ledger or, where that one fails, in the next (P3.1,
P8.2).

Queues what has room, waits, and goes on; other appends wait until all are queued, as the range is known by its first
id and its count alone. Leaves to the handle (`appending`) whether appends are taken at all, and to the packer whose
turn it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedbk.client.placed import Appended, in_parts, places
from embedbk.client.tickets import Ticket, raise_failed
from embedbk.client.waiting import Moved
from embedbk.codec.entry_records import RecordRun
from embedbk.codec.packing import Buffer
from embedbk.errors import EmbedbkError, OperationTimeout, ensure
from embedbk.host.writing import HandedOver
from embedbk.ids import Position

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = ["Items", "ManyAppend"]

Items = Sequence[Buffer] | RecordRun  # What one call appends as consecutive entries.
_next_caller = itertools.count(1).__next__  # Numbers the calls that append many.


class ManyAppend:
    """One such call, by its number: the packers that it meets keep its turn under that."""

    def __init__(self, handle: Appending, until_s: float) -> None:
        self._handle = handle
        self._until_s = until_s
        self._caller = _next_caller()

    async def queue(self, items: Items) -> Appended:
        """Queue all items, waiting for room. Items after a refused one, and the rest when the handle fails or the time
        is over half-way, are not queued."""
        try:
            return await self._queue_all(self._handle, items)
        finally:
            handle = self._handle
            handle.writing.packer.give_up_rest(self._caller)
            while handle.heir is not None:
                handle = handle.heir.appending
                handle.writing.packer.give_up_rest(self._caller)

    async def _queue_all(self, handle: Appending, items: Items, *, has_begun: bool = False) -> Appended:
        """has_begun: a part of this call is queued in a ledger before, so that this one waits for the rest."""
        first, done = handle.try_append_many(items, self._caller, has_begun=has_begun)
        while done < len(items):
            if handle.runtime.clock_s() >= self._until_s:
                late = OperationTimeout(
                    f"{handle.what}: no room in time for {len(items) - done} of {len(items)} appends, which were not "
                    "queued; those before them may survive",
                    definite=done == 0,
                    hint="as many bytes are in flight as are allowed: ask the ticket of the last one queued",
                )
                late.ticket = Ticket(handle, first + done - 1) if done else None
                raise late
            await handle.room()
            try:
                begin, taken = handle.try_append_many(
                    items[done:], self._caller, has_begun=has_begun or done > 0
                )
            except HandedOver:
                if not done:
                    raise
                return await self._queue_rest(
                    handle, items, Appended(handle.ledger_id, first, first + done - 1)
                )
            except EmbedbkError as stopped:
                if done:  # Entries queued before may survive.
                    stopped.definite, stopped.ticket = False, Ticket(handle, first + done - 1)
                raise
            first = begin if done == 0 else first
            ensure(begin == first + done or not taken, "another call's entry came between those of one call")
            done += taken
        return Appended(handle.ledger_id, first, first + done - 1)

    async def _queue_rest(self, handle: Appending, items: Items, queued: Appended) -> Appended:
        """The ledger failed after the first of these items, which move to the next one: queue the others behind them,
        with no other call's entries in between (P3.1). Where that one fails as well, before it has room for any of
        them, they go behind the first ones in the one that follows it: this call began, and is not made again."""
        rest: Appended | None = None
        failed, left = handle, items[queued.entry_count :]
        try:
            while rest is None:
                following = await self._next_behind(failed, queued.entry_count, len(items))
                if following is None:
                    last, entry_id = handle.now(queued.last_entry)
                    raise_failed(last, entry_id)
                try:
                    rest = await self._queue_all(following, left, has_begun=True)
                except HandedOver:
                    failed = following
        except EmbedbkError as stopped:
            stopped.definite = False
            stopped.ticket = stopped.ticket or Ticket(handle, queued.last_entry)
            raise
        before = places(handle, queued)
        is_behind = rest.first == Position(before[-1].ledger_id, before[-1].last_entry + 1)
        ensure(is_behind or rest.first.entry_id == 0, "another call's entry came between those of one call")
        return in_parts([*before, *rest.parts])

    async def _next_behind(self, failed: Appending, queued: int, asked: int) -> Appending | None:
        """The handle that takes the place of one that failed; None: none does."""
        writing, until_s = failed.writing, self._until_s
        left_s = None if until_s == math.inf else max(0.0, until_s - failed.runtime.clock_s())
        if not await Moved(writing.signal, lambda: writing.error is not None, left_s):
            raise OperationTimeout(
                f"{failed.what}: no next ledger in time for {asked - queued} of {asked} appends, which were not "
                "queued; those before them may survive",
                hint="ask the ticket of the last one queued",
            )
        return None if failed.heir is None else failed.heir.appending
