"""What every peer is to the benchmark, and what its processes need: free ports, a driver that is told its work."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = [
    "Absent",
    "Driven",
    "Driver",
    "Failed",
    "Peer",
    "Server",
    "free_ports",
    "install",
    "require",
    "wait_until",
]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


class Absent(Exception):
    """This peer cannot be had on this machine; the text says what is missing."""


class Failed(Exception):
    """This peer ended in the middle of its work; the rows it owes are missing, and others go on."""


class Peer(ABC):
    """Another system that does the same work, started on this machine, beside us, on the same disk."""

    name: str  # With version and what is durable: "nats 2.15 R3 sync always".
    copies: int = 3  # That are durable before the answer.
    sizes: Sequence[int] = (100, 1024, 4096, 65536)  # That `many` can be asked for.

    @abstractmethod
    def many(self, size: int) -> float:
        """Entries per second, synced, closed loop, a few seconds of it."""

    @abstractmethod
    def depth1(self, size: int) -> float:
        """Median wait for one synced entry in microseconds, nothing else outstanding."""

    @abstractmethod
    def close(self) -> None: ...


class Server:
    """One process of a peer; its output goes to a file beside its data."""

    def __init__(self, command: Sequence[str], directory: Path, log: str) -> None:
        self._log = (directory / log).open("wb")
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, waited for."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        _end(self._process)
        self._log.close()


class Driver:
    """A load generator in another language: one order a line on its standard input, one number a line as answer."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._log = (directory / "driver.log").open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        if self._answer() != "ready":
            self.close()
            raise Absent(f"its driver does not start: {_tail(directory / 'driver.log')}")

    def ask(self, order: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not answer:
            raise Failed(f"its driver ended at {order!r}: {_tail(Path(self._log.name))}")
        return float(answer)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        _end(self._process)
        self._process.stdout.close()
        self._log.close()


class Driven(Peer):
    """A peer made of servers and one driver."""

    SECONDS = 3  # Length of one `many`.
    COUNT = 500  # Appends in one `depth1`.

    def __init__(self) -> None:
        self._parts: list[Server | Driver] = []  # Ended in the opposite order.

    def many(self, size: int) -> float:
        return self.driver.ask(f"many {size} {self.SECONDS}")

    def depth1(self, size: int) -> float:
        return self.driver.ask(f"depth1 {size} {self.COUNT}")

    @property
    def driver(self) -> Driver:
        driver = self._parts[-1]
        assert isinstance(driver, Driver)
        return driver

    def close(self) -> None:
        while self._parts:
            self._parts.pop().close()


def require(program: str, package: str) -> str:
    """The path of a program. A missing one is installed when we are root; else its peer is absent."""
    path = shutil.which(program)
    if path is None:
        install(package)
        path = shutil.which(program)
    if path is None:
        raise Absent(f"no {program} here (Debian's package {package})")
    return path


def install(package: str) -> None:
    """One of Debian's packages, when we are root; whether it is there now is for the caller to find out."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        line = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(line, check=False, capture_output=True, env=environment)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_until(is_true: Callable[[], bool], what: str, servers: Sequence[Server] = ()) -> None:
    """Ask every tenth of a second; a server that has ended, or the end of patience, makes the peer absent."""
    end = time.monotonic() + START_TIMEOUT_S
    while not is_true():
        if time.monotonic() > end or not all(server.is_running for server in servers):
            raise Absent(f"it does not come up ({what})")
        time.sleep(0.1)


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-300:].strip() or "it says nothing"
