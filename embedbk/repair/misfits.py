"""Finding closed ledgers whose numbers of copies are not those of their log's settings, and marking them (P2.6, P8.7).

Decides which ledgers are looked at. Where `after` is none, all are, page by page, so many per second; else those that
are newer, and first, one by one, those that an earlier search left: open ones, those that were marked, and those for
which too few bookies were there. A ledger is marked under the name of one of its bookies that is registered, so no seat
of it counts as lost by that; whoever repairs it reads the settings, and gives it its shape (`reshaping.py`).

    STARTED ─▶ what was left, one read each ─▶ a page of ledgers ─▶ marks ─▶ a pause ─▶ the next page ─▶ ... ─▶ Ended
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.repair_messages import REPAIRS_MAX, MarkRepairs, RepairsMarked
from embedbk.config import Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import KeyRead, KeysListed, ListKeys, MetadataFailed, ReadKey
from embedbk.core.repair_words import AskQuorum, QuorumAnswered
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.repair.reshaping import is_misfit, log_of

__all__ = ["Misfits", "MisfitSearch", "SearchOptions"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    page_ledgers: int = 100
    ledgers_per_s: int = 2_000
    left_max: int = 10_000  # Ledgers that are left and remembered; beyond, all are looked at next time.

    @property
    def pace_ns(self) -> int:
        return self.page_ledgers * 1_000_000_000 // self.ledgers_per_s


class Misfits(NamedTuple):
    """What a search found. newest: the highest ledger id that it saw. left: ledgers to be looked at next time, as far
    as they are remembered. marked: how many got a mark. is_whole: it came to its end, and remembers all that it
    left."""

    newest: int
    left: tuple[int, ...]
    marked: int
    is_whole: bool


class MisfitSearch(Machine):
    """Ends with Misfits. One question at a time; one without an answer ends it, and what it found counts."""

    def __init__(
        self,
        wanted: Mapping[str, Quorum],
        bookies: Sequence[BookieInfo],
        after: int,
        again: Sequence[int],
        wall_ms: int,
        options: SearchOptions = SearchOptions(),
    ) -> None:
        """wanted: by the id of the log. after: the newest ledger that was seen; NO_ENTRY: none was. again: ledgers that
        were left, none above it."""
        self.wanted = wanted
        self.there = {info.member for info in bookies}
        self.writable = sum(info.is_writable for info in bookies)
        self.newest = after
        # The last key of the last page: a stranger's may stand behind all ledgers (P2.5).
        self.page_end = ledger_key_path(after) if after != NO_ENTRY else LEDGERS_PREFIX
        self.again = list(again)
        self.wall_ms = wall_ms
        self.options = options
        self.to_mark: list[tuple[int, tuple[str, ...]]] = []
        self.left: dict[int, None] = {}
        self.has_more = True
        self.marked = 0
        self.is_whole = True
        self.due_ns: int | None = None

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _on_started(self, event: Started) -> list[Effect]:
        return self._go_on(event.now_ns)

    def _go_on(self, now_ns: int) -> list[Effect]:
        if self.to_mark and (len(self.to_mark) >= REPAIRS_MAX or not self.again):
            return [AskQuorum("mark", MarkRepairs(tuple(self.to_mark[:REPAIRS_MAX]), self.wall_ms))]
        if self.again:
            return [ReadKey("again", ledger_key_path(self.again[0]))]
        if self.has_more:
            return [ListKeys("page", LEDGERS_PREFIX, self.page_end, self.options.page_ledgers)]
        return self._end()

    def _end(self, *, is_whole: bool = True) -> list[Effect]:
        for ledger_id in self.again:
            self._leave(ledger_id)
        return [Ended(None, Misfits(self.newest, tuple(self.left), self.marked, self.is_whole and is_whole))]

    def _leave(self, ledger_id: int) -> None:
        if len(self.left) < self.options.left_max:
            self.left[ledger_id] = None
        else:
            self.is_whole = False

    def _judge(self, ledger_id: int, value: bytes | None) -> None:
        try:
            metadata = None if value is None else decode_ledger_metadata(value, ledger_id)
        except StorageError:
            return  # What cannot be read stays as it is (P2.5).
        if metadata is None:
            return
        log = log_of(metadata)
        wanted = None if log is None else self.wanted.get(log)
        if wanted is None or metadata.quorum == wanted:
            return
        if not metadata.is_closed:
            self._leave(ledger_id)
        elif is_misfit(metadata, wanted):
            self._leave(ledger_id)
            named = self._named(metadata)
            if named and wanted.ensemble_size <= self.writable:
                self.to_mark.append((ledger_id, named))

    def _named(self, metadata: LedgerMetadata) -> tuple[str, ...]:
        """One of its bookies that is there. Where none is, its copies are the auditor's matter."""
        members = (member for fragment in metadata.fragments for member in fragment.members)
        found = next((member for member in members if member in self.there), None)
        return () if found is None else (found.bookie_id,)

    def _on_read(self, event: KeyRead) -> list[Effect]:
        self._judge(self.again.pop(0), event.value)
        return self._go_on(event.now_ns)

    def _on_listed(self, event: KeysListed) -> list[Effect]:
        for key, value in event.records:
            self.page_end, ledger_id = key, ledger_of_key(key)
            if ledger_id is not None:
                self.newest = ledger_id
                self._judge(ledger_id, value)
        self.has_more = event.has_more and bool(event.records)
        if event.has_more and not event.records:
            return self._end(is_whole=False)  # A page without keys that others follow.
        if self.has_more:
            self.due_ns = event.now_ns + self.options.pace_ns
            return []
        return self._go_on(event.now_ns)

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        self.due_ns = None
        return self._go_on(event.now_ns)

    def _on_quorum(self, event: QuorumAnswered) -> list[Effect]:
        if not isinstance(event.result, RepairsMarked):
            return self._end()  # There is no room for marks, say: the ledgers are left.
        self.marked += min(REPAIRS_MAX, len(self.to_mark)) - len(event.result.left)
        del self.to_mark[:REPAIRS_MAX]
        return self._go_on(event.now_ns)

    def _on_failed(self, event: MetadataFailed) -> list[Effect]:
        return self._end(is_whole=False)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        KeyRead: _on_read,
        KeysListed: _on_listed,
        QuorumAnswered: _on_quorum,
        MetadataFailed: _on_failed,
    }
