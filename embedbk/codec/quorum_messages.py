"""Requests of operators, members and bookies about the metadata quorum itself, and the answers (P10.3, P10.5, P10.8;
WIRE.md section 5): who votes, who leads, which level is used, snapshots over the wire, the formation of a cluster.

Reading and changing what the quorum stores is in `metadata_messages`, which has the envelope of all requests.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.field_types import Endpoint, Endpoints, LongText, Number, RandomBytes, ShortText

__all__ = [
    "AskHeld",
    "AskMet",
    "Backup",
    "BaseTold",
    "BeginFormation",
    "ChangeBase",
    "ChangeLearners",
    "ChangeVoters",
    "CutSnapshot",
    "ForgetIds",
    "Formation",
    "FormationPromised",
    "Governance",
    "GovernanceResult",
    "HELD_IDS_MAX",
    "HeldTold",
    "ID_RANGES_MAX",
    "IN_THE_WAY_MAX",
    "JoinAsLearner",
    "KINDS_MAX",
    "MEMBERS_MAX",
    "MemberName",
    "MemberTold",
    "MetTold",
    "PrepareFormation",
    "QuorumStatus",
    "QuorumTold",
    "RaiseLevel",
    "ReadSnapshot",
    "SNAPSHOT_BYTES_MAX",
    "SnapshotBytes",
    "SnapshotCut",
    "TransferLeadership",
]

SNAPSHOT_BYTES_MAX = 1 << 20  # Bytes of a snapshot's file in one answer.
ID_RANGES_MAX = 64  # Ranges of ids that one request forgets.
HELD_IDS_MAX = 4096  # Ledger ids in one answer of a bookie.
MEMBERS_MAX = 32  # Voters, those that leave, and learners.
KINDS_MAX = 64  # Kinds of records, or measurements, in one status.
IN_THE_WAY_MAX = 32  # Nodes in one status that keep the level from being raised.


class MemberName(msgspec.Struct, frozen=True, array_like=True):
    """A member of the quorum: its name, and the random bytes of its empty disk (P10.3)."""

    name: ShortText
    incarnation: RandomBytes


_MemberNames = Annotated[tuple[MemberName, ...], msgspec.Meta(max_length=MEMBERS_MAX)]


# --- Requests ----------------------------------------------------------------------------------------------


class JoinAsLearner(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """This member starts: let it receive the log, if it is no member yet, and note where it is reached. nonce: of this
    start."""

    cluster_token: RandomBytes
    member: MemberName
    nonce: RandomBytes
    endpoints: Endpoints
    level: Number = 1  # The newest that its build knows (P10.8).


class ChangeVoters(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Let exactly these vote. configuration: index of the configuration that the operator has seen. policy empty: as it
    is. accepts_risk: a voter may be replaced soon after another one."""

    configuration: Number
    voters: _MemberNames
    policy: ShortText = ""
    allows_even: bool = False
    accepts_risk: bool = False


