"""Requests that a bookie cannot take yet, because the write cache or the journal's queue has no room (RP34, P7.8).

Decides which requests wait, in which order, and which are refused: fences, reads and recovery adds pass the normal adds
and the durable LACs of idle writers, each of which costs a record: a part of cache and queue is never used for those.
Each of the two kinds keeps its order. So a fence overtakes adds of its ledger that wait: they were not accepted, and
find the flag when it is their turn (P3.4a, P5.2f). Beyond a bound of bytes an add is not kept but answered BUSY, which
is no failure of the bookie. Leaves to others: what room is (storage), answers (core/bookie.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from embedbk.codec.messages import is_lac_for_good, is_normal_add
from embedbk.ports.links import Received

__all__ = ["WAITING_BYTES_MAX", "WaitingRequests"]

WAITING_BYTES_MAX = 64 << 20  # The bound for normal adds, and the same for all others.
REQUEST_OVERHEAD_BYTES = 256  # Bytes that one request costs here beside its body.


class WaitingRequests:
    """has_room(is_urgent): whether a request can be carried out without waiting for a flush or a commit."""

    def __init__(self, has_room: Callable[[bool], bool], bytes_max: int = WAITING_BYTES_MAX) -> None:
        self.has_room = has_room
        self._bytes_max = bytes_max
        self._urgent: deque[Received] = deque()
        self._plain: deque[Received] = deque()
        self._bytes = {True: 0, False: 0}  # Keyed by whether it is a normal add.

    def __bool__(self) -> bool:
        return bool(self._plain or self._urgent)

    def may_pass(self, event: Received) -> bool:
        """Whether this request need not wait, neither for others nor for room."""
        if not self and self.has_room(False):
            return True
        return not self._urgent and _is_urgent(event.body) and self.has_room(True)

    def keep(self, event: Received) -> bool:
        """Queue the request for its turn. False: so much waits already that it is not kept."""
        is_add = is_normal_add(event.body)
        size = len(event.body) + REQUEST_OVERHEAD_BYTES
        if self._bytes[is_add] + size > self._bytes_max:
            return False
        self._bytes[is_add] += size
        (self._urgent if _is_urgent(event.body) else self._plain).append(event)
        return True

    def due(self) -> Iterator[Received]:
        """The requests whose turn it is; asks for room before each."""
        while self._urgent and self.has_room(True):
            yield self._next(self._urgent)
        while self._plain and not self._urgent and self.has_room(False):
            yield self._next(self._plain)

    def _next(self, queue: deque[Received]) -> Received:
        event = queue.popleft()
        self._bytes[is_normal_add(event.body)] -= len(event.body) + REQUEST_OVERHEAD_BYTES
        return event


def _is_urgent(body: bytes | memoryview) -> bool:
    return not is_normal_add(body) and not is_lac_for_good(body)
