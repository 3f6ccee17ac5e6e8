"""The loop of one process: wait until something is ready, step the nodes that it concerns, again (ARCHITECTURE.md).

One thread owns all sockets, the ledger tables and the cores. It is a plain poll loop; user code never runs on it, so
a blocking call cannot deadlock it. Other threads reach it by `call`, or leave work with a node and `wake` the loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from embedbk.forking import free_in_children

__all__ = [
    "HOST_THREADS",
    "LATEST_S",
    "Beside",
    "Leaver",
    "Loop",
    "Node",
    "Waiter",
    "clock_ns",
    "start_with_stack",
    "unix_ms",
    "utc_text",
]

logger = logging.getLogger(__name__)

# The idents of the threads that run loops: what waits for a node waits for ever there. Users' code may come by all the
# same, in a handler of what is logged here, or in a finalizer.
HOST_THREADS: set[int] = set()
os.register_at_fork(after_in_child=HOST_THREADS.clear)

_LOOK_NS_MAX = 1_000_000_000  # The loop looks around this often even if nothing asks for it.
_CALLS_PER_TURN_MAX = 1024
_ROUNDS_PER_TURN_MAX = (
    8  # Nodes of one loop give each other work; after so many rounds descriptors have their turn.
)
_NEVER_NS = sys.maxsize
LATEST_S = 253_402_300_799  # The last second that has a date.
# Linux's usual size, whatever an application or its `ulimit -s` gives other threads. What a peer sends may nest as deep
# as Python allows: 3.13 counts 10,000 levels (those before 1,500 at most) where 3.14 looks at the stack, which has to
# hold them.
STACK_BYTES = 8 << 20
_stack_lock = free_in_children(threading.Lock())


def clock_ns() -> int:
    """Monotonic time that includes suspension, so that a machine that slept sees its leases gone (P9.1)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def unix_ms() -> int:
    """The time of day, which anybody may set: for people, and for what they ask for by it, as retention (P8.8)."""
    return time.time_ns() // 1_000_000


