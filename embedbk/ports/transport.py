"""How bodies travel between identified peers, as a host sees it; `embedbk.transports` has ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from embedbk.codec.answers_twin import Counting
from embedbk.ports.add_path import AddPath, WaitEnd, WaitTerms
from embedbk.ports.adds import AddSending
from embedbk.ports.links import Buffer, Identity, TransportEvent

__all__ = ["Transport"]


class Transport(Protocol):
    """Carries bodies between identified peers over links; all calls from the host's thread.

    A link delivers bodies in order, each at most once, or goes down. After a reconnect it is another link with
    another nonce; nothing of the old one is delivered or sent again.

    `offer`, `wait`, `count` and `listen_for` only save work: a derived class need not have them.
    """

    def listen(self, endpoint: str) -> str:
        """Accept links; returns the endpoint with the port or path that was bound.

        Raises UsageError when the address is in use, is not loopback without being allowed, or is not understood.
        """
        ...

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        """Begin a link; LinkUp or LinkDown follows. expect: refuse (LinkDown) a peer with another node_id or
        incarnation (empty fields are not compared). A link that goes down is not dialled again by the transport.

        Raises UsageError: the endpoint is not allowed, or no link or descriptor is left; later there may be."""
        ...

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        """Send the pieces as one body. False: the link's queue is full or the link is down, and nothing was sent.
        The pieces are borrowed only during the call unless the transport keeps its own reference to them."""
        ...

    def has_room(self, link: int, size: int) -> bool:
        """Whether `send` would take a body of so many bytes now; False for a link that is down. When there is
        room again, the host is woken, or finds it at its next look."""
        ...

    def drop(self, link: int, reason: str) -> None:
        """End a link (a peer that breaks the protocol); LinkDown follows here, and the peer is informed if possible."""
        ...

    def offer(self, add_path: AddPath | None) -> None:
        """Offer the bodies of links that were accepted to this add path first; what it takes is no event. For the next
        `receive` only. A transport need not: then all of them are events."""
        return

    def wait(self, terms: WaitTerms) -> WaitEnd | None:
        """Wait in the host's place for anything but common adds, which are taken and, once durable, answered meanwhile.
        Call it after an empty `receive`, and only while the add path would be offered. Returns None: not here, or not
        now; the host waits by itself."""
        return None

    def count(self, answers: Counting) -> None:
        """Offer the bodies of links that were dialled to this first, from now on; what it takes is no event. A
        transport need not: then all of them are events, which their host offers."""
        return

    def listen_for(self, filenos: Sequence[int], until_ns: int, untold_ns: int) -> Sequence[int] | None:
        """Wait in the host's place for anything but answers that are counted and no news, as `Counting` has it; no
        longer than untold_ns from when one is untold. Behind `deadline_ns`, while nothing but `count` is offered.

        filenos: of all on the loop; the same object while they are the same. Returns those of others that are ready;
        in all cases the next `receive` returns what came. Returns None: not here, or not now; the host waits by
        itself."""
        return None

    def adds(self) -> AddSending | None:
        """What sends frames of a writing handle and counts their answers while `listen_for` waits. None: not here, or
        not yet. Once it is not None it stays the same object."""
        return None

    def receive(self, now_ns: int) -> list[TransportEvent]:
        """What happened since the last call, in order; also does what is due by time (heartbeats, timeouts)."""
        ...

    def has_events(self) -> bool:
        """Whether `receive` would give something that is here already, which no descriptor may show. Costs
        nothing; check it before waiting."""
        ...

    def deadline_ns(self) -> int | None:
        """When `receive` must be called again even if nothing arrives."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors that become readable when `receive` has something to do, the same from open to close; empty for
        simulated transports."""
        ...

    def close(self) -> None: ...
