"""A bare probe for the metadata quorum: its processes, their logs, syncs and sockets, and nothing of the protocol.

`python -m benchmarks._bare_quorum LOG follow | lead [PORT ...]` is one process: it prints its port. The leader makes
one batch of what came together from its client, sends it to the others, writes and syncs it here, and answers when half
of the others have synced it, too. It ends when its standard input does.

No terms, indexes, checksums, sessions, catalog or watches: what they cost is what the benchmark wants to know.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import zmq

__all__ = ["BareQuorum"]


class BareQuorum:
    """The processes, and a client of theirs."""

    def __init__(self, directory: Path, members: int) -> None:
        directory.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = [self._start(directory / f"{number}", "follow") for number in range(members - 1)]
        leader = self._start(directory / "leader", "lead", *map(str, ports))
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(f"tcp://127.0.0.1:{leader}")

    def _start(self, log: Path, *words: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._bare_quorum", str(log), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        self._processes.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline())

    def rate(self, outstanding: int, seconds: float, value: bytes) -> float:
        """Values a second, so many of them always under way."""
        socket, done = self._socket, 0
        for _ in range(outstanding):
            socket.send(value)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            socket.recv()
            socket.send(value)
            done += 1
        took_s = time.perf_counter() - began
        for _ in range(outstanding):
            socket.recv()
        return done / took_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close(0)
        self._context.term()
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait()
            process.stdout.close()


def _follow(socket: zmq.Socket[bytes], log: int) -> None:
    while True:
        route, batch = socket.recv_multipart()
        os.write(log, batch)
        os.fdatasync(log)
        socket.send_multipart([route, b""])


def _lead(
    socket: zmq.Socket[bytes], log: int, context: zmq.Context[zmq.Socket[bytes]], ports: list[int]
) -> None:
    others = []
    for port in ports:
        other = context.socket(zmq.DEALER)
        other.connect(f"tcp://127.0.0.1:{port}")
        others.append(other)
    poll, owed, needed = zmq.Poller(), [0] * len(others), len(others) // 2
    for other in others:
        poll.register(other, zmq.POLLIN)
    while True:
        asked = [socket.recv_multipart()]
        while socket.poll(0):
            asked.append(socket.recv_multipart())
        batch = b"".join(value for _, value in asked)
        for number, other in enumerate(others):
            other.send(batch)
            owed[number] += 1
        os.write(log, batch)
        os.fdatasync(log)
        while owed.count(0) < needed:  # Too few have answered to this batch.
            for other, _ in poll.poll():
                number = others.index(other)
                other.recv()
                owed[number] -= 1
        for number, other in enumerate(others):
            while owed[number] and other.poll(0):
                other.recv()
                owed[number] -= 1
        for route, _ in asked:
            socket.send_multipart([route, b""])


def _main() -> None:
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    log = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    if sys.argv[2] == "lead":
        _lead(socket, log, context, [int(port) for port in sys.argv[3:]])
    _follow(socket, log)


if __name__ == "__main__":
    _main()
