"""A bare probe for appends: the processes, threads, journals and wake-ups of one append, and nothing of the protocol.

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
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path

import zmq

from embedbk.storage.journal import Journal

_KIND = 1
_TRIM_EVERY = 64  # Blocks; the files behind are recycled, as those of a bookie are.


class Bare(ABC):
    """A caller and one host thread: a block is over when `acks` of the journals have it on the device."""

    def __init__(self, acks: int) -> None:
        self._acks = acks
        self._queue: deque[bytes] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._done = threading.Condition()
        self._asked_count = 0
        self.done_count = 0  # Blocks that are over, which come in order.
        self._is_open = True
        self._thread = threading.Thread(target=self._run, daemon=True)

    def append(self, data: bytes) -> None:
        self.wait(self.submit(data))

    def stream(self, data: bytes, count: int, window: int) -> None:
        """So many blocks, at most `window` of them not over."""
        for _ in range(count):
            self.wait(self.submit(data) - window)
        self.wait(self._asked_count)

    def submit(self, data: bytes) -> int:
        """Hand one block over; its number, from 1 on."""
        self._asked_count += 1
        self._queue.append(bytes(memoryview(data)))
        os.eventfd_write(self._wake, 1)
        return self._asked_count

    def wait(self, number: int) -> None:
        with self._done:
            self._done.wait_for(lambda: self.done_count >= number)

    def _advance(self, durable: list[int]) -> None:
        done = sorted(durable, reverse=True)[self._acks - 1]
        if done > self.done_count:
            with self._done:
                self.done_count = done
                self._done.notify_all()

    @abstractmethod
    def _run(self) -> None: ...

    def close(self) -> None:
        self._is_open = False
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)


class BareLocal(Bare):
    """With the journals in this process."""

    def __init__(self, directory: Path, count: int, *, acks: int) -> None:
        super().__init__(acks)
        directory.mkdir()
        self._journals = [Journal(directory / f"{number}") for number in range(count)]
        self._thread.start()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for journal in self._journals:
            poll.register(journal.fileno(), select.POLLIN)
        trimmed = 0
        while self._is_open:
            for fd, _ in poll.poll():
                if fd == self._wake:
                    os.eventfd_read(self._wake)
            while self._queue:
                data = self._queue.popleft()
                for journal in self._journals:
                    journal.append(_KIND, 1, data)
            durable = [journal.durable() for journal in self._journals]
            self._advance(durable)
            if durable[0] > trimmed + _TRIM_EVERY:
                trimmed = durable[0]
                for journal, token in zip(self._journals, durable, strict=True):
                    journal.trim(token)

    def close(self) -> None:
        super().close()
        for journal in self._journals:
            journal.close()


class BareProcesses(Bare):
    """With each journal in a process of its own behind a ZeroMQ socket."""

    def __init__(self, directory: Path, count: int, *, acks: int) -> None:
        super().__init__(acks)
        directory.mkdir()
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
        self._thread.start()

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
            self._advance(durable)

    def close(self) -> None:
        super().close()
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
        route, answered, trimmed = b"", 0, 0
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
            if answered > trimmed + _TRIM_EVERY:
                trimmed = answered
                journal.trim(answered)
    context.destroy(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