def utc_text(unix_ms: int, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """A time that a record has, for people. Who wrote it may have had any clock: what is behind the last date is it."""
    return datetime.fromtimestamp(min(unix_ms // 1000, LATEST_S), tz=UTC).strftime(form)


def start_with_stack(thread: threading.Thread) -> None:
    """Start it with a stack of STACK_BYTES, or of the application's size where that is larger."""
    with _stack_lock:  # Else one start could put back, for all threads to come, what another has set.
        others = threading.stack_size(STACK_BYTES)  # Without a size it would set that, too, to the usual one.
        try:
            if others > STACK_BYTES:
                threading.stack_size(others)
            thread.start()
        finally:
            threading.stack_size(others)


class Node(Protocol):
    """One role in this process. Reads no clock; never waits.

    What it has to do can change in `step`, in what `Loop.call` runs, or by news; so it is asked for its deadline only
    after those.
    """

    def step(self, now_ns: int) -> None:
        """Drain what is ready and carry out what follows from it."""
        ...

    def has_news(self) -> bool:
        """Whether something came since the last step that no descriptor tells of: from another node of this thread,
        or from a user's thread, which then wakes the loop. Asked often: a look, not a search."""
        ...

    def deadline_ns(self) -> int | None:
        """When `step` is wanted again even if nothing becomes ready."""
        ...

    def filenos(self) -> list[int]:
        """Descriptors whose readability means that `step` has something to do. The same from `Loop.add` to `close`, or
        more behind `Loop.look_again`."""
        ...

    def close(self, failure: BaseException | None = None) -> None:
        """Called once, when the node closes: release everything. failure: what ended the loop, for callers that still
        wait."""
        ...


@runtime_checkable
class Waiter(Node, Protocol):
    """A node that can wait in the loop's place, and meanwhile do its usual work without a turn of the loop."""

    def wait(self, filenos: Sequence[int], until_ns: int) -> Sequence[int] | None:
        """Wait until one of these descriptors is ready, or this node has something unusual to do, or it is so late.

        filenos: of all nodes and the loop itself; the same object as long as they are the same.

        Returns: the descriptors of others that are ready, or None: it did not wait, the loop has to.
        """
        ...


class Beside:
    """A node that is not to wait in the loop's place, so that another one can: its descriptors end that wait."""

    def __init__(self, node: Node) -> None:
        self.step, self.has_news = node.step, node.has_news
        self.deadline_ns, self.filenos, self.close = node.deadline_ns, node.filenos, node.close


@runtime_checkable
class Leaver(Node, Protocol):
    """A node that sends a last request when it leaves, and waits for the answer before it is closed."""

    def leave(self, now_ns: int) -> None:
        """Send the last request; steps follow until `has_left`."""
        ...

    def has_left(self, now_ns: int) -> bool:
        """Whether nothing is waited for any more; true in the end, even if some peer never answers."""
        ...


@dataclass(slots=True)
class _Place:
    """A node on the loop."""

    node: Node
    due_ns: int = 0  # Its deadline as it said after its last step.
    is_due: bool = True  # A descriptor of it is ready, or it was never stepped.
    has_moved: bool = False  # Stepped since it was last asked for its deadline.


class LoopPoll(Protocol):
    """What of `select.poll` a loop needs, for readability."""

    def register(self, fileno: int, events: int, /) -> object: ...

    def poll(self, timeout_ms: int, /) -> list[tuple[int, int]]: ...


class Loop:
    """Runs nodes on one thread until it is stopped."""

    def __init__(self, name: str = "embedbk", poll: LoopPoll | None = None) -> None:
        """poll: waits for it, and perhaps does something useful meanwhile (transports/near.py)."""
        self.failure: BaseException | None = None  # What ended the loop before it was told to stop.
        self._places: list[_Place] = []
        self._by_fileno: dict[int, _Place] = {}
        self._filenos: tuple[int, ...] = ()
        self._waiter: tuple[_Place, Waiter] | None = None  # The only node that can wait.
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # No thread may write to a descriptor that was closed and given out again.
        # Re-entrant: a signal handler may call while its thread wakes the loop.
        self._wake_lock = threading.RLock()
        self._poll: LoopPoll = poll or select.poll()
        self._is_own_poll = poll is not None
        self._is_stopping = False
        self._is_awake = False  # True while a wake-up is on its way: a second one is not needed.
        self._is_behind = False  # The last turn ended with news left.
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._poll.register(self._wake, select.POLLIN)

    @staticmethod
    def now_ns() -> int:
        """The time that nodes on this loop get."""
        return clock_ns()

    def add(self, node: Node) -> None:
        """Run a node from the next turn on. Before `start`, or from the loop's own thread (by `call`)."""
        place = _Place(node)
        self._places.append(place)
        for fileno in node.filenos():
            self._by_fileno[fileno] = place
            self._poll.register(fileno, select.POLLIN)
        self._filenos = (self._wake, *self._by_fileno)
        # If several can wait, none could serve the others: then the loop waits, as where the poll itself has work.
        waiters = [(each, each.node) for each in self._places if isinstance(each.node, Waiter)]
        self._waiter = waiters[0] if len(waiters) == 1 and not self._is_own_poll else None

    def look_again(self, node: Node) -> None:
        """A node has more descriptors than it had, because it speaks with other processes now. From the loop's own
        thread, or before `start`."""
        for place in self._places:
            if place.node is node:
                for fileno in node.filenos():
                    if fileno not in self._by_fileno:
                        self._by_fileno[fileno] = place
                        self._poll.register(fileno, select.POLLIN)
                place.is_due = True
        self._filenos = (self._wake, *self._by_fileno)

    def start(self) -> None:
        start_with_stack(self.thread)

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread, soon, in the order of the calls. From any thread.

        After the end it runs in the caller's: the nodes are closed then, and answer every request so.
        """
        self._calls.append(function)
        if self._wake >= 0:
            self.wake()
        else:
            self._run_calls()

    def wake(self) -> None:
        """Make the loop take a turn. From any thread; cheap when a wake-up is on its way already."""
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
        HOST_THREADS.add(threading.get_ident())
        try:
            while not self._is_stopping:
                self.turn()
        except BaseException as failure:
            # A loop that broke may serve nothing: every caller gets that error.
            self.failure = failure
            logger.critical("the embedbk loop ends by a failure", exc_info=True)
        finally:
            self._close()
            HOST_THREADS.discard(threading.get_ident())

    def turn(self) -> None:
        """Wait for readiness or a deadline, then step the nodes that it concerns, and those that they give work to."""
        for fileno in self._wait():
            if fileno == self._wake:
                # Read, then clear, then look at the work: a thread that leaves work after the clearing writes again.
                os.eventfd_read(self._wake)
                self._is_awake = False
            else:
                self._by_fileno[fileno].is_due = True
        if self._calls:
            self._run_some_calls()
        now_ns = clock_ns()
        for place in self._places:
            if place.is_due or place.due_ns <= now_ns or place.node.has_news():
                place.is_due = False
                place.has_moved = True
                place.node.step(now_ns)
        self._is_behind = True
        for _ in range(_ROUNDS_PER_TURN_MAX):
            if not self._step_who_has_news(now_ns):
                self._is_behind = False
                break

    def _wait(self) -> Sequence[int]:
        """Descriptors that are ready. A node that waited for all of them has something to do, whatever ended the
        wait."""
        until_ns = self._until_ns()
        if until_ns and self._waiter is not None:
            place, waiter = self._waiter
            ready = waiter.wait(self._filenos, until_ns)
            if ready is not None:
                place.is_due = True
                return ready
        # Rounded up: a poll that ends before the deadline would spin.
        timeout_ms = max(0, (until_ns - clock_ns() + 999_999) // 1_000_000) if until_ns else 0
        return [fileno for fileno, _ in self._poll.poll(timeout_ms)]

    def _step_who_has_news(self, now_ns: int) -> bool:
        has_stepped = False
        for place in self._places:
            if place.node.has_news():
                place.has_moved = has_stepped = True
                place.node.step(now_ns)
        return has_stepped

    def _run_some_calls(self) -> None:
        """A call may give any node anything to do, so all are stepped after."""
        for _ in range(min(len(self._calls), _CALLS_PER_TURN_MAX)):
            self._calls.popleft()()
        for place in self._places:
            place.is_due = True

    def _until_ns(self) -> int:
        """When the wait has to end; 0: there is none."""
        due_ns = _NEVER_NS
        for place in self._places:
            if place.has_moved:
                place.has_moved = False
                deadline = place.node.deadline_ns()
                place.due_ns = _NEVER_NS if deadline is None else deadline
            if place.due_ns < due_ns:
                due_ns = place.due_ns
        if self._calls or self._is_behind or not due_ns:
            return 0
        now_ns = clock_ns()
        return min(due_ns, now_ns + _LOOK_NS_MAX) if due_ns > now_ns else 0

    def _let_leave(self) -> None:
        """All nodes run on until those that leave have their answers."""
        leavers = [place.node for place in self._places if isinstance(place.node, Leaver)]
        for each in leavers:
            each.leave(self.now_ns())
        for place in self._places:
            place.is_due = True
        while not all(each.has_left(self.now_ns()) for each in leavers):
            self.turn()

    def _close(self) -> None:
        if self.failure is None:
            try:
                self._let_leave()
            except Exception:
                logger.exception("leaving failed")
        for place in reversed(self._places):
            try:
                place.node.close(self.failure)
            except Exception:
                logger.exception("closing %s failed", type(place.node).__name__)
        self._places.clear()
        self._by_fileno.clear()
        self._waiter = None
        self._poll = select.poll()  # The one that was given has descriptors, which no other may hold open.
        with self._wake_lock:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1
        self._run_calls()

    def _run_calls(self) -> None:
        """Run calls that came too late: the nodes are closed. A call that fails must not keep the others from an
        answer."""
        while self._calls:
            with contextlib.suppress(IndexError):  # Taken by another thread that came late as well.
                function = self._calls.popleft()
                try:
                    function()
                except Exception:
                    logger.exception("a call after the end of the loop failed")
