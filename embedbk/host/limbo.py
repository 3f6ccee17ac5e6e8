"""A bookie's limbo in its place: asks the metadata what it may have lost entries of, and when that ends (P7.4).

Decides nothing: what a listing means for a ledger is `core/limbo.py`'s, what a bookie in limbo answers its core's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import Get, List, Listed, Record, Result, Told, Value
from embedbk.codec.tombstone import DELETED_PREFIX, decode_tombstone
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import LimboListed, ShareTold
from embedbk.core.limbo import is_named, share_of
from embedbk.core.machine import Event
from embedbk.core.upkeep_words import MetadataTold
from embedbk.core.vocabulary import Tag
from embedbk.errors import EmbedbkError, StorageError
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.unread import Unread
from embedbk.ids import NO_ENTRY, Member
from embedbk.ports.durable_bookie import DurableBookie

__all__ = ["LimboAsking"]

logger = logging.getLogger(__name__)

LIMBO_AGAIN_NS = 5_000_000_000  # Between two rounds of asking whether ledgers in limbo were closed.
LIMBO_ASK_MAX = 64  # So many are asked in one round.
LIMBO_PAGE = 500
# One that is deleted or brought back meanwhile is seen in one of these, in whichever direction it went.
_LIMBO_PREFIXES = (DELETED_PREFIX, LEDGERS_PREFIX, DELETED_PREFIX)


class LimboAsking:
    """The questions of one bookie. tell_bookie: steps the bookie's core. on_failure: it must stay out. ask_metadata: as
    `Witnessing.ask`."""

    def __init__(
        self,
        bookie_id: str,
        storage: DurableBookie,
        core: Bookie,
        metadata: MetadataLink,
        tell_bookie: Callable[[Event], None],
        on_failure: Callable[[EmbedbkError], None],
        unread: Unread,
        ask_metadata: Callable[[int, Tag, Callable[[Event], None]], None],
    ) -> None:
        self.deadline_ns: int | None = None  # When to ask whether ledgers in limbo are closed now.
        self._bookie_id = bookie_id
        self._storage = storage
        self._core = core
        self._metadata = metadata
        self._tell_bookie = tell_bookie
        self._on_failure = on_failure
        self._unread = unread
        self._ask_metadata = ask_metadata
        self._after = NO_ENTRY  # The ledger asked about last: they take turns.

    def step(self, now_ns: int) -> None:
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            self._ask(now_ns)

    def ask_at(self, when_ns: int) -> None:
        if self._core.limbo.ledgers:
            self.deadline_ns = when_ns

    def list_ledgers(self, now_ns: int, *, on_partial: Callable[[int], None]) -> None:
        """Tell the core of all ledgers, and how far metadata was before. on_partial: a partial listing is none; it is
        to be begun again."""

        def told(event: Event) -> None:
            if isinstance(event, MetadataTold) and not event.doubt:
                # First: an id that is given out later may be in the listing or not.
                self._list(event.now_ns, list(_LIMBO_PREFIXES), "", _Found(event.told), on_partial)
            else:
                on_partial(event.now_ns)

        self._ask_metadata(now_ns, None, told)

    def _list(
        self,
        now_ns: int,
        prefixes: list[str],
        after: str,
        found: _Found,
        on_partial: Callable[[int], None],
    ) -> None:
        """Page through all ledgers, each page linearizable: a key that was there at the start is on one of them."""

        def done(now_ns: int, result: Result) -> None:
            if not isinstance(result, Listed):
                on_partial(now_ns)  # From the start again.
                return
            for record in result.records:
                self._note(record, prefixes[0], found)
            if result.has_more and result.records:
                self._list(now_ns, prefixes, result.records[-1].key, found, on_partial)
            elif result.has_more:
                on_partial(now_ns)
            elif len(prefixes) > 1:
                self._list(now_ns, prefixes[1:], "", found, on_partial)
            else:
                self._tell(now_ns, found)

        self._metadata.request(now_ns, List(prefixes[0], after, LIMBO_PAGE), done)

    def _note(self, record: Record, prefix: str, found: _Found) -> None:
        ledger_id = ledger_of_key(record.key, prefix)
        if ledger_id is None:
            self._unread.name(record.key, "it is no ledger's key")
            return
        try:
            metadata = _ledger_of(record, ledger_id)
        except StorageError as unread:
            # It may name this bookie, and the lost entries of it are not known: limbo, which does not end.
            self._unread.name(record.key, str(unread))
            found.not_closed[ledger_id] = None
            return
        is_stale = found.told is not None and found.told.is_stale(ledger_id)
        # A lost future may have named this bookie: an adoption of the ledger must not get "no" from it (P10.5).
        if is_named(metadata, self._bookie_id) or (is_stale and not metadata.is_closed):
            (found.closed if metadata.is_closed else found.not_closed)[ledger_id] = None
        else:
            (found.elsewhere if metadata.is_closed else found.open_elsewhere)[ledger_id] = None

    def _tell(self, now_ns: int, found: _Found) -> None:
        closed, not_closed = sorted(found.closed), sorted(found.not_closed)
        logger.warning(
            "bookie %s may have lost entries: %d ledgers in limbo", self._bookie_id, len(not_closed)
        )
        # In one of the listings, at least.
        named = found.closed | found.not_closed
        others = [ledger_id for ledger_id in sorted(found.elsewhere) if ledger_id not in named]
        self._tell_bookie(
            LimboListed(now_ns, not_closed, closed, others, sorted(found.open_elsewhere), found.told)
        )
        if self._core.failure is not None:
            self._on_failure(StorageError(f"bookie {self._bookie_id}: {self._core.failure}"))

    def _ask(self, now_ns: int) -> None:
        """Ask whether the next ledgers in limbo are closed; then their shares are looked for, and limbo may end."""
        self.deadline_ns = now_ns + LIMBO_AGAIN_NS if self._core.limbo.ledgers else None
        waiting = list(self._core.limbo.ledgers)
        turn = [i for i in waiting if i > self._after] or waiting
        for ledger_id in turn[:LIMBO_ASK_MAX]:
            self._after = ledger_id
            self._metadata.request(
                now_ns, Get(ledger_key_path(ledger_id)), partial(self._on_metadata, ledger_id)
            )

    def _on_metadata(self, ledger_id: int, now_ns: int, result: Result) -> None:
        if not isinstance(result, Value) or result.record is None or result.record.value is None:
            return  # Asked again later; what becomes of a deleted ledger's data is the collector's (P7.7).
        try:
            metadata = decode_ledger_metadata(result.record.value, ledger_id)
        except StorageError as unread:
            self._unread.name(result.record.key, str(unread))  # It stays in limbo.
            return
        if metadata.is_closed:
            parts = share_of(metadata, Member(self._bookie_id, self._storage.incarnation))
            self._tell_bookie(ShareTold(now_ns, metadata.ledger_id, parts))


@dataclass(slots=True)
class _Found:
    """All ledgers, by id, in the order of the listings. told: how far metadata was before."""

    told: Told
    closed: dict[int, None] = field(default_factory=dict)  # These two name the bookie, as far as is known.
    not_closed: dict[int, None] = field(default_factory=dict)
    elsewhere: dict[int, None] = field(default_factory=dict)  # Closed, and they do not.
    open_elsewhere: dict[int, None] = field(default_factory=dict)


def _ledger_of(record: Record, ledger_id: int) -> LedgerMetadata:
    """The metadata of a ledger, or of a deleted one that may come back."""
    value = record.value or b""
    if record.key.startswith(DELETED_PREFIX):
        value = decode_tombstone(value).metadata
    return decode_ledger_metadata(value, ledger_id)
