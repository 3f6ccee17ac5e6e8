"""Wakes waiters when a handle's state changes: threads by a lock each, coroutines once per batch per loop.

`Signal` notifies of any change, which each waiter checks by a predicate. `Watermark` is an entry id that only rises:
since acknowledgements come in entry order (P3.3), it alone answers every append, and wakes those whose entry it passed.

Each waiter costs an entry in a list, and a handle without waiters has no list.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from embedbk.forking import free_in_children
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

if TYPE_CHECKING:
    import asyncio  # A third of what starting takes, for those who use it: imported where a loop runs.

__all__ = ["AlarmsHeld", "Signal", "Watermark", "within"]

T = TypeVar("T")

# Guards the lists of all signals, for a moment each: a lock for each would be most of what an idle handle costs.
# Re-entrant, and containers are made before it is taken: an allocation may run the garbage collector, which ends a
# coroutine that is not awaited any more, which removes itself from its list.
_LOCK = free_in_children(threading.RLock())
_NOBODY = LEDGER_ID_MAX + 2  # Above every mark.
_EVERYBODY = LEDGER_ID_MAX + 1  # The mark of a handle that has ended: nothing is waited for any more.


async def within(future: asyncio.Future[T], timeout_s: float | None) -> T:
    """The result of the future. `asyncio.wait_for` loses a cancellation that comes together with the result (CPython
    3.11, gh-86296): the caller's task went on, and waited for whatever came next.

    Raises TimeoutError: the time was over first; the future is cancelled.
    """
    if timeout_s is None:
        return await future
    import asyncio

    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError:
        if future.done() and not future.cancelled():
            return future.result()  # It came in the same turn.
        raise


class Signal:
    """`notify` from the host's thread after state moved; `wait` and `wait_async` until a predicate of it holds.

    The state itself is the owner's; a predicate reads it without a lock and must be true for good once it was.
    """

    __slots__ = ("_sleepers", "_threads")

    def __init__(self) -> None:
        self._threads: dict[threading.Lock, None] | None = None  # Each held, until it is released to wake.
        # By loop, in the order of coming. A waiter that leaves removes its future, or endless waits would pile them up.
        self._sleepers: dict[asyncio.AbstractEventLoop, dict[asyncio.Future[None], None]] | None = None

    @property
    def is_awaited(self) -> bool:
        return self._threads is not None or self._sleepers is not None

    def notify(self) -> None:
        if self._threads is None and self._sleepers is None:
            return  # A waiter that is listed after this look sees the state that changed before it.
        with _LOCK:
            threads, self._threads = self._threads, None
            sleepers, self._sleepers = self._sleepers, None
        for latch in threads or ():
            latch.release()
        for loop, futures in (sleepers or {}).items():
            with contextlib.suppress(RuntimeError):  # That loop is closed, and its waiters with it.
                loop.call_soon_threadsafe(_resolve, futures)

    def wait(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Block this thread until the predicate holds; False when the time was over first."""
        if predicate():
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        latch = threading.Lock()
        latch.acquire()
        while True:
            fresh: dict[threading.Lock, None] = {}
            with _LOCK:
                if self._threads is None:
                    self._threads = fresh
                self._threads[latch] = None
            try:
                # The state may have changed between the look and the listing, and no further notification may come.
                if predicate():
                    return True
                if not _acquire(latch, deadline):
                    return predicate()
            finally:
                self._forget_thread(latch)
            if predicate():
                return True

    async def wait_async(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """As `wait`, for a coroutine on its running loop."""
        import asyncio

        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        loop = asyncio.get_running_loop()
        while not predicate():
            future: asyncio.Future[None] = loop.create_future()
            fresh: dict[asyncio.Future[None], None] = {future: None}
            all_fresh = {loop: fresh}
            with _LOCK:
                if self._sleepers is None:
                    self._sleepers = all_fresh
                elif loop in self._sleepers:
                    self._sleepers[loop][future] = None
                else:
                    self._sleepers[loop] = fresh
            try:
                if predicate():
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                await within(future, left)
            except TimeoutError:
                return predicate()
            finally:
                self._forget(loop, future)
        return True

    def _forget_thread(self, latch: threading.Lock) -> None:
        with _LOCK:  # Nothing is called under it: a signal handler that waits would hold it meanwhile.
            if self._threads is not None and latch in self._threads:
                del self._threads[latch]
                self._threads = self._threads or None

    def _forget(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        with _LOCK:
            if self._sleepers is None or (futures := self._sleepers.get(loop)) is None:
                return
            futures.pop(future, None)
            if not futures:
                del self._sleepers[loop]
                self._sleepers = self._sleepers or None


class Watermark:
    """An entry id that only rises. `rise` and `end` are called on the host's thread, all else from anywhere."""

    __slots__ = ("_queues", "_threads", "mark")

    def __init__(self) -> None:
        self.mark = NO_ENTRY
        self._threads: dict[threading.Lock, int] | None = None
        # One for each loop whose coroutines wait. Replaced and never changed, since the host's thread goes through it.
        self._queues: dict[asyncio.AbstractEventLoop, _Queue] | None = None

    @property
    def is_awaited(self) -> bool:
        return self._threads is not None or self._queues is not None

    def rise(self, mark: int) -> None:
        """Every entry up to mark is passed: wake the waiters for these entries, and no others."""
        self.mark = mark
        # A waiter that is listed after these looks sees the mark that was set before them.
        if self._threads is not None:
            with _LOCK:
                passed = [latch for latch, entry_id in (self._threads or {}).items() if entry_id <= mark]
                for latch in passed:
                    del self._threads[latch]
                self._threads = self._threads or None
            for latch in passed:
                latch.release()
        if self._queues is not None:
            for queue in self._queues.values():
                if queue.lowest <= mark and not queue.is_due:
                    queue.is_due = True
                    queue.alarm.ring(queue)

    def end(self) -> None:
        """Nothing is waited for any more."""
        self.rise(_EVERYBODY)

    def wait(self, entry_id: int, timeout_s: float | None = None) -> bool:
        """Block this thread until the entry is passed; False when the time was over first."""
        if self.mark >= entry_id:
            return True
        latch = threading.Lock()
        latch.acquire()
        fresh: dict[threading.Lock, int] = {}
        with _LOCK:
            if self._threads is None:
                self._threads = fresh
            self._threads[latch] = entry_id
        is_woken = False
        try:
            if self.mark < entry_id:
                is_woken = _acquire(latch, None if timeout_s is None else time.monotonic() + timeout_s)
        finally:
            if not is_woken:
                self._forget_thread(latch)
        return self.mark >= entry_id

    def _forget_thread(self, latch: threading.Lock) -> None:
        with _LOCK:  # Nothing is called under it: a signal handler that waits would hold it meanwhile.
            if self._threads is not None and latch in self._threads:
                del self._threads[latch]
                self._threads = self._threads or None

    def future(self, entry_id: int) -> asyncio.Future[None] | None:
        """A future for a coroutine of the running loop, done when the entry is passed; None when it is already. A
        caller that gives up passes the cancelled future to `forget`.
        """
        if self.mark >= entry_id:
            return None
        import asyncio

        loop = asyncio.get_running_loop()
        queue = None if self._queues is None else self._queues.get(loop)
        if queue is None:
            with _LOCK:
                queue = _Queue(self, _alarm_of(loop))
                self._queues = {**(self._queues or {}), loop: queue}
        future = loop.create_future()
        queue.add(future, entry_id)
        if self.mark >= entry_id:
            queue.forget(future)
            return None
        return future

    def forget(self, future: asyncio.Future[None]) -> None:
        """On the future's loop, after its waiter has gone."""
        queue = None if self._queues is None else self._queues.get(future.get_loop())
        if queue is not None:
            queue.forget(future)

    async def wait_async(self, entry_id: int, timeout_s: float | None = None) -> bool:
        """As `wait`, for a coroutine on its running loop."""

        future = self.future(entry_id)
        if future is None:
            return True
        try:
            await within(future, timeout_s)
        except TimeoutError:
            return self.mark >= entry_id
        finally:
            if future.cancelled():
                self.forget(future)
        return True

    def _drop(self, queue: _Queue) -> None:
        """On the queue's loop: drop the queue, as no coroutine there waits any more."""
        with _LOCK:
            left = {loop: other for loop, other in (self._queues or {}).items() if other is not queue}
            self._queues = left or None


class _Queue:
    """The waiters on one loop for one watermark. Changed on that loop's thread only."""

    __slots__ = ("_futures", "_is_sorted", "_last", "_owner", "alarm", "is_due", "lowest")

    def __init__(self, owner: Watermark, alarm: _Alarm) -> None:
        self.alarm = alarm
        self.lowest = _NOBODY  # No entry below it is waited for here.
        self.is_due = False  # A drain is on its way.
        self._owner = owner
        self._futures: dict[asyncio.Future[None], int] = {}
        self._last = NO_ENTRY
        self._is_sorted = True  # Entry ids ascend in the order of coming: so it is unless tickets are kept.

    def add(self, future: asyncio.Future[None], entry_id: int) -> None:
        self._futures[future] = entry_id
        if entry_id < self._last:
            self._is_sorted = False
        self._last = entry_id
        if entry_id < self.lowest:
            self.lowest = entry_id

    def forget(self, future: asyncio.Future[None]) -> None:
        if self._futures.pop(future, None) is not None and not self._futures:
            self._owner._drop(self)

    def drain(self) -> None:
        """Wake the coroutines whose entry is passed."""
        self.is_due = False  # First: a mark that is set after the next line rings again.
        mark = self._owner.mark
        futures = self._futures
        passed: list[asyncio.Future[None]] = []
        for future, entry_id in futures.items():
            if entry_id <= mark:
                passed.append(future)
            elif self._is_sorted:
                break
        if len(passed) == len(futures):
            self._futures = {}
            self._owner._drop(self)
        else:
            for future in passed:
                del futures[future]
            ids = futures.values()
            self.lowest = next(iter(ids)) if self._is_sorted else min(ids)
        _resolve(passed)


class _Alarm:
    """Wakes one loop, once for all watermarks that rise before the loop looks."""

    __slots__ = ("_due", "_is_ringing", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._due: deque[_Queue] = deque()
        self._is_ringing = False

    def ring(self, queue: _Queue) -> None:
        """On the host's thread."""
        self._due.append(queue)
        if self._is_ringing:
            return
        self._is_ringing = True
        held: list[_Alarm] | None = getattr(_turn, "held", None)
        if held is not None:
            held.append(self)
        else:
            self.call()

    def call(self) -> None:
        """Have the loop look at what is due."""
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._drain)
                return
        except RuntimeError:
            pass  # That loop is closed, and its waiters with it.
        self._due.clear()

    def _drain(self) -> None:
        self._is_ringing = False
        while self._due:
            self._due.popleft().drain()


# Alarms of this thread, which ring when all of its turn is published.
_turn = threading.local()


class AlarmsHeld:
    """While it is entered this thread wakes no loop; when it is left, each one once. A loop that is woken for the first
    of many handles takes the GIL, and gives it back when it has looked at that one alone."""

    def __enter__(self) -> None:
        _turn.held = []

    def __exit__(self, *_: object) -> None:
        held, _turn.held = _turn.held, None
        for alarm in held:
            alarm.call()


# By loop; a loop that is gone takes its alarm along.
_alarms: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Alarm] = weakref.WeakKeyDictionary()


def _alarm_of(loop: asyncio.AbstractEventLoop) -> _Alarm:
    """The alarm of a loop. The caller holds the lock."""
    alarm = _alarms.get(loop)
    if alarm is None:
        alarm = _alarms[loop] = _Alarm(loop)
    return alarm


def _acquire(latch: threading.Lock, deadline: float | None) -> bool:
    if deadline is None:
        return latch.acquire()
    return latch.acquire(timeout=min(threading.TIMEOUT_MAX, max(0.0, deadline - time.monotonic())))


def _resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
