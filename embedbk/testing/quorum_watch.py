"""What several metadata members must keep, watched in whole clusters: I60, I61, I65, I66, I71, I74, I75 (RAFT.md, 1).

Checked after every step of every member, against all that any of them ever sent, applied and answered, which no member
knows. Worlds of one member have none of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from embedbk.codec.metadata_messages import (
    Acknowledged,
    Get,
    KeepAlive,
    List,
    Listed,
    NotLeader,
    Refusal,
    Value,
)
from embedbk.metadata.commands import ExpireSession, RaiseTo, decode_command
from embedbk.metadata.levels import LACKING
from embedbk.metadata.member import Member
from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import (
    Entry,
    InstallSnapshot,
    NoticeDamaged,
    RequestVote,
    Send,
    VoteReply,
)
from embedbk.metadata.vocabulary import Reply, RequestReceived, SendEvents
from embedbk.testing.violation import Violation

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["QuorumWatch"]

MS = 1_000_000


class QuorumWatch:
    """The watch of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leaders: dict[int, str] = {}  # The leading process, by term.
        self._starts: dict[str, int] = {}
        self.forgetful: set[str] = set()  # Members whose disk is an older image: they may vote twice.
        self._votes: dict[tuple[MemberId, int], tuple[str, bytes]] = {}  # Name and nonce, by voter and term.
        self._entries: list[Entry] = []  # The applied entries, by index from 1.
        self._applied: dict[str, int] = {}  # The index applied by each member's present process.
        self._commits: dict[str, int] = {}
        self._reads: dict[tuple[str, int, int, int], int] = {}  # Asked: what must be in the answer at least.
        self._alive: dict[tuple[str, int, int, int], int] = {}  # Keep-alives: when they came.
        self._renewed: dict[int, tuple[int, int]] = {}  # When each session was renewed, and for how long.

    @property
    def applied_index(self) -> int:
        """The last entry that any member has applied."""
        return len(self._entries)

    def applied_by(self, name: str) -> int:
        """As of the last look at this member."""
        return self._applied.get(name, 0)

    def begin(self, name: str, core: Member) -> None:
        """A process of this member starts."""
        self._starts[name] = self._starts.get(name, 0) + 1
        self._applied[name] = core.applied_index
        self._commits[name] = 0
        for asked in (self._reads, self._alive):
            for key in [key for key in asked if key[0] == name]:
                del asked[key]

    def look(self, name: str, core: Member, event: Any, effects: Sequence[Any]) -> None:
        """After a step, whose changes the agreed history has not received yet."""
        raft = core.log.raft  # type: ignore[attr-defined]
        if type(event) is RequestReceived:
            self._asked(name, event)
        # A member that elects itself alone leads at once, and no message shows it before its vote is durable.
        if raft.role is Role.LEADER and raft.is_term_durable:
            self._leads(f"{name} (start {self._starts[name]})", raft.term)
        if raft.commit_index < self._commits[name]:
            raise Violation(
                "I71", f"{name} says {raft.commit_index} is committed, and said {self._commits[name]}"
            )
        self._commits[name] = raft.commit_index
        for effect in effects:
            self._look_at(name, core, effect)
        if core.applied_index != self._applied[name]:
            self._look_at_applied(name, core)

    def _leads(self, process: str, term: int) -> None:
        known = self._leaders.get(term)
        if known is None:
            self._world.sometimes["metadata leader changed"] += bool(self._leaders)
            self._leaders[term] = process
        elif known != process:
            raise Violation("I60", f"{process} and {known} lead in term {term}")

    def _look_at(self, name: str, core: Member, effect: Any) -> None:
        raft = core.log.raft  # type: ignore[attr-defined]
        kind, met = type(effect), self._world.sometimes
        if kind is Reply:
            self._answered(name, core, effect)
        elif kind is Send:
            body = effect.message.body
            if type(body) is RequestVote:
                own = effect.message.sender
                self._vote(name, raft.member, effect.message.term, own.member.name, own.nonce)
            elif type(body) is VoteReply and body.is_granted:
                receiver = effect.message.receiver.name
                self._vote(name, raft.member, effect.message.term, receiver, body.candidate_nonce)
        elif kind is SendEvents:
            self._look_at_stream(name, core, effect)
        elif kind is InstallSnapshot:
            met["metadata member put to a snapshot"] += 1
        elif kind is NoticeDamaged:
            met["metadata member with less than it said"] += 1

    def _look_at_stream(self, name: str, core: Member, effect: SendEvents) -> None:
        """A member that streams, leader or not, shows only changes that it has applied."""
        revision, applied = effect.events.revision, core.catalog.revision
        if revision > applied and not effect.events.is_compacted:
            raise Violation("I82", f"{name} streams up to {revision}, and has applied {applied}")
        is_follower = core.log.term == 0 and bool(effect.events.records)
        self._world.sometimes["metadata streamed by a follower"] += is_follower

    def _vote(self, name: str, voter: MemberId, term: int, candidate: str, nonce: bytes) -> None:
        given = self._votes.setdefault((voter, term), (candidate, nonce))
        if given != (candidate, nonce) and name not in self.forgetful:
            raise Violation("I61", f"{name} votes in term {term} for {candidate}, and did for {given[0]}")

    # Entries.

    def _look_at_applied(self, name: str, core: Member) -> None:
        raft = core.log.raft  # type: ignore[attr-defined]
        first, last = self._applied[name] + 1, core.applied_index
        if last < first:
            raise Violation("I71", f"{name} has applied {last}, and had {first - 1}")
        self._applied[name] = last
        for entry in raft.log.between(max(first, raft.log.first_index), last):
            place = entry.index - 1
            if place < len(self._entries):
                if self._entries[place] != entry:
                    raise Violation("I65", f"{name} applies {entry}, others {self._entries[place]}")
            elif place > len(self._entries):
                raise Violation("I72", f"{name} applies entry {entry.index}, and nobody the one before")
            else:
                self._entries.append(entry)
                self._look_at_new(entry)

    def _look_at_new(self, entry: Entry) -> None:
        """Applied for the first time."""
        if not isinstance(entry.body, bytes):
            return
        command = decode_command(entry.body)
        if isinstance(command, RaiseTo):
            self._raised(command.level)
        if isinstance(command, ExpireSession) and command.term == entry.term:
            at_ns, ttl_ns = self._renewed.get(command.session, (0, 0))
            if at_ns and not self._has_jumped() and self._world.now_ns < at_ns + ttl_ns:
                silent = (self._world.now_ns - at_ns) // MS
                raise Violation(
                    "P10.1", f"session {command.session} expires {silent} ms after it was told that it lives"
                )

    def _raised(self, level: int) -> None:
        """Now committed: every voter and every bookie with a session had to know it."""
        world, members = self._world, self._world.members
        catalog = members.catalog
        for name, node in world.nodes.items():
            if name in members.voters:
                known = node.core.catalog.limits.level_known
            elif name in world.disks and catalog is not None and node.metadata.session in catalog.sessions:
                known = node.metadata.client.level
            else:
                continue
            if known < level:
                raise Violation("I83", f"level {level} is in force, and {name} knows {known}")

    # Clients.

    def _asked(self, name: str, event: RequestReceived) -> None:
        request = event.request
        key = name, event.link, request.session, request.sequence
        if isinstance(request.operation, Get | List):
            self._reads.setdefault(key, self._world.members.agreed.revision)
        elif isinstance(request.operation, KeepAlive):
            self._alive[key] = self._world.now_ns

    def _answered(self, name: str, core: Member, effect: Reply) -> None:
        reply, result = effect.reply, effect.reply.result
        if isinstance(result, Refusal) and result.code == LACKING:
            self._world.sometimes["older build refused"] += 1
        key = name, effect.link, reply.session, reply.sequence
        if isinstance(result, Value | Listed):
            floor = self._reads.pop(key, 0)
            if result.revision < floor:
                raise Violation(
                    "I75",
                    f"{name} answers a read at {result.revision}, and {floor} was committed when it came",
                )
        elif isinstance(result, NotLeader):
            self._world.sometimes["metadata said who leads"] += bool(result.leader)
        elif isinstance(result, Acknowledged) and key in self._alive:
            self._renew(reply.session, core, self._alive.pop(key))

    def _has_jumped(self) -> bool:
        return any(self._world.clock(name).has_jumped for name in self._world.members.names)

    def _renew(self, number: int, core: Member, asked_ns: int) -> None:
        """By the fastest clock of all members; one that jumps shows that more time went by than did (C3)."""
        clocks = [self._world.clock(name) for name in self._world.members.names]
        session = core.catalog.sessions.get(number)
        if session is None:
            self._renewed.pop(number, None)
            return
        fastest = max(clock.local(10**9) - clock.local(0) for clock in clocks)
        self._renewed[number] = asked_ns, session.ttl_ms * MS * 10**9 // fastest - MS
