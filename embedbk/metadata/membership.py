"""How the set of voters changes while commands go on: learners, then both sets together, then the new one (RAFT.md, 7).

Joint consensus always, one change at a time, effective when appended, and only under a leader that has committed in
its own term (I76, I77). A newcomer receives the log as a learner first, so that a change never waits for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from embedbk.errors import UsageError
from embedbk.metadata.basing import why_no_base
from embedbk.metadata.log_records import encode_configuration
from embedbk.metadata.quorum import VOTERS_MAX, BaseChange, Configuration, MemberId, sizes_of, why_unsafe
from embedbk.metadata.raft_state import RaftState
from embedbk.metadata.raft_vocabulary import (
    Addresses,
    BaseRequested,
    ChangeEnded,
    ChangeRequested,
    Entry,
    LearnersRequested,
    Token,
)
from embedbk.metadata.replacing import replaced, why_not_replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Change",
    "PeerProgress",
    "begin_base",
    "begin_change",
    "begin_learners",
    "begin_wanted_base",
    "why_not_changed",
]

LEARNERS_MAX = 7
ENDPOINTS_MAX = 8  # Addresses of one member.
ENDPOINT_CHARS_MAX = 255
# Bytes of a configuration that takes members out, each of which is named for good. A snapshot's header has 64 KiB for
# it: what is left is for another election base, with its reason.
CONFIGURATION_BYTES_MAX = 60 << 10


class PeerProgress(Protocol):
    """The leader's view of the others."""

    @property
    def has_committed(self) -> bool: ...

    def is_heard(self, member: MemberId) -> bool: ...

    def durable_index(self, member: MemberId) -> int: ...

    @property
    def settled_index(self) -> int:
        """An index that was committed a moment ago; a member that has it keeps up."""
        ...


class Change:
    """One change on its way. token: None, if it was found under way by a new leader."""

    def __init__(self, token: Token | None) -> None:
        self.token = token
        self.is_done = False

    def go_on(self, state: RaftState, peers: PeerProgress) -> None:
        """Once both sets have committed the joint configuration, propose the new set alone; once that is committed, the
        change is done."""
        log = state.log
        if self.is_done or state.commit_index < log.configuration_index or not peers.has_committed:
            return
        configuration = log.configuration
        if configuration.is_joint:
            left = [member for member in configuration.outgoing if member not in configuration.voters]
            final = replace(configuration, outgoing=(), retired=(*configuration.retired, *left))
            final = replace(final, addresses=_kept(final, ()))
            state.append([Entry(log.last_index + 1, state.term, final)])
            return
        self.is_done = True
        if self.token is not None:
            state.do(ChangeEnded(self.token, ""))


def begin_learners(state: RaftState, peers: PeerProgress, event: LearnersRequested) -> Change | None:
    """Learners change no quorum, so one entry does it."""
    configuration = state.configuration
    reason = _why_not_now(state, peers, event.expected_index) or _why_not_these(configuration, event.learners)
    if not reason and len(event.learners) > LEARNERS_MAX:
        reason = f"{len(event.learners)} learners: allowed are {LEARNERS_MAX}"
    if not reason and any(configuration.is_voter(member) for member in event.learners):
        reason = "a voter is no learner: take its vote first"
    changed = replace(configuration, learners=event.learners)
    reason = reason or _why_not_there(changed, event.addresses)
    if reason:
        state.do(ChangeEnded(event.token, reason))
        return None
    gone = [member for member in configuration.learners if member not in event.learners]
    retired = (*configuration.retired, *gone)
    changed = replace(changed, retired=retired, addresses=_kept(changed, event.addresses))
    reason = _why_too_large(changed) if gone else ""
    if reason:
        state.do(ChangeEnded(event.token, reason))
        return None
    state.append([Entry(state.log.last_index + 1, state.term, changed)])
    return Change(event.token)


def begin_change(state: RaftState, peers: PeerProgress, event: ChangeRequested) -> Change | None:
    reason = why_not_changed(state, peers, event)
    if not reason and state.member not in event.voters:
        stay = [member for member in event.voters if state.configuration.is_voter(member)]
        way = (
            "hand leadership over" if stay else "none of the others votes yet: let one of them vote beside it"
        )
        reason = f"{state.member.name} leads and would leave: {way} first"
    if reason:
        state.do(ChangeEnded(event.token, reason))
        return None
    state.append([Entry(state.log.last_index + 1, state.term, _joint_of(state.configuration, event))])
    return Change(event.token)


def why_not_changed(state: RaftState, peers: PeerProgress, event: ChangeRequested) -> str:
    """Why this change cannot begin, under this leader or, where this one leaves, under the next; empty: it can."""
    configuration = state.configuration
    joint = _joint_of(configuration, event)
    return (
        _why_not_now(state, peers, event.expected_index)
        or _why_not_these(configuration, event.voters)
        or why_not_replaced(
            replaced(configuration.voters, event.voters),
            peers.is_heard,
            state.replaced_ns,
            state.now_ns,
            accepts_risk=event.accepts_risk,
        )
        or _why_too_weak(state, peers, event)
        or _why_not_there(joint, event.addresses)
        # What follows it is no larger: a member that leaves is named once in both.
        or _why_too_large(joint)
    )


