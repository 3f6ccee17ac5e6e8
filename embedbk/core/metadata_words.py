"""The metadata requests of any core, and their outcomes: keys, transactions, ids, lists (P2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.core.vocabulary import Tag

__all__ = [
    "NOTHING",
    "AllocateIds",
    "Alongside",
    "IdsAllocated",
    "KeyRead",
    "KeysListed",
    "ListKeys",
    "MetadataChanged",
    "MetadataFailed",
    "ReadKey",
    "Transact",
    "TransactRefused",
    "TransactUnknown",
    "Transacted",
]


class KeyRead(Struct):
    """Outcome of ReadKey, linearizable. value None: the key is absent. level: of the cluster, at least."""

    now_ns: int
    tag: Tag
    value: bytes | None
    revision: int
    level: int = 0


class Transacted(Struct):
    """Outcome of Transact: done at revision, or refused (a comparison failed; nothing changed)."""

    now_ns: int
    tag: Tag
    is_done: bool
    revision: int


class TransactUnknown(Struct):
    """The transaction's outcome is unknown; it is still in flight (P2.2)."""

    now_ns: int
    tag: Tag


class TransactRefused(Struct):
    """A transaction was not run and never will be: something is full, or it passes a bound (P2.2). Says nothing of an
    earlier one whose outcome is unknown. For cores that ask for transactions of their own accord."""

    now_ns: int
    tag: Tag
    reason: str


class IdsAllocated(Struct):
    now_ns: int
    tag: Tag
    first_id: int


class MetadataFailed(Struct):
    """A ReadKey or AllocateIds got no answer; nothing was changed by it."""

    now_ns: int
    tag: Tag
    reason: str


class MetadataChanged(Struct):
    """The watch shows newer metadata of the ledger; value None: it was deleted."""

    now_ns: int
    value: bytes | None
    revision: int


class KeysListed(Struct):
    """Outcome of ListKeys: (key, value) pairs of one linearizable page, in key order. revisions: of these keys, in the
    same order; empty where nobody who lists asks for them."""

    now_ns: int
    tag: Tag
    records: list[tuple[str, bytes]]
    has_more: bool
    revisions: list[int] = []


class ReadKey(Struct):
    tag: Tag
    key: str


class Transact(Struct):
    tag: Tag
    when: list[Compare]
    then: list[Put | Delete]
    adopts: int = 0  # The ledger whose id is spared no more, by the same command (P10.5); 0: none.


class Alongside(NamedTuple):
    """What the transaction that makes or closes a ledger compares and puts beside the ledger's own key."""

    when: Sequence[Compare]
    then: Sequence[Put | Delete]


NOTHING = Alongside((), ())


class AllocateIds(Struct):
    tag: Tag
    count: int


class ListKeys(Struct):
    tag: Tag
    prefix: str
    after: str
    limit: int
