"""A bare probe for `append`: the threads, journals and wake-ups of one append, and nothing of the protocol.

No frames, checksums, ids, quorums by write set, metadata or links: what they cost is what the benchmark wants to know.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from pathlib import Path

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
