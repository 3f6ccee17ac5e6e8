"""Freeing one archived ledger (P8.14): its bookies give their copies up for files, by one transaction.

Decides when that is allowed, and what a refused or unknown change means. Leaves to others that the files were read just
now and are sound (`archive/freeing.py`), and the dropping: fragments that name no bookie are all that the collector's
own rule needs (P7.7). Nothing follows from what is missing: what cannot be read, and what is not known for certain,
frees nothing.

    RECORD -> LEDGER -> PINS -> which CURSORS hold -> where each stands -> MARKS of repair -> FREE -> ended
        refused or unknown -> RECORD again, and the LOCK where it was refused

The transaction compares all that was looked at: the record (VERIFIED, of this manifest, for long enough), the ledger's
metadata, pins and cursors as in a truncation (core/truncating.py), that no repair is marked or was given up, and the
epoch of the archive's lock.
"""

from __future__ import annotations

import enum
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from embedbk.codec.freed_ledger import BY_CHARS, LOG_OF_LEDGER, Freed
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_archives import (
    ArchivePlace,
    ArchiveRecord,
    ArchiveState,
    archive_path,
    decode_archive_record,
)
from embedbk.codec.log_cursors import (
    CursorHold,
    cursor_path,
    decode_cursor,
    decode_log_cursors,
    log_cursors_path,
)
from embedbk.codec.log_pins import decode_log_pins, log_pins_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.repair_state import unrepairable_path
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.retrying import Retrying
from embedbk.core.truncation import live_pins
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import EmbedbkError, LockLost, MetadataUnavailable, NoSuchLedger, NotFreed, StorageError
from embedbk.ids import NO_ENTRY

__all__ = ["FreeTerms", "Freeing", "Kept"]


class Kept(enum.Enum):
    """Why the bookies of a ledger keep their copies."""

    UNVERIFIED = "unverified"  # No job has verified the archive, or another one than was read just now.
    YOUNG = "young"  # It was verified too short a time ago.
    OPEN = "open"  # Not CLOSED, empty, or not this log's.
    LOST = "lost"  # Entries of it were given up: the file has not all of it.
    PIN = "pin"
    CURSOR = "cursor"
    REPAIR = "repair"  # A repair of it is marked, or was given up.


class FreeTerms(NamedTuple):
    """What the caller that frees a ledger knows about it."""

    manifest: bytes  # Hash of the manifest whose files were read just now, and are sound.
    place: ArchivePlace
    end_offset: int  # The dense offset behind its last entry: what stands below it holds it.
    keep_lag_ms: int  # For so long it must have been VERIFIED.
    by: str  # For people.


