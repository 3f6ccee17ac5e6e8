"""The metadata state machine: keys, sessions, ids; what each command does to them (P2.2, P9.2, P10.1).

Decides the outcome of every command, deterministically: same commands, same catalog, byte for byte. Leaves to
others when a command counts (member.py: when it is durable; later: when a quorum has it) and who hears of it.

Revisions rise by one per change and never reset, so a comparison with one has no ABA (P2.2). Their high 16 bits are
the generation: a revision *is* an epoch, the fencing token of whatever the change stands for (P9.2).
"""

from __future__ import annotations

import bisect
import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import (
    ABSENT,
    ANY,
    GENERATION_BITS,
    Acknowledged,
    Allocated,
    AllocIds,
    CloseSession,
    Compare,
    Get,
    List,
    Listed,
    OpenSession,
    Operation,
    Put,
    Record,
    Refusal,
    Reign,
    Result,
    Told,
    Txn,
    TxnDone,
    Value,
    Watch,
)
from embedbk.codec.tombstone import tombstone_path
from embedbk.codec.unpacking import unpack
from embedbk.config import METADATA_VALUE_BYTES_MAX
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX, is_text
from embedbk.metadata.commands import (
    BeginGeneration,
    Command,
    ExpireSession,
    Run,
    StartMember,
    StartSession,
)

__all__ = [
    "DEFAULT_LIMITS",
    "GENERATION_BITS",
    "Catalog",
    "History",
    "Limits",
    "Session",
    "check_operation",
    "event_bytes",
]

