"""One step of a ledger's archive (P8.14): its record changes, if the job still has the log's archive lock.

Decides which steps are allowed, and what a refused or unknown change means. Each transaction compares the record as it
was read, the ledger's metadata, which is CLOSED and named by this log, and the epoch of the lock. So a job that was
paused and lost the lock changes nothing, and nothing is recorded about a ledger that is gone.

    no record --claim--> COPYING --copied--> COPIED --verified, by a later epoch--> VERIFIED
                           ^  '-- claim of a later epoch: the same slices again        |  |
                           '------------ claim anew ------ COPIED <-- doubted ---------'  |
                           '------------ claim anew --------------------------------------'

    RECORD -> LEDGER -> CHANGE -> ended; refused or unknown -> RECORD again, and the LOCK where it was refused
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import (
    ArchiveRecord,
    ArchiveState,
    archive_path,
    decode_archive_record,
    encode_archive_record,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
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
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import (
    EmbedbkError,
    LockLost,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    StorageError,
)

__all__ = ["ArchiveChange", "ArchiveStep", "Claim", "Copied", "Doubted", "Verified", "next_record"]


class Claim(NamedTuple):
    """The job copies this ledger from now on. anew: also if it is copied already, as its files are damaged."""

    slice_entries: int
    anew: bool = False


class Copied(NamedTuple):
    """All files are durable, and the manifest of this hash names them."""

    manifest: bytes


class Verified(NamedTuple):
    """All files that the manifest of this hash names were read, and are sound."""

    manifest: bytes


class Doubted(NamedTuple):
    """Something is wrong with what the manifest of this hash names."""

    manifest: bytes


ArchiveStep = Claim | Copied | Verified | Doubted


def next_record(
    record: ArchiveRecord | None, ledger: LedgerMetadata, step: ArchiveStep, epoch: int, wall_ms: int
) -> ArchiveRecord | None:
    """The record after this step; None: it stays as it is.

    Raises MetadataConflict, definite: the step is not allowed now; says why.
    """
    if isinstance(step, Claim):
        if ledger.freed is not None:
            raise _conflict(
                ledger, record, "its bookies gave their copies up, and its files are all there is"
            )
        if record is not None and record.state != ArchiveState.COPYING and not step.anew:
            return None
        assert ledger.last_entry is not None
        # A job that continues another job's copying cuts the same slices, so it finds the files that are there.
        goes_on = record is not None and record.state == ArchiveState.COPYING
        slice_entries = record.slice_entries if record is not None and goes_on else step.slice_entries
        last = ledger.last_entry
        return ArchiveRecord(
            METADATA_VERSION,
            ledger.ledger_id,
            ArchiveState.COPYING,
            epoch,
            slice_entries,
            last,
            b"",
            0,
            wall_ms,
        )
    if isinstance(step, Copied):
        if record is None or record.state != ArchiveState.COPYING or record.epoch != epoch:
            raise _conflict(ledger, record, f"it is not copied under epoch {epoch} now")
        return replace(record, state=ArchiveState.COPIED, manifest=step.manifest, changed_ms=wall_ms)
    if record is None or record.state == ArchiveState.COPYING or record.manifest != step.manifest:
        raise _conflict(ledger, record, "another manifest counts by now")
    if isinstance(step, Doubted):
        if record.state == ArchiveState.COPIED:
            return None
        return replace(record, state=ArchiveState.COPIED, verified_epoch=0, changed_ms=wall_ms)
    if record.epoch >= epoch:
        raise _conflict(ledger, record, f"epoch {record.epoch} wrote it, and epoch {epoch} would verify it")
    # One that is read again stays VERIFIED since the first time: else verifying often would never free anything.
    since_ms = record.changed_ms if record.state == ArchiveState.VERIFIED else wall_ms
    return replace(record, state=ArchiveState.VERIFIED, verified_epoch=epoch, changed_ms=since_ms)


def _conflict(ledger: LedgerMetadata, record: ArchiveRecord | None, why: str) -> MetadataConflict:
    stands = (
        "is not begun" if record is None else f"is {ArchiveState(record.state).name} of epoch {record.epoch}"
    )
    return MetadataConflict(f"the archive of ledger {ledger.ledger_id} {stands}: {why}", definite=True)


class ArchiveChange(Retrying):
    """Ends with the record as it stands then, or with an error: LockLost, MetadataConflict, NoSuchLedger,
    MetadataUnavailable, StorageError."""

    def __init__(
        self, log_id: str, ledger_id: int, step: ArchiveStep, lock_key: str, epoch: int, wall_ms: int
    ) -> None:
        """lock_key: the key of the log's archive lock; epoch: of this job's hold."""
        super().__init__()
        self.log_id = log_id
        self.ledger_id = ledger_id
        self.wanted = step
        self.lock_key = lock_key
        self.epoch = epoch
        self.wall_ms = wall_ms
        self.record: ArchiveRecord | None = None
        self.record_revision = ABSENT
        self.put: ArchiveRecord | None = (
            None  # What the transaction in flight, or of unknown outcome, would put.
        )
        self.is_unknown = False

    def _on_started(self, event: Started) -> list[Effect]:
        return self._again()

    def _again(self) -> list[Effect]:
        return [ReadKey("record", archive_path(self.log_id, self.ledger_id))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        try:
            if event.tag == "record":
                return self._on_record(event)
            return self._on_ledger(event) if event.tag == "ledger" else self._on_lock(event)
        except (StorageError, MetadataConflict) as refused:
            return self._fail(refused)

    def _on_record(self, event: KeyRead) -> list[Effect]:
        self.record, self.record_revision = None, ABSENT
        if event.value is not None:
            self.record = decode_archive_record(event.value, self.ledger_id)
            self.record_revision = event.revision
        if self.is_unknown and self.record is not None and self.record == self.put:
            return [Ended(None, self.record)]  # Ours, whose outcome was lost: nobody else has this epoch.
        return [ReadKey("ledger", ledger_key_path(self.ledger_id))]

    def _on_ledger(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            return self._fail(
                NoSuchLedger(f"ledger {self.ledger_id} of log {self.log_id!r} is gone", definite=True)
            )
        ledger = decode_ledger_metadata(event.value, self.ledger_id)
        if (
            ledger.custom.get("log") != self.log_id.encode()
            or not ledger.is_closed
            or ledger.last_entry == -1
        ):
            return self._fail(
                MetadataConflict(
                    f"ledger {self.ledger_id} is no closed ledger with entries of log {self.log_id!r}",
                    definite=True,
                )
            )
        made = next_record(self.record, ledger, self.wanted, self.epoch, self.wall_ms)
        if made is None:
            return [Ended(None, self.record)]
        self.put = made
        path = archive_path(self.log_id, self.ledger_id)
        when = [
            Compare(path, self.record_revision),
            Compare(ledger_key_path(self.ledger_id), event.revision),
            Compare(self.lock_key, self.epoch),
        ]
        return [Transact("change", when, [Put(path, encode_archive_record(made))])]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.is_done:
            return [Ended(None, self.put)]
        return [ReadKey("lock", self.lock_key)]

    def _on_lock(self, event: KeyRead) -> list[Effect]:
        if event.value is None or event.revision != self.epoch:
            why = f"the archive lock of log {self.log_id!r}, held under epoch {self.epoch}, is lost"
            return self._fail(LockLost(f"{why}; nothing more of ledger {self.ledger_id} is recorded"))
        return self._pause(event)  # Record or ledger changed: look again.

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        what = f"the archive of ledger {self.ledger_id} is not recorded: {event.reason}"
        return self._fail(MetadataUnavailable(what, definite=True))

    def _fail(self, why: EmbedbkError) -> list[Effect]:
        """A change of unknown outcome may still take effect."""
        if self.is_unknown:
            why.definite = False
        return [Ended(why)]

    def _on_unknown(self, event: TransactUnknown) -> list[Effect]:
        """The record as it stands settles it, or another change from the same revision (P2.2)."""
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
