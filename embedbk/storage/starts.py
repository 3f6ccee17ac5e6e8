"""The number of a start of its directories: a count and a random number, which tell copies apart (P7.9).

Decides what a start knows of the ones before it. Leaves to others: where the count is kept (identity.py), and what
follows from a count that is lower than the cluster's, or from another random number under one count
(host/registering.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from embedbk.ids import START_ID_BYTES

__all__ = ["NEVER_STARTED", "STARTS_KEPT", "StartCount", "Starts"]

# Starts whose numbers are kept: so often may a bookie start, and end before it reached metadata, until it cannot tell
# its own last entry there from that of a copy.
STARTS_KEPT = 64


@dataclass(frozen=True, slots=True)
class StartCount:
    """The count that is kept. recent: numbers of the starts up to `count`, the newest last; older ones are
    forgotten."""

    count: int = 0
    recent: tuple[bytes, ...] = ()

    def after(self, start_id: bytes, *, above: int = 0) -> StartCount:
        """The count with one start more, whose number is above both the last one and `above`."""
        if above > self.count:  # The starts in between were another's.
            return StartCount(above + 1, (start_id,))
        return StartCount(self.count + 1, (*self.recent, start_id)[-STARTS_KEPT:])

    def has(self, count: int, start_id: bytes) -> bool:
        """Whether these directories remember that start as theirs."""
        place = count - (self.count - len(self.recent)) - 1
        return 0 <= place < len(self.recent) and self.recent[place] == start_id


NEVER_STARTED = StartCount()


class Starts:
    """The start of one process, counted durably when this is made.

    Args:
        before: what was kept.
        keep: makes what is given durable.
        start_id: of a simulation, in which every run is the same; else random.
    """

    def __init__(
        self, before: StartCount, keep: Callable[[StartCount], None], start_id: bytes | None = None
    ) -> None:
        self.id = os.urandom(START_ID_BYTES) if start_id is None else start_id
        self._keep = keep
        self.kept = before.after(self.id)
        # 64 bits that no other start has, but by chance: of numbers that mean nothing behind this start (P11.4).
        own = self.kept.count.to_bytes(8, "little") + self.id
        self.seed = int.from_bytes(hashlib.blake2b(own, digest_size=8).digest(), "little")
        keep(self.kept)

    @property
    def count(self) -> int:
        return self.kept.count

    def has(self, count: int, start_id: bytes) -> bool:
        return self.kept.has(count, start_id)

    def pass_by(self, count: int) -> None:
        """Count this start above one that these directories know nothing of; durable when this returns.

        Raises:
            StorageError: it cannot be written.
        """
        if count < self.kept.count:
            return
        kept = self.kept.after(self.id, above=count)
        self._keep(kept)
        self.kept = kept
