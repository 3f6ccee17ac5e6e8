"""Waking whoever waits for a handle's state to move: threads by a condition, coroutines once per batch per loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable

__all__ = ["Signal"]


class Signal:
    """`notify` from the host's thread after state moved; `wait` and `wait_async` until a predicate of it holds.

    The state itself is the owner's; a predicate reads it without a lock and must be true for good once it was.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        # By loop, in the order of coming. Who leaves takes its future along, or waits without end would pile them up.
        self._sleepers: dict[asyncio.AbstractEventLoop, dict[asyncio.Future[None], None]] = {}

    def notify(self) -> None:
        with self._condition:
            self._condition.notify_all()
            sleepers, self._sleepers = self._sleepers, {}
        for loop, futures in sleepers.items():
            with contextlib.suppress(RuntimeError):  # That loop is closed, and its waiters with it.
                loop.call_soon_threadsafe(_resolve, futures)

    def wait(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Block this thread until the predicate holds; False when the time was over first."""
        if predicate():
            return True
        with self._condition:
            return self._condition.wait_for(predicate, timeout_s)

    async def wait_async(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """The same for a coroutine on its running loop."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        loop = asyncio.get_running_loop()
        while not predicate():
            future: asyncio.Future[None] = loop.create_future()
            with self._condition:
                self._sleepers.setdefault(loop, {})[future] = None
            try:
                if predicate():
                    return True  # Moved between the look and the registration: nobody may notify again.
                left = None if deadline is None else deadline - time.monotonic()
                await asyncio.wait_for(future, left)
            except TimeoutError:
                return predicate()
            finally:
                self._forget(loop, future)
        return True

    def _forget(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        with self._condition:
            sleepers = self._sleepers.get(loop)
            if sleepers is not None:
                sleepers.pop(future, None)
                if not sleepers:
                    del self._sleepers[loop]


def _resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
