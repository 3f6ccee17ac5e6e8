"""Elections: first a question without consequences, then a vote that is durable before it is sent (RAFT.md, section 4).

A vote belongs to one process (member, incarnation, boot nonce): its next process has not been voted for, so a leader
that lost its log cannot gather its old votes again (C3). A member that receives heartbeats of a leader votes for no
other.
"""

from __future__ import annotations

from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_state import RaftState, Role
from embedbk.metadata.raft_vocabulary import (
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    VoteReply,
)

__all__ = ["Ballot", "begin", "elect", "on_pre_vote", "on_request_vote"]


class Ballot:
    """An election that this member stands in. is_pre: it only asks whether it would win."""

    def __init__(self, own: MemberId, *, is_pre: bool) -> None:
        self.is_pre = is_pre
        self.granted: dict[MemberId, None] = {own: None}


def begin(state: RaftState) -> Ballot | None:
    """No leader sent anything for a while. None: this member may not stand. It asks all the same, because the answers
    say if it was taken out: members send nothing to a node outside of the configuration."""
    state.delay_election()
    state.become_follower(None)
    if not state.is_retired:
        _ask(state, PreVote(state.term + 1, state.log.last_index, state.log.last_term))
    return Ballot(state.member, is_pre=True) if state.may_stand else None


def elect(state: RaftState, *, is_transfer: bool = False) -> Ballot:
    """Stand for a new term. The member's own vote counts at once: the others are asked only when it is durable, and
    alone it commits nothing before that."""
    state.adopt_term(state.term + 1)
    state.role = Role.CANDIDATE
    state.give_vote(state.boot)
    state.retry_election()
    _ask(state, RequestVote(state.log.last_index, state.log.last_term, is_transfer))
    return Ballot(state.member, is_pre=False)


def _ask(state: RaftState, body: PreVote | RequestVote) -> None:
    for member in state.configuration.members:
        if member != state.member and state.configuration.is_voter(member):
            state.send(member, body)


def on_pre_vote(state: RaftState, message: Message) -> None:
    body = message.body
    assert isinstance(body, PreVote)
    is_granted = (
        body.next_term > state.term
        and not state.hears_leader
        and state.doubt is None
        and state.log.is_at_most(body.last_index, body.last_term)
    )
    if is_granted:
        state.yield_election()
    state.send(message.sender.member, PreVoteReply(body.next_term, is_granted))


def on_request_vote(state: RaftState, message: Message) -> None:
    """Whether the candidate is a voter of this member's configuration does not matter: that may be the older one."""
    body = message.body
    assert isinstance(body, RequestVote)
    is_granted = (
        message.term == state.term
        and state.vote in (None, message.sender)
        and state.leader is None
        and state.doubt is None
        and state.log.is_at_most(body.last_index, body.last_term)
    )
    if is_granted:
        state.give_vote(message.sender)
        state.delay_election()
    state.send(message.sender.member, VoteReply(is_granted, message.sender.nonce), waits=True)
