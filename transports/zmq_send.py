"""Frames to dialled ZeroMQ links from where they stand (native/wire/zmq_send.h), and what of a body can be sent so.

Decides nothing. Where pyzmq's libzmq cannot be found by address, or is not the version that pyzmq says, bodies are
joined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from embedbk import _native
from embedbk._native import ffi, lib
from embedbk.ports.links import Buffer
from embedbk.transports.zmq_accepted import address_of

__all__ = ["can_send_frames", "frame_address", "send_frame", "send_pieces"]

# frame_address(view): where the frame of a packer begins whose whole body this is; 0 for any other buffer.
frame_address: Callable[[Buffer], int] = _native.frame_address
# send_pieces(address of a socket, prefix of its link, list of buffers): envelope and body as one part. Returns 1; 0: no
# room now; -1: the socket is over.
send_pieces: Callable[[int, bytes, list[Buffer]], int] = _native.send_pieces


def can_send_frames(socket: zmq.Socket[bytes]) -> bool:
    return bool(lib.ebk_zmq_load(address_of(socket.underlying), *zmq.zmq_version_info()[:3]) == lib.EBK_OK)


def send_frame(socket: zmq.Socket[bytes], head: bytes, address: int, size: int) -> bool | None:
    """Send the head, which is copied, then the frame as the second part. False: no room now; None: the socket is
    closed."""
    underlying: Any = socket.underlying
    code = lib.ebk_zmq_send_frame(
        address_of(underlying), head, len(head), ffi.cast("uint8_t *", address), size
    )
    return None if code == lib.EBK_FAILED else bool(code == lib.EBK_OK)
