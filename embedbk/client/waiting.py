"""One way to wait for two faces: what a handle does is written once, as a coroutine over `Wait` objects.

The sync face drives it with `run_blocking`, each wait blocking the calling thread; `aio` drives the same coroutine with
`run_async`, each wait suspending the task. Such a coroutine awaits nothing but what stands here.
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from embedbk.errors import EmbedbkError, OperationTimeout, UsageError
from embedbk.host.awaited import Awaited
from embedbk.host.loop import HOST_THREADS
from embedbk.host.signal import Signal, Watermark

__all__ = [
    "Moved",
    "FutureResult",
    "Passed",
    "Resumed",
    "Roused",
    "RousingSignal",
    "Settled",
    "Wait",
    "drive_waits",
    "refuse_in_event_loop",
    "run_async",
    "run_blocking",
]

T = TypeVar("T")

# In a simulated cluster nothing else happens while a call waits, so the wait itself lets virtual time pass:
# driver(predicate, timeout_s) -> whether the predicate holds.
Driver = Callable[[Callable[[], bool], float | None], bool]
drive_waits: ContextVar[Driver | None] = ContextVar("drive_waits", default=None)


class Wait(ABC, Generic[T]):
    """Something to wait for, in either way. Waiting for it again gives the same."""

    __slots__ = ("timeout_s",)
    timeout_s: float | None

    def __await__(self) -> Generator[Wait[T], T, T]:
        return (yield self)

    @abstractmethod
    def wait(self) -> T: ...

    @abstractmethod
    async def wait_async(self) -> T: ...


class Moved(Wait[bool]):
    """Waits until a predicate holds that a signal notifies of; False when the time was over first."""

    __slots__ = ("predicate", "signal")

    def __init__(self, signal: Signal, predicate: Callable[[], bool], timeout_s: float | None = None) -> None:
        self.signal = signal
        self.predicate = predicate
        self.timeout_s = timeout_s

    def wait(self) -> bool:
        driver = drive_waits.get()
        if driver is not None:
            return driver(self.predicate, self.timeout_s)
        return self.signal.wait(self.predicate, self.timeout_s)

    async def wait_async(self) -> bool:
        return await self.signal.wait_async(self.predicate, self.timeout_s)


class Passed(Wait[bool]):
    """Waits until a watermark has passed an entry; False when the time was over first."""

    __slots__ = ("entry_id", "watermark")

    def __init__(self, watermark: Watermark, entry_id: int, timeout_s: float | None = None) -> None:
        self.watermark = watermark
        self.entry_id = entry_id
        self.timeout_s = timeout_s

    def wait(self) -> bool:
        driver = drive_waits.get()
        if driver is not None:
            return driver(lambda: self.watermark.mark >= self.entry_id, self.timeout_s)
        return self.watermark.wait(self.entry_id, self.timeout_s)

    async def wait_async(self) -> bool:
        return await self.watermark.wait_async(self.entry_id, self.timeout_s)


class Settled(Wait[bool]):
    """Waits until the host's thread has found an outcome, in either way; False when the time was over first."""

    __slots__ = ("future",)

    def __init__(self, future: Awaited[Any], timeout_s: float | None) -> None:
        self.future = future
        self.timeout_s = timeout_s

    def wait(self) -> bool:
        driver = drive_waits.get()
        if driver is not None:
            return driver(self.future.done, self.timeout_s)
        return self.future.signal.wait(self.future.done, self.timeout_s)

    async def wait_async(self) -> bool:
        return await self.future.signal.wait_async(self.future.done, self.timeout_s)


class FutureResult(Wait[T]):
    """The result that the host's thread finds; raises its error.

    Raises:
        OperationTimeout: timeout_s passed first; `what` says in the message what may still happen.
    """

    __slots__ = ("before_s", "future", "what")

    def __init__(
        self,
        future: Awaited[T],
        timeout_s: float | None,
        what: str,
        *,
        before_s: float = 0.0,
    ) -> None:
        """before_s: that the caller has waited already; only the message of a time-out counts it."""
        self.future = future
        self.timeout_s = timeout_s
        self.what = what
        self.before_s = before_s

    def wait(self) -> T:
        if not Settled(self.future, self.timeout_s).wait():
            raise self._too_late()
        return self.future.result()

    async def wait_async(self) -> T:
        # A caller that stops waiting does not undo what the host is doing.
        if not await Settled(self.future, self.timeout_s).wait_async():
            raise self._too_late()
        return self.future.result()

    def _too_late(self) -> OperationTimeout:
        return OperationTimeout(
            f"{self.what}: not done within {self.before_s + (self.timeout_s or 0.0):g} s; it may still happen",
            hint="look whether the metadata member and the bookies can be reached, then try again",
        )


