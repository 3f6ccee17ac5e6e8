"""The ledger table: one row per ledger that a bookie knows (P3.4, P3.5, P5.2f, P7.3). Plain Python twin.

There is one ledger table per bookie; core and add path use the same one, on the loop's thread only. It is memory
only: journal records and the states in entry-log footers make it durable (storage/STORAGE.md). This twin is plain data
for the simulator and for exploration; `storage/ledger_table.py` is the same in C, and both pass
`tests/storage/test_ledger_table.py`.

The core that decides (core/bookie.py) changes rows in place; the values of a row are never checked here, except that
loading a stored state never lifts a fence and never lowers what only rises.
"""

from __future__ import annotations

import bisect
import copy
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.frame import LEDGER_KEY_BYTES
from embedbk.codec.twins import mix
from embedbk.errors import StorageError, UsageError
from embedbk.ids import LEDGER_ID_MAX, NO_ENTRY

__all__ = [
    "LEDGERS_MAX",
    "LEDGER_STATE",
    "AnyLedgerRow",
    "AnyLedgerTable",
    "LedgerRow",
    "LedgerTable",
    "table_full",
]

LEDGERS_MAX = 1 << 22  # Ledgers that one bookie knows; at most 128 resident bytes each in C.

# The durable part of a row: ledger_id, last_entry, lac, lac_length, key, flags, reserved (STORAGE.md).
LEDGER_STATE = struct.Struct("<QqqQ16sB7s")
STATE_FENCED = 1
STATE_IN_LIMBO = 2
STATE_DROPPED = 4
STATE_HAS_KEY = 8
# A state of all ledgers from ledger_id to last_entry; with fenced, in limbo and dropped, nothing else.
STATE_RANGE = 16
_STATE_FLAGS = STATE_FENCED | STATE_IN_LIMBO | STATE_DROPPED | STATE_HAS_KEY | STATE_RANGE
_DROPPED_RANGE = STATE_FENCED | STATE_IN_LIMBO | STATE_DROPPED | STATE_RANGE
RESERVE_SHARE = 16  # One row in so many, and one, is kept for those that must not be refused (P7.8).

assert LEDGER_STATE.size == 56


class AnyLedgerRow(Protocol):
    """The fields of a row in both twins; flags are 0 or 1."""

    ledger_id: int
    is_fenced: int  # No more normal adds, ever.
    in_limbo: int  # Missing entries are unknown, not absent.
    is_dropped: int  # No data, and fenced for ever.
    last_entry: int  # Highest entry id accepted, since the last drop if there was one; NO_ENTRY: none.
    lac: int  # With lac_length a pair that never falls.
    lac_length: int
    last_token: int  # Journal token of the last record queued for the ledger; 0 since start: none.
    is_awaited: int  # A reader may wait for a newer LAC. 1 in a new row: a poll may be pending from before.


class AnyLedgerTable(Protocol):
    """The operations that the bookie core needs of its table."""

    def get(self, ledger_id: int) -> AnyLedgerRow | None: ...
    def create(self, ledger_id: int, *, from_reserve: bool = False) -> AnyLedgerRow: ...
    def key(self, row: Any) -> bytes | None: ...
    def set_key(self, row: Any, key: bytes) -> None: ...
    def mark_dirty(self, row: Any) -> None: ...
    def number(self, first: int, mask: bytes, seed: int) -> tuple[int, int]: ...
    def ids(self) -> Sequence[int]: ...
    def limbo(self) -> list[int]: ...
    def retire(self, durable: int) -> None: ...
    def drop_range(self, first: int, last: int) -> None: ...
    def ranges(self) -> list[tuple[int, int]]: ...
    def take_dirty(self) -> bytes | memoryview: ...
    def touch(self, states: bytes | memoryview) -> None: ...
    def load(self, states: bytes | memoryview) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...


@dataclass(slots=True)
class LedgerRow:
    ledger_id: int
    is_fenced: int = 0
    in_limbo: int = 0
    is_dropped: int = 0
    last_entry: int = NO_ENTRY
    lac: int = NO_ENTRY
    lac_length: int = 0
    last_token: int = 0
    is_awaited: int = 1
    ledger_key: bytes | None = None  # Through `LedgerTable.key` and `set_key`, as in C.


