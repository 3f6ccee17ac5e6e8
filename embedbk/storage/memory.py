"""A bookie's durable side in plain Python memory, for the simulator: what is durable, and when, is up to its caller.

`MemoryBookieStorage` shows what `BookieStorage` shows (the port `DurableBookie`). Records stay pending until
`commit()`; `crash()` gives what a power cut leaves, from which the next one is built. Switches make a sync fail, the
bookie read-only, an entry unreadable. Everything is deterministic and plain data.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from embedbk.codec.frame import Frame
from embedbk.codec.holdings_messages import Digests
from embedbk.codec.journal_records import RecordKind
from embedbk.core.ledger_table import LEDGERS_MAX, LedgerTable
from embedbk.core.upkeep_words import EntryLogKeeper, LogFacts
from embedbk.core.witness import Met
from embedbk.errors import StorageError, ensure
from embedbk.ports.add_path import AddPath
from embedbk.ports.entry_store import EntriesFound, EntriesHeld
from embedbk.ports.journal import Buffer
from embedbk.ports.upkeep import RebuildLeft, RebuildPiece, ScrubDamage, ScrubPiece
from embedbk.storage.holding import HoldingCount
from embedbk.storage.journal import DamagedJournal
from embedbk.storage.memory_entry_store import MemoryEntryStore, raw_entries
from embedbk.storage.replay import replay_record
from embedbk.storage.starts import NEVER_STARTED, StartCount, Starts

__all__ = ["MemoryBookieStorage", "MemoryEntryStore", "Survivors"]

logger = logging.getLogger(__name__)

FLUSH_BYTES = 256 << 10  # Small: a simulated run passes many flushes.


@dataclass(frozen=True, slots=True)
class StoredRecord:
    token: int
    kind: int
    ledger_id: int
    body: bytes


@dataclass(frozen=True, slots=True)
class MemoryEntryLog:
    """The result of one flush: entries, ledger states, and the journal token below which all is in entry logs."""

    entries: tuple[tuple[int, int, bytes], ...]  # (ledger_id, entry_id, entry), ascending.
    states: bytes
    mark: int


@dataclass(frozen=True, slots=True)
class Survivors:
    """The content of the device of one incarnation; a new `MemoryBookieStorage` starts from it."""

    incarnation: bytes
    entry_logs: tuple[MemoryEntryLog, ...] = ()
    records: tuple[StoredRecord, ...] = ()  # Records of the journal above the last mark.
    may_have_lost: bool = False  # Something that was durable is not among these (P7.4).
    bad_tokens: tuple[int, ...] = ()  # Journal records whose bytes are not what was written.
    met: Met | None = None  # The newest metadata that was met; a killed process has written it.
    starts: StartCount = NEVER_STARTED  # As its identity has them (P7.9).
    is_newest_gone: bool = False  # The number of the journal file that was used last, by the journal's note.


class MemoryBookieStorage:
    """The port `DurableBookie` on a device that exists in memory and syncs when `commit` is called."""

    def __init__(
        self,
        survivors: Survivors,
        *,
        flush_bytes: int = FLUSH_BYTES,
        ledgers_max: int = LEDGERS_MAX,
        may_have_lost: bool = False,
        start_id: bytes | None = None,
    ) -> None:
        """may_have_lost: its owner declares that something may be gone, and a damaged journal is continued behind the
        damage. start_id: of a simulation, in which every run is the same."""
        self.incarnation = survivors.incarnation
        self.place = "memory"
        self.starts = Starts(survivors.starts, lambda count: None, start_id)
        self.may_have_lost = survivors.may_have_lost or may_have_lost
        self.met = survivors.met
        self.table = LedgerTable(ledgers_max)
        self.add_path: AddPath | None = None
        self.store = MemoryEntryStore()
        self._counting = HoldingCount()
        self.flush_bytes = flush_bytes
        self.is_read_only = False  # Switch: the device has no room, so the host refuses normal adds (P7.8).
        self.entry_logs = list(survivors.entry_logs)
        self.records = list(survivors.records)  # Durable, above the mark.
        self.pending: list[StoredRecord] = []  # Queued, lost in a crash.
        self.mark = self.entry_logs[-1].mark if self.entry_logs else 0
        self._failure: str | None = None
        self._sync_fault: str | None = None
        self._frozen: MemoryEntryLog | None = None
        self._unflushed: dict[tuple[int, int], bytes] = {}
        self._unflushed_bytes = 0
        self._scrub_after = (-1, -1)  # (ledger, entry) that was read last.
        self._scrubbed: ScrubPiece | None = None
        self._scrub_damages: dict[tuple[int | None, int | None], ScrubDamage] = {}
        for entry_log in self.entry_logs:
            self.table.load(entry_log.states)
            for ledger_id, entry_id, raw in entry_log.entries:
                self.store.put_entry(ledger_id, entry_id, raw)
        bad = {record.token for record in self.records} & set(survivors.bad_tokens)
        if bad and not self.may_have_lost:
            raise DamagedJournal(
                f"journal record {min(bad)} is not what was written, and later ones are there",
                hint="start it with may_have_lost=True",
            )
        for record in self.records:
            if record.token not in bad:
                replay_record(
                    self.table,
                    self._put,
                    record.token,
                    record.kind,
                    record.ledger_id,
                    memoryview(record.body),
                )
        self._durable = self.records[-1].token if self.records else self.mark
        self._next_token = self._durable + 1
        read = [record.token for record in self.records if record.token not in bad]
        self.replayed: tuple[int, ...] = (read[-1] if read else self.mark,)  # As `BookieStorage.replayed`.
        for ledger_id in list(self.store.ids):
            row = self.table.get(ledger_id)
            if row is not None and row.is_dropped:
                self.drop(ledger_id)
        self.table.retire(self._durable)
        if survivors.is_newest_gone:
            self.note_less("its newest journal file is gone")
        if bad:
            self._flush_now()  # All readable records go into an entry log; the journal begins behind the damage.

    # --- the port ---------------------------------------------------------------------------------------

    def keep_met(self, met: Met, *, is_synced: bool) -> None:
        if is_synced and self.is_read_only:  # A new file, which a device without room has no place for.
            raise StorageError("which metadata was met cannot be written: no room")
        self.met = met

    def next_token(self) -> int:
        return self._next_token

    def append(self, kind: int, ledger_id: int, body: Buffer) -> int:
        if self._failure is not None:
            raise StorageError(f"the journal has failed: {self._failure}")
        token = self._next_token
        self._next_token += 1
        self.pending.append(StoredRecord(token, kind, ledger_id, bytes(body)))
        return token

    def put_frame(self, frame: Frame) -> int:
        self._put(frame)
        return self.append(RecordKind.FRAME, frame.ledger_id, frame.body)

    def drop(self, ledger_id: int) -> None:
        """Drop the ledger from memory, and from what is not flushed yet. What entry logs hold of it is seen again if
        recovery brings the ledger back before the next start, as on a disk where no file has gone yet."""
        self.store.drop(ledger_id)
        self._unflushed = {key: raw for key, raw in self._unflushed.items() if key[0] != ledger_id}

    def note_less(self, reason: str) -> None:
        logger.error("this bookie has less than it had: %s; what is missing counts as unknown (P7.9)", reason)
        self.may_have_lost = True

    def durable_tokens(self) -> tuple[int, ...]:
        return (self._durable,)

    def sync(self) -> None:
        self.commit()

    def end_loss(self) -> None:
        self.may_have_lost = False

    def kick(self) -> None: ...

    def durable(self) -> int:
        return self._durable

    def failed(self) -> str | None:
        return self._failure

    def filenos(self) -> list[int]:
        return []

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound:
        asked = (ledger_id, first, last, bytes_max, modulus, residues)
        return self.store.read(*asked, from_memory=from_memory)

    def held(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int = 1,
        residues: int = 1,
        cuts: Sequence[int] = (),
        wants: int = Digests.NONE,
    ) -> EntriesHeld | None:
        asked = (ledger_id, first, last, modulus, residues)
        return self._counting.held(self.store, self.scrub_damages(), *asked, cuts, wants)

    def block_numbers(self, blocks: Sequence[tuple[int, bytes]]) -> tuple[list[int | None], int]:
        return self._counting.numbers(self.table, self.scrub_damages(), self.starts.seed, blocks)

    def queued_bytes(self) -> int:
        return sum(len(record.body) for record in self.pending)

    def cached_bytes(self) -> int:
        return self._unflushed_bytes

    def quiet_bytes(self) -> int:
        return 0  # Nothing takes adds beside the core.

    def begin_flush_if_due(self, *, is_due: bool = False) -> bool:
        """Freeze what is not in an entry log yet; a crash before `finish_flush` leaves the journal as it was."""
        if self._frozen is not None or not (is_due or self._unflushed_bytes >= self.flush_bytes):
            return False
        self.table.retire(self._durable)
        entries = tuple((*key, raw) for key, raw in sorted(self._unflushed.items()))
        self._frozen = MemoryEntryLog(entries, self.table.take_dirty(), self._durable)
        self._unflushed, self._unflushed_bytes = {}, 0
        self.store.flushed = set()
        return True

    def finish_flush(self) -> bool:
        if self._frozen is None:
            return False
        ensure(self._frozen.mark >= self.mark, "the log mark never falls (I45)")
        self.entry_logs.append(self._frozen)
        self.store.flushed = {(ledger_id, entry_id) for ledger_id, entry_id, _ in self._frozen.entries}
        self.mark, self._frozen = self._frozen.mark, None
        self.records = [record for record in self.records if record.token > self.mark]
        return True

    def _flush_now(self) -> None:
        self.begin_flush_if_due(is_due=True)
        self.finish_flush()

    def begin_scrub(self, bytes_max: int) -> bool:
        """The stored entries in (ledger, entry) order, those of the entry logs only."""
        if self._scrubbed is not None or not self.entry_logs:
            return False
        held = (
            self.store.entries
        )  # Entries that were dropped since stay in their entry log, and are not read any more.
        stored = sorted(
            {
                (ledger, entry)
                for log in self.entry_logs
                for ledger, entry, _ in log.entries
                if entry in held.get(ledger, ())
            }
        )
        bytes_read = 0
        damages: list[ScrubDamage] = []
        place = bisect.bisect_right(stored, self._scrub_after)
        while place < len(stored) and bytes_read < bytes_max:
            ledger_id, entry_id = self._scrub_after = stored[place]
            bytes_read += len(self.store.entries[ledger_id][entry_id])
            if (ledger_id, entry_id) in self.store.unreadable:
                damages.append(
                    ScrubDamage("memory", place, "entries are damaged", ledger_id, entry_id, entry_id)
                )
            place += 1
        is_pass_end = place == len(stored)
        if is_pass_end:
            self._scrub_after = (-1, -1)
        self._scrubbed = ScrubPiece(bytes_read, tuple(damages), is_pass_end)
        return True

    def finish_scrub(self) -> ScrubPiece | None:
        piece, self._scrubbed = self._scrubbed, None
        for damage in piece.damages if piece is not None else ():
            self._scrub_damages[damage.ledger_id, damage.first_entry] = damage
        return piece

    def scrub_damages(self) -> list[ScrubDamage]:
        return [damage for key, damage in sorted(self._scrub_damages.items()) if key in self.store.unreadable]

    def rebuild_left(self) -> RebuildLeft:
        return RebuildLeft(0, 0)  # Made of values: there is no index that could be lost.

    def begin_rebuild(self, bytes_max: int) -> bool:
        return False

    def finish_rebuild(self) -> RebuildPiece | None:
        return None

    def has_room(self, *, is_urgent: bool = False) -> bool:
        return True

    def is_full(self) -> bool:
        return self.is_read_only

    def why_full(self) -> str:
        return ""

    def note_level(self, level: int) -> None: ...

    def look_at_directories(self) -> None: ...

    def read_only_reason(self) -> str | None:
        return None

    def retry_flush(self) -> None: ...

    def log_facts(self) -> list[LogFacts]:
        return []  # Made of values: nothing is gained by copying them.

    def log_keepers(self, log_id: int, after: int, most: int) -> list[EntryLogKeeper]:
        return []

    def begin_copy(self, log_ids: Sequence[int]) -> None:
        raise StorageError("this storage has no entry logs to copy", definite=True)

    def copy_slice(self, byte_count: int) -> None:
        raise StorageError("nothing is being copied", definite=True)

    def poll_copy(self) -> tuple[int, bool] | None:
        return None

    def close(self) -> None:
        self.commit()

    # --- the simulator's side ---------------------------------------------------------------------------

    def commit(self, count: int | None = None) -> int:
        """One sync of the first `count` pending records (None: all); returns the durable token."""
        if self._failure is None and self._sync_fault is not None:
            self._failure = self._sync_fault
        if self._failure is None:
            count = len(self.pending) if count is None else count
            self.records += self.pending[:count]
            del self.pending[:count]
            self._durable = self.records[-1].token if self.records else self.mark
        return self._durable

    def crash(self) -> Survivors:
        """The content after a power cut now: entry logs that were finished, and journal records that were synced."""
        return Survivors(
            self.incarnation,
            tuple(self.entry_logs),
            tuple(self.records),
            self.may_have_lost,
            met=self.met,
            starts=self.starts.kept,
        )

    def lose(self, records: int | None = None, *, entry_logs: int = 0) -> Survivors:
        """The content after a crash that also took the newest journal records (None: all of them) and entry logs.

        The node that starts from it is told that something may be lost, but not what.
        """
        kept_logs = self.entry_logs[: len(self.entry_logs) - entry_logs]
        kept = [] if records is None or entry_logs else self.records[: max(0, len(self.records) - records)]
        return Survivors(
            self.incarnation,
            tuple(kept_logs),
            tuple(kept),
            may_have_lost=True,
            met=self.met,
            starts=self.starts.kept,
        )

    @staticmethod
    def damage(survivors: Survivors, token: int) -> Survivors:
        """The content when the bytes of one durable journal record are bad: a start refuses unless `may_have_lost` is
        given. The last record cannot be told from a torn one (JOURNAL.md, section 4): it is lost without a report."""
        if survivors.records and survivors.records[-1].token == token:
            return replace(survivors, records=survivors.records[:-1])
        return replace(survivors, bad_tokens=(*survivors.bad_tokens, token))

    def fail_next_sync(self, reason: str | None) -> None:
        """Switch: the next commit fails, and with it the journal, for good (P7.6). None takes that back."""
        self._sync_fault = reason

    def make_unreadable(self, ledger_id: int, entry_id: int) -> None:
        """Switch: the entry is stored and its bytes are bad, until a valid copy replaces them."""
        self.store.unreadable.add((ledger_id, entry_id))

    def _put(self, frame: Frame) -> None:
        self.store.put(frame)
        for entry_id, raw in raw_entries(frame):
            self._unflushed[frame.ledger_id, entry_id] = raw
        self._unflushed_bytes += len(frame.body)
