"""What comes in on the sockets of a ZeroMQ transport, part by part, in Python: bodies, control, and what should not be.

Decides what each part is and what it does to its link; what is none of ours is dropped and counted, or ends the link,
and never raises to the host (T10). Where `zmq_turns` takes common bodies in C, only the others come here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import zmq

from embedbk.codec.kernels import crc32c, gather
from embedbk.errors import PeerError
from embedbk.ports.links import Received
from embedbk.transports.envelope import (
    ENVELOPE_BYTES,
    LINK_BYTES_MAX,
    Envelope,
    Hello,
    Kind,
    decode_envelope,
    decode_hello,
    decode_reason,
    encode_hello,
    foreign_nonces,
    objection,
    stranger,
)
from embedbk.transports.zmq_accepted import HeldPart, skip_parts
from embedbk.transports.zmq_before_hello import BeforeHello
from embedbk.transports.zmq_descriptors import NO_DESCRIPTOR, descriptor_of
from embedbk.transports.zmq_ends import TOTAL, Ends, bye
from embedbk.transports.zmq_sockets import READABLE, WRITABLE, Link, Port, Sockets, state

__all__ = ["BODIES_PER_RECEIVE_MAX", "BYTES_PER_RECEIVE_MAX", "ZmqIntake"]

BODIES_PER_RECEIVE_MAX = 1024  # Taken by one call of `receive`, so that other nodes do not starve.
BYTES_PER_RECEIVE_MAX = 32 << 20

_SEALED = struct.Struct("<24sII")  # Prefix as a whole, length, checksum.
_CHECKED_BYTES = ENVELOPE_BYTES - 4

# Plain numbers: ZeroMQ's enums cost more than what they are used for here.
_NOBLOCK, _RCVMORE = int(zmq.NOBLOCK), int(zmq.RCVMORE)


class ZmqIntake:
    """The intake of one transport. hello: what this node sends as its Hello."""

    def __init__(
        self, sockets: Sockets, ends: Ends, before_hello: BeforeHello, hello: Callable[[], Hello]
    ) -> None:
        # What the last wait in C ended with, for the next `receive`: port, route and part.
        self.held: tuple[Port, bytes, HeldPart] | None = None
        self._sockets = sockets
        self._ends = ends
        self._before_hello = before_hello
        self._hello = hello

    def drain(self, port: Port, count: int, size: int) -> None:
        """count, size: what was taken already."""
        while port.is_open:
            # In a burst the next one is most likely there: trying costs less than asking.
            ready = state(port.socket) if count < 2 else READABLE
            link = port.dialled
            if ready & WRITABLE and link is not None and not link.has_greeted:
                link.has_greeted = True  # Writable for the first time: ZeroMQ's connection stands.
                self._ends.say(link, Kind.HELLO, encode_hello(self._hello()))
            if not ready & READABLE:
                break
            if count >= BODIES_PER_RECEIVE_MAX or size >= BYTES_PER_RECEIVE_MAX:
                port.has_backlog = True
                self._sockets.unsettled[port] = None
                break
            try:
                route = port.socket.recv(_NOBLOCK) if port.is_listening else b""
                part = self._with_tail(port, port.socket.recv(_NOBLOCK, False))
            except zmq.Again:
                break
            size += self.on_part(port, route, part)
            count += 1

    def on_part(self, port: Port, route: bytes, part: zmq.Frame | HeldPart) -> int:
        """One part from a connection; returns its size. The first branch is the path of nearly everything."""
        link = port.routes.get(route) if port.is_listening else port.dialled
        block = part.buffer
        size = len(block)
        if part.more:
            self._skip_parts(port, link)
        elif link is not None and link.is_up and size >= ENVELOPE_BYTES:
            prefix, length, crc = _SEALED.unpack_from(block)
            if (
                prefix == link.data_prefix
                and length == size - ENVELOPE_BYTES
                and crc == crc32c(block[:_CHECKED_BYTES])
            ):
                link.heard_ns = self._ends.now_ns
                self._ends.count_received(link, length)
                self._ends.events.append(Received(link.number, block[ENVELOPE_BYTES:]))
            else:
                self._on_block(port, route, link, block, part)
        else:
            self._on_block(port, route, link, block, part)
        return size

    @staticmethod
    def _with_tail(port: Port, part: zmq.Frame) -> zmq.Frame | HeldPart:
        """The part, joined with the second one where there is one."""
        if not part.more:
            return part
        tail = port.socket.recv(_NOBLOCK, False)
        if len(part.buffer) + len(tail.buffer) > LINK_BYTES_MAX:
            return HeldPart(part.buffer, True, NO_DESCRIPTOR)  # Never joined.
        joined = memoryview(gather((part.buffer, tail.buffer)))
        return HeldPart(joined, tail.more, descriptor_of(part) if port.is_listening else NO_DESCRIPTOR)

    def _skip_parts(self, port: Port, link: Link | None) -> None:
        """A body has one part or two, together as long as one may be. The rest is taken part by part and never joined,
        however many there are (T10)."""
        if port.socket.getsockopt(_RCVMORE) and not skip_parts(port.socket):
            while port.socket.getsockopt(_RCVMORE):
                port.socket.recv(_NOBLOCK, False)
        self._ends.counters.garbage += 1
        if link is not None:
            self._ends.break_off(link, "the peer sent a body in too many parts, or too long a one")

    def _on_block(
        self, port: Port, route: bytes, link: Link | None, block: memoryview, part: zmq.Frame | HeldPart
    ) -> None:
        """Handle everything but a sound body: control, and what should not be."""
        try:
            envelope = decode_envelope(block)
            if link is None:
                self._before_hello.hear(port, route, envelope, part)
            elif envelope.dialler_nonce != link.dialler_nonce or not self._is_listeners(link, envelope):
                self._ends.counters.stale += 1
            else:
                self._on_control(link, envelope)
        except PeerError as error:
            self._ends.counters.garbage += 1
            if link is not None:
                self._ends.break_off(link, str(error))
            elif (nonces := foreign_nonces(block)) is not None:
                self._before_hello.answer(port, route, bye(*nonces, str(error)))

    @staticmethod
    def _is_listeners(link: Link, envelope: Envelope) -> bool:
        """Whether the listener's nonce is right; while we dial it is not known yet."""
        return not link.is_up or envelope.listener_nonce == link.listener_nonce

    def _on_control(self, link: Link, envelope: Envelope) -> None:
        """Raises PeerError for what a peer may not send now."""
        link.heard_ns = self._ends.now_ns
        kind, body = envelope.kind, envelope.body
        if kind == Kind.BYE:
            said = decode_reason(body)
            self._ends.forget(link, f"the peer ended the link: {said}" if link.is_up else f"refused: {said}")
        elif kind == Kind.HELLO_ACK and not link.is_up:
            self._on_hello_ack(link, envelope)
        elif kind == Kind.PING and link.is_up:
            self._ends.report(link)
        elif kind == Kind.PONG and link.is_up and len(body) == TOTAL.size:
            total = TOTAL.unpack(body)[0]
            if not link.credited_bytes <= total <= link.sent_bytes:
                raise PeerError(f"the peer says it received {total} of {link.sent_bytes} bytes")
            link.credited_bytes = total
            if link.route is not None:
                self._ends.room_changed[link.number] = link
        else:
            raise PeerError(f"kind {kind} with {len(body)} bytes has no place on this link now")

    def _on_hello_ack(self, link: Link, envelope: Envelope) -> None:
        peer = decode_hello(envelope.body)
        why = objection(self._hello(), peer) or stranger(link.expect, peer.identity)
        if why is not None:
            self._ends.forget(link, why)
            return
        self._ends.become_up(link, envelope.listener_nonce, peer.identity)
