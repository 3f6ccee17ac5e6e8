"""Requests that a bookie cannot take yet, because the write cache or the journal's queue has no room (RP34, P7.8).

Decides who waits, behind whom, and who is sent away: fences, reads and what recovery brings pass the normal adds, for
which a part of both is never used; each of the two kinds keeps its order. So a fence overtakes adds of its ledger that
wait: they were not accepted, and find the flag when it is their turn (P3.4a, P5.2f). Beyond a bound of bytes an add is
not kept but answered BUSY, which says nothing of the bookie's life. Leaves to others: what room is (storage), answers
(core/bookie.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from embedbk.codec.messages import is_normal_add
from embedbk.ports import Received

__all__ = ["WAITING_BYTES_MAX", "Waiting"]

WAITING_BYTES_MAX = 64 << 20  # Of each of the two kinds.
REQUEST_OVERHEAD_BYTES = 256  # What one costs here beside its body.


class Waiting:
    """has_room(is_urgent): whether a request can be carried out without waiting for a flush or a commit."""

    def __init__(self, has_room: Callable[[bool], bool], bytes_max: int = WAITING_BYTES_MAX) -> None:
        self.has_room = has_room
        self._bytes_max = bytes_max
        self._urgent: deque[Received] = deque()
        self._adds: deque[Received] = deque()
        self._bytes = {True: 0, False: 0}

    def __bool__(self) -> bool:
        return bool(self._adds or self._urgent)

    def may_pass(self, event: Received) -> bool:
        """Whether nothing that waits, and no want of room, is in this request's way."""
        if not self and self.has_room(False):
            return True
        return not self._urgent and not is_normal_add(event.body) and self.has_room(True)

    def keep(self, event: Received) -> bool:
        """Let it wait for its turn. False: so much waits already that it is not kept."""
        is_urgent = not is_normal_add(event.body)
        size = len(event.body) + REQUEST_OVERHEAD_BYTES
        if self._bytes[is_urgent] + size > self._bytes_max:
            return False
        self._bytes[is_urgent] += size
        (self._urgent if is_urgent else self._adds).append(event)
        return True

    def due(self) -> Iterator[Received]:
        """Those whose turn it is; asks for room before each."""
        while self._urgent and self.has_room(True):
            yield self._next(self._urgent, True)
        while self._adds and not self._urgent and self.has_room(False):
            yield self._next(self._adds, False)

    def _next(self, queue: deque[Received], is_urgent: bool) -> Received:
        event = queue.popleft()
        self._bytes[is_urgent] -= len(event.body) + REQUEST_OVERHEAD_BYTES
        return event
