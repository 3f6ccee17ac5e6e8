"""Truncating a log (P8.3): the list first, then the ledgers that it named (dropping.py).

Decides what a refused or unknown change of the list means. `core.truncation` decides how much may go.

    DROP what an earlier one left -> LIST, the settings that ask for it, pins, which cursors hold, where they stand,
        the oldest page and what is behind it -> CUT, one transaction -> DROP -> ended; with more to do when a whole
        page went

What a crash leaves between CUT and DROP stands under `/logs/NAME/truncated`: the next truncation deletes it, or the
next takeover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from embedbk.codec.field_types import METADATA_VERSION
from embedbk.codec.ledger_metadata import decode_ledger_metadata, ledger_key_path
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
    LogList,
    LogSegment,
    decode_log_list,
    encode_log_list,
    log_key_path,
    log_truncated_path,
)
from embedbk.codec.log_pages import decode_log_page, log_page_path
from embedbk.codec.log_pins import LogPins, PinRecord, decode_log_pins, encode_log_pins, log_pins_path
from embedbk.codec.log_settings import log_settings_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import LEDGERS_LEFT_MAX
from embedbk.core.dropping import Dropping
from embedbk.core.log_paging import recorded_bytes
from embedbk.core.machine import Effect, Handlers
from embedbk.core.metadata_words import KeyRead, ReadKey, Transact, Transacted, TransactRefused
from embedbk.core.truncation import Held, HoldingCursor, Terms, TruncationVerdict, judge, live_pins, without
from embedbk.core.vocabulary import Ended
from embedbk.errors import NoSuchLedger, StorageError, WrongPassword

__all__ = ["LogTruncating", "Round"]

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
