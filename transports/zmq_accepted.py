"""Accepted ZeroMQ links in C (native/road/zmq_accepted.h), for a transport whose host offers an add path.

Decides nothing: it is the first branch of `zmq_intake.ZmqIntake.on_part`, without an object per body. Where libzmq
cannot be found by address, or is not the version that pyzmq says, there is none, and the transport does it in Python.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import zmq

from embedbk._native import ffi, lib
from embedbk.forking import free_in_children
from embedbk.ports.add_path import AddPath
from embedbk.transports.envelope import LINK_BYTES_MAX
from embedbk.transports.structs import path_struct

__all__ = [
    "HeldPart",
    "AcceptedLinks",
    "address_of",
    "is_library_found",
    "joined",
    "open_accepted",
    "skip_parts",
    "with_numbers_of_chance",
]


_Made = TypeVar("_Made")
_drawing = free_in_children(threading.Lock())


class HeldPart:
    """What `zmq.Frame` shows of a part, for one that was received in C, or for two that were joined."""

    __slots__ = ("_descriptor", "buffer", "more")

    def __init__(self, buffer: memoryview, more: bool, descriptor: int) -> None:
        self.buffer = buffer
        self.more = more
        self._descriptor = descriptor

    def get(self, option: int) -> int:
        assert option == zmq.SRCFD
        return self._descriptor


class AcceptedLinks:
    """The links of one transport that are up; made by `open_accepted`."""

    def __init__(self, links: Any) -> None:
        self.handle = links
        self._number = ffi.new("uint64_t *")
        self._taken = ffi.new("uint64_t *")
        self._sent = ffi.new("uint64_t *")

    def up(self, socket: Any, number: int, route: bytes, prefix: bytes) -> None:
        """Note that bodies from this route of this socket belong to the link `number`. A link that C refuses stays with
        Python."""
        lib.ebk_zmq_accepted_up(self.handle, address_of(socket), number, route, len(route), prefix)

    def down(self, number: int) -> None:
        lib.ebk_zmq_accepted_down(self.handle, number)

    def drain(
        self, socket: Any, add_path: AddPath | None, bodies_max: int, bytes_max: int
    ) -> tuple[bytes, HeldPart] | bool:
        """Receive until there is no more (False), a bound is reached (True), or a part is Python's: route and part.

        add_path: what bodies are offered to; None: they are not.
        """
        path = ffi.NULL if add_path is None else path_struct(add_path)
        found = lib.ebk_zmq_accepted_drain(self.handle, address_of(socket), path, bodies_max, bytes_max)
        if found != lib.EBK_ZMQ_HELD:
            return bool(found == lib.EBK_ZMQ_BOUND)
        return self.held()

    def held(self) -> tuple[bytes, HeldPart]:
        """The part that is Python's, and its route."""
        held = lib.ebk_zmq_accepted_held(self.handle)
        return bytes(ffi.buffer(held.route, held.route_size)), joined(
            held.data, held.size, held.tail, held.tail_size, bool(held.more), held.descriptor
        )

    def set_room(self, number: int, size: int) -> None:
        """Let C send so many bytes on this link; before the first call it may send none."""
        lib.ebk_zmq_accepted_set_room(self.handle, number, size)

    def moved(self) -> Iterator[tuple[int, int, int]]:
        """(number, bytes taken, bytes sent) of the links on which bodies were taken or sent since the last call."""
        while lib.ebk_zmq_accepted_moved(self.handle, self._number, self._taken, self._sent):
            yield self._number[0], self._taken[0], self._sent[0]


def joined(data: Any, size: int, tail: Any, tail_size: int, more: bool, descriptor: int) -> HeldPart:
    """A copy of what C holds, which may be in two parts."""
    pieces, is_too_long = [ffi.buffer(data, size)], size + tail_size > LINK_BYTES_MAX
    if tail_size and not is_too_long:  # Else it is none of ours, and is not joined.
        pieces.append(ffi.buffer(tail, tail_size))
    return HeldPart(memoryview(b"".join(pieces)), more or is_too_long, descriptor)


def address_of(socket: Any) -> Any:
    return ffi.cast("void *", socket)


def is_library_found(socket: zmq.Socket[bytes]) -> bool:
    """Whether the library behind this socket can be used from C."""
    found = lib.ebk_zmq_load(address_of(socket.underlying), *zmq.zmq_version_info()[:3])
    return bool(found == lib.EBK_OK)


def skip_parts(socket: zmq.Socket[bytes]) -> bool:
    """Take what is left of a message, however many parts that is. False: that cannot be done from here."""
    return bool(lib.ebk_zmq_skip(address_of(socket.underlying)))


def with_numbers_of_chance(make: Callable[[], _Made]) -> _Made:
    """Make a ROUTER. libzmq draws its first number from rand(), which is not seeded: it would be the same
    everywhere."""
    with _drawing:
        lib.ebk_rand_begin(secrets.randbits(32))
        try:
            return make()
        finally:
            lib.ebk_rand_end()


def open_accepted(socket: zmq.Socket[bytes]) -> AcceptedLinks | None:
    """None where the library behind this socket cannot be used from C."""
    if not is_library_found(socket):
        return None
    links = lib.ebk_zmq_accepted_new()
    return None if links == ffi.NULL else AcceptedLinks(ffi.gc(links, lib.ebk_zmq_accepted_free))
