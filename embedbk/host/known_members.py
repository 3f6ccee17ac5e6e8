"""Where a node that is started again finds the metadata members: the addresses it was given, and those it learnt.

Members come and go while a node runs, and the addresses it is started with stay the same. So it notes in its directory
what the leader reported last (`MEMBERS`). The note is a hint: the given addresses are asked too, a note that cannot be
read or written costs nothing but its addresses, and an address in it counts for nothing where another cluster answers
by now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from embedbk.errors import UsageError
from embedbk.metadata.seeking import ADDRESSES_MAX

__all__ = ["MEMBERS_FILE", "KnownMembers", "NotedMembers", "noted_members"]

logger = logging.getLogger(__name__)

MEMBERS_FILE = "MEMBERS"  # In a node's directory: the cluster's token, then an address on each line.
_BYTES_MAX = 64 << 10


class NotedMembers(NamedTuple):
    """The cluster's token, and where its members were; empty: nothing was noted."""

    token: bytes
    endpoints: Sequence[str]


_NOTHING = NotedMembers(b"", ())


def noted_members(directory: Path, check: Callable[[str], None]) -> NotedMembers:
    """Nothing of a note that is missing or damaged. check: raises UsageError for an address that cannot be dialled."""
    path = directory / MEMBERS_FILE
    try:
        with path.open("rb") as file:
            lines = [line for line in file.read(_BYTES_MAX).decode().split("\n") if line]
        if not lines:
            raise ValueError("it is empty")
        token = bytes.fromhex(lines[0])
        for line in lines[1:]:
            check(line)
    except FileNotFoundError:
        return _NOTHING
    except (OSError, ValueError, UsageError) as refused:
        logger.warning("%s is not used: %s; the addresses that were given are asked", path, refused)
        return _NOTHING
    return NotedMembers(token, tuple(lines[1 : 1 + ADDRESSES_MAX]))


class KnownMembers:
    """A node of a loop, beside one that has a client: it notes the members whenever its client has learnt of others."""

    def __init__(
        self,
        directory: Path,
        token: bytes,
        members: Callable[[], tuple[str, ...]],
        noted: NotedMembers,
        replace: Callable[[Path, bytes], None],
    ) -> None:
        """members: where they are, as the last leader said; empty as long as none did. noted: what the directory's
        note says (`noted_members`). replace: lets a file hold this, or what it held before (`replace_durably`)."""
        self._path = directory / MEMBERS_FILE
        self._token = token
        self._members = members
        self._replace = replace
        self._noted = tuple(noted.endpoints) if noted.token == token else ()

    def step(self, now_ns: int) -> None:
        if not self.has_news():
            return
        members = self._noted = tuple(self._members())
        # A path of a local socket may have any letters, whatever the locale.
        note = "".join(f"{line}\n" for line in (self._token.hex(), *members)).encode()
        try:
            # Behind a power cut the note before is worth more than an empty file, and members seldom change.
            self._replace(self._path, note)
        except OSError as refused:
            logger.warning(
                "%s cannot be written: %s; it is written when they change again", self._path, refused
            )

    def has_news(self) -> bool:
        members = self._members()
        return bool(members) and members != self._noted

    def deadline_ns(self) -> int | None:
        return None

    def filenos(self) -> list[int]:
        return []

    def close(self, failure: BaseException | None = None) -> None:
        """Nothing to do: no file or link is open."""
