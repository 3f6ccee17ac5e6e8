"""Sends the metadata requests of a client's cores, and turns each answer into their event.

Decides nothing. An answer that is neither yes nor no becomes `MetadataFailed` or `TransactUnknown`: never "no" (P2.2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from embedbk.codec.metadata_messages import (
    BUSY,
    AdoptLedger,
    Allocated,
    AllocIds,
    Get,
    List,
    Listed,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.codec.metadata_messages import Operation as Asked
from embedbk.core.machine import Event
from embedbk.core.metadata_words import (
    AllocateIds,
    IdsAllocated,
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactRefused,
    TransactUnknown,
)
from embedbk.core.repair_words import AskQuorum, QuorumAnswered
from embedbk.core.vocabulary import Tag
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.operations import Operation
from embedbk.host.reminders import Reminders
from embedbk.metadata.client import is_unknown
from embedbk.metadata.levels import LACKING, LEVEL_OF_COPIES

__all__ = ["Asking", "Question"]

logger = logging.getLogger(__name__)


Question = ReadKey | Transact | AllocateIds | ListKeys | AskQuorum


class Asking:
    """The metadata requests of one node. tell: delivers an event to an operation's core."""

    def __init__(self, metadata: MetadataLink, tell: Callable[[Operation, Event], None]) -> None:
        self._metadata = metadata
        self._tell = tell
        self._reminders = Reminders(logger)
        self._under_way: dict[Operation, set[int]] = {}  # Tokens of the requests that were not answered yet.

    def forget(self, now_ns: int, operation: Operation) -> None:
        """Nobody wants the operation any more: what it asked for is not sent, or not sent again. Else a takeover that
        its caller gave up takes the log when the metadata can be reached again."""
        for token in sorted(self._under_way.pop(operation, ())):
            self._metadata.cancel(now_ns, token)

    def _request(
        self, now_ns: int, operation: Operation, asked: Asked, done: Callable[[int, Result], None]
    ) -> None:
        token: int | None = None  # None: it may be answered before it has one.
        is_answered = False

        def over(now_ns: int, result: Result) -> None:
            nonlocal is_answered
            is_answered = True
            tokens = self._under_way.get(operation)
            if tokens is not None and token is not None:
                tokens.discard(token)
                if not tokens:
                    del self._under_way[operation]
            done(now_ns, result)

        token = self._metadata.request(now_ns, asked, over)
        if not is_answered:
            self._under_way.setdefault(operation, set()).add(token)

    def ask(self, now_ns: int, operation: Operation, effect: Question) -> None:
        """Send these requests; each is answered once, now or later.

        Ids are asked of the quorum each time, never kept in stock: the ledger ids of a log must ascend, whichever
        client appends to its list, so that positions of one log are ordered.
        """
        if isinstance(effect, ReadKey):
            self._request(now_ns, operation, Get(effect.key), self._on_key(operation, effect.tag))
        elif isinstance(effect, Transact):
            done = self._on_transaction(operation, effect.tag)
            asked = Txn(effect.when, effect.then)
            if effect.adopts:
                asked = AdoptLedger(effect.when, effect.then, effect.adopts)
            self._request(now_ns, operation, asked, done)
        elif isinstance(effect, ListKeys):
            listing = List(effect.prefix, effect.after, effect.limit)
            self._request(now_ns, operation, listing, self._on_list(operation, effect.tag))
        elif isinstance(effect, AskQuorum):
            self._ask_quorum(now_ns, operation, effect)
        else:
            self._request(now_ns, operation, AllocIds(effect.count), self._on_ids(operation, effect.tag))

    def _ask_quorum(self, now_ns: int, operation: Operation, effect: AskQuorum) -> None:
        def done(now_ns: int, result: Result) -> None:
            self._tell(operation, QuorumAnswered(now_ns, effect.tag, result))

        level = self._metadata.client.cluster_level
        if level < LEVEL_OF_COPIES:  # Bookies of a build before may be there, which take no copies (P10.8).
            text = f"repair needs level {LEVEL_OF_COPIES}, and the cluster's level is {level}: embedbk quorum raise"
            done(now_ns, Refusal(LACKING, text))
        else:
            self._request(now_ns, operation, effect.operation, done)

    def _on_list(self, operation: Operation, tag: Tag) -> Callable[[int, Result], None]:
        def done(now_ns: int, result: Result) -> None:
            if isinstance(result, Listed):
                records = [(record.key, record.value or b"") for record in result.records]
                revisions = [record.revision for record in result.records]
                self._tell(operation, KeysListed(now_ns, tag, records, result.has_more, revisions))
            else:
                self._tell(operation, MetadataFailed(now_ns, tag, _reason(result)))

        return done

    def _on_key(self, operation: Operation, tag: Tag) -> Callable[[int, Result], None]:
        def done(now_ns: int, result: Result) -> None:
            if isinstance(result, Value):
                value = result.record.value if result.record is not None else None
                revision = result.record.revision if result.record is not None else 0
                self._tell(
                    operation, KeyRead(now_ns, tag, value, revision, self._metadata.client.cluster_level)
                )
            else:
                self._tell(operation, MetadataFailed(now_ns, tag, _reason(result)))

        return done

    def _on_transaction(self, operation: Operation, tag: Tag) -> Callable[[int, Result], None]:
        def done(now_ns: int, result: Result) -> None:
            if isinstance(result, TxnDone):
                self._reminders.over(now_ns, "refused", "metadata does what it is asked again")
                self._tell(operation, Transacted(now_ns, tag, result.is_done, result.revision))
                return
            if is_unknown(result):
                self._tell(operation, TransactUnknown(now_ns, tag))
                return
            why = f"metadata refuses a transaction: {_reason(result)}"
            self._reminders.lasts(now_ns, "refused", why)
            is_final = not (isinstance(result, Refusal) and result.code == BUSY)
            if is_final and TransactRefused in operation.core.HANDLERS:
                self._tell(operation, TransactRefused(now_ns, tag, _reason(result)))
            else:
                # The core reads first, then tries again: as after an unknown outcome, which does no harm.
                self._tell(operation, TransactUnknown(now_ns, tag))

        return done

    def _on_ids(self, operation: Operation, tag: Tag) -> Callable[[int, Result], None]:
        def done(now_ns: int, result: Result) -> None:
            if isinstance(result, Allocated):
                self._tell(operation, IdsAllocated(now_ns, tag, result.first_id))
            else:
                self._tell(operation, MetadataFailed(now_ns, tag, _reason(result)))

        return done


def _reason(result: Result) -> str:
    return result.text if isinstance(result, Refusal) else f"unexpected answer {type(result).__name__}"
