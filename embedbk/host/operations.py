"""What runs inside a client node: a core, and what its results mean for the handle that started it.

Each operation has two sides: the host steps the core and calls `on_effect` and `publish`; user threads and coroutines
wait on its signal or future. Nothing of a user's runs on the host's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from embedbk.codec.frame import Frame
from embedbk.core.client_words import EntriesReady
from embedbk.core.machine import Effect, Machine
from embedbk.core.vocabulary import Ended
from embedbk.errors import EmbedbkError
from embedbk.host.awaited import Awaited
from embedbk.host.signal import Signal

__all__ = ["OneResult", "Operation", "Reading"]


class Operation:
    """A core at work in a client node."""

    if not TYPE_CHECKING:  # Its fields stand in those of its kinds, which type checkers do not expect.
        __slots__ = ()
    core: Machine
    due_ns: int | None
    is_over: bool

    def __init__(self, core: Machine) -> None:
        self.core = core
        self.is_over = False
        self.due_ns = None  # The earliest time for which the node has this operation on its heap.

    @property
    def is_shrunk(self) -> bool:
        """Only the core's idle form is kept; reading `core` restores it."""
        return False

    def on_effect(self, effect: Effect) -> None:
        """Take an effect that is for the handle. On the host's thread."""
        if isinstance(effect, Ended):
            self.is_over = True

    def publish(self) -> None:
        """Wake the threads and coroutines that wait, once per batch. On the host's thread."""

    def shrink(self) -> None:
        """The core waits for no time: keep as little of it as can be. On the host's thread."""

    def fail(self, error: EmbedbkError) -> None:
        """End the operation with an error: the node closes before the core is done."""
        self.on_effect(Ended(error))
        self.publish()


class OneResult(Operation):
    """A core that ends with one result: creation, recovery, takeover, a LAC read."""

    def __init__(self, core: Machine) -> None:
        super().__init__(core)
        self.future: Awaited[Any] = Awaited()

    def on_effect(self, effect: Effect) -> None:
        super().on_effect(effect)
        if isinstance(effect, Ended) and not self.future.done():
            if effect.error is not None:
                self.future.set_exception(effect.error)
            else:
                self.future.set_result(effect.result)


class Reading(Operation):
    """A range read: frames in entry order, taken by one consumer at its own pace."""

    def __init__(self, core: Machine, consumed: Callable[[Reading, int], None]) -> None:
        """consumed(self, byte_count): tell the host, from a user's thread, that room for reading ahead is back."""
        super().__init__(core)
        self.frames: deque[Frame] = deque()
        self.error: EmbedbkError | None = None
        self.signal = Signal()
        self._consumed = consumed
        self._is_moved = False

    def on_effect(self, effect: Effect) -> None:
        if isinstance(effect, EntriesReady):
            self.frames.append(effect.frame)
            self._is_moved = True
        elif isinstance(effect, Ended):
            self.error = effect.error
            self._is_moved = True
        # Last: a consumer that sees the end must see why, or a read that failed would look like one that is done.
        super().on_effect(effect)

    def publish(self) -> None:
        if self._is_moved:  # A consumer that is woken for nothing costs two switches of threads.
            self._is_moved = False
            self.signal.notify()

    def has_news(self) -> bool:
        return bool(self.frames) or self.is_over

    def take(self) -> Frame | None:
        """The next frame, after `has_news`; None at the end. Raises what ended the read early."""
        if self.frames:
            frame = self.frames.popleft()
            if not self.is_over:
                self._consumed(self, len(frame.body))
            return frame
        if self.error is not None:
            raise self.error
        return None
