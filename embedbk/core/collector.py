"""Garbage collection: finds ledgers of a bookie that metadata does not know any more, or seats elsewhere (P7.7, I35).

Decides: what is asked, and whether the answers allow a ledger to be dropped. Leaves to others: dropping, and whether
anything came since the first question (core/drops.py); the bytes on disk (storage).

    the bookie's ledgers, a page of them ─▶ CollectionBegun ─▶ the same range, listed
        not there, or CLOSED elsewhere ─▶ its key, read alone ─▶ a transaction that checks key, tombstone and mark
                       both agree, and it is the same metadata still that was asked first ─▶ DropAllowed

A listing only says where to look: a ledger is dropped for two reads of its own keys that agree (scenario 38), both made
after the bookie was told to watch for anything new of it. A listing that fails, ends early or is empty allows nothing.
An answer that is missing or cannot be understood keeps a ledger, and is named (`NameUnread`). Metadata that is older
than what this bookie met drops nothing at all (P10.5): it is asked which it is before the first ledger of a round and
again before a page's drops, so that an older copy that took its place in between is noticed. Asking changes nothing. An
id that metadata never gave out came from a client and proves nothing: that ledger is kept, and so are those that a lost
future may have made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Told
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.repair_state import unrepairable_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.limbo import is_named
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.upkeep_words import (
    AllowDrop,
    AskMetadata,
    BeginCollection,
    HeldListed,
    ListHeld,
    MetadataTold,
    NameUnread,
)
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY

__all__ = ["Collector", "CollectorOptions"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    interval_ns: int = 900 * _SECOND  # From the end of a round to the next.
    pace_ns: int = _SECOND // 50  # Between two pages of a round: metadata serves others as well.
    # So many of the bookie's ledgers are asked about together, and stand in a page of the listing. Judged in one turn
    # of the bookie, so its adds wait for a millisecond or two.
    page_ledgers: int = 100
    alone_max: int = 16  # Where the listing of a page is empty, so many ledgers are asked about one by one.


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
        self.listed: dict[int, bytes] = {}  # Ledgers of the page, with their metadata in the listing.
        self.listed_count = 0  # Ledgers in the listing, whichever.
        # Ledger, and whether the listing shows it CLOSED elsewhere.
        self.suspects: list[tuple[int, bool]] = []
        self.told: Told | None = None  # By the metadata that is asked in this round.
        self.agreed: list[int] = []  # Ledgers of the page on which both reads agree.
        self.trouble = ""  # Why nothing is collected.
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
        effects: list[Effect] = []
        for key, value in event.records:
            ledger_id = ledger_of_key(key)  # Every client may put any key there.
            if ledger_id is None:
                effects.append(NameUnread(key, "it is no ledger's key"))
                continue
            self.listed_count += 1
            if ledger_id in wanted:
                self.listed[ledger_id] = value
        if event.has_more and not event.records:
            # An empty page with others behind it: nothing follows from it.
            return self._end_round(event.now_ns)
        if event.has_more and event.records[-1][0] < ledger_key_path(self.page[-1]):
            return [*effects, self._list(event.records[-1][0])]
        if self.listed_count == 0:
            self.suspects = [(ledger_id, False) for ledger_id in self.page[: self.options.alone_max]]
        else:
            self.suspects = [
                (ledger_id, ledger_id in self.listed)
                for ledger_id in self.page
                if ledger_id not in self.listed
                or self._is_elsewhere(ledger_id, self.listed[ledger_id], effects)
            ]
        return [*effects, *self._next_suspect(event.now_ns)]

    def _next_suspect(self, now_ns: int) -> list[Effect]:
        if (self.suspects and self.told is None) or (self.agreed and not self.suspects):
            return [AskMetadata(self._ask("metadata"))]
        if not self.suspects:
            return self._end_page(now_ns)
        ledger_id, _ = self.suspects[0]
        return [ReadKey(self._ask("read", ledger_id), ledger_key_path(ledger_id))]

    def _on_told(self, event: MetadataTold) -> list[Effect]:
        if event.tag != self.asked:
            return []
        self.trouble = event.doubt
        before, self.told = self.told, event.told
        if event.doubt:
            return self._end_round(event.now_ns)
        if before is None:
            return self._next_suspect(event.now_ns)
        if (before.count, before.nonce) != (event.told.count, event.told.nonce):
            return self._end_round(event.now_ns)  # It started again meanwhile, perhaps on an older copy.
        allowed, self.agreed = self.agreed, []
        self.allowed_count += len(allowed)
        return [*map(AllowDrop, allowed), *self._end_page(event.now_ns)]

    def _end_page(self, now_ns: int) -> list[Effect]:
        self.after = self.page[-1]
        if not self.has_more:
            return self._end_round(now_ns)
        self.due_ns = now_ns + self.options.pace_ns
        return []

    def _on_read(self, event: KeyRead) -> list[Effect]:
        if event.tag != self.asked:
            return []
        assert self.told is not None
        ledger_id, is_listed = self.suspects[0]
        if is_listed and self.told.is_stale(ledger_id):
            # A lost future may have moved copies here, away from the bookies that the key names (P10.5).
            return self._leave(event.now_ns)
        key = ledger_key_path(ledger_id)
        effects: list[Effect] = []
        if event.value is None and not is_listed:
            if not self._was_given_out(ledger_id):
                return self._leave(event.now_ns)
            # At one revision: deleted, and not to be brought back. Read one after the other, a ledger that is brought
            # back in between would be in neither place.
            when = [Compare(key, ABSENT), Compare(tombstone_path(ledger_id), ABSENT)]
            return [Transact(self._ask("check", ledger_id), when, [])]
        if event.value is not None and is_listed and self._is_elsewhere(ledger_id, event.value, effects):
            when = [
                Compare(key, event.revision),
                Compare(repair_mark_path(ledger_id), ABSENT),
                Compare(unrepairable_path(ledger_id), ABSENT),
            ]
            return [Transact(self._ask("check", ledger_id), when, [])]
        return [*effects, *self._leave(event.now_ns)]  # The two do not agree.

    def _on_checked(self, event: Transacted) -> list[Effect]:
        if event.tag != self.asked:
            return []
        if not event.is_done:
            return self._leave(event.now_ns)
        ledger_id, _ = self.suspects[0]
        self.agreed.append(ledger_id)
        return self._leave(event.now_ns)

    def _leave(self, now_ns: int) -> list[Effect]:
        """Done with this ledger for this round."""
        del self.suspects[0]
        return self._next_suspect(now_ns)

    def _on_failed(self, event: MetadataFailed | TransactUnknown) -> list[Effect]:
        """No answer: what was received of this page counts for nothing, and the next round asks again."""
        return self._end_round(event.now_ns) if event.tag == self.asked else []

    def _end_round(self, now_ns: int) -> list[Effect]:
        self.asked, self.after, self.told = None, NO_ENTRY, None
        self.page, self.listed, self.suspects, self.agreed = [], {}, [], []
        self.round_count += 1
        self.due_ns = now_ns + self.options.interval_ns
        return []

    def _was_given_out(self, ledger_id: int) -> bool:
        """Whether this metadata gave the id out, and knows what became of it."""
        told = self.told
        assert told is not None
        return ledger_id < told.ids_end and not told.is_spared(ledger_id)

    def _is_elsewhere(self, ledger_id: int, value: bytes, effects: list[Effect]) -> bool:
        """Whether it is CLOSED, and no fragment names this bookie. Metadata that cannot be read counts as naming it,
        and is reported in effects."""
        try:
            metadata = decode_ledger_metadata(value, ledger_id)
        except StorageError as unread:
            effects.append(NameUnread(ledger_key_path(ledger_id), str(unread)))
            return False
        return metadata.is_closed and not is_named(metadata, self.bookie_id)

    HANDLERS: ClassVar[Handlers] = {
        Started: _on_started,
        Tick: _on_tick,
        HeldListed: _on_held,
        KeysListed: _on_listed,
        MetadataTold: _on_told,
        KeyRead: _on_read,
        Transacted: _on_checked,
        MetadataFailed: _on_failed,
        TransactUnknown: _on_failed,
    }
