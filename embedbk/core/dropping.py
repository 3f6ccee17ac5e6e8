"""Deleting the ledgers that a truncation took from a log's list, like any others (P2.3, P8.3).

Decides which are deleted: those that the key of truncated ledgers names, that are CLOSED and this log's by their
metadata, and that the list at the version compared does not name.

    LEFT, the ledgers that stand under `/logs/NAME/truncated` -> LIST, what it names -> their metadata, some at a time
        -> DROP, one transaction -> ... -> ended

Each truncation begins and ends with this (truncating.py). A takeover runs it alone, as a crash may have left some.
"""

from __future__ import annotations

from typing import ClassVar

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_list import (
    LedgersLeft,
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.codec.tombstone import TOMBSTONE_VERSION, Tombstone, encode_tombstone, tombstone_path
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
from embedbk.errors import MetadataUnavailable, StorageError

__all__ = ["Dropping"]

_BATCH = 32  # Ledgers of one transaction: each is compared, deleted, and given a tombstone.
_BATCH_BYTES = 256 << 10  # Bytes of their metadata, which the tombstones hold.


class Dropping(Retrying):
    """Deletes the ledgers that were truncated before. Ends with None, or with an error where it cannot."""

    def __init__(self, name: str, wall_ms: int, grace_ms: int) -> None:
        """wall_ms: now, by the clock on the wall; grace_ms: for how long the ledgers can be brought back."""
        super().__init__()
        self.name = name
        self.wall_ms = wall_ms
        self.grace_ms = grace_ms
        self.waiting: list[int] = []  # Ledgers of the key of truncated ledgers, not looked at yet.
        self.places: dict[int, LogSegment] = {}  # What the list said of them, where that was noted (P8.15).
        self.left_revision = ABSENT
        self.list_revision = ABSENT
        self.named: frozenset[int] = frozenset()
        self.reading: dict[int, None] = {}
        self.batch: dict[int, tuple[bytes, int]] = {}  # Ledgers to be deleted: metadata and its revision.
        self.gone: set[int] = set()  # Deleted already, or nothing that we delete.
        self.staying: list[int] = []  # Cannot be judged: for a later one.

    def _on_started(self, event: Started) -> list[Effect]:
        return self._again()

    def _again(self) -> list[Effect]:
        """Begin again: read what is to be deleted, and what the list names."""
        return [ReadKey("left", log_truncated_path(self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        if event.tag == "left":
            return self._on_left(event)
        if event.tag == "named":
            return self._on_named(event)
        if isinstance(event.tag, tuple) and event.tag[0] == "ledger":
            return self._on_ledger(event.tag[1], event)
        return []

    def _on_left(self, event: KeyRead) -> list[Effect]:
        self.left_revision = event.revision if event.value is not None else ABSENT
        try:
            left = decode_ledgers_left(event.value) if event.value is not None else None
        except StorageError as unread:
            return [Ended(unread)]
        ids = left.ledger_ids if left is not None else ()
        self.places = {each.ledger_id: each for each in left.segments} if left is not None else {}
        self.waiting = [each for each in dict.fromkeys(ids) if each not in self.staying]
        if not self.waiting:
            return self._dropped()
        return [ReadKey("named", log_key_path(self.name))]

    def _dropped(self) -> list[Effect]:
        """Called when nothing is left that we can delete."""
        return [Ended(None)]

    def _on_named(self, event: KeyRead) -> list[Effect]:
        self.list_revision = event.revision if event.value is not None else ABSENT
        try:
            log_list = decode_log_list(event.value, self.name) if event.value is not None else None
        except StorageError as unread:
            return [Ended(unread)]
        segments = log_list.segments if log_list is not None else ()
        self.named = frozenset(segment.ledger_id for segment in segments)
        now, self.waiting = self.waiting[:_BATCH], self.waiting[_BATCH:]
        self.batch.clear()
        self.gone = {each for each in now if each in self.named}
        self.reading = dict.fromkeys(each for each in now if each not in self.named)
        if not self.reading:
            return self._drop()
        return [ReadKey(("ledger", each), ledger_key_path(each)) for each in self.reading]

    def _on_ledger(self, ledger_id: int, event: KeyRead) -> list[Effect]:
        if ledger_id not in self.reading:
            return []
        del self.reading[ledger_id]
        try:
            metadata = None if event.value is None else decode_ledger_metadata(event.value, ledger_id)
        except StorageError:
            self.staying.append(ledger_id)  # Metadata that cannot be read is not judged.
        else:
            if event.value is not None and metadata is not None and self._is_ours(metadata):
                self.batch[ledger_id] = (event.value, event.revision)
            else:
                self.gone.add(ledger_id)
        return [] if self.reading else self._drop()

    def _is_ours(self, metadata: LedgerMetadata) -> bool:
        return metadata.is_closed and metadata.custom.get("log") == self.name.encode()

    def _drop(self) -> list[Effect]:
        """Delete a batch, in one transaction that checks that the list is as it was when it named none of it."""
        size = 0
        for ledger_id, (value, _) in list(self.batch.items()):
            size += len(value)
            if size > _BATCH_BYTES and ledger_id != next(iter(self.batch)):
                self.waiting.insert(0, ledger_id)
                del self.batch[ledger_id]
        if not self.batch and not self.gone:
            return self._go_on()
        left = (*self.staying, *self.waiting)
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_truncated_path(self.name), self.left_revision),
            *(Compare(ledger_key_path(each), revision) for each, (_, revision) in self.batch.items()),
        ]
        then: list[Put | Delete] = []
        for ledger_id, (value, _) in self.batch.items():
            stone = Tombstone(
                TOMBSTONE_VERSION,
                ledger_id,
                self.wall_ms,
                self.wall_ms + self.grace_ms,
                value,
                self.places.get(ledger_id),
            )
            then += [
                Delete(ledger_key_path(ledger_id)),
                Put(tombstone_path(ledger_id), encode_tombstone(stone)),
            ]
        path = log_truncated_path(self.name)
        then.append(Put(path, self._left(left)) if left else Delete(path))
        return [Transact("drop", when, then)]

    def _left(self, ids: tuple[int, ...]) -> bytes:
        """The value that names these, with what the list said of each."""
        places = tuple(self.places[each] for each in ids if each in self.places)
        return encode_ledgers_left(LedgersLeft(METADATA_VERSION, ids, (), places))

    def _go_on(self) -> list[Effect]:
        return [ReadKey("named", log_key_path(self.name))] if self.waiting else self._dropped()

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        """If refused, the list has moved on, or another client deletes beside us."""
        return self._again()

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        """The transaction was not run, and never will be: what is left stands in its key."""
        return [
            Ended(
                MetadataUnavailable(f"log {self.name!r} cannot be truncated: {event.reason}", definite=True)
            )
        ]

    def _on_unknown(self, event: TransactUnknown | MetadataFailed) -> list[Effect]:
        """The outcome is unknown: the next read shows what is still to be done (P2.2)."""
        return self._pause(event)

    HANDLERS: ClassVar[Handlers] = {
        **Retrying.HANDLERS,
        Started: _on_started,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
        TransactUnknown: _on_unknown,
        MetadataFailed: _on_unknown,
    }
