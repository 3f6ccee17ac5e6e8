"""Garbage collection: which ledgers of a bookie metadata does not know any more, or seats elsewhere (P7.7, I35).

Decides: what is asked, and whether the answers allow a ledger to be dropped. Leaves to others: dropping, and whether
anything came since the first question (core/bookie.py); the bytes on disk (storage).

    the bookie's ledgers, a page of them ─▶ CollectionBegun ─▶ the same range, listed
        not there, or CLOSED elsewhere ─▶ its key, read alone ─▶ a transaction that checks key, tombstone and mark
                                                                          both agree ─▶ DropAllowed

A listing only says where to look: a ledger is dropped for two reads of its own keys that agree (scenario 38), both made
after the bookie was told to watch for anything new of it. A listing that fails, ends early or is empty allows nothing.
What cannot be told or understood keeps a ledger. Metadata that never gave out an id which this bookie holds is older
than the bookie, or another cluster's: then nothing is dropped at all (O5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, decode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import ABSENT, Compare
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.limbo import is_named
from embedbk.core.machine import Handlers, Machine
from embedbk.core.vocabulary import (
    AllocateIds,
    AllowDrop,
    BeginCollection,
    Effect,
    HeldListed,
    IdsAllocated,
    KeyRead,
    KeysListed,
    ListHeld,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Started,
    Tag,
    Tick,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY

__all__ = ["Collector", "CollectorOptions"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    interval_ns: int = 900 * _SECOND  # From the end of a round to the next.
    pace_ns: int = _SECOND // 50  # Between two pages of a round: metadata serves others as well.
    # Of the bookie's ledgers asked about together, and of a page of the listing. Judged in one turn of the bookie, so
    # its adds wait for a millisecond or two.
    page_ledgers: int = 100
    alone_max: int = 16  # Of a page where the listing is empty, so many ledgers are asked about one by one.


class Collector(Machine):
    """Rounds over all ledgers of one bookie, one question at a time."""

    def __init__(self, bookie_id: str, options: CollectorOptions) -> None:
        self.bookie_id = bookie_id
        self.options = options
        self.due_ns: int | None = None
        self.asked: Tag = None  # The question that is out; any other answer is of a round that was given up.
        self.questions = 0
        self.after = NO_ENTRY  # The last ledger of the page before.
        self.page: list[int] = []
        self.has_more = False  # Ledgers behind this page.
        self.listed: dict[int, bytes] = {}  # Of the page's ledgers: metadata in the listing.
        self.listed_count = 0  # Keys in the listing, of whatever ledgers.
        self.suspects: list[
            tuple[int, bool]
        ] = []  # Ledger, and whether the listing shows it CLOSED elsewhere.
        self.ids_end: int | None = None  # Every id below was given out when this round asked.
        self.trouble = ""  # Why nothing is collected any more.
        self.round_count = self.allowed_count = 0

    @property
    def deadline_ns(self) -> int | None:
        return self.due_ns

    def _ask(self, kind: str, ledger_id: int = NO_ENTRY) -> Tag:
        self.questions += 1
        self.asked = (kind, ledger_id, self.questions)
        return self.asked

    def _on_started(self, event: Started) -> list[Effect]:
        self.due_ns = event.now_ns + self.options.interval_ns
        return []

    def _on_tick(self, event: Tick) -> list[Effect]:
        if self.due_ns is None or event.now_ns < self.due_ns:
            return []
        self.due_ns = None
        return [ListHeld(self._ask("held"), self.after, self.options.page_ledgers)]

    def _on_held(self, event: HeldListed) -> list[Effect]:
        if event.tag != self.asked:
            return []
        if not event.ledger_ids:
            return self._end_round(event.now_ns)
        self.page, self.has_more = event.ledger_ids, event.has_more
        self.listed, self.listed_count, self.suspects = {}, 0, []
        before = ledger_key_path(self.page[0] - 1) if self.page[0] > 0 else ""
        return [BeginCollection(self.page), self._list(before)]

    def _list(self, after: str) -> ListKeys:
        return ListKeys(self._ask("list"), LEDGERS_PREFIX, after, self.options.page_ledgers)

    def _on_listed(self, event: KeysListed) -> list[Effect]:
        if event.tag != self.asked:
            return []
        wanted = dict.fromkeys(self.page)
        last = NO_ENTRY
        for key, value in event.records:
            last = int(key[len(LEDGERS_PREFIX) :], 16)
            if last in wanted:
                self.listed[last] = value
        self.listed_count += len(event.records)
        if event.has_more and not event.records:
            return self._end_round(event.now_ns)  # A page without keys that others follow: it says nothing.
        if event.has_more and last < self.page[-1]:
            return [self._list(event.records[-1][0])]
        if self.listed_count == 0:
            self.suspects = [(ledger_id, False) for ledger_id in self.page[: self.options.alone_max]]
        else:
            self.suspects = [
                (ledger_id, ledger_id in self.listed)
                for ledger_id in self.page
                if ledger_id not in self.listed or self._is_elsewhere(self.listed[ledger_id])
            ]
        return self._next_suspect(event.now_ns)

    def _next_suspect(self, now_ns: int) -> list[Effect]:
        if not self.suspects:
            self.after = self.page[-1]
            if not self.has_more:
                return self._end_round(now_ns)
            self.due_ns = now_ns + self.options.pace_ns
            return []
        if self.ids_end is None:
            return [AllocateIds(self._ask("ids"), 1)]
        ledger_id, _ = self.suspects[0]
        return [ReadKey(self._ask("read", ledger_id), ledger_key_path(ledger_id))]

    def _on_ids(self, event: IdsAllocated) -> list[Effect]:
        if event.tag != self.asked:
            return []
        self.ids_end = event.first_id
        return self._next_suspect(event.now_ns)

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag != self.asked:
            return []
        ledger_id, is_listed = self.suspects[0]
        key = ledger_key_path(ledger_id)
        assert self.ids_end is not None
        if event.value is None and not is_listed:
            if ledger_id >= self.ids_end:
                return self._stop(ledger_id)
            # At one revision: deleted, and not to be brought back. Read one after the other, a ledger that is brought
            # back in between would be in neither place.
            when = [Compare(key, ABSENT), Compare(tombstone_path(ledger_id), ABSENT)]
            return [Transact(self._ask("check", ledger_id), when, [])]
        if event.value is not None and is_listed and self._is_elsewhere(event.value):
            when = [Compare(key, event.revision), Compare(repair_mark_path(ledger_id), ABSENT)]
            return [Transact(self._ask("check", ledger_id), when, [])]
        return self._leave(event.now_ns)  # The two do not agree.

    def _on_checked(self, event: Transacted) -> list[Effect]:
        if event.tag != self.asked:
            return []
        if not event.is_done:
            return self._leave(event.now_ns)
        ledger_id, _ = self.suspects[0]
        self.allowed_count += 1
        return [AllowDrop(ledger_id), *self._leave(event.now_ns)]

    def _leave(self, now_ns: int) -> list[Effect]:
        """Done with this ledger for this round."""
        del self.suspects[0]
        return self._next_suspect(now_ns)

    def _on_failed(self, event: MetadataFailed | TransactUnknown) -> list[Effect]:
        """No answer: what was heard of this page counts for nothing, and the next round asks again."""
        return self._end_round(event.now_ns) if event.tag == self.asked else []

    def _end_round(self, now_ns: int) -> list[Effect]:
        self.asked, self.after, self.ids_end = None, NO_ENTRY, None
        self.page, self.listed, self.suspects = [], {}, []
        self.round_count += 1
        self.due_ns = now_ns + self.options.interval_ns
        return []

    def _stop(self, ledger_id: int) -> list[Effect]:
        self.asked, self.due_ns, self.suspects = None, None, []
        self.trouble = (
            f"bookie {self.bookie_id} holds ledger {ledger_id}, and metadata has not yet given out an id above "
            f"{self.ids_end}: it is another cluster's, or was restored from an older copy; nothing is collected"
        )
        return []

    def _is_elsewhere(self, value: bytes) -> bool:
        """CLOSED, and no fragment names this bookie. What cannot be read names it."""
        try:
            metadata = decode_ledger_metadata(value)
        except StorageError:
            return False
        return metadata.is_closed and not is_named(metadata, self.bookie_id)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        HeldListed: _on_held,
        KeysListed: _on_listed,
        IdsAllocated: _on_ids,
        KeyRead: _on_read,
        Transacted: _on_checked,
        MetadataFailed: _on_failed,
        TransactUnknown: _on_failed,
    }
