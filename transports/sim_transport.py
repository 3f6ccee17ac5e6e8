"""A node on a simulated network: its Transport, and the links that end there (sim.py moves what is on them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from embedbk.codec.answers_twin import Counting
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ports.adds import AddSending
from embedbk.ports.links import Buffer, Identity, Received, TransportEvent
from embedbk.ports.transport import Transport
from embedbk.transports.envelope import Hello

if TYPE_CHECKING:
    from embedbk.transports.sim import SimNetwork

__all__ = ["Arrival", "LinkEnds", "SimTransport"]


class LinkEnds:
    """Both ends of one link, and what is on its way in each direction (side 0: the dialler)."""

    def __init__(self, ends: tuple[SimTransport, SimTransport | None]) -> None:
        self.ends = ends
        self.names = [end.place if end is not None else "" for end in ends]
        self.numbers = [0, 0]  # The numbers by which each end knows it.
        self.is_up = [False, False]  # Each end's own view.
        self.is_over = [False, False]
        self.arrival_ns = [0, 0]  # Latest arrival of what keeps its order, by the side that it leads to.
        self.queued_bytes = [0, 0]  # On the way to that side and not received there.
        # Behind a partition until it heals, in the order of sending: (order, late_ns, what).
        self.held: list[list[tuple[int, int, Arrival]]] = [[], []]
        self.silent_since: list[int | None] = [None, None]  # Since when nothing can reach that side.

    def node(self, side: int) -> str:
        return self.names[side]


@dataclass(slots=True)
class Arrival:
    """Something that reaches one end of a link."""

    link: LinkEnds
    side: int  # The end that it reaches.
    what: Callable[[], None] | None = None  # Hello and its answers, the peer's goodbye.
    body: bytes = b""
    is_counted: bool = False  # Its bytes stand in queued_bytes: true of one copy only.


class SimTransport(Transport):
    """A node's Transport (embedbk.ports) on a SimNetwork. `deadline_ns` is due as soon as it has events."""

    def __init__(
        self, network: SimNetwork, identity: Identity, protocols: tuple[int, int], place: str
    ) -> None:
        self.identity = identity
        self.place = place
        self._network = network
        self._protocols = protocols
        self.links: dict[int, tuple[LinkEnds, int]] = {}  # With the side of it that is ours.
        self._link_count = 0
        self.inbox: list[TransportEvent] = []
        self.counted: list[tuple[LinkEnds, int, int]] = []  # What `receive` gives back to the windows.
        self.is_open = True
        self._answers: Counting | None = None
        self._adds: AddSending | None = None

    def listen(self, endpoint: str) -> str:
        self._check_open()
        return self._network.listen(endpoint, self)

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        self._check_open()
        link = self._network.connect(endpoint, self, expect)
        link.numbers[0] = self.add_link(link, 0)
        return link.numbers[0]

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        found, side = self.links.get(link, (None, 0))
        if found is None or not found.is_up[side]:
            return False
        body = b"".join(pieces)
        if len(body) > MESSAGE_BYTES_MAX:
            raise UsageError(f"body has {len(body)} bytes; a link carries at most {MESSAGE_BYTES_MAX}")
        return self._network.send(found, side, body)

    # Adds that are sent from C.

    def count(self, answers: Counting) -> None:
        """Bodies are events all the same, which the host offers; adds sent from C need to know where answers count."""
        self._answers = answers

    def adds(self) -> AddSending | None:
        if self._adds is None and self._network.has_adds and self._answers is not None:
            # With the native module, which few worlds need.
            from embedbk.codec.answers import Answers
            from embedbk.transports.sim_adds import SimLinks

            assert isinstance(self._answers, Answers), "what is sent from C is counted there"
            self._adds = SimLinks(self._answers, self._rooms_of, self._carry, self._wake)
        return self._adds

    def _rooms_of(self, link: int) -> tuple[int, int] | None:
        found, side = self.links.get(link, (None, 0))
        return self._network.rooms(found, side) if found is not None and found.is_up[side] else None

    def _carry(self, link: int, body: bytes) -> bool:
        found, side = self.links[link]
        if self._network.on_add_sent is not None:
            self._network.on_add_sent(found.node(side), found.node(1 - side), body)
        return self._network.send(found, side, body)

    def _wake(self) -> None:
        network, name = self._network, self.place
        network.at(network.now_ns, lambda: network.ready.setdefault(name))

    def has_room(self, link: int, size: int) -> bool:
        found, side = self.links.get(link, (None, 0))
        return found is not None and found.is_up[side] and self._network.has_room(found, side, size)

    def drop(self, link: int, reason: str) -> None:
        found, side = self.links.get(link, (None, 0))
        if found is None:
            return
        self.inbox = [event for event in self.inbox if event.link != link or not isinstance(event, Received)]
        self._network.end(found, side, reason, f"the peer ended the link: {reason}", 0)

    def receive(self, now_ns: int) -> list[TransportEvent]:
        """Return what has arrived by the network's own time, whatever time the caller passes."""
        for link, side, size in self.counted:
            link.queued_bytes[side] -= size
        self.counted.clear()
        events, self.inbox = self.inbox, []
        return events

    def has_events(self) -> bool:
        return bool(self.inbox)

    def deadline_ns(self) -> int | None:
        return self._network.now_ns if self.inbox else None

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None:
        if self.is_open:
            self._network.remove(self, "the peer closed", 0)

    def tell(self, event: TransportEvent) -> None:
        self.inbox.append(event)
        self._network.ready[self.place] = None

    def add_link(self, link: LinkEnds, side: int) -> int:
        self._link_count += 1
        self.links[self._link_count] = (link, side)
        return self._link_count

    def _check_open(self) -> None:
        if not self.is_open:
            raise UsageError(f"the transport of {self.place} is closed or crashed")

    def hello(self) -> Hello:
        return Hello(self.identity, self._protocols)