class Freeing(Retrying):
    """Ends with the ledger's metadata, freed, or with an error: NotFreed, LockLost, NoSuchLedger, MetadataUnavailable,
    StorageError."""

    def __init__(
        self, log_id: str, ledger_id: int, terms: FreeTerms, lock_key: str, epoch: int, wall_ms: int
    ) -> None:
        """lock_key: the key of the log's archive lock; epoch: of this job's hold."""
        super().__init__()
        self.log_id = log_id
        self.ledger_id = ledger_id
        self.terms = terms
        self.lock_key = lock_key
        self.epoch = epoch
        self.wall_ms = wall_ms
        self.round = 0  # Part of each tag: an answer of a round that was given up says nothing.
        self.when: list[Compare] = []  # What was looked at in this round.
        self.record: ArchiveRecord | None = None
        self.ledger: LedgerMetadata | None = None
        self.asked: set[str] = set()  # Cursors that hold, whose place is still to be read.
        self.marks: dict[str, None] = {}  # Keys of marks that are still to be read.
        self.put: LedgerMetadata | None = None
        self.is_unknown = False

    def _on_started(self, event: Started) -> list[Effect]:
        return self._again()

    def _again(self) -> list[Effect]:
        self.round += 1
        self.when, self.asked, self.marks = [], set(), {}
        return [self._read("record", archive_path(self.log_id, self.ledger_id))]

    def _read(self, kind: str, key: str, name: str = "") -> ReadKey:
        return ReadKey((kind, self.round, name), key)

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        kind, number, name = event.tag
        if number != self.round:
            return []
        try:
            if kind == "record":
                return self._on_record(event)
            if kind == "ledger":
                return self._on_ledger(event)
            if kind == "pins":
                return self._on_pins(event)
            if kind == "cursors":
                return self._on_cursors(event)
            if kind == "cursor":
                return self._on_cursor(event, name)
            if kind == "mark":
                return self._on_mark(event, name)
            return self._on_lock(event)
        except (StorageError, NotFreed) as refused:  # What cannot be read frees nothing.
            return self._fail(refused)

    def _looked_at(self, key: str, event: KeyRead) -> None:
        self.when.append(Compare(key, ABSENT if event.value is None else event.revision))

    def _on_record(self, event: KeyRead) -> list[Effect]:
        path = archive_path(self.log_id, self.ledger_id)
        record = None if event.value is None else decode_archive_record(event.value, self.ledger_id)
        self._looked_at(path, event)
        self.record = record
        return [self._read("ledger", ledger_key_path(self.ledger_id))]

    def _on_ledger(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            gone = f"ledger {self.ledger_id} of log {self.log_id!r} is gone"
            return self._fail(NoSuchLedger(gone, definite=True))
        self.ledger = ledger = decode_ledger_metadata(event.value, self.ledger_id)
        if ledger.freed is not None and ledger.freed.manifest == self.terms.manifest:
            return [Ended(None, ledger)]  # Freed by us, with a lost outcome, or by an earlier job.
        self._looked_at(ledger_key_path(self.ledger_id), event)
        self._check(ledger, self.record)
        return [self._read("pins", log_pins_path(self.log_id))]

    def _check(self, ledger: LedgerMetadata, record: ArchiveRecord | None) -> None:
        """Raises NotFreed: the ledger or its record forbid it."""
        is_whole = ledger.is_closed and ledger.last_entry != NO_ENTRY
        if not is_whole or ledger.custom.get(LOG_OF_LEDGER) != self.log_id.encode():
            raise self._kept(Kept.OPEN, f"it is no closed ledger with entries of log {self.log_id!r}")
        if ledger.lost:
            raise self._kept(
                Kept.LOST, "entries of it were given up, and its files have not all of the others"
            )
        terms = self.terms
        if record is None or record.state != ArchiveState.VERIFIED or record.manifest != terms.manifest:
            raise self._kept(Kept.UNVERIFIED, f"no archive with manifest {terms.manifest.hex()} is verified")
        if record.last_entry != ledger.last_entry:
            raise self._kept(
                Kept.UNVERIFIED,
                f"its archive ends at {record.last_entry}, and the ledger at {ledger.last_entry}",
            )
        # A clock that is behind the one by which it was verified makes it younger, never older.
        age_ms = self.wall_ms - record.changed_ms
        if age_ms < terms.keep_lag_ms:
            why = f"it was verified {age_ms / 1000:g} s ago, and copies are kept for {terms.keep_lag_ms / 1000:g} s"
            raise self._kept(Kept.YOUNG, why)

    def _kept(self, kept: Kept, why: str) -> NotFreed:
        error = NotFreed(
            f"the bookies of ledger {self.ledger_id} keep their copies: {why}; nothing was changed"
        )
        error.kept = kept.value
        return error

    def _on_pins(self, event: KeyRead) -> list[Effect]:
        pins = decode_log_pins(event.value, self.log_id).pins if event.value is not None else ()
        self._looked_at(log_pins_path(self.log_id), event)
        for pin in live_pins(pins, self.wall_ms):
            if pin.offset < self.terms.end_offset:
                raise self._kept(Kept.PIN, f"pin {pin.name!r} stands at offset {pin.offset}")
        return [self._read("cursors", log_cursors_path(self.log_id))]

    def _on_cursors(self, event: KeyRead) -> list[Effect]:
        """Read which cursors hold before where each stands: one that moves back, or is made, changes this key, too."""
        cursors = decode_log_cursors(event.value, self.log_id).cursors if event.value is not None else ()
        self._looked_at(log_cursors_path(self.log_id), event)
        self.asked = {each.name for each in cursors if each.hold == CursorHold.HOLDS}
        if not self.asked:
            return self._read_marks()
        return [self._read("cursor", cursor_path(self.log_id, name), name) for name in sorted(self.asked)]

    def _on_cursor(self, event: KeyRead, name: str) -> list[Effect]:
        if name not in self.asked:
            return []
        self.asked.discard(name)
        if event.value is None:  # Deleted since it was named: nobody can tell from here whether it held.
            self.asked = set()
            return self._pause(event)
        stands = decode_cursor(event.value, self.log_id, name).offset
        if stands < self.terms.end_offset:
            raise self._kept(Kept.CURSOR, f"cursor {name!r} stands at offset {stands}")
        return [] if self.asked else self._read_marks()

    def _read_marks(self) -> list[Effect]:
        self.marks = dict.fromkeys((repair_mark_path(self.ledger_id), unrepairable_path(self.ledger_id)))
        return [self._read("mark", key, key) for key in self.marks]

    def _on_mark(self, event: KeyRead, key: str) -> list[Effect]:
        if key not in self.marks:
            return []
        if event.value is not None:
            raise self._kept(Kept.REPAIR, "a repair of it is marked, or was given up")
        del self.marks[key]
        self._looked_at(key, event)
        return [] if self.marks else self._free()

    def _free(self) -> list[Effect]:
        ledger, terms = self.ledger, self.terms
        assert ledger is not None
        freed = Freed(
            terms.place.archive_id, terms.place.path, terms.manifest, self.wall_ms, terms.by[:BY_CHARS]
        )
        fragments = tuple(replace(each, ensemble=()) for each in ledger.fragments)
        self.put = ledger.with_changes(fragments=fragments, freed=freed)
        when = [*self.when, Compare(self.lock_key, self.epoch)]
        return [
            Transact("free", when, [Put(ledger_key_path(self.ledger_id), encode_ledger_metadata(self.put))])
        ]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.is_done:
            return [Ended(None, self.put)]
        return [self._read("lock", self.lock_key)]

    def _on_lock(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            why = f"the archive lock of log {self.log_id!r}, held under epoch {self.epoch}, is lost"
            return self._fail(LockLost(f"{why}; ledger {self.ledger_id} is not freed by this job"))
        return self._pause(event)  # Something else has changed: look again.

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        what = f"ledger {self.ledger_id} is not freed: {event.reason}"
        return self._fail(MetadataUnavailable(what, definite=True))

    def _fail(self, why: EmbedbkError) -> list[Effect]:
        """End with an error; it is not definite if a change of unknown outcome may still take effect."""
        if self.is_unknown:
            why.definite = False
        return [Ended(why)]

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        """The outcome is unknown: the ledger as it stands settles it, or another change from the same revision
        (P2.2)."""
        self.is_unknown = True
        return self._pause(event)

    HANDLERS: ClassVar[Handlers] = {
        **Retrying.HANDLERS,
        Started: _on_started,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: _on_unknown,
        MetadataFailed: Retrying._pause,
    }
