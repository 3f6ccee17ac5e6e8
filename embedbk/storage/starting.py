"""The start of a bookie's storage: what its journals hold above the marks of its entry logs, back in table and write
cache (P7.3, P7.4, P7.5, I42, I44).

Decides the order, when the write cache is flushed in between, and how a damaged journal is gone on behind. Leaves to
others: what a record means (replay.py), what is left of a damaged journal (salvage.py), what the bookie does about a
loss (core/limbo_entering.py).

    states and marks of the entry logs ─▶ journal 1 above its mark ─▶ journal 2 above its mark ... ─▶ journals for adds

A device without room keeps no bookie from its start (I53, P7.8): what its write cache held when it stopped fits into
the write cache again, in both halves, and the running bookie flushes it as soon as there is room.

All of one ledger is in one journal, so the journals are read one behind the other and not merged. Tokens over all are
counted anew from the sum of the marks; that they end where the sum of all journals does is checked.
"""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from embedbk.config import FRAME_BYTES_MAX
from embedbk.errors import StorageError, ensure
from embedbk.ports.entry_store import DeviceFull
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.journal import FIRST_FILE_BYTES, DamagedJournal, Journal, UnreadableJournal
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.ledger_table import NativeLedgerTable
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.probe import choose_sync
from embedbk.storage.replay import replay_record
from embedbk.storage.salvage import JournalSalvage, SalvageFacts

__all__ = ["RECORD_OVERHEAD_BYTES", "JournalTerms", "Start"]

logger = logging.getLogger(__name__)

Records = Iterable[tuple[int, int, int, memoryview]]  # own token, kind, ledger_id, body

RECORD_OVERHEAD_BYTES = 64  # Bytes of a record beside its body, for the bound of the write cache.
_LOOK_SHARE = (
    16  # While a flush would find too little room, its device is asked again after this part of flush_bytes.
)
_ROOM_HINT = (
    "make room on the device of its entry logs, and start it again; nothing is lost, the journal is kept"
)
_DAMAGE_HINT = (
    f"if no better copy of its directories exists, start it with --may-have-lost, or with an empty file {LOSS_FILE} in "
    "its directory: then it goes on behind the damage, and what is missing counts as unknown until it is repaired"
)


@dataclass(frozen=True, slots=True)
class JournalTerms:
    """How the journals are opened. identity: for new ones of a simulated disk, which is the same in every run."""

    paths: Sequence[str]
    file_bytes: int
    threaded: bool
    io: MemoryDisk | None = None
    identity: bytes = b""


