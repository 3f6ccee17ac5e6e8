"""Messages between a client and the metadata quorum: sessions, keys, ids, watches, locks, and the envelope of every
request (METADATA.md; WIRE.md section 5). Requests about repairs are in `repair_messages`, those about the quorum itself
in `quorum_messages`; `gathering` puts several requests or answers into one message.

Keys are UTF-8 paths, values bytes. A revision is cluster-wide, rises with every change and never resets, so a
comparison with one has no ABA. Each operation is sent under (session, sequence); the quorum keeps the reply until
the client's `done_below` passes it, so a repeated request gets its first answer and is never run twice.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from embedbk.codec.field_types import Endpoints, Number, RandomBytes, ShortText
from embedbk.codec.id_ranges import is_within
from embedbk.codec.messages import register_kind
from embedbk.codec.quorum_messages import Governance, GovernanceResult
from embedbk.codec.repair_messages import Repairing, RepairsEnded, RepairsMarked, RepairsTaken

__all__ = [
    "ABSENT",
    "ANY",
    "Acknowledged",
    "Acquire",
    "AdoptLedger",
    "AllocIds",
    "Allocated",
    "BUSY",
    "Claimed",
    "CloseSession",
    "Compare",
    "Delete",
    "GATHERED_MAX",
    "GENERATION_BITS",
    "Get",
    "KeepAlive",
    "Lineage",
    "List",
    "Listed",
    "MetadataReplies",
    "MetadataReply",
    "MetadataRequest",
    "MetadataRequests",
    "NotLeader",
    "OpenSession",
    "Operation",
    "Put",
    "Record",
    "Refusal",
    "Reign",
    "Release",
    "Result",
    "SessionOpened",
    "Tell",
    "Told",
    "Txn",
    "TxnDone",
    "Unwatch",
    "Value",
    "Watch",
    "WatchEvents",
]

ABSENT = 0  # Compare.revision: the key must not exist. Revision 0 is given to nothing.
ANY = -1  # Compare.revision: the key must exist, at any revision.
GENERATION_BITS = 48  # A revision's bits below its generation: 2**48 changes, 9 years at a million a second.
GATHERED_MAX = 256  # Requests or replies in one message.
BUSY = "BUSY"  # Refusal.code: no answer to the request. It was not run now; sent again later, it may be.


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
    """attempt: of one client on one link. A repeated request under the same attempt opens the same session. 0: each
    request opens another one."""

    ttl_ms: int
    label: str
    attempt: int = 0
    level: int = 1  # The newest that its client knows (P10.8).
    gathers: bool = (
        False  # It takes MetadataReplies on this link; a member that sends them takes MetadataRequests.
    )


class KeepAlive(msgspec.Struct, frozen=True, array_like=True, tag=11):
    level: int = 1  # As in OpenSession, which a later leader may not have received.
    gathers: bool = False  # As in OpenSession.


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
    """As Txn, and the same command ends the sparing of the ledger's id: metadata knows again what became of it (P7.7,
    P10.5). Refused for an id that is not spared, whose absence proves that its ledger is gone; but not where the key
    exists and is stale, which nothing else may close."""

    ledger_id: Number


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
    """Linearizable: how far is metadata, what came of its start number `count` (0: no start is meant), and does it
    descend from this lineage (empty: the first of the cluster, from which all descend)? Changes nothing."""

    count: Number
    lineage: RandomBytes = b""


class Acquire(msgspec.Struct, frozen=True, array_like=True, tag=65):
    """Let this session hold the lock, at once or when all sessions that asked before are gone. A repeated request
    returns how that stands. value: every client can read it while the session waits and while it holds (who it is,
    where it is reached)."""

    name: str
    value: bytes = b""


class Release(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Give the lock to the next session, or wait for it no longer. epoch: only if it is held under this epoch; 0: hold
    or wait, whichever this session has."""

    name: str
    epoch: Number = 0


Operation = (
    OpenSession | KeepAlive | CloseSession | Get | List | Txn | AllocIds | Watch | Unwatch | Tell | Acquire
    | Release | AdoptLedger | Repairing | Governance
)  # fmt: skip


