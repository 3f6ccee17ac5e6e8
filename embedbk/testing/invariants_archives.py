"""Checks of archives: P8.14, what may be freed and what is there then, by what was written and by what metadata said.

Decides nothing about the bookies: what they may drop, I35 says (`invariants_life.py`), by the metadata of the ledger.
"""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from embedbk.codec.frame import frame_of, split
from embedbk.codec.freed_ledger import LOG_OF_LEDGER
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.log_archives import ArchiveRecord, ArchiveState, archived_ledger, decode_archive_record
from embedbk.errors import StorageError
from embedbk.testing.ghost import LedgerGhost
from embedbk.testing.invariants_cursors import CursorWatch
from embedbk.testing.sometimes import Sometimes
from embedbk.testing.violation import Violation

__all__ = ["ArchiveWatch"]

_RECORDS = "/log-archives/"


class ArchiveWatch:
    """What was archived of each ledger, and what its log's keys say about that."""

    def __init__(self, sometimes: Sometimes, cursors: CursorWatch) -> None:
        self._sometimes = sometimes
        self._cursors = cursors
        self._written: dict[tuple[str, int, bytes], bytes] = {}
        self._records: dict[tuple[str, int], ArchiveRecord] = {}
        self._begins: dict[int, int] = {}  # The first offset of each ledger, by the lists.

    def take_written(self, log_id: str, ledger_id: int, manifest: bytes, content: bytes) -> None:
        self._written[log_id, ledger_id, manifest] = content

    def take_begin(self, ledger_id: int, first_offset: int | None) -> None:
        if first_offset is not None:
            self._begins[ledger_id] = first_offset

    def take_key(self, key: str, new: bytes | None) -> None:
        log_id, _, _ = key.removeprefix(_RECORDS).rpartition("/")
        ledger_id = archived_ledger(key, log_id) if key.startswith(_RECORDS) else None
        if ledger_id is None:
            return
        self._records.pop((log_id, ledger_id), None)
        if new is not None:
            with contextlib.suppress(StorageError):  # A stranger's.
                self._records[log_id, ledger_id] = decode_archive_record(new, ledger_id)

    def may_be_freed(self, ledger: LedgerGhost, new: LedgerMetadata) -> None:
        """P8.14: freed on proof. A ledger is freed when it is CLOSED, its archive was verified by a later epoch than
        its writer's, no cursor stands below its end, and no repair is marked; and every entry of it stands in the files
        that the manifest names, as its writer made it. Its files become no others; it comes back to bookies, which hold
        all of it (I36), as it was."""
        old = ledger.metadata
        if ledger.deleted is not None:
            if new != ledger.closed_last and new.freed is not None:  # It is not what the tombstone kept.
                self._stands_in_files(ledger, new)
                self._sometimes.note("truncated ledger back in its files")
            return
        if old is not None and old.freed is not None:
            if new.freed is None:
                self._came_back(old, new)
            elif replace(new.freed, path=old.freed.path) != old.freed:  # Their archive may move.
                raise Violation("P8.14", f"ledger {ledger.ledger_id} was freed, and its files are others now")
            return
        if new.freed is None:
            return
        if old is None or not old.is_closed or ledger.is_marked or new.lost or old.last_entry is None:
            raise Violation(
                "P8.14", f"ledger {ledger.ledger_id} was freed, and was {old}, marked {ledger.is_marked}"
            )
        self._is_held_by_nobody(ledger.ledger_id, new.custom[LOG_OF_LEDGER].decode(), old.last_entry)
        self._stands_in_files(ledger, new)
        self._sometimes.note("ledger freed")

    def _stands_in_files(self, ledger: LedgerGhost, new: LedgerMetadata) -> None:
        """By a verified archive, with every entry as its writer made it."""
        assert new.freed is not None and new.last_entry is not None
        log_id = new.custom[LOG_OF_LEDGER].decode()
        record = self._records.get((log_id, ledger.ledger_id))
        if record is None or (record.state, record.manifest) != (ArchiveState.VERIFIED, new.freed.manifest):
            raise Violation("P8.14", f"ledger {ledger.ledger_id} was freed, and its archive is {record}")
        content = self._written.get((log_id, ledger.ledger_id, record.manifest))
        if content is None:
            raise Violation("P8.14", f"ledger {ledger.ledger_id} was freed, and nobody wrote its files")
        entries = dict(split(frame_of(memoryview(content), ledger.ledger_id)))
        if list(entries) != list(range(new.last_entry + 1)):
            raise Violation(
                "P8.14", f"ledger {ledger.ledger_id} was freed, and its files have {list(entries)}"
            )
        for entry_id, raw in enumerate(ledger.sent):
            if entry_id in entries and entries[entry_id] != raw:
                raise Violation(
                    "P8.14",
                    f"ledger {ledger.ledger_id} was freed, and its files have another entry {entry_id}",
                )

    def _came_back(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        if new.with_changes(fragments=old.fragments, freed=old.freed) != old:
            raise Violation("P8.14", f"ledger {new.ledger_id} came back from files, and is {new}, not {old}")
        self._sometimes.note("freed ledger brought back")

    def _is_held_by_nobody(self, ledger_id: int, log_id: str, last_entry: int) -> None:
        begins = self._begins.get(ledger_id)
        for name, stands in self._cursors.holding(log_id):
            if begins is not None and stands < begins + last_entry + 1:
                raise Violation(
                    "P8.14", f"ledger {ledger_id} was freed, and cursor {name!r} stands at offset {stands}"
                )
