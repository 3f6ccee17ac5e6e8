"""Links inside one process: bodies are handed over by reference, with no sockets and no copies.

Decides how two nodes of one process (on one host thread or on two) exchange bodies, and how one wakes the other.
Hello says and refuses the same as between processes (P7.2). What is handed over is bytes, never objects of the
nodes: moving a node to another process changes nothing.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence

from embedbk.codec.kernels import gather
from embedbk.config import MESSAGE_BYTES_MAX
from embedbk.errors import UsageError
from embedbk.ports.add_path import AddPath
from embedbk.ports.links import Buffer, Identity, LinkDown, LinkUp, Received, TransportEvent
from embedbk.ports.transport import Transport
from embedbk.transports.envelope import PROTOCOL_VERSIONS, Hello, check_settings, objection, stranger

__all__ = ["LocalTransport"]

SCHEME = "local://"


class _End:
    """One end of a link. Each field is written by one thread only, so the two ends need no lock between them."""

    __slots__ = (
        "handed_bytes",
        "is_dialled",
        "is_up",
        "is_waiting",
        "number",
        "other",
        "owner",
        "taken_bytes",
    )

    def __init__(self, owner: LocalTransport, number: int, *, is_dialled: bool) -> None:
        self.owner = owner
        self.number = number
        self.is_dialled = is_dialled
        self.is_up = False  # Its owner has been given LinkUp.
        self.other: _End
        self.handed_bytes = 0  # By this end to the other; written by this owner's thread.
        self.taken_bytes = 0  # By this owner's `receive`; written by the same thread.
        self.is_waiting = False  # A send was refused: the taker wakes this end when there is room.

    def is_joined(self) -> bool:
        return hasattr(self, "other")  # Not when the dialled endpoint refused.


class LocalTransport(Transport):
    """A Transport (embedbk.ports) between nodes of one process. Endpoints are `local://NAME`, `local://*` for any.

    Args:
        identity: what this node says in Hello; may be set again when the cluster token was learnt.
        window_bytes: handed over on one link and not yet received; `send` says False beyond it.
        protocols: oldest and newest protocol version that the node speaks.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        window_bytes: int = 16 << 20,
        protocols: tuple[int, int] = PROTOCOL_VERSIONS,
    ) -> None:
        check_settings(identity, protocols, window_bytes)
        self.identity = identity
        self._protocols = protocols
        self._window_bytes = window_bytes
        self._ends: dict[int, _End] = {}
        self._numbers = itertools.count(1)  # Numbers of links; drawn by peers' threads too, in one step.
        self._now_ns = 0
        self._lock = threading.Lock()  # Guards what follows: peers on other threads add to it.
        self._inbox: list[
            tuple[_End | None, TransportEvent | tuple[Buffer, ...]]
        ] = []  # A tuple: a body in pieces.
        self._add_path: AddPath | None = None
        self._is_signalled = False
        self._thread = 0  # The thread that called `receive` last.
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_open = True

    def listen(self, endpoint: str) -> str:
        self._check_open()
        return _EXCHANGE.register(endpoint, self)

    def connect(self, endpoint: str, expect: Identity | None = None) -> int:
        self._check_open()
        _check_endpoint(endpoint)
        end = _End(self, next(self._numbers), is_dialled=True)
        self._ends[end.number] = end
        why = _EXCHANGE.join(endpoint, end, expect)
        if why is not None:
            self._put(end, LinkDown(end.number, why))
        return end.number

    def send(self, link: int, pieces: Sequence[Buffer]) -> bool:
        end = self._ends.get(link)
        if end is None or not end.is_up:
            return False
        size = sum(map(_size_of, pieces))
        if size > MESSAGE_BYTES_MAX:
            raise UsageError(f"body has {size} bytes; a link carries at most {MESSAGE_BYTES_MAX}")
        if not self._has_room(end, size):
            return False
        other = end.other
        if not other.owner._put(other, _kept(pieces)):
            return False
        end.handed_bytes += size
        return True

    def has_room(self, link: int, size: int) -> bool:
        end = self._ends.get(link)
        return end is not None and end.is_up and self._has_room(end, size)

    def _has_room(self, end: _End, size: int) -> bool:
        """With no room, the taker wakes this end when there is some."""
        other = end.other
        if end.handed_bytes - other.taken_bytes + size > self._window_bytes:
            end.is_waiting = True
            if end.handed_bytes - other.taken_bytes + size > self._window_bytes:
                return False  # Asked again: the taker may have looked for waiters just before we said so.
            end.is_waiting = False
        return True

    def drop(self, link: int, reason: str) -> None:
        end = self._ends.pop(link, None)
        if end is not None:
            self._put(None, LinkDown(link, reason))
            if not end.is_joined():
                return
            end.other.owner._put(end.other, LinkDown(end.other.number, f"the peer ended the link: {reason}"))

    def offer(self, add_path: AddPath | None) -> None:
        self._add_path = add_path

    def receive(self, now_ns: int) -> list[TransportEvent]:
        if not self._is_open:
            return []
        self._now_ns = now_ns
        self._thread = threading.get_ident()
        with self._lock:
            if self._is_signalled:
                os.eventfd_read(self._wake)
                self._is_signalled = False
            inbox, self._inbox = self._inbox, []
        add_path, self._add_path = self._add_path, None
        events: list[TransportEvent] = []
        for end, event in inbox:
            if isinstance(event, tuple):
                if end is None or end.number not in self._ends:
                    continue  # Dropped here since: what is left of it is not delivered.
                self._take(end, sum(map(_size_of, event)))
                if add_path is None or end.is_dialled or not _offer(add_path, end.number, event):
                    # Behind an event of its link nothing may be taken before the host has seen that; links among each
                    # other have no order, but which ones have events is not worth knowing.
                    add_path = None
                    events.append(Received(end.number, _as_one(event)))
                continue
            if end is None:
                events.append(event)
                continue
            if isinstance(event, LinkUp) and not end.is_dialled:
                self._ends[end.number] = end
            if end.number not in self._ends:
                continue
            events.append(event)
            if isinstance(event, LinkUp):
                end.is_up = True
            else:
                del self._ends[end.number]
        return events

    def has_events(self) -> bool:
        return bool(self._inbox)

    def deadline_ns(self) -> int | None:
        # Nothing happens by time: a peer in this process is there or has closed.
        return self._now_ns if self._inbox else None

    def filenos(self) -> list[int]:
        return [self._wake] if self._is_open else []

    def close(self) -> None:
        if not self._is_open:
            return
        _EXCHANGE.leave(self)
        with self._lock:
            self._is_open = False
            found = [end for end, event in self._inbox if end is not None and isinstance(event, LinkUp)]
            self._inbox.clear()
            os.close(self._wake)
        for end in {end.number: end for end in [*self._ends.values(), *found] if end.is_joined()}.values():
            end.other.owner._put(end.other, LinkDown(end.other.number, "the peer closed"))
        self._ends.clear()

    # --- Between the ends ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError(f"the transport of {self.identity.node_id} is closed")

    def _put(self, end: _End | None, event: TransportEvent | tuple[Buffer, ...]) -> bool:
        """Add to this node's inbox, from any thread, and wake it; False when it has closed."""
        with self._lock:
            if not self._is_open:
                return False
            self._inbox.append((end, event))
            if threading.get_ident() != self._thread:  # Else `has_events` tells of it, without the system.
                self._signal()
        return True

    def _signal(self) -> None:
        if not self._is_signalled:
            self._is_signalled = True
            os.eventfd_write(self._wake, 1)

    def _take(self, end: _End, size: int) -> None:
        end.taken_bytes += size
        if end.other.is_waiting:
            end.other.is_waiting = False
            peer = end.other.owner
            with peer._lock:
                if peer._is_open:
                    peer._signal()

    def _hello(self) -> Hello:
        return Hello(self.identity, self._protocols)


