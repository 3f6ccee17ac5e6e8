"""When the next slice of a bookie's lost indexes is looked through (ST38, ST13).

Decides the pace: so many bytes a second from the start on, one slice after the other, and what is taken in of it before
the next one. Begins and finishes slices on the storage, and logs how it ended. No clock of its own: the node that it
belongs to brings the time and wakes at its deadline.
"""

from __future__ import annotations

import logging

from embedbk.errors import StorageError
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.upkeep import RebuildLeft
from embedbk.repeating import Repeating

__all__ = ["BYTES_PER_S", "SLICE_BYTES", "RebuildPace"]

logger = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20  # A thread reads them; the loop does not wait.
# Four times the scrubber's: what is dark is missed by readers. Clients come first all the same.
BYTES_PER_S = 32 << 20
RETRY_NS = 2_000_000_000  # Memory, or a descriptor, was refused.
_S = 1_000_000_000


class RebuildPace:
    """The pace at which one bookie's lost indexes are made again; it ends when nothing is left."""

    def __init__(
        self,
        name: str,
        storage: DurableBookie,
        *,
        bytes_per_s: int = BYTES_PER_S,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        self.left = RebuildLeft(0, 0)  # As the start found it.
        self.bytes_read = 0  # Looked through since the start.
        self.whole_logs = self.dark_logs = 0  # That were looked through to their end.
        self._name = name
        self._storage = storage
        self._bytes_per_s = bytes_per_s
        self._slice_bytes = slice_bytes
        self._due_ns: int | None = None  # None while a thread reads, or if nothing is left.
        self._start_ns = self._began_ns = 0
        self._has_begun = self._is_running = False
        self._refusals = Repeating(logger)

    @property
    def deadline_ns(self) -> int | None:
        return self._due_ns

    @property
    def is_looking(self) -> bool:
        """Whether anything is left that it reads, or takes in, as far as it knows."""
        return not self._has_begun or self._is_running or self._due_ns is not None

    @property
    def dark_count(self) -> int:
        """Entry logs that may hold something that is not found: looked through in vain, or not yet to their end."""
        return self.left.logs - self.whole_logs

    def step(self, now_ns: int) -> None:
        if not self._has_begun:
            self._begin(now_ns)
        if self._is_running:
            self._finish(now_ns)
        if not self._is_running and self._due_ns is not None and now_ns >= self._due_ns:
            self._read(now_ns)

    def _begin(self, now_ns: int) -> None:
        self._has_begun = True
        self._start_ns = now_ns
        self.left = self._storage.rebuild_left()
        if not self.left.logs:
            return
        self._due_ns = now_ns
        logger.warning(
            "bookie %s: of %d entry logs no index is whole; %d bytes of their entries are looked through while it "
            "serves, and what stands there is unreadable until then",
            self._name,
            *self.left,
        )

    def _read(self, now_ns: int) -> None:
        self._began_ns = now_ns
        try:
            has_begun = self._storage.begin_rebuild(self._slice_bytes)
        except StorageError as refused:
            self._wait(now_ns, refused)
            return
        self._due_ns = None
        if not has_begun:
            self._end(now_ns)
            return
        self._is_running = True
        self._finish(now_ns)  # Without threads it is read already.

    def _finish(self, now_ns: int) -> None:
        try:
            piece = self._storage.finish_rebuild()
        except StorageError as refused:
            self._wait(now_ns, refused)
            return
        if piece is None:
            return
        self._refusals.ended(f"bookie {self._name}: entries are looked for again")
        if piece.has_more:
            self._due_ns = now_ns  # Requests come between two parts of what was found.
            return
        self._is_running = False
        self.bytes_read += piece.bytes_read
        if piece.is_log_over:
            self.whole_logs += piece.is_whole
            self.dark_logs += not piece.is_whole
        pause_ns = piece.bytes_read * _S // self._bytes_per_s
        self._due_ns = max(now_ns, self._began_ns + pause_ns)

    def _wait(self, now_ns: int, refused: StorageError) -> None:
        """Nothing is lost by a refusal: the same slice, or what is left to be taken in of it, comes once more."""
        self._refusals.met(f"bookie {self._name}: entries wait to be looked for: {refused}")
        self._is_running = False
        self._due_ns = now_ns + RETRY_NS

    def _end(self, now_ns: int) -> None:
        logger.warning(
            "bookie %s looked through %d bytes of %d entry logs: %d are whole again, %d keep something that nobody can "
            "read (%.1f s)",
            self._name,
            self.bytes_read,
            self.left.logs,
            self.whole_logs,
            self.dark_logs,
            (now_ns - self._start_ns) / _S,
        )
