"""The metadata state machine: keys, sessions, ids; what each command does to them (P2.2, P9.2, P10.1).

Decides the outcome of every command, deterministically: same commands at the same places of the log, same catalog, byte
for byte. Leaves to others when a command counts (command_log.py: when it is committed), which watchers are notified
(member.py), from what the state descends (descent.py), which keys an operation about locks or repairs changes
(locks.py, repairing.py), how keys change, and whether what is added has room (key_space.py).

Revisions rise by one per change and never reset, so a comparison with one has no ABA (P2.2). Their high 16 bits are
the generation: a revision *is* an epoch, the fencing token of whatever the change stands for (P9.2).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from embedbk.codec.id_ranges import is_within
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import (
    GENERATION_BITS,
    Acknowledged,
    Acquire,
    AdoptLedger,
    Allocated,
    AllocIds,
    CloseSession,
    Listed,
    Record,
    Refusal,
    Reign,
    Release,
    Result,
    Tell,
    Told,
    Txn,
    TxnDone,
    Value,
)
from embedbk.codec.repair_messages import MarkRepairs, Repairing
from embedbk.codec.tombstone import tombstone_path
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.ids import LEDGER_ID_MAX
from embedbk.metadata.commands import (
    RULES_KEEP_REFUSALS,
    BeginGeneration,
    BeginLineage,
    CheckDigest,
    Command,
    ExpireSession,
    RaiseTo,
    ResumeRepairs,
    Run,
    StartMember,
    StartSession,
    StopSparing,
    check_level,
)
from embedbk.metadata.cutting import PIECE_VERSION, CatalogCut, Head, Lineages, SessionImage, image_of
from embedbk.metadata.descent import RESTORED_IDS_GAP, Descent
from embedbk.metadata.digesting import digest_of, encode_lineages
from embedbk.metadata.history import History
from embedbk.metadata.key_space import KeySpace
from embedbk.metadata.levels import (
    LEVEL_FIRST,
    LEVEL_OF_RESERVED_MARKS,
    LEVEL_OF_STALE_KEYS,
    too_new,
)
from embedbk.metadata.limits import (
    DEFAULT_LIMITS,
    Limits,
    check_operation,
    record_bytes,
)
from embedbk.metadata.locks import acquire, release
from embedbk.metadata.planned import Planned
from embedbk.metadata.record_table import RecordTable
from embedbk.metadata.repairing import View, plan
from embedbk.metadata.session_table import Session, SessionTable, session_gone, why_out_of_turn
from embedbk.metadata.stale_keys import why_refused

__all__ = [
    "DEFAULT_LIMITS",
    "GENERATION_BITS",
    "Catalog",
    "Limits",
    "check_operation",
]

SNAPSHOT_VERSION = 1
GENERATIONS_MAX = 1 << 15  # A revision stays a whole number of 63 bits.


class Catalog:
    """All the cluster agrees on. `apply` is the only way to change it."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.level = LEVEL_FIRST  # The cluster's level; never lowered (P10.8).
        self.revision = 0
        self.next_id = 1  # Every id below was handed out, or is a gap for ever (P2.1).
        self.session_table = SessionTable(limits)
        # To look up; the table alone changes them.
        self.sessions: Mapping[int, Session] = self.session_table.by_number
        self.descent = Descent()
        self.record_table = RecordTable()
        self._records = self.record_table.packed  # To look up; the table alone changes them.
        self.key_space = KeySpace(limits, self.record_table, self.session_table)
        self.history = History(0, limits.history_bytes_max, limits.history_changes_max)

    # --- Reading -----------------------------------------------------------------------------------------

    def get(self, key: str) -> Value:
        return Value(self._records.get(key), self.revision)

    def page(self, prefix: str, after: str = "", limit: int = 1000) -> Listed:
        """A page of the keys that begin with prefix and are greater than after, in key order."""
        limit = min(limit, self.limits.list_records_max)
        page: list[Record] = []
        page_bytes = 0
        for record in self._records.begin(prefix, after):
            if not record.key.startswith(prefix):
                break
            page_bytes += record_bytes(record)
            if len(page) == limit or (page and page_bytes > self.limits.list_bytes_max):
                return Listed(page, True, self.revision)
            page.append(record)
        return Listed(page, False, self.revision)

    def tell(self, asked: Tell, cluster_token: bytes) -> Told:
        """How far this metadata is, what came of the start that is asked for, and from which lineages it descends
        (P10.5)."""
        return self.descent.tell(asked, cluster_token, self.revision, self.next_id)

    def kept_reply(self, session: int, sequence: int) -> Result | None:
        """The answer that an operation got when it was run, while its client may ask again."""
        found = self.sessions.get(session)
        return found.kept.get(sequence) if found else None

    # --- Changing ----------------------------------------------------------------------------------------

    def apply(self, command: Command, index: int, term: int) -> Result:
        """Do one command, which stands at this place of the log, whole; or refuse it and change nothing.

        Raises:
            StorageError: it raises the level to one that this build does not know. Nothing was changed.
        """
        return _APPLY[type(command)](self, command, index, term)

    def number_of(self, command: StartSession, index: int) -> int:
        """The number of the session that this command opens. No other command of this generation has its index, so no
        other session ever has the number; sessions of an older log had random numbers."""
        return command.session or (self.revision >> GENERATION_BITS << GENERATION_BITS) | index

    def _start_session(self, command: StartSession, index: int, term: int) -> Result:
        number = self.number_of(command, index)
        return self.session_table.start(number, command, self.level) or Acknowledged(self.revision)

    def _expire_session(self, command: ExpireSession, index: int, term: int) -> Result:
        if command.term not in (0, term):
            text = f"the leader of term {command.term} gave session {command.session} up; this is term {term}"
            return Refusal("UNAVAILABLE", text)
        session = self.sessions.get(command.session)
        return self._end_session(session) if session else session_gone(command.session)

    def _start_member(self, command: StartMember, index: int, term: int) -> Result:
        self.descent.note_start(command.nonce, self.revision, self.next_id)
        return Acknowledged(self.revision)

    def _check_digest(self, command: CheckDigest, index: int, term: int) -> Result:
        """The member compares the digest (divergence.py); the state does not change."""
        return Acknowledged(self.revision)

    def _raise_to(self, command: RaiseTo, index: int, term: int) -> Result:
        """The leader checked that all know the level before it proposed this (orders.py). A build that does not know it
        must stop."""
        if command.level > self.limits.level_known:
            raise StorageError(too_new(command.level, self.limits.level_known))
        self.level = max(self.level, command.level)
        return Acknowledged(self.revision)

    def _begin_generation(self, command: BeginGeneration, index: int, term: int) -> Result:
        return self._go_on_in((self.revision >> GENERATION_BITS) + 1, is_whole=False)

    def _begin_lineage(self, command: BeginLineage, index: int, term: int) -> Result:
        begun = self.descent.begun_by(command, self.revision)
        if isinstance(begun, Refusal):
            return begun
        gives_up_others = len(begun) > 1
        result = self._go_on_in(begun[-1].generation, is_whole=command.is_whole and not gives_up_others)
        if not isinstance(result, Refusal):
            self.descent.lineages += begun
        return result

    def _go_on_in(self, generation: int, *, is_whole: bool) -> Result:
        """Above everything that a lost future of the generations in between may have given out."""
        if generation >= GENERATIONS_MAX:
            return Refusal(
                "UNAVAILABLE",
                f"generation {generation} would begin, and the last there is is {GENERATIONS_MAX - 1}",
            )
        gap = RESTORED_IDS_GAP * (generation - (self.revision >> GENERATION_BITS))
        if self.level >= LEVEL_OF_STALE_KEYS and not is_whole:
            self.descent.stale = [(1, self.next_id)]
        self.descent.spare_lost_ids(self.next_id, gap, self._knows_ledger)
        self.revision = generation << GENERATION_BITS
        self.next_id += gap
        hold = self.history.hold
        self.history = self._new_history()
        self.history.hold = hold
        return Acknowledged(self.revision)

    def _knows_ledger(self, ledger_id: int) -> bool:
        return ledger_key_path(ledger_id) in self._records or tombstone_path(ledger_id) in self._records

    def _stop_sparing(self, command: StopSparing, index: int, term: int) -> Result:
        self.descent.stop_sparing(command.ranges)
        return Acknowledged(self.revision)

    def _run(self, command: Run, index: int, term: int) -> Result:
        """Run an operation exactly once: a repeated (session, sequence) gets its first answer (I74), also when that
        was a refusal: its client has gone on. Only BUSY is no answer: the same sequence may still be run."""
        session = self.sessions.get(command.session)
        if session is None:
            return session_gone(command.session)
        kept = session.kept.get(command.sequence)
        if kept is not None:
            return kept
        refusal = (
            why_out_of_turn(session, command)
            or check_operation(command.operation, self.limits)
            or check_level(command.operation, self.level)
            or self.session_table.make_room(session, command)
        )
        if refusal is not None:
            return refusal
        if isinstance(command.operation, Txn):  # Most are.
            result = self._transact(session, command.operation, command.rules)
        elif isinstance(command.operation, CloseSession):
            return self._end_session(session)
        elif isinstance(command.operation, AllocIds):
            result = self._alloc_ids(command.operation)
        elif isinstance(command.operation, Acquire):
            result = self._acquire(session, command.operation)
        elif isinstance(command.operation, Repairing):
            result = self._repair(session, command.operation)
        else:
            result = self._release(session, command.operation)
        if command.rules >= RULES_KEEP_REFUSALS or not isinstance(result, Refusal):
            self.session_table.keep(session, command.sequence, result)
        return result

    def _alloc_ids(self, operation: AllocIds) -> Result:
        if self.next_id + operation.count - 1 > LEDGER_ID_MAX:
            return Refusal(
                "UNAVAILABLE", f"{operation.count} ids asked for, {LEDGER_ID_MAX} is the last there is"
            )
        first = self.next_id
        self.next_id += operation.count
        return Allocated(first, operation.count)

    def _acquire(self, session: Session, asked: Acquire) -> Result:
        most = self.limits.lock_waiters_max
        return self._do(session, acquire(self._records, session.keys, asked, self.revision, most))

    def _release(self, session: Session, asked: Release) -> Result:
        return self._do(session, release(self._records, session.keys, asked))

    def _repair(self, session: Session, asked: Repairing) -> Result:
        """P11: make the changes of the operation, and hand the marks that it frees to waiting sessions, all at one
        revision."""
        view = View(
            self._records.get,
            self.record_table.repairs,
            session.session,
            session.keys,
            self.revision,
            self.limits,
        )
        is_reserved = isinstance(asked, MarkRepairs) and self.level >= LEVEL_OF_RESERVED_MARKS
        return self._do(session, plan(view, asked), is_reserved=is_reserved)

    def _do(self, session: Session, planned: Planned | Refusal, *, is_reserved: bool = False) -> Result:
        """Make the changes of an operation about locks or repairs."""
        if isinstance(planned, Refusal):
            return planned
        changed = self.key_space.carry_out(session, planned, self.revision + 1, is_reserved=is_reserved)
        if isinstance(changed, Refusal):
            return changed
        self._commit(changed)
        return planned.answer(self.revision)

    def _resume_repairs(self, command: ResumeRepairs, index: int, term: int) -> Result:
        self._commit(self.key_space.resume_repairs(command.marks, self.revision + 1))
        return Acknowledged(self.revision)

    def _transact(self, session: Session, txn: Txn, rules: int) -> Result:
        if txn.when and not self.key_space.holds(txn.when):
            return TxnDone(False, self.revision)
        if isinstance(txn, AdoptLedger):
            return self._adopt(session, txn, rules)
        refusal = why_refused(self.descent.stale, txn, self._records.get) if self.descent.stale else None
        return refusal or self._change(session, txn, rules)

    def _adopt(self, session: Session, asked: AdoptLedger, rules: int) -> Result:
        """P10.5: the same command that puts the ledger's key ends the sparing of its id. A stale key stays stale:
        copies that a lost future made are kept until an operator decides that they are not wanted."""
        ledger_id = asked.ledger_id
        if (
            is_within(self.descent.stale, ledger_id)
            and self._records.get(ledger_key_path(ledger_id)) is not None
        ):
            return self._change(session, asked, rules)
        if not is_within(self.descent.spared, ledger_id):
            text = f"ledger {ledger_id} is of no lost future, or was forgotten or adopted before"
            return Refusal("BAD_REQUEST", f"{text}: bookies may drop what they hold of it")
        result = self._change(session, asked, rules)
        if isinstance(result, TxnDone):
            self.descent.note_adopted(ledger_id)
        return result

    def _change(self, session: Session, txn: Txn, rules: int) -> Result:
        changed = self.key_space.transact(session, txn, rules, self.revision + 1)
        if isinstance(changed, Refusal):
            return changed
        self._commit(changed)
        return TxnDone(True, self.revision)

    def _new_history(self) -> History:
        return History(self.revision, self.limits.history_bytes_max, self.limits.history_changes_max)

    def _end_session(self, session: Session) -> Result:
        self._commit(self.key_space.end_session(session, self.revision + 1))
        return Acknowledged(self.revision)

    def _commit(self, changed: dict[str, Record]) -> None:
        """All changes of one command have one revision, the next; a command that changed nothing takes none."""
        if changed:
            self.revision += 1
            self.history.add(self.revision, tuple(changed.values()))

    @property
    def fast_digest(self) -> bytes:
        """A digest of all records and counters, at no cost: catalogs that differ in these have different digests
        (I72)."""
        counters = (
            self.revision,
            self.next_id,
            self.session_table.started,
            self.descent.start_count,
            len(self.sessions),
        )
        ranges = self.descent.lineages, self.descent.spared, self.descent.stale
        return digest_of(self.record_table.sum, *counters, level=self.level, recovered=ranges)

    # --- As bytes ----------------------------------------------------------------------------------------

    def cut(self) -> CatalogCut:
        """Begin a snapshot of the present state; commands may be applied before its last piece is taken. A second one
        ends the first."""
        head = Head(
            PIECE_VERSION,
            self.revision,
            self.next_id,
            self.session_table.started,
            self.descent.start_count,
            len(self.sessions),
            len(self._records),
            len(self.descent.starts),
            len(self.descent.spared),
            self.fast_digest,
        )
        starts, spared = list(self.descent.starts), list(self.descent.spared)
        cut = self.record_table.cut = self.session_table.cut = CatalogCut(
            head,
            self.sessions,
            self._records,
            starts,
            spared,
            self.record_table.sum,
            self.level,
            Lineages(list(self.descent.lineages), list(self.descent.stale))
            if self.descent.lineages
            else None,
        )
        return cut

    def end_cut(self) -> None:
        """End the snapshot: its last piece was taken, or the others are not needed."""
        self.record_table.cut = self.session_table.cut = None

    def snapshot(self) -> bytes:
        """The whole state at once, in version 1, for digests and as logs of older builds hold it. History is not state
        and is left out."""
        return _encode_snapshot(
            _Snapshot(
                version=SNAPSHOT_VERSION,
                revision=self.revision,
                next_id=self.next_id,
                sessions_started=self.session_table.started,
                sessions=[image_of(session) for session in self.sessions.values()],
                records=list(self._records.begin()),
                start_count=self.descent.start_count,
                starts=self.descent.starts,
                spared=self.descent.spared,
            )
        )

    @classmethod
    def restore(cls, data: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> Self:
        """The catalog in a snapshot of version 1. Raises StorageError for other bytes."""
        found = unpack(
            _snapshot_decoder, data, StorageError, f"these {len(data)} bytes are no metadata snapshot"
        )
        if found.version != SNAPSHOT_VERSION:
            raise StorageError(
                f"metadata snapshot has version {found.version}; this embedbk knows {SNAPSHOT_VERSION}"
            )
        catalog = cls(limits)
        catalog.take_counters(found.revision, found.next_id, found.sessions_started, found.start_count)
        catalog.descent.starts, catalog.descent.spared = found.starts, found.spared
        catalog.session_table.load(found.sessions)
        catalog.take_records(found.records)
        catalog.record_table.repairs.loaded()
        return catalog

    # Loading a snapshot into an empty catalog, in this order.

    def take_counters(self, revision: int, next_id: int, sessions_started: int, start_count: int) -> None:
        self.revision, self.next_id = revision, next_id
        self.session_table.started, self.descent.start_count = sessions_started, start_count
        self.history = self._new_history()

    def take_records(self, records: Sequence[Record]) -> None:
        """Add records in key order, behind the present ones. Raises StorageError: they are not in order, or one names a
        session that is not there, or has values that no record can have."""
        self.record_table.load(records)
        for record in records:
            if record.session:
                self.session_table.own(record)

    def digest(self) -> bytes:
        """16 bytes that are equal for equal states, in any process."""
        state = self.snapshot() + (bytes([self.level]) if self.level > LEVEL_FIRST else b"")
        state += encode_lineages(self.descent.lineages, self.descent.stale)
        return hashlib.blake2b(state, digest_size=16).digest()

    def copy(self) -> Self:
        """An independent twin in the same state."""
        return copy.deepcopy(self)


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    version: int
    revision: int
    next_id: int
    sessions_started: int
    sessions: list[SessionImage]
    records: list[Record]
    start_count: int = 0
    starts: list[Reign] = []
    spared: list[tuple[int, int]] = []


_encode_snapshot = msgspec.msgpack.Encoder().encode
_snapshot_decoder = msgspec.msgpack.Decoder(_Snapshot)

_APPLY: dict[type, Callable[[Catalog, Any, int, int], Result]] = {
    StartSession: Catalog._start_session,
    ExpireSession: Catalog._expire_session,
    Run: Catalog._run,
    BeginGeneration: Catalog._begin_generation,
    BeginLineage: Catalog._begin_lineage,
    StopSparing: Catalog._stop_sparing,
    StartMember: Catalog._start_member,
    RaiseTo: Catalog._raise_to,
    CheckDigest: Catalog._check_digest,
    ResumeRepairs: Catalog._resume_repairs,
}