class _NotNeeded(Exception):
    """Ends steps that no caller needs any more."""


class Resumed(Generic[T]):
    """Steps that several callers need done, each of which waits for no longer than it has time.

    One of them at a time takes the steps further, as part of its own call; where its time is over they stay where they
    are, and the next one goes on from there, in whichever thread or event loop.
    """

    def __init__(self, steps: Coroutine[Any, Any, T], clock_s: Callable[[], float]) -> None:
        self._steps = steps
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._is_taken = False  # By a caller that takes the steps further.
        self._wait: Wait[Any] | None = None  # Where they stand; None before the first.
        self._signal = Signal()
        self.is_over = False  # They are done, or one of them failed.

    async def within(self, until_s: float) -> bool:
        """Whether the steps are over, by now or by until_s of the clock. Raises what one of them raised, once."""
        while not self.is_over:
            left_s, is_mine = self._left_s(until_s), False
            try:
                with self._lock:
                    if not self._is_taken:
                        # Nothing is called in between: a signal handler may raise behind each call.
                        self._is_taken = is_mine = True
                if is_mine and not self.is_over and not await self._go_on(until_s):
                    return False
            finally:
                if is_mine:
                    self._is_taken = False
                    self._signal.notify()
            if not is_mine and not await Moved(
                self._signal, lambda: self.is_over or not self._is_taken, left_s
            ):
                return False
        return True

    def end(self) -> None:
        """End the steps, which no caller needs any more. A caller that runs them just now finishes its own part."""
        if self._take() and not self.is_over:
            self.is_over = True
            if self._wait is None:
                self._steps.close()
                return
            # Closed, they would leave generators that they are inside of unfinished; whatever is raised unwinds those.
            with contextlib.suppress(_NotNeeded, StopIteration):
                self._steps.throw(_NotNeeded())

    def _take(self) -> bool:
        with self._lock:
            was_taken, self._is_taken = self._is_taken, True
        return not was_taken

    def _left_s(self, until_s: float) -> float | None:
        return None if until_s == math.inf else max(0.0, until_s - self._clock_s())

    async def _go_on(self, until_s: float) -> bool:
        if self._wait is None and not self._step(None, None):
            return True
        while True:
            assert self._wait is not None
            outcome, error = await self._waited(self._wait, until_s)
            if not outcome and self._clock_s() >= until_s:
                return False  # A result that came all the same is there at the next wait.
            if not self._step(outcome, error):
                return True

    def _step(self, outcome: Any, error: BaseException | None) -> bool:
        """To the next wait. False: they are done."""
        try:
            self._wait = self._steps.send(outcome) if error is None else self._steps.throw(error)
        except StopIteration:
            self.is_over = True
            return False
        except BaseException:
            self.is_over = True
            raise
        return True

    async def _waited(self, wait: Wait[Any], until_s: float) -> tuple[Any, BaseException | None]:
        """The result of a wait that lasts until then at most: (outcome, None), or (None, error)."""
        left_s = self._left_s(until_s)
        if left_s is not None:
            wait = copy.copy(wait)
            wait.timeout_s = left_s if wait.timeout_s is None else min(left_s, wait.timeout_s)
        try:
            return await wait, None
        except EmbedbkError as error:
            return None, error


class RousingSignal(Signal):
    """A signal that also notifies `also`, the signal of another wait."""

    __slots__ = ("also",)

    def __init__(self) -> None:
        super().__init__()
        self.also: Signal | None = None

    def notify(self) -> None:
        super().notify()
        also = self.also
        if also is not None:
            also.notify()