class Start:
    """One start; `run` gives the journals, open, and everything in them is durable and taken in then.

    Args:
        flush_bytes: of records taken in, after which the write cache goes into entry logs.
        cache_bytes_max: of entries in each half of the write cache, beside a largest frame.
        free_bytes: room on the device of the entry logs; None: it cannot be measured.
        may_have_lost: the owner declares that something may be gone: a damaged journal is continued behind its damage.
        notes_used: these journals have noted what they used before, so that a note that is gone is a loss (P7.9).
        on_less: called once a journal has less than was used; its consequences are durable when it returns.
    """

    def __init__(
        self,
        bookie_id: str,
        table: NativeLedgerTable,
        store: NativeEntryStore,
        terms: JournalTerms,
        *,
        flush_bytes: int,
        cache_bytes_max: int,
        free_bytes: Callable[[], int | None],
        may_have_lost: bool,
        notes_used: bool,
        on_less: Callable[[str], None],
    ) -> None:
        self.bookie_id = bookie_id
        self.notes_used = notes_used
        self.on_less = on_less
        self.table = table
        self.store = store
        self.terms = terms
        self.flush_bytes = flush_bytes
        self.cache_bytes_max = cache_bytes_max
        self.free_bytes = free_bytes
        self.may_have_lost = may_have_lost
        self.unflushed_bytes = 0
        self.has_flushed = False
        self.no_room: DeviceFull | None = None  # Why the frozen half is still to be flushed.
        self._flush_at = flush_bytes
        self._flushed = self._stored_marks()  # For each journal: entry logs have everything up to there.
        self._marks = list(self._flushed)  # Records up to there are taken in.
        self.replayed = list(self._flushed)  # As the marks, but never past a record that was not read.
        self._frozen: list[int] = []  # As they were at the last freeze.

    def run(self) -> list[Journal]:
        """Raises:
        StorageError: a journal is in use, damaged, or does not reach down to its mark; says which and what to do.
        """
        for line in self.store.reports():
            logger.error("bookie %s: %s", self.bookie_id, line)
        for states in self.store.take_states():
            self.table.load(states)
        opened: list[Journal] = []
        try:
            for number in range(len(self.terms.paths)):
                opened.append(self._start_one(number))
                ensure(
                    opened[-1].next_token() == self._marks[number] + 1,
                    "the journal goes on where its replay ended",
                )
        except BaseException:
            for journal in opened:
                journal.close()
            raise
        return opened

    def _stored_marks(self) -> list[int]:
        count, mark, marks = len(self.terms.paths), self.store.log_mark(), self.store.journal_marks()
        if not marks and (count == 1 or mark == 0):
            return [mark] + [0] * (count - 1)
        if len(marks) != count or count == 1:
            raise StorageError(
                f"bookie {self.bookie_id}: its entry logs were written beside {len(marks) or 1} journals; given were "
                f"{count}",
                hint="give all journal directories that it was made with, in their order",
            )
        return marks

    # --- One journal -------------------------------------------------------------------------------------

    def _start_one(self, number: int) -> Journal:
        journal: Journal | None = None
        lack, is_short = "", False
        try:
            journal = self._open(number)
            lack = self._lack_of(number, journal)
            is_short = bool(lack) and journal.used().opened_token < self._marks[number]
            self._take(number, journal.replay(self._marks[number]))
        except (DamagedJournal, UnreadableJournal) as refused:
            if journal is not None:
                journal.close()
            if isinstance(refused, UnreadableJournal) and not self.may_have_lost:
                raise
            self._go_on_behind(number, refused, is_short=is_short)
            journal = self._open(number)
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        if lack or not journal.used().is_noted:
            journal.accept_used()
        return journal

    def _lack_of(self, number: int, journal: Journal) -> str:
        """Report records that the journal noted as used and that are missing (P7.9); the report is durable when it
        returns."""
        used = journal.used()
        lack = used.lack(self._marks[number])
        if self.notes_used and not used.is_noted:
            lack = "its note of what was used is gone"
        if lack:
            self.on_less(f"of journal {journal.directory} something is missing: {lack}")
        return lack

    def _open(self, number: int) -> Journal:
        terms = self.terms
        return Journal(
            terms.paths[number],
            io=terms.io,
            file_bytes=terms.file_bytes,
            first_file_bytes=FIRST_FILE_BYTES,
            threaded=terms.threaded,
            sync_apart=terms.io is None and choose_sync(terms.paths[number]).is_apart,
            identity=_identity_of(terms.identity, number) if terms.io is not None else None,
        )

    def _take(self, number: int, records: Records) -> None:
        """Take over records; a long journal does not have to fit into the write cache."""
        marks = self._marks
        total = sum(marks)
        for own, kind, ledger_id, body in records:
            if self.unflushed_bytes >= self._flush_at:
                self._make_room()
            total += own - marks[number]
            replay_record(self.table, self.store.put, total, kind, ledger_id, body)
            marks[number] = self.replayed[number] = own
            self.unflushed_bytes += len(body) + RECORD_OVERHEAD_BYTES

    def _go_on_behind(self, number: int, damage: StorageError, *, is_short: bool) -> None:
        """Take in what is left of a damaged journal and let it begin anew behind the damage (P7.4, I42).

        Only if nothing above the log mark is missing, or the owner knows of the loss: then `may_have_lost` brings
        every ledger that is not closed into fence and limbo before anything is served. The mark passes the damage
        before the journal does, so that a crash in between leads back to here. The journal is read twice, to judge it
        and to take it in; what was judged is what is taken in, or the start is refused. is_short: that its end is gone
        is known already, and all there is of it is whole.
        """
        with self._salvage(number) as salvage:
            runs = _runs(salvage.records())
            facts = salvage.facts()
            if facts.may_have_lost and not (self.may_have_lost or is_short):
                raise DamagedJournal(f"{damage.args[0]}; {_missing(facts)}", hint=_DAMAGE_HINT) from damage
        with self._salvage(number) as salvage:
            self._take(number, _again(salvage.records(), runs, self.terms.paths[number]))
            _ensure_same(salvage.facts(), facts, self.terms.paths[number])
            self._marks[number] = facts.start_token - 1  # Above what was read: `replayed` stays.
            self._flush_behind_damage()
            salvage.finish()
        logger.error(
            "bookie %s goes on behind a damaged journal (%s); %s; its records begin with %d now",
            self.bookie_id,
            facts.damage or damage.args[0],
            _missing(facts) if facts.may_have_lost else "nothing was lost: all of it was in entry logs",
            facts.start_token,
        )

    def _flush_behind_damage(self) -> None:
        try:
            self._flush()
        except DeviceFull as full:  # The mark must pass the damage first, so this start cannot wait for room.
            raise StorageError(
                f"bookie {self.bookie_id} cannot go on behind its damaged journal: {full}", hint=_ROOM_HINT
            ) from full

    def _salvage(self, number: int) -> JournalSalvage:
        return JournalSalvage(
            self.terms.paths[number],
            after=self._flushed[number],
            io=self.terms.io,
            file_bytes=min(FIRST_FILE_BYTES, self.terms.file_bytes),
        )

    def _make_room(self) -> None:
        """Make room for one more record in the write cache; as little as possible stays in it.

        Raises:
            StorageError: both halves are full, and the device has no room for either.
        """
        is_full = self.store.active_bytes() + FRAME_BYTES_MAX > self.cache_bytes_max
        if not is_full and (self.no_room is not None or self._is_device_low()):
            self._flush_at = self.unflushed_bytes + self.flush_bytes // _LOOK_SHARE
            return
        try:
            self._flush()
        except DeviceFull as full:
            if self.store.active_bytes():
                raise StorageError(
                    f"bookie {self.bookie_id}: its journal holds more than its write cache, and entry logs cannot be "
                    f"written: {full}",
                    hint=_ROOM_HINT,
                ) from full
            logger.error("bookie %s: a flush failed, its start goes on: %s", self.bookie_id, full)

    def _is_device_low(self) -> bool:
        """A flush would likely find too little room: the half that it freezes takes nothing more until it succeeds."""
        free = self.free_bytes()
        return free is not None and free < 2 * self.unflushed_bytes

    def _flush(self) -> None:
        """Flush: everything that was taken in so far is in entry logs, under the marks of the last records.

        Raises:
            DeviceFull: the half that is frozen, or was, waits for room; the other half is as it was.
        """
        if self.no_room is not None:
            self._write_frozen()
        marks = self._marks
        taken = self.store.freeze(self.table.take_dirty(), sum(marks), marks if len(marks) > 1 else ())
        ensure(taken, "one frozen half at a time")
        self._frozen = list(marks)
        self.unflushed_bytes = 0
        self._flush_at = self.flush_bytes
        self._write_frozen()

    def _write_frozen(self) -> None:
        try:
            self.store.flush_until_done(threaded=self.terms.threaded)
        except DeviceFull as full:
            self.no_room = full
            raise
        self.no_room = None
        self.store.release()
        self._flushed = self._frozen
        self.has_flushed = True


