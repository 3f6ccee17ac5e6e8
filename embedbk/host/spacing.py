"""A bookie's space in its place: measures, steps `core/space.py`, and notifies the bookie (P7.8).

Decides nothing. Whether a write found no room is asked in every turn, free space now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from embedbk.core.bookie_words import WritableSet
from embedbk.core.machine import Event
from embedbk.core.space import UNKEPT_METADATA, Space, SpaceOptions
from embedbk.core.upkeep_words import MetadataDoubted, OperatorAsked, RetryWrites, SetWritable, SpaceSeen
from embedbk.errors import StorageError
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.repeating import Repeating

__all__ = ["Spacing"]

logger = logging.getLogger(__name__)


class Spacing:
    """free_bytes: on the bookie's device; None where not known."""

    def __init__(
        self,
        bookie_id: str,
        options: SpaceOptions,
        storage: DurableBookie,
        free_bytes: Callable[[], int] | None,
        tell_bookie: Callable[[Event], None],
    ) -> None:
        self.core = Space(options)
        self._bookie_id = bookie_id
        self._storage = storage
        self._free_bytes = free_bytes
        self._tell_bookie = tell_bookie
        self._was_refused = False
        self._is_warned = False  # The warning of low space was logged.
        self._unkept = ""  # Why it cannot be kept which metadata was met.
        self._has_word = False  # An operator's, as it was last seen on disk.
        self._unread = Repeating(logger, logging.ERROR)
        self._unmeasured = Repeating(logger)
        self._unwritten = Repeating(logger, logging.ERROR)

    def set_read_only(self, now_ns: int, is_read_only: bool) -> None:
        """Set by an operator, until an operator changes it."""
        self._step(OperatorAsked(now_ns, is_read_only))

    def set_doubted(self, now_ns: int, is_older: bool, unkept: str) -> None:
        """Whether the metadata is older than what this bookie met; why it cannot be kept which one that is."""
        self._unkept = unkept
        self._step(MetadataDoubted(now_ns, is_older, bool(unkept)))

    def why(self) -> str:
        """Why no normal adds are taken, for people; empty: they are."""
        return ", ".join(
            f"{each} ({self._unkept})" if each is UNKEPT_METADATA else each for each in self.core.reasons
        )

    def step(self, now_ns: int) -> None:
        is_refused = self._storage.is_full()
        due_ns = self.core.deadline_ns
        is_due = due_ns is None or now_ns >= due_ns
        if is_due or is_refused != self._was_refused:
            self._was_refused = is_refused
            free_bytes = self.free_now()
            self._warn_early(free_bytes)
            self._step(SpaceSeen(now_ns, free_bytes, is_refused, is_due))
            if is_due:
                self._storage.look_at_directories()
                self._look_for_word(now_ns)

    def _warn_early(self, free_bytes: int | None) -> None:
        """While there is time to make room; once, until there is more again."""
        low = self.core.options.low_bytes
        if free_bytes is None or not self.core.is_writable:
            return
        if free_bytes >= 4 * low:
            self._is_warned = False
        elif free_bytes < 2 * low and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "bookie %s has %d free bytes left; below %d it takes no new entries: make room or expand it",
                self._bookie_id,
                free_bytes,
                low,
            )

    def _look_for_word(self, now_ns: int) -> None:
        """The read-only marker may have come or gone; one that cannot be read changes nothing."""
        try:
            reason = self._storage.read_only_reason()
        except StorageError as unread:
            self._unread.met(f"bookie {self._bookie_id}: {unread}")
            return
        self._unread.ended(f"bookie {self._bookie_id}: whether an operator said something can be told again")
        if (reason is not None) != self._has_word:
            self._has_word = reason is not None
            if reason:
                logger.warning("bookie %s: an operator says: %s", self._bookie_id, reason)
            self._step(OperatorAsked(now_ns, self._has_word))

    def deadline_ns(self) -> int | None:
        # Free space is not known and nothing was refused: nothing to look at.
        return self.core.deadline_ns if self._free_bytes is not None or self._was_refused else None

    def free_now(self) -> int | None:
        if self._free_bytes is None:
            return None
        try:
            free = self._free_bytes()
        except OSError as failed:
            self._unmeasured.met(f"bookie {self._bookie_id} cannot tell its free space: {failed}")
            return None
        self._unmeasured.ended(f"bookie {self._bookie_id} can tell its free space again")
        return free

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            if isinstance(effect, SetWritable):
                why = self.why()
                said = f"is read-only: {why}" if why else "is writable again"
                facts = "; ".join(
                    each for each in (f"free bytes: {self.free_now()}", self._storage.why_full()) if each
                )
                logger.warning("bookie %s %s (%s)", self._bookie_id, said, facts)
                self._tell_bookie(WritableSet(event.now_ns, effect.is_writable))
            else:
                assert isinstance(effect, RetryWrites)
                try:
                    self._storage.retry_flush()
                except StorageError as failed:
                    self._unwritten.met(f"bookie {self._bookie_id}: {failed}", "retry")
                else:
                    self._unwritten.ended(f"bookie {self._bookie_id}: a flush is tried again")
