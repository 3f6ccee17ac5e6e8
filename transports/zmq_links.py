"""Accepted ZeroMQ links in C (native/zmq_links.h), for a transport whose host offers an add path.

Decides nothing: it is the first branch of `zmq.ZmqTransport._on_part`, without an object per body. Where pyzmq's libzmq
cannot be found by address, or is not the version that pyzmq says, there is none, and the transport does it in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zmq

from embedbk._native import ffi, lib
from embedbk.transports.envelope import LINK_BYTES_MAX

__all__ = ["HeldPart", "ZmqLinks", "open_links"]


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


class ZmqLinks:
    """The links of one transport that are up; made by `open_links`."""

    def __init__(self, links: Any) -> None:
        self._links = links
        self._number = ffi.new("uint64_t *")
        self._bytes = ffi.new("uint64_t *")

    def up(self, socket: Any, number: int, route: bytes, prefix: bytes) -> None:
        """Bodies from this route of this socket are of the link `number`. One that C refuses stays with Python."""
        lib.ebk_zmq_link_up(self._links, address_of(socket), number, route, len(route), prefix)

    def down(self, number: int) -> None:
        lib.ebk_zmq_link_down(self._links, number)

    def drain(
        self, socket: Any, add_path: Any, bodies_max: int, bytes_max: int
    ) -> tuple[bytes, HeldPart] | bool:
        """Receive until there is no more (False), a bound is reached (True), or a part is Python's: route and part.

        add_path: the handle of the add path that bodies are offered to; None: to nobody.
        """
        path = ffi.NULL if add_path is None else add_path
        found = lib.ebk_zmq_drain(self._links, address_of(socket), path, bodies_max, bytes_max)
        if found != lib.EBK_ZMQ_HELD:
            return bool(found == lib.EBK_ZMQ_BOUND)
        held = lib.ebk_zmq_held(self._links)
        pieces, is_too_long = [ffi.buffer(held.data, held.size)], held.size + held.tail_size > LINK_BYTES_MAX
        if held.tail_size and not is_too_long:  # Else it is none of ours, and is not joined.
            pieces.append(ffi.buffer(held.tail, held.tail_size))
        return bytes(ffi.buffer(held.route, held.route_size)), HeldPart(
            memoryview(b"".join(pieces)), bool(held.more) or is_too_long, held.descriptor
        )

    def heard(self) -> Iterator[tuple[int, int]]:
        """(number, bytes of bodies) of the links of which something was taken since the last call."""
        while lib.ebk_zmq_heard(self._links, self._number, self._bytes):
            yield self._number[0], self._bytes[0]


def address_of(socket: Any) -> Any:
    return ffi.cast("void *", socket)


def open_links(socket: zmq.Socket[bytes]) -> ZmqLinks | None:
    """None where the library behind this socket cannot be used from C."""
    if lib.ebk_zmq_load(address_of(socket.underlying), *zmq.zmq_version_info()[:3]) != lib.EBK_OK:
        return None
    links = lib.ebk_zmq_links_new()
    return None if links == ffi.NULL else ZmqLinks(ffi.gc(links, lib.ebk_zmq_links_free))
