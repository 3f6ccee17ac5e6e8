"""The log that a member's commands stand in, as the member sees it (METADATA.md, 6; P10.1).

`CommandLog` is all that a member knows of a quorum: it proposes, and hears what is committed. `SoloLog` is that of a
quorum of one: what its own disk has is committed, so it loses nothing that was proposed but by a crash. The log of a
larger quorum (`agreed_log.py`) may lose what was proposed, and put another leader's entries in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from embedbk.codec.metadata_messages import NotLeader
from embedbk.errors import ensure
from embedbk.metadata.raft_vocabulary import Entry
from embedbk.metadata.vocabulary import JournalAppend, JournalDurable

__all__ = [
    "FIRST_TERM",
    "CommandLog",
    "Committed",
    "Entry",
    "LeaderChanged",
    "LogNews",
    "ReadReady",
    "SoloLog",
]

FIRST_TERM = 1  # Of every entry of a quorum of one, and of every log from before there were terms.


class Committed(Struct, frozen=True):
    """These are never taken back. Each entry comes once, in order, none left out. A body that is not bytes is no
    command: a configuration, or what a new leader begins with."""

    entries: Sequence[Entry]


class ReadReady(Struct, frozen=True):
    """The read that was asked for under this token may be answered by whoever has applied everything up to index."""

    token: int
    index: int


class LeaderChanged(Struct, frozen=True):
    """What was proposed here and is not committed may still be, or never; reads that were asked for are not answered.
    `term` says whether proposals are taken now."""


LogNews = Committed | ReadReady | LeaderChanged


class CommandLog(Protocol):
    """Where commands are put in one order for all members. What its host is to do is appended to `effects`."""

    @property
    def term(self) -> int:
        """In which a command that is proposed now stands in the log; 0: another member leads, none is taken. It changes
        only with `LeaderChanged`."""

    @property
    def committed_index(self) -> int:
        """Every entry up to here is committed; those that a member has not heard of are in the next `Committed`."""

    @property
    def deadline_ns(self) -> int | None:
        """When it must be stepped at the latest; None: time alone changes nothing."""

    @property
    def grace_ns(self) -> int:
        """For so long after this member leads a session may be renewed by the leader before."""

    @property
    def not_leader(self) -> NotLeader:
        """What is told to whoever asks while `term` is 0."""

    def may_renew(self, now_ns: int) -> bool:
        """Whether this member leads now for certain, so that a session may be promised its time."""

    def why_full(self, size: int) -> str:
        """Why no command of so many bytes is taken now, though this member leads; empty: it is."""

    @property
    def members(self) -> tuple[str, ...]:
        """Where clients reach all voters; empty where nobody told."""

    def propose(self, body: bytes, said: str, effects: list[Any]) -> int:
        """Log a command; the index at which it stands if it is committed in this term. said: what it means, for
        people, where that is worth a line."""

    def read_index(self, token: int, effects: list[Any]) -> int | None:
        """Up to where must be applied what answers a read that came now: everything that was committed when it came.
        None: that is not known before others are asked; `ReadReady` follows, or `LeaderChanged`."""

    def step(self, event: Any, effects: list[Any]) -> list[LogNews]:
        """An event of the host for the log, such as `TurnEnded`."""


class SoloLog:
    """A quorum of one."""

    deadline_ns: ClassVar[int | None] = None
    grace_ns: ClassVar[int] = 0
    not_leader: ClassVar[NotLeader] = NotLeader("")

    def __init__(self, last_index: int) -> None:
        """last_index: of what is on the device."""
        self.term = FIRST_TERM
        self.committed_index = last_index
        self.members: tuple[str, ...] = ()
        self._last_index = last_index
        self._queued: deque[Entry] = deque()  # Not yet on the device.

    def may_renew(self, now_ns: int) -> bool:
        return True

    def why_full(self, size: int) -> str:
        return ""

    def propose(self, body: bytes, said: str, effects: list[Any]) -> int:
        self._last_index += 1
        self._queued.append(Entry(self._last_index, FIRST_TERM, body))
        effects.append(JournalAppend(self._last_index, body, said))
        return self._last_index

    def read_index(self, token: int, effects: list[Any]) -> int | None:
        return self.committed_index

    def step(self, event: Any, effects: list[Any]) -> list[LogNews]:
        if not isinstance(event, JournalDurable):
            return []
        ensure(event.index <= self._last_index, "the journal made durable what was never appended")
        entries = []
        while self._queued and self._queued[0].index <= event.index:
            entries.append(self._queued.popleft())
        if not entries:
            return []
        self.committed_index = event.index
        return [Committed(entries)]
