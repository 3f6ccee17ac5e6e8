"""ZeroMQ's own wire forms, written by hand: what a stranger's socket may say (ZMTP 1.0, 2.0, 3.0 and 3.1)."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time

from embedbk.transports.conformance import identity_of
from embedbk.transports.envelope import NONCE_BYTES, Hello, Kind, encode_hello, envelope_prefix, seal

__all__ = ["VERSIONS", "Stranger", "frame", "greeting", "has_ended", "hello", "script"]

VERSIONS = (1, 2, 3)


def greeting(version: int, name: bytes = b"", kind: bytes = b"DEALER") -> bytes:
    """What a connection begins with, up to where messages may follow. name: the route that it asks for."""
    if version == 1:
        return frame(1, name)
    if version == 2:
        return b"\xff" + bytes(8) + b"\x7f\x01\x05" + frame(2, name)
    properties = _property(b"Socket-Type", kind) + _property(b"Identity", name)
    ready = b"\x05READY" + properties
    head = bytes([4, len(ready)]) if len(ready) < 256 else b"\x06" + struct.pack(">Q", len(ready))
    return b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32) + head + ready


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def frame(version: int, body: bytes, *, more: bool = False) -> bytes:
    """One part of a message."""
    if version == 1:
        size = len(body) + 1
        head = bytes([size]) if size < 255 else b"\xff" + struct.pack(">Q", size)
        return head + bytes([more]) + body
    if len(body) < 256:
        return bytes([more, len(body)]) + body
    return bytes([2 | more]) + struct.pack(">Q", len(body)) + body


def hello(nonce: bytes = b"mynonce.", node_id: str = "raw") -> bytes:
    body = encode_hello(Hello(identity_of(node_id)))
    return seal(envelope_prefix(Kind.HELLO, nonce, bytes(NONCE_BYTES)), len(body)) + body


class Stranger:
    """A connection of plain bytes."""

    def __init__(self, endpoint: str, version: int = 3, name: bytes = b"") -> None:
        self.version = version
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(20)
        self.heard = self.unsent = b""
        self.has_ended = False
        begun = greeting(version, name)
        if version == 3:  # In steps, as the other end's greeting and READY come.
            self.socket.sendall(begun[:64])
            self._await(64)
            self.socket.sendall(begun[64:])
            self._await(70)
        else:
            self.socket.sendall(begun)
        self.heard = b""
        self.socket.setblocking(False)

    def _await(self, size: int) -> None:
        while len(self.heard) < size and (part := self.socket.recv(1 << 16)):
            self.heard += part

    def send(self, block: bytes = b"") -> bool:
        """Whether all of it, and what was sent before, was taken; the rest goes with the next call."""
        self.unsent += block
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except (BlockingIOError, ConnectionError):
            return False
        return True

    def say(self, *parts: bytes) -> bool:
        """One message."""
        blocks = [frame(self.version, part, more=at < len(parts) - 1) for at, part in enumerate(parts)]
        return self.send(b"".join(blocks))

    @classmethod
    def accepted(cls, listener: socket.socket) -> Stranger:
        """The listening end of a connection: a ROUTER by its word."""
        stranger = cls.__new__(cls)
        stranger.version, stranger.unsent, stranger.heard, stranger.has_ended = 3, b"", b"", False
        stranger.socket, _ = listener.accept()
        stranger.socket.settimeout(20)
        stranger.socket.sendall(greeting(3, kind=b"ROUTER"))
        stranger._await(70)
        stranger.socket.setblocking(False)
        return stranger

    def listen(self) -> bool:
        """Whether the connection stands still; takes what came."""
        with contextlib.suppress(BlockingIOError):
            try:
                while part := self.socket.recv(1 << 16):
                    self.heard += part
                self.has_ended = True
            except ConnectionError:
                self.has_ended = True
        return not self.has_ended

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def has_ended(stranger: Stranger) -> bool:
    return not stranger.listen()


# --- By chance -------------------------------------------------------------------------------------------


def script(chance: random.Random, bodies: list[bytes]) -> list[bytes]:
    """What a connection sends, piece by piece: a greeting of any version, with something wrong in it or not, and
    messages of any parts, cut anywhere. bodies: what the receiver's protocol knows, to be told right or nearly."""
    version = chance.choice(VERSIONS)
    name = chance.choice([b"", b"", b"", b"\0abcd", b"name", b"x" * 255, b"x" * 256, b"x" * 3000])
    begun = bytearray(greeting(version, name, chance.choice([b"DEALER", b"ROUTER", b"REQ", b"PUB", b"none"])))
    if chance.random() < 0.3:
        begun[chance.randrange(len(begun))] = chance.randrange(256)
    if chance.random() < 0.1:
        begun = begun[: chance.randrange(len(begun))]
    said = bytes(begun)
    for _ in range(chance.randrange(6)):
        said += _message(version, chance, bodies)
    if chance.random() < 0.2:
        said += chance.randbytes(chance.randrange(40))
    cuts = sorted(chance.randrange(len(said) + 1) for _ in range(chance.randrange(4)))
    return [said[a:b] for a, b in zip([0, *cuts], [*cuts, len(said)], strict=True)]


def _message(version: int, chance: random.Random, bodies: list[bytes]) -> bytes:
    wire_version = version if chance.random() < 0.95 else chance.choice(VERSIONS)
    if version == 3 and chance.random() < 0.1:  # A command of ZeroMQ's own.
        command = chance.choice([b"\x04PING\0\0", b"\x04PONG", b"\x05READY", b"\x05ERROR\x01x", b"\xff", b""])
        return bytes([4, len(command)]) + command
    parts = []
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3, 7])):
        body = chance.choice([hello(), b"", chance.randbytes(chance.randrange(80)), *bodies])
        if chance.random() < 0.4 and body:
            changed = bytearray(body)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            body = bytes(changed)
        parts.append(body if chance.random() < 0.9 else body[: chance.randrange(len(body) + 1)])
    never_ends = chance.random() < 0.1
    return b"".join(
        frame(wire_version, part, more=never_ends or at < len(parts) - 1) for at, part in enumerate(parts)
    )


def play(endpoint: str, chance: random.Random, bodies: list[bytes]) -> Stranger | None:
    """One connection that plays a script; it may stay open."""
    stranger = Stranger.__new__(Stranger)
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    stranger.version, stranger.heard, stranger.unsent, stranger.has_ended = 3, b"", b"", False
    stranger.socket = socket.create_connection((host, int(port)))
    stranger.socket.setblocking(False)
    for piece in script(chance, bodies):
        stranger.send(piece)
        if chance.random() < 0.3:
            os.sched_yield()
    if chance.random() < 0.6:
        stranger.close()
        return None
    return stranger


def wait_until(is_reached: object, seconds: float = 20.0) -> None:
    give_up_s = time.monotonic() + seconds
    while not is_reached():  # type: ignore[operator]
        assert time.monotonic() < give_up_s
        os.sched_yield()
