"""The loop of one process: wait until something is ready, step every node, again (ARCHITECTURE.md, threads).

One thread owns all sockets, the ledger tables and the cores. It is a plain poll loop; user code never runs on it, so
a blocking call cannot deadlock it. Other threads reach it by `call` only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

__all__ = ["Loop", "Node", "clock_ns"]

logger = logging.getLogger(__name__)

_POLL_MS_MAX = 1000  # The loop looks around this often even if nothing asks for it.
_CALLS_PER_TURN_MAX = 1024


def clock_ns() -> int:
    """Time that goes on while the machine is suspended, so that a sleeper sees its leases gone (P9.1)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Node(Protocol):
    """One role in this process. Reads no clock; never waits."""

    def step(self, now_ns: int) -> None:
        """Drain what is ready and carry out what follows from it."""
        ...

    def deadline_ns(self) -> int | None:
        """When `step` is wanted again even if nothing becomes ready."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors whose readability means that `step` has something to do; asked for once."""
        ...

    def close(self) -> None: ...


class _Place:
    """A node on the loop, with what it said after its last step."""

    __slots__ = ("deadline_ns", "is_ready", "is_watched", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.deadline_ns: int | None = 0  # At once: it was never stepped.
        self.is_ready = False
        self.is_watched = False


class Loop:
    """Runs nodes on one thread until it is stopped.

    A turn steps the nodes that have something to do: a descriptor is ready, the deadline came, or they were woken.
    What one node does to another on the same loop goes through their transports, so it makes a descriptor ready.
    """

    def __init__(self, name: str = "embedbk") -> None:
        self._places: list[_Place] = []
        self.failure: BaseException | None = None  # What ended the loop before it was told to stop.
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = (
            threading.Lock()
        )  # Nobody may write to a descriptor that was closed and given out again.
        self._poll = select.poll()
        self._place_of: dict[int, _Place] = {}  # By registered descriptor.
        self._woken: deque[Node] = deque()
        self._is_stopping = False
        self._is_awake = False  # True while a wake-up is on its way: a second one is not needed.
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._poll.register(self._wake, select.POLLIN)

    def add(self, node: Node) -> None:
        """Run a node from the next turn on. Before `start`, or from the loop's own thread (by `call`)."""
        self._places.append(_Place(node))

    @property
    def nodes(self) -> list[Node]:
        return [place.node for place in self._places]

    def start(self) -> None:
        self.thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread, soon, in the order of the calls. From any thread.

        After the end it runs in the caller's: the nodes are closed then, and say so to whoever asks.
        """
        self._calls.append(function)
        if self._wake >= 0:
            self.wake()
        else:
            self._run_calls()

    def wake_node(self, node: Node) -> None:
        """Make the loop step a node, soon. From any thread; cheap when a wake-up is on its way already."""
        self._woken.append(node)
        self.wake()

    def wake(self) -> None:
        """Make the loop take a turn."""
        if not self._is_awake:
            self._is_awake = True
            with self._wake_lock:
                if self._wake >= 0:
                    os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """End the loop, close the nodes in reverse order, wait for the thread. Not from the loop's own thread."""
        if self.thread.is_alive():
            self.call(self._set_stopping)
            self.thread.join()
        elif self._wake >= 0:
            self._close()

    def _set_stopping(self) -> None:
        self._is_stopping = True

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self.turn()
        except (
            BaseException
        ) as failure:  # Nothing may be served by a loop that broke: say so to every caller.
            self.failure = failure
            logger.critical("the embedbk loop ends by a failure", exc_info=True)
        finally:
            self._close()

    def turn(self) -> None:
        """Wait for readiness or a deadline, then step once whoever has something to do."""
        for fd, _ in self._poll.poll(self._timeout_ms(clock_ns())):
            if fd == self._wake:
                # Read, then clear, then look at the work: who leaves work after the clearing writes again.
                os.eventfd_read(self._wake)
                self._is_awake = False
            else:
                self._place_of[fd].is_ready = True
        has_calls = bool(self._calls)  # A call may touch any node, so all are stepped behind it.
        for _ in range(min(len(self._calls), _CALLS_PER_TURN_MAX)):
            self._calls.popleft()()
        woken = [self._woken.popleft() for _ in range(len(self._woken))]
        now_ns = clock_ns()
        for place in list(self._places):
            is_due = place.deadline_ns is not None and place.deadline_ns <= now_ns
            if place.is_ready or is_due or has_calls or place.node in woken:
                place.is_ready = False
                place.node.step(now_ns)
                place.deadline_ns = place.node.deadline_ns()
                if not place.is_watched:
                    self._watch_filenos(place)

    def _timeout_ms(self, now_ns: int) -> float:
        if self._calls or self._woken:
            return 0
        timeout = _POLL_MS_MAX
        for place in self._places:
            if place.deadline_ns is not None:
                # Rounded up: a poll that ends before the deadline would spin.
                timeout = min(timeout, max(0, (place.deadline_ns - now_ns + 999_999) // 1_000_000))
        return timeout

    def _watch_filenos(self, place: _Place) -> None:
        """Behind its first step; they stay the same."""
        place.is_watched = True
        for fd in place.node.filenos():
            self._place_of[fd] = place
            self._poll.register(fd, select.POLLIN)

    def _close(self) -> None:
        for node in reversed(self.nodes):
            try:
                node.close()
            except Exception:
                logger.exception("closing %s failed", type(node).__name__)
        self._places.clear()
        with self._wake_lock:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1
        self._run_calls()

    def _run_calls(self) -> None:
        while self._calls:
            with contextlib.suppress(IndexError):  # Taken by another thread that came late as well.
                self._calls.popleft()()
