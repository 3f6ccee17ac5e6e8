"""The log of a member's commands, as the member sees it (METADATA.md, 6; P10.1).

`CommandLog` is all that a member knows of a quorum: it proposes, and is notified of what is committed. Its proposals
may be lost, and replaced by another leader's entries. `agreed_log.py` implements it with a Raft, of one voter or
several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from embedbk.codec.metadata_messages import NotLeader
from embedbk.metadata.raft_vocabulary import Entry

__all__ = [
    "FIRST_TERM",
    "CommandLog",
    "Committed",
    "Entry",
    "LeadershipChanged",
    "LogNews",
    "ReadIndexed",
]

FIRST_TERM = 1  # The term of every entry of a log from before there were terms.


class Committed(Struct, frozen=True):
    """These are never taken back. Each entry comes once, in order, none left out. A body that is not bytes is no
    command: a configuration, or what a new leader begins with."""

    entries: Sequence[Entry]


class ReadIndexed(Struct, frozen=True):
    """The read that was asked for under this token may be answered once everything up to index is applied."""

    token: int
    index: int


class LeadershipChanged(Struct, frozen=True):
    """Proposals that are not committed may be committed later, or never; reads that were asked for get no answer.
    `term` shows whether proposals are taken now."""


LogNews = Committed | ReadIndexed | LeadershipChanged


class CommandLog(Protocol):
    """Where commands are put in one order for all members. What its host is to do is appended to `effects`."""

    @property
    def term(self) -> int:
        """In which a command that is proposed now stands in the log; 0: another member leads, none is taken. It changes
        only with `LeaderChanged`."""

    @property
    def committed_index(self) -> int:
        """Every entry up to here is committed; those that the member has not received yet are in the next
        `Committed`."""

    @property
    def is_new(self) -> bool:
        """This member leads, and nothing stands in the log from before it did."""

    @property
    def deadline_ns(self) -> int | None:
        """When it must be stepped at the latest; None: time alone changes nothing."""

    @property
    def grace_ns(self) -> int:
        """For so long after this member leads a session may be renewed by the leader before."""

    @property
    def session_ns_min(self) -> int:
        """A session that lives shorter could end before its client finds the next leader."""

    @property
    def not_leader(self) -> NotLeader:
        """The answer to every request while `term` is 0."""

    def may_renew(self, now_ns: int) -> bool:
        """Whether this member leads now for certain, so that a session may be promised its time."""

    def why_full(self, size: int) -> str:
        """Why no command of so many bytes is taken now, though this member leads; empty: it is."""

    @property
    def members(self) -> tuple[str, ...]:
        """Where clients reach all voters; empty: unknown."""

    def propose(self, body: bytes, said: str, effects: list[Any]) -> int:
        """Log a command; returns its index, if it is committed in this term. said: its meaning for people, if it is
        worth a line in their logs."""

    def read_index(self, token: int, effects: list[Any]) -> int | None:
        """Up to where must be applied what answers a read that came now: everything that was committed when it came.
        None: that is not known before others are asked; `ReadReady` follows, or `LeaderChanged`."""

    def step(self, event: Any, effects: list[Any]) -> list[LogNews]:
        """An event of the host for the log, such as `TurnEnded`."""
