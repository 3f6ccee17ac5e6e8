"""A bookie's garbage collection in its place: carries out what `core/collector.py` asks for (P7.7).

Decides nothing. It runs while the bookie is registered and serves; a question that is out when that ends has an outcome
all the same, and the round is given up.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence

from embedbk.codec.metadata_messages import (
    Get,
    List,
    Listed,
    Operation,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.core.bookie_words import CollectionBegun, DropAllowed
from embedbk.core.collector import Collector, CollectorOptions
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.core.machine import Effect, Event
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
    NameUnread,
)
from embedbk.core.vocabulary import Started, Tag, Tick
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.unread import Unread
from embedbk.host.witnessing import Witnessing
from embedbk.ids import NO_ENTRY

__all__ = ["Collecting"]

logger = logging.getLogger(__name__)


class Collecting:
    """The collector of one bookie. tell_bookie: steps the bookie's core. is_ready: whether it may go on now."""

    def __init__(
        self,
        bookie_id: str,
        options: CollectorOptions,
        table: AnyLedgerTable,
        metadata: MetadataLink,
        witness: Witnessing,
        tell_bookie: Callable[[Event], None],
        is_ready: Callable[[], bool],
        unread: Unread,
    ) -> None:
        self.core = Collector(bookie_id, options)
        self._table = table
        self._metadata = metadata
        self._witness = witness
        self._tell_bookie = tell_bookie
        self._is_ready = is_ready
        self._unread = unread
        self._is_started = False
        self._held: Sequence[int] = ()  # All ledgers, as they were when the round began.

    def step(self, now_ns: int) -> None:
        if not self._is_ready():
            return
        if not self._is_started:
            self._is_started = True
            self._step(Started(now_ns))
        due_ns = self.core.deadline_ns
        if due_ns is not None and now_ns >= due_ns:
            self._step(Tick(now_ns))

    def deadline_ns(self) -> int | None:
        return self.core.deadline_ns if self._is_ready() else None

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            self._carry_out(event.now_ns, effect)

    def _carry_out(self, now_ns: int, effect: Effect) -> None:
        if isinstance(effect, ListHeld):
            self._list_held(now_ns, effect)
        elif isinstance(effect, BeginCollection):
            self._tell_bookie(CollectionBegun(now_ns, effect.ledger_ids))
        elif isinstance(effect, AllowDrop):
            logger.info("ledger %d is known to metadata no more, or seated elsewhere", effect.ledger_id)
            self._tell_bookie(DropAllowed(now_ns, effect.ledger_id))
        elif isinstance(effect, NameUnread):
            self._unread.name(effect.key, effect.reason)
        elif isinstance(effect, ListKeys):
            self._ask(now_ns, List(effect.prefix, effect.after, effect.limit), effect.tag)
        elif isinstance(effect, ReadKey):
            self._ask(now_ns, Get(effect.key), effect.tag)
        elif isinstance(effect, AskMetadata):
            self._witness.ask(now_ns, effect.tag, self._step)
        else:
            assert isinstance(effect, Transact)
            self._ask(now_ns, Txn(effect.when, effect.then), effect.tag)

    def _list_held(self, now_ns: int, effect: ListHeld) -> None:
        if effect.after == NO_ENTRY:
            self._held = self._table.ids()
        begin = bisect_right(self._held, effect.after)
        page = list(self._held[begin : begin + effect.limit])
        self._step(HeldListed(now_ns, effect.tag, page, begin + len(page) < len(self._held)))

    def _ask(self, now_ns: int, operation: Operation, tag: Tag) -> None:
        self._metadata.request(
            now_ns, operation, lambda now, result: self._step(_outcome(now, tag, operation, result))
        )


def _outcome(now_ns: int, tag: Tag, operation: Operation, result: Result) -> Event:
    if isinstance(result, Listed):
        pairs = [(record.key, record.value or b"") for record in result.records]
        return KeysListed(now_ns, tag, pairs, result.has_more)
    if isinstance(result, Value):
        record = result.record
        if record is None or record.value is None:
            return KeyRead(now_ns, tag, None, result.revision)
        return KeyRead(now_ns, tag, record.value, record.revision)
    if isinstance(result, TxnDone):
        return Transacted(now_ns, tag, result.is_done, result.revision)
    if isinstance(operation, Txn):
        return TransactUnknown(now_ns, tag)
    reason = f"{result.code}: {result.text}" if isinstance(result, Refusal) else f"answered with {result}"
    return MetadataFailed(now_ns, tag, reason)
