"""A peer process serves until SIGTERM or until its parent is gone, and reports its start to its starter.

Decides when the process is ready and when it ends. Everything runs on the one host thread: `Serving` is a node of the
loop that looks at the others after each of their turns, so nothing is polled.

    starter ──(pipe, kept open)──▶ parent_fd      end of file: the starter is gone, so the peer goes too
    starter ◀──(one JSON line)──── ready_fd       what was bound, or which error ended the start
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from embedbk.errors import EmbedbkError
from embedbk.host.loop import Loop, Node

__all__ = ["Serving", "Stopped"]

_LINE_BYTES_MAX = 4096  # Bytes of the one line that a starter may send down the parent's pipe.


class Stopped(Exception):
    """The process got SIGTERM, or its parent is gone, before it served."""


class Serving:
    """A node beside those that serve: signals, the parent's pipe, and the ready pipe."""

    def __init__(self, ready_fd: int | None, parent_fd: int | None) -> None:
        """ready_fd: for one JSON line; standard output if None. parent_fd: readable at its end when the parent ends."""
        self.is_stopping = False
        self._ready_fd = 1 if ready_fd is None else ready_fd
        self._is_told = False
        self._parent_fd = parent_fd
        self._wake_fd, wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._heard = b""  # Bytes from the parent that were not read yet.
        if parent_fd is not None:
            os.set_inheritable(parent_fd, False)
            os.set_blocking(parent_fd, False)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.is_stopping = True  # The wake-up descriptor makes the loop look.

    # The starter.

    def read_line(self) -> str:
        """The first line on the parent's pipe, waited for.

        Raises:
            Stopped: the parent is gone.
        """
        assert self._parent_fd is not None
        poll = select.poll()  # Not select.select: a starter with many files gives a descriptor above 1,023.
        poll.register(self._parent_fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
            poll.poll()
            self.step(0)
            if self.is_stopping:
                raise Stopped
            line, self._heard = line + self._heard, b""
        return line.decode("utf-8", "replace").strip()

    def tell(self, what: dict[str, Any]) -> None:
        """Report to the starter, once; a starter that is gone does not matter here."""
        if self._is_told:
            return
        self._is_told = True
        line = json.dumps(what).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._ready_fd, line) :]
            if self._ready_fd != 1:
                os.close(self._ready_fd)  # A starter that reads on waits for its end.
        except OSError:
            self.is_stopping = self._parent_fd is not None

    def tell_error(self, error: BaseException) -> None:
        """Report what ended the start, so that the starter can raise the same. A terminal has its sentence anyway."""
        if self._ready_fd != 1:
            definite = getattr(error, "definite", False)
            hint = getattr(error, "hint", "")
            message = error.args[0] if isinstance(error, EmbedbkError) else f"internal error: {error!r}"
            self.tell({"error": type(error).__name__, "message": message, "definite": definite, "hint": hint})

    # Running.

    def run_until(self, node: Node, is_reached: Callable[[], bool], beside: Sequence[Node] = ()) -> None:
        """Run a node, and those beside it, until the fact holds, then close them.

        Raises:
            Stopped: the process is to end.
        """
        loop = Loop()
        for each in (node, *beside, self):
            loop.add(each)
        try:
            while not is_reached():
                if self.is_stopping:
                    raise Stopped
                loop.turn()
        finally:
            loop.stop()

    def serve(
        self,
        node: Node,
        is_ready: Callable[[], bool],
        failure: Callable[[], EmbedbkError | None],
        report: Callable[[], dict[str, Any]],
        beside: Sequence[Node] = (),
    ) -> None:
        """Run a node until the process is to end, then close it; report to the starter once it is ready.

        Raises:
            EmbedbkError: the node must not serve (any longer).
        """

        def is_over() -> bool:
            broken = failure()
            if broken is not None:
                raise broken
            if not self._is_told and is_ready():
                self.tell(report())
            return self.is_stopping

        try:
            self.run_until(node, is_over, beside)
        except Stopped:
            return

    # As a node of the loop.

    def step(self, now_ns: int) -> None:
        _read(self._wake_fd)
        if self._parent_fd is not None and not self.is_stopping:
            said = _read(self._parent_fd)
            if said == b"":
                self.is_stopping = True
            self._heard += said or b""

    def has_news(self) -> bool:
        return False  # A signal shows on the wake-up descriptor.

    def deadline_ns(self) -> int | None:
        return None

    def filenos(self) -> list[int]:
        return [self._wake_fd] if self._parent_fd is None else [self._wake_fd, self._parent_fd]

    def close(self, failure: BaseException | None = None) -> None:
        """The descriptors end with the process: the next loop needs them too."""


def _read(fd: int) -> bytes | None:
    """The bytes that are there, empty at the end of file; None when there is nothing yet."""
    try:
        return os.read(fd, _LINE_BYTES_MAX)
    except BlockingIOError:
        return None