SNAPSHOT_VERSION = 1
GENERATIONS_MAX = 1 << 15  # A revision stays a whole number of 63 bits.
RESTORED_IDS_GAP = 1 << 32  # Ids skipped by a new generation: more than the lost future can have handed out.
# Of the ids given out last, those of which nothing is known may be of ledgers that the lost future made.
IN_CREATION_IDS = 4096
STARTS_KEPT_MAX = 1 << 16  # Links of the chain; who remembers an older one cannot be told whether it is one.
RECORD_OVERHEAD_BYTES = 64  # What a key costs beside its own bytes and its value's, for the bound below.


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the catalog. They decide outcomes, so all members of a quorum must run with the same."""

    key_bytes_max: int = 512
    value_bytes_max: int = METADATA_VALUE_BYTES_MAX
    txn_operations_max: int = 128  # Comparisons, and likewise changes, of one transaction.
    txn_bytes_max: int = (
        1 << 20
    )  # Keys and values of one transaction together; bounds a log record and an event.
    alloc_ids_max: int = 1 << 20
    list_records_max: int = 1000
    list_bytes_max: int = 1 << 20  # A page ends when it is full; one record always fits.
    kept_replies_max: int = (
        256  # Per session: how far a client may run ahead of its oldest unanswered operation.
    )
    ephemeral_keys_max: int = 1024  # Per session; they go in one revision when it ends.
    sessions_max: int = 10_000
    catalog_bytes_max: int = 1 << 30
    history_bytes_max: int = 16 << 20  # Changes kept for watchers that resume; not part of the state.


DEFAULT_LIMITS = Limits()


@dataclass(slots=True)
class Session:
    session: int
    ttl_ms: int
    label: str
    done_below: int = 1  # The client has every answer below this sequence; a repeat of one is a fault.
    kept: dict[int, Result] = field(default_factory=dict)  # Answers that the client may still ask for again.
    keys: dict[str, None] = field(default_factory=dict)  # Ephemeral keys, in the order they were put.


class History:
    """The newest changes by revision, for watches. Holds every revision above `floor`, and nothing else."""

    def __init__(self, floor: int, bytes_max: int) -> None:
        self.floor = floor  # A stream can be given from here on, not from any revision below.
        self._bytes_max = bytes_max
        self._bytes = 0
        self._changes: dict[int, tuple[Record, ...]] = {}

    def add(self, revision: int, records: tuple[Record, ...]) -> None:
        assert revision == self.floor + len(self._changes) + 1, "revisions are dense"
        self._changes[revision] = records
        self._bytes += event_bytes(records)
        while self._bytes > self._bytes_max and len(self._changes) > 1:
            self.floor += 1
            self._bytes -= event_bytes(self._changes.pop(self.floor))

    def at(self, revision: int) -> tuple[Record, ...]:
        """The records that changed at a revision above `floor`."""
        return self._changes[revision]

    def after(self, revision: int, until: int) -> Iterator[tuple[int, tuple[Record, ...]]]:
        """(revision, its records) for every revision above `revision`, up to `until` included."""
        assert revision >= self.floor, "compacted"
        return ((number, self._changes[number]) for number in range(revision + 1, until + 1))


class Catalog:
    """All the cluster agrees on. `apply` is the only way to change it."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.revision = 0
        self.next_id = 1  # Every id below was handed out, or is a gap for ever (P2.1).
        self.sessions_started = 0  # Over the life of the cluster: makes session numbers unique for ever.
        self.sessions: dict[int, Session] = {}
        self.start_count = 0  # Of members, over the life of the cluster.
        # Random bytes of the newest starts, each with how far metadata was when it began.
        self.starts: list[Reign] = []
        self.spared: list[tuple[int, int]] = []  # Ranges of ids of which a lost future may have made ledgers.
        self.bytes = 0
        self._records: dict[str, Record] = {}
        self._keys: list[str] = []  # The keys of _records, sorted: by code point, which is also UTF-8 order.
        self.history = History(0, limits.history_bytes_max)

    # --- Reading -----------------------------------------------------------------------------------------

    def get(self, key: str) -> Value:
        return Value(self._records.get(key), self.revision)

    def page(self, prefix: str, after: str = "", limit: int = 1000) -> Listed:
        """A page of the keys that begin with prefix and are greater than after, in key order."""
        limit = min(limit, self.limits.list_records_max)
        if after >= prefix:
            begin = bisect.bisect_right(self._keys, after)
        else:
            begin = bisect.bisect_left(self._keys, prefix)
        page: list[Record] = []
        page_bytes = 0
        for at in range(begin, len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                break
            record = self._records[key]
            page_bytes += _record_bytes(record)
            if len(page) == limit or (page and page_bytes > self.limits.list_bytes_max):
                return Listed(page, True, self.revision)
            page.append(record)
        return Listed(page, False, self.revision)

    def tell(self, count: int, cluster_token: bytes) -> Told:
        """How far this metadata is, and what came of its start number `count` (P10.5)."""
        newest = self.starts[-1].nonce if self.starts else b""
        reign: Reign | None = None
        position = count - (self.start_count - len(self.starts)) - 1
        if 0 <= position < len(self.starts):
            after = self.starts[position + 1] if position + 1 < len(self.starts) else None
            revision, ids_end = (after.revision, after.ids_end) if after else (self.revision, self.next_id)
            reign = Reign(self.starts[position].nonce, revision, ids_end)
        return Told(
            cluster_token, self.start_count, newest, self.revision, self.next_id, list(self.spared), reign
        )

    def kept_reply(self, session: int, sequence: int) -> Result | None:
        """The answer that an operation got when it was run, while its client may ask again."""
        found = self.sessions.get(session)
        return found.kept.get(sequence) if found else None

    # --- Changing ----------------------------------------------------------------------------------------

    def apply(self, command: Command) -> Result:
        """Do one command, whole, or refuse it and change nothing."""
        return _APPLY[type(command)](self, command)

    def _start_session(self, command: StartSession) -> Result:
        if command.session in self.sessions or command.session <= 0:
            return Refusal("BAD_REQUEST", f"session {command.session} cannot be opened: the number is taken")
        if len(self.sessions) >= self.limits.sessions_max:
            return Refusal(
                "UNAVAILABLE",
                f"{len(self.sessions)} sessions are open, allowed are {self.limits.sessions_max}",
            )
        self.sessions_started += 1
        self.sessions[command.session] = Session(command.session, command.ttl_ms, command.label)
        return Acknowledged(self.revision)

    def _expire_session(self, command: ExpireSession) -> Result:
        session = self.sessions.get(command.session)
        return self._end_session(session) if session else _session_gone(command.session)

    def _start_member(self, command: StartMember) -> Result:
        self.start_count += 1
        self.starts.append(Reign(command.nonce, self.revision, self.next_id))
        del self.starts[:-STARTS_KEPT_MAX]
        return Acknowledged(self.revision)

    def _begin_generation(self, command: BeginGeneration) -> Result:
        generation = (self.revision >> GENERATION_BITS) + 1
        if generation >= GENERATIONS_MAX:
            return Refusal("UNAVAILABLE", f"{generation} generations were begun; there are no more")
        self._spare_lost_ids()
        self.revision = generation << GENERATION_BITS
        self.next_id += RESTORED_IDS_GAP
        self.sessions_started += RESTORED_IDS_GAP >> 8
        self.history = History(self.revision, self.limits.history_bytes_max)
        return Acknowledged(self.revision)

    def _spare_lost_ids(self) -> None:
        """Ledgers that the lost future made are known to bookies only: that they are absent here proves nothing, for
        ever. Theirs are the ids that are skipped, and of the newest ones those that were given out and have no key."""
        unmade = [
            ledger_id
            for ledger_id in range(max(1, self.next_id - IN_CREATION_IDS), self.next_id)
            if ledger_key_path(ledger_id) not in self._records
            and tombstone_path(ledger_id) not in self._records
        ]
        for first, end in [
            *((each, each + 1) for each in unmade),
            (self.next_id, self.next_id + RESTORED_IDS_GAP),
        ]:
            if self.spared and self.spared[-1][1] == first:
                first = self.spared.pop()[0]
            if not any(known <= first < known_end for known, known_end in self.spared):
                self.spared.append((first, end))

    def _run(self, command: Run) -> Result:
        """Run an operation exactly once: a repeated (session, sequence) gets its first answer (I74)."""
        session = self.sessions.get(command.session)
        if session is None:
            return _session_gone(command.session)
        kept = session.kept.get(command.sequence)
        if kept is not None:
            return kept
        if command.sequence < session.done_below or not 1 <= command.done_below <= command.sequence:
            return Refusal(
                "BAD_REQUEST",
                f"sequence {command.sequence} with done_below {command.done_below}: session {command.session} "
                f"has all answers below {session.done_below}",
            )
        refusal = check_operation(command.operation, self.limits)
        if refusal is not None:
            return refusal
        for sequence in [known for known in session.kept if known < command.done_below]:
            del session.kept[sequence]
        session.done_below = max(session.done_below, command.done_below)
        if len(session.kept) >= self.limits.kept_replies_max:
            return Refusal(
                "UNAVAILABLE",
                f"session {command.session} has {len(session.kept)} answers waiting for its done_below, "
                f"allowed are {self.limits.kept_replies_max}",
            )
        if isinstance(command.operation, CloseSession):
            return self._end_session(session)
        if isinstance(command.operation, AllocIds):
            result = self._alloc_ids(command.operation)
        else:
            result = self._transact(session, command.operation)
        if not isinstance(result, Refusal):
            session.kept[command.sequence] = result
        return result

    def _alloc_ids(self, operation: AllocIds) -> Result:
        if self.next_id + operation.count - 1 > LEDGER_ID_MAX:
            return Refusal(
                "UNAVAILABLE", f"{operation.count} ids asked for, {LEDGER_ID_MAX} is the last there is"
            )
        first = self.next_id
        self.next_id += operation.count
        return Allocated(first, operation.count)

    def _transact(self, session: Session, txn: Txn) -> Result:
        if not all(self._holds(compare) for compare in txn.when):
            return TxnDone(False, self.revision)
        refusal = self._check_room(session, txn)
        if refusal is not None:
            return refusal
        revision = self.revision + 1
        changed = [
            self._put(change, revision, session)
            if isinstance(change, Put)
            else self._delete(change.key, revision)
            for change in txn.then
            if isinstance(change, Put) or change.key in self._records
        ]
        self._commit(revision, changed)
        return TxnDone(True, self.revision)

    def _holds(self, compare: Compare) -> bool:
        record = self._records.get(compare.key)
        if record is None:
            return compare.revision == ABSENT
        return compare.revision in (ANY, record.revision)

    def _check_room(self, session: Session, txn: Txn) -> Refusal | None:
        growth, ephemeral = 0, len(session.keys)
        for change in txn.then:
            before = self._records.get(change.key)
            growth -= _record_bytes(before) if before else 0
            if isinstance(change, Put):
                growth += _put_bytes(change)
                ephemeral += change.is_ephemeral and change.key not in session.keys
        if growth > 0 and self.bytes + growth > self.limits.catalog_bytes_max:
            return Refusal(
                "UNAVAILABLE",
                f"the catalog holds {self.bytes} bytes and {growth} more were asked for, "
                f"allowed are {self.limits.catalog_bytes_max}",
            )
        if ephemeral > self.limits.ephemeral_keys_max:
            return Refusal(
                "BAD_REQUEST",
                f"{ephemeral} ephemeral keys in one session, allowed are {self.limits.ephemeral_keys_max}",
            )
        return None

    def _put(self, put: Put, revision: int, session: Session) -> Record:
        before = self._forget(put.key)
        owner = session.session if put.is_ephemeral else 0
        created = before.created if before else revision
        record = Record(put.key, put.value, created, revision, owner)
        if before is None:
            bisect.insort(self._keys, put.key)
        self._records[put.key] = record
        self.bytes += _record_bytes(record)
        if owner:
            session.keys[put.key] = None
        return record

    def _delete(self, key: str, revision: int) -> Record:
        """Delete a key that exists; returns the event that says so."""
        before = self._forget(key)
        assert before is not None
        del self._records[key]
        del self._keys[bisect.bisect_left(self._keys, key)]
        return Record(key, None, before.created, revision)

    def _forget(self, key: str) -> Record | None:
        """Take a record out of the sums and out of its owner's keys; returns it."""
        before = self._records.get(key)
        if before is not None:
            self.bytes -= _record_bytes(before)
            if before.session:
                del self.sessions[before.session].keys[key]
        return before

    def _end_session(self, session: Session) -> Result:
        revision = self.revision + 1
        deleted = [self._delete(key, revision) for key in sorted(session.keys)]
        del self.sessions[session.session]
        self._commit(revision, deleted)
        return Acknowledged(self.revision)

    def _commit(self, revision: int, records: list[Record]) -> None:
        """Everything of one command happens at one revision; what changed nothing takes none."""
        if records:
            self.revision = revision
            self.history.add(revision, tuple(records))

    # --- As bytes ----------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole state; `restore` makes the same catalog of it. History is not state and is left out."""
        return _encode_snapshot(
            _Snapshot(
                version=SNAPSHOT_VERSION,
                revision=self.revision,
                next_id=self.next_id,
                sessions_started=self.sessions_started,
                sessions=[
                    _SessionSnapshot(
                        session.session,
                        session.ttl_ms,
                        session.label,
                        session.done_below,
                        list(session.kept.items()),
                    )
                    for session in self.sessions.values()
                ],
                records=[self._records[key] for key in self._keys],
                start_count=self.start_count,
                starts=self.starts,
                spared=self.spared,
            )
        )

    @classmethod
    def restore(cls, data: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Raises StorageError for bytes that are not a snapshot of a version this code knows."""
        found = unpack(
            _snapshot_decoder, data, StorageError, f"these {len(data)} bytes are no metadata snapshot"
        )
        if found.version != SNAPSHOT_VERSION:
            raise StorageError(
                f"metadata snapshot has version {found.version}; this embedbk knows {SNAPSHOT_VERSION}"
            )
        catalog = cls(limits)
        catalog.revision = found.revision
        catalog.next_id = found.next_id
        catalog.sessions_started = found.sessions_started
        catalog.start_count, catalog.starts, catalog.spared = found.start_count, found.starts, found.spared
        catalog.history = History(found.revision, limits.history_bytes_max)
        for session in found.sessions:
            catalog.sessions[session.session] = Session(
                session.session, session.ttl_ms, session.label, session.done_below, dict(session.kept)
            )
        for record in sorted(found.records, key=lambda record: (record.revision, record.key)):
            catalog._records[record.key] = record
            catalog.bytes += _record_bytes(record)
            if record.session:
                catalog.sessions[record.session].keys[record.key] = None
        catalog._keys = sorted(catalog._records)
        return catalog

    def digest(self) -> bytes:
        """16 bytes that are equal for equal states, in any process."""
        return hashlib.blake2b(self.snapshot(), digest_size=16).digest()

    def copy(self) -> Self:
        """An independent twin in the same state."""
        return copy.deepcopy(self)


def check_operation(operation: Operation, limits: Limits = DEFAULT_LIMITS) -> Refusal | None:
    """What is wrong with an operation whatever the state, before it is logged; None: nothing."""
    reason = ""
    broken = [text for text in _texts(operation) if not is_text(text)]
    if broken:
        reason = f"{broken[0][:40]!r} has half of a surrogate pair: allowed is what UTF-8 can say"
    elif isinstance(operation, Txn):
        reason = _check_txn(operation, limits)
    elif isinstance(operation, AllocIds) and not 1 <= operation.count <= limits.alloc_ids_max:
        reason = f"{operation.count} ids asked for, allowed are 1 to {limits.alloc_ids_max}"
    elif isinstance(operation, OpenSession) and _text_bytes(operation.label) > limits.key_bytes_max:
        reason = f"label {operation.label[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    elif isinstance(operation, List) and operation.limit < 1:
        reason = f"a page of {operation.limit} keys asked for, allowed are 1 or more"
    elif isinstance(operation, Watch) and operation.from_revision < 0:
        reason = f"watch from revision {operation.from_revision}, allowed are 0 or more"
    elif isinstance(operation, Get) and _text_bytes(operation.key) > limits.key_bytes_max:
        reason = f"key {operation.key[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    elif isinstance(operation, List) and _text_bytes(operation.after) > limits.key_bytes_max:
        reason = f"key {operation.after[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    elif isinstance(operation, Watch | List) and _text_bytes(operation.prefix) > limits.key_bytes_max:
        reason = f"prefix {operation.prefix[:40]!r}... is too long, allowed are {limits.key_bytes_max} bytes"
    return Refusal("BAD_REQUEST", reason) if reason else None


def _texts(operation: Operation) -> list[str]:
    """What of it is text, but the keys of a transaction (`_is_path`)."""
    match operation:
        case OpenSession(_, label):
            return [label]
        case Get(key):
            return [key]
        case List(prefix, after):
            return [prefix, after]
        case Watch(_, prefix):
            return [prefix]
    return []


def _check_txn(txn: Txn, limits: Limits) -> str:
    if max(len(txn.when), len(txn.then)) > limits.txn_operations_max:
        return (
            f"a transaction of {len(txn.when)} comparisons and {len(txn.then)} changes, "
            f"allowed are {limits.txn_operations_max} of each"
        )
    for item in (*txn.when, *txn.then):
        if not _is_path(item.key, limits):
            return (
                f"key {item.key[:40]!r}: allowed are paths like '/a/b' of up to {limits.key_bytes_max} bytes"
            )
    for compare in txn.when:
        if compare.revision < ANY:
            return f"key {compare.key!r} compared with revision {compare.revision}: there is none below 0"
    if len({change.key for change in txn.then}) != len(txn.then):
        return "a transaction changes the same key twice"
    size = 0
    for change in txn.then:
        if isinstance(change, Put):
            if len(change.value) > limits.value_bytes_max:
                return f"{change.key!r}: {len(change.value)} bytes of value, allowed are {limits.value_bytes_max}"
            size += _put_bytes(change)
    if size > limits.txn_bytes_max:
        return f"a transaction of {size} bytes, allowed are {limits.txn_bytes_max}"
    return ""


def _session_gone(session: int) -> Refusal:
    return Refusal("SESSION_GONE", f"session {session} has ended or was never opened; open another")


def _is_path(key: str, limits: Limits) -> bool:
    if not is_text(key):
        return False
    size = len(key.encode())
    return key.startswith("/") and "\0" not in key and 2 <= size <= limits.key_bytes_max


def _text_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _put_bytes(put: Put) -> int:
    return RECORD_OVERHEAD_BYTES + _text_bytes(put.key) + len(put.value)


def _record_bytes(record: Record) -> int:
    return RECORD_OVERHEAD_BYTES + _text_bytes(record.key) + len(record.value or b"")


def event_bytes(records: Iterable[Record]) -> int:
    """What changed records weigh in the history and in messages to watchers."""
    return sum(_record_bytes(record) for record in records)


class _SessionSnapshot(msgspec.Struct, frozen=True, array_like=True):
    session: int
    ttl_ms: int
    label: str
    done_below: int
    kept: list[tuple[int, Result]]


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    version: int
    revision: int
    next_id: int
    sessions_started: int
    sessions: list[_SessionSnapshot]
    records: list[Record]
    start_count: int = 0
    starts: list[Reign] = []
    spared: list[tuple[int, int]] = []


_encode_snapshot = msgspec.msgpack.Encoder().encode
_snapshot_decoder = msgspec.msgpack.Decoder(_Snapshot)

_APPLY: dict[type, Callable[[Catalog, Any], Result]] = {
    StartSession: Catalog._start_session,
    ExpireSession: Catalog._expire_session,
    Run: Catalog._run,
    BeginGeneration: Catalog._begin_generation,
    StartMember: Catalog._start_member,
}
