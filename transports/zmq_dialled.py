"""Bodies of dialled ZeroMQ links in C (native/road/zmq_dialled.h), for a transport whose answers are counted there.

Decides nothing: it is the first branch of `zmq_intake.ZmqIntake.on_part`, without an object per body. Where libzmq
cannot be used from C there is none, and the transport does it in Python.
"""

from __future__ import annotations

from typing import Any, Final

import zmq

from embedbk._native import ffi, lib
from embedbk.codec.answers import Answers
from embedbk.transports.zmq_accepted import HeldPart, address_of, is_library_found, joined

__all__ = ["BOUND", "EMPTY", "HELD", "DialledLinks", "open_dialled"]

EMPTY: Final = int(lib.EBK_ZMQ_EMPTY)  # The socket has nothing more, and its descriptor tells when it has.
BOUND: Final = int(lib.EBK_ZMQ_BOUND)
HELD: Final = int(lib.EBK_ZMQ_HELD)


class DialledLinks:
    """The dialled links of one transport; made by `open_dialled`."""

    __slots__ = ("_state", "answers", "handle")

    def __init__(self, drain: Any, answers: Any) -> None:
        self.handle = drain
        self.answers = answers
        self._state = lib.ebk_zmq_dialled_state(drain)

    def drain(self, socket: Any, link: int, prefix: bytes, bodies_max: int, bytes_max: int) -> int:
        """Receive until there is no more (EMPTY), a bound is reached (BOUND), or a part is Python's (HELD)."""
        found: int = lib.ebk_zmq_dialled_drain(
            self.handle, address_of(socket), link, prefix, self.answers, bodies_max, bytes_max
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

    def held(self) -> HeldPart:
        """What the last drain ended with, copied."""
        state = self._state
        return joined(state.data, state.size, state.tail, state.tail_size, bool(state.more), -1)


def open_dialled(socket: zmq.Socket[bytes], answers: Answers) -> DialledLinks | None:
    """answers: what counts. Returns None if the library behind this socket cannot be used here."""
    if not is_library_found(socket):
        return None
    drain = lib.ebk_zmq_dialled_new()
    return (
        None if drain == ffi.NULL else DialledLinks(ffi.gc(drain, lib.ebk_zmq_dialled_free), answers.handle)
    )
