"""Bare probes for `reading`: the processes, sockets and preads of a read, and nothing of the protocol.

`python -m benchmarks._bare_reads serve [FILE]` is one bare peer: it prints its port, does what the first byte of a body
says, and ends when its standard input does.
`... listen PORT COUNT` and `... tail URL LOG COUNT` are readers in a process of their own, a bare one and ours: they
print a line when they stand at the end, and then, in one line of JSON, the number and the time of each body they got.

Times are those of the machine's one monotonic clock, so that those of two processes may be compared.
"""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import zmq

import embedbk

BLOCKS, PREAD, JOIN, RELAY = b"B", b"P", b"J", b"R"
NUMBER = struct.Struct("<Q")
_BLOCKS, _PREAD = struct.Struct("<cII"), struct.Struct("<cQI")
_PARENT = Path(__file__).parents[1]


class BarePeer:
    """The other process, dialled."""

    def __init__(self, file: Path | None = None) -> None:
        arguments = ["serve"] if file is None else ["serve", str(file)]
        self._popen = reader(arguments)
        assert self._popen.stdout is not None
        self.port = int(self._popen.stdout.readline())
        self._context = zmq.Context()
        self._socket = _dialled(self._context, self.port)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def blocks(self, count: int, size: int, window: int) -> None:
        """Ask for so many blocks, `window` of them at a time."""
        asked = got = 0
        while got < count:
            while asked < count and asked < got + window:
                self._socket.send(_BLOCKS.pack(BLOCKS, 1, size))
                asked += 1
            block = self._socket.recv(copy=False).buffer
            assert len(block) == size
            got += 1

    def pread(self, offset: int, size: int) -> None:
        self._socket.send(_PREAD.pack(PREAD, offset, size))
        assert len(self._socket.recv(copy=False).buffer) == size

    def relay(self, body: bytes) -> None:
        """Send body to all that have joined; nothing comes back."""
        self._socket.send(RELAY + body)

    def close(self) -> None:
        self._context.destroy(0)
        ended(self._popen)


def reader(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks._bare_reads", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_PARENT)


def ended(popen: subprocess.Popen[bytes]) -> None:
    assert popen.stdin is not None
    assert popen.stdout is not None
    popen.stdin.close()
    popen.stdout.close()
    popen.wait()


def arrivals(popen: subprocess.Popen[bytes]) -> list[tuple[int, int]]:
    """What a reader got, once it has all: (number, when). It runs on until it is ended."""
    assert popen.stdout is not None
    return [(number, when) for number, when in json.loads(popen.stdout.readline())]


def _dialled(context: zmq.Context[zmq.Socket[bytes]], port: int) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.connect(f"tcp://127.0.0.1:{port}")
    return socket


def _serve(file: str | None) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    fd = -1 if file is None else os.open(file, os.O_RDONLY)
    joined: list[bytes] = []
    block = b""
    poll = select.poll()
    for each in (0, socket.getsockopt(zmq.FD)):
        poll.register(each, select.POLLIN)
    while True:
        if not socket.getsockopt(zmq.EVENTS) & zmq.POLLIN and (0, select.POLLHUP) in poll.poll():
            break
        while socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            route, body = socket.recv_multipart()
            what = body[:1]
            if what == BLOCKS:
                _, count, size = _BLOCKS.unpack(body)
                if len(block) != size:
                    block = os.urandom(size)
                for _ in range(count):
                    socket.send(route, zmq.SNDMORE)
                    socket.send(block, copy=False)
            elif what == PREAD:
                _, offset, size = _PREAD.unpack(body)
                socket.send_multipart((route, os.pread(fd, size, offset)))
            elif what == JOIN:
                joined.append(route)
                socket.send_multipart((route, JOIN))
            else:
                for each in joined:
                    socket.send_multipart((each, body[1:]))
    context.destroy(0)


def _listen(port: int, count: int) -> list[tuple[int, int]]:
    context = zmq.Context()
    socket = _dialled(context, port)
    socket.send(JOIN)
    socket.recv()
    print("joined", flush=True)
    got = []
    for _ in range(count):
        body = socket.recv()
        got.append((NUMBER.unpack_from(body)[0], time.perf_counter_ns()))
    context.destroy(0)
    return got


def _tail(url: str, log: str, count: int) -> list[tuple[int, int]]:
    """From the first entry on, which is there already: with it the reader stands at the end."""
    got: list[tuple[int, int]] = []
    with embedbk.open(url) as bk:
        for number, entry in enumerate(bk.log(log).tail(0)):
            when = time.perf_counter_ns()
            if number == 0:
                print("joined", flush=True)
                continue
            got.append((NUMBER.unpack_from(entry.data)[0], when))
            if len(got) == count:
                break
    return got


def main(what: str, *given: str) -> None:
    if what == "serve":
        _serve(given[0] if given else None)
        return
    got = (
        _listen(int(given[0]), int(given[1]))
        if what == "listen"
        else _tail(given[0], given[1], int(given[2]))
    )
    print(json.dumps(got), flush=True)
    sys.stdin.read()  # The processor time of a process that has ended cannot be asked for.


if __name__ == "__main__":
    main(*sys.argv[1:])
