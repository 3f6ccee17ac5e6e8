"""Which of the received requests is run next, and which is put off (METADATA.md, 5). Pure.

A member reads everything at once and runs requests in turns of the links, so that keep-alives never wait behind slow
requests and no client waits for another link's crowd. A request that it cannot run in time is put off at once (BUSY);
the answer names the bound that is full. A request that is repeated while it still waits takes one place.
"""

from __future__ import annotations

from collections import deque

from embedbk.codec.metadata_messages import BUSY, Refusal
from embedbk.metadata.vocabulary import LinkLost, RequestReceived

__all__ = ["REQUESTS_WAITING_MAX", "Intake"]

REQUESTS_WAITING_MAX = 4096  # Requests read and not run: a second or so of work.
LINK_SHARE = 4  # A link may have as many as this part of what is free of half of them,
LINK_LEAST = 2  # and so many in any case.


class Intake:
    """Requests that were read, by link. waiting_max: so many at once; None: REQUESTS_WAITING_MAX."""

    def __init__(self, waiting_max: int | None = None) -> None:
        self._waiting_max = waiting_max
        self._links: dict[int, deque[RequestReceived | LinkLost]] = {}  # In the order of their turns.
        self._waiting: set[tuple[int, int, int]] = set()
        self._count = 0

    def __len__(self) -> int:
        """How many turns are left."""
        return self._count

    def put(self, event: RequestReceived) -> Refusal | None:
        """Take a request in; returns why it is put off, if it is."""
        request = event.request
        key = (event.link, request.session, request.sequence)
        if request.session and key in self._waiting:  # Without a session, sequences identify nothing.
            return None
        of_link = len(self._links.get(event.link, ()))
        allowed = REQUESTS_WAITING_MAX if self._waiting_max is None else self._waiting_max
        share = max((allowed // 2 - self._count) // LINK_SHARE, LINK_LEAST)
        if self._count >= allowed or of_link >= share:
            text = (
                f"{self._count} requests wait for the metadata member, {of_link} of them on this link; allowed are "
                f"{allowed}, and now {share} on one link: try again later"
            )
            return Refusal(BUSY, text)
        self._add(event)
        if request.session:
            self._waiting.add(key)
        return None

    def end_link(self, event: LinkLost) -> None:
        """Queue the end of a link behind the requests that came over it."""
        self._add(event)

    def take(self, now_ns: int) -> RequestReceived | LinkLost | None:
        """The next request to run; None: none waits."""
        if not self._links:
            return None
        link = next(iter(self._links))
        queue = self._links.pop(link)
        event = queue.popleft()
        self._count -= 1
        if queue:
            self._links[link] = queue  # Behind the other links.
        if isinstance(event, RequestReceived):
            self._waiting.discard((link, event.request.session, event.request.sequence))
        event.now_ns = now_ns
        return event

    def _add(self, event: RequestReceived | LinkLost) -> None:
        self._links.setdefault(event.link, deque()).append(event)
        self._count += 1
