"""The commands that a metadata member has proposed and not applied yet, and the requests that their outcomes answer
(METADATA.md, 5). Pure.

Keeps them in the order of the log, with the operations of sessions by key, so that a repeat finds its first run, and
with the last command of each session, behind which the session's reads wait. Decides which request is answered by which
command, and whether there is room for both. Leaves to `member` what is proposed, what an outcome means, and when all of
them are lost: when another member leads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from embedbk.metadata.command_log import CommandLog
from embedbk.metadata.commands import RULES, Changing, Command, ExpireSession, Run, encode_command
from embedbk.metadata.pending_requests import PendingRequest, PendingRequests, put_off

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
    """What one member has proposed. Each method that has `effects` appends to them what the host is to do."""

    __slots__ = ("_expiring", "_last_of", "_log", "_pending", "_runs", "queue")

    def __init__(self, log: CommandLog, pending: PendingRequests) -> None:
        self._log = log
        self._pending = pending
        self.queue: deque[ProposedCommand] = deque()  # In the order of their places in the log.
        self._runs: dict[tuple[int, int], ProposedCommand] = {}  # Operations of sessions, by key.
        self._last_of: dict[int, int] = {}  # Session -> index of its last command that is not applied.
        self._expiring: set[int] = set()  # Sessions that end by a command which is not applied.

    def __bool__(self) -> bool:
        return bool(self.queue)

    def propose(self, command: Command, effects: list[Any], said: str = "") -> ProposedCommand:
        """Propose a command that no request asked for."""
        return self._propose(encode_command(command), command, effects, said)

    def propose_if_room(self, command: Command, effects: list[Any], said: str) -> None:
        body = encode_command(command)
        if not self._log.why_full(len(body)):
            self._propose(body, command, effects, said)

    def propose_for(
        self, asked: PendingRequest, command: Command, effects: list[Any], said: str = ""
    ) -> ProposedCommand | None:
        """Propose a command whose outcome answers the request. None: the request is put off."""
        body = encode_command(command)
        full = self._pending.why_full(asked.link) or self._log.why_full(len(body))
        if full:
            put_off(asked, full, effects)
            return None
        proposed = self._propose(body, command, effects, said)
        proposed.asked.append(asked)
        self._pending.add(asked)
        return proposed

    def join(self, asked: PendingRequest, proposed: ProposedCommand, effects: list[Any]) -> None:
        """The outcome of a command that was proposed before answers this request too, unless it is put off."""
        if self._pending.admit(asked, effects):
            proposed.asked.append(asked)

    def run(self, asked: PendingRequest, operation: Changing, effects: list[Any]) -> None:
        """Propose to run the operation of a session. A repeat over another link has the outcome of the first."""
        first = self._runs.get(asked.key)
        if first is not None:
            self.join(asked, first, effects)
            return
        request = asked.request
        run = Run(request.session, request.sequence, request.done_below, operation, RULES)
        proposed = self.propose_for(asked, run, effects)
        if proposed is not None:
            self._runs[asked.key] = proposed
            self._last_of[asked.key[0]] = proposed.index

    def expire(self, session: int, effects: list[Any], said: str) -> None:
        """Propose the end of a session."""
        proposed = self.propose(ExpireSession(session, self._log.term), effects, said)
        self._expiring.add(session)
        self._last_of[session] = proposed.index

    def _propose(self, body: bytes, command: Command, effects: list[Any], said: str) -> ProposedCommand:
        index = self._log.propose(body, said, effects)
        proposed = ProposedCommand(index, self._log.term, command, len(body), [])
        self.queue.append(proposed)
        self._pending.bytes += len(body)
        return proposed

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
        proposed = self.queue.popleft()
        self._pending.bytes -= proposed.bytes
        return proposed

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
