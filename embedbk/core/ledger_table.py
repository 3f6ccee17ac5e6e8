"""The ledger table: one row per ledger that a bookie knows (P3.4, P3.5, P5.2f, P7.3). Plain Python twin.

There is one ledger table per bookie; core and add path use the same one, on the loop's thread only. It is memory
only: journal records and the states in entry-log footers make it durable (storage/STORAGE.md). This twin is plain
data for the simulator and for exploration; `storage/ledger_table.py` has the same words in C, and both pass
`tests/storage/test_ledger_table.py`.

Rows are changed in place by whoever decides (core/bookie.py); what a row says is never checked here, except that
loading a stored state never lifts a fence and never lowers what only rises.
"""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from embedbk.codec.frame import LEDGER_KEY_BYTES
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
_STATE_FLAGS = STATE_FENCED | STATE_IN_LIMBO | STATE_DROPPED | STATE_HAS_KEY

assert LEDGER_STATE.size == 56


class AnyLedgerRow(Protocol):
    """What a row shows on both twins; flags are 0 or 1."""

    ledger_id: int
    is_fenced: int  # No more normal adds, ever.
    in_limbo: int  # What is missing is unknown.
    is_dropped: int  # No data, and fenced for ever.
    last_entry: int  # Highest entry id accepted, NO_ENTRY before the first.
    lac: int  # With lac_length a pair that never falls.
    lac_length: int
    last_token: int  # Journal token of the last record queued for the ledger; 0 since start: none.


class AnyLedgerTable(Protocol):
    """What the bookie core asks of its table."""

    def get(self, ledger_id: int) -> AnyLedgerRow | None: ...
    def create(self, ledger_id: int) -> AnyLedgerRow: ...
    def key(self, row: Any) -> bytes | None: ...
    def set_key(self, row: Any, key: bytes) -> None: ...
    def mark_dirty(self, row: Any) -> None: ...
    def take_dirty(self) -> bytes: ...
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
    ledger_key: bytes | None = None  # Through `LedgerTable.key` and `set_key`, as in C.
    is_dirty: int = 0


class LedgerTable:
    """Rows by ledger id. A row stays the same object as long as the table lives."""

    def __init__(self, ledgers_max: int = LEDGERS_MAX) -> None:
        self.ledgers_max = ledgers_max
        self._rows: dict[int, LedgerRow] = {}

    def get(self, ledger_id: int) -> LedgerRow | None:
        return self._rows.get(ledger_id)

    def create(self, ledger_id: int) -> LedgerRow:
        """A new row, with no key yet and nothing stored.

        Raises:
            StorageError: the table holds `ledgers_max` ledgers.
        """
        assert 0 <= ledger_id <= LEDGER_ID_MAX
        assert ledger_id not in self._rows
        if len(self._rows) == self.ledgers_max:
            raise table_full(self.ledgers_max)
        row = self._rows[ledger_id] = LedgerRow(ledger_id)
        return row

    def key(self, row: LedgerRow) -> bytes | None:
        """The ledger key (P3.5); None while no client with a key has been heard."""
        return row.ledger_key

    def set_key(self, row: LedgerRow, key: bytes) -> None:
        if len(key) != LEDGER_KEY_BYTES:
            raise UsageError(f"ledger key of {len(key)} bytes: {LEDGER_KEY_BYTES} are allowed")
        row.ledger_key = bytes(key)

    def mark_dirty(self, row: LedgerRow) -> None:
        """The row changed since its state was last taken for an entry log."""
        row.is_dirty = 1

    def take_dirty(self) -> bytes:
        """The states of the rows dirty since the last take, by ascending ledger id; they are clean then.

        Whoever takes them must bring them into an entry log before the journal is trimmed (P7.3, P7.5).
        """
        dirty = sorted((row for row in self._rows.values() if row.is_dirty), key=lambda row: row.ledger_id)
        for row in dirty:
            row.is_dirty = 0
        return b"".join(map(_pack, dirty))

    def load(self, states: bytes | memoryview) -> None:
        """Take stored states in, oldest first: limbo and drop as the newest says, a fence stays, the rest rises.

        Raises:
            StorageError: these are no ledger states; nothing was taken in.
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
            ):
                raise StorageError(
                    f"stored state of ledger {ledger_id} has impossible numbers or flags {flags:#x}"
                )
        for ledger_id, last_entry, lac, lac_length, key, flags, _ in found:
            row = self._rows.get(ledger_id) or self.create(ledger_id)
            row.is_fenced |= 1 if flags & STATE_FENCED else 0
            row.in_limbo = 1 if flags & STATE_IN_LIMBO else 0
            row.is_dropped = 1 if flags & STATE_DROPPED else 0
            row.last_entry = max(row.last_entry, last_entry)
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
        return twin

    def digest(self) -> bytes:
        """16 bytes, equal for equal tables in any process."""
        hasher = hashlib.blake2b(digest_size=16)
        for ledger_id in self:
            hasher.update(repr(astuple(self._rows[ledger_id])).encode())
        return hasher.digest()


def table_full(ledgers_max: int) -> StorageError:
    """What both twins raise at their bound."""
    return StorageError(
        f"the ledger table is full: it knows {ledgers_max} ledgers, the most it may",
        definite=True,
        hint="add bookies, or delete ledgers that are no longer needed",
    )


def _pack(row: LedgerRow) -> bytes:
    flags = (
        (STATE_FENCED if row.is_fenced else 0)
        | (STATE_IN_LIMBO if row.in_limbo else 0)
        | (STATE_DROPPED if row.is_dropped else 0)
        | (STATE_HAS_KEY if row.ledger_key is not None else 0)
    )
    key = row.ledger_key or bytes(LEDGER_KEY_BYTES)
    return LEDGER_STATE.pack(row.ledger_id, row.last_entry, row.lac, row.lac_length, key, flags, bytes(7))
