"""Connections to a ZeroMQ transport that have no link: from their accepting, or the end of their link, to their Hello.

Decides who gets a link (P7.2, as `envelope` objects), and who has said nothing for too long or among too many (T11).
A stranger never gets more than it sent and a sentence (T14).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable

import zmq

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
from embedbk.transports.zmq_ends import Ends, bye
from embedbk.transports.zmq_sockets import NO_NONCE, Port

__all__ = ["HELLO_NS_MAX", "SILENT_MAX", "Strangers"]

HELLO_NS_MAX = (
    5_000_000_000  # From the accepting of a connection, or the end of its link, to its Hello (T11).
)
SILENT_MAX = 256  # Accepted connections without a link; for one more the oldest is hung up on.

# Plain numbers: ZeroMQ's enums cost more than what they are used for here.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)


class Strangers:
    """Those of one transport. hello: what is said of this node."""

    def __init__(self, ends: Ends, hello: Callable[[], Hello]) -> None:
        # By descriptor: of which port and since when, the oldest first.
        self.silent: dict[int, tuple[Port, int]] = {}
        self._ends = ends
        self._hello = hello

    def hear(self, port: Port, route: bytes, envelope: Envelope, part: zmq.Frame | HeldPart) -> None:
        """From a connection without a link: its Hello, or the remains of a link that is over."""
        if envelope.kind != Kind.HELLO or envelope.listener_nonce != NO_NONCE:
            self._ends.counters.stale += 1
            if envelope.kind != Kind.BYE:
                over = bye(envelope.dialler_nonce, envelope.listener_nonce, "this link is over")
                self.answer(port, route, over)
            return
        peer = decode_hello(envelope.body)
        ours = self._hello()
        why = objection(ours, peer)
        if why is None and self._ends.is_full:
            why = f"{ours.identity.node_id} has {self._ends.links_max} links already"
        if why is not None:
            self._ends.counters.refused += 1
            self.answer(port, route, bye(envelope.dialler_nonce, NO_NONCE, why))
            return
        # Descriptors are re-used: what the monitor says of this one so far is about an earlier connection.
        self.look_for_ends(port)
        link = self._ends.begin(port, route, envelope.dialler_nonce)
        port.routes[route] = link
        link.descriptor = int(part.get(zmq.SRCFD))
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
            if is_accepted:
                self.await_hello(port, descriptor)
                continue
            link = port.descriptors.get(descriptor) if port.is_listening else port.dialled
            if link is not None and (port.is_listening or link.has_greeted):
                self._ends.forget(link, "the peer's connection ended")
            elif link is not None:
                self._ends.forget(link, f"nobody at {port.endpoint}")
            if port.is_listening:
                self.silent.pop(descriptor, None)

    def await_hello(self, port: Port, descriptor: int) -> None:
        """From now on a connection without a link has its time to say Hello; of so many at once only the newest."""
        self.silent.pop(descriptor, None)
        self.silent[descriptor] = (port, self._ends.now_ns)
        if len(self.silent) > SILENT_MAX:
            self._hang_up(next(iter(self.silent)))
        due_ns = self._ends.now_ns + HELLO_NS_MAX
        self._ends.due_ns = due_ns if self._ends.due_ns is None else min(self._ends.due_ns, due_ns)

    def _hang_up(self, descriptor: int) -> None:
        """End a connection of which ZeroMQ knows no end: its I/O thread reads the end of the stream, and closes.

        Has the connection ended in this very moment, its descriptor may be another's. Then a link is lost that is
        dialled again, or nothing happens at all: only what is a socket can be shut down.
        """
        self.silent.pop(descriptor)
        self._ends.counters.silent += 1
        with (
            contextlib.suppress(OSError),  # It has ended by itself.
            socket.socket(fileno=os.dup(descriptor)) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

    def excuse(self, blind_ns: int) -> None:
        """As `Ends.excuse`."""
        now_ns = self._ends.now_ns
        for descriptor, (port, since_ns) in self.silent.items():
            self.silent[descriptor] = (port, min(now_ns, since_ns + blind_ns))

    def keep_time(self) -> int:
        """Hang up on whoever has said no Hello in time; returns when to look again."""
        now_ns, due_ns = self._ends.now_ns, sys.maxsize
        for descriptor, (port, since_ns) in list(self.silent.items()):
            if now_ns - since_ns < HELLO_NS_MAX:
                due_ns = min(due_ns, since_ns + HELLO_NS_MAX)
                break
            if port.is_open:
                self.look_for_ends(port)
            if descriptor in self.silent:
                self._hang_up(descriptor)
        return due_ns