class TransferLeadership(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Let this voter lead. Nothing comes of it if it cannot."""

    to: MemberName


class QuorumStatus(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """What does this member know of itself and the others? Any member answers, whether it leads or not."""


class ChangeLearners(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Let exactly these receive the log beside the voters. A learner that is taken out never comes back."""

    configuration: Number
    learners: _MemberNames


class ChangeBase(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Fix the election base until another ChangeBase; 0: what is measured decides again. configuration: as of
    ChangeVoters."""

    configuration: Number
    base_ms: Number


class RaiseLevel(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """From now on the cluster uses what this level brings (P10.8). Done when it is committed; also when it already was
    before."""

    level: Number


class PrepareFormation(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """Will you take part in the formation of a cluster that none of you has yet? The member that forms it repeats this;
    a promise ends soon after the last time. founder: where the member is reached that is to mint the token."""

    nonce: RandomBytes
    founder: Endpoint
    members: Endpoints


class BeginFormation(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """All members promised: you, the founder of that formation, begin the cluster."""

    nonce: RandomBytes


class AskMet(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """Which metadata do you know? A bookie answers with the newest that it met, a member with its own (P10.5)."""


class CutSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """Cut a snapshot of everything that is applied now, and answer when it counts."""


class ReadSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """Return the bytes of this snapshot's file from offset on, as many as a message takes."""

    index: Number
    term: Number
    offset: Number


class ForgetIds(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """What a lost future left under these ids, ranges (first, end), is needed no more: bookies may delete it (P7.7).
    Done when it is committed; also when it already was before."""

    ranges: Annotated[tuple[tuple[Number, Number], ...], msgspec.Meta(max_length=ID_RANGES_MAX)]


class AskHeld(msgspec.Struct, frozen=True, array_like=True, tag=87):
    """Which ledgers of first to end do you hold, the lowest first? Only bookies answer this."""

    first: Number
    end: Number


Formation = PrepareFormation | BeginFormation
Backup = CutSnapshot | ReadSnapshot
Governance = (
    JoinAsLearner
    | ChangeVoters
    | TransferLeadership
    | QuorumStatus
    | ChangeLearners
    | ChangeBase
    | RaiseLevel
    | ForgetIds
    | AskMet
    | AskHeld
    | Backup
    | Formation
)


# --- Answers -----------------------------------------------------------------------------------------------


class MemberTold(msgspec.Struct, frozen=True, array_like=True):
    """A member of the configuration, as the member that was asked knows it.

    role: "voter", "leaving" (it votes until the change that is under way ends) or "learner". is_heard: the leader
    received from it within an election base; index: up to where its log is durable; start: a random number of its
    process. Only a leader knows these three; other members answer False, 0 and nothing.
    """

    member: MemberName
    role: ShortText
    endpoints: Endpoints
    is_heard: bool
    index: Number
    start: RandomBytes = b""  # Empty: not known, or an older build.


class BaseTold(msgspec.Struct, frozen=True, array_like=True):
    """Why the election base is what it is; by empty: it was never changed. A leader adds the base that the voters'
    measurements suggest, suits_ms (0: not known), and the reason why it does not look at that now (empty: it does)."""

    is_fixed: bool = False
    unix_ms: Number = 0
    by: LongText = ""
    why: LongText = ""
    suits_ms: Number = 0
    suits_why: LongText = ""
    stays: LongText = ""


class QuorumTold(msgspec.Struct, frozen=True, array_like=True, tag=39):
    """The status of one member. role: "leader", "candidate", "follower", "learner" for a member without a vote, or
    "blank" for one that holds nothing, and so knows no cluster either (cluster_token empty).

    configuration: the index of the entry in which it stands. leader empty: none is known. has_doubt: its disk may
    have lost something, so it does not vote yet. log_bytes: of memory, that the entries take which it keeps.
    weights: bytes of its records by kind. held_bytes, held_max: what counts against the bound of the catalog, and that.
    level: the cluster's, as applied here; 0: its build knows none. level_known: the newest that this member's build
    knows. in_the_way: nodes that keep a leader from raising it to that, the first of them. lineage: the newest, with
    its generation (P10.5). spared: in how many ranges lie the ids of which a lost future may have made ledgers.
    measured: what its process measured of itself, by name (metadata/calibration.py). bookies: registered;
    fewer_copies: of the newest open ledgers, those that keep fewer copies than a new one would. base: of the election
    base; None: its build changes none. stands: why nothing more of its log becomes durable; empty: it does, or its
    build does not tell.
    """

    cluster_token: RandomBytes
    member: MemberName
    role: ShortText
    term: Number
    leader: ShortText
    last_index: Number
    commit_index: Number
    applied_index: Number
    configuration: Number
    is_joint: bool
    policy: ShortText
    election_base_ms: Number
    members: Annotated[tuple[MemberTold, ...], msgspec.Meta(max_length=MEMBERS_MAX)]
    has_doubt: bool = False
    log_bytes: Number = 0
    weights: Annotated[tuple[tuple[ShortText, Number], ...], msgspec.Meta(max_length=KINDS_MAX)] = ()
    held_bytes: Number = 0
    held_max: Number = 0
    level: Number = 0
    level_known: Number = 0
    in_the_way: Annotated[tuple[LongText, ...], msgspec.Meta(max_length=IN_THE_WAY_MAX)] = ()
    lineage: RandomBytes = b""
    generation: Number = 0
    spared: Number = 0
    measured: Annotated[tuple[tuple[ShortText, Number], ...], msgspec.Meta(max_length=KINDS_MAX)] = ()
    bookies: Number = 0
    fewer_copies: Number = 0
    base: BaseTold | None = None
    stands: LongText = ""


class FormationPromised(msgspec.Struct, frozen=True, array_like=True, tag=77):
    """The blank member of this name takes part in this formation, and in no other one meanwhile."""

    nonce: RandomBytes
    name: ShortText


class MetTold(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """From a bookie (role "bookie"): the newest metadata that it met, or nothing but its name if it met none. From a
    member (its role as in QuorumTold): what it has applied."""

    role: ShortText
    name: ShortText
    cluster_token: RandomBytes = b""
    lineage: RandomBytes = b""
    revision: Number = 0
    ids_end: Number = 0


class SnapshotCut(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """The snapshot counts. file_bytes and digest: of its file (METADATA.md, 2)."""

    index: Number
    term: Number
    file_bytes: Number
    digest: RandomBytes


class SnapshotBytes(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """Bytes from the requested offset on; empty: the file ends there."""

    data: Annotated[bytes, msgspec.Meta(max_length=SNAPSHOT_BYTES_MAX)]


class HeldTold(msgspec.Struct, frozen=True, array_like=True, tag=88):
    """Ledgers that this bookie holds. next_id: ask again from there on; 0: these are all."""

    bookie_id: ShortText
    ids: Annotated[list[Number], msgspec.Meta(max_length=HELD_IDS_MAX)]
    next_id: Number


GovernanceResult = QuorumTold | FormationPromised | MetTold | HeldTold | SnapshotCut | SnapshotBytes
