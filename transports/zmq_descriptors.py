"""What the system knows of a ZeroMQ connection, by its descriptor: how much has come, and how to end it.

Decides nothing. The descriptor is ZeroMQ's own and may be closed, or another's, in any moment: then nothing is known,
or a link is lost that is dialled again. Only what is a socket can be asked and shut down.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterator

import zmq

from embedbk.transports.zmq_accepted import HeldPart

__all__ = ["NO_DESCRIPTOR", "descriptor_of", "shut_down", "swallowed_bytes", "user_of"]

NO_DESCRIPTOR = -1

_BYTES_RECEIVED_AT = 128  # In Linux' struct tcp_info, since 4.1.
_TCP_INFO_BYTES = _BYTES_RECEIVED_AT + 8
_PEER = struct.Struct("=iII")  # Linux' struct ucred: process, user, group.


def descriptor_of(part: zmq.Frame | HeldPart) -> int:
    """The descriptor of the connection that a part came from. Framings before ZeroMQ 3.0 give their parts none."""
    try:
        return int(part.get(zmq.SRCFD))
    except zmq.ZMQError:
        return NO_DESCRIPTOR


def swallowed_bytes(descriptor: int) -> int:
    """What ZeroMQ has read from this connection, ever; 0 where the system cannot say (a local socket)."""
    unread = array.array("i", [0])
    try:
        with _borrowed(descriptor) as connection:
            facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            fcntl.ioctl(connection, termios.FIONREAD, unread)
    except OSError:
        return 0
    if len(facts) < _TCP_INFO_BYTES:
        return 0
    (received,) = struct.unpack_from("=Q", facts, _BYTES_RECEIVED_AT)
    return max(0, int(received) - unread[0])


def user_of(descriptor: int) -> int | None:
    """The number of the user that made the other end of a local socket; None for every other socket."""
    try:
        with _borrowed(descriptor) as connection:
            family = connection.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
            facts = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    except OSError:
        return None
    return int(_PEER.unpack(facts)[1]) if family == socket.AF_UNIX else None


def shut_down(descriptor: int) -> None:
    """End a connection of which ZeroMQ knows no end: its I/O thread reads the end of the stream, and closes."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:  # Else it has ended by itself.
        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    own = os.dup(descriptor)
    try:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=own)
    except BaseException:
        os.close(
            own
        )  # It is no socket by now: a pipe, say, whose reader waits until nobody holds its other end.
        raise
    with connection:
        yield connection