def _identity_of(identity: bytes, number: int) -> bytes:
    """The identity of journal `number` of a simulated disk: a group of one journal is never valid in another."""
    return (int.from_bytes(identity, "little") ^ number).to_bytes(len(identity), "little")


def _runs(records: Records) -> list[range]:
    """The tokens of records, as runs without a gap."""
    runs: list[range] = []
    for own, *_ in records:
        if runs and runs[-1].stop == own:
            runs[-1] = range(runs[-1].start, own + 1)
        else:
            runs.append(range(own, own + 1))
    return runs


def _again(records: Records, runs: list[range], path: str) -> Records:
    """The same records, read once more.

    Raises:
        UnreadableJournal: others than before, before one of them is given: a mark would pass what is lacking.
    """
    expected = itertools.chain.from_iterable(runs)
    for record in records:
        if next(expected, None) != record[0]:
            raise _changed(path)
        yield record
    if next(expected, None) is not None:
        raise _changed(path)


def _ensure_same(found: SalvageFacts, judged: SalvageFacts, path: str) -> None:
    """Raises UnreadableJournal: another reading of the journal came to another judgement."""
    fields = operator.attrgetter("start_token", "missing_count", "may_have_lost")
    if fields(found) != fields(judged):
        raise _changed(path)


def _changed(path: str) -> UnreadableJournal:
    return UnreadableJournal(
        f"journal {path} is damaged, and read twice it gave different records: a read that failed for a moment looks "
        "like a loss",
        hint="look at its device, and whether the process has descriptors and memory left, then start it again; the "
        "journal is as it was",
    )


def _missing(facts: SalvageFacts) -> str:
    if facts.missing_count:
        return f"acknowledged records are missing: {facts.missing_count}"
    return "whether acknowledged records are missing cannot be told"
