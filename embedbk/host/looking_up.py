"""What a bookie's core looks up in its storage: entries, counts, and numbers of blocks.

Decides when a lookup is made: for a reader when its link and its class have their turn (reading.py), one by one, so
that what the one before it found is sent and counts; all others at once. Where memory is refused for one it is made
again a little later. Leaves to others: what is asked and what follows from it (core/bookie.py), what a failed storage
means (bookie_node.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from embedbk.core.bookie_words import (
    BlocksNumbered,
    CountEntries,
    EntriesCounted,
    EntriesRead,
    NumberBlocks,
    ReadEntries,
)
from embedbk.errors import StorageError
from embedbk.host.reading import WaitingReads, looked_up, nothing_found
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.entry_store import MemoryRefused

__all__ = ["LookingUp"]

logger = logging.getLogger(__name__)

# The pause before a link without room is looked at again, where no event reports room.
READ_AGAIN_NS = 2_000_000


class LookingUp:
    """The lookups of one bookie; each outcome is an event for its core.

    waiting: those for readers that were not made yet. on_failed: told that the storage cannot be read, and why; the
    empty outcome follows.
    """

    def __init__(
        self,
        bookie_id: str,
        storage: DurableBookie,
        waiting: WaitingReads,
        on_failed: Callable[[int, str], None],
    ) -> None:
        self.waiting = waiting
        self.deadline_ns: int | None = None  # When the next of those that wait can be made.
        self._bookie_id = bookie_id
        self._storage = storage
        self._on_failed = on_failed
        self._from_ns = 0  # Memory was refused for one: the next is made then.

    def read(self, now_ns: int, effect: ReadEntries) -> EntriesRead | None:
        """None: it waits for its turn."""
        if effect.link is None:
            return self._make(now_ns, effect)
        self.waiting.add(effect)
        return None

    def count(self, now_ns: int, effect: CountEntries) -> EntriesCounted:
        asked = (effect.ledger_id, effect.first_entry, effect.last_entry, effect.modulus, effect.residues)
        try:
            held = self._storage.held(*asked, effect.cuts, effect.wants)
        except StorageError as failed:  # Nothing is lost by it: the count is not known just now.
            logger.warning("bookie %s cannot count what it holds: %s", self._bookie_id, failed)
            held = None
        told = (None, [], []) if held is None else (held.count, held.lacking, held.digests)
        return EntriesCounted(now_ns, effect.read_id, *told)

    def number(self, now_ns: int, effect: NumberBlocks) -> BlocksNumbered:
        blocks = [(each.first_ledger, each.mask) for each in effect.blocks]
        return BlocksNumbered(now_ns, effect.read_id, *self._storage.block_numbers(blocks))

    def make_next(self, now_ns: int) -> EntriesRead | None:
        """Make one of those that wait; None: the turn of none has come."""
        read = None if now_ns < self._from_ns else self.waiting.next()
        return None if read is None else self._make(now_ns, read)

    def end_turn(self, now_ns: int) -> None:
        """What still waits may go on in the next turn: at once, or when there may be room."""
        self.deadline_ns = None
        if self.waiting:
            can_go_on = now_ns >= self._from_ns and self.waiting.has_more()
            self.deadline_ns = now_ns if can_go_on else now_ns + READ_AGAIN_NS

    def end_link(self, now_ns: int, link: int) -> Iterator[EntriesRead]:
        """No reader waits for them any more; the core has noted them, and is to hear of their end."""
        for effect in self.waiting.end_link(link):
            found, others = nothing_found(effect)
            yield EntriesRead(now_ns, effect.read_id, *found, others)

    def _make(self, now_ns: int, effect: ReadEntries) -> EntriesRead | None:
        """None: it waits to be made again."""
        try:
            found, others = looked_up(self._storage, effect)
        except MemoryRefused as refused:
            # Nothing is broken, and nothing is known: it is made again. No outcome is given, as an empty one would mean
            # that the copy cannot be read.
            if not self._from_ns:
                logger.warning("bookie %s reads nothing just now: %s", self._bookie_id, refused)
            self._from_ns = self.deadline_ns = now_ns + READ_AGAIN_NS
            self.waiting.put_back(effect)
            return None
        except StorageError as failed:
            self._on_failed(now_ns, str(failed))  # Before the empty outcome: nothing is concluded from that.
            found, others = nothing_found(effect)
        self._from_ns = 0
        frames = [found[0], *(each[0] for each in others if each is not None)]
        if size := sum(len(frame.body) for frame in frames if frame is not None):
            self.waiting.found(effect, size)
        return EntriesRead(now_ns, effect.read_id, *found, others)
