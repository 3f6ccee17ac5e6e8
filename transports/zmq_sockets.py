"""The ZeroMQ sockets of one transport: one ROUTER per listening endpoint, one DEALER per dialled link, all watched.

Decides how ZeroMQ is set up: what it would do behind our back is switched off, so a DEALER that loses its connection is
never reconnected (T13). Leaves which endpoints are allowed to `endpoints`, and what comes and goes to others.

Readiness: a ZeroMQ descriptor tells of changes, not of states, and a send may swallow the change. So every socket that
was used since is `unsettled` until it is asked again.
"""

from __future__ import annotations

import itertools
import os
import select
import struct
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import zmq

from embedbk.errors import UsageError
from embedbk.ports.links import Identity
from embedbk.transports.endpoints import ipc_users, is_ipv6
from embedbk.transports.envelope import LINK_BYTES_MAX, NONCE_BYTES, Kind, envelope_prefix
from embedbk.transports.zmq_accepted import with_numbers_of_chance
from embedbk.transports.zmq_descriptors import NO_DESCRIPTOR
from embedbk.transports.zmq_routes import Routes

__all__ = ["LINKS_MAX", "NO_NONCE", "READABLE", "WRITABLE", "Link", "Port", "Sockets", "state"]

LIBZMQ_VERSION_MIN = (4, 3, 4)  # Older ones have memory faults that a peer can reach (T26).
if zmq.zmq_version_info() < LIBZMQ_VERSION_MIN:
    raise ImportError(f"libzmq {zmq.zmq_version()} is too old; at least 4.3.4 is needed")

LINKS_MAX = 1024  # Accepted and dialled together; the next one is refused.
SEND_BODIES_MAX = 16 << 10  # Bodies of one link in ZeroMQ's queue; the window, in bytes, usually fills first.
RECEIVE_BODIES_MAX = 256  # Bodies of one link in ZeroMQ's queue, each of at most LINK_BYTES_MAX.
HANDSHAKE_MS_MAX = 2000  # For ZeroMQ's own handshake: a caller that says nothing is hung up on (T11).

# The threads of a context take four descriptors when they begin, and its first socket one.
_DESCRIPTORS_FIRST = 8
_LET_HAVE_MORE = "let this process have more descriptors (ulimit -n), or close some"

NO_NONCE = bytes(NONCE_BYTES)
_monitor_numbers = itertools.count()

_MONITORED = struct.Struct("=HI")