class _Exchange:
    """Which transport listens on which endpoint, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, LocalTransport] = {}

    def register(self, endpoint: str, listener: LocalTransport) -> str:
        _check_endpoint(endpoint)
        with self._lock:
            if endpoint == SCHEME + "*":
                # No name that a process before this one gave: what it registered is in the catalog until its sessions
                # end, and a client that starts here would take it for a bookie of this process that is there already.
                endpoint = f"{SCHEME}any-{os.urandom(8).hex()}"
            if endpoint in self._listeners:
                raise UsageError(f"endpoint {endpoint!r} is in use", hint="local://* takes any free name")
            self._listeners[endpoint] = listener
        return endpoint

    def join(self, endpoint: str, ours: _End, expect: Identity | None) -> str | None:
        """Say both Hellos and join two ends; returns why not. Holds the lock, so that no end closes meanwhile."""
        dialler = ours.owner
        with self._lock:
            listener = self._listeners.get(endpoint)
            if listener is None:
                return f"nobody at {endpoint}"
            why = objection(listener._hello(), dialler._hello())
            if why is not None:
                return f"refused: {why}"
            why = stranger(expect, listener.identity)
            if why is not None:
                return why
            theirs = _End(listener, next(listener._numbers), is_dialled=False)
            ours.other, theirs.other = theirs, ours
            listener._put(theirs, LinkUp(theirs.number, dialler.identity))
            dialler._put(ours, LinkUp(ours.number, listener.identity))
        return None

    def leave(self, transport: LocalTransport) -> None:
        with self._lock:
            for endpoint in [name for name, who in self._listeners.items() if who is transport]:
                del self._listeners[endpoint]


_EXCHANGE = _Exchange()


def _check_endpoint(endpoint: str) -> None:
    if not endpoint.startswith(SCHEME) or endpoint == SCHEME:
        raise UsageError(f"endpoint {endpoint!r} is not understood: {SCHEME}NAME")


def _size_of(piece: Buffer) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)


def _kept(pieces: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The pieces as they are, where they cannot change any more; else joined."""
    if len(pieces) and all(type(piece) is bytes or _is_frozen(piece) for piece in pieces):
        return tuple(pieces)
    return (gather(tuple(pieces)),)


def _is_frozen(piece: Buffer) -> bool:
    return isinstance(piece, memoryview) and piece.readonly and piece.nbytes > 0


def _as_one(pieces: tuple[Buffer, ...]) -> memoryview:
    """The body as one read-only buffer."""
    if len(pieces) == 1 and len(pieces[0]):
        return memoryview(pieces[0]).cast("B").toreadonly()
    return memoryview(gather(pieces))


def _offer(add_path: AddPath, link: int, pieces: tuple[Buffer, ...]) -> bool:
    """Offer a body to the add path. An add's last piece is its frame's body, which is large and not copied for this."""
    if len(pieces) == 1:
        return add_path.take(link, pieces[0])
    return add_path.take(link, b"".join(pieces[:-1]), pieces[-1])
