"""Which ledgers may be taken for repair, the oldest first, and which sessions wait for one (METADATA.md, 11). Pure.

An index of the marks, holds and waiters that the catalog has as keys; so it is rebuilt from them, is in no snapshot,
and decides nothing that the keys do not. A mark is in one of three places: among those that may be taken, by missing
bookies and then by age; among those that are postponed, by how long; or nowhere, if a session holds it or it cannot be
read. Taking one costs a few look-ups, and if very many older ones do not suit the worker, one for each set of missing
bookies.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from embedbk.codec.metadata_messages import Record
from embedbk.codec.repair_mark import decode_repair_mark
from embedbk.codec.unpacking import unpack
from embedbk.errors import StorageError
from embedbk.metadata.sorted_keys import SortedKeys

__all__ = ["WAITS_MS", "RepairIndex", "RepairWaiter", "decode_waiting", "encode_waiting"]

# How long a mark is postponed behind so many failures, one less than its place here, and behind all further ones.
WAITS_MS = (5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000)
PASSED_OVER_MAX = 256  # Unsuitable marks looked at; then the search goes by sets of missing bookies.
_ORDER_DIGITS = 16  # Digits of a revision or a ledger id, as a text that sorts like the number.


class RepairWaiter(msgspec.Struct, frozen=True, array_like=True):
    """The request of a waiting session: the value of its key."""

    count: int
    not_with: tuple[str, ...]


encode_waiting = msgspec.msgpack.Encoder().encode
_waiting_decoder = msgspec.msgpack.Decoder(RepairWaiter)


def decode_waiting(value: bytes) -> RepairWaiter:
    """Raises StorageError for other bytes."""
    return unpack(
        _waiting_decoder, value, StorageError, f"these {len(value)} bytes say of nobody what it waits for"
    )


@dataclass(slots=True)
class _Waiter:
    session: int
    count: int
    not_with: frozenset[str]


@dataclass(slots=True)
class _Place:
    """The place of one mark. order: empty if it is postponed."""

    missing: tuple[str, ...]
    order: str
    wait: int  # Place in WAITS_MS.


class RepairIndex:
    """The catalog notifies it of each key that changes."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._ready: dict[tuple[str, ...], SortedKeys] = {}  # By what is missing; none is empty.
        self._order = SortedKeys()  # All of these together.
        # By place in WAITS_MS, the revision of the failure, the oldest first.
        self._postponed = tuple(OrderedDict[int, int]() for _ in WAITS_MS)
        self._waiters: dict[str, _Waiter] = {}  # By key; keys sort as they asked, and come in that order.
        self._fresh: dict[int, str] = {}  # Marks that may be taken since `hand_out`, with their order.

    # --- What stands there --------------------------------------------------------------------------------

    def note_mark(self, ledger_id: int, mark: Record | None, *, is_held: bool) -> None:
        """The mark of a ledger, or its hold, has changed."""
        self._forget(ledger_id)
        if mark is None or mark.value is None or is_held:
            return
        try:
            known = decode_repair_mark(mark.value)
        except StorageError:
            return  # Unreadable (P2.5): it keeps its ledger on every bookie, and no worker takes it.
        wait = min(max(known.tries, 1), len(WAITS_MS)) - 1
        if known.is_postponed:
            self._places[ledger_id] = _Place(known.missing, "", wait)
            self._postponed[wait][ledger_id] = mark.revision
            return
        order = f"{mark.created:0{_ORDER_DIGITS}x}{ledger_id:0{_ORDER_DIGITS}x}"
        group = self._ready.get(known.missing)
        if group is None:
            group = self._ready[known.missing] = SortedKeys()
        group.add(order)
        self._order.add(order)
        self._places[ledger_id] = _Place(known.missing, order, wait)
        if self._waiters:
            self._fresh[ledger_id] = order

    def _forget(self, ledger_id: int) -> None:
        place = self._places.pop(ledger_id, None)
        self._fresh.pop(ledger_id, None)
        if place is None:
            return
        if not place.order:
            del self._postponed[place.wait][ledger_id]
            return
        group = self._ready[place.missing]
        group.remove(place.order)
        self._order.remove(place.order)
        if not group:
            del self._ready[place.missing]

    def note_waiter(self, key: str, record: Record | None) -> None:
        """The session that waits under this key has changed; None: none waits any more."""
        self._waiters.pop(key, None)
        if record is None or not record.session:
            return
        try:
            asked = decode_waiting(record.value or b"")
        except StorageError:
            return
        self._waiters[key] = _Waiter(record.session, asked.count, frozenset(asked.not_with))

    def loaded(self) -> None:
        """The keys were read from a snapshot: marks that could be handed out were handed out before it was cut."""
        self._fresh.clear()
        for postponed in self._postponed:  # They came in the order of their keys.
            for ledger_id, _ in sorted(postponed.items(), key=lambda each: (each[1], each[0])):
                postponed.move_to_end(ledger_id)

    # --- Who may have what --------------------------------------------------------------------------------

    def oldest(self, count: int, not_with: frozenset[str]) -> list[tuple[int, tuple[str, ...]]]:
        """The oldest mark for a worker that can repair nothing for these bookies: (ledger id, missing)."""
        found: list[tuple[int, tuple[str, ...]]] = []
        for looked, order in enumerate(self._order.begin("")):
            ledger_id = int(order[_ORDER_DIGITS:], 16)
            missing = self._places[ledger_id].missing
            if not_with.isdisjoint(missing):
                found.append((ledger_id, missing))
                if len(found) == count:
                    break
            elif looked - len(found) == PASSED_OVER_MAX:
                return self._oldest_of_groups(count, not_with)
        return found

    def _oldest_of_groups(self, count: int, not_with: frozenset[str]) -> list[tuple[int, tuple[str, ...]]]:
        """The same, if very many do not suit the worker: by sets of missing bookies, so that those are not gone
        through."""
        groups = (
            self._in_group(missing, group)
            for missing, group in self._ready.items()
            if not_with.isdisjoint(missing)
        )
        return [
            (int(order[_ORDER_DIGITS:], 16), missing)
            for order, missing in islice(heapq.merge(*groups), count)
        ]

    @staticmethod
    def _in_group(missing: tuple[str, ...], group: SortedKeys) -> Iterator[tuple[str, tuple[str, ...]]]:
        return ((order, missing) for order in group.begin(""))

    @property
    def has_freed(self) -> bool:
        """Whether `hand_out` has marks to hand out."""
        return bool(self._fresh)

    def hand_out(self, room_of: Callable[[int], int]) -> dict[str, list[int]]:
        """Marks that became free since the last call, by the key of the waiter that gets them: each goes to the first
        waiter that may repair it, which gets no more than it asked for, and than its session has room for.
        """
        if not self._fresh:
            return {}
        fresh, self._fresh = sorted(self._fresh.items(), key=lambda each: each[1]), {}
        waiters, given = list(self._waiters.items()), dict[str, list[int]]()
        # Where the search begins for each set of missing bookies: earlier waiters cannot repair it, or have enough.
        begin: dict[tuple[str, ...], int] = {}
        for ledger_id, _ in fresh:
            missing = self._places[ledger_id].missing
            at = begin.get(missing, 0)
            while at < len(waiters):
                key, waiter = waiters[at]
                got = given.get(key, [])
                has_room = len(got) < min(waiter.count, room_of(waiter.session))
                if has_room and waiter.not_with.isdisjoint(missing):
                    given[key] = [*got, ledger_id]
                    break
                at += 1
            begin[missing] = at
        return given

    # --- What is postponed ----------------------------------------------------------------------------------

    @property
    def has_postponed(self) -> bool:
        return any(self._postponed)

    def postponed(self, wait: int) -> Iterator[tuple[int, int]]:
        """Those of one place in WAITS_MS, the oldest failure first: (ledger id, its revision)."""
        return iter(self._postponed[wait].items())

    # --- Figures --------------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int, int]:
        """How many marks may be taken, how many are postponed, and how many sessions wait."""
        postponed = sum(map(len, self._postponed))
        return len(self._places) - postponed, postponed, len(self._waiters)

    def image(self) -> tuple[object, ...]:
        """Equal for equal contents, however they came."""
        ready = {missing: list(group.begin("")) for missing, group in self._ready.items()}
        waiters = [(key, each.session, each.count, each.not_with) for key, each in self._waiters.items()]
        assert list(self._order.begin("")) == sorted(order for group in ready.values() for order in group)
        return ready, [sorted(each.items()) for each in self._postponed], waiters
