"""Messages between a client and the metadata quorum (METADATA.md; WIRE.md section 5).

Keys are UTF-8 paths, values bytes. A revision is cluster-wide, rises with every change and never resets, so a
comparison with one has no ABA. Each operation is sent under (session, sequence); the quorum keeps the reply until
the client's `done_below` passes it, so a repeated request gets its first answer and is never run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeVar

import msgspec

from embedbk.codec.id_ranges import is_within
from embedbk.codec.messages import encode_message, register_kind

__all__ = [
    "ABSENT",
    "ANY",
    "Acquire",
    "AdoptLedger",
    "AllocIds",
    "Allocated",
    "AskHeld",
    "AskMet",
    "BUSY",
    "Backup",
    "BeginFormation",
    "BaseTold",
    "ChangeBase",
    "ChangeLearners",
    "ChangeVoters",
    "Claimed",
    "CloseSession",
    "Compare",
    "CutSnapshot",
    "Delete",
    "ENDPOINTS_MAX",
    "EndRepairs",
    "FailRepairs",
    "ForgetIds",
    "Formation",
    "FormationPromised",
    "GATHERED_MAX",
    "GENERATION_BITS",
    "Get",
    "Governance",
    "HELD_IDS_MAX",
    "HeldTold",
    "ID_RANGES_MAX",
    "IN_THE_WAY_MAX",
    "JoinAsLearner",
    "KeepAlive",
    "Lineage",
    "List",
    "Listed",
    "MEMBERS_MAX",
    "MarkRepairs",
    "MemberName",
    "MemberTold",
    "MetTold",
    "MetadataReplies",
    "MetadataReply",
    "MetadataRequest",
    "MetadataRequests",
    "NotLeader",
    "OpenSession",
    "Operation",
    "PrepareFormation",
    "Put",
    "QuorumStatus",
    "QuorumTold",
    "REPAIRS_MAX",
    "RaiseLevel",
    "ReadSnapshot",
    "Record",
    "Refusal",
    "Reign",
    "Release",
    "Repairing",
    "RepairsEnded",
    "RepairsMarked",
    "RepairsTaken",
    "Result",
    "SNAPSHOT_BYTES_MAX",
    "SessionOpened",
    "SnapshotBytes",
    "SnapshotCut",
    "TakeRepairs",
    "Tell",
    "Told",
    "TransferLeadership",
    "Txn",
    "TxnDone",
    "Unwatch",
    "Value",
    "Watch",
    "WatchEvents",
    "encode_replies",
    "encode_requests",
]

ABSENT = 0  # Compare.revision: the key must not exist. Revision 0 is given to nothing.
ANY = -1  # Compare.revision: the key must exist, at any revision.
GENERATION_BITS = 48  # A revision's bits below its generation: 2**48 changes, 9 years at a million a second.
ENDPOINTS_MAX = 64  # That one answer names: of all members of a cluster.
SNAPSHOT_BYTES_MAX = 1 << 20  # Of a snapshot's file, in one answer.
ID_RANGES_MAX = 64  # That one request forgets.
HELD_IDS_MAX = 4096  # That one answer of a bookie names.
MEMBERS_MAX = 32  # Voters, those that leave, and learners.
REPAIRS_MAX = 40  # Marks that one request puts, takes or ends.
GATHERED_MAX = 256  # Requests or replies in one message.
GATHERED_BYTES_MAX = 256 << 10  # Of such a message, about; what is larger goes alone.
SMALL_BYTES = (
    128  # No request or reply of a few numbers, and no change beside its key and value, takes so many.
)
BUSY = "BUSY"  # Refusal.code: no answer to the request. It was not run now; sent again later, it may be.


_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # msgspec refuses the rest while it decodes.
_Name = Annotated[bytes, msgspec.Meta(max_length=64)]  # Random bytes, kept in small notes.
_Member = Annotated[str, msgspec.Meta(max_length=127)]
_Text = Annotated[str, msgspec.Meta(max_length=400)]
_Endpoint = Annotated[str, msgspec.Meta(max_length=255)]
_Endpoints = Annotated[tuple[_Endpoint, ...], msgspec.Meta(max_length=ENDPOINTS_MAX)]


class MemberName(msgspec.Struct, frozen=True, array_like=True):
    """A member of the quorum: its name, and the random bytes of its empty disk (P10.3)."""

    name: _Member
    incarnation: _Name


_Bookies = tuple[_Member, ...]  # Their ids; how many, limits.py says.
_MemberNames = Annotated[tuple[MemberName, ...], msgspec.Meta(max_length=MEMBERS_MAX)]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One key as the catalog holds it. revision is that of its last change; value None in an event: deleted."""

    key: str
    value: bytes | None
    created: int
    revision: int
    session: int = 0  # Owner when ephemeral, else 0.


