"""The demo's writer processes, seen from the process that runs the scenario.

Decides nothing of the scenario. What a writer reported as acknowledged stands here and nowhere else. At the end the log
is compared with it, so a report that is still in the pipe of a killed writer counts too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embedbk.cluster import environment
from embedbk.errors import EmbedbkError, OperationTimeout

__all__ = ["WorkerProcesses", "WriterProcess"]

SILENCE_S_MAX = 60.0  # Nobody reports anything for so long: something is wrong.


class WriterProcess:
    """One writer and everything it has said."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.is_ready = False
        self.is_done = False
        self.is_over = False  # Its end of the pipe is closed: it says nothing more.
        self.owner: dict[str, Any] | None = None  # What taking the log over gave.
        self.refused: dict[str, Any] | None = None
        self.appended_late: dict[str, Any] | None = None  # Its append was taken after it had been taken over.
        self.acknowledged = 0  # Lines, counted from the log's first.
        self.ensemble_changes = 0
        self._said = b""
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "embedbk.demo.writer", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            process_group=0,
        )
        assert self._popen.stdout is not None
        self._out = self._popen.stdout.fileno()
        self._pidfd = os.pidfd_open(self._popen.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def fileno(self) -> int:
        return self._out

    def tell(self, *words: object) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It ended; its silence is noticed.
            self._popen.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self._popen.stdin.flush()

    def hear(self) -> None:
        """Read once what is there; blocks when nothing is."""
        part = os.read(self._out, 1 << 16)
        self.is_over = not part
        *lines, self._said = (self._said + part).split(b"\n")
        for line in lines:
            self._on_event(json.loads(line))

    def hear_all(self) -> None:
        """Read what is there now."""
        while not self.is_over and select.select([self._out], [], [], 0)[0]:
            self.hear()

    def _on_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self.is_ready = True
            case "owner":
                self.owner = event
            case "acknowledged":
                self.acknowledged = event["count"]
                self.ensemble_changes = event["ensemble_changes"]
            case "refused":
                self.refused = event
            case "appended":
                self.appended_late = event
            case "done":
                self.is_done = True

    def last_words(self) -> str:
        return f": {self.refused['message']}" if self.refused else "; its message stands above"

    def kill(self) -> None:
        """SIGKILL; afterwards everything it ever reported has been heard."""
        self._signal(signal.SIGKILL)
        while not self.is_over:
            self.hear()
        self._popen.wait()

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands still; what it reported before has been heard."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PIDFD, self._pidfd, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.hear_all()

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._popen.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """It is not needed any more, in whatever state it is."""
        self._signal(signal.SIGKILL)
        self._popen.wait()
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._popen.stdout.close()
        os.close(self._pidfd)


class WorkerProcesses:
    """All writers of one run, of which each stands by until it is its turn."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.writers = [WriterProcess(name, path) for name in names]
        self.on_news: Callable[[], None] = lambda: None

    @property
    def acknowledged(self) -> int:
        """How many lines of the log have been reported as acknowledged, by any of them."""
        return max(writer.acknowledged for writer in self.writers)

    def until(self, is_reached: Callable[[], bool], speaker: WriterProcess) -> float:
        """Listen to one writer until the fact holds; when that was, on the monotonic clock.

        Raises:
            EmbedbkError: it ended before.
            OperationTimeout: it said nothing for SILENCE_S_MAX.
        """
        while not is_reached():
            if speaker.is_over:
                raise EmbedbkError(
                    f"the {speaker.name} writer ended before its time; its message stands above"
                )
            if not select.select([speaker], [], [], SILENCE_S_MAX)[0]:
                raise OperationTimeout(f"the {speaker.name} writer said nothing for {SILENCE_S_MAX:g} s")
            speaker.hear()
            self.on_news()
        return time.monotonic()

    def until_ready(self, writer: WriterProcess) -> None:
        self.until(lambda: writer.is_ready, writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self.writers:
            writer.close()
