"""Links between processes over ZeroMQ: one ROUTER per listening endpoint, one DEALER per dialled link (tcp, ipc).

Decides when a link is up, full, silent or over. Leaves the bytes of envelope and Hello to `envelope`, and what may
be bound or dialled to `endpoints`. Carries P7.2 (Hello, nonces) and the threats T4, T10 and T13.

What ZeroMQ would do behind our back is switched off: a DEALER that loses its connection is closed with all that it
had queued, never reconnected, so nothing is sent twice or late. What peers send is checked here and may end their
link; it never raises to the host.

Readiness: a ZeroMQ descriptor tells of changes, not of states, and a send may swallow the change. So every socket
that was used since is asked again in `deadline_ns`, which a host calls before it sleeps; it then says "at once".
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import zmq
from zmq.backend import zmq_poll

from embedbk.codec.answers_twin import Counting
from embedbk.codec.kernels import crc32c, gather
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import PeerError, UsageError
from embedbk.ports import (
    AddPath,
    Buffer,
    Identity,
    LinkDown,
    LinkUp,
    Received,
    TransportEvent,
    WaitEnd,
    WaitTerms,
)
from embedbk.transports import zmq_answers
from embedbk.transports.endpoints import check_endpoint, check_ipc_path_is_free, is_ipv6
from embedbk.transports.envelope import (
    CREDIT_BYTES,
    ENVELOPE_BYTES,
    LINK_BYTES_MAX,
    NONCE_BYTES,
    PROTOCOL_VERSIONS,
    Envelope,
    Hello,
    Kind,
    check_settings,
    decode_envelope,
    decode_hello,
    decode_reason,
    encode_hello,
    encode_reason,
    envelope_prefix,
    foreign_nonces,
    objection,
    seal,
    stranger,
)
from embedbk.transports.zmq_links import HeldPart, WaitEnded, ZmqLinks, ZmqTurn, open_links
from embedbk.transports.zmq_send import can_send_frames, frame_address, send_frame, send_pieces

__all__ = ["Counters", "ZmqTransport"]

LIBZMQ_VERSION_MIN = (4, 3, 4)  # Older ones have memory faults that a peer can reach (T26).
if zmq.zmq_version_info() < LIBZMQ_VERSION_MIN:
    raise ImportError(f"libzmq {zmq.zmq_version()} is too old; at least 4.3.4 is needed")

LINKS_MAX = 1024  # Accepted and dialled together; the next one is refused.
SEND_BODIES_MAX = 16 << 10  # Of one link in ZeroMQ's queue; the window, in bytes, usually fills first.
RECEIVE_BODIES_MAX = 256  # Of one link in ZeroMQ's queue, each of at most LINK_BYTES_MAX.
BODIES_PER_RECEIVE_MAX = 1024  # Taken by one call of `receive`, so that nobody else starves.
BYTES_PER_RECEIVE_MAX = 32 << 20
ZERO_COPY_BYTES_MIN = 64 << 10  # Below it a copy costs less than passing a reference through another thread.
FRAME_BYTES_MIN = (
    16 << 10
)  # A frame from here on is a part of its own; a shorter one is joined with what is before it.
HANDSHAKE_MS_MAX = 2000  # For ZeroMQ's own handshake: a caller that says nothing is hung up on (T11).
HELLO_NS_MAX = (
    5_000_000_000  # From the accepting of a connection, or the end of its link, to its Hello (T11).
)
SILENT_MAX = 256  # Accepted connections without a link; for one more the oldest is hung up on.

NO_NONCE = bytes(NONCE_BYTES)
_monitor_numbers = itertools.count()

_SEALED = struct.Struct("<24sII")  # Prefix as a whole, length, checksum.
_TOTAL = struct.Struct("<Q")
_MONITORED = struct.Struct("=HI")
_CHECKED_BYTES = ENVELOPE_BYTES - 4

# Plain numbers and the unwrapped call: ZeroMQ's enums cost more than what they are used for here.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _READABLE, _WRITABLE = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.POLLOUT)
_RCVMORE = int(zmq.RCVMORE)
_LOST = int(
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_ACCEPTED = int(zmq.EVENT_ACCEPTED)
_DISCONNECTED = int(zmq.EVENT_DISCONNECTED)


@dataclass(slots=True)
class Counters:
    """What was dropped without an event, since the transport was opened."""

    garbage: int = 0  # Not one whole envelope of ours.
    stale: int = 0  # For a link that is no more, or under another nonce.
    refused: int = 0  # Hellos that were not answered with ours.
    silent: int = 0  # Connections that were hung up on because they said no Hello.


def _state(socket: zmq.Socket[bytes]) -> int:
    """What the socket is ready for. Asking also does its housekeeping, and re-arms its descriptor."""
    return cast(int, socket.getsockopt(_EVENTS))


class _Port:
    """One ZeroMQ socket with its monitor, and the links on it: many of a ROUTER, one of a DEALER."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str) -> None:
        self.socket = context.socket(kind)
        self.endpoint = endpoint
        self.is_listening = kind == zmq.ROUTER
        self.address = int(self.socket.underlying)
        self.sends_frames = False  # DEALER: by reference (zmq_send.py).
        self.is_open = True
        self.has_backlog = False
        self.routes: dict[bytes, _Link] = {}  # ROUTER: by the routing id that our ROUTER gave the connection.
        self.descriptors: dict[
            int, _Link
        ] = {}  # ROUTER: by the connection's descriptor, as the monitor names it.
        self.dialled: _Link | None = None
        options = {
            zmq.LINGER: 0,
            zmq.SNDHWM: SEND_BODIES_MAX,
            zmq.RCVHWM: RECEIVE_BODIES_MAX,
            zmq.MAXMSGSIZE: LINK_BYTES_MAX,
            zmq.HANDSHAKE_IVL: HANDSHAKE_MS_MAX,
            zmq.IPV6: int(is_ipv6(endpoint)),
            **(
                {zmq.ROUTER_MANDATORY: 1, zmq.ROUTER_HANDOVER: 0}
                if self.is_listening
                else {zmq.IMMEDIATE: 1, zmq.RECONNECT_IVL: -1}
            ),
        }
        for option, value in options.items():
            self.socket.setsockopt(option, value)
        # Not get_monitor_socket(): its queue has an end, at which ZeroMQ's I/O thread would wait for us.
        self.monitor = context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.RCVHWM, 0)
        self.monitor.setsockopt(zmq.LINGER, 0)
        name = f"inproc://monitor-{next(_monitor_numbers)}"  # Closing ends later: no name twice.
        self.socket.monitor(name, _ACCEPTED | _DISCONNECTED if self.is_listening else _LOST)
        self.monitor.connect(name)
        self.filenos = tuple(cast(int, each.getsockopt(zmq.FD)) for each in (self.socket, self.monitor))

    @property
    def awaited(self) -> int:
        """What there is to do something about: a body, or a dialled connection that stands and waits for our Hello."""
        is_greeting = self.dialled is not None and not self.dialled.has_greeted
        return _READABLE | _WRITABLE if is_greeting else _READABLE

    def connection_news(self) -> list[tuple[bool, int]]:
        """Since the last call, in order: whether a connection was accepted, else it ended; and its descriptor."""
        news = []
        while _state(self.monitor) & _READABLE:
            event, descriptor = _MONITORED.unpack(self.monitor.recv(_NOBLOCK))
            self.monitor.recv(_NOBLOCK)  # The address: known already.
            news.append((event == _ACCEPTED, descriptor))
        return news

    def close(self) -> None:
        self.is_open = False
        self.socket.disable_monitor()
        self.socket.close(0)
        self.monitor.close(0)


