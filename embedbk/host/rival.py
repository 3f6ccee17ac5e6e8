"""Asks whether the process that a registration names is alive and not this one, before its place is taken (P7.9).

A process is alive that answers Hello where it is registered, with this identity and another number of its start. One
that accepts a connection and does not answer is stopped, or another program by now; one that is asked at its own
endpoint after a crash is this process itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.errors import UsageError
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport

__all__ = ["ANSWER_NS", "Rival"]

ANSWER_NS = 2_000_000_000  # From the asking to its Hello.


class Rival:
    """One question at a time, over links of the bookie's own transport."""

    def __init__(self, transport: Transport, bookie_id: str, incarnation: bytes, start: bytes) -> None:
        self.deadline_ns: int | None = None
        self._transport = transport
        self._bookie_id = bookie_id
        self._incarnation = incarnation
        self._start = start
        self._links: dict[int, None] = {}
        self._done: Callable[[int, bool], None] | None = None

    def ask(self, now_ns: int, endpoints: Sequence[str], done: Callable[[int, bool], None]) -> None:
        """done(now_ns, is_alive) follows once, unless another question comes first."""
        self._end_links()
        self._done = done
        for endpoint in endpoints:
            try:
                self._links[self._transport.connect(endpoint)] = None
            except UsageError:
                continue  # An address that this transport may not dial: no process answers there.
        self.deadline_ns = now_ns + ANSWER_NS if self._links else now_ns

    def step(self, now_ns: int) -> None:
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            self._answer(now_ns, is_alive=False)

    def is_asking_over(self, link: int) -> bool:
        return link in self._links

    def on_link_up(self, now_ns: int, link: int, peer: Identity) -> None:
        if (peer.node_id, peer.incarnation) == (
            self._bookie_id,
            self._incarnation,
        ) and peer.start != self._start:
            self._answer(now_ns, is_alive=True)
        else:
            self._end_link(now_ns, link)

    def on_link_down(self, now_ns: int, link: int) -> None:
        self._links.pop(link, None)
        if not self._links and self._done is not None:
            self._answer(now_ns, is_alive=False)

    def _end_link(self, now_ns: int, link: int) -> None:
        self._transport.drop(link, "asked who is there")
        self.on_link_down(now_ns, link)

    def _end_links(self) -> None:
        links, self._links = self._links, {}
        for link in links:
            self._transport.drop(link, "asked who is there")

    def _answer(self, now_ns: int, *, is_alive: bool) -> None:
        done, self._done, self.deadline_ns = self._done, None, None
        self._end_links()
        if done is not None:
            done(now_ns, is_alive)
