"""The words between a Raft core, its peers and its host. Plain data, made fresh, not changed after."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.vocabulary import Tick

__all__ = [
    "Addresses",
    "Append",
    "AppendReply",
    "Apply",
    "BaseRequested",
    "Body",
    "Boot",
    "ChangeEnded",
    "ChangeRequested",
    "Doubt",
    "Durable",
    "Entry",
    "Event",
    "Effect",
    "FetchSnapshot",
    "Heartbeat",
    "HeartbeatReply",
    "InstallSnapshot",
    "LeaderChanged",
    "LearnersRequested",
    "Message",
    "NoticeDamaged",
    "NoticeRetired",
    "PeerLost",
    "Persist",
    "PreVote",
    "PreVoteReply",
    "Propose",
    "Proposed",
    "ReadReady",
    "ReadRequested",
    "Received",
    "Refused",
    "RequestVote",
    "Retired",
    "Send",
    "SnapshotFetched",
    "SnapshotGivenUp",
    "SnapshotInstalled",
    "SnapshotOffer",
    "SnapshotSaved",
    "Tick",
    "TimeoutNow",
    "Timing",
    "TimingMeasured",
    "Token",
    "TransferRequested",
    "VoteReply",
]

APPEND_ENTRIES_MAX = 8192  # That fit into one append, as `raft_log.entry_bytes` weighs them.
Token = int  # The host's own name for a request; it comes back with the outcome.
Addresses = tuple[tuple[MemberId, tuple[str, ...]], ...]  # The endpoints at which a member listens.


class Boot(Struct, frozen=True, array_like=True):
    """One process of a member: each start has random bytes of its own."""

    member: MemberId
    nonce: bytes


class Entry(Struct, frozen=True, array_like=True):
    """One place of the log. body: commands of the catalog; a configuration; None: what a new leader begins with."""

    index: int
    term: int
    body: bytes | Configuration | None


class Doubt(Struct, frozen=True):
    """A disk that may have lost what it promised (a damaged log, an older copy): its member does not vote until it has
    everything again that it may have acknowledged."""

    term: int  # The newest it may have acknowledged something in.
    acknowledged_index: int


class Timing(Struct, frozen=True, array_like=True):
    """A process's own measurements that an election base depends on (`calibration.Measured` explains each)."""

    stall_ns: int = 0
    stalls: int = 0
    sync_ns: int = 0
    syncs: int = 0
    round_trip_ns: int = 0
    round_trips: int = 0
    measured_ns: int = 0  # Since it began to.


# --- What members send each other (tags are on the wire: never re-used; fields are only appended) ----------


class PreVote(Struct, frozen=True, array_like=True, tag=1):
    """Would you vote for me in next_term? It promises nothing and raises no term, so a member that was away does no
    harm."""

    next_term: int
    last_index: int
    last_term: int


class PreVoteReply(Struct, frozen=True, array_like=True, tag=2):
    next_term: int
    is_granted: bool


class RequestVote(Struct, frozen=True, array_like=True, tag=3):
    last_index: int
    last_term: int
    is_transfer: bool  # The leader itself asked for this election.


class VoteReply(Struct, frozen=True, array_like=True, tag=4):
    """candidate_nonce: the process that this vote is for. Its next process has no vote (C3)."""

    is_granted: bool
    candidate_nonce: bytes


class TimeoutNow(Struct, frozen=True, array_like=True, tag=5):
    """The leader wants the receiver to be elected in its place."""


class Append(Struct, frozen=True, array_like=True, tag=6):
    """Entries that follow (previous_index, previous_term)."""

    previous_index: int
    previous_term: int
    entries: Annotated[tuple[Entry, ...], Meta(max_length=APPEND_ENTRIES_MAX)]
    commit_index: int


class AppendReply(Struct, frozen=True, array_like=True, tag=7):
    """is_accepted: everything up to `index` is as the leader has it, and durable here. Else (index, hint_term) is where
    the logs may agree at the latest."""

    is_accepted: bool
    index: int
    hint_term: int = 0


class Heartbeat(Struct, frozen=True, array_like=True, tag=8):
    """round: counts the leader's questions whether it still leads."""

    commit_index: int
    round: int


class HeartbeatReply(Struct, frozen=True, array_like=True, tag=9):
    """received_index: up to here the sender has the leader's log, durable or not; a lower one than was sent before the
    heartbeat means that something was lost on the way. is_installing: a snapshot is on its way in. timing: of the
    sender's process; None: it has measured nothing yet, or its build sends no measurements."""

    round: int
    received_index: int
    is_installing: bool
    timing: Timing | None = None


class SnapshotOffer(Struct, frozen=True, array_like=True, tag=10):
    """The log that the receiver lacks is gone; this snapshot stands for it."""

    index: int
    term: int


class Retired(Struct, frozen=True, array_like=True, tag=11):
    """The receiver was taken out by the configuration of that entry, and never comes back under this incarnation."""

    configuration_index: int


Body = (
    PreVote
    | PreVoteReply
    | RequestVote
    | VoteReply
    | TimeoutNow
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | SnapshotOffer
    | Retired
)


class Message(Struct, frozen=True):
    """receiver: the member that is meant; another process may listen at its address now."""

    term: int
    sender: Boot
    receiver: MemberId
    body: Body


