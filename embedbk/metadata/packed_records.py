"""The records of a catalog, packed and in key order: what a ledger costs in memory is decided here (METADATA.md, 1).

A million ledgers are a million records, of which few are looked at in an hour. So a record is no object while it lies
here: one short head and its value, in one piece of bytes, beside its key in a list of some hundreds; found by halving,
so there is no table of hashes either. A lookup builds a `Record` for its caller. A key comes or goes in a time that
does not grow with the number of keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct, error

from embedbk.codec.metadata_messages import Record
from embedbk.errors import StorageError

__all__ = ["LEAF_KEYS", "PackedRecords"]

LEAF_KEYS = 512  # A leaf is cut in two at twice this.
_HAS_CREATED, _HAS_SESSION = 1, 2
# The kind says which of these fields a record has; most were never changed and belong to no session.
_HEADS = (Struct("<BQ"), Struct("<BQQ"), Struct("<BQQ"), Struct("<BQQQ"))


class PackedRecords:
    """A mapping of keys to records that have a value. Not to be changed while one of its iterators is used."""

    def __init__(self) -> None:
        self._keys: list[list[str]] = []  # The keys of each leaf; none is empty.
        self._packed: list[list[bytes]] = []  # The records of each leaf, in the same positions.
        self._lasts: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: str) -> bool:
        return self._find(key) is not None

    def get(self, key: str) -> Record | None:
        found = self._find(key)
        return _unpacked(key, self._packed[found[0]][found[1]]) if found is not None else None

    def put(self, record: Record) -> None:
        """Put a record, in place of the one with its key, if there is one."""
        key, packed = record.key, _packed(record)
        at = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        if at < 0:
            self._keys, self._packed, self._lasts, self._count = [[key]], [[packed]], [key], 1
            return
        keys, leaf = self._keys[at], self._packed[at]
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            leaf[place] = packed
            return
        keys.insert(place, key)
        leaf.insert(place, packed)
        self._count += 1
        if len(keys) >= 2 * LEAF_KEYS:
            self._keys[at : at + 1] = [keys[:LEAF_KEYS], keys[LEAF_KEYS:]]
            self._packed[at : at + 1] = [leaf[:LEAF_KEYS], leaf[LEAF_KEYS:]]
            self._lasts[at : at + 1] = [keys[LEAF_KEYS - 1], keys[-1]]
        else:
            self._lasts[at] = keys[-1]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        found = self._find(key)
        assert found is not None, f"{key!r} is not there"
        at, place = found
        keys = self._keys[at]
        del keys[place], self._packed[at][place]
        self._count -= 1
        if keys:
            self._lasts[at] = keys[-1]
        else:
            del self._keys[at], self._packed[at], self._lasts[at]

    def extend(self, records: Sequence[Record]) -> bool:
        """Add records in key order, all behind those that are there; False, and nothing is added, if they are not.
        Raises StorageError: one has values that no record can have."""
        keys = [record.key for record in records]
        if not keys or (self._lasts and keys[0] <= self._lasts[-1]):
            return not keys
        if any(one >= next_one for one, next_one in pairwise(keys)):
            return False
        packed = [_packed(record) for record in records]
        for at in range(0, len(keys), LEAF_KEYS):
            self._keys.append(keys[at : at + LEAF_KEYS])
            self._packed.append(packed[at : at + LEAF_KEYS])
            self._lasts.append(self._keys[-1][-1])
        self._count += len(keys)
        return True

    def begin(self, first: str = "", after: str = "") -> Iterator[Record]:
        """The records from the key `first` on whose keys are greater than `after`, in order."""
        low = max(first, after)
        at = bisect_left(self._lasts, low)
        if at == len(self._lasts):
            return
        keys = self._keys[at]
        place = bisect_right(keys, low) if low == after else bisect_left(keys, low)
        while True:
            yield from map(_unpacked, keys[place:], self._packed[at][place:])
            at, place = at + 1, 0
            if at == len(self._lasts):
                return
            keys = self._keys[at]

    def _find(self, key: str) -> tuple[int, int] | None:
        """The (leaf, place) of a key; None: it is not there."""
        at = bisect_left(self._lasts, key)
        if at == len(self._lasts):
            return None
        keys = self._keys[at]
        place = bisect_left(keys, key)
        return (at, place) if keys[place] == key else None


def _packed(record: Record) -> bytes:
    """Raises StorageError: a number has more than 64 bits, or there is no value; our logs and snapshots have no such
    record."""
    kind, numbers = 0, [record.revision]
    if record.created != record.revision:
        kind |= _HAS_CREATED
        numbers.append(record.created)
    if record.session:
        kind |= _HAS_SESSION
        numbers.append(record.session)
    try:
        return _HEADS[kind].pack(kind, *numbers) + record.value  # type: ignore[operator]
    except (error, TypeError):
        raise StorageError(f"{record.key!r} has no value, or numbers that no record has: {numbers}") from None


def _unpacked(key: str, packed: bytes) -> Record:
    kind = packed[0]
    head = _HEADS[kind]
    _, revision, *rest = head.unpack_from(packed)
    created = rest[0] if kind & _HAS_CREATED else revision
    return Record(key, packed[head.size :], created, revision, rest[-1] if kind & _HAS_SESSION else 0)
