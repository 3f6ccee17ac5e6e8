"""The ends of links that one ZeroMQ transport has: how they begin and end, what is sent on them, and their time.

Decides when a link is full, silent or over (P7.2). Leaves how bodies come in to `zmq_intake` and `zmq_turns`, and
connections without a link to `zmq_before_hello`. Nothing is sent twice or late: a dialled link takes its socket along.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import zmq

from embedbk.codec.kernels import gather
from embedbk.ports.links import Buffer, Identity, LinkDown, LinkUp, TransportEvent
from embedbk.transports.envelope import (
    CREDIT_BYTES,
    LINK_BYTES_MAX,
    Kind,
    encode_reason,
    envelope_prefix,
    seal,
)
from embedbk.transports.zmq_descriptors import shut_down, swallowed_bytes
from embedbk.transports.zmq_send import frame_address, send_frame, send_pieces
from embedbk.transports.zmq_sockets import LINKS_MAX, Link, Port, Sockets

__all__ = ["FRAME_BYTES_MIN", "TOTAL", "Counters", "Ends", "Patience", "bye"]

ZERO_COPY_BYTES_MIN = 64 << 10  # Below it a copy costs less than passing a reference through another thread.
FRAME_BYTES_MIN = (
    16 << 10
)  # A frame from here on is a part of its own; a shorter one is joined with what is before it.

UNFINISHED_BYTES_MAX = 2 * LINK_BYTES_MAX  # Since something whole was heard on a link; a body is half of it.

TOTAL = struct.Struct("<Q")  # The body of a PONG: bytes of bodies received.

# Plain numbers: ZeroMQ's enums cost more than what they are used for here.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)


@dataclass(slots=True)
class Counters:
    """What was dropped without an event, since the transport was opened."""

    garbage: int = 0  # Not one whole envelope of ours.
    stale: int = 0  # For a link that is no more, or under another nonce.
    refused: int = 0  # Hellos that were not answered with ours.
    silent: int = 0  # Connections that were hung up on because they said no Hello.


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a peer may be silent, in nanoseconds; as `ZmqTransport` takes them."""

    heartbeat_ns: int
    timeout_ns: int
    connect_timeout_ns: int

    @property
    def early_ns(self) -> int:
        """So much earlier a dialler asks along with another link: from then on both are due in one turn. A link that
        carries something more often than every five eighths of a heartbeat is never asked."""
        return self.heartbeat_ns * 3 // 8

    def ask_at_ns(self, link: Link) -> int:
        """When to ask for a sign of life. The dialler does: what it asks and the answer are signs for both ends, which
        would wake each other twice if both asked. An end that was dialled asks only where nothing came in time."""
        if link.route is None:
            return max(link.heard_ns, link.pinged_ns) + self.heartbeat_ns
        if link.pinged_ns > link.heard_ns:
            return link.pinged_ns + self.heartbeat_ns // 2
        return link.heard_ns + self.heartbeat_ns * 5 // 4