class Compare(msgspec.Struct, frozen=True, array_like=True):
    """True when the key's last change has this revision; ABSENT and ANY as above."""

    key: str
    revision: int


class Put(msgspec.Struct, frozen=True, array_like=True, tag=1):
    key: str
    value: bytes
    is_ephemeral: bool = False  # Deleted when the session that put it ends.


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=2):
    key: str


class OpenSession(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """attempt: of one client on one link; asked for again under the same one, the same session is opened. 0: another
    each time."""

    ttl_ms: int
    label: str
    attempt: int = 0
    level: int = 1  # The newest that its client knows (P10.8).
    gathers: bool = False  # It takes MetadataReplies on this link: whoever answers so takes MetadataRequests.


class KeepAlive(msgspec.Struct, frozen=True, array_like=True, tag=11):
    level: int = 1  # As in OpenSession: whoever leads by now may not have heard that.
    gathers: bool = False  # Likewise.


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag=12):
    pass


class Get(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Linearizable read of one key."""

    key: str


class List(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Linearizable list of the keys that begin with prefix and are greater than after, in key order."""

    prefix: str
    after: str = ""
    limit: int = 1000


class Txn(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """If every comparison holds, do all of then at one revision; else nothing."""

    when: list[Compare]
    then: list[Put | Delete]


class AdoptLedger(Txn, frozen=True, array_like=True, tag=89):
    """As Txn, and in the same command the ledger's id is spared no more: metadata knows again what became of it (P7.7,
    P10.5). Refused for an id that is not spared, whose absence proves that its ledger is gone; but not where the key is
    there and stale, which nothing else may close."""

    ledger_id: _Number


class AllocIds(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """A block of ids never handed out before; unused ones are gaps for ever."""

    count: int


class Watch(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Stream every change of keys that begin with prefix, of revisions above from_revision."""

    watch_id: int
    prefix: str
    from_revision: int


class Unwatch(msgspec.Struct, frozen=True, array_like=True, tag=18):
    watch_id: int


class Tell(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Linearizable: how far is metadata, what came of its start number `count` (0: none is asked for), and does it
    descend from this lineage (empty: the first of the cluster, from which all do)? Changes nothing."""

    count: _Number
    lineage: _Name = b""


class JoinAsLearner(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Here I am: let me receive the log, if I am no member yet; this is where I am reached. nonce: of this start."""

    cluster_token: _Name
    member: MemberName
    nonce: _Name
    endpoints: _Endpoints
    level: _Number = 1  # The newest that its build knows (P10.8).


class ChangeVoters(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Let exactly these vote. configuration: index of the one that whoever asks has seen. policy empty: as it is.
    accepts_risk: a voter may be replaced soon behind another one."""

    configuration: _Number
    voters: _MemberNames
    policy: _Member = ""
    allows_even: bool = False
    accepts_risk: bool = False


class TransferLeadership(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Let this voter lead. Nothing comes of it if it cannot."""

    to: MemberName


class QuorumStatus(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """What does this member know of itself and the others? Any member answers, whoever leads."""


class ChangeLearners(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Let exactly these receive the log beside the voters. Whoever is taken out never comes back."""

    configuration: _Number
    learners: _MemberNames


class ChangeBase(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Let this election base hold until somebody says otherwise; 0: what is measured decides again. configuration:
    as of ChangeVoters."""

    configuration: _Number
    base_ms: _Number


class Acquire(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """Let this session hold the lock, at once or when all who asked before it went. Asked again, it says how that
    stands. value: shown to everybody while the session waits and while it holds (who it is, where it is reached)."""

    name: str
    value: bytes = b""


class Release(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Give the lock to the next one, or wait for it no longer. epoch: only if it is held under this one; 0: whatever
    this session has of it."""

    name: str
    epoch: _Number = 0


class MarkRepairs(msgspec.Struct, frozen=True, array_like=True, tag=90):
    """These ledgers, (id, bookies whose copies are missing), need repair (P11.1). A mark that is there keeps when it
    was made, and names what is missing beside what it named before. created_ms: by the asker's clock, of new marks; it
    is shown to people and decides nothing."""

    marks: tuple[tuple[_Number, _Bookies], ...]
    created_ms: _Number = 0


class TakeRepairs(msgspec.Struct, frozen=True, array_like=True, tag=91):
    """Let this session repair the oldest ledgers, at most `count`, that are marked, that nobody repairs and of whose
    missing bookies none is in not_with; without any, it waits in the order of asking. 0: it waits no longer. asked:
    change nothing, and say what came of what it asked at that revision."""

    count: _Number
    not_with: _Bookies = ()
    asked: _Number = 0


class EndRepairs(msgspec.Struct, frozen=True, array_like=True, tag=92):
    """These, (ledger id, epoch of the hold, revision of the mark that was worked off), are repaired: the mark goes
    where it is still that one, and stays for the next one where it has changed."""

    ended: tuple[tuple[_Number, _Number, _Number], ...]


class FailRepairs(msgspec.Struct, frozen=True, array_like=True, tag=93):
    """These, (ledger id, epoch of the hold), were not repaired: nobody takes them for a while, longer each time.
    postpones False: they are only given back, and the next one may have them at once."""

    failed: tuple[tuple[_Number, _Number], ...]
    postpones: bool = True


class PrepareFormation(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """Will you take part in the formation of a cluster that none of you has yet? Asked again and again by who forms it;
    a promise ends soon after the last time. founder: where the member is reached that is to mint the token."""

    nonce: _Name
    founder: _Endpoint
    members: _Endpoints


class BeginFormation(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """All of them promised: you, the founder of that formation, begin the cluster."""

    nonce: _Name


class RaiseLevel(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """From now on what this level brings is used (P10.8). Done when it is committed; also when it was already."""

    level: _Number


class AskMet(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """Which metadata do you know? Of a bookie the newest that it met, of a member what it has (P10.5)."""


class CutSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """Cut a snapshot of all that is applied now, and say so when it counts."""


class ReadSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """Give me the bytes of this snapshot's file from offset on, as many as a message takes."""

    index: _Number
    term: _Number
    offset: _Number


class ForgetIds(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """What a lost future left under these ids, ranges (first, end), is needed no more: it may go from bookies (P7.7).
    Done when it is committed; also when it was already."""

    ranges: Annotated[tuple[tuple[_Number, _Number], ...], msgspec.Meta(max_length=ID_RANGES_MAX)]


class AskHeld(msgspec.Struct, frozen=True, array_like=True, tag=87):
    """Which ledgers of first to end do you hold, the lowest first? Of bookies alone."""

    first: _Number
    end: _Number


Repairing = MarkRepairs | TakeRepairs | EndRepairs | FailRepairs
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
Operation = (
    OpenSession | KeepAlive | CloseSession | Get | List | Txn | AllocIds | Watch | Unwatch | Tell | Acquire
    | Release | AdoptLedger | Repairing | Governance
)  # fmt: skip


class SessionOpened(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """secret: to be shown with every request of the session. Records name their session to everybody, so its number
    proves nothing."""

    session: int
    ttl_ms: int
    cluster_token: bytes
    secret: bytes = b""
    members: _Endpoints = ()  # Where clients reach all voters; empty: the leader does not know.
    level: _Number = 1  # Of the cluster (P10.8).


class Value(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """record is None when the key is absent; revision is the catalog's at that moment."""

    record: Record | None
    revision: int


class Listed(msgspec.Struct, frozen=True, array_like=True, tag=32):
    records: list[Record]
    has_more: bool
    revision: int


class TxnDone(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """is_done False: a comparison failed and nothing changed. revision is that of the change, or the catalog's."""

    is_done: bool
    revision: int


class Allocated(msgspec.Struct, frozen=True, array_like=True, tag=34):
    first_id: int
    count: int


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """The operation was not run. code: SESSION_GONE, COMPACTED, BAD_REQUEST, WRONG_TOKEN, LACKING, UNAVAILABLE
    or BUSY."""

    code: str
    text: str


class Acknowledged(msgspec.Struct, frozen=True, array_like=True, tag=36):
    """Done, with nothing to tell but the catalog's revision; behind a KeepAlive also where all voters are reached, and
    the cluster's level."""

    revision: int
    members: _Endpoints = ()
    level: _Number = 1


class Claimed(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """What a session has of a lock. epoch: of its hold, the fencing token (P9.2); 0: it waits. asked: the revision at
    which it asked; who asked at a lower one has its turn before."""

    epoch: int
    asked: int
    revision: int  # Of the catalog.


class RepairsMarked(msgspec.Struct, frozen=True, array_like=True, tag=94):
    """left: ledgers whose marks stay as they were: what stands there cannot be read, or would name too many."""

    revision: int  # Of the change, or the catalog's.
    left: tuple[int, ...] = ()


class RepairsTaken(msgspec.Struct, frozen=True, array_like=True, tag=95):
    """What a session may repair. epoch: of its hold on each of them (P9.2); 0: it holds none. asked: the revision at
    which it asked; with epoch 0 it waits since then, or, where that is 0, for nothing. marks: (ledger id, revision of
    the mark, place in missing)."""

    epoch: int
    asked: int
    revision: int  # Of the catalog.
    marks: tuple[tuple[int, int, int], ...] = ()
    # Bookies whose copies are missing, each set once; of more than have room here the empty one: the mark says.
    missing: tuple[tuple[str, ...], ...] = ()


class RepairsEnded(msgspec.Struct, frozen=True, array_like=True, tag=96):
    """outcomes: of each in the order in which they were named: 0: it was not held under that epoch, and nothing was
    changed; 1: as asked; 2: given back, as its mark has changed meanwhile."""

    revision: int
    outcomes: tuple[int, ...]


class Lineage(msgspec.Struct, frozen=True, array_like=True):
    """One recovery of a cluster's metadata: its random bytes, the generation that it began, and those that it goes on
    from, or that its operator gave up for it (P10.5). The cluster's first lineage has no bytes and stands nowhere."""

    name: _Name
    generation: _Number
    parents: tuple[_Name, ...] = ()


class Reign(msgspec.Struct, frozen=True, array_like=True):
    """One start of a member: its random bytes, and how far metadata was when the next one began (or is now)."""

    nonce: _Name
    revision: _Number
    ids_end: _Number


class Told(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """The newest link of the chain of starts, and how far metadata is (P10.5).

    asked: the start that was asked for; None: it is not in the chain, or so old that it was forgotten. Every id below
    ids_end was given out or is a gap; whose ledgers stand in spared ranges (first, end) nobody can know. lineage: the
    newest; empty: the cluster's first. descends: whether from the one that was asked for. stale: ranges (first, end)
    of ids whose keys are those of a copy, and may have changed in a lost future.
    """

    cluster_token: _Name
    count: _Number
    nonce: _Name
    revision: _Number
    ids_end: _Number
    spared: list[tuple[int, int]] = []
    asked: Reign | None = None
    lineage: _Name = b""
    descends: bool = False
    stale: list[tuple[int, int]] = []

    def is_spared(self, ledger_id: int) -> bool:
        return is_within(self.spared, ledger_id)

    def is_stale(self, ledger_id: int) -> bool:
        return is_within(self.stale, ledger_id)


class MetTold(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """By a bookie (role "bookie") the newest metadata that it met; nothing but its name, where it met none. By a member
    (its role, as in QuorumTold) what it has applied."""

    role: _Member
    name: _Member
    cluster_token: _Name = b""
    lineage: _Name = b""
    revision: _Number = 0
    ids_end: _Number = 0


class HeldTold(msgspec.Struct, frozen=True, array_like=True, tag=88):
    """Of this bookie. next_id: ask again from there on; 0: these are all."""

    bookie_id: _Member
    ids: Annotated[list[_Number], msgspec.Meta(max_length=HELD_IDS_MAX)]
    next_id: _Number


class SnapshotCut(msgspec.Struct, frozen=True, array_like=True, tag=83):
    """It counts. file_bytes and digest: of its file (METADATA.md, 2)."""

    index: _Number
    term: _Number
    file_bytes: _Number
    digest: _Name


class SnapshotBytes(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """From the offset that was asked for; none: the file ends there."""

    data: Annotated[bytes, msgspec.Meta(max_length=SNAPSHOT_BYTES_MAX)]


class NotLeader(msgspec.Struct, frozen=True, array_like=True, tag=38):
    """The member that was asked does not lead, and ran nothing: ask the leader, or another member.

    leader: the name of the member that leads as far as this one knows, empty: nobody. endpoints: where clients reach
    it. members: where they reach all voters, empty when this member knows no configuration.
    """

    leader: _Member
    endpoints: _Endpoints = ()
    members: _Endpoints = ()


class MemberTold(msgspec.Struct, frozen=True, array_like=True):
    """A member of the configuration, as the one that was asked knows it.

    role: "voter", "leaving" (it votes until the change that is under way ends) or "learner". is_heard: within an
    election base; index: up to where its log is durable. Only a leader knows these two; others say False and 0.
    """

    member: MemberName
    role: _Member
    endpoints: _Endpoints
    is_heard: bool
    index: _Number


class BaseTold(msgspec.Struct, frozen=True, array_like=True):
    """How the election base came to be what it is; by empty: it was never changed. A leader says also what it would be
    by what the voters measured, suits_ms (0: not known), and what keeps it from being looked at now, empty: nothing."""

    is_fixed: bool = False
    unix_ms: _Number = 0
    by: _Text = ""
    why: _Text = ""
    suits_ms: _Number = 0
    suits_why: _Text = ""
    stays: _Text = ""


class FormationPromised(msgspec.Struct, frozen=True, array_like=True, tag=77):
    """This blank member, called so, takes part in the formation and in no other one meanwhile."""

    nonce: _Name
    name: _Member


KINDS_MAX = 64
IN_THE_WAY_MAX = 32


class QuorumTold(msgspec.Struct, frozen=True, array_like=True, tag=39):
    """What one member knows. role: "leader", "candidate", "follower", "learner" for whoever has no vote, or "blank" for
    whoever holds nothing, and so knows no cluster either (cluster_token empty).

    configuration: the index of the entry in which it stands. leader empty: nobody is known. has_doubt: its disk may
    have lost something, so it votes for nobody yet. log_bytes: of memory, that the entries take which it keeps.
    weights: bytes of its records by kind. held_bytes, held_max: what counts against the bound of the catalog, and that.
    level: the cluster's, as applied here; 0: of a build that knows none. level_known: the newest that this member's
    build knows. in_the_way: who keeps a leader from raising it to that, the first of them. lineage: the newest, with
    its generation (P10.5). spared: in how many ranges lie the ids of which a lost future may have made ledgers.
    measured: what its process measured of itself, by name (metadata/calibration.py). bookies: registered;
    fewer_copies: of the newest open ledgers, those that keep fewer copies than a new one would. base: of the election
    base; None: of a build that changes none.
    """

    cluster_token: _Name
    member: MemberName
    role: _Member
    term: _Number
    leader: _Member
    last_index: _Number
    commit_index: _Number
    applied_index: _Number
    configuration: _Number
    is_joint: bool
    policy: _Member
    election_base_ms: _Number
    members: Annotated[tuple[MemberTold, ...], msgspec.Meta(max_length=MEMBERS_MAX)]
    has_doubt: bool = False
    log_bytes: _Number = 0
    weights: Annotated[tuple[tuple[_Member, _Number], ...], msgspec.Meta(max_length=KINDS_MAX)] = ()
    held_bytes: _Number = 0
    held_max: _Number = 0
    level: _Number = 0
    level_known: _Number = 0
    in_the_way: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=IN_THE_WAY_MAX)] = ()
    lineage: _Name = b""
    generation: _Number = 0
    spared: _Number = 0
    measured: Annotated[tuple[tuple[_Member, _Number], ...], msgspec.Meta(max_length=KINDS_MAX)] = ()
    bookies: _Number = 0
    fewer_copies: _Number = 0
    base: BaseTold | None = None


Result = (
    SessionOpened
    | Value
    | Listed
    | TxnDone
    | Allocated
    | Refusal
    | Acknowledged
    | Told
    | NotLeader
    | QuorumTold
    | FormationPromised
    | Claimed
    | RepairsMarked
    | RepairsTaken
    | RepairsEnded
    | MetTold
    | HeldTold
    | SnapshotCut
    | SnapshotBytes
)


class MetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    session: _Number  # 0 before a session is open.
    sequence: _Number  # From 1, rising by 1 per operation of the session.
    done_below: _Number  # The client needs no kept reply below this sequence.
    operation: Operation
    secret: bytes = b""  # Of the session (SessionOpened).


class MetadataReply(msgspec.Struct, frozen=True, array_like=True):
    session: int
    sequence: int
    result: Result


class WatchEvents(msgspec.Struct, frozen=True, array_like=True):
    """Changes for one watch, in revision order, all of one revision together; nothing is ever skipped silently.

    is_compacted: the stream from the asked revision cannot be given; list again, and watch from that revision.
    Every change above after_revision is in it: who has not seen all up to there missed a message, and asks again.
    """

    session: int
    watch_id: int
    revision: int  # Every change up to here that concerns the watch has been sent.
    records: list[Record]
    is_compacted: bool = False
    after_revision: int = 0


_Item = TypeVar("_Item", MetadataRequest, MetadataReply)


class MetadataRequests(msgspec.Struct, frozen=True, array_like=True):
    """Several of one client, that wait together, in the order in which it asks them. As so many messages."""

    requests: Annotated[list[MetadataRequest], msgspec.Meta(min_length=1, max_length=GATHERED_MAX)]


class MetadataReplies(msgspec.Struct, frozen=True, array_like=True):
    """Likewise, of the quorum. One alone says, too, that requests may be sent so."""

    replies: Annotated[list[MetadataReply], msgspec.Meta(min_length=1, max_length=GATHERED_MAX)]


for _kind, _struct in (
    (64, MetadataRequest), (65, MetadataReply), (66, WatchEvents), (67, MetadataRequests), (68, MetadataReplies),
):  # fmt: skip
    register_kind(_kind, _struct)


def encode_requests(
    requests: Sequence[MetadataRequest], request_id: int
) -> Iterator[list[bytes | memoryview]]:
    """The pieces of as few messages as carry these, in their order; one that has a message for itself is sent alone."""
    for part in _parts(requests):
        control = part[0] if len(part) == 1 else MetadataRequests(part)
        yield encode_message(request_id, control)


def encode_replies(replies: Sequence[MetadataReply]) -> Iterator[list[bytes | memoryview]]:
    """Likewise; all of them as MetadataReplies."""
    return (encode_message(0, MetadataReplies(part)) for part in _parts(replies))


def _parts(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    part: list[_Item] = []
    size = 0
    for item in items:
        weight = _weight(item)
        if part and (size + weight > GATHERED_BYTES_MAX or len(part) == GATHERED_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += weight
    if part:
        yield part


def _weight(item: MetadataRequest | MetadataReply) -> int:
    """At least as many bytes as it takes in a message, near enough for what is small; what may be large goes alone."""
    if isinstance(item, MetadataReply):
        result = item.result
        if isinstance(result, TxnDone | Acknowledged | Allocated | Claimed):
            return SMALL_BYTES
        record = result.record if isinstance(result, Value) else None
        if isinstance(result, Value) and (record is None or record.value is None):
            return SMALL_BYTES
        if record is not None and record.value is not None:
            return SMALL_BYTES + 4 * len(record.key) + len(record.value)
        return GATHERED_BYTES_MAX
    operation = item.operation
    if isinstance(operation, Txn):
        weight = SMALL_BYTES
        for compare in operation.when:
            weight += SMALL_BYTES + 4 * len(compare.key)
        for change in operation.then:
            weight += SMALL_BYTES + 4 * len(change.key)
            if isinstance(change, Put):
                weight += len(change.value)
        return weight
    return SMALL_BYTES + 4 * len(operation.key) if isinstance(operation, Get) else GATHERED_BYTES_MAX
