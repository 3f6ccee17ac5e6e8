"""What is said of links: who the other end is, that one is up or down, and what came over it."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Identity", "LinkDown", "LinkUp", "Received", "TransportEvent"]

Buffer = bytes | bytearray | memoryview


class Identity(Struct, frozen=True):
    """What a peer says of itself in Hello (P7.2). cluster_token is empty for a peer that has not learnt it yet."""

    role: str  # "bookie", "metadata" or "client"
    node_id: str
    incarnation: bytes  # 16 bytes: disk incarnation of a bookie or member, random per start for a client.
    cluster_token: bytes
    # Random number of a bookie's or member's start, by which two that claim one identity are told apart (P7.9).
    start: bytes = b""
    # The newest level that its build knows, sent along with its start (P10.8); 0: not sent.
    level: int = 0


class LinkUp(Struct, frozen=True):
    """Hello was exchanged both ways; bodies may be sent. `link` numbers are never re-used by one transport."""

    link: int
    peer: Identity


WRONG_INCARNATION = "wrong incarnation"  # How the reason begins where a peer is not the one that was dialled.


class LinkDown(Struct, frozen=True):
    """The link is gone, with everything that was on its way; nothing will be sent again by the transport."""

    link: int
    reason: str

    def is_of_other_disk(self, node_id: str) -> bool:
        """Whether it ended because this node has another incarnation than the one that was dialled (P4.6, P7.2)."""
        return self.reason.startswith(WRONG_INCARNATION) and f", found {node_id}/" in self.reason


class Received(Struct, frozen=True):
    """One body, whole, as its sender gave it. The memoryview stays valid as long as it is referenced."""

    link: int
    body: memoryview


TransportEvent = LinkUp | LinkDown | Received
