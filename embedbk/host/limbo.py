"""A bookie's limbo in its place: asks the metadata what it may have lost entries of, and when that ends (P7.4).

Decides nothing: what a listing means for a ledger is `core/limbo.py`'s, what a bookie in limbo answers its core's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerMetadata,
    decode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Get, List, Listed, Record, Result, Value
from embedbk.codec.tombstone import DELETED_PREFIX, decode_tombstone
from embedbk.core.bookie import Bookie
from embedbk.core.limbo import is_named, share_of
from embedbk.core.vocabulary import Event, LimboListed, ShareTold
from embedbk.errors import EmbedbkError, StorageError
from embedbk.host.metadata_link import MetadataLink
from embedbk.ids import NO_ENTRY, Member
from embedbk.ports import DurableBookie

__all__ = ["LimboAsking"]

logger = logging.getLogger(__name__)

LIMBO_AGAIN_NS = 5_000_000_000  # Between two rounds of asking whether ledgers in limbo were closed.
LIMBO_ASK_MAX = 64  # Of these asked in one round.
LIMBO_PAGE = 500
# One that is deleted or brought back meanwhile is seen in one of these, in whichever direction it went.
_LIMBO_PREFIXES = (DELETED_PREFIX, LEDGERS_PREFIX, DELETED_PREFIX)


class LimboAsking:
    """The questions of one bookie. tell_bookie: steps the bookie's core. on_failure: it must stay out."""

    def __init__(
        self,
        bookie_id: str,
        storage: DurableBookie,
        core: Bookie,
        metadata: MetadataLink,
        tell_bookie: Callable[[Event], None],
        on_failure: Callable[[EmbedbkError], None],
    ) -> None:
        self.deadline_ns: int | None = None  # When to ask whether ledgers in limbo are closed now.
        self._bookie_id = bookie_id
        self._storage = storage
        self._core = core
        self._metadata = metadata
        self._tell_bookie = tell_bookie
        self._on_failure = on_failure
        self._after = NO_ENTRY  # The ledger asked about last: they take turns.

    def step(self, now_ns: int) -> None:
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            self._ask(now_ns)

    def ask_at(self, when_ns: int) -> None:
        if self._core.limbo:
            self.deadline_ns = when_ns

    def list_ledgers(self, now_ns: int, *, on_partial: Callable[[int], None]) -> None:
        """Tell the core of all ledgers that name this bookie. on_partial: a partial listing is none; it is to be begun
        again."""
        self._list(now_ns, list(_LIMBO_PREFIXES), "", [], {}, on_partial)

    def _list(
        self,
        now_ns: int,
        prefixes: list[str],
        after: str,
        found: list[LedgerMetadata],
        elsewhere: dict[int, None],
        on_partial: Callable[[int], None],
    ) -> None:
        """Page through all ledgers, each page linearizable: a key that was there at the start is on one of them.

        found: those that name this bookie; elsewhere: ids of those that are closed and do not.
        """

        def done(now_ns: int, result: Result) -> None:
            if not isinstance(result, Listed):
                on_partial(now_ns)  # From the start again.
                return
            try:
                ledgers = [_ledger_of(record) for record in result.records]
            except StorageError as unread:
                self._on_failure(unread)  # It may name this bookie: what cannot be told keeps it out.
                return
            for each in ledgers:
                if is_named(each, self._bookie_id):
                    found.append(each)
                elif each.is_closed:
                    elsewhere[each.ledger_id] = None
            if result.has_more:
                self._list(now_ns, prefixes, result.records[-1].key, found, elsewhere, on_partial)
            elif len(prefixes) > 1:
                self._list(now_ns, prefixes[1:], "", found, elsewhere, on_partial)
            else:
                self._tell(now_ns, found, elsewhere)

        self._metadata.request(now_ns, List(prefixes[0], after, LIMBO_PAGE), done)

    def _tell(self, now_ns: int, found: list[LedgerMetadata], elsewhere: dict[int, None]) -> None:
        closed = sorted({each.ledger_id for each in found if each.is_closed})
        not_closed = sorted({each.ledger_id for each in found if not each.is_closed})
        logger.warning(
            "bookie %s may have lost entries: %d ledgers in limbo", self._bookie_id, len(not_closed)
        )
        named = {each.ledger_id for each in found}  # Asked, not walked: in one of the listings, at least.
        others = [ledger_id for ledger_id in sorted(elsewhere) if ledger_id not in named]
        self._tell_bookie(LimboListed(now_ns, not_closed, closed, others))
        if self._core.failure is not None:
            self._on_failure(StorageError(f"bookie {self._bookie_id}: {self._core.failure}"))

    def _ask(self, now_ns: int) -> None:
        """Has the next ledger in limbo been closed? Then its share is looked for, and limbo may end."""
        self.deadline_ns = now_ns + LIMBO_AGAIN_NS if self._core.limbo else None
        waiting = list(self._core.limbo)
        turn = [i for i in waiting if i > self._after] or waiting
        for ledger_id in turn[:LIMBO_ASK_MAX]:
            self._after = ledger_id
            self._metadata.request(now_ns, Get(ledger_key_path(ledger_id)), self._on_metadata)

    def _on_metadata(self, now_ns: int, result: Result) -> None:
        if not isinstance(result, Value) or result.record is None or result.record.value is None:
            return  # Asked again later; what becomes of a deleted ledger's data is the collector's (P7.7).
        metadata = decode_ledger_metadata(result.record.value)
        if metadata.is_closed:
            parts = share_of(metadata, Member(self._bookie_id, self._storage.incarnation))
            self._tell_bookie(ShareTold(now_ns, metadata.ledger_id, parts))


def _ledger_of(record: Record) -> LedgerMetadata:
    """The metadata of a ledger, or of a deleted one that may come back."""
    value = record.value or b""
    if record.key.startswith(DELETED_PREFIX):
        value = decode_tombstone(value).metadata
    return decode_ledger_metadata(value)
