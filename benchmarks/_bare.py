"""A bare probe for `append`: the processes, threads, journals and wake-ups of one append, and nothing of the protocol.

`python -m benchmarks._bare DIRECTORY` is one bare storage process: it prints its port, then answers each body with
the number of it once it is on the device, and ends when its standard input does.

No frames, checksums, ids, quorums by write set, metadata or links: what they cost is what the benchmark wants to know.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import zmq

from embedbk.storage.journal import Journal

_KIND = 1


class BareLocal:
    """A caller, one host thread, `count` journals: an append is over when `acks` of them have it on the device."""

    def __init__(self, directory: Path, count: int, *, acks: int) -> None:
        directory.mkdir()
        self._journals = [Journal(directory / f"{number}") for number in range(count)]
        self._acks = acks
        self._queue: deque[bytes] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._done = threading.Condition()
        self._done_count = 0
        self._asked_count = 0
        self._is_open = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def append(self, data: bytes) -> None:
        self._asked_count += 1
        wanted = self._asked_count
        self._queue.append(bytes(memoryview(data)))
        os.eventfd_write(self._wake, 1)
        with self._done:
            self._done.wait_for(lambda: self._done_count >= wanted)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for journal in self._journals:
            poll.register(journal.fileno(), select.POLLIN)
        while self._is_open:
            for fd, _ in poll.poll():
                if fd == self._wake:
                    os.eventfd_read(self._wake)
            while self._queue:
                data = self._queue.popleft()
                for journal in self._journals:
                    journal.append(_KIND, 1, data)
            durable = sorted((journal.durable() for journal in self._journals), reverse=True)[self._acks - 1]
            if durable > self._done_count:
                with self._done:
                    self._done_count = durable
                    self._done.notify_all()

    def close(self) -> None:
        self._is_open = False
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        for journal in self._journals:
            journal.close()


class BareProcesses:
    """The same, with each journal in a process of its own behind a ZeroMQ socket."""

    def __init__(self, directory: Path, count: int, *, acks: int) -> None:
        directory.mkdir()
        self._acks = acks
        self._peers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks._bare", str(directory / f"{number}")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=Path(__file__).parents[1],
            )
            for number in range(count)
        ]
        self._context = zmq.Context()
        self._sockets = []
        for peer in self._peers:
            assert peer.stdout is not None
            socket = self._context.socket(zmq.DEALER)
            socket.connect(f"tcp://127.0.0.1:{int(peer.stdout.readline())}")
            self._sockets.append(socket)
        self._queue: deque[bytes] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._done = threading.Condition()
        self._done_count = 0
        self._asked_count = 0
        self._is_open = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def append(self, data: bytes) -> None:
        self._asked_count += 1
        wanted = self._asked_count
        self._queue.append(bytes(memoryview(data)))
        os.eventfd_write(self._wake, 1)
        with self._done:
            self._done.wait_for(lambda: self._done_count >= wanted)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for socket in self._sockets:
            poll.register(socket.getsockopt(zmq.FD), select.POLLIN)
        durable = [0] * len(self._sockets)
        while self._is_open:
            if not any(socket.getsockopt(zmq.EVENTS) & zmq.POLLIN for socket in self._sockets):
                for fd, _ in poll.poll():
                    if fd == self._wake:
                        os.eventfd_read(self._wake)
            while self._queue:
                data = self._queue.popleft()
                for socket in self._sockets:
                    socket.send(data)
            for number, socket in enumerate(self._sockets):
                while socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    durable[number] = int.from_bytes(socket.recv(), "little")
            done = sorted(durable, reverse=True)[self._acks - 1]
            if done > self._done_count:
                with self._done:
                    self._done_count = done
                    self._done.notify_all()

    def close(self) -> None:
        self._is_open = False
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        self._context.destroy(0)
        for peer in self._peers:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.close()
            peer.stdout.close()
            peer.wait()


def serve(directory: Path) -> None:
    """One bare storage process."""
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    print(port, flush=True)
    with Journal(directory) as journal:
        poll = select.poll()
        for fd in (0, socket.getsockopt(zmq.FD), journal.fileno()):
            poll.register(fd, select.POLLIN)
        route, answered = b"", 0
        while True:
            if not socket.getsockopt(zmq.EVENTS) & zmq.POLLIN and (0, select.POLLHUP) in poll.poll():
                break
            while socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                route, data = socket.recv_multipart()
                journal.append(_KIND, 1, data)
            durable = journal.durable()
            if durable > answered:
                answered = durable
                socket.send_multipart((route, durable.to_bytes(8, "little")))
    context.destroy(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