# --- Events ------------------------------------------------------------------------------------------------


class Received(Struct):
    now_ns: int
    message: Message


class PeerLost(Struct):
    """The link with this process is gone; another process of the same member may come at once."""

    now_ns: int
    boot: Boot


class Durable(Struct):
    """Everything up to and with Persist `sequence` is on the device."""

    now_ns: int
    sequence: int


class Propose(Struct):
    """New entries, in this order and together. Proposed or Refused follows."""

    now_ns: int
    token: Token
    bodies: tuple[bytes, ...]


class ReadRequested(Struct):
    """ReadReady or Refused follows for each; or LeaderChanged, which ends all that was asked."""

    now_ns: int
    tokens: tuple[Token, ...]


class LearnersRequested(Struct):
    """Let exactly these receive the log beside the voters. ChangeEnded follows."""

    now_ns: int
    token: Token
    expected_index: int  # Index of the configuration that the operator has seen.
    learners: tuple[MemberId, ...]
    addresses: Addresses = ()  # Addresses of newcomers, and of members that moved or had none; all others keep theirs.


class ChangeRequested(Struct):
    """Let exactly these vote. Newcomers must be learners that are up to date. ChangeEnded follows."""

    now_ns: int
    token: Token
    expected_index: int
    voters: tuple[MemberId, ...]
    policy: Policy
    allows_even: bool = False
    addresses: Addresses = ()  # As of LearnersRequested.
    accepts_risk: bool = False  # The risk of replacing a voter soon after another one.


class TransferRequested(Struct):
    """Let this voter lead. Nothing comes of it if it cannot."""

    now_ns: int
    to: MemberId


class TimingMeasured(Struct):
    """This process's measurements so far. A leader may propose another election base because of them, with the time of
    day."""

    now_ns: int
    timing: Timing
    unix_ms: int


class BaseRequested(Struct):
    """Fix this election base until an operator changes it; 0: measurements decide again. ChangeEnded follows."""

    now_ns: int
    token: Token
    expected_index: int
    base_ms: int
    unix_ms: int


class SnapshotSaved(Struct):
    """The state after entry `index` stands in a durable snapshot; entries up to first_index - 1 are needed no more."""

    now_ns: int
    index: int
    first_index: int


class SnapshotFetched(Struct):
    """A snapshot of another member is here, whole and durable, however late. configuration: as of its index."""

    now_ns: int
    index: int
    term: int
    configuration: Configuration


class SnapshotGivenUp(Struct):
    """The snapshot that was to be fetched is not to be had any more."""

    now_ns: int


class SnapshotInstalled(Struct):
    """The state machine stands at `index` now."""

    now_ns: int
    index: int


Event = (
    Tick
    | Received
    | PeerLost
    | Durable
    | Propose
    | ReadRequested
    | LearnersRequested
    | ChangeRequested
    | TransferRequested
    | TimingMeasured
    | BaseRequested
    | SnapshotSaved
    | SnapshotFetched
    | SnapshotGivenUp
    | SnapshotInstalled
)


# --- Effects -----------------------------------------------------------------------------------------------


class Persist(Struct):
    """Write in this order: forget entries from keep_index + 1 on, add entries, and note term and vote. One sync for all
    of it; then `Durable(sequence)`."""

    sequence: int
    term: int
    vote: Boot | None
    keep_index: int
    entries: tuple[Entry, ...]


class Send(Struct):
    message: Message


class Apply(Struct):
    """Committed and durable here: apply in order. Each entry comes once."""

    entries: tuple[Entry, ...]


class Proposed(Struct):
    token: Token
    first_index: int
    term: int


class ReadReady(Struct):
    """A state that has everything up to index applied may answer these reads."""

    tokens: tuple[Token, ...]
    index: int


class Refused(Struct):
    """Not done, and never will be by this request. leader: the member to ask; None: unknown."""

    token: Token
    reason: str
    leader: MemberId | None


class ChangeEnded(Struct):
    """The configuration that was asked for is committed; else why not."""

    token: Token
    refusal: str


class LeaderChanged(Struct):
    """The leader, as far as this member knows. If it was this member, its proposals may or may not be committed, and
    its pending reads get no answer."""

    term: int
    leader: MemberId | None


class FetchSnapshot(Struct):
    """Pull this snapshot; a second effect for the same one changes nothing."""

    source: Boot
    index: int
    term: int


class InstallSnapshot(Struct):
    """Put the state machine to the snapshot of this index; then `SnapshotInstalled`. It comes before the step's
    Persist: the log on the disk begins behind index, with what followed there (keeps_entries) or empty."""

    index: int
    term: int
    keeps_entries: bool


class NoticeDamaged(Struct):
    """A member has less than it acknowledged: its disk lost something. It counts for what it has."""

    member: MemberId
    known_index: int
    told_index: int


class NoticeRetired(Struct):
    """This member was taken out: it may stop, and its directory may go."""

    by: MemberId


Effect = (
    Persist
    | Send
    | Apply
    | Proposed
    | ReadReady
    | Refused
    | ChangeEnded
    | LeaderChanged
    | FetchSnapshot
    | InstallSnapshot
    | NoticeDamaged
    | NoticeRetired
)
