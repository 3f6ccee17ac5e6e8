"""What the host's thread finds out once, and other threads and coroutines wait for.

As `concurrent.futures.Future`, whose lock a waiting thread takes in Python: one that a signal handler stops right there
keeps it, or keeps it for as long as the handler runs, and the host's thread waits for it with all of its nodes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from embedbk.errors import ensure
from embedbk.host.signal import Signal

__all__ = ["Awaited"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Awaited(Generic[T]):
    """A result or an error, once it is there; one thread sets it, any may look. Nothing here takes a lock for longer
    than a step of the interpreter."""

    __slots__ = ("_callbacks", "_error", "_is_done", "_result", "signal")

    def __init__(self) -> None:
        self.signal = Signal()  # Notified when it is there.
        self._is_done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[Awaited[T]], object]] = deque()

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: T) -> None:
        self._result = result
        self._tell()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._tell()

    def _tell(self) -> None:
        self._is_done = True
        self.signal.notify()
        self._call_back()

    def result(self) -> T:
        """Once it is there; raises the error."""
        ensure(self._is_done, "an outcome is looked at once it is there")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def exception(self) -> BaseException | None:
        """Once it is there."""
        ensure(self._is_done, "an outcome is looked at once it is there")
        return self._error

    def add_done_callback(self, function: Callable[[Awaited[T]], object]) -> None:
        """Call it with this once it is there: in the thread that finds it out, or in this one if it is there."""
        self._callbacks.append(function)
        if self._is_done:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                function = self._callbacks.popleft()
            except IndexError:  # Taken by the other thread.
                return
            try:
                function(self)
            except Exception:  # The host's thread goes on.
                logger.exception("what was to follow an outcome failed")
