"""Work beside users' calls that no call waits for: making a log's next ledger, closing the last one.

Decides where such coroutines run: in one thread for each client, which the first of them starts. They are the same
coroutines over `Wait` objects that a call drives (`waiting`), and report their own errors.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from embedbk.client.waiting import run_async
from embedbk.host.loop import start_with_stack

__all__ = ["Behind"]


class Behind:
    """One thread with an event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # Touched on that thread only.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            start_with_stack(self._thread)
        except BaseException:
            self._loop.close()  # Its descriptors are nobody's.
            raise

    def begin(self, steps: Coroutine[Any, Any, None]) -> None:
        """Start these steps; callable from any thread."""
        self._loop.call_soon_threadsafe(self._begin, steps)

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(run_async(steps))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step never begins these, and nobody else ends them.
        task.add_done_callback(lambda _: steps.close())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        try:
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        finally:
            self._loop.close()

    def close(self) -> None:
        """Cancel what is under way; return when all of it has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
