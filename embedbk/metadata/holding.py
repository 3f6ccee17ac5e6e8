"""Requests that come while there is no leader, kept until there is one (METADATA.md, 6). Pure.

A client that gets the answer that no member leads sleeps before it asks again, also when one leads meanwhile. So a
member that lost its leader just now keeps requests for a while: it runs them if it is elected itself, and answers with
the new leader's name as soon as it knows it. Decides how much is kept, and how long; the Raft decides whether a leader
is to be expected.
"""

from __future__ import annotations

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.metadata.vocabulary import RequestReceived

__all__ = ["HELD_BYTES_MAX", "HELD_MAX", "HELD_OF_LINK_MAX", "HOLD_NS", "Holding"]

HOLD_NS = 500_000_000  # From a link's first request on. Its client leaves a member that is silent for twice as long.
HELD_MAX = 4096  # Requests kept.
HELD_OF_LINK_MAX = 256  # The requests that a session may have under way, and its renewal.
HELD_BYTES_MAX = 16 << 20  # Bytes of values in kept requests.
LINKS_AT_ONCE = 64  # Links answered in one turn: a thousand clients must not reach the next leader at once.


class Holding:
    """The kept requests of one member."""

    def __init__(self) -> None:
        self._links: dict[int, list[RequestReceived]] = {}  # In the order in which they came.
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, link: int) -> bool:
        """Whether a new request on this link must wait behind kept ones."""
        return link in self._links

    def put(self, event: RequestReceived) -> bool:
        """Keep a request; False: there is no room for it."""
        of_link, size = self._links.get(event.link, []), _bytes(event)
        if self._count >= HELD_MAX or len(of_link) >= HELD_OF_LINK_MAX or self._bytes + size > HELD_BYTES_MAX:
            return False
        self._links.setdefault(event.link, of_link).append(event)
        self._count += 1
        self._bytes += size
        return True

    def end_link(self, link: int) -> list[RequestReceived]:
        """Take the kept requests of this link."""
        events = self._links.pop(link, [])
        self._count -= len(events)
        self._bytes -= sum(map(_bytes, events))
        return events

    def due_ns(self) -> int | None:
        """When the next link is to be answered at the latest, with or without a leader."""
        first = next(iter(self._links.values()), None)
        return first[0].now_ns + HOLD_NS if first is not None else None

    def take(self, now_ns: int, *, is_over: bool) -> list[list[RequestReceived]]:
        """Take the requests of some links whose time is over; with is_over of any links, since no leader is expected
        now."""
        due = [
            link for link, events in self._links.items() if is_over or now_ns >= events[0].now_ns + HOLD_NS
        ]
        return [self.end_link(link) for link in due[:LINKS_AT_ONCE]]


def _bytes(event: RequestReceived) -> int:
    operation = event.request.operation
    if not isinstance(operation, Txn):
        return 0
    return sum(len(each.value) for each in operation.then if isinstance(each, Put))
