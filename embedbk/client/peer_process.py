"""A peer process: how it is started, what it reports, how it is watched and what is left when it has ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from embedbk import errors
from embedbk.errors import EmbedbkError, OperationTimeout, StorageError, UsageError

__all__ = ["STOP_TIMEOUT_S", "Peer", "check_interpreter", "environment", "start_peer", "wait_ready"]

READY_BYTES_MAX = 64 << 10  # The line in which a peer reports has at most so many bytes.
STOP_TIMEOUT_S = 15.0  # After SIGTERM; then SIGKILL, which the directories survive.
LOG_TAIL_BYTES = 2000


class Peer:
    """One process of a cluster."""

    def __init__(
        self, name: str, popen: subprocess.Popen[bytes], parent_fd: int, ready_fd: int, log: Path
    ) -> None:
        self.name = name
        self.endpoints: list[str] = []  # As the peer reported them.
        self.incarnation = ""
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self._parent_fd = parent_fd
        self._ready_fd = ready_fd
        self._log = log
        self._said = b""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when one ended it."""
        return self._popen.poll()

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        return self._pidfd

    def send_signal(self, number: int) -> None:
        """Send the signal to this very process, or to none when it has ended."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended; False when the time was over first."""
        if self._popen.poll() is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000):
                return False
            self._popen.wait()
        return True

    def say(self, line: str) -> None:
        """Send a line down the parent's pipe. A peer that has ended gets nothing, and its ready pipe shows that."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._parent_fd, line.encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """Read what is on the ready pipe; the report once it is whole.

        Raises:
            EmbedbkError: the peer says why it does not serve, or ended without a word.
        """
        part = os.read(self._ready_fd, READY_BYTES_MAX)
        self._said += part
        line, newline, _ = self._said.partition(b"\n")
        if newline:
            report: dict[str, Any] = json.loads(line)
            if "error" in report:
                self._raise_reported(report)
            return report
        if not part:
            self.wait(STOP_TIMEOUT_S)
            raise EmbedbkError(
                f"{self.name} ended before it served (exit code {self.exit_code})" + self.last_words(),
                hint=f"its log is {self._log}",
            )
        return None

    def _raise_reported(self, report: Mapping[str, Any]) -> NoReturn:
        kind = getattr(errors, str(report["error"]), EmbedbkError)
        if not (isinstance(kind, type) and issubclass(kind, EmbedbkError)):
            kind = EmbedbkError
        raise kind(
            f"{self.name}: {report['message']}",
            definite=bool(report.get("definite")),
            hint=str(report.get("hint", "")),
        )

    def last_words(self) -> str:
        """The last line of its log, for a message; empty when there is none."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - LOG_TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1]}" if lines else ""

    def forget(self) -> None:
        """Forget an ended process: close its descriptors, and remove its log if that is empty. Twice is allowed."""
        descriptors = (self._pidfd, self._parent_fd, self._ready_fd)
        # The numbers may be those of others' files by now.
        self._pidfd = self._parent_fd = self._ready_fd = -1
        for fd in descriptors:
            if fd >= 0:
                os.close(fd)
        with contextlib.suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()

    def __repr__(self) -> str:
        state = "running" if self.is_running else f"ended with {self.exit_code}"
        return f"Peer({self.name!r}, pid {self.pid}, {state})"


def start_peer(name: str, command: Sequence[str], log: Path) -> Peer:
    """Start it with a pipe that it watches and one on which it reports; its stderr goes to the log.

    Raises:
        StorageError: the system refuses; nothing is left running.
    """
    peer_parent_fd, parent_fd = os.pipe2(os.O_CLOEXEC)
    ready_fd, peer_ready_fd = os.pipe2(os.O_CLOEXEC)
    command = [*command, "--parent-fd", str(peer_parent_fd), "--ready-fd", str(peer_ready_fd)]
    try:
        with log.open("wb") as stderr:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(peer_parent_fd, peer_ready_fd),
                env=environment(),
                process_group=0,  # Ctrl-C at a terminal is for the starter, which then stops its peers in order.
            )
    except BaseException as refused:
        os.close(parent_fd)
        os.close(ready_fd)
        if isinstance(refused, OSError):
            raise StorageError(
                f"{name} cannot be started with its log {log}: {refused.strerror}",
                definite=True,
                hint="make room on the device, or let this user write there; nothing is left running",
            ) from refused
        raise
    finally:
        os.close(peer_parent_fd)
        os.close(peer_ready_fd)
    try:
        return Peer(name, popen, parent_fd, ready_fd, log)
    except OSError as refused:
        popen.kill()
        popen.wait()
        os.close(parent_fd)
        os.close(ready_fd)
        raise StorageError(
            f"{name} cannot be watched, and was ended again: {refused.strerror}",
            definite=True,
            hint="raise the limit of open files (ulimit -n); or the system forbids pidfd_open, which is needed",
        ) from refused


def wait_ready(peers: Sequence[Peer], within_s: float, deadline: float) -> None:
    """Wait for all of them together: as long as the slowest takes, no longer.

    within_s: how long that was from the start to the deadline, for the error.
    """
    waiting = {peer._ready_fd: peer for peer in peers}
    poll = select.poll()
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            names = ", ".join(peer.name for peer in waiting.values())
            raise OperationTimeout(
                f"{names}: not serving within {within_s:g} s"
                + "".join(peer.last_words() for peer in waiting.values()),
                hint="a larger settings.open_timeout_s waits longer",
            )
        for fd, _ in ready:
            report = waiting[fd].hear()
            if report is not None:
                poll.unregister(fd)
                peer = waiting.pop(fd)
                peer.endpoints = [str(endpoint) for endpoint in report["endpoints"]]
                peer.incarnation = str(report.get("incarnation", ""))


def check_interpreter() -> None:
    """Raises UsageError where `sys.executable` is no Python: a frozen application's is that application, which would
    start itself again for each peer."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise UsageError(
            f"each peer is a Python of its own, started as sys.executable, and {sys.executable!r} is none: this "
            "interpreter is frozen into an application, or embedded in one; nothing was made",
            hint="start peers by the command embedbk of an installed Python, or embedbk.open a directory",
        )


def environment() -> dict[str, str]:
    """Our environment, and the folder this package was found in, which may be on `sys.path` of this process only."""
    root = str(Path(__file__).parents[2])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))),
    }