class _Link:
    """One end of a link."""

    def __init__(self, number: int, port: _Port, route: bytes | None, dialler_nonce: bytes) -> None:
        self.number = number
        self.port = port
        self.route = route  # None: we dialled.
        self.dialler_nonce = dialler_nonce
        self.listener_nonce = NO_NONCE
        self.data_prefix = b""
        self.is_up = False
        self.has_greeted = False
        self.expect: Identity | None = None
        self.descriptor = -1
        self.since_ns: int | None = None  # When it was first looked at; `connect` is not told the time.
        self.heard_ns = 0
        self.pinged_ns = 0
        self.sent_bytes = 0
        self.credited_bytes = 0  # Of sent_bytes, what the peer has said it received.
        self.received_bytes = 0
        self.reported_bytes = 0  # Of received_bytes, what the peer has been told.

    def become_up(self, listener_nonce: bytes, now_ns: int) -> None:
        self.listener_nonce = listener_nonce
        self.data_prefix = envelope_prefix(Kind.DATA, self.dialler_nonce, listener_nonce)
        self.is_up = True
        self.heard_ns = self.pinged_ns = now_ns


class ZmqTransport:
    """A Transport (embedbk.ports) over ZeroMQ, with a context and one I/O thread of its own.

    Args:
        identity: what this node says in Hello; may be set again when the cluster token was learnt.
        allow_non_loopback: bind and dial addresses of other machines; links are not encrypted.
        heartbeat_ns: a link on which nothing was heard for so long is asked for a sign of life.
        timeout_ns: a link on which nothing was heard for so long is down. At least three heartbeats.
        connect_timeout_ns: from `connect` to LinkUp.
        window_bytes: sent on one link and not yet received by the peer; `send` says False beyond it.
        protocols: oldest and newest protocol version that the node speaks.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        allow_non_loopback: bool = False,
        heartbeat_ns: int = 100_000_000,
        timeout_ns: int = 2_000_000_000,
        connect_timeout_ns: int = 2_000_000_000,
        window_bytes: int = 16 << 20,
        protocols: tuple[int, int] = PROTOCOL_VERSIONS,
    ) -> None:
        check_settings(identity, protocols, window_bytes)
        if not 0 < 3 * heartbeat_ns <= timeout_ns or connect_timeout_ns <= 0:
            raise UsageError(
                f"heartbeat_ns={heartbeat_ns}, timeout_ns={timeout_ns}, connect_timeout_ns={connect_timeout_ns}: "
                "all above 0, and timeout_ns at least three heartbeats"
            )
        self.identity = identity
        self.counters = Counters()
        self._protocols = protocols
        self._allow_non_loopback = allow_non_loopback
        self._heartbeat_ns = heartbeat_ns
        self._timeout_ns = timeout_ns
        self._connect_timeout_ns = connect_timeout_ns
        self._window_bytes = window_bytes
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 4 * LINKS_MAX)
        self._ready = select.epoll()  # Of all ZeroMQ descriptors: the host polls one that never changes.
        self._by_fileno: dict[int, tuple[_Port, bool]] = {}  # Whose, and whether of its monitor.
        self._unseen: dict[_Port, None] = {}  # Their monitors have something to say.
        self._unsettled: dict[_Port, None] = {}  # Used since they were last asked whether they have work.
        self._ipc_paths: list[Path] = []
        self._links: dict[int, _Link] = {}
        # Accepted connections without a link, by descriptor: of which port and since when, the oldest first.
        self._silent: dict[int, tuple[_Port, int]] = {}
        self._link_count = 0  # Ever; the number of the newest.
        self._events: list[TransportEvent] = []
        self._now_ns = 0
        self._due_ns: int | None = None
        self._add_path: AddPath | None = None  # What the bodies of the next `receive` are offered to.
        self._has_asked_for_c = False
        self._in_c: ZmqLinks | None = None  # Accepted links, once an add path was offered.
        self._turn: ZmqTurn | None = None  # What `wait` waits on, for these descriptors of others.
        self._turn_filenos: Sequence[int] | None = None
        self._turn_ports: list[_Port] = []
        self._held: tuple[_Port, bytes, HeldPart] | None = None  # By the last `wait`, for the next `receive`.
        self._room_changed: dict[int, _Link] = {}  # Of these C does not know how much it may send.
        self._counting: Counting | None = None  # What bodies of dialled links are offered to.
        self._answers_in_c: zmq_answers.AnswerDrain | None = None
        self._listened: list[_Link] | None = (
            None  # To these links `listen_for` listens; None: it is to be made anew.
        )
        self._listened_filenos: Sequence[int] | None = None
        self._listens = False  # The host waits by `listen_for`: it asks the sockets of those links first.
        self._is_heard = False  # It has asked them since, and nothing else is ready here.
        self._is_open = True

    # --- The port ------------------------------------------------------------------------------------

    def listen(self, endpoint: str) -> str:
        self._check_open()
        check_endpoint(endpoint, is_listening=True, allow_non_loopback=self._allow_non_loopback)
        if endpoint.startswith("ipc://"):
            check_ipc_path_is_free(endpoint)
        port = _Port(self._context, zmq.ROUTER, endpoint)
        try:
            port.socket.bind(endpoint)
        except zmq.ZMQError as error:
            port.close()
            what = "is in use" if error.errno == zmq.EADDRINUSE else f"cannot be bound: {error.strerror}"
            raise UsageError(f"endpoint {endpoint!r} {what}", hint="port 0 takes any free one") from error
        self._watch(port)
        if endpoint.startswith("ipc://"):
            self._ipc_paths.append(Path(endpoint.removeprefix("ipc://")))
        port.endpoint = cast(bytes, port.socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        return port.endpoint

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        self._check_open()
        check_endpoint(endpoint, is_listening=False, allow_non_loopback=self._allow_non_loopback)
        if len(self._links) >= LINKS_MAX:
            raise UsageError(f"this transport has {LINKS_MAX} links already; no more are allowed")
        port = _Port(self._context, zmq.DEALER, endpoint)
        try:
            port.socket.connect(endpoint)
        except zmq.ZMQError as error:
            port.close()
            raise UsageError(f"endpoint {endpoint!r} cannot be dialled: {error.strerror}") from error
        self._watch(port)
        port.sends_frames = can_send_frames(port.socket)
        link = port.dialled = self._make_link(port, None, os.urandom(NONCE_BYTES))
        link.expect = expect
        self._unsettled[port] = None
        self._due_ns = self._now_ns  # The next `receive` starts its time.
        return link.number

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        end = self._links.get(link)
        if end is None or not end.is_up:
            return False
        size = 0
        for piece in pieces:
            size += piece.nbytes if type(piece) is memoryview else len(piece)
        if size > MESSAGE_BYTES_MAX:
            raise UsageError(f"body has {size} bytes; a link carries at most {MESSAGE_BYTES_MAX}")
        if not self._has_room(end, size):
            return False
        if not self._put_body(end, pieces, size):
            return False
        end.sent_bytes += size
        if end.route is not None:
            self._room_changed[link] = end
        return True

    def _put_body(self, link: _Link, pieces: Sequence[Buffer], size: int) -> bool:
        port = link.port
        if size < FRAME_BYTES_MIN and port.sends_frames and type(pieces) is list:
            sent = send_pieces(port.address, link.data_prefix, pieces)
            if sent < 0:
                self._forget(link, "the peer's connection ended")
            elif sent:
                self._unsettled[port] = None
            return sent > 0
        envelope = seal(link.data_prefix, size)
        if size >= FRAME_BYTES_MIN and port.sends_frames:
            last = pieces[-1]
            address = frame_address(last) if len(last) >= FRAME_BYTES_MIN else 0
            if address:
                return self._put_frame(link, b"".join((envelope, *pieces[:-1])), address, len(last))
        return self._put(link, gather((envelope, *pieces)))

    def _put_frame(self, link: _Link, head: bytes, address: int, size: int) -> bool:
        """As `_put`, of a body whose end is a frame, which is not copied."""
        sent = send_frame(link.port.socket, head, address, size)
        if sent is None:
            self._forget(link, "the peer's connection ended")
        elif sent:
            self._unsettled[link.port] = None
        return bool(sent)

    def has_room(self, link: int, size: int) -> bool:
        end = self._links.get(link)
        return end is not None and end.is_up and self._has_room(end, size)

    def _has_room(self, end: _Link, size: int) -> bool:
        return end.sent_bytes - end.credited_bytes + size <= self._window_bytes

    def drop(self, link: int, reason: str) -> None:
        end = self._links.get(link)
        if end is not None:
            self._break_off(end, reason)

    def offer(self, add_path: AddPath | None) -> None:
        self._add_path = add_path
        if add_path is not None and not self._has_asked_for_c:
            self._find_c()

    def wait(self, terms: WaitTerms) -> WaitEnd | None:
        in_c = self._in_c
        if in_c is None or self.has_events():
            return None
        if self._turn is None or self._turn_filenos is not terms.filenos:
            self._make_turn(in_c, terms)
            if self._turn is None:
                return None
        for link in self._room_changed.values():
            in_c.set_room(link.number, max(0, self._window_bytes - link.sent_bytes + link.credited_bytes))
        self._room_changed.clear()
        turn = self._turn
        why = turn.wait(terms, CREDIT_BYTES)
        for number, taken_bytes, sent_bytes in in_c.moved():
            link = self._links[number]
            link.sent_bytes += sent_bytes
            if taken_bytes:
                link.heard_ns = turn.now_ns
                self._count_received(link, taken_bytes)
        for port in self._turn_ports:
            self._unsettled[port] = None  # It may have more.
        if why == WaitEnded.HELD:
            self._held = (self._turn_ports[turn.socket], *in_c.held())
        return WaitEnd(
            [fileno for fileno in turn.ready if fileno not in self._by_fileno],
            turn.unsent if why == WaitEnded.UNSENT else None,
        )

    def count(self, answers: Counting) -> None:
        self._counting = answers

    def listen_for(self, filenos: Sequence[int], until_ns: int, untold_ns: int) -> Sequence[int] | None:
        in_c = self._answers_in_c
        if in_c is None or self._events or any(port.is_listening for port in self._unsettled):
            return self._stop_listening()
        if self._listened is None or self._listened_filenos is not filenos:
            self._listened = [
                link for link in self._links.values() if link.is_up and link.port.dialled is link
            ]
            of_links = [
                (link.port.socket.underlying, link.number, link.port.filenos[0], link.data_prefix)
                for link in self._listened
            ]
            apart = {self._ready.fileno(), *(link.port.filenos[0] for link in self._listened)}
            others = [fileno for fileno in (*filenos, *self._by_fileno) if fileno not in apart]
            self._listened_filenos = filenos
            if not in_c.listen(of_links, others):
                self._listened = None
                return self._stop_listening()
        self._listens = True
        why = in_c.wait(until_ns, untold_ns, CREDIT_BYTES)
        for index, link in enumerate(self._listened):
            taken_bytes = in_c.taken(index)
            if taken_bytes:
                link.heard_ns = in_c.now_ns
                self._count_received(link, taken_bytes)
        ready = in_c.ready
        others = [fileno for fileno in ready if fileno not in self._by_fileno]
        self._is_heard = in_c.is_dry and len(others) == len(ready)
        if self._is_heard:
            for link in self._listened:
                self._unsettled.pop(link.port, None)
        elif why == zmq_answers.HEARD_HELD:
            self._held = (self._listened[in_c.link].port, b"", in_c.held())
        if not in_c.is_dry:
            for link in self._listened:
                self._unsettled[link.port] = None
        return others

    def _stop_listening(self) -> Sequence[int] | None:
        """The host has to wait by itself; unless sockets that `deadline_ns` did not ask have something."""
        if not self._listens:
            return None
        self._listens = False
        due_ns = self.deadline_ns()
        return [] if due_ns is not None and due_ns <= self._now_ns else None

    def receive(self, now_ns: int) -> list[TransportEvent]:
        if not self._is_open:
            return []
        blind_ns = now_ns - self._now_ns
        self._now_ns = now_ns
        if (
            blind_ns > self._timeout_ns // 2
        ):  # The host did not look (it was stopped, say): no fault of the peers'.
            for link in self._links.values():
                link.heard_ns = min(now_ns, link.heard_ns + blind_ns)
            for descriptor, (port, since_ns) in self._silent.items():
                self._silent[descriptor] = (port, min(now_ns, since_ns + blind_ns))
        if self._held is not None:
            self._take_held(*self._held)
        is_heard, self._is_heard = self._is_heard, False
        for fileno, _ in () if is_heard else self._ready.poll(0):
            port, is_monitor = self._by_fileno[fileno]
            self._unsettled[port] = None
            if is_monitor:
                self._unseen[port] = None
        ports, self._unsettled = self._unsettled, {}
        for port in ports:
            if port.is_open:
                self._drain(port)
        if self._unseen:  # After what came before the end.
            unseen, self._unseen = self._unseen, {}
            for port in unseen:
                if port.is_open:
                    self._look_for_ends(port)
        if self._due_ns is not None and now_ns >= self._due_ns:
            self._keep_time()
        events, self._events = self._events, []
        return events

    def has_events(self) -> bool:
        return bool(self._events) or self._held is not None

    def deadline_ns(self) -> int | None:
        if self.has_events():
            return self._now_ns
        if self._unsettled:
            # All in one call. It asks each as `_state` does, so descriptors will tell of anything from then on.
            asked = [
                (port.socket, port.awaited)
                for port in self._unsettled
                if port.is_open and not (self._listens and port.dialled is not None and port.dialled.is_up)
            ]
            if asked and zmq_poll(asked, 0):
                return self._now_ns
            if not self._listens:
                self._unsettled.clear()
        return self._due_ns

    def filenos(self) -> list[int]:
        return [self._ready.fileno()] if self._is_open else []

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._turn = self._held = None
        for port in self._ports():
            port.close()
        self._by_fileno.clear()
        self._unsettled.clear()
        self._unseen.clear()
        self._links.clear()
        self._events.clear()
        self._due_ns = None
        self._ready.close()
        self._in_c = None
        self._room_changed.clear()
        self._context.destroy(linger=0)
        for path in self._ipc_paths:
            path.unlink(missing_ok=True)

    # --- Links ---------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError(f"the transport of {self.identity.node_id} is closed")

    def _ports(self) -> list[_Port]:
        return list(dict.fromkeys(port for port, _ in self._by_fileno.values()))

    def _watch(self, port: _Port) -> None:
        for fileno, is_monitor in zip(port.filenos, (False, True), strict=True):
            self._by_fileno[fileno] = (port, is_monitor)
            self._ready.register(fileno, select.EPOLLIN)
        self._unsettled[port] = self._unseen[port] = None
        self._turn = None  # It knows other descriptors.

    def _make_link(self, port: _Port, route: bytes | None, dialler_nonce: bytes) -> _Link:
        self._link_count += 1
        link = self._links[self._link_count] = _Link(self._link_count, port, route, dialler_nonce)
        return link

    def _forget(self, link: _Link, reason: str) -> None:
        """The one place where a link ends. A dialled one takes its socket along, and so all that was queued."""
        if self._links.pop(link.number, None) is None:
            return
        link.is_up = False
        self._listened = None
        port = link.port
        if link.route is None:
            for fileno in port.filenos:
                del self._by_fileno[fileno]
                self._ready.unregister(fileno)
            port.close()
            self._turn = None
        else:
            del port.routes[link.route]
            self._room_changed.pop(link.number, None)
            if self._in_c is not None:
                self._in_c.down(link.number)
            port.descriptors.pop(link.descriptor, None)
            self._await_hello(port, link.descriptor)
        self._events.append(LinkDown(link.number, reason))

    def _break_off(self, link: _Link, reason: str) -> None:
        """End a link from here. The peer learns why when it dialled; else it sees the connection end."""
        if link.route is not None:
            self._put(link, self._bye(link.dialler_nonce, link.listener_nonce, reason))
        self._forget(link, reason)

    def _put(self, link: _Link, block: Buffer) -> bool:
        """Queue one envelope with its body; False when there is no room, or no longer a peer."""
        port = link.port
        try:
            if link.route is not None:
                port.socket.send(link.route, _MORE)
            port.socket.send(block, _NOBLOCK, len(block) < ZERO_COPY_BYTES_MIN)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            self._forget(link, "the peer's connection ended")  # EHOSTUNREACH, by ROUTER_MANDATORY.
            return False
        self._unsettled[port] = None
        return True

    def _say(self, link: _Link, kind: Kind, body: bytes = b"") -> bool:
        return self._put(
            link, seal(envelope_prefix(kind, link.dialler_nonce, link.listener_nonce), len(body)) + body
        )

    @staticmethod
    def _bye(dialler_nonce: bytes, listener_nonce: bytes, reason: str) -> bytes:
        body = encode_reason(reason)
        return seal(envelope_prefix(Kind.BYE, dialler_nonce, listener_nonce), len(body)) + body

    # --- Input ---------------------------------------------------------------------------------------

    def _find_c(self) -> None:
        """Have the bodies of accepted links looked at in C from now on, where that can be done here."""
        listening = next((port for port, _ in self._by_fileno.values() if port.is_listening), None)
        if listening is None:
            return
        self._has_asked_for_c = True
        self._in_c = open_links(listening.socket)
        for link in self._links.values():
            self._show_to_c(link)

    def _show_to_c(self, link: _Link) -> None:
        if self._in_c is not None and link.route is not None and link.is_up:
            self._in_c.up(link.port.socket.underlying, link.number, link.route, link.data_prefix)
            self._room_changed[link.number] = link

    def _drain_in_c(self, port: _Port, in_c: ZmqLinks, add_path: AddPath) -> None:
        """As `_drain`. The first body that is not taken becomes an event, and nothing is offered behind it."""
        handle, count, size = add_path.handle, 0, 0
        while port.is_open:
            found = in_c.drain(
                port.socket.underlying, handle, BODIES_PER_RECEIVE_MAX - count, BYTES_PER_RECEIVE_MAX - size
            )
            if found is False:
                break
            if found is True or count >= BODIES_PER_RECEIVE_MAX or size >= BYTES_PER_RECEIVE_MAX:
                port.has_backlog = True
                self._unsettled[port] = None
                break
            route, part = found
            events = len(self._events)
            size += self._on_part(port, route, part)
            count += 1
            if len(self._events) != events:
                handle = self._add_path = None
        for number, taken_bytes, _ in in_c.moved():
            link = self._links[number]
            link.heard_ns = self._now_ns
            self._count_received(link, taken_bytes)

    def _make_turn(self, in_c: ZmqLinks, terms: WaitTerms) -> None:
        """The epoll descriptor of this transport is for others; here each of its descriptors has its own meaning."""
        known = {self._ready.fileno(): None, **dict.fromkeys(terms.add_path.filenos())}
        meanings = {fileno: ZmqTurn.OTHER for fileno in terms.filenos if fileno not in known}
        meanings |= dict.fromkeys(terms.add_path.filenos(), ZmqTurn.JOURNAL)
        for fileno, (port, is_monitor) in self._by_fileno.items():
            is_drained = port.is_listening and not is_monitor
            meanings[fileno] = ZmqTurn.SOCKET if is_drained else ZmqTurn.OTHER
        self._turn_ports = [port for port in self._ports() if port.is_listening]
        self._turn = in_c.turn([port.socket.underlying for port in self._turn_ports], meanings)
        self._turn_filenos = terms.filenos

    def _take_held(self, port: _Port, route: bytes, part: HeldPart) -> None:
        """What ended the last wait. Nothing is offered behind an event that the host has not seen."""
        self._held = None
        if port.is_open:
            size = self._on_part(port, route, part)
            if not port.is_listening:
                self._unsettled.pop(port, None)
                self._drain_in_python(port, 1, size)
            if self._events:
                self._add_path = None

    def _count_received(self, link: _Link, size: int) -> None:
        link.received_bytes += size
        if link.received_bytes - link.reported_bytes >= CREDIT_BYTES:
            self._report(link)

    def _drain_answers(self, port: _Port, link: _Link, in_c: zmq_answers.AnswerDrain) -> None:
        """As `_drain`, of a dialled link that is up. Behind a body that is not taken nothing is offered: in order."""
        port.has_backlog = False
        found = in_c.drain(
            port.socket.underlying,
            link.number,
            link.data_prefix,
            BODIES_PER_RECEIVE_MAX,
            BYTES_PER_RECEIVE_MAX,
        )
        if in_c.taken_bytes:
            link.heard_ns = self._now_ns
            self._count_received(link, in_c.taken_bytes)
        if found == zmq_answers.HELD:
            count, size = in_c.received
            self._on_part(port, b"", in_c.held())
            self._drain_in_python(port, count, size)
        elif found == zmq_answers.BOUND:
            port.has_backlog = True
            self._unsettled[port] = None

    def _drain(self, port: _Port) -> None:
        """Take what is there, up to a bound; what is left makes `deadline_ns` say "at once"."""
        if port.is_listening and self._in_c is not None and self._add_path is not None:
            port.has_backlog = False
            self._drain_in_c(port, self._in_c, self._add_path)
            return
        if self._answers_in_c is not None and port.dialled is not None and port.dialled.is_up:
            self._drain_answers(port, port.dialled, self._answers_in_c)
            return
        port.has_backlog = False
        self._drain_in_python(port, 0, 0)

    def _drain_in_python(self, port: _Port, count: int, size: int) -> None:
        """count, size: what was taken already."""
        while port.is_open:
            # In a burst the next one is most likely there: trying costs less than asking.
            ready = _state(port.socket) if count < 2 else _READABLE
            link = port.dialled
            if ready & _WRITABLE and link is not None and not link.has_greeted:
                link.has_greeted = True  # Writable for the first time: ZeroMQ's connection stands.
                self._say(link, Kind.HELLO, encode_hello(self._hello()))
            if not ready & _READABLE:
                break
            if count >= BODIES_PER_RECEIVE_MAX or size >= BYTES_PER_RECEIVE_MAX:
                port.has_backlog = True
                self._unsettled[port] = None
                break
            try:
                route = port.socket.recv(_NOBLOCK) if port.is_listening else b""
                part = self._with_tail(port, port.socket.recv(_NOBLOCK, False))
            except zmq.Again:
                break
            size += self._on_part(port, route, part)
            count += 1

    def _on_part(self, port: _Port, route: bytes, part: zmq.Frame | HeldPart) -> int:
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
                link.heard_ns = self._now_ns
                self._count_received(link, length)
                self._events.append(Received(link.number, block[ENVELOPE_BYTES:]))
            else:
                self._on_block(port, route, link, block, part)
        else:
            self._on_block(port, route, link, block, part)
        return size

    @staticmethod
    def _with_tail(port: _Port, part: zmq.Frame) -> zmq.Frame | HeldPart:
        """The part, joined with the second one where there is one."""
        if not part.more:
            return part
        tail = port.socket.recv(_NOBLOCK, False)
        if len(part.buffer) + len(tail.buffer) > LINK_BYTES_MAX:
            return HeldPart(part.buffer, True, -1)  # Never joined.
        joined = memoryview(gather((part.buffer, tail.buffer)))
        return HeldPart(joined, tail.more, int(part.get(zmq.SRCFD)) if port.is_listening else -1)

    def _skip_parts(self, port: _Port, link: _Link | None) -> None:
        """A body has one part or two, together as long as one may be. The rest is taken part by part and never joined,
        however many there are (T10)."""
        while port.socket.getsockopt(_RCVMORE):
            port.socket.recv(_NOBLOCK, False)
        self.counters.garbage += 1
        if link is not None:
            self._break_off(link, "the peer sent a body in too many parts, or too long a one")

    def _on_block(
        self, port: _Port, route: bytes, link: _Link | None, block: memoryview, part: zmq.Frame | HeldPart
    ) -> None:
        """Everything but a body in order: control, and what should not be."""
        try:
            envelope = decode_envelope(block)
            if link is None:
                self._on_unknown(port, route, envelope, part)
            elif envelope.dialler_nonce != link.dialler_nonce or not self._is_listeners(link, envelope):
                self.counters.stale += 1
            else:
                self._on_control(link, envelope)
        except PeerError as error:
            self.counters.garbage += 1
            if link is not None:
                self._break_off(link, str(error))
            elif (nonces := foreign_nonces(block)) is not None:
                self._answer(port, route, self._bye(*nonces, str(error)))

    @staticmethod
    def _is_listeners(link: _Link, envelope: Envelope) -> bool:
        """Whether the listener's nonce is right; while we dial it is not known yet."""
        return not link.is_up or envelope.listener_nonce == link.listener_nonce

    def _on_control(self, link: _Link, envelope: Envelope) -> None:
        """Raises PeerError for what a peer may not send now."""
        link.heard_ns = self._now_ns
        kind, body = envelope.kind, envelope.body
        if kind == Kind.BYE:
            said = decode_reason(body)
            self._forget(link, f"the peer ended the link: {said}" if link.is_up else f"refused: {said}")
        elif kind == Kind.HELLO_ACK and not link.is_up:
            self._on_hello_ack(link, envelope)
        elif kind == Kind.PING and link.is_up:
            self._report(link)
        elif kind == Kind.PONG and link.is_up and len(body) == _TOTAL.size:
            total = _TOTAL.unpack(body)[0]
            if not link.credited_bytes <= total <= link.sent_bytes:
                raise PeerError(f"the peer says it received {total} of {link.sent_bytes} bytes")
            link.credited_bytes = total
            if link.route is not None:
                self._room_changed[link.number] = link
        else:
            raise PeerError(f"kind {kind} with {len(body)} bytes has no place on this link now")

    def _on_hello_ack(self, link: _Link, envelope: Envelope) -> None:
        peer = decode_hello(envelope.body)
        why = objection(self._hello(), peer) or stranger(link.expect, peer.identity)
        if why is not None:
            self._forget(link, why)
            return
        link.become_up(envelope.listener_nonce, self._now_ns)
        self._listened = None
        counting = self._counting
        if counting is not None and counting.handle is not None and self._answers_in_c is None:
            self._answers_in_c = zmq_answers.open_answers(link.port.socket, counting.handle)
        self._due_ns = self._now_ns  # From now on its heartbeat counts, not the time it had for its Hello.
        self._events.append(LinkUp(link.number, peer.identity))

    def _on_unknown(self, port: _Port, route: bytes, envelope: Envelope, part: zmq.Frame | HeldPart) -> None:
        """From a connection without a link: its Hello, or the remains of a link that is over."""
        if envelope.kind != Kind.HELLO or envelope.listener_nonce != NO_NONCE:
            self.counters.stale += 1
            if envelope.kind != Kind.BYE:
                bye = self._bye(envelope.dialler_nonce, envelope.listener_nonce, "this link is over")
                self._answer(port, route, bye)
            return
        peer = decode_hello(envelope.body)
        why = objection(self._hello(), peer)
        if why is None and len(self._links) >= LINKS_MAX:
            why = f"{self.identity.node_id} has {LINKS_MAX} links already"
        if why is not None:
            self.counters.refused += 1
            self._answer(port, route, self._bye(envelope.dialler_nonce, NO_NONCE, why))
            return
        # Descriptors are re-used: what the monitor says of this one so far is about an earlier connection.
        self._look_for_ends(port)
        link = self._make_link(port, route, envelope.dialler_nonce)
        port.routes[route] = link
        link.descriptor = int(part.get(zmq.SRCFD))
        port.descriptors[link.descriptor] = link
        self._silent.pop(link.descriptor, None)
        link.become_up(os.urandom(NONCE_BYTES), self._now_ns)
        self._show_to_c(link)
        self._events.append(LinkUp(link.number, peer.identity))
        self._due_ns = self._now_ns  # For its heartbeat.
        self._say(link, Kind.HELLO_ACK, encode_hello(self._hello()))

    def _answer(self, port: _Port, route: bytes, block: bytes) -> None:
        """Tell a connection without a link, if there is room; it never gets more than it sent and a sentence (T14)."""
        try:
            port.socket.send(route, _MORE)
            port.socket.send(block, _NOBLOCK)
        except zmq.ZMQError:
            self.counters.stale += 1  # It is gone, or does not read.

    def _look_for_ends(self, port: _Port) -> None:
        """End the links of connections that have ended, and note new ones."""
        for is_accepted, descriptor in port.connection_news():
            if is_accepted:
                self._await_hello(port, descriptor)
                continue
            link = port.descriptors.get(descriptor) if port.is_listening else port.dialled
            if link is not None and (port.is_listening or link.has_greeted):
                self._forget(link, "the peer's connection ended")
            elif link is not None:
                self._forget(link, f"nobody at {port.endpoint}")
            if port.is_listening:
                self._silent.pop(descriptor, None)

    def _await_hello(self, port: _Port, descriptor: int) -> None:
        """From now on a connection without a link has its time to say Hello; of so many at once only the newest."""
        self._silent.pop(descriptor, None)
        self._silent[descriptor] = (port, self._now_ns)
        if len(self._silent) > SILENT_MAX:
            self._hang_up(next(iter(self._silent)))
        due_ns = self._now_ns + HELLO_NS_MAX
        self._due_ns = due_ns if self._due_ns is None else min(self._due_ns, due_ns)

    def _hang_up(self, descriptor: int) -> None:
        """End a connection of which ZeroMQ knows no end: its I/O thread reads the end of the stream, and closes.

        Has the connection ended in this very moment, its descriptor may be another's. Then a link is lost that is
        dialled again, or nothing happens at all: only what is a socket can be shut down.
        """
        self._silent.pop(descriptor)
        self.counters.silent += 1
        with (
            contextlib.suppress(OSError),  # It has ended by itself.
            socket.socket(fileno=os.dup(descriptor)) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

    def _hello(self) -> Hello:
        return Hello(self.identity, self._protocols)

    def _report(self, link: _Link) -> None:
        """Say that we are here and how much has come; without room it is said with the next body or ping."""
        if self._say(link, Kind.PONG, _TOTAL.pack(link.received_bytes)):
            link.reported_bytes = link.received_bytes

    # --- Time ----------------------------------------------------------------------------------------

    def _keep_time(self) -> None:
        """Ask the silent, give up the dead, and find when to look again."""
        now_ns, due_ns = self._now_ns, sys.maxsize
        for link in list(self._links.values()):
            if not link.is_up:
                if link.since_ns is None:
                    link.since_ns = now_ns
                if now_ns - link.since_ns >= self._connect_timeout_ns:
                    self._forget(
                        link, f"no Hello from {link.port.endpoint} in {self._connect_timeout_ns // 10**6} ms"
                    )
                    continue
                due_ns = min(due_ns, link.since_ns + self._connect_timeout_ns)
                continue
            if now_ns - link.heard_ns >= self._timeout_ns and not link.port.has_backlog:
                self._break_off(link, f"nothing heard for {(now_ns - link.heard_ns) // 10**6} ms")
                continue
            if now_ns - max(link.heard_ns, link.pinged_ns) >= self._heartbeat_ns:
                link.pinged_ns = now_ns
                self._say(link, Kind.PING)
            due_ns = min(due_ns, max(link.heard_ns, link.pinged_ns) + self._heartbeat_ns)
        for descriptor, (port, since_ns) in list(self._silent.items()):
            if now_ns - since_ns < HELLO_NS_MAX:
                due_ns = min(due_ns, since_ns + HELLO_NS_MAX)
                break
            if port.is_open:
                self._look_for_ends(port)
            if descriptor in self._silent:
                self._hang_up(descriptor)
        self._due_ns = due_ns if self._links or self._silent else None
