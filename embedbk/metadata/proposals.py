"""The commands that a metadata member has proposed and not applied yet, and the requests that their outcomes answer
(METADATA.md, 5). Pure.

Keeps them in the order of the log, with the operations of sessions by key, so that a repeat finds its first run, and
with the last command of each session, behind which the session's reads wait. Leaves to `member` what is proposed, what
an outcome means, and when all of them are lost: when another member leads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from embedbk.metadata.commands import Command
from embedbk.metadata.pending_requests import PendingRequest

__all__ = ["Proposals", "ProposedCommand"]


@dataclass(slots=True)
class ProposedCommand:
    """A command that is not applied yet, and the requests that its outcome answers."""

    index: int
    term: int
    command: Command
    bytes: int
    asked: list[PendingRequest]


class Proposals:
    """What one member has proposed."""

    __slots__ = ("_expiring", "_last_of", "_runs", "queue")

    def __init__(self) -> None:
        self.queue: deque[ProposedCommand] = deque()  # In the order of their places in the log.
        self._runs: dict[tuple[int, int], ProposedCommand] = {}  # Operations of sessions, by key.
        self._last_of: dict[int, int] = {}  # Session -> index of its last command that is not applied.
        self._expiring: set[int] = set()  # Sessions that end by a command which is not applied.

    def __bool__(self) -> bool:
        return bool(self.queue)

    def add(self, proposed: ProposedCommand) -> None:
        self.queue.append(proposed)

    def note_run(self, key: tuple[int, int], proposed: ProposedCommand) -> None:
        """The command runs the operation of a session with this (session, sequence)."""
        self._runs[key] = proposed
        self._last_of[key[0]] = proposed.index

    def note_expiry(self, session: int, proposed: ProposedCommand) -> None:
        """The command ends the session."""
        self._expiring.add(session)
        self._last_of[session] = proposed.index

    def run_of(self, key: tuple[int, int]) -> ProposedCommand | None:
        return self._runs.get(key)

    def last_of(self, session: int) -> int:
        """The index of the session's last command; 0: all of them are applied."""
        return self._last_of.get(session, 0)

    def is_expiring(self, session: int) -> bool:
        return session in self._expiring

    def is_overtaken(self, index: int, term: int) -> bool:
        """Whether another leader's command stands at the place of the first of these."""
        return bool(self.queue) and self.queue[0].index == index and self.queue[0].term != term

    def take(self, index: int) -> ProposedCommand | None:
        """The command at this place of the log, which is committed; None: it is another member's."""
        if not self.queue or self.queue[0].index != index:
            return None
        return self.queue.popleft()

    def end_run(self, key: tuple[int, int], index: int) -> None:
        """The operation was run, by the command with this index."""
        del self._runs[key]
        self._end_last(key[0], index)

    def end_expiry(self, session: int, index: int) -> None:
        """The command with this index, which ends the session, was applied."""
        self._expiring.discard(session)
        self._end_last(session, index)

    def clear(self) -> None:
        for waiting in (self.queue, self._runs, self._last_of, self._expiring):
            waiting.clear()

    def _end_last(self, session: int, index: int) -> None:
        if self._last_of.get(session) == index:
            del self._last_of[session]
