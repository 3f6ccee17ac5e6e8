"""The way to an embedded cluster for other processes of its user: a socket that is its directory's, to knock at.

Decides how a knock is answered, and where the cluster listens then. The socket is of Linux's abstract kind, named by
the directory's device and number. No file stands for it: so a directory that is open, or was when its process was
killed, can be copied (`shutil.copytree` fails at a socket), its copy is not taken for it, and its path may have any
length. The system reports which user knocks: root and the cluster's own user are answered, as by a socket of mode 0600.
The process that knocks asks the system likewise which user answers.

Nothing listens before the first knock: a process that is alone pays for two descriptors, one of them for the knock that
comes when no other is left. Where another process has the name nobody can knock, and everything else works.
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
from embedbk.transports.endpoints import ipc_users

__all__ = ["Door", "is_of_a_door", "knock"]

logger = logging.getLogger(__name__)

KNOCKS_PER_STEP_MAX = 16
KNOCKS_WAITING_MAX = 64
ANSWER_BYTES_MAX = 4096
_PEER = struct.Struct("3i")  # Process, user and group of a peer, as Linux reports them.
_ABSTRACT = "ipc://@"
# What a system or process says that has nothing left for a while.
_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Door:
    """A node of the host's loop.

    listen(endpoint): listen there from now on, and return the address. Raises EmbedbkError. url: the address at which
    it is reached already, if any.
    """

    def __init__(self, directory: Path, listen: Callable[[str], list[str]], url: str = "") -> None:
        self.url = url  # The answer to a knock; empty before the cluster listens anywhere.
        self._directory = directory
        self._listen = listen
        self._socket: socket.socket | None = None
        # A knock that waits ends each wait of the loop until it is taken, also where no descriptor is left for it.
        self._spare: int | None = None
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.bind("\0" + _name(directory))
            made.listen(KNOCKS_WAITING_MAX)
        except OSError as refused:
            made.close()
            logger.info(
                "%s has no socket, so other processes reach its cluster by listen= only: %s",
                directory,
                refused,
            )
        else:
            self._socket = made
            self._keep_spare()

    def filenos(self) -> list[int]:
        return [] if self._socket is None else [self._socket.fileno()]

    def has_news(self) -> bool:
        return False

    def deadline_ns(self) -> int | None:
        return None

    def step(self, now_ns: int) -> None:
        self._keep_spare()
        for _ in range(KNOCKS_PER_STEP_MAX):
            if self._socket is None:
                return
            try:
                link, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as refused:
                if refused.errno in _NONE_LEFT:
                    if not self._give_spare():
                        return
                elif refused.errno not in (errno.ECONNABORTED, errno.EINTR):
                    logger.warning("%s: nobody can knock any more: %s", self._directory, refused)
                    self.close()
                continue
            with link, contextlib.suppress(OSError):  # A peer that left before the answer needs none.
                link.setblocking(False)
                if _user_of(link) in ipc_users():
                    link.send(self._answer().encode()[:ANSWER_BYTES_MAX])
            self._keep_spare()

    def _keep_spare(self) -> None:
        if self._spare is None and self._socket is not None:
            with contextlib.suppress(OSError):  # The next turn tries it again.
                self._spare = os.dup(self._socket.fileno())

    def _give_spare(self) -> bool:
        """Whether there was a descriptor to give up, so that one more knock can be taken."""
        if self._spare is None:
            return False
        os.close(self._spare)
        self._spare = None
        return True

    def _answer(self) -> str:
        if not self.url:
            where = f"{_ABSTRACT}{_name(self._directory)}-{os.urandom(8).hex()}"
            try:
                self.url = url_of(self._listen(where))
            except (EmbedbkError, OSError) as refused:
                return f"it cannot listen: {refused}\n"
            logger.info("%s is reached at %s by other processes of this user", self._directory, self.url)
        return self.url + "\n"

    def close(self, failure: BaseException | None = None) -> None:
        self._give_spare()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_of_a_door(endpoints: Sequence[str]) -> bool:
    """Whether only its user's processes on this machine can reach a member, because it listens at its door alone."""
    return bool(endpoints) and all(each.startswith(_ABSTRACT) for each in endpoints)


def knock(directory: Path, timeout_s: float) -> str:
    """The address of the embedded cluster whose process has this directory.

    Raises StorageError: no process answers there, or it answers why it cannot be reached.
    """
    try:
        name, owner = _name(directory), os.stat(directory).st_uid
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
            # Let the system time out: with Python's own time-outs a connect fails at once when others wait before it.
            limit = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            link.connect("\0" + name)
            answers = _user_of(link)
            told = b""
            while len(told) <= ANSWER_BYTES_MAX and (more := link.recv(ANSWER_BYTES_MAX)):
                told += more
    except OSError as refused:
        raise StorageError(
            f"no process that has {directory} answers: {refused}",
            definite=True,
            hint='in the process that has it open: client.listen("tcp://127.0.0.1:0"); then give its url',
        ) from refused
    text = told.decode(errors="replace").strip()
    if answers not in ipc_users() | {owner}:
        text = f"a process of user {answers} answers, who is neither you nor whose directory it is"
    if not text.startswith(SCHEME):
        raise StorageError(f"{directory}: {text or 'the process that has it gave no answer'}", definite=True)
    return text


def _name(directory: Path) -> str:
    """The socket's name: the same for every path to the directory, and another one for a copy of it."""
    found = os.stat(directory)
    return f"embedbk-{found.st_dev:x}-{found.st_ino:x}"


def _user_of(link: socket.socket) -> int:
    """The user of the process at the other end, as of its connect or its listen."""
    user: int = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
    return user
