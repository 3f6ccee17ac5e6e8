"""The records of a catalog, with what is known of all of them together: their bytes, by kind too, the sum of their
digests, and which of them say what needs repair (METADATA.md, 2; P10.7, I72, P11).

All of that changes with each record, whichever command changed it, so records are changed here alone; `packed_records`
decides what one costs in memory. Leaves to the catalog what a record says, and to `session_table` whose it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.ledger_metadata import ledger_of_key
from embedbk.codec.metadata_messages import Record
from embedbk.codec.repair_mark import REPAIR_PREFIX, repair_mark_path
from embedbk.errors import StorageError
from embedbk.metadata.claims import REPAIRERS_PREFIX, REPAIRING_PREFIX, repairing_path
from embedbk.metadata.cutting import CatalogCut
from embedbk.metadata.digesting import record_digest
from embedbk.metadata.limits import record_bytes
from embedbk.metadata.packed_records import PackedRecords
from embedbk.metadata.repair_index import RepairIndex
from embedbk.metadata.weights import Weights

__all__ = ["RecordTable"]

_OF_REPAIRS = (REPAIR_PREFIX, REPAIRING_PREFIX, REPAIRERS_PREFIX)


class RecordTable:
    """A caller that changes a record has looked up what stood under its key, and passes it."""

    def __init__(self) -> None:
        # In the order of their keys by code point, which is also UTF-8 order. To be read only.
        self.packed = PackedRecords()
        self.bytes = 0  # Bytes of all records.
        self.weights = Weights()  # The same by kind.
        self.sum = 0  # The sum of the digests of all records; digest_of takes it modulo.
        self.repairs = RepairIndex()  # An index of the marks, holds and waiters among them.
        self.cut: CatalogCut | None = None  # It is notified before every change.

    def put(self, record: Record, before: Record | None, growth: int) -> None:
        """Put a record in the place of `before`; None: there was none. growth: by how many bytes it is larger."""
        if self.cut is not None:
            self.cut.keep_record(record.key, before)
        self.packed.put(record)
        self.sum += record_digest(record)
        if before is not None:
            self.sum -= record_digest(before)
        if growth:
            self.bytes += growth
            self.weights.add(record.key, growth)
        if record.key.startswith(_OF_REPAIRS):  # Nearly no key is.
            self._note_repair(record.key, record)

    def remove(self, before: Record) -> None:
        """Remove a record that is there."""
        key, size = before.key, record_bytes(before)
        if self.cut is not None:
            self.cut.keep_record(key, before)
        self.packed.remove(key)
        self.sum -= record_digest(before)
        self.bytes -= size
        self.weights.add(key, -size)
        if key.startswith(_OF_REPAIRS):
            self._note_repair(key, None)

    def load(self, records: Sequence[Record]) -> None:
        """Add records of a snapshot in key order, behind the present ones. Raises StorageError: they are not in order,
        or one has values that no record can have."""
        if not self.packed.extend(records):
            raise StorageError("the keys of a metadata snapshot are out of order")
        for record in records:
            size = record_bytes(record)
            self.sum += record_digest(record)
            self.bytes += size
            self.weights.add(record.key, size)
            if record.key.startswith(_OF_REPAIRS):
                self._note_repair(record.key, record)

    def _note_repair(self, key: str, record: Record | None) -> None:
        """Keep the index of marks, holds and waiters up to date, whichever command changed the key, which is of one."""
        if key.startswith(REPAIRERS_PREFIX):
            self.repairs.note_waiter(key, record)
            return
        is_mark = key.startswith(REPAIR_PREFIX)
        ledger_id = ledger_of_key(key, REPAIR_PREFIX if is_mark else REPAIRING_PREFIX)
        if ledger_id is not None:
            hold = self.packed.get(repairing_path(ledger_id))
            mark = self.packed.get(repair_mark_path(ledger_id))
            self.repairs.note_mark(ledger_id, mark, is_held=hold is not None and hold.session != 0)