class Ends:
    """The links of one transport by number, the events of them, and the time as the host told it last.

    on_up, on_down: called for each link that begins or ends, before its event.
    """

    def __init__(
        self,
        sockets: Sockets,
        patience: Patience,
        window_bytes: int,
        on_up: Callable[[Link], None],
        on_down: Callable[[Link], None],
    ) -> None:
        self.links: dict[int, Link] = {}
        self.events: list[TransportEvent] = []
        self.counters = Counters()
        self.now_ns = 0
        self.due_ns: int | None = None
        self.window_bytes = window_bytes
        self.links_max = LINKS_MAX
        self.room_changed: dict[int, Link] = {}  # Links for which C does not know how much it may send.
        self._sockets = sockets
        self._patience = patience
        self._on_up = on_up
        self._on_down = on_down
        self._count = 0  # Ever; the number of the newest.

    @property
    def is_full(self) -> bool:
        return len(self.links) >= self.links_max

    def begin(self, port: Port, route: bytes | None, dialler_nonce: bytes) -> Link:
        self._count += 1
        link = self.links[self._count] = Link(self._count, port, route, dialler_nonce)
        return link

    def become_up(self, link: Link, listener_nonce: bytes, peer: Identity) -> None:
        link.become_up(listener_nonce, self.now_ns)
        self._on_up(link)
        self.due_ns = self.now_ns  # From now on its heartbeat counts, not the time it had for its Hello.
        self.events.append(LinkUp(link.number, peer))

    def forget(self, link: Link, reason: str) -> None:
        """The one place where a link ends. A dialled one takes its socket along, and so all that was queued."""
        if self.links.pop(link.number, None) is None:
            return
        link.is_up = False
        if link.route is None:
            self._sockets.hang_up(link.port)
        else:
            del link.port.routes[link.route]
            link.port.descriptors.pop(link.descriptor, None)
            self.room_changed.pop(link.number, None)
        self._on_down(link)
        self.events.append(LinkDown(link.number, reason))

    def break_off(self, link: Link, reason: str) -> None:
        """End a link from here. The peer learns why when it dialled; else it sees the connection end."""
        if link.route is not None:
            self.put(link, bye(link.dialler_nonce, link.listener_nonce, reason))
        self.forget(link, reason)

    def has_room(self, link: Link, size: int) -> bool:
        return link.sent_bytes - link.credited_bytes + size <= self.window_bytes

    def put_body(self, link: Link, pieces: Sequence[Buffer], size: int) -> bool:
        """As `put`, for a body that the window has room for."""
        port = link.port
        if size < FRAME_BYTES_MIN and port.sends_frames and type(pieces) is list:
            sent = send_pieces(port.address, link.data_prefix, pieces)
            if sent < 0:
                self.forget(link, "the peer's connection ended")
            elif sent:
                self._sockets.unsettled[port] = None
            return sent > 0
        envelope = seal(link.data_prefix, size)
        if size >= FRAME_BYTES_MIN and port.sends_frames:
            last = pieces[-1]
            address = frame_address(last) if len(last) >= FRAME_BYTES_MIN else 0
            if address:
                return self._put_frame(link, b"".join((envelope, *pieces[:-1])), address, len(last))
        return self.put(link, gather((envelope, *pieces)))

    def _put_frame(self, link: Link, head: bytes, address: int, size: int) -> bool:
        """As `put`, for a body that ends with a frame, which is not copied."""
        sent = send_frame(link.port.socket, head, address, size)
        if sent is None:
            self.forget(link, "the peer's connection ended")
        elif sent:
            self._sockets.unsettled[link.port] = None
        return bool(sent)

    def put(self, link: Link, block: Buffer) -> bool:
        """Queue one envelope with its body; False when there is no room, or no longer a peer."""
        port = link.port
        try:
            if link.route is not None:
                port.socket.send(link.route, _MORE)
            port.socket.send(block, _NOBLOCK, len(block) < ZERO_COPY_BYTES_MIN)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            self.forget(link, "the peer's connection ended")  # EHOSTUNREACH, by ROUTER_MANDATORY.
            return False
        self._sockets.unsettled[port] = None
        return True

    def say(self, link: Link, kind: Kind, body: bytes = b"") -> bool:
        return self.put(
            link, seal(envelope_prefix(kind, link.dialler_nonce, link.listener_nonce), len(body)) + body
        )

    def count_received(self, link: Link, size: int) -> None:
        link.received_bytes += size
        if link.received_bytes - link.reported_bytes >= CREDIT_BYTES:
            self.report(link)

    def report(self, link: Link) -> None:
        """Report that we are here and how much was received; without room, the next body or ping does."""
        if self.say(link, Kind.PONG, TOTAL.pack(link.received_bytes)):
            link.reported_bytes = link.received_bytes

    def excuse(self, blind_ns: int) -> None:
        """Excuse the peers for a time in which the host did not look (it was stopped, say)."""
        for link in self.links.values():
            link.heard_ns = min(self.now_ns, link.heard_ns + blind_ns)

    def keep_time(self) -> int:
        """Ping silent peers, end the links of dead ones; returns when to look again."""
        patience = self._patience
        now_ns, due_ns = self.now_ns, sys.maxsize
        for link in list(self.links.values()):
            if not link.is_up:
                if link.since_ns is None:
                    link.since_ns = now_ns
                if now_ns - link.since_ns >= patience.connect_timeout_ns:
                    self.forget(
                        link,
                        f"no Hello from {link.port.endpoint} in {patience.connect_timeout_ns // 10**6} ms",
                    )
                    continue
                due_ns = min(due_ns, link.since_ns + patience.connect_timeout_ns)
                continue
            if self._is_unfinished(link):
                self.break_off(
                    link, f"more than {UNFINISHED_BYTES_MAX} bytes came, and no body of them is whole"
                )
                shut_down(link.descriptor)
                continue
            if now_ns - link.heard_ns >= patience.timeout_ns and not link.port.has_backlog:
                self.break_off(link, f"nothing heard for {(now_ns - link.heard_ns) // 10**6} ms")
                continue
            early_ns = patience.early_ns if link.route is None else 0
            if now_ns >= patience.ask_at_ns(link) - early_ns:
                link.pinged_ns = now_ns
                self.say(link, Kind.PING)
            # Whom others ask in time is not woken for each of them to see that they did.
            look_ns = 0 if link.route is None else now_ns + patience.heartbeat_ns // 2
            due_ns = min(due_ns, max(look_ns, patience.ask_at_ns(link)))
            if not link.port.has_backlog:
                due_ns = min(due_ns, link.heard_ns + patience.timeout_ns)
        return due_ns

    def _is_unfinished(self, link: Link) -> bool:
        """Whether ZeroMQ gathers parts without end: what it takes in and does not hand out has no other bound (T10).
        Only a link that is quiet is looked at: of the others something whole was heard."""
        if self.now_ns - link.heard_ns < self._patience.heartbeat_ns:
            return False
        swallowed = swallowed_bytes(link.descriptor)
        if link.heard_ns != link.swallowed_ns or link.port.has_backlog or swallowed < link.swallowed_bytes:
            link.swallowed_ns, link.swallowed_bytes = link.heard_ns, swallowed
        return swallowed - link.swallowed_bytes > UNFINISHED_BYTES_MAX

    def close(self) -> None:
        self.links.clear()
        self.events.clear()
        self.room_changed.clear()
        self.due_ns = None


def bye(dialler_nonce: bytes, listener_nonce: bytes, reason: str) -> bytes:
    """The message that ends or refuses a link, with its envelope."""
    body = encode_reason(reason)
    return seal(envelope_prefix(Kind.BYE, dialler_nonce, listener_nonce), len(body)) + body
