"""The links of a ZeroMQ transport that adds are sent over in C: the handle of native/road/links.h.

Decides nothing. Where the answers of a transport are not counted in C, there is none of it.
"""

from __future__ import annotations

from typing import Any

from embedbk._native import ffi, lib
from embedbk.transports.adds import Turns
from embedbk.transports.zmq_accepted import address_of

__all__ = ["LinkSender"]


class LinkSender(Turns):
    """The turns of adds that go over the links of one transport, and those links."""

    def __init__(self) -> None:
        super().__init__()
        made = lib.ebk_links_new()
        if made == ffi.NULL:
            raise MemoryError("no memory for links that adds go over")
        self.links: Any = ffi.gc(made, lib.ebk_links_free)

    def show(self, link: int, socket: Any, prefix: bytes, room: int) -> None:
        """Note that this link is up, and takes so many bytes of bodies."""
        if lib.ebk_links_up(self.links, link, address_of(socket), prefix, room) < 0:
            raise MemoryError("no memory for a link that adds go over")

    def down(self, link: int) -> None:
        lib.ebk_links_down(self.links, link)

    def sent(self, link: int) -> int:
        """Bytes of bodies sent since the last call."""
        return int(lib.ebk_links_sent(self.links, link))
