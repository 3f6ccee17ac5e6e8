"""Truncating a log (P8.3): the list first, then the ledgers that it named, which are deleted like any others (P2.3).

Decides what a refused or unknown change of the list means, and which ledgers are deleted: those that the key of
truncated ledgers names, that are CLOSED and this log's by their metadata, and that the list at the version compared
does not name. `core.truncation` decides how much may go.

    DROP what an earlier one left -> LIST, the settings that ask for it, pins, which cursors hold, where they stand,
        the oldest page and what is behind it -> CUT, one transaction -> DROP -> ended; with more to do when a whole
        page went

What a crash leaves between CUT and DROP stands under `/logs/NAME/truncated`: the next truncation deletes it, or the
next takeover, which runs `Dropping` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_cursors import (
    CursorHold,
    CursorRecord,
    LogCursors,
    NamedCursor,
    cursor_path,
    decode_cursor,
    decode_log_cursors,
    encode_log_cursors,
    log_cursors_path,
)
from embedbk.codec.log_list import (
    LedgersLeft,
    LogList,
    LogSegment,
    decode_ledgers_left,
    decode_log_list,
    encode_ledgers_left,
    encode_log_list,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.log_pages import decode_log_page, log_page_path
from embedbk.codec.log_pins import LogPins, PinRecord, decode_log_pins, encode_log_pins, log_pins_path
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.codec.tombstone import TOMBSTONE_VERSION, Tombstone, encode_tombstone, tombstone_path
from embedbk.config import LEDGERS_LEFT_MAX
from embedbk.core.log_paging import recorded_bytes
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
from embedbk.core.truncation import Held, HoldingCursor, Terms, TruncationVerdict, judge, live_pins, without
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import MetadataUnavailable, NoSuchLedger, StorageError, WrongPassword

__all__ = ["Dropping", "LogTruncating", "Round"]

_BATCH = 32  # Ledgers of one transaction: each is compared, deleted, and given a tombstone.
_BATCH_BYTES = 256 << 10  # Bytes of their metadata, which the tombstones hold.
_FRONT_MAX = 256  # Ledgers of one round, where the list has no page in front.


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round of truncation."""

    began: int  # The first offset of the log before it, and after it.
    reached: int
    ledgers: int  # So many left the list.
    held: Held | None  # None: more may go, in another round.
    by: str = ""  # The name of the pin or cursor that held.
    expired: tuple[str, ...] = ()  # Pins that were taken away, as their time was over.
    ended: tuple[tuple[str, CursorHold], ...] = ()  # Cursors that hold no more, and why.


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