class LedgerTable:
    """Rows by ledger id, and dropped ledgers as ranges of ids. A row stays the same object until it is retired."""

    def __init__(self, ledgers_max: int = LEDGERS_MAX) -> None:
        self.ledgers_max = ledgers_max
        self._rows: dict[int, LedgerRow] = {}
        self._dirty: dict[int, None] = {}
        self._ranges: list[tuple[int, int]] = []  # Ascending; they neither overlap nor touch.
        self._dirty_ids: dict[int, None] = {}  # Ranges whose present state is in no entry log.

    def get(self, ledger_id: int) -> LedgerRow | None:
        """The row; a dropped ledger gets one again (fenced, in limbo, dropped) until it is retired (P7.3).

        Raises:
            StorageError: it would get one, and there is none left.
        """
        row = self._rows.get(ledger_id)
        if row is None and self._range_of(ledger_id) is not None:
            row = self.create(ledger_id, from_reserve=True)
            row.is_fenced = row.in_limbo = row.is_dropped = 1
            self.mark_dirty(row)
        return row

    def create(self, ledger_id: int, *, from_reserve: bool = False) -> LedgerRow:
        """A new row, with no key yet and nothing stored.

        Raises:
            StorageError: the table holds `ledgers_max` ledgers, and with from_reserve its reserve is used up, too.
        """
        assert 0 <= ledger_id <= LEDGER_ID_MAX
        assert ledger_id not in self._rows
        reserve = self.ledgers_max // RESERVE_SHARE + 1 if from_reserve else 0
        if len(self._rows) >= self.ledgers_max + reserve:
            raise table_full(self.ledgers_max)
        row = self._rows[ledger_id] = LedgerRow(ledger_id)
        return row

    def key(self, row: LedgerRow) -> bytes | None:
        """The ledger key (P3.5); None until a request with a key came."""
        return row.ledger_key

    def set_key(self, row: LedgerRow, key: bytes) -> None:
        if len(key) != LEDGER_KEY_BYTES:
            raise UsageError(f"ledger key of {len(key)} bytes: {LEDGER_KEY_BYTES} are allowed")
        row.ledger_key = bytes(key)

    def mark_dirty(self, row: LedgerRow) -> None:
        """The row changed since its state was last taken for an entry log."""
        self._dirty[row.ledger_id] = None

    def number(self, first: int, mask: bytes, seed: int) -> tuple[int, int]:
        """(one number for several ledgers, the highest of their last tokens).

        The ledgers are first + i for each bit i of mask (bit i % 8 of byte i // 8). The number, of 64 bits, is another
        one, but for a chance of 2^-64, once a record was queued for one of them, or one was dropped, or with another
        seed (P11.4). No row is made for it.
        """
        number = last_token = 0
        for place in range(8 * len(mask)):
            row = self._rows.get(first + place) if mask[place // 8] >> place % 8 & 1 else None
            if row is not None:
                number += mix(
                    mix(row.ledger_id + seed & DIGEST_MASK) ^ (row.last_token << 1 | row.is_dropped)
                )
                last_token = max(last_token, row.last_token)
        return number & DIGEST_MASK, last_token

    def ids(self) -> Sequence[int]:
        """Ledgers that have a row, ascending, as they are now."""
        return sorted(self._rows)

    def limbo(self) -> list[int]:
        """Ledgers in limbo that are not dropped, ascending."""
        return sorted(row.ledger_id for row in self._rows.values() if row.in_limbo and not row.is_dropped)

    def retire(self, durable: int) -> None:
        """Dropped ledgers whose record is durable leave their rows and join the ranges, for ever (P7.3)."""
        for ledger_id in list(self._dirty):
            row = self._rows[ledger_id]
            if row.is_dropped and row.last_token <= durable:
                if self._range_of(ledger_id) is None:
                    self._dirty_ids[ledger_id] = None
                    self._add_range(ledger_id, ledger_id)
                del self._rows[ledger_id], self._dirty[ledger_id]

    def drop_range(self, first: int, last: int) -> None:
        """The ledgers from first to last that have no row are dropped: fenced, in limbo, without data, for ever."""
        assert 0 <= first <= last <= LEDGER_ID_MAX
        self._dirty_ids[first] = None
        self._add_range(first, last)
        for ledger_id in self._rows:
            if first <= ledger_id <= last:
                self._cut_out(ledger_id)

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of dropped ledgers without rows, first and last included, ascending."""
        return list(self._ranges)

    def take_dirty(self) -> bytes:
        """Take the states of the rows and ranges dirty since the last take, by ascending ledger id, a range before a
        row; they are clean then.

        The caller must bring them into an entry log before the journal is trimmed (P7.3, P7.5).
        """
        dirty = [self._rows[ledger_id] for ledger_id in sorted(self._dirty)]
        for row in dirty:
            if not row.is_dropped:
                self._cut_out(row.ledger_id)  # A ledger that came back is dropped no more.
        ranges = dict.fromkeys(self._range_of(ledger_id) for ledger_id in sorted(self._dirty_ids))
        states = [(first, 0, _pack_range(first, last)) for first, last in filter(None, ranges)]
        states += [(row.ledger_id, 1, _pack(row)) for row in dirty]
        # One that is not retired yet stays where `retire` looks.
        self._dirty = {row.ledger_id: None for row in dirty if row.is_dropped}
        self._dirty_ids = {}
        return b"".join(state for _, _, state in sorted(states))

    def touch(self, states: bytes | memoryview) -> None:
        """Mark the rows and ranges of these stored states dirty, so that their newest states are taken next."""
        for ledger_id, last, _, _, _, flags, _ in LEDGER_STATE.iter_unpack(states):
            last = last if flags & STATE_RANGE else ledger_id
            if last == ledger_id and ledger_id in self._rows:
                self._dirty[ledger_id] = None
            for first, end in self._ranges:
                if first <= last and end >= ledger_id:
                    self._dirty_ids[first] = None

    def load(self, states: bytes | memoryview) -> None:
        """Load stored states, oldest first: limbo, drop and last entry as in the newest, a fence stays, the LAC pair
        rises. Dropped ledgers have no row; none of them was dirty.

        Raises:
            StorageError: these are no ledger states; nothing was loaded.
        """
        if len(states) % LEDGER_STATE.size:
            raise StorageError(f"ledger states of {len(states)} bytes: not whole states")
        found = list(LEDGER_STATE.iter_unpack(states))
        for ledger_id, last_entry, lac, _, _, flags, reserved in found:
            if (
                flags & ~_STATE_FLAGS
                or any(reserved)
                or ledger_id > LEDGER_ID_MAX
                or min(last_entry, lac) < NO_ENTRY
                or (flags & STATE_RANGE and (flags != _DROPPED_RANGE or last_entry < ledger_id))
            ):
                raise StorageError(
                    f"stored state of ledger {ledger_id} has impossible numbers or flags {flags:#x}"
                )
        for ledger_id, last_entry, lac, lac_length, key, flags, _ in found:
            if flags & STATE_DROPPED:
                last = last_entry if flags & STATE_RANGE else ledger_id
                self._add_range(ledger_id, last)
                for gone in [each for each in self._rows if ledger_id <= each <= last]:
                    del self._rows[gone]
                continue
            row = self._rows.get(ledger_id) or self.create(ledger_id, from_reserve=True)
            self._cut(ledger_id)
            row.is_fenced |= 1 if flags & STATE_FENCED else 0
            row.in_limbo = 1 if flags & STATE_IN_LIMBO else 0
            row.last_entry = last_entry
            row.lac, row.lac_length = max((row.lac, row.lac_length), (lac, lac_length))
            if flags & STATE_HAS_KEY:
                row.ledger_key = key

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._rows))

    def copy(self) -> LedgerTable:
        """An independent table with the same rows."""
        twin = LedgerTable(self.ledgers_max)
        twin._rows = {ledger_id: copy.copy(row) for ledger_id, row in self._rows.items()}
        twin._dirty, twin._dirty_ids = dict(self._dirty), dict(self._dirty_ids)
        twin._ranges = list(self._ranges)
        return twin

    def digest(self) -> bytes:
        """16 bytes, equal for equal tables in any process."""
        hasher = hashlib.blake2b(digest_size=16)
        for ledger_id in self:
            hasher.update(repr(astuple(self._rows[ledger_id])).encode())
        hasher.update(repr((sorted(self._dirty), sorted(self._dirty_ids), self._ranges)).encode())
        return hasher.digest()

    def _range_of(self, ledger_id: int) -> tuple[int, int] | None:
        at = bisect.bisect_left(self._ranges, ledger_id, key=lambda pair: pair[1])
        return self._ranges[at] if at < len(self._ranges) and self._ranges[at][0] <= ledger_id else None

    def _add_range(self, first: int, last: int) -> None:
        joined = [pair for pair in self._ranges if pair[0] <= last + 1 and pair[1] >= first - 1]
        for pair in joined:
            self._ranges.remove(pair)
            first, last = min(first, pair[0]), max(last, pair[1])
        bisect.insort(self._ranges, (first, last))

    def _cut_out(self, ledger_id: int) -> None:
        """Take the ledger out of its range. The part behind it in a range that is not written yet is found by its own
        id: the id of the whole range may stand before it."""
        pair = self._range_of(ledger_id)
        if pair is not None and ledger_id < pair[1]:
            self._dirty_ids[ledger_id + 1] = None
        self._cut(ledger_id)

    def _cut(self, ledger_id: int) -> None:
        pair = self._range_of(ledger_id)
        if pair is not None:
            self._ranges.remove(pair)
            parts = [(pair[0], ledger_id - 1), (ledger_id + 1, pair[1])]
            self._ranges = sorted([*self._ranges, *(part for part in parts if part[0] <= part[1])])


def table_full(ledgers_max: int) -> StorageError:
    """The error that both twins raise at their bound."""
    return StorageError(
        f"the ledger table is full: it knows {ledgers_max} ledgers, the most it may",
        definite=True,
        hint="add bookies, or delete ledgers that are no longer needed",
    )


def _pack_range(first: int, last: int) -> bytes:
    return LEDGER_STATE.pack(first, last, NO_ENTRY, 0, bytes(LEDGER_KEY_BYTES), _DROPPED_RANGE, bytes(7))


def _pack(row: LedgerRow) -> bytes:
    flags = (
        (STATE_FENCED if row.is_fenced else 0)
        | (STATE_IN_LIMBO if row.in_limbo else 0)
        | (STATE_DROPPED if row.is_dropped else 0)
        | (STATE_HAS_KEY if row.ledger_key is not None else 0)
    )
    key = row.ledger_key or bytes(LEDGER_KEY_BYTES)
    return LEDGER_STATE.pack(row.ledger_id, row.last_entry, row.lac, row.lac_length, key, flags, bytes(7))