class SessionOpened(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """secret: the client sends it with every request of the session. Every client can read the numbers of sessions in
    records, so the number proves nothing."""

    session: int
    ttl_ms: int
    cluster_token: bytes
    secret: bytes = b""
    members: Endpoints = ()  # Where clients reach all voters; empty: the leader does not know.
    level: Number = 1  # The cluster's level (P10.8).


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
    """Done; the answer is only the catalog's revision. After a KeepAlive also where all voters are reached, and the
    cluster's level."""

    revision: int
    members: Endpoints = ()
    level: Number = 1


class Claimed(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """How a session stands with a lock. epoch: of its hold, the fencing token (P9.2); 0: it waits. asked: the revision
    at which it asked; a session that asked at a lower revision comes first."""

    epoch: int
    asked: int
    revision: int  # The catalog's revision.


class Lineage(msgspec.Struct, frozen=True, array_like=True):
    """One recovery of a cluster's metadata: its random bytes, the generation that it began, and the lineages that it
    continues or that its operator gave up for it (P10.5). The cluster's first lineage has no name and is listed
    nowhere."""

    name: RandomBytes
    generation: Number
    parents: tuple[RandomBytes, ...] = ()


class Reign(msgspec.Struct, frozen=True, array_like=True):
    """One start of a member: its random bytes, and how far metadata was when the next one began (or is now)."""

    nonce: RandomBytes
    revision: Number
    ids_end: Number


class Told(msgspec.Struct, frozen=True, array_like=True, tag=37):
    """The newest link of the chain of starts, and how far metadata is (P10.5).

    asked: the start that was asked for; None: it is not in the chain, or so old that it was forgotten. Every id below
    ids_end was given out or is a gap; in spared ranges (first, end) a lost future may have made ledgers. lineage: the
    newest; empty: the cluster's first. descends: whether from the lineage that was asked for. stale: ranges (first,
    end) of ids whose keys come from a copy, and may have changed in a lost future.
    """

    cluster_token: RandomBytes
    count: Number
    nonce: RandomBytes
    revision: Number
    ids_end: Number
    spared: list[tuple[int, int]] = []
    asked: Reign | None = None
    lineage: RandomBytes = b""
    descends: bool = False
    stale: list[tuple[int, int]] = []

    def is_spared(self, ledger_id: int) -> bool:
        return is_within(self.spared, ledger_id)

    def is_stale(self, ledger_id: int) -> bool:
        return is_within(self.stale, ledger_id)


class NotLeader(msgspec.Struct, frozen=True, array_like=True, tag=38):
    """The member that was asked does not lead, and ran nothing: ask the leader, or another member.

    leader: the name of the member that leads as far as this one knows, empty: it knows of none. endpoints: where
    clients reach the leader. members: where they reach all voters, empty when this member knows no configuration.
    """

    leader: ShortText
    endpoints: Endpoints = ()
    members: Endpoints = ()


Result = (
    SessionOpened | Value | Listed | TxnDone | Allocated | Refusal | Acknowledged | Told | NotLeader | Claimed
    | RepairsMarked | RepairsTaken | RepairsEnded | GovernanceResult
)  # fmt: skip


class MetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    session: Number  # 0 before a session is open.
    sequence: Number  # From 1, rising by 1 per operation of the session.
    done_below: Number  # The client needs no kept reply below this sequence.
    operation: Operation
    secret: bytes = b""  # The session's secret (SessionOpened).


class MetadataReply(msgspec.Struct, frozen=True, array_like=True):
    session: int
    sequence: int
    result: Result


class WatchEvents(msgspec.Struct, frozen=True, array_like=True):
    """Changes for one watch, in revision order, all of one revision together; nothing is ever skipped silently.

    is_compacted: the stream from the asked revision cannot be given; list again, and watch from that revision.
    Every change above after_revision is in it: a client that has not seen all up to there missed a message, and asks
    again.
    """

    session: int
    watch_id: int
    revision: int  # Every change up to here that concerns the watch has been sent.
    records: list[Record]
    is_compacted: bool = False
    after_revision: int = 0


class MetadataRequests(msgspec.Struct, frozen=True, array_like=True):
    """Several requests of one client that wait together, in its order. They mean the same as so many messages."""

    requests: Annotated[list[MetadataRequest], msgspec.Meta(min_length=1, max_length=GATHERED_MAX)]


class MetadataReplies(msgspec.Struct, frozen=True, array_like=True):
    """Several answers of one member, likewise. A message with only one answer also shows that the member takes
    MetadataRequests."""

    replies: Annotated[list[MetadataReply], msgspec.Meta(min_length=1, max_length=GATHERED_MAX)]


for _kind, _struct in (
    (64, MetadataRequest), (65, MetadataReply), (66, WatchEvents), (67, MetadataRequests), (68, MetadataReplies),
):  # fmt: skip
    register_kind(_kind, _struct)
