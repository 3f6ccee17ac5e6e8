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
    """Entries that are never taken back. Each comes once, in order, none left out. A body that is not bytes is no
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
    """Puts commands in one order for all members. It appends to `effects` what its host is to do."""

    @property
    def term(self) -> int:
        """The term that a command proposed now has in the log; 0: another member leads, so commands are refused. It
        changes only with `LeaderChanged`."""

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
        """How long after this member leads the earlier leader may still renew a session."""

    @property
    def session_ns_min(self) -> int:
        """The shortest ttl of a session: with less it could end before its client finds the next leader."""

    @property
    def not_leader(self) -> NotLeader:
        """The answer to every request while `term` is 0."""

    def may_renew(self, now_ns: int) -> bool:
        """Whether this member leads now for certain, so that a session may be promised its time."""

    def why_full(self, size: int) -> str:
        """Why a command of so many bytes is refused now, though this member leads; empty: it is not."""

    @property
    def members(self) -> tuple[str, ...]:
        """The addresses at which clients reach all voters; empty: unknown."""

    def propose(self, body: bytes, said: str, effects: list[Any]) -> int:
        """Log a command; returns its index, if it is committed in this term. said: its meaning for people, if it is
        worth a line in the logs."""

    def read_index(self, token: int, effects: list[Any]) -> int | None:
        """The index up to which entries must be applied before a read that came now is answered: everything that was
        committed when it came. None: others must be asked first; `ReadReady` follows, or `LeaderChanged`."""

    def step(self, event: Any, effects: list[Any]) -> list[LogNews]:
        """An event of the host for the log, such as `TurnEnded`."""
