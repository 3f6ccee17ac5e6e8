"""When the next piece of a bookie's stored entries is read, to find damage (I55, ST36).

Decides the pace: so many bytes a second, one piece after the other, a pause between passes. Begins and finishes pieces
on the storage, and logs what was found. No clock of its own: the node that it belongs to brings the time and wakes at
its deadline.
"""

from __future__ import annotations

import logging

from embedbk.errors import StorageError
from embedbk.ports.durable_bookie import DurableBookie

__all__ = ["PIECE_BYTES", "ScrubPace"]

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20  # In one piece; a thread reads it, the loop does not wait.
START_NS = 60_000_000_000  # After the start: what starts has better things to read.
PASS_PAUSE_NS = 3_600_000_000_000  # Between passes, so that a small store is not read all the time.
_S = 1_000_000_000


class ScrubPace:
    """The pace of one bookie's scrubber; bytes_per_s 0 reads nothing, ever."""

    def __init__(
        self,
        name: str,
        storage: DurableBookie,
        bytes_per_s: int,
        *,
        start_ns: int = START_NS,
        pass_pause_ns: int = PASS_PAUSE_NS,
    ) -> None:
        self.damage_count = 0  # Found since the start; the same one once a pass.
        self.bytes_read = 0  # Since the start.
        self.passes = 0  # Since the start.
        self._name = name
        self._storage = storage
        self._bytes_per_s = bytes_per_s
        self._start_ns = start_ns
        self._pass_pause_ns = pass_pause_ns
        self._due_ns: int | None = None  # None while a piece is being read, or if nothing ever is.
        self._began_ns = 0
        self._has_begun = False

    @property
    def deadline_ns(self) -> int | None:
        return self._due_ns

    def step(self, now_ns: int) -> None:
        if not self._bytes_per_s:
            return
        if not self._has_begun:
            self._has_begun = True
            self._due_ns = now_ns + self._start_ns
        self._finish(now_ns)
        if self._due_ns is not None and now_ns >= self._due_ns:
            self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        self._began_ns = now_ns
        try:
            has_begun = self._storage.begin_scrub(PIECE_BYTES)
        except StorageError as refused:
            logger.warning("bookie %s: the scrubber waits: %s", self._name, refused)
            has_begun = False
        self._due_ns = None if has_begun else now_ns + self._pass_pause_ns
        self._finish(now_ns)  # Without threads it is read already.

    def _finish(self, now_ns: int) -> None:
        if self._due_ns is not None:
            return
        try:
            piece = self._storage.finish_scrub()
        except StorageError as refused:
            logger.warning("bookie %s: the scrubber waits: %s", self._name, refused)
            self._due_ns = now_ns + self._pass_pause_ns
            return
        if piece is None:
            return
        self.bytes_read += piece.bytes_read
        self.damage_count += len(piece.damages)
        for damage in piece.damages:
            whose = ""
            if damage.ledger_id is not None:
                whose = f"ledger {damage.ledger_id}, entries {damage.first_entry}..{damage.last_entry}: "
            logger.error(
                "bookie %s: %s at offset %d: %s%s; other bookies of the ensemble have copies",
                self._name,
                damage.path,
                damage.offset,
                whose,
                damage.what,
            )
        pause_ns = piece.bytes_read * _S // self._bytes_per_s
        if piece.is_pass_end:
            self.passes += 1
            pause_ns = max(pause_ns, self._pass_pause_ns)
        self._due_ns = self._began_ns + max(pause_ns, now_ns - self._began_ns)
