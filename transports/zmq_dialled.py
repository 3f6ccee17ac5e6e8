"""Bodies of dialled ZeroMQ links in C (native/road/zmq_dialled.h), for a transport whose answers are counted there.

Decides nothing: it is the first branch of `zmq_intake.ZmqIntake.on_part`, without an object per body. Where libzmq
cannot be used from C there is none, and the transport does it in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import zmq

from embedbk._native import ffi, lib
from embedbk.transports.zmq_accepted import HeldPart, address_of, is_library_found, joined
from embedbk.transports.zmq_adds import LinkSender

__all__ = ["BOUND", "EMPTY", "WAIT_HELD", "HELD", "DialledLinks", "open_dialled"]

EMPTY: Final = int(lib.EBK_ZMQ_EMPTY)  # The socket has nothing more, and its descriptor tells when it has.
BOUND: Final = int(lib.EBK_ZMQ_BOUND)
HELD: Final = int(lib.EBK_ZMQ_HELD)
WAIT_HELD: Final = int(lib.EBK_CLIENT_WAIT_HELD)


class DialledLinks:
    """The dialled links of one transport; made by `open_dialled`."""

    __slots__ = ("_answers", "_drain", "_outcome", "_sender", "_state", "_wait")

    def __init__(self, drain: Any, answers: Any) -> None:
        self._drain = drain
        self._answers = answers
        self._state = lib.ebk_zmq_dialled_state(drain)
        self._wait: Any = None
        self._outcome = ffi.new("struct ebk_client_wait_outcome *")

    def drain(self, socket: Any, link: int, prefix: bytes, bodies_max: int, bytes_max: int) -> int:
        """Receive until there is no more (EMPTY), a bound is reached (BOUND), or a part is Python's (HELD)."""
        found: int = lib.ebk_zmq_dialled_drain(
            self._drain, address_of(socket), link, prefix, self._answers, bodies_max, bytes_max
        )
        return found

    @property
    def taken_bytes(self) -> int:
        """Bytes of the bodies that were counted in the last drain."""
        taken: int = self._state.taken_bytes
        return taken

    @property
    def received(self) -> tuple[int, int]:
        """How many parts the last drain received, and their bytes: all of them, the held one too."""
        return self._state.bodies, self._state.bytes

    def listen(
        self, links: Sequence[tuple[Any, int, int, bytes]], others: Sequence[int], sender: LinkSender
    ) -> bool:
        """Have `wait` listen to these links, each (socket, number, descriptor, prefix), watch other descriptors, and
        have adds of this sender take their turns. False: the system refuses."""
        given = ffi.new("struct ebk_client_wait_link[]", len(links))
        for place, (socket, number, descriptor, prefix) in zip(given, links, strict=True):
            place.socket, place.number, place.descriptor = address_of(socket), number, descriptor
            place.prefix = prefix
        self._sender = sender
        made = lib.ebk_client_wait_new(
            self._drain,
            self._answers,
            sender.links,
            sender.handle,
            given,
            len(links),
            list(others),
            len(others),
        )
        self._wait = None if made == ffi.NULL else ffi.gc(made, lib.ebk_client_wait_free)
        return bool(made != ffi.NULL)

    def wait(self, until_ns: int, untold_ns: int, credit_bytes: int) -> int:
        """Returns why it ended; the rest is told by the properties."""
        found: int = lib.ebk_client_wait_run(self._wait, until_ns, untold_ns, credit_bytes, self._outcome)
        return found

    @property
    def now_ns(self) -> int:
        """When the last wait ended."""
        return int(self._outcome.now_ns)

    @property
    def is_dry(self) -> bool:
        """No link has more, and their descriptors tell when they have."""
        return bool(self._outcome.is_dry)

    @property
    def ready(self) -> list[int]:
        """Other descriptors that ended the last wait."""
        return list(self._outcome.ready[0 : self._outcome.ready_count])

    @property
    def link(self) -> int:
        """Index of the link to which the held part belongs."""
        return int(self._outcome.link)

    def taken(self, link: int) -> int:
        """Bytes of bodies of one of the links that were counted in the last wait."""
        taken: int = lib.ebk_client_wait_taken(self._wait, link)
        return taken

    def held(self) -> HeldPart:
        """What the last drain ended with, copied."""
        state = self._state
        return joined(state.data, state.size, state.tail, state.tail_size, bool(state.more), -1)


def open_dialled(socket: zmq.Socket[bytes], answers: Any) -> DialledLinks | None:
    """answers: the handle of what counts (codec.answers). None: the library behind this socket cannot be used here."""
    if not is_library_found(socket):
        return None
    drain = lib.ebk_zmq_dialled_new()
    return None if drain == ffi.NULL else DialledLinks(ffi.gc(drain, lib.ebk_zmq_dialled_free), answers)
