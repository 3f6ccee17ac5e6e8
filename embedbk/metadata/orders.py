"""What operators order of a metadata member that leads: that the cluster's level is raised, and that ids which a lost
future left are spared no more (METADATA.md, 8; P10.5, P10.8).

Decides which clients keep the level from being raised, as far as this leader heard from them, and what is proposed.
Leaves to `governing` which orders come here at all, and to `member` whether it leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedbk.codec.metadata_messages import MetadataReply, Refusal
from embedbk.metadata.command_log import CommandLog
from embedbk.metadata.commands import RaiseTo, StartSession, StopSparing
from embedbk.metadata.levels import LACKING, Heard, named
from embedbk.metadata.pending_requests import PendingRequests
from embedbk.metadata.proposals import Proposals
from embedbk.metadata.session_table import Session
from embedbk.metadata.vocabulary import ForgetRequested, RaiseRequested, Reply

__all__ = ["Orders"]


class Orders:
    """Those of one member; it has each order only while it leads."""

    def __init__(self, log: CommandLog, proposals: Proposals, pending: PendingRequests) -> None:
        self._log = log
        self._proposals = proposals
        self._pending = pending
        self.levels = Heard()

    def raise_level(self, event: RaiseRequested, lacking: list[str]) -> list[Any]:
        """Nothing is proposed while a node does not know the level. lacking: those clients."""
        request, effects = event.request, list[Any]()
        if request is None:
            if not lacking:
                said = f"level {event.level}: all is new"
                self._proposals.propose_if_room(RaiseTo(event.level), effects, said)
            return effects
        asked = self._pending.begin_unnumbered(event.link, request)
        if lacking:
            text = f"the level cannot be raised to {event.level}: in the way are {named(lacking)}"
            refusal = MetadataReply(request.session, request.sequence, Refusal(LACKING, text))
            return [Reply(event.link, refusal)]
        said = f"level {event.level} is begun, by an operator's word"
        self._proposals.propose_for(asked, RaiseTo(event.level), effects, said)
        return effects

    def forget_ids(self, event: ForgetRequested) -> list[Any]:
        effects = list[Any]()
        asked = self._pending.begin_unnumbered(event.link, event.request)
        ranges = ", ".join(f"{first} to {end - 1}" for first, end in event.ranges)
        said = f"ids {ranges} are spared no more, by an operator's word"
        self._proposals.propose_for(asked, StopSparing(event.ranges), effects, said)
        return effects

    def lacking(self, level: int, sessions: Mapping[int, Session], *, knows_all: bool) -> list[str]:
        """Clients, bookies among them, that keep the level from being raised, as far as this leader knows. A session
        whose opening is under way counts: it is earlier in the log. A leader that has not yet applied the entries from
        before it began to lead does not know its clients; in a new log there are no such entries, and a new cluster
        waits for no sync: sessions that were opened meanwhile would be told the level before."""
        if not knows_all and not self._log.is_new:
            return ["clients of the leader before (not heard yet)"]
        proposed = [each.command for each in self._proposals.queue]
        openings = [
            (0, each.label) for each in proposed if isinstance(each, StartSession) and each.level < level
        ]
        labels = [(session.session, session.label) for session in sessions.values()]
        return self.levels.lacking((*labels, *openings), level)
