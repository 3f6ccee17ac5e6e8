"""The links of a ZeroMQ transport that adds are sent over in C, and what all of a process keep for bookies that are
behind: handles of native/road/links.h and of `ebk_backlog` (native/road/link_adds.h).

Decides nothing. Where the answers of a transport are not counted in C, there is none of it.
"""

from __future__ import annotations

import os
from typing import Any

from embedbk._native import ffi, lib
from embedbk.config import BACKLOG_BYTES_MAX
from embedbk.core.backlog import Backlog
from embedbk.transports.adds import Turns
from embedbk.transports.zmq_accepted import address_of

__all__ = ["LinkSender", "SharedBacklog", "backlog_of_process"]


class SharedBacklog(Backlog):
    """`Backlog` where frames are kept in C as well; any thread."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.handle = ffi.new("struct ebk_backlog *", (0, bytes_max))

    @property
    def kept_bytes(self) -> int:
        return int(lib.ebk_backlog_kept(self.handle))

    def add(self, byte_count: int) -> None:
        lib.ebk_backlog_add(self.handle, byte_count)


_of_process: tuple[int, SharedBacklog] | None = None


def backlog_of_process() -> SharedBacklog:
    """One for all clients of this process. The child of a fork has none of its parent's handles, and one of its own."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = os.getpid(), SharedBacklog(BACKLOG_BYTES_MAX)
    return _of_process[1]


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