class Roused(Generic[T]):
    """Steps that one caller takes further, and leaves where they are when something else comes first.

    Only a wait for a signal is left: every other one is of a question that is answered or given up in time.
    """

    def __init__(
        self, steps: Coroutine[Any, Any, T], signal: RousingSignal, clock_s: Callable[[], float]
    ) -> None:
        """signal: moves with what may come first."""
        self._steps = steps
        self._signal = signal
        self._clock_s = clock_s
        self._wait: Wait[Any] | None = None  # Where they stand; None before the first.
        self._until_s = math.inf  # When that wait ends.
        self.result: T | None = None  # Once they are done.

    async def done(self, comes_first: Callable[[], bool], until_s: float = math.inf) -> bool:
        """Whether the steps are done; False: what comes first holds, or it is until_s by the clock, and they stand
        where they are. Raises what they raised."""
        try:
            if self._wait is None:
                self._stand(self._steps.send(None))
            while True:
                assert self._wait is not None
                try:
                    outcome = await self._for_a_while(self._wait, comes_first, until_s)
                except BaseException as error:  # noqa: BLE001  Handed into the steps, which decide.
                    self._stand(self._steps.throw(error))
                    continue
                if outcome is None:
                    return False
                self._stand(self._steps.send(outcome[0]))
        except StopIteration as done:
            self.result = done.value
            return True
        finally:
            self._signal.also = None

    def _stand(self, wait: Wait[Any]) -> None:
        self._wait = wait
        self._until_s = math.inf
        if isinstance(wait, Moved) and wait.timeout_s is not None:
            self._until_s = self._clock_s() + wait.timeout_s

    async def _for_a_while(
        self, wait: Wait[Any], comes_first: Callable[[], bool], until_s: float
    ) -> tuple[Any] | None:
        """The result of the wait; None: something else came first."""
        if not isinstance(wait, Moved):
            return (await wait,)
        until = min(until_s, self._until_s)
        left_s = None if until == math.inf else max(0.0, until - self._clock_s())
        self._signal.also = wait.signal
        await Moved(wait.signal, lambda: wait.predicate() or comes_first(), left_s)
        if wait.predicate():
            return (True,)
        if comes_first() or self._clock_s() < self._until_s:
            return None
        return (False,)

    def end(self) -> None:
        """End the waits, which no caller needs any more."""
        if self._wait is None:
            self._steps.close()
            return
        with contextlib.suppress(_NotNeeded, StopIteration, StopAsyncIteration):
            self._steps.throw(_NotNeeded())


def refuse_in_event_loop(aio_twin: str) -> None:
    """Raises UsageError in a thread whose event loop runs: blocking it would stop every task there. Likewise in the
    thread of a host: all of its nodes would stand still, and what is waited for would never come."""
    if threading.get_ident() in HOST_THREADS:
        raise UsageError(
            "this call blocks, and runs in the thread that serves the nodes of an embedbk client or cluster, which "
            "would all stand still; nothing was done",
            hint="in a logging handler: give it its records by a logging.handlers.QueueHandler",
        )
    # Not imported, or being imported by another thread just now: no loop runs.
    running_loop = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    if running_loop is not None and running_loop() is not None:
        raise UsageError(
            "this call blocks, and an asyncio event loop runs in this thread; nothing was done",
            hint=f"await {aio_twin} instead",
        )


def run_blocking(steps: Coroutine[Any, Any, T], aio_twin: str) -> T:
    """Drive a handle's coroutine in this thread, blocking at each wait."""
    try:
        refuse_in_event_loop(aio_twin)
        wait: Wait[Any] = steps.send(None)
        while True:
            try:
                outcome = wait.wait()
            except BaseException as error:  # noqa: BLE001  Handed into the coroutine, which decides.
                wait = steps.throw(error)
            else:
                wait = steps.send(outcome)
    except StopIteration as done:
        # Nothing is called from the end of the steps on: a signal handler could raise behind that, and nobody would
        # have what they opened or hold.
        value: T = done.value
        return value
    except BaseException:
        steps.close()
        raise


async def run_async(steps: Coroutine[Any, Any, T]) -> T:
    """Drive a handle's coroutine as part of this task, suspending it at each wait."""
    try:
        wait: Wait[Any] = steps.send(None)
        while True:
            try:
                outcome = await wait.wait_async()
            except BaseException as error:  # noqa: BLE001  Cancellation too: the coroutine may have to clean up.
                wait = steps.throw(error)
            else:
                wait = steps.send(outcome)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        steps.close()