class LogTruncating(Dropping):
    """One round: at most a page of ledgers, or those of the list itself. Ends with a Round, or with an error."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        verifier: bytes,
        wall_ms: int,
        grace_ms: int,
        *,
        notes_places: bool = False,
    ) -> None:
        """verifier: of the log's password. notes_places: note what the list says of each ledger that goes, so that it
        can be put back (P8.15), as far as the cluster's level allows that."""
        super().__init__(name, wall_ms, grace_ms)
        self.notes_places = notes_places
        self.terms = terms
        self.verifier = verifier
        self.round: Round | None = None  # Once the list was changed, or nothing of it may go.
        self.log_list: LogList | None = None
        self.pins: tuple[PinRecord, ...] = ()
        self.pins_revision = ABSENT
        self.cursors: tuple[NamedCursor, ...] = ()
        self.cursors_revision = ABSENT
        # Cursors that hold: where they stand, its revision.
        self.holders: dict[str, tuple[CursorRecord, int]] = {}
        self.asked: set[str] = set()  # Cursors whose place is still to be read.
        self.missed_at: int | None = None  # A cursor that these name was not there.
        self.front: tuple[LogSegment, ...] = ()
        self.verdict = TruncationVerdict(0, None)
        self.pending: Round | None = None  # The result of our last change of the list, if that takes effect.

    def _dropped(self) -> list[Effect]:
        if self.round is not None:
            return [Ended(None, self.round)]
        return [ReadKey("list", log_key_path(self.name))]

    def _on_key_read(self, event: KeyRead) -> list[Effect]:
        kind = event.tag[0] if isinstance(event.tag, tuple) else event.tag
        try:
            if kind == "list":
                return self._on_list(event)
            if kind == "settings":
                return self._on_settings(event)
            if kind == "pins":
                return self._on_pins(event)
            if kind == "cursors":
                return self._on_cursors(event)
            if kind == "cursor":
                return self._on_cursor(event)
            if kind == "page":
                return self._on_page(event)
            if kind == "behind":
                return self._on_behind(event)
            if kind == "first":
                return self._on_first(event)
        except StorageError as unread:
            return [Ended(unread)]  # A list that cannot be read is not judged: it stays as it is.
        return super()._on_key_read(event)

    def _on_list(self, event: KeyRead) -> list[Effect]:
        if event.value is None:
            return [Ended(NoSuchLedger(f"there is no log {self.name!r}", hint="check the name"))]
        self.log_list = decode_log_list(event.value, self.name)
        self.list_revision = event.revision
        if self.pending is not None and self.log_list.first_offset >= self.pending.reached:
            # It was refused, or its outcome is unknown: the wanted list stands there, by this change, an earlier one,
            # or another client's.
            self.round = self.pending
            return self._again()
        if self.terms.settings_at is not None:
            return [ReadKey("settings", log_settings_path(self.name))]
        return [ReadKey("pins", log_pins_path(self.name))]

    def _on_settings(self, event: KeyRead) -> list[Effect]:
        """Settings that were changed since ask for nothing any more: the client that follows them asks anew."""
        assert self.log_list is not None
        if (event.revision if event.value is not None else ABSENT) != self.terms.settings_at:
            began = self.log_list.first_offset
            return [Ended(None, Round(began, began, 0, Held.REACHED))]
        return [ReadKey("pins", log_pins_path(self.name))]

    def _on_pins(self, event: KeyRead) -> list[Effect]:
        assert self.log_list is not None
        self.pins = decode_log_pins(event.value, self.name).pins if event.value is not None else ()
        self.pins_revision = event.revision if event.value is not None else ABSENT
        return [ReadKey("cursors", log_cursors_path(self.name))]

    def _on_cursors(self, event: KeyRead) -> list[Effect]:
        """Read which cursors hold before where each stands: one that moves back, or is made, changes this key too, so
        that whatever is read behind it holds as long as this key stays as it is."""
        self.cursors = decode_log_cursors(event.value, self.name).cursors if event.value is not None else ()
        self.cursors_revision = event.revision if event.value is not None else ABSENT
        self.holders = {}
        self.asked = {each.name for each in self.cursors if each.hold == CursorHold.HOLDS}
        if not self.asked:
            return self._read_front()
        return [ReadKey(("cursor", name), cursor_path(self.name, name)) for name in sorted(self.asked)]

    def _on_cursor(self, event: KeyRead) -> list[Effect]:
        name = event.tag[1]
        if name not in self.asked:
            return []
        if event.value is None:
            self.asked = set()
            if self.missed_at == self.cursors_revision:
                raise StorageError(
                    f"log {self.name!r}: its cursor {name!r} stands nowhere; nothing was truncated"
                )
            self.missed_at = self.cursors_revision
            return self._pause(event)  # Deleted since it was named.
        self.asked.discard(name)
        self.holders[name] = (decode_cursor(event.value, self.name, name), event.revision)
        return [] if self.asked else self._read_front()

    def _read_front(self) -> list[Effect]:
        assert self.log_list is not None
        pages = self.log_list.pages
        if pages is not None and self.log_list.has_pages:
            return [ReadKey("page", log_page_path(self.name, pages, pages.first))]
        self.front = self.log_list.segments
        return self._judge(self.front, has_more=False)

    def _on_page(self, event: KeyRead) -> list[Effect]:
        assert self.log_list is not None
        pages = self.log_list.pages
        assert pages is not None
        if event.value is None:
            return self._pause(event)  # The list has changed since it was read.
        self.front = decode_log_page(event.value, self.name, pages.first).segments[pages.skipped :]
        if pages.first + 1 == pages.end:
            return self._judge((*self.front, *self.log_list.segments), has_more=False)
        return [ReadKey("behind", log_page_path(self.name, pages, pages.first + 1))]

    def _on_behind(self, event: KeyRead) -> list[Effect]:
        assert self.log_list is not None
        assert self.log_list.pages is not None
        if event.value is None:
            return self._pause(event)
        behind = decode_log_page(event.value, self.name, self.log_list.pages.first + 1).segments
        return self._judge((*self.front, *behind), has_more=True)

    def _judge(self, window: tuple[LogSegment, ...], *, has_more: bool) -> list[Effect]:
        assert self.log_list is not None
        length = recorded_bytes(self.log_list)
        count = min(len(self.front), _FRONT_MAX, LEDGERS_LEFT_MAX - len(self.staying))
        pins = live_pins(self.pins, self.wall_ms)
        holders = [self._holder(each) for each in self.cursors if each.name in self.holders]
        self.verdict = judge(
            window, count, self.terms, pins, length, holders, has_more=has_more, now_ms=self.wall_ms
        )
        if not self.verdict.going:
            began = self.log_list.first_offset
            return [Ended(None, Round(began, began, 0, self.verdict.held, self.verdict.by))]
        return [ReadKey(("first", self.front[0].ledger_id), ledger_key_path(self.front[0].ledger_id))]

    def _holder(self, cursor: NamedCursor) -> HoldingCursor:
        record, _ = self.holders[cursor.name]
        is_idle = cursor.idle_ms is not None and record.moved_ms + cursor.idle_ms <= self.wall_ms
        return HoldingCursor(cursor.name, record.offset, is_idle, cursor.bytes_behind)

    def _on_first(self, event: KeyRead) -> list[Effect]:
        """All ledgers of a log have one password: a wrong one changes nothing (P3.5)."""
        if event.value is not None:
            metadata = decode_ledger_metadata(event.value, event.tag[1])
            if metadata.password_verifier != self.verifier:
                return [Ended(WrongPassword(f"log {self.name!r} has another password; nothing was changed"))]
        return self._cut()

    def _cut(self) -> list[Effect]:
        """Cut the list first, in a transaction that checks it, the pins and the cursors, and that notes the ledgers to
        delete. It also notes, by name, each cursor whose hold it ends."""
        assert self.log_list is not None
        gone = self.front[: self.verdict.going]
        new = without(self.log_list, self.front, self.verdict.going, reserves=self.notes_places)
        if self.notes_places:
            self.places.update((segment.ledger_id, segment) for segment in gone)
        live = live_pins(self.pins, self.wall_ms)
        expired = tuple(pin.name for pin in self.pins if pin not in live)
        left = (*self.staying, *(segment.ledger_id for segment in gone))
        when = [
            Compare(log_key_path(self.name), self.list_revision),
            Compare(log_pins_path(self.name), self.pins_revision),
            Compare(log_cursors_path(self.name), self.cursors_revision),
            Compare(log_truncated_path(self.name), self.left_revision),
        ]
        if self.terms.settings_at is not None:
            when.append(Compare(log_settings_path(self.name), self.terms.settings_at))
        then: list[Put | Delete] = []
        ended = dict(self.verdict.ended)
        if ended:
            # One that was moved meanwhile is neither idle nor behind, as far as anybody has looked.
            when += [Compare(cursor_path(self.name, each), self.holders[each][1]) for each in ended]
            named = tuple(replace(each, hold=ended.get(each.name, each.hold)) for each in self.cursors)
            value = encode_log_cursors(LogCursors(METADATA_VERSION, named))
            then.append(Put(log_cursors_path(self.name), value))
        if expired:
            then.append(Put(log_pins_path(self.name), encode_log_pins(LogPins(METADATA_VERSION, live))))
        then += [
            Put(log_key_path(self.name), encode_log_list(new)),
            Put(log_truncated_path(self.name), self._left(left)),
        ]
        pages = self.log_list.pages
        if pages is not None and new.pages is not None and new.pages.first > pages.first:
            then.append(Delete(log_page_path(self.name, pages, pages.first)))
        verdict = self.verdict
        came_to = Round(
            self.log_list.first_offset,
            new.first_offset,
            verdict.going,
            verdict.held,
            verdict.by,
            expired,
            verdict.ended,
        )
        self.pending = came_to
        return [Transact("cut", when, then)]

    def _on_transacted(self, event: Transacted) -> list[Effect]:
        if event.tag == "cut" and event.is_done:
            self.round = self.pending
        return super()._on_transacted(event)

    def _on_refused(self, event: TransactRefused) -> list[Effect]:
        if self.round is not None:
            return [Ended(None, self.round)]  # The list was changed; the rest is for the next one.
        return super()._on_refused(event)

    HANDLERS: ClassVar[Handlers] = {
        **Dropping.HANDLERS,
        KeyRead: _on_key_read,
        Transacted: _on_transacted,
        TransactRefused: _on_refused,
    }