# Plain numbers: ZeroMQ's enums cost more than what they are used for here.
READABLE, WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
_EVENTS, _NOBLOCK = int(zmq.EVENTS), int(zmq.NOBLOCK)
_LOST = int(
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_ACCEPTED = int(zmq.EVENT_ACCEPTED)
_CONNECTED = int(zmq.EVENT_CONNECTED)
_DISCONNECTED = int(zmq.EVENT_DISCONNECTED)


def state(socket: zmq.Socket[bytes]) -> int:
    """What the socket is ready for. Asking also does its housekeeping, and re-arms its descriptor."""
    return cast(int, socket.getsockopt(_EVENTS))


class Port:
    """One ZeroMQ socket with its monitor, and the links on it: many of a ROUTER, one of a DEALER."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str) -> None:
        self.is_listening = kind == zmq.ROUTER
        make = partial(context.socket, kind)
        self.socket: zmq.Socket[bytes] = with_numbers_of_chance(make) if self.is_listening else make()
        self.endpoint = endpoint
        self.address = int(self.socket.underlying)
        self.sends_frames = False  # DEALER: by reference (zmq_send.py).
        self.is_open = True
        self.has_backlog = False
        self.routes: dict[bytes, Link] = {}  # ROUTER: by the routing id that our ROUTER gave the connection.
        self.descriptors: dict[
            int, Link
        ] = {}  # ROUTER: by the connection's descriptor, as the monitor names it.
        self.dialled: Link | None = None
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
        if self.is_listening and endpoint.startswith("ipc://"):
            for user in ipc_users():  # ZeroMQ reads nothing from others.
                self.socket.setsockopt(zmq.IPC_FILTER_UID, user)
        with ExitStack() as opened:  # Closed again where the system has nothing left for the rest.
            opened.callback(self.socket.close, 0)
            self.numbers = Routes(context, self.socket) if self.is_listening else None
            # Not get_monitor_socket(): its queue has an end, at which ZeroMQ's I/O thread would wait for us.
            self.monitor = context.socket(zmq.PAIR)
            opened.callback(self.monitor.close, 0)
            self.monitor.setsockopt(zmq.RCVHWM, 0)
            self.monitor.setsockopt(zmq.LINGER, 0)
            name = f"inproc://monitor-{next(_monitor_numbers)}"  # Closing ends later: no name twice.
            self.socket.monitor(name, _ACCEPTED | _DISCONNECTED if self.is_listening else _CONNECTED | _LOST)
            self.monitor.connect(name)
            self.filenos = tuple(cast(int, each.getsockopt(zmq.FD)) for each in (self.socket, self.monitor))
            opened.pop_all()

    @property
    def awaited(self) -> int:
        """The event to wait for: a body, or a dialled connection that stands and waits for our Hello."""
        is_greeting = self.dialled is not None and not self.dialled.has_greeted
        return READABLE | WRITABLE if is_greeting else READABLE

    def connection_news(self) -> list[tuple[bool, int]]:
        """What happened since the last call, in order: whether a connection began, else it ended; and its
        descriptor."""
        news = []
        while state(self.monitor) & READABLE:
            event, descriptor = _MONITORED.unpack(self.monitor.recv(_NOBLOCK))
            self.monitor.recv(_NOBLOCK)  # The address: known already.
            if event == _ACCEPTED and self.numbers is not None:
                self.numbers.accepted_count += 1
            news.append((event in (_ACCEPTED, _CONNECTED), descriptor))
        return news

    def close(self) -> None:
        self.is_open = False
        self.socket.disable_monitor()
        self.socket.close(0)
        self.monitor.close(0)


def _look_for_room() -> None:
    """Raises OSError where the threads of a context would find no descriptor: libzmq ends the process then
    (`epoll_t`)."""
    with ExitStack() as held:
        for _ in range(_DESCRIPTORS_FIRST):
            held.callback(os.close, os.eventfd(0, os.EFD_CLOEXEC))


class Link:
    """One end of a link."""

    def __init__(self, number: int, port: Port, route: bytes | None, dialler_nonce: bytes) -> None:
        self.number = number
        self.port = port
        self.route = route  # None if we dialled.
        self.dialler_nonce = dialler_nonce
        self.listener_nonce = NO_NONCE
        self.data_prefix = b""
        self.is_up = False
        self.has_greeted = False
        self.expect: Identity | None = None
        self.descriptor = NO_DESCRIPTOR
        self.swallowed_bytes = (
            0  # By ZeroMQ from the connection, when last a body or control of it was heard.
        )
        self.swallowed_ns = 0  # When that was heard.
        self.since_ns: int | None = None  # When it was first looked at; `connect` is not told the time.
        self.heard_ns = 0
        self.pinged_ns = 0
        self.sent_bytes = 0
        self.credited_bytes = 0  # The part of sent_bytes that the peer has reported as received.
        self.received_bytes = 0
        self.reported_bytes = 0  # The part of received_bytes that was reported to the peer.

    def become_up(self, listener_nonce: bytes, now_ns: int) -> None:
        self.listener_nonce = listener_nonce
        self.data_prefix = envelope_prefix(Kind.DATA, self.dialler_nonce, listener_nonce)
        self.is_up = True
        self.heard_ns = self.pinged_ns = now_ns


class Sockets:
    """The sockets of one transport, in a context with one I/O thread of its own."""

    def __init__(self) -> None:
        self.is_open = True
        self.by_fileno: dict[int, tuple[Port, bool]] = {}  # Its port, and whether it is the monitor's.
        self.unseen: dict[Port, None] = {}  # Their monitors have something to say.
        self.unsettled: dict[Port, None] = {}  # Used since they were last asked whether they have work.
        self._has_begun = False  # ZeroMQ's threads run: they begin with the first socket.
        with ExitStack() as opened:
            try:
                self._context = zmq.Context(io_threads=1)
                opened.callback(self._context.destroy, linger=0)
                self._context.set(zmq.MAX_SOCKETS, 4 * LINKS_MAX)
                # Holds all ZeroMQ descriptors: the host polls one that never changes.
                self._ready = select.epoll()
            except (OSError, zmq.ZMQError) as error:
                raise UsageError(
                    f"no transport can be made: {error.strerror}", hint=_LET_HAVE_MORE
                ) from error
            opened.pop_all()
        self._ipc_paths: list[Path] = []

    def listen(self, endpoint: str) -> Port:
        """Raises UsageError where it cannot be bound."""
        port = self._port(zmq.ROUTER, endpoint)
        try:
            port.socket.bind(endpoint)
        except zmq.ZMQError as error:
            port.close()
            what = "is in use" if error.errno == zmq.EADDRINUSE else f"cannot be bound: {error.strerror}"
            hint = (
                "check the directory that it stands in"
                if endpoint.startswith("ipc://")
                else "port 0 takes any free one"
            )
            raise UsageError(f"endpoint {endpoint!r} {what}", hint=hint) from error
        self._watch(port)
        if endpoint.startswith("ipc://") and not endpoint.startswith("ipc://@"):
            self._ipc_paths.append(Path(endpoint.removeprefix("ipc://")))
        port.endpoint = cast(bytes, port.socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        return port

    def dial(self, endpoint: str) -> Port:
        """Raises UsageError for what ZeroMQ cannot dial."""
        port = self._port(zmq.DEALER, endpoint)
        try:
            port.socket.connect(endpoint)
        except zmq.ZMQError as error:
            port.close()
            raise UsageError(f"endpoint {endpoint!r} cannot be dialled: {error.strerror}") from error
        self._watch(port)
        return port

    def _port(self, kind: int, endpoint: str) -> Port:
        """Raises UsageError: the system has nothing left for one more. It may have later, so it ends no host."""
        try:
            if not self._has_begun:
                _look_for_room()
            port = Port(self._context, kind, endpoint)
        except (OSError, zmq.ZMQError) as error:
            raise UsageError(
                f"endpoint {endpoint!r}: no socket can be made for it: {error.strerror}", hint=_LET_HAVE_MORE
            ) from error
        self._has_begun = True
        return port

    def _watch(self, port: Port) -> None:
        for fileno, is_monitor in zip(port.filenos, (False, True), strict=True):
            self.by_fileno[fileno] = (port, is_monitor)
            self._ready.register(fileno, select.EPOLLIN)
        self.unsettled[port] = self.unseen[port] = None

    def watch(self, fileno: int) -> None:
        """Watch a descriptor of the transport that is no socket's: `fileno` shows it, too."""
        self._ready.register(fileno, select.EPOLLIN)

    def hang_up(self, port: Port) -> None:
        """Close the socket of a dialled link, and with it all that was queued."""
        for fileno in port.filenos:
            del self.by_fileno[fileno]
            self._ready.unregister(fileno)
        port.close()

    def fileno(self) -> int:
        """Readable when one of the descriptors is."""
        return self._ready.fileno()

    def ports(self) -> list[Port]:
        return list(dict.fromkeys(port for port, _ in self.by_fileno.values()))

    def look(self) -> None:
        """Note the ports whose descriptors are ready."""
        for fileno, _ in self._ready.poll(0):
            if fileno not in self.by_fileno:
                continue  # Adds (zmq_adds.py): they have their turn in any case.
            port, is_monitor = self.by_fileno[fileno]
            self.unsettled[port] = None
            if is_monitor:
                self.unseen[port] = None

    def close(self) -> None:
        self.is_open = False
        for port in self.ports():
            port.close()
        self.by_fileno.clear()
        self.unsettled.clear()
        self.unseen.clear()
        self._ready.close()
        self._context.destroy(linger=0)
        for path in self._ipc_paths:
            path.unlink(missing_ok=True)
