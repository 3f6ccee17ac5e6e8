"""The state that every part of a Raft core works on: term, vote, log, role, and when messages leave (RAFT.md, section
4).

One rule is kept here for all of them: no message depends on something that the sender's disk may still forget. A
message waits for the record that has its term, and one that promises more waits for all records written before it. The
changes of a step become one record at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from embedbk.errors import ensure
from embedbk.metadata.basing import BaseRules
from embedbk.metadata.quorum import BASE_MS_FIRST, Configuration, MemberId
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_vocabulary import (
    Apply,
    Body,
    Boot,
    Doubt,
    Effect,
    Entry,
    InstallSnapshot,
    LeaderChanged,
    Message,
    NoticeRetired,
    Persist,
    Send,
    Timing,
)
from embedbk.metadata.replacing import replaced

__all__ = ["RandomFraction", "RaftState", "Role"]

AWAITED_BASES = 3
APPLY_BYTES_MAX = 1 << 20  # Bytes in one effect; the rest follows in the next steps.


class RandomFraction(Protocol):
    """The part of `random.Random` that a member uses."""

    def random(self) -> float: ...


class Role(StrEnum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class RaftState:
    """The state; the modules beside it change it, one event at a time. `take_effects` ends a step."""

    def __init__(
        self,
        boot: Boot,
        log: RaftLog,
        *,
        term: int,
        vote: Boot | None,
        doubt: Doubt | None,
        now_ns: int,
        chance: RandomFraction,
        base_rules: BaseRules,
    ) -> None:
        self.base_rules = base_rules
        self.boot = boot
        self.member = boot.member
        self.log = log
        self.term = max(
            term, log.last_term
        )  # A log may be newer than the last record of a term: a leader of that term wrote it.
        self.vote = vote if self.term == term else None
        self.role = Role.FOLLOWER
        self.leader: Boot | None = None  # The leader of this term.
        self.doubt = doubt
        self.now_ns = now_ns
        self.commit_index = log.snapshot_index
        self.applied_index = log.snapshot_index
        self.matched_index = log.snapshot_index  # Up to here the log is that of this term's leader.
        self.installing: tuple[int, int] | None = None  # (index, term) of a snapshot on its way in.
        self.is_retired = False
        self.is_installed = True  # False: the state machine is being put to a snapshot, and applies nothing.
        self.heard_leader_ns: int | None = None
        self.led_ns = now_ns  # When this process last led or received from a leader, or began.
        self.election_due_ns = now_ns
        self._chance = chance
        self._sequence = 0
        self._durable_sequence = 0
        self._term_sequence = 0  # The record that has the present term and vote.
        self._changed = self.term != term
        self._kept_index = (
            log.last_index
        )  # Up to here records are written as they are; later ones were cut or are new.
        self._written: deque[tuple[int, int]] = deque()  # (sequence, last index) of records not yet durable.
        self.replaced_ns: int | None = None  # When a voter was replaced last, as this process saw it.
        self.timing: Timing | None = None  # The measurements of this process so far.
        # Since when the base is what it is, as this process saw it; None: it was never changed.
        self.base_since_ns = now_ns if log.configuration.base_change is not None else None
        self._seen = log.configuration
        self._others_of: Configuration | None = None
        self._others: tuple[MemberId, ...] = ()
        self._outbox: list[tuple[Message, bool]] = []  # (message, whether it waits for all that is written).
        self._held: deque[tuple[int, Message]] = deque()
        self._installs: list[Effect] = []
        self._effects: list[Effect] = []
        self._shown_leader: tuple[int, MemberId | None] = (self.term, None)

    @property
    def configuration(self) -> Configuration:
        return self.log.configuration

    @property
    def others(self) -> tuple[MemberId, ...]:
        """All other members that receive the log."""
        configuration = self.log.configuration
        if configuration is not self._others_of:
            self._others_of = configuration
            self._others = tuple(member for member in configuration.members if member != self.member)
        return self._others

    def note_configuration(self) -> None:
        """The record at the end of a step."""
        configuration = self.log.configuration
        if configuration is not self._seen:
            if replaced(self._seen.voters, configuration.voters):
                self.replaced_ns = self.now_ns
            if configuration.base_change != self._seen.base_change:
                self.base_since_ns = self.now_ns
            if configuration.election_base_ms != self._seen.election_base_ms and self.hears_leader:
                # Its leader sends at the pace of the new base from now on; the running wait is still by the old one.
                self.delay_election()
            self._seen = configuration

    @property
    def base_ns(self) -> int:
        return self.configuration.election_base_ms * 1_000_000

    @property
    def agreed_base_ns(self) -> int:
        """The base by which a leader trusts that it still leads. A base longer than the one before counts only when it
        is committed: the next leader may lack it, and would extend every session by the shorter one."""
        committed_ms = self.log.configuration_at(self.commit_index).election_base_ms
        return min(committed_ms, self.configuration.election_base_ms) * 1_000_000

    @property
    def shortest_base_ns(self) -> int:
        """The shortest base that a member may use which lacks the newest configurations: of those in memory."""
        return min(self.log.shortest_base_ms, BASE_MS_FIRST) * 1_000_000

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def hears_leader(self) -> bool:
        """A leader was active within one election base: a candidate has no reason to replace it."""
        return self.is_leader or (
            self.leader is not None
            and self.heard_leader_ns is not None
            and self.now_ns - self.heard_leader_ns < self.base_ns
        )

    def awaits_leader(self, now_ns: int) -> bool:
        """Whether no leader is active, but for so short a time that one is likely to be elected soon, if possible at
        all."""
        return not self.hears_leader and now_ns - self.led_ns < AWAITED_BASES * self.base_ns

    @property
    def is_disk_behind(self) -> bool:
        return bool(self._written)

    @property
    def is_term_durable(self) -> bool:
        """Whether term and vote are on the disk: until then no message of this term has left."""
        return not self._changed and self._term_sequence <= self._durable_sequence

    @property
    def may_stand(self) -> bool:
        """Whether it may be elected at all."""
        is_fit = self.doubt is None and self.is_installed and not self.is_retired
        return is_fit and self.configuration.is_voter(self.member)

    # --- Terms and roles ---------------------------------------------------------------------------------

    def adopt_term(self, term: int) -> None:
        """A newer term: its vote is free, and its leader is unknown."""
        ensure(term > self.term, f"term {term} does not follow {self.term}")
        self.term, self.vote = term, None
        self._changed = True
        self.matched_index = self.commit_index
        self.become_follower(None)

    def become_follower(self, leader: Boot | None) -> None:
        """Follow in this term; a vote that was given in it stays given (I61)."""
        if leader is not None and self.leader not in (None, leader):
            ensure(
                leader.member == self.leader.member, f"{leader} and {self.leader} both lead term {self.term}"
            )
        self.role = Role.FOLLOWER
        self.leader = leader

    def retire(self, by: MemberId) -> None:
        if not self.is_retired:
            self.is_retired = True
            self.do(NoticeRetired(by))

    def give_vote(self, candidate: Boot) -> None:
        ensure(self.vote in (None, candidate), f"a second vote in term {self.term}")
        if self.vote is None:
            self.vote = candidate
            self._changed = True

    def delay_election(self) -> None:
        """Put the election off by a random time of one to two bases, so that not all begin at once."""
        self.election_due_ns = self.now_ns + int(self.base_ns * (1 + self._chance.random()))

    def retry_election(self) -> None:
        """A vote that is split is over as soon as all have answered, so the next one need not wait as long as a leader
        is silent; from a quarter to three quarters of a base, since a base is many times what an answer takes."""
        self.election_due_ns = self.now_ns + self._part_of_base_ns()

    def yield_election(self) -> None:
        """A member with all entries that are here asks for votes: give it the time to win, once."""
        self.election_due_ns = max(self.election_due_ns, self.now_ns + self.base_ns // 4)

    def _part_of_base_ns(self) -> int:
        return int(self.base_ns * (0.25 + self._chance.random() / 2))

    def lose_leader(self) -> None:
        """The leader's process has ended, or no link to it is left: there is no need to wait for its silence. A random
        time from a quarter to three quarters of a base is enough for a new link, and not all begin at once."""
        self.heard_leader_ns = None
        self.election_due_ns = min(self.election_due_ns, self.now_ns + self._part_of_base_ns())

    # --- Log ---------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        self.log.append(entries)

    def cut_log(self, keep_index: int) -> None:
        ensure(
            keep_index >= self.commit_index,
            f"entry {keep_index + 1} is committed and would be taken back (I65)",
        )
        self.log.cut(keep_index)
        self._kept_index = min(self._kept_index, keep_index)
        self._written = deque((sequence, min(last, keep_index)) for sequence, last in self._written)

    def install(self, index: int, term: int, configuration: Configuration) -> None:
        """A snapshot takes the place of everything up to index. What follows it here stays if it agrees with it."""
        ensure(index > self.commit_index, f"snapshot {index} is older than what is committed here (I80)")
        keeps = self.log.restart_from(index, term, configuration)
        if not keeps:
            self._written.clear()  # Records on their way to the disk are forgotten, too.
        self._kept_index = max(self._kept_index, index) if keeps else index
        self._changed = True  # A record of this step: when it is durable, so is that the log begins there.
        self.commit(index)
        self.matched_index = max(self.matched_index, index)
        self.is_installed = False
        self._installs.append(InstallSnapshot(index, term, keeps))

    def note_installed(self, index: int) -> None:
        ensure(index >= self.applied_index, "a state machine was put back")
        self.applied_index, self.is_installed = index, True

    def commit(self, index: int) -> None:
        ensure(index <= self.log.last_index, f"entry {index} is committed and not here")
        self.commit_index = max(self.commit_index, index)

    def note_durable(self, sequence: int) -> None:
        ensure(sequence <= self._sequence, "what was never written is durable")
        self._durable_sequence = max(self._durable_sequence, sequence)
        while self._written and self._written[0][0] <= sequence:
            self.log.durable_index = max(self.log.durable_index, self._written.popleft()[1])

    # --- What leaves -------------------------------------------------------------------------------------

    def send(self, receiver: MemberId, body: Body, *, waits: bool = False) -> None:
        """waits: it promises that what was written up to the end of this step is durable."""
        assert receiver != self.member
        self._outbox.append((Message(self.term, self.boot, receiver, body), waits))

    def do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """The end of a step: what it changed as one record, then what may leave, then what is to be applied."""
        self._show_leader()
        effects, self._installs = self._installs, []
        if self._changed or self._kept_index < self.log.last_index:
            effects.append(self._record())
        for message, waits in self._outbox:
            self._held.append((self._sequence if waits else self._term_sequence, message))
        self._outbox.clear()
        if self._held:
            self._let_go(effects)
        if self._effects:
            effects += self._effects
            self._effects = []
        if self.commit_index > self.applied_index:
            self._apply(effects)
        return effects

    def _let_go(self, effects: list[Effect]) -> None:
        """Messages that wait for no record any more."""
        waiting: deque[tuple[int, Message]] = deque()
        for sequence, message in self._held:
            if sequence > self._durable_sequence:
                waiting.append((sequence, message))
            elif message.term == self.term:  # An answer of an earlier term is useless.
                effects.append(Send(message))
        self._held = waiting

    def _record(self) -> Persist:
        self._sequence += 1
        if self._changed:
            self._term_sequence = self._sequence
        keep = self._kept_index
        entries = self.log.between(keep + 1, self.log.last_index)
        self._written.append((self._sequence, self.log.last_index))
        self._changed, self._kept_index = False, self.log.last_index
        return Persist(self._sequence, self.term, self.vote, keep, entries)

    def _apply(self, effects: list[Effect]) -> None:
        """Entries that are committed and durable *here*: a state is never ahead of its own log."""
        end = min(self.commit_index, self.log.durable_index)
        if self.is_installed and end > self.applied_index:
            first = self.applied_index + 1
            if self.log.bytes_between(first, end) <= APPLY_BYTES_MAX:
                entries = self.log.between(first, end)
            else:
                entries = self.log.taken(first, APPLY_BYTES_MAX)[: end - self.applied_index]
            self.applied_index = entries[-1].index
            effects.append(Apply(entries))

    @property
    def may_apply(self) -> bool:
        applied = self.applied_index
        return self.commit_index > applied and self.log.durable_index > applied and self.is_installed

    def _show_leader(self) -> None:
        shown = (self.term, self.leader.member if self.leader is not None else None)
        if shown != self._shown_leader:
            self._shown_leader = shown
            self._effects.append(LeaderChanged(*shown))
