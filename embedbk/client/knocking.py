"""The way to an embedded cluster for other processes of its user: a socket in its directory, at which they knock.

    DIRECTORY/SOCKET        mode 0600; whoever connects is sent one line: the cluster's address, or why there is none
    DIRECTORY/reach/        mode 0700; there the cluster listens, from the first knock on

Decides what a knock is answered, and where the cluster listens then. Nothing listens before: a process that is alone
pays for one descriptor. A directory that cannot have a socket (a file system without them) has no door, and everything
else works.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from embedbk.client.address import SCHEME, url_of
from embedbk.errors import EmbedbkError, StorageError

__all__ = ["SOCKET_FILE", "Door", "is_of_a_door", "knock"]

logger = logging.getLogger(__name__)

SOCKET_FILE = "SOCKET"
REACH = "reach"
KNOCKS_PER_STEP_MAX = 16
KNOCKS_WAITING_MAX = 64
ANSWER_BYTES_MAX = 4096
PATH_BYTES_MAX = 107  # Of a Unix socket's path, without its closing zero.
_MEMBER = "member"
_LONGEST_NAME = len(f"/{_MEMBER}.b") + 4  # Of what stands in REACH (embedded.py).


class Door:
    """A node of the host's loop.

    listen(endpoint): be reached there from now on; where. Raises EmbedbkError. url: where it is reached already, if so.
    """

    def __init__(self, directory: Path, listen: Callable[[str], list[str]], url: str = "") -> None:
        self.url = url  # What a knock is answered; empty before the cluster listens anywhere.
        self._directory = directory.resolve()
        self._listen = listen
        self._held = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket: socket.socket | None = None
        try:
            self._socket = self._open()
        except OSError as refused:
            logger.info(
                "%s cannot have a socket, so other processes reach its cluster by listen= only: %s",
                directory,
                refused,
            )

    def _open(self) -> socket.socket:
        """Whoever has the directory has it alone, so what stands there is of a process that is gone."""
        path = _short(self._held)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.bind(path)
            os.chmod(path, 0o600)  # Before anybody can connect.
            made.listen(KNOCKS_WAITING_MAX)
        except OSError:
            made.close()
            raise
        return made

    def filenos(self) -> list[int]:
        return [] if self._socket is None else [self._socket.fileno()]

    def has_news(self) -> bool:
        return False

    def deadline_ns(self) -> int | None:
        return None

    def step(self, now_ns: int) -> None:
        for _ in range(KNOCKS_PER_STEP_MAX if self._socket is not None else 0):
            try:
                assert self._socket is not None
                link, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as refused:
                if refused.errno not in (errno.ECONNABORTED, errno.EINTR):
                    logger.warning("%s: nobody can knock any more: %s", self._directory, refused)
                    self._shut()
                    return
                continue
            with link, contextlib.suppress(OSError):  # Whoever left before the answer wants none.
                link.setblocking(False)
                link.send(self._answer().encode()[:ANSWER_BYTES_MAX])

    def _answer(self) -> str:
        if not self.url:
            try:
                self.url = url_of(self._listen(self._endpoint()))
            except (EmbedbkError, OSError) as refused:
                return f"it cannot listen in its directory: {refused}\n"
            logger.info("%s is reached at %s by other processes of this user", self._directory, self.url)
        return self.url + "\n"

    def _endpoint(self) -> str:
        """In the directory; where its path is too long for a socket, by the descriptor that this process has of it."""
        reach = self._directory / REACH
        reach.mkdir(mode=0o700, exist_ok=True)
        reach.chmod(0o700)
        if len(os.fsencode(reach)) + _LONGEST_NAME > PATH_BYTES_MAX:
            reach = Path(f"/proc/{os.getpid()}/fd/{self._held}/{REACH}")
        return f"ipc://{reach}/{_MEMBER}"

    def _shut(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                os.unlink(_short(self._held))

    def close(self, failure: BaseException | None = None) -> None:
        self._shut()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def is_of_a_door(endpoints: Sequence[str]) -> bool:
    """Whether a member is reached by its user's processes on this machine only, since nobody else asked for it."""
    return bool(endpoints) and all(each.endswith(f"/{REACH}/{_MEMBER}") for each in endpoints)


def knock(directory: Path, timeout_s: float) -> str:
    """The address of the embedded cluster whose process has this directory.

    Raises StorageError: nobody answers there, or it says why it cannot be reached.
    """
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as refused:
        raise StorageError(f"{directory} cannot be opened: {refused}", definite=True) from refused
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
            # By the system: a connect of Python's own time-outs fails at once where others wait before it.
            limit = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            link.connect(_short(held))
            told = b""
            while len(told) <= ANSWER_BYTES_MAX and (more := link.recv(ANSWER_BYTES_MAX)):
                told += more
    except OSError as refused:
        raise StorageError(
            f"{directory / SOCKET_FILE} is not answered: {refused}",
            definite=True,
            hint='in the process that has it open: client.listen("tcp://127.0.0.1:0"); then give its url',
        ) from refused
    finally:
        os.close(held)
    text = told.decode(errors="replace").strip()
    if not text.startswith(SCHEME):
        raise StorageError(f"{directory}: {text or 'the process that has it gave no answer'}", definite=True)
    return text


def _short(held: int) -> str:
    """The socket's path by a descriptor of its directory: a path of any length has one."""
    return f"/proc/self/fd/{held}/{SOCKET_FILE}"
