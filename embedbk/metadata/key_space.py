"""How the keys of a catalog change: all that one command changes, at one revision, or nothing (P2.2, P9.3, P11).

Carries out transactions, what operations about locks and repairs plan, and the end of a session; checks for room first
(`room`), and hands what becomes free to the sessions that wait for it, in the same command. Leaves to the catalog which
revision that is, and which commands change anything at all; to `record_table` and `session_table` what is known of all
records and sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedbk.codec.metadata_messages import ABSENT, ANY, Compare, Delete, Put, Record, Refusal, Txn
from embedbk.metadata.claims import lock_of, lock_path, repairing_path
from embedbk.metadata.commands import RULES_KEEP_REFUSALS, RULES_MAKE_WAY
from embedbk.metadata.limits import Limits, put_bytes, record_bytes
from embedbk.metadata.locks import first_waiting
from embedbk.metadata.planned import Planned
from embedbk.metadata.record_table import RecordTable
from embedbk.metadata.repairing import resumed
from embedbk.metadata.room import no_room, why_no_room, why_no_room_before
from embedbk.metadata.session_table import Session, SessionTable

__all__ = ["KeySpace"]


class KeySpace:
    """Each method that changes keys is given the revision of the changes, and returns the changed records by key, for
    watchers; none: it changed nothing, and needs no revision."""

    def __init__(self, limits: Limits, record_table: RecordTable, session_table: SessionTable) -> None:
        self.limits = limits
        self._record_table = record_table
        self._records = record_table.packed
        self._session_table = session_table
        self._sessions = session_table.by_number

    @property
    def held_bytes(self) -> int:
        """Bytes of all records beyond the shares of their sessions."""
        return self._record_table.bytes - self._session_table.shared_bytes

    def holds(self, compares: Iterable[Compare]) -> bool:
        """Whether all keys are as a transaction compares them."""
        return all(self._holds(compare) for compare in compares)

    def _holds(self, compare: Compare) -> bool:
        record = self._records.get(compare.key)
        if record is None:
            return compare.revision == ABSENT
        return compare.revision in (ANY, record.revision)

    # --- Commands ------------------------------------------------------------------------------------------

    def transact(self, session: Session, txn: Txn, rules: int, revision: int) -> dict[str, Record] | Refusal:
        """Make the changes of a transaction whose comparisons hold, if they have room."""
        if rules >= RULES_KEEP_REFUSALS:
            if len(txn.then) == 1 and isinstance(put := txn.then[0], Put) and not put.is_ephemeral:
                before = self._records.get(put.key)
                if before is None or not before.session:
                    return self._put_alone(put, before, revision)
            refusal = self._why_no_room(session, txn, makes_way=rules >= RULES_MAKE_WAY)
        else:
            held = self._record_table.bytes
            refusal = why_no_room_before(self._records.get, session, txn, held, self.limits)
        if refusal is not None:
            return refusal
        return self._whole(revision, self._carry_out(txn.then, revision, session))

    def carry_out(
        self, session: Session, planned: Planned, revision: int, *, is_reserved: bool
    ) -> dict[str, Record] | Refusal:
        """Make the changes of an operation about locks or repairs, if they have room. is_reserved: as in `room`."""
        if planned.needs_room:
            txn = Txn([], planned.changes)
            refusal = self._why_no_room(session, txn, makes_way=True, is_reserved=is_reserved)
            if refusal is not None:
                return refusal
        changed = self._carry_out(planned.changes, revision, session)
        if planned.frees:
            self._hand_over(planned.frees, revision, changed)
        return self._whole(revision, changed)

    def resume_repairs(self, marks: Iterable[tuple[int, int]], revision: int) -> dict[str, Record]:
        """Marks go on that were postponed: (ledger id, revision of the mark)."""
        return self._whole(
            revision, self._carry_out(resumed(self._records.get, marks), revision, session=None)
        )

    def end_session(self, session: Session, revision: int) -> dict[str, Record]:
        """A session ends, and with it its keys."""
        self._session_table.keep_for_cut(session)
        changed = {key: self._delete(key, revision) for key in sorted(session.keys)}
        self._session_table.end(session)
        for name in [name for key in changed if (name := lock_of(key))]:
            self._hand_over(name, revision, changed)
        return self._whole(revision, changed)

    def _whole(self, revision: int, changed: dict[str, Record]) -> dict[str, Record]:
        """All that a command changes: with what it lets waiting sessions have."""
        if changed and self._record_table.repairs.has_freed:
            self._hand_repairs(revision, changed)
        return changed

    # --- Room ----------------------------------------------------------------------------------------------

    def _why_no_room(
        self, session: Session, txn: Txn, *, makes_way: bool, is_reserved: bool = False
    ) -> Refusal | None:
        return why_no_room(
            self._records.get,
            self._sessions,
            session,
            txn,
            self.held_bytes,
            self.limits,
            makes_way=makes_way,
            is_reserved=is_reserved,
        )

    def _room_for_keys(self, session: int) -> int:
        """How many holds this session may get instead of its key as a waiter."""
        return max(self.limits.ephemeral_keys_max - len(self._sessions[session].keys), 0) + 1

    # --- Waiting sessions ------------------------------------------------------------------------------------

    def _hand_repairs(self, revision: int, changed: dict[str, Record]) -> None:
        """Marks that this command made free go to the sessions that wait for them, in the order in which they asked."""
        for key, ledger_ids in self._record_table.repairs.hand_out(self._room_for_keys).items():
            place = self._records.get(key)
            assert place is not None
            holds = [Put(repairing_path(ledger_id), b"", True) for ledger_id in ledger_ids]
            self._hand(place, holds, revision, changed)

    def _hand_over(self, name: str, revision: int, changed: dict[str, Record]) -> None:
        """The lock is free: in this same command the first of the waiting sessions gets it."""
        first = first_waiting(self._records, name)
        if first is not None:
            assert first.value is not None
            self._hand(first, [Put(lock_path(name), first.value, True)], revision, changed)

    def _hand(self, place: Record, keys: Sequence[Put], revision: int, changed: dict[str, Record]) -> None:
        """The session that waits under a key gets others instead. place: the record of its key as a waiter."""
        session = self._sessions[place.session]
        changed[place.key] = self._delete(place.key, revision)
        for put in keys:
            changed[put.key] = self._put(put, revision, session, asked=place.created)

    # --- Puts and deletes ------------------------------------------------------------------------------------

    def _carry_out(
        self, changes: Sequence[Put | Delete], revision: int, session: Session | None
    ) -> dict[str, Record]:
        """Carry out puts and deletes; returns the changed records, by key. session: the client's; None: there is none,
        and no key is ephemeral."""
        return {
            change.key: self._put(change, revision, session)
            if isinstance(change, Put)
            else self._delete(change.key, revision)
            for change in changes
            if isinstance(change, Put) or change.key in self._records
        }

    def _put_alone(self, put: Put, before: Record | None, revision: int) -> dict[str, Record] | Refusal:
        """As `_why_no_room` and `_put`, for the most common transaction: it adds one record without a session, or
        replaces one without a session. So each record is looked up and weighed once."""
        if before is None:
            growth, created = put_bytes(put), revision
        else:
            growth, created = len(put.value) - len(before.value or b""), before.created
        if growth > 0:
            held, allowed = self.held_bytes, self.limits.catalog_bytes_max
            if before is not None:
                allowed += self.limits.catalog_reserve_bytes
            if held + growth > allowed:
                return no_room(held, growth, allowed)
        record = Record(put.key, put.value, created, revision)
        self._record_table.put(record, before, growth)
        return self._whole(revision, {put.key: record})

    def _put(self, put: Put, revision: int, session: Session | None, asked: int = 0) -> Record:
        """asked: the revision at which the holder of a lock asked for it."""
        before = self._records.get(put.key)
        owner = session.session if session is not None and put.is_ephemeral else 0
        created = before.created if before else asked or revision
        record = Record(put.key, put.value, created, revision, owner)
        size = record_bytes(record)
        self._record_table.put(record, before, size - record_bytes(before) if before else size)
        if before is not None and before.session:
            self._session_table.disown(before)
        if owner:
            self._session_table.own(record)
        return record

    def _delete(self, key: str, revision: int) -> Record:
        """Delete a key that exists; returns the record for watchers."""
        before = self._records.get(key)
        assert before is not None
        self._record_table.remove(before)
        if before.session:
            self._session_table.disown(before)
        return Record(key, None, before.created, revision)
