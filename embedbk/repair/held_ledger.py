"""A marked ledger under a worker's hold: its mark and its metadata as they were read, and the transactions on them.

Decides what each transaction compares: the hold always, so a worker that lost it changes nothing (P9.1); the mark too
where one goes to a mark or a ledger, since bookies did not keep the copies while it was gone (P7.7); and the ledger's
metadata where they are changed. Knows the metadata that were proposed last: they are no stranger's when they are read.
"""

from __future__ import annotations

from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.codec.repair_mark import RepairMark, decode_repair_mark, encode_repair_mark, repair_mark_path
from embedbk.codec.repair_messages import EndRepairs, FailRepairs
from embedbk.codec.repair_state import Unrepairable, encode_unrepairable, unrepairable_path
from embedbk.core.metadata_words import Transact
from embedbk.core.vocabulary import Tag
from embedbk.metadata.claims import repairing_path

__all__ = ["HeldLedger"]


class HeldLedger:
    """epoch: of the hold. mark and metadata: None until they were read."""

    def __init__(self, ledger_id: int, epoch: int, mark_revision: int) -> None:
        self.hold_key = repairing_path(ledger_id)
        self.mark_key = repair_mark_path(ledger_id)
        self.ledger_key = ledger_key_path(ledger_id)
        self.ledger_id = ledger_id
        self.epoch = epoch
        self.mark: RepairMark | None = None
        self.metadata: LedgerMetadata | None = None
        self.value = b""  # The ledger's metadata as it is stored; `revision` is that of the key.
        self.revision = 0
        self._mark_revision = mark_revision
        self._proposed = b""

    # What was read.

    def is_same_mark(self, revision: int) -> bool:
        """Whether the mark of this revision stood all the time since it was read, or changed here, last."""
        return revision == self._mark_revision

    def take_mark(self, value: bytes | None, revision: int) -> bool:
        """Returns whether it is there.

        Raises:
            StorageError: it cannot be read.
        """
        self._mark_revision = revision
        if value is not None:
            self.mark = decode_repair_mark(value)
        return value is not None

    def is_known(self, value: bytes) -> bool:
        """Whether the metadata are those that were read, or proposed, last."""
        return value in (self.value, self._proposed)

    def take_ledger(self, value: bytes, revision: int) -> LedgerMetadata:
        """Raises StorageError: it cannot be read."""
        self.value = value
        self.metadata = decode_ledger_metadata(value, self.ledger_id)
        self.revision, self._proposed = revision, b""
        return self.metadata

    # What is changed.

    def compared(self) -> list[Compare]:
        """The hold and the mark."""
        return [Compare(self.hold_key, self.epoch), Compare(self.mark_key, self._mark_revision)]

    def put_mark(self, tag: Tag, mark: RepairMark) -> Transact:
        self.mark = mark
        return Transact(tag, self.compared(), [Put(self.mark_key, encode_repair_mark(mark))])

    def mark_is_put(self, revision: int) -> None:
        self._mark_revision = revision

    def put_ledger(self, tag: Tag, changed: LedgerMetadata, more: list[Compare]) -> Transact:
        """more: what else was decided by."""
        self._proposed = encode_ledger_metadata(changed)
        when = [*self.compared(), Compare(self.ledger_key, self.revision), *more]
        return Transact(tag, when, [Put(self.ledger_key, self._proposed)])

    def ledger_is_put(self, revision: int) -> None:
        self.metadata = decode_ledger_metadata(self._proposed, self.ledger_id)
        self.value, self.revision = self._proposed, revision

    # The end.

    def put_record(self, tag: Tag, found: Unrepairable) -> Transact:
        """It keeps every copy where it is, also without the mark."""
        put = Put(unrepairable_path(self.ledger_id), encode_unrepairable(found))
        return Transact(tag, [Compare(self.hold_key, self.epoch)], [put])

    def ended(self) -> EndRepairs:
        """The mark goes, unless it has changed meanwhile."""
        return EndRepairs(((self.ledger_id, self.epoch, self._mark_revision),))

    def given_back(self) -> FailRepairs:
        """The mark stays, for another try."""
        return FailRepairs(((self.ledger_id, self.epoch),))