def _joint_of(configuration: Configuration, event: ChangeRequested) -> Configuration:
    joint = Configuration(
        voters=event.voters,
        outgoing=configuration.voters,
        learners=tuple(member for member in configuration.learners if member not in event.voters),
        policy=event.policy,
        outgoing_policy=configuration.policy,
        election_base_ms=configuration.election_base_ms,
        retired=configuration.retired,
        addresses=configuration.addresses,
        base_change=configuration.base_change,
    )
    return replace(joint, addresses=_kept(joint, event.addresses))


def begin_base(state: RaftState, token: Token | None, base_ms: int, base_change: BaseChange) -> Change:
    """All members take another election base together. No other change of the configuration is under way."""
    changed = replace(state.configuration, election_base_ms=base_ms, base_change=base_change)
    state.append([Entry(state.log.last_index + 1, state.term, changed)])
    return Change(token)


def begin_wanted_base(state: RaftState, peers: PeerProgress, event: BaseRequested) -> Change | None:
    """An operator sets the base; 0 keeps the present one, and lets measurements decide from now on."""
    configuration = state.configuration
    reason = _why_not_now(state, peers, event.expected_index)
    if not reason and event.base_ms:
        reason = why_no_base(event.base_ms)
    if not reason and configuration.voters == (state.member,):
        reason = "who votes alone is never elected by others: let others join first"
    if reason:
        state.do(ChangeEnded(event.token, reason))
        return None
    said = "it is fixed" if event.base_ms else "what is measured decides"
    changed = BaseChange(bool(event.base_ms), event.unix_ms, "an operator", said)
    return begin_base(state, event.token, event.base_ms or configuration.election_base_ms, changed)


def _why_not_now(state: RaftState, peers: PeerProgress, expected_index: int) -> str:
    log = state.log
    if not peers.has_committed:
        return "this leader has not committed an entry of its own yet: try again"
    if log.configuration.is_joint or log.configuration_index > state.commit_index:
        return "another change is under way: wait for its end"
    if expected_index != log.configuration_index:
        return (
            f"the configuration is that of entry {log.configuration_index}, not {expected_index}: look again"
        )
    return ""


def _why_not_these(configuration: Configuration, members: Sequence[MemberId]) -> str:
    names = [member.name for member in members]
    if len(set(names)) < len(names):
        return f"a name stands twice in {', '.join(names)}"
    for member in members:
        if member in configuration.retired:
            return (
                f"{member.name} ({member.incarnation.hex()}) was taken out and never comes back: what it promised "
                "may be forgotten; start it with an empty directory"
            )
    return ""


def _why_not_there(configuration: Configuration, addresses: Addresses) -> str:
    """Why these addresses cannot be those of this configuration; empty: they can."""
    for member, endpoints in addresses:
        if member not in configuration.members:
            return f"an address of {member.name}, which is neither voter nor learner"
        longest = max(map(len, endpoints), default=0)
        if not 1 <= len(endpoints) <= ENDPOINTS_MAX or not longest <= ENDPOINT_CHARS_MAX:
            return (
                f"{member.name} with {len(endpoints)} endpoints of up to {longest} letters: allowed are 1 to "
                f"{ENDPOINTS_MAX} of {ENDPOINT_CHARS_MAX}"
            )
    return ""


def _why_too_large(configuration: Configuration) -> str:
    """Why no snapshot could hold this configuration, beside what may still come to it; empty: each can."""
    size = len(encode_configuration(configuration))
    if size <= CONFIGURATION_BYTES_MAX:
        return ""
    return (
        f"the configuration would take {size} bytes, allowed are {CONFIGURATION_BYTES_MAX}: each of the "
        f"{len(configuration.retired)} members that were taken out so far is named in it for good; stop what starts "
        "members again and again with empty directories"
    )


def _kept(configuration: Configuration, told: Addresses) -> Addresses:
    """The known addresses of this configuration's members, in their order; those of members that left are forgotten."""
    known = {**dict(configuration.addresses), **dict(told)}
    return tuple((member, known[member]) for member in configuration.members if member in known)


def _why_too_weak(state: RaftState, peers: PeerProgress, event: ChangeRequested) -> str:
    """The new voters must be able to commit and to elect from the first moment on."""
    configuration, count = state.configuration, len(event.voters)
    try:
        sizes = sizes_of(event.policy, count)
    except UsageError as refused:
        return str(refused)
    unsafe = why_unsafe(sizes)
    if unsafe:
        return unsafe
    if count % 2 == 0 and not event.allows_even:
        return (
            f"{count} voters bear no more crashes than {count - 1}: take 1 to {VOTERS_MAX}, odd, or say "
            "that an even number is meant"
        )
    for member in event.voters:
        if not configuration.is_voter(member) and member not in configuration.learners:
            return f"{member.name} does not receive the log yet: let it learn first"
    current = [
        member
        for member in event.voters
        if peers.is_heard(member)
        and peers.durable_index(member) >= min(state.commit_index, peers.settled_index)
    ]
    needed = max(sizes.commit, sizes.elect)
    newcomers = [m for m in event.voters if not configuration.is_voter(m) and m not in current]
    if newcomers or len(current) < needed:
        behind = ", ".join(member.name for member in event.voters if member not in current)
        return (
            f"{len(current)} of the {count} new voters are up to date, needed are {needed} and all newcomers; "
            f"not: {behind}"
        )
    return ""
