"""What our zmq transport adds to bare pyzmq: one body there and back, and bodies one way, two processes on loopback.

The bare side has the same processes, the same ROUTER and DEALER, and the same wait in poll on one descriptor; it has
no Hello, envelope, heartbeat or bound in bytes.
"""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import zmq

from benchmarks import Row
from embedbk.ports.links import Identity, LinkUp, Received
from embedbk.transports.zmq import ZmqTransport

ROUND_TRIPS = 4000
ONE_WAY_BYTES_MAX = 256 << 20
SIZES = {"100B": 100, "1KiB": 1 << 10, "256KiB": 256 << 10}
STOP, COUNT = b"stop", b"count"  # Told apart from bodies by their size.


class Peer(Protocol):
    """Either side's end, ours or bare: bodies by number of whom they go to."""

    def send(self, to: int, body: bytes) -> bool: ...

    def wait(self) -> list[tuple[int, memoryview]]: ...

    def close(self) -> None: ...


class Ours:
    def __init__(self, name: str) -> None:
        self.transport = ZmqTransport(Identity("client", name, name.encode().ljust(16), b""))
        self.poll = select.poll()
        for fileno in self.transport.filenos():
            self.poll.register(fileno, select.POLLIN)

    def dial(self, endpoint: str) -> int:
        link = self.transport.connect(endpoint)
        while not any(isinstance(event, LinkUp) for event in self.transport.receive(time.monotonic_ns())):
            self._sleep()
        return link

    def send(self, to: int, body: bytes) -> bool:
        return self.transport.send(to, [body])

    def wait(self) -> list[tuple[int, memoryview]]:
        while True:
            events = self.transport.receive(time.monotonic_ns())
            if bodies := [(event.link, event.body) for event in events if isinstance(event, Received)]:
                return bodies
            if events:
                return []
            self._sleep()

    def _sleep(self) -> None:
        due_ns = self.transport.deadline_ns()
        self.poll.poll(None if due_ns is None else max(0, due_ns - time.monotonic_ns()) / 1e6)

    def close(self) -> None:
        self.transport.close()


class Bare:
    def __init__(self, kind: int) -> None:
        self.context = zmq.Context(1)
        self.socket = self.context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.is_router = kind == zmq.ROUTER
        self.routes: list[bytes] = []
        self.poller = zmq.Poller()
        self.poller.register(self.socket, zmq.POLLIN)

    def send(self, to: int, body: bytes) -> bool:
        try:
            if self.is_router:
                self.socket.send(self.routes[to], zmq.NOBLOCK | zmq.SNDMORE)
            self.socket.send(body, zmq.NOBLOCK, copy=len(body) < 64 << 10)
        except zmq.Again:
            return False
        return True

    def wait(self) -> list[tuple[int, memoryview]]:
        bodies: list[tuple[int, memoryview]] = []
        while not bodies:
            self.poller.poll()
            try:
                while len(bodies) < 1024:
                    if self.is_router:
                        route = self.socket.recv(zmq.NOBLOCK)
                        if route not in self.routes:
                            self.routes.append(route)
                    body = self.socket.recv(zmq.NOBLOCK, copy=False).buffer
                    bodies.append((self.routes.index(route) if self.is_router else 0, body))
            except zmq.Again:
                pass
        return bodies

    def close(self) -> None:
        self.context.destroy(linger=0)


def serve(peer: Peer) -> None:
    """Echo what has the size of an odd-numbered wish, count the rest, until told to stop."""
    count, is_echoing = 0, True
    while True:
        for whom, body in peer.wait():
            if len(body) == len(STOP) and body == STOP:
                return
            if len(body) == len(COUNT) and body == COUNT:
                while not peer.send(whom, str(count).encode()):
                    peer.wait()
                count, is_echoing = 0, False
            elif is_echoing:
                peer.send(whom, bytes(body))
            else:
                count += 1


def main(kind: str, endpoint: str) -> None:
    """The other process."""
    peer: Ours | Bare
    if kind == "ours":
        peer = Ours("echo")
        print(peer.transport.listen(endpoint), flush=True)
    else:
        peer = Bare(zmq.ROUTER)
        peer.socket.bind(endpoint)
        print(peer.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(), flush=True)  # type: ignore[union-attr]
    serve(peer)
    peer.close()


@contextmanager
def joined(kind: str, endpoint: str) -> Iterator[tuple[Peer, int]]:
    """Our end and whom to send to, with the other process running."""
    command = [sys.executable, "-m", "benchmarks.transport", kind, endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as other:
        assert other.stdout is not None
        bound = other.stdout.readline().strip()
        peer: Ours | Bare
        if kind == "ours":
            peer = Ours("dialler")
            to = peer.dial(bound)
        else:
            peer, to = Bare(zmq.DEALER), 0
            peer.socket.connect(bound)
        yield peer, to
        peer.send(to, STOP)
        other.wait()
        peer.close()


def round_trip_us(peer: Peer, to: int, size: int) -> float:
    body, times = bytes(size), []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        peer.send(to, body)
        while not peer.wait():
            pass
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def one_way_per_s(peer: Peer, to: int, size: int) -> float:
    """Bodies per second, from the first sent until the other side says that it has all."""
    body, count = bytes(size), min(200_000, ONE_WAY_BYTES_MAX // size)
    ask(peer, to)  # From here on it counts.
    began = time.perf_counter()
    for _ in range(count):
        while not peer.send(to, body):
            drain(peer)
    assert ask(peer, to) == count
    return count / (time.perf_counter() - began)


def drain(peer: Peer) -> None:
    """The link is full: a host would sleep until it hears of room."""
    if isinstance(peer, Ours):
        peer.transport.receive(time.monotonic_ns())
        peer._sleep()
    elif isinstance(peer, Bare):
        peer.socket.poll(flags=zmq.POLLOUT)


def ask(peer: Peer, to: int) -> int:
    while not peer.send(to, COUNT):
        drain(peer)
    while not (answers := peer.wait()):
        pass
    return int(bytes(answers[0][1]))


def measure() -> Iterator[Row]:
    probes: list[tuple[str, str, Callable[[Peer, int, int], float]]] = [
        ("round_trip_p50", "us", round_trip_us),
        ("one_way", "bodies/s", one_way_per_s),
    ]
    for probe, unit, run in probes:
        for name, size in SIZES.items():
            values = []
            for kind in ("ours", "bare"):
                with joined(kind, "tcp://127.0.0.1:0") as (peer, to):
                    values.append(run(peer, to, size))
            yield Row(f"transport/zmq/{name}/{probe}", values[0], unit, values[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
