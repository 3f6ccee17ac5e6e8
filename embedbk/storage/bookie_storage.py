"""A bookie's durable side on a disk: identity, journal, ledger table and entry store as one (P7.2, P7.3, P7.5, P7.6).

Decides in which order these are opened and closed. Leaves to others: when a caller waits for room, and when the commit
threads are woken (queueing.py), when the write cache is flushed and the journal trimmed (flushing.py), what a record
means (codec/journal_records.py, replay.py), whether a request is taken (core/bookie.py), all bytes (C).

    put_frame ─▶ write cache ──(borrowed)──▶ journal ─▶ durable()
                     │ freeze: states of changed ledgers, mark = what is durable now
                     ▼
                 entry log synced, renamed, directory synced ─▶ finish_flush ─▶ journal.trim(mark)
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from embedbk.codec.frame import Frame
from embedbk.codec.holdings_messages import Digests
from embedbk.config import FRAME_BYTES_MAX, JOURNAL_FILE_BYTES_MIN
from embedbk.core.ledger_table import LEDGERS_MAX
from embedbk.core.upkeep_words import EntryLogKeeper, LogFacts
from embedbk.core.witness import Met
from embedbk.errors import StorageError, UsageError
from embedbk.ids import START_ID_BYTES
from embedbk.metadata.levels import LEVEL_OF_RUN_DIGESTS
from embedbk.ports.entry_store import EntriesFound, EntriesHeld
from embedbk.ports.journal import Buffer
from embedbk.ports.upkeep import RebuildLeft, RebuildPiece, ScrubDamage, ScrubPiece
from embedbk.repeating import Repeating
from embedbk.storage.add_path import NativeAddPath
from embedbk.storage.directories import free_bytes_at
from embedbk.storage.entry_store import HALF_BYTES_MAX, NativeEntryStore
from embedbk.storage.flushing import FlushCycle, stored_marks
from embedbk.storage.holding import HoldingCount
from embedbk.storage.identity import HeldIdentity, open_identity
from embedbk.storage.journal import FILE_BYTES
from embedbk.storage.journals import Journals
from embedbk.storage.layout import LOSS_FILE, Layout
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.loss_note import LossNote
from embedbk.storage.lost_indexes import LostIndexes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.met_metadata import keep_met, read_met
from embedbk.storage.native import lib
from embedbk.storage.queueing import KICK_BYTES, RESERVE_BYTES, Queueing
from embedbk.storage.read_only_marker import read_only_reason
from embedbk.storage.scrubbing import SCRUB_FILE, LogScrubber
from embedbk.storage.starting import JournalTerms, Start
from embedbk.storage.starts import StartCount, Starts

__all__ = ["FLUSH_BYTES", "BookieStorage"]

logger = logging.getLogger(__name__)

FLUSH_BYTES = 64 << 20  # Journaled since the last freeze: write cache and journal have one bound.
# A flush lets the journals go first until this part of flush_bytes was put since the freeze: then it still ends, beside
# busy ones, about when the next is due.
FLUSH_YIELD_SHARE = 2
REPLAY_ROOM_BYTES = RESERVE_BYTES + FRAME_BYTES_MAX  # So that a put that was let in always fits.


class BookieStorage:
    """The port `DurableBookie`. Opening replays the journal; all calls from one thread.

    Args:
        directory: holds the journal and the entry logs; made at the first start.
        bookie_id, cluster_token: as in its identity; an empty token takes that of an existing directory.
        journal_directories: on other devices, if they should be: a record goes to the journal of its ledger. The one
            place "journal" in the directory if none is given; always the same in the same order.
        ledger_directories: for the entry logs, each on a device of its own; the one place "entries" in the directory if
            none is given. Always the same in the same order, but for new ones at the end with `expands`.
        expands: ledger directories beyond those that the bookie has are new ones, to be added for good.
        flush_bytes: how much is journaled between flushes.
        cache_bytes_max: of each half of the write cache, beside a frame of recovery (P7.8); a put beyond waits for
            the flush.
        threaded: commit and flush in native threads; else `step` does both by hand.
        may_have_lost: these directories are an older copy, or were repaired by hand: what they held may be gone. Kept
            in a file of the directory until everything that may be lost is in durable limbo (P7.4).
        may_go_back: until `note_level` says otherwise builds may come back that read no entry log of version 4 (P10.8).
        io, incarnation, starts: a `MemoryDisk` to live on, the bookie there, and which start this is, instead of the
            real disk; None: the first.

    Raises:
        UsageError: the directory is another bookie's or in use, or the settings make no sense.
        StorageError: it is wiped or damaged; says which file, where, why and what to do. A journal that may have lost
            something refuses here, unless `may_have_lost` says to go on behind it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        bookie_id: str,
        cluster_token: bytes,
        *,
        journal_directories: Sequence[str | os.PathLike[str]] = (),
        ledger_directories: Sequence[str | os.PathLike[str]] = (),
        expands: bool = False,
        flush_bytes: int = FLUSH_BYTES,
        cache_bytes_max: int = HALF_BYTES_MAX // 4,
        journal_file_bytes: int = FILE_BYTES,
        ledgers_max: int = LEDGERS_MAX,
        threaded: bool = True,
        may_have_lost: bool = False,
        may_go_back: bool = False,
        io: MemoryDisk | None = None,
        incarnation: bytes = b"",
        starts: Starts | None = None,
        notes_used: bool = False,
    ) -> None:
        layout = Layout.of(bookie_id, directory, journal_directories, ledger_directories)
        self.bookie_id = bookie_id
        self.incarnation = incarnation
        self.cluster_token = cluster_token
        self.cache_bytes_max = cache_bytes_max
        self.threaded = threaded
        # For each journal, in its own tokens: the last record that this start read, or that was in entry logs. Behind
        # damage a journal goes on further above it (JOURNAL.md section 6).
        self.replayed: tuple[int, ...] = ()
        self._root: Path | None = (
            Path(layout.root) if io is None else None
        )  # Where a read-only marker may stand.
        self.met: Met | None = None
        self._identity: HeldIdentity | None = None
        self._removed = ""  # Which of its directories was removed beneath it.
        self._journals: Journals | None = None
        self._store: NativeEntryStore | None = None
        self._lost: LostIndexes | None = None
        self._told_reports = 0  # Of the store's, by the start or since.
        self._scrubber: LogScrubber | None = None
        self._counting = HoldingCount()
        self.add_path: NativeAddPath | None = None
        self._queueing: Queueing | None = None
        self._unmeasured = Repeating(logger)
        if cache_bytes_max < 2 * FRAME_BYTES_MAX or not 0 < flush_bytes <= cache_bytes_max:
            raise UsageError(
                f"flush_bytes={flush_bytes}, cache_bytes_max={cache_bytes_max}: allowed is "
                f"0 < flush_bytes <= cache_bytes_max, and {2 * FRAME_BYTES_MAX} or more for the latter"
            )
        if io is None and journal_file_bytes < JOURNAL_FILE_BYTES_MIN:
            raise UsageError(
                f"journal_file_bytes={journal_file_bytes}: allowed is {JOURNAL_FILE_BYTES_MIN} or more, "
                f"so that the largest frame ({FRAME_BYTES_MAX} bytes) fits into one file"
            )
        self.place = f"{socket.gethostname()}:{layout.root}" if io is None else f"memory:{layout.root}"
        self.starts = starts or Starts(StartCount(), lambda count: None, bytes(START_ID_BYTES))
        try:
            if io is None:
                self._identity = open_identity(
                    layout.by_purpose(),
                    role="bookie",
                    node_id=bookie_id,
                    cluster_token=cluster_token,
                    expands="entries" if expands else "",
                )
                self.incarnation = self._identity.incarnation
                self.cluster_token = self._identity.cluster_token
                root = layout.make_root()
                try:
                    layout.note_parts()
                except OSError as refused:
                    logger.warning(
                        "bookie %s: %s cannot be written: %s", bookie_id, self._root, refused.strerror
                    )
                self._loss = LossNote(bookie_id, root / LOSS_FILE, is_declared=may_have_lost)
                self.met = read_met(root)
                self.starts = self._identity.count_start()
                notes_used = self._identity.notes_used
                if self._identity.older:
                    self.note_less(f"its directories are not of one time: {self._identity.older}")
            else:
                self._loss = LossNote(bookie_id, None, is_declared=may_have_lost)
                for path in (layout.root, *layout.entries):
                    lib.ebk_io_make_directory(io.io, os.fsencode(path))
            self.table = NativeLedgerTable(ledgers_max)
            self._measures = io is None
            self._store = NativeEntryStore(
                layout.entries,
                self.cluster_token,
                self.incarnation,
                io=io,
                half_bytes_max=cache_bytes_max + REPLAY_ROOM_BYTES,
                half_bytes_kept=flush_bytes,
            )
            self._store.set_may_go_back(may_go_back=may_go_back)
            self._lost = LostIndexes(self._store.handle, self.place, threaded=threaded)
            terms = JournalTerms(layout.journals, journal_file_bytes, threaded, io, self.incarnation)
            start = self._load(terms, flush_bytes, notes_used)
            if threaded:
                word = self._store.yield_word(flush_bytes // FLUSH_YIELD_SHARE)
                self._open_journals().show_busy(word)
            self.add_path = NativeAddPath(
                self.table,
                self._store,
                self._open_journals(),
                self.incarnation,
                cache_bytes_max=cache_bytes_max,
                kick_bytes=KICK_BYTES,
            )
            self.flushes = FlushCycle(
                bookie_id,
                self.table,
                self._store,
                self._open_journals(),
                self.add_path,
                flush_bytes=flush_bytes,
                cache_bytes_max=cache_bytes_max,
                threaded=threaded,
                measure_room=self._measure_room,
                start=start,
            )
            self._queueing = Queueing(
                self._store,
                self._open_journals(),
                self.add_path,
                self.flushes,
                cache_bytes_max=cache_bytes_max,
            )
            self._scrubber = LogScrubber(
                layout.entries,
                self.cluster_token,
                self.incarnation,
                io=io,
                threaded=threaded,
                state_path=Path(layout.root) / SCRUB_FILE if io is None else None,
            )
            if self._identity is not None:
                self._identity.serve(notes_used=self._open_journals().notes_used())
        except BaseException:
            self._release()
            raise

    # --- The port ----------------------------------------------------------------------------------------

    @property
    def may_have_lost(self) -> bool:
        return self._loss.may_have_lost

    def keep_met(self, met: Met, *, is_synced: bool) -> None:
        if self._root is not None:
            keep_met(self._root, met, is_synced=is_synced)
        self.met = met

    def next_token(self) -> int:
        return self._open_journals().next_token()

    def append(self, kind: int, ledger_id: int, body: Buffer) -> int:
        return self._open_queueing().append(kind, ledger_id, body)

    def put_frame(self, frame: Frame) -> int:
        return self._open_queueing().put_frame(frame)

    def drop(self, ledger_id: int) -> None:
        self._open_store().drop(ledger_id)

    def note_less(self, reason: str) -> None:
        self._loss.note_less(reason)

    def end_loss(self) -> None:
        self._loss.end()

    def kick(self) -> None:
        if self._queueing is not None:
            self._queueing.kick()

    def durable(self) -> int:
        return self._open_journals().durable()

    def durable_tokens(self) -> tuple[int, ...]:
        journals = self._open_journals()
        return tuple(journals.own_tokens(journals.known_durable))

    def sync(self) -> None:
        journals = self._open_journals()
        if self.failed() is None and journals.next_token() > 1:
            journals.wait(journals.next_token() - 1)
            self.durable()

    def failed(self) -> str | None:
        return self._removed or self.flushes.failure or self._open_journals().failed()

    def note_level(self, level: int) -> None:
        if level >= LEVEL_OF_RUN_DIGESTS:
            self._open_store().set_may_go_back(may_go_back=False)

    def look_at_directories(self) -> None:
        if self._identity is not None and not self._removed:
            self._removed = self._identity.removed()

    def filenos(self) -> list[int]:
        scrubber = self._open_scrubber()
        store = self._open_store()
        journals, lost = self._open_journals(), self._open_lost()
        found = (
            *journals.filenos(), store.fileno(), store.copy_fileno(), lost.fileno(), *scrubber.filenos(),
        )  # fmt: skip
        return [fileno for fileno in found if fileno >= 0]

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
        return self._open_store().read(*asked, from_memory=from_memory)

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
        if self._open_lost().may_find(ledger_id, first, last):
            return None  # What cannot be told yet is no lack (P7.1, P11.4).
        asked = (ledger_id, first, last, modulus, residues)
        return self._counting.held(self._open_store(), self.scrub_damages(), *asked, cuts, wants)

    def block_numbers(self, blocks: Sequence[tuple[int, bytes]]) -> tuple[list[int | None], int]:
        unsure = self._open_lost().ledgers()
        return self._counting.numbers(self.table, self.scrub_damages(), self.starts.seed, blocks, unsure)

    def queued_bytes(self) -> int:
        return self._open_journals().queued_bytes()

    def cached_bytes(self) -> int:
        return self._open_store().cached_bytes()

    def begin_flush_if_due(self) -> bool:
        return self.flushes.begin_if_due()

    def quiet_bytes(self) -> int:
        return self.flushes.quiet_bytes()

    def finish_flush(self) -> bool:
        return self.flushes.finish()

    def has_room(self, *, is_urgent: bool = False) -> bool:
        return self._open_queueing().has_room(is_urgent=is_urgent)

    def is_full(self) -> bool:
        """The last flush found no room, or the journal's next file does not; what is left of its file is a reserve."""
        return self.flushes.is_full or self._open_journals().is_next_refused()

    def why_full(self) -> str:
        return "; ".join(
            each for each in (self.flushes.why_full, *self._open_journals().why_refused()) if each
        )

    def read_only_reason(self) -> str | None:
        return None if self._root is None else read_only_reason(self._root)

    def retry_flush(self) -> None:
        journals = self._open_journals()
        if journals.is_next_refused():
            journals.trim(stored_marks(self._open_store(), journals))  # They prepare their next files anew.
        self.flushes.retry()

    def log_facts(self) -> list[LogFacts]:
        return self._open_store().log_facts()

    def log_keepers(self, log_id: int, after: int, most: int) -> list[EntryLogKeeper]:
        return self._open_store().log_keepers(log_id, after, most)

    def free_bytes(self) -> int:
        """Room for what comes: on the roomiest of the ledger directories that take entries, or on the journal's device
        if that has less (P7.8).

        Raises:
            OSError: a device cannot be asked.
        """
        ledgers = self._ledgers_free()
        journals = min(free_bytes_at(part.directory) for part in self._open_journals().parts)
        return journals if ledgers is None else min(ledgers, journals)

    def _ledgers_free(self) -> int | None:
        """Room on the roomiest of the ledger directories that take entries; None: it cannot be measured."""
        self._measure_room()
        return self._open_store().directories.free_bytes()

    def _measure_room(self) -> None:
        """How much is free in each ledger directory."""
        directories = self._open_store().directories.all
        for directory in directories if self._measures else ():
            try:
                directory.free_bytes = free_bytes_at(directory.path)
            except OSError as refused:
                self._unmeasured.met(
                    f"bookie {self.bookie_id} cannot tell the room in {directory.path}: {refused.strerror}"
                )
                directory.free_bytes = None

    def begin_copy(self, log_ids: Sequence[int]) -> None:
        self._measure_room()
        self._open_store().begin_copy(log_ids)

    def copy_slice(self, byte_count: int) -> None:
        store = self._open_store()
        try:
            store.copy_slice(byte_count, threaded=self.threaded)
        except StorageError:
            store.abandon_copy()  # Else it would stand in the way of every later one.
            raise

    def poll_copy(self) -> tuple[int, bool] | None:
        store = self._open_store()
        ended = store.poll_copy()
        if ended is not None and ended[1]:
            try:
                store.commit_copy(self.table)
            except StorageError:
                store.abandon_copy()
                raise
            self.flushes.want()
        return ended

    def begin_scrub(self, bytes_max: int) -> bool:
        return self._open_scrubber().begin(self._open_store().entry_logs(), bytes_max)

    def finish_scrub(self) -> ScrubPiece | None:
        return self._open_scrubber().finish(self._open_store().entry_logs())

    def scrub_damages(self) -> list[ScrubDamage]:
        return self._open_scrubber().damages()

    def rebuild_left(self) -> RebuildLeft:
        return self._open_lost().left()

    def begin_rebuild(self, bytes_max: int) -> bool:
        return self._open_lost().begin(bytes_max)

    def finish_rebuild(self) -> RebuildPiece | None:
        piece = self._open_lost().finish(self.table)
        if piece is not None and not piece.has_more:
            reports = self.reports()
            for line in reports[self._told_reports :]:
                logger.warning("bookie %s: %s", self.bookie_id, line)
            self._told_reports = len(reports)
        return piece

    def close(self) -> None:
        """Make everything durable, flush, release the directory; what cannot be flushed stays in the journal."""
        if self._store is None or self._journals is None:
            return
        try:
            if self.failed() is None:
                self.flushes.finish_all()
        except StorageError as failed:
            logger.warning(
                "bookie %s stops without a flush; its journal holds the rest: %s", self.bookie_id, failed
            )
        finally:
            self._release()

    # --- Beyond the port ---------------------------------------------------------------------------------

    def step(self) -> int:
        """Unthreaded: one group commit, if anything is queued; returns the records made durable."""
        return self._open_journals().step()

    def reports(self) -> list[str]:
        """Damage that the start met and could work around, and what was found since in its place, one sentence each."""
        return self._open_store().reports()

    def own_tokens(self, token: int) -> list[int]:
        """For each journal, in its own tokens: its last record among those up to `token`, which is durable or was
        queued by this process."""
        return self._open_journals().own_tokens(token)

    def log_mark(self) -> int:
        """The journal token up to which everything is in entry logs."""
        return self._open_store().log_mark()

    # --- Start -------------------------------------------------------------------------------------------

    def _load(self, terms: JournalTerms, flush_bytes: int, notes_used: bool) -> Start:
        """Load the entry logs' footers first, then the journals' records above their marks (P7.3, P7.5)."""
        store = self._open_store()
        began_s, mark = time.monotonic(), store.log_mark()
        start = Start(
            self.bookie_id,
            self.table,
            store,
            terms,
            flush_bytes=flush_bytes,
            cache_bytes_max=self.cache_bytes_max,
            free_bytes=self._ledgers_free,
            may_have_lost=self.may_have_lost,
            notes_used=notes_used,
            on_less=self.note_less,
        )
        journals = Journals(start.run())
        self._journals = journals
        store.lend_to(journals)
        self.replayed = tuple(start.replayed)
        self._told_reports = len(store.reports())  # By the start.
        logger.info(
            "bookie %s read its directories: %d journal records above the mark of its entry logs (%.3f s)",
            self.bookie_id,
            sum(start.replayed) - mark,
            time.monotonic() - began_s,
        )
        durable = journals.durable()
        if start.has_flushed:
            journals.trim(stored_marks(store, journals))
        store.drop_dead(self.table)
        self.table.retire(durable)
        return start

    # --- Parts -------------------------------------------------------------------------------------------

    def _open_journals(self) -> Journals:
        if self._journals is None:
            raise StorageError(f"storage of bookie {self.bookie_id} is closed", definite=True)
        return self._journals

    def _open_store(self) -> NativeEntryStore:
        if self._store is None:
            raise StorageError(f"storage of bookie {self.bookie_id} is closed", definite=True)
        return self._store

    def _open_queueing(self) -> Queueing:
        if self._queueing is None:
            raise StorageError(f"storage of bookie {self.bookie_id} is closed", definite=True)
        return self._queueing

    def _open_lost(self) -> LostIndexes:
        if self._lost is None:
            raise StorageError(f"storage of bookie {self.bookie_id} is closed", definite=True)
        return self._lost

    def _open_scrubber(self) -> LogScrubber:
        if self._scrubber is None:
            raise StorageError(f"storage of bookie {self.bookie_id} is closed", definite=True)
        return self._scrubber

    def _release(self) -> None:
        """Release everything, the journals first: they borrow from the store, and write to its yield word."""
        if self.add_path is not None:
            self.add_path = self.flushes.add_path = self._queueing = None
        scrubber, self._scrubber = self._scrubber, None
        journals, self._journals = self._journals, None
        store, self._store, self._lost = self._store, None, None
        identity, self._identity = self._identity, None
        if journals is not None:
            journals.close()
        if store is not None:
            store.close()
        if scrubber is not None:
            scrubber.close()
        if identity is not None:
            identity.close()
