"""Connections before Hello: those of a ZeroMQ transport that have no link, from the moment they are accepted, or their
link ends, until they send Hello.

Decides which of them gets a link (P7.2, as `envelope` objects), and which has sent nothing for too long or is one too
many (T11). A connection without a link never receives more than it sent and a sentence (T14).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from embedbk.transports.endpoints import ipc_users
from embedbk.transports.envelope import (
    NONCE_BYTES,
    Envelope,
    Hello,
    Kind,
    decode_hello,
    encode_hello,
    objection,
)
from embedbk.transports.zmq_accepted import HeldPart
from embedbk.transports.zmq_descriptors import (
    NO_DESCRIPTOR,
    descriptor_of,
    shut_down,
    swallowed_bytes,
    user_of,
)
from embedbk.transports.zmq_ends import Ends, bye
from embedbk.transports.zmq_sockets import NO_NONCE, Link, Port

__all__ = ["HELLO_NS_MAX", "SILENT_MAX", "BeforeHello"]

HELLO_NS_MAX = (
    5_000_000_000  # From the accepting of a connection, or the end of its link, to its Hello (T11).
)
SILENT_MAX = 256  # Connections accepted behind one without a link; for one more it is hung up on.
SILENT_BYTES_MAX = 64 << 10  # What ZeroMQ may take in from a connection before its Hello is whole (T10).
_LOOK_NS = 100_000_000  # Between two looks at how much that is.

# Plain numbers: ZeroMQ's enums cost more than what they are used for here.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)


class BeforeHello:
    """The connections of one transport that have no link. hello: what this node sends as its Hello."""

    def __init__(self, ends: Ends, hello: Callable[[], Hello]) -> None:
        self.silent: dict[int, _Silent] = {}  # By descriptor, the oldest first.
        self._accepted_count = 0
        self._ends = ends
        self._hello = hello

    def hear(self, port: Port, route: bytes, envelope: Envelope, part: zmq.Frame | HeldPart) -> None:
        """Handle a part from a connection without a link: its Hello, or the remains of a link that is over."""
        if envelope.kind != Kind.HELLO or envelope.listener_nonce != NO_NONCE:
            self._ends.counters.stale += 1
            if envelope.kind != Kind.BYE:
                over = bye(envelope.dialler_nonce, envelope.listener_nonce, "this link is over")
                self.answer(port, route, over)
            return
        peer = decode_hello(envelope.body)
        ours = self._hello()
        # Descriptors are re-used: what the monitor says of this one so far is about an earlier connection.
        self.look_for_ends(port)
        descriptor = descriptor_of(part)
        why = objection(ours, peer)
        if why is None and self._ends.is_full:
            most = self._ends.links_max
            why = f"{ours.identity.node_id} has {most} links already, allowed are {most}: end clients or other peers"
        if descriptor == NO_DESCRIPTOR:
            why = "this connection speaks a ZeroMQ framing older than 3.0, which tells no connection from another"
        elif not _is_given(port, route):
            self._ends.counters.refused += 1
            self._hang_up(descriptor)  # It names its route itself (T4).
            return
        if why is not None:
            self._ends.counters.refused += 1
            self.answer(port, route, bye(envelope.dialler_nonce, NO_NONCE, why))
            return
        link = self._ends.begin(port, route, envelope.dialler_nonce)
        port.routes[route] = link
        link.descriptor = descriptor
        port.descriptors[link.descriptor] = link
        self.silent.pop(link.descriptor, None)
        self._ends.become_up(link, os.urandom(NONCE_BYTES), peer.identity)
        self._ends.say(link, Kind.HELLO_ACK, encode_hello(ours))

    def answer(self, port: Port, route: bytes, block: bytes) -> None:
        """Tell a connection without a link, if there is room; it never gets more than it sent and a sentence (T14)."""
        try:
            port.socket.send(route, _MORE)
            port.socket.send(block, _NOBLOCK)
        except zmq.ZMQError:
            self._ends.counters.stale += 1  # It is gone, or does not read.

    def look_for_ends(self, port: Port) -> None:
        """End the links of connections that have ended, and note new ones."""
        for is_accepted, descriptor in port.connection_news():
            if is_accepted and port.is_listening:
                self._accepted_count += 1
                self.await_hello(port, descriptor)
                continue
            if is_accepted:
                if port.dialled is not None:
                    port.dialled.descriptor = descriptor
                    if (user := user_of(descriptor)) is not None and user not in ipc_users():
                        why = f"another user (uid {user}) listens at {port.endpoint}"
                        self._ends.forget(port.dialled, why)
                continue
            link = port.descriptors.get(descriptor) if port.is_listening else port.dialled
            if link is not None and (port.is_listening or link.has_greeted):
                self._ends.forget(link, "the peer's connection ended")
            elif link is not None:
                self._ends.forget(link, f"nobody at {port.endpoint}")
            if port.is_listening:
                self.silent.pop(descriptor, None)

    def await_hello(self, port: Port, descriptor: int, bytes_max: int = SILENT_BYTES_MAX) -> None:
        """Give a connection without a link its time to send Hello from now on; the oldest end when too many wait."""
        self.silent.pop(descriptor, None)
        ends, count = self._ends, self._accepted_count
        self.silent[descriptor] = _Silent(port, ends.now_ns, count, bytes_max)
        while (oldest := next(iter(self.silent.items())))[1].number + SILENT_MAX < count or (
            len(self.silent) > SILENT_MAX
        ):
            self._hang_up(oldest[0])
        due_ns = ends.now_ns + _LOOK_NS
        ends.due_ns = due_ns if ends.due_ns is None else min(ends.due_ns, due_ns)

    def await_end(self, link: Link) -> None:
        """An accepted link is over; what is on its way to it may still come."""
        window_bytes = 2 * self._ends.window_bytes
        self.await_hello(link.port, link.descriptor, swallowed_bytes(link.descriptor) + window_bytes)

    def _hang_up(self, descriptor: int) -> None:
        self.silent.pop(descriptor, None)
        self._ends.counters.silent += 1
        shut_down(descriptor)

    def excuse(self, blind_ns: int) -> None:
        """As `Ends.excuse`."""
        now_ns = self._ends.now_ns
        for each in self.silent.values():
            each.since_ns = min(now_ns, each.since_ns + blind_ns)

    def keep_time(self) -> int:
        """Hang up on each peer that sent no Hello in time, or too much instead; returns when to look again."""
        now_ns = self._ends.now_ns
        for port in dict.fromkeys(each.port for each in self.silent.values() if each.port.is_open):
            self.look_for_ends(port)
        for descriptor, each in list(self.silent.items()):
            is_late = now_ns - each.since_ns >= HELLO_NS_MAX
            if descriptor in self.silent and (is_late or swallowed_bytes(descriptor) > each.bytes_max):
                self._hang_up(descriptor)
        return now_ns + _LOOK_NS if self.silent else sys.maxsize


@dataclass(slots=True)
class _Silent:
    """An accepted connection without a link."""

    port: Port
    since_ns: int
    number: int  # How many were accepted before it.
    bytes_max: int  # Bytes that ZeroMQ may have taken in from it, ever.


def _is_given(port: Port, route: bytes) -> bool:
    return port.numbers is not None and port.numbers.are_given(route)
