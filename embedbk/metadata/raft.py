"""The core of one metadata member among several: messages, proposals, durability in; records, messages out (RAFT.md).

`step` takes one event, whole, and returns what is to be done, in this order. Decides which process a message is from
and which part handles it: `election`, `replication`, `membership` or `reads`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from embedbk.metadata import election
from embedbk.metadata.basing import BASE_RULES, BaseRules, suits
from embedbk.metadata.election import Ballot
from embedbk.metadata.leading import Leading
from embedbk.metadata.membership import (
    Change,
    begin_change,
    begin_learners,
    begin_wanted_base,
    why_not_changed,
)
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_state import RaftState, RandomFraction, Role
from embedbk.metadata.raft_vocabulary import (
    Append,
    AppendReply,
    BaseRequested,
    Boot,
    ChangeEnded,
    ChangeRequested,
    Doubt,
    Durable,
    Effect,
    Event,
    Heartbeat,
    HeartbeatReply,
    LearnersRequested,
    Message,
    PeerLost,
    PreVote,
    PreVoteReply,
    Propose,
    ReadRequested,
    Received,
    Refused,
    RequestVote,
    Retired,
    SnapshotFetched,
    SnapshotGivenUp,
    SnapshotInstalled,
    SnapshotOffer,
    SnapshotSaved,
    Tick,
    TimeoutNow,
    TimingMeasured,
    Token,
    TransferRequested,
    VoteReply,
)
from embedbk.metadata.replication import (
    on_append,
    on_append_reply,
    on_heartbeat,
    on_heartbeat_reply,
    on_snapshot_fetched,
    on_snapshot_given_up,
    on_snapshot_offer,
)

__all__ = ["Raft"]

ALONE = 1  # A quorum of one elects itself at once.


class Raft:
    """One member. Its log, term and vote are as the disk has them when it starts."""

    def __init__(
        self,
        boot: Boot,
        log: RaftLog,
        *,
        term: int,
        vote: Boot | None,
        now_ns: int,
        chance: RandomFraction,
        doubt: Doubt | None = None,
        base_rules: BaseRules = BASE_RULES,
    ) -> None:
        """base_rules: how much must be known before the election base changes by itself."""
        self._state = RaftState(
            boot,
            log,
            term=term,
            vote=vote,
            doubt=doubt,
            now_ns=now_ns,
            chance=chance,
            base_rules=base_rules,
        )
        self._ballot: Ballot | None = None
        self._leading: Leading | None = None
        self._heard: dict[MemberId, tuple[bytes, int]] = {}  # (nonce, when) of the process of each member.
        if len(self.configuration.voters) > ALONE or self.configuration.is_joint:
            self._state.delay_election()

    # --- What a host may look at -------------------------------------------------------------------------

    @property
    def member(self) -> MemberId:
        return self._state.member

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def vote(self) -> Boot | None:
        return self._state.vote

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def leader(self) -> MemberId | None:
        return self._state.leader.member if self._state.leader is not None else None

    @property
    def log(self) -> RaftLog:
        return self._state.log

    @property
    def configuration(self) -> Configuration:
        return self._state.configuration

    @property
    def commit_index(self) -> int:
        return self._state.commit_index

    @property
    def applied_index(self) -> int:
        return self._state.applied_index

    @property
    def hears_leader(self) -> bool:
        """Whether it leads, or received from a leader within one election base."""
        return self._state.hears_leader

    def awaits_leader(self, now_ns: int) -> bool:
        """Whether there is no leader, and one is expected soon, so that requests may wait for it."""
        return self._state.awaits_leader(now_ns)

    @property
    def has_doubt(self) -> bool:
        return self._state.doubt is not None

    @property
    def is_term_durable(self) -> bool:
        """Whether this member can have sent this term to another."""
        return self._state.is_term_durable

    @property
    def is_alone(self) -> bool:
        """Whether it leads, and no other vote counts, so that no other member can have been elected."""
        return self._leading is not None and self._leading.is_alone

    @property
    def began_log(self) -> bool:
        """Whether it leads, and the log holds nothing from before it."""
        return self._leading is not None and self._leading.began_log

    @property
    def has_committed(self) -> bool:
        """Whether it leads and has committed an entry of its own term, so that it has every committed entry."""
        return self._leading is not None and self._leading.has_committed

    @property
    def leased_ns(self) -> int:
        """How long a confirmed round is relied on."""
        return self._state.agreed_base_ns // 2

    def why_base_stays(self) -> str:
        """Why no other election base is looked for now; empty: measurements decide."""
        return self._leading.why_base_stays() if self._leading is not None else ""

    def suited_base(self) -> tuple[int, str] | None:
        """The base that the measurements of voters suggest, and why, whether they suffice or not. None: this member
        does not lead, or has received no measurements yet."""
        if self._leading is None:
            return None
        told = {voter: timing for voter, timing in self._leading.timings().items() if timing is not None}
        return suits(told) if told else None

    def why_full(self, size: int, gathered: int) -> str:
        """Why this leader takes no proposal of so many bytes now, behind what is gathered for one; empty: it does."""
        return self._leading.why_full(size, gathered)[0] if self._leading is not None else ""

    def is_confirmed(self, since_ns: int) -> bool:
        """It leads, and certainly led at a moment not before since_ns: no other member was elected before that."""
        leading = self._leading
        return leading is not None and (leading.is_alone or leading.confirmed_ns >= since_ns)

    def knows(self, member: MemberId) -> tuple[bool, bytes, int]:
        """Whether this leader received from a member within an election base, the nonce of that process, and up to
        where its log is durable. A member that does not lead knows nothing of others."""
        if self._leading is None:
            return False, b"", 0
        nonce = self._state.boot.nonce if member == self.member else self._heard.get(member, (b"", 0))[0]
        return self._leading.is_heard(member), nonce, self._leading.durable_index(member)

    def keeps_up(self, member: MemberId) -> bool:
        """Whether this member leads, and knows that the other has what was committed a moment ago."""
        leading = self._leading
        if leading is None:
            return False
        return leading.durable_index(member) >= min(self.commit_index, leading.settled_index)

    @property
    def deadline_ns(self) -> int | None:
        """None: time alone changes nothing."""
        if self._state.may_apply:
            return 0  # At once.
        return self._leading.deadline_ns if self._leading is not None else self._state.election_due_ns

    # --- Steps -------------------------------------------------------------------------------------------

    def step(self, event: Event) -> list[Effect]:
        state = self._state
        if event.now_ns > state.now_ns:
            state.now_ns = event.now_ns
        self._HANDLERS[type(event)](self, event)
        self._settle()
        return state.take_effects()

    def _settle(self) -> None:
        """Do everything that an event may have made possible."""
        state = self._state
        if self._ballot is not None and state.configuration.has_elected(self._ballot.granted):
            self._win(self._ballot)
        if self._leading is not None and state.is_leader:
            self._leading.settle()
        if self._leading is not None and not state.is_leader:
            self._leading.end()
            self._leading = None
            state.delay_election()
        if state.is_leader:
            state.led_ns = state.now_ns
        state.note_configuration()
        if state.doubt is not None:
            self._clear_doubt(state.doubt)

    def _win(self, ballot: Ballot) -> None:
        state = self._state
        if ballot.is_pre:
            self._ballot = election.elect(state)
            if not state.configuration.has_elected(self._ballot.granted):
                return
        self._ballot = None
        state.role, state.leader = Role.LEADER, state.boot
        self._leading = Leading(state)
        if state.configuration.is_joint or state.log.configuration_index > state.commit_index:
            self._leading.change = Change(None)

    def _clear_doubt(self, doubt: Doubt) -> None:
        """End the doubt if everything that its disk may have acknowledged is here again: a committed entry of a later
        term, or under a leader of the same term all that was acknowledged."""
        state = self._state
        newest = state.log.term_at(min(state.commit_index, state.log.durable_index))
        is_newer = newest is not None and newest > doubt.term
        agreed = min(state.matched_index, state.log.durable_index)
        if is_newer or (state.term == doubt.term and state.leader and agreed >= doubt.acknowledged_index):
            state.doubt = None

    # --- Messages ----------------------------------------------------------------------------------------

    def _on_received(self, event: Received) -> None:
        message, state = event.message, self._state
        if message.receiver != state.member or message.sender.member == state.member:
            return  # For an earlier process, or from a copy of this very disk.
        if message.sender.member in state.configuration.retired:
            self._tell_retired(message)
            return
        if not self._is_current(message.sender):
            return
        if message.term > state.term and not self._follow_term(message):
            return
        if message.term < state.term and not isinstance(message.body, PreVote | RequestVote):
            self._answer_older(message)
            return
        self._BODIES[type(message.body)](self, message)

    def _tell_retired(self, message: Message) -> None:
        """Tell a member that was taken out while it was away; otherwise it would ask for votes for ever."""
        state = self._state
        if isinstance(message.body, PreVote) and state.commit_index >= state.log.configuration_index:
            state.send(message.sender.member, Retired(state.log.configuration_index))

    def _is_current(self, sender: Boot) -> bool:
        """If two processes act for one member, the active one stays; the other is accepted once it is silent (P7.9)."""
        state = self._state
        nonce, heard_ns = self._heard.get(sender.member, (sender.nonce, 0))
        if nonce != sender.nonce:
            if state.now_ns - heard_ns < state.base_ns:
                return False
            self._forget(sender.member)
        self._heard[sender.member] = (sender.nonce, state.now_ns)
        return True

    def _forget(self, member: MemberId) -> None:
        """Messages of a process count no more once another process of its member is accepted."""
        if self._leading is not None and member in self._leading.progress:
            self._leading.progress[member].forget()
        if self._ballot is not None:
            self._ballot.granted.pop(member, None)

    def _follow_term(self, message: Message) -> bool:
        """A newer term is adopted, except from pre-vote requests, and from candidates while a leader is active."""
        state, body = self._state, message.body
        if isinstance(body, PreVote | Retired) or (isinstance(body, PreVoteReply) and body.is_granted):
            return True
        if isinstance(body, RequestVote) and state.hears_leader and not body.is_transfer:
            return False
        self._ballot = None
        state.adopt_term(message.term)
        return True

    def _answer_older(self, message: Message) -> None:
        """Let the leader of an older term learn that the term is over: the answer carries this member's term."""
        if isinstance(message.body, Heartbeat | Append | SnapshotOffer):
            self._state.send(message.sender.member, HeartbeatReply(0, 0, False))

    def _hear_leader(self, message: Message) -> None:
        state = self._state
        self._ballot = None
        state.become_follower(message.sender)
        state.heard_leader_ns = state.led_ns = state.now_ns
        state.delay_election()

    def _on_pre_vote(self, message: Message) -> None:
        election.on_pre_vote(self._state, message)

    def _on_pre_vote_reply(self, message: Message) -> None:
        body, ballot = message.body, self._ballot
        assert isinstance(body, PreVoteReply)
        if (
            ballot is not None
            and ballot.is_pre
            and body.is_granted
            and body.next_term == self._state.term + 1
        ):
            ballot.granted[message.sender.member] = None

    def _on_request_vote(self, message: Message) -> None:
        election.on_request_vote(self._state, message)

    def _on_vote_reply(self, message: Message) -> None:
        body, ballot = message.body, self._ballot
        assert isinstance(body, VoteReply)
        is_own = body.candidate_nonce == self._state.boot.nonce
        if ballot is not None and not ballot.is_pre and body.is_granted and is_own:
            ballot.granted[message.sender.member] = None

    def _on_timeout_now(self, message: Message) -> None:
        state = self._state
        if state.leader == message.sender and state.may_stand:
            self._ballot = election.elect(state, is_transfer=True)

    def _on_append(self, message: Message) -> None:
        self._hear_leader(message)
        on_append(self._state, message)

    def _on_heartbeat(self, message: Message) -> None:
        self._hear_leader(message)
        on_heartbeat(self._state, message)

    def _on_snapshot_offer(self, message: Message) -> None:
        self._hear_leader(message)
        on_snapshot_offer(self._state, message)

    def _on_append_reply(self, message: Message) -> None:
        assert isinstance(message.body, AppendReply)
        member = message.sender.member
        if self._leading is not None and member in self._state.others:
            on_append_reply(self._state, member, self._leading.hear(member), message.body)

    def _on_heartbeat_reply(self, message: Message) -> None:
        assert isinstance(message.body, HeartbeatReply)
        member = message.sender.member
        if self._leading is not None and member in self._state.others:
            self._leading.answer(member, message.body.round)
            on_heartbeat_reply(self._state, member, self._leading.hear(member), message.body)

    def _on_retired(self, message: Message) -> None:
        assert isinstance(message.body, Retired)
        if message.body.configuration_index > self._state.log.configuration_index:
            self._state.retire(message.sender.member)

    _BODIES: ClassVar[dict[type, Callable[[Raft, Message], None]]] = {
        PreVote: _on_pre_vote,
        PreVoteReply: _on_pre_vote_reply,
        RequestVote: _on_request_vote,
        VoteReply: _on_vote_reply,
        TimeoutNow: _on_timeout_now,
        Append: _on_append,
        AppendReply: _on_append_reply,
        Heartbeat: _on_heartbeat,
        HeartbeatReply: _on_heartbeat_reply,
        SnapshotOffer: _on_snapshot_offer,
        Retired: _on_retired,
    }

    # --- The host's events -------------------------------------------------------------------------------

    def _on_tick(self, event: Tick) -> None:
        state = self._state
        if self._leading is not None:
            self._leading.tick()
        elif state.now_ns >= state.election_due_ns:
            self._ballot = election.begin(state)

    def _on_peer_lost(self, event: PeerLost) -> None:
        member = event.boot.member
        if self._heard.get(member, (b"", 0))[0] != event.boot.nonce:
            return
        del self._heard[member]
        if self._leading is not None and member in self._leading.progress:
            progress = self._leading.progress[member]
            progress.forget()
            progress.heard_ns = None
        if event.boot == self._state.leader:
            self._state.lose_leader()

    def _on_durable(self, event: Durable) -> None:
        self._state.note_durable(event.sequence)

    def _on_propose(self, event: Propose) -> None:
        if self._leading is None:
            self._refuse(event.token)
        else:
            self._leading.propose(event)

    def _on_read(self, event: ReadRequested) -> None:
        if self._leading is None:
            for token in event.tokens:
                self._refuse(token)
        else:
            self._leading.reads.put(event.tokens)

    def _refuse(self, token: Token) -> None:
        leader = self.leader
        text = f"{leader.name} leads" if leader is not None else "no leader is known now"
        self._state.do(Refused(token, f"{self._state.member.name} does not lead: {text}", leader))

    def _on_learners(self, event: LearnersRequested) -> None:
        if self._leading is None:
            self._refuse(event.token)
        else:
            self._leading.change = begin_learners(self._state, self._leading, event) or self._leading.change

    def _on_change(self, event: ChangeRequested) -> None:
        leading, state = self._leading, self._state
        if leading is None:
            self._refuse(event.token)
            return
        # It hands over for a change that can begin, not for one that the next leader would refuse as well.
        if state.member not in event.voters and not why_not_changed(state, leading, event):
            to = leading.most_current(Configuration(event.voters))
            if to is not None and to in state.configuration.voters:
                leading.begin_transfer(to)
                state.do(
                    ChangeEnded(event.token, f"{state.member.name} would leave; {to.name} will lead: ask it")
                )
                return
        leading.change = begin_change(state, leading, event) or leading.change

    def _on_timing(self, event: TimingMeasured) -> None:
        self._state.timing = event.timing
        if self._leading is not None:
            self._leading.change = self._leading.consider_base(event.unix_ms) or self._leading.change

    def _on_base(self, event: BaseRequested) -> None:
        if self._leading is None:
            self._refuse(event.token)
        else:
            begun = begin_wanted_base(self._state, self._leading, event)
            self._leading.change = begun or self._leading.change

    def _on_transfer(self, event: TransferRequested) -> None:
        if self._leading is not None:
            self._leading.begin_transfer(event.to)

    def _on_snapshot_saved(self, event: SnapshotSaved) -> None:
        assert event.index <= self._state.applied_index
        self._state.log.let_go(event.index, event.first_index)

    def _on_snapshot_fetched(self, event: SnapshotFetched) -> None:
        on_snapshot_fetched(self._state, event)

    def _on_snapshot_given_up(self, event: SnapshotGivenUp) -> None:
        on_snapshot_given_up(self._state)

    def _on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        self._state.note_installed(event.index)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Tick: _on_tick,
        Received: _on_received,
        PeerLost: _on_peer_lost,
        Durable: _on_durable,
        Propose: _on_propose,
        ReadRequested: _on_read,
        LearnersRequested: _on_learners,
        ChangeRequested: _on_change,
        TransferRequested: _on_transfer,
        TimingMeasured: _on_timing,
        BaseRequested: _on_base,
        SnapshotSaved: _on_snapshot_saved,
        SnapshotFetched: _on_snapshot_fetched,
        SnapshotGivenUp: _on_snapshot_given_up,
        SnapshotInstalled: _on_snapshot_installed,
    }
