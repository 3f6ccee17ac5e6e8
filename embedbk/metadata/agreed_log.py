"""The log that several members agree on, as one of them proposes to it and is notified by it (RAFT.md; METADATA.md, 1).

The Raft decides all about agreement. Proposals of one turn of the host are gathered and go in together (`TurnEnded`),
so that one record, one sync and one message to each other member serve all of them; reads of one turn share a round. A
proposal still has its index and term at once, as nothing else reaches the Raft before the gathered ones: so a proposal
that could be refused is refused before its index is promised (`why_full`).
"""

from __future__ import annotations

from typing import Any

from embedbk.codec.metadata_messages import NotLeader
from embedbk.errors import ensure
from embedbk.metadata import raft_vocabulary as words
from embedbk.metadata.command_log import Committed, LeadershipChanged, LogNews, ReadIndexed
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_state import Role
from embedbk.metadata.vocabulary import Remark, Tick, TurnEnded

__all__ = ["AgreedLog"]

SESSION_BASES = 3  # Election bases until another member leads and clients find it.
_PROPOSAL = -1  # The token of proposals made here; other tokens are not negative.


class AgreedLog:
    """The log, around a Raft that only this object steps."""

    def __init__(self, raft: Raft) -> None:
        self.raft = raft  # Others only look at it.
        self.term = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._promised = 0  # The last index that was promised.
        self._reads: list[int] = []

    # --- What a member may look at -------------------------------------------------------------------------

    @property
    def committed_index(self) -> int:
        return self.raft.applied_index

    @property
    def has_gathered(self) -> bool:
        """Whether the turn has to end, because something waits for it."""
        return bool(self._gathered or self._reads)

    @property
    def is_new(self) -> bool:
        return self.raft.began_log

    @property
    def deadline_ns(self) -> int | None:
        return 0 if self.has_gathered else self.raft.deadline_ns

    @property
    def grace_ns(self) -> int:
        """For so long after its last renewal, an earlier leader may have extended a session (0 with one member)."""
        return 0 if self.raft.is_alone else self.raft.configuration.election_base_ms * 1_000_000

    @property
    def session_ns_min(self) -> int:
        return SESSION_BASES * self.grace_ns

    @property
    def not_leader(self) -> NotLeader:
        leader = self.raft.leader
        if leader is None or leader == self.raft.member:
            return NotLeader("", (), self.members)
        return NotLeader(leader.name, self.raft.configuration.endpoints_of(leader), self.members)

    @property
    def members(self) -> tuple[str, ...]:
        configuration = self.raft.configuration
        return tuple(each for voter in configuration.voters for each in configuration.endpoints_of(voter))

    def may_renew(self, now_ns: int) -> bool:
        """True if no other member was elected up to half an election base ago: a later leader then gives a session that
        is renewed now its full time. While a longer base may still be taken back, half of the base before counts."""
        return self.raft.is_confirmed(now_ns - self.raft.leased_ns)

    def why_full(self, size: int) -> str:
        return self.raft.why_full(size, self._gathered_bytes)

    # --- Events ----------------------------------------------------------------------------------------------

    def propose(self, body: bytes, said: str, effects: list[Any]) -> int:
        ensure(self.term > 0, "a proposal to a member that does not lead")
        if said:
            effects.append(Remark(said))
        self._gathered.append(body)
        self._gathered_bytes += len(body)
        self._promised = self.raft.log.last_index + len(self._gathered)
        return self._promised

    def read_index(self, token: int, effects: list[Any]) -> int | None:
        if self.raft.is_alone and self.raft.has_committed:
            return self.raft.commit_index
        self._reads.append(token)
        return None

    def step(self, event: Any, effects: list[Any]) -> list[LogNews]:
        news: list[LogNews] = []
        self._flush(event.now_ns, effects, news)
        if isinstance(event, Tick):
            deadline_ns = self.raft.deadline_ns
            if deadline_ns is None or event.now_ns < deadline_ns:
                return news
        if not isinstance(event, TurnEnded):
            self._take(self.raft.step(event), effects, news)
        return news

    def _flush(self, now_ns: int, effects: list[Any], news: list[LogNews]) -> None:
        """Propose everything that was gathered, before anything else reaches the Raft."""
        if self._gathered:
            bodies, self._gathered, self._gathered_bytes = tuple(self._gathered), [], 0
            self._take(self.raft.step(words.Propose(now_ns, _PROPOSAL, bodies)), effects, news)
            ensure(
                self.raft.log.last_index == self._promised, "what was promised an index was not logged there"
            )
        if self._reads:
            tokens, self._reads = tuple(self._reads), []
            self._take(self.raft.step(words.ReadRequested(now_ns, tokens)), effects, news)

    def _take(self, told: list[words.Effect], effects: list[Any], news: list[LogNews]) -> None:
        for effect in told:
            match effect:
                case words.Apply(entries):
                    news.append(Committed(entries))
                case words.ReadReady(tokens, index):
                    news.extend(ReadIndexed(token, index) for token in tokens)
                case words.LeaderChanged():
                    self.term = self.raft.term if self.raft.role is Role.LEADER else 0
                    news.append(LeadershipChanged())
                    effects.append(effect)
                case words.Proposed():
                    pass
                case _:
                    effects.append(effect)
