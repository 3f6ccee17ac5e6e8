"""Entries in plain Python memory, for the simulator: the port `EntryStore` with the verdicts of the store in C.

Decides what is held, absent or unreadable. What of it is durable, and what a flush takes, `memory` decides.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from embedbk.codec.entry import ENTRY_HEADER, ENTRY_OVERHEAD_BYTES
from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import Frame
from embedbk.core.quorum import count_ids
from embedbk.ports.entry_store import EntriesFound, EntriesHeld, EntrySums
from embedbk.storage.holding import LACKING_MAX

__all__ = ["MemoryEntryStore", "raw_entries"]


@dataclass(slots=True)
class MemoryEntryStore:
    """Entries by (ledger, entry) with the verdicts of the C store (port `EntryStore`)."""

    entries: dict[int, dict[int, bytes]] = field(default_factory=dict)
    ids: dict[int, list[int]] = field(default_factory=dict)  # By ledger, ascending.
    unreadable: set[tuple[int, int]] = field(default_factory=set)  # Asked by key only, never walked.
    flushed: set[tuple[int, int]] = field(
        default_factory=set
    )  # By the last flush, until the next one begins. As above.

    def put(self, frame: Frame) -> memoryview:
        """Take a checked frame in; an entry of the same id is replaced, and readable again."""
        for entry_id, raw in raw_entries(frame):
            self.put_entry(frame.ledger_id, entry_id, raw)
        return memoryview(bytes(frame.body))

    def put_entry(self, ledger_id: int, entry_id: int, raw: bytes) -> None:
        held = self.entries.setdefault(ledger_id, {})
        if entry_id not in held:
            bisect.insort(self.ids.setdefault(ledger_id, []), entry_id)
        held[entry_id] = raw
        self.unreadable.discard((ledger_id, entry_id))

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        bytes_max: int,
        modulus: int = 1,
        residues: int = 1,
        *,
        from_memory: bool = False,
    ) -> EntriesFound:
        """As `EntryStore.read`; a switch-made unreadable entry is neither held nor absent (P7.1)."""
        ids = self.ids.get(ledger_id, [])
        found: list[tuple[int, bytes]] = []
        absent: list[tuple[int, int]] = []
        body_size, expected = 0, first
        for position in range(bisect.bisect_left(ids, first), len(ids)):
            entry_id = ids[position]
            if entry_id > last:
                break
            raw = self.entries[ledger_id][entry_id]
            key = ledger_id, entry_id
            is_read = key not in self.unreadable or (from_memory and key in self.flushed)
            is_asked = residues >> entry_id % modulus & 1 and is_read
            does_fit = not found or body_size + len(raw) <= bytes_max
            if entry_id > expected:
                absent.append((expected, entry_id - 1))
            expected = entry_id + 1
            if is_asked and not (does_fit and _continues(found, entry_id, raw)):
                return EntriesFound(_frame(ledger_id, found), absent)
            if is_asked:
                found.append((entry_id, raw))
                body_size += len(raw)
        if expected <= last:
            absent.append((expected, last))
        return EntriesFound(_frame(ledger_id, found), absent)

    def held(self, ledger_id: int, first: int, last: int, modulus: int = 1, residues: int = 1) -> EntriesHeld:
        """As `EntryStore.held`; an unreadable entry is in the index as before."""
        ids = self.ids.get(ledger_id, [])
        held = EntriesHeld(0)
        expected = first
        here = ids[bisect.bisect_left(ids, first) : bisect.bisect_right(ids, last)]
        for entry_id in [*here, last + 1]:
            is_lacking = count_ids(expected, entry_id - 1, modulus, residues) > 0
            if is_lacking and len(held.lacking) < LACKING_MAX:
                held.lacking.append((expected, entry_id - 1))
            expected = entry_id + 1
        held.count = sum(residues >> entry_id % modulus & 1 for entry_id in here)
        return held

    def sums(
        self,
        ledger_id: int,
        first: int,
        last: int,
        modulus: int,
        residues: int,
        bytes_max: int,
        *,
        by_bytes: bool = False,
    ) -> EntrySums:
        """As `EntryStore.sums`, of what it holds in memory: only by_bytes looks whether it can be read."""
        ids = self.ids.get(ledger_id, [])
        here = ids[bisect.bisect_left(ids, first) : bisect.bisect_right(ids, last)]
        digests = {residue: 0 for residue in range(modulus) if residues >> residue & 1}
        bad: list[int] = []
        read = 0
        for entry_id in here:
            if entry_id % modulus not in digests:
                continue
            raw = self.entries[ledger_id][entry_id]
            if by_bytes and read and read + len(raw) > bytes_max:
                return EntrySums(None, bytes_read=read)
            read += len(raw) if by_bytes else 0
            if by_bytes and (ledger_id, entry_id) in self.unreadable:
                bad.append(entry_id)
            digests[entry_id % modulus] += entry_digest(raw)
        sums = None if bad else [each & DIGEST_MASK for each in digests.values()]
        return EntrySums(sums, bad[:LACKING_MAX], read)

    def drop(self, ledger_id: int) -> None:
        """Forget what is held of a ledger."""
        self.entries.pop(ledger_id, None)
        for entry_id in self.ids.pop(ledger_id, []):
            self.unreadable.discard((ledger_id, entry_id))
            self.flushed.discard((ledger_id, entry_id))

    def cached_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


def raw_entries(frame: Frame) -> list[tuple[int, bytes]]:
    """(entry_id, entry) of a checked frame."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(frame.body):
        header = ENTRY_HEADER.unpack_from(frame.body, offset)
        end = offset + ENTRY_OVERHEAD_BYTES + header[3]
        found.append((header[5], bytes(frame.body[offset:end])))
        offset = end
    return found


def _length(raw: bytes) -> int:
    return int(ENTRY_HEADER.unpack_from(raw)[6])


def _continues(found: list[tuple[int, bytes]], entry_id: int, raw: bytes) -> bool:
    """Whether the entry may stand behind those found in one frame: its length goes on from theirs (WIRE.md 2)."""
    if not found:
        return True
    before_id, before = found[-1]
    grown = _length(raw) - _length(before)
    size = int(ENTRY_HEADER.unpack_from(raw)[3])
    return grown == size if entry_id == before_id + 1 else grown >= size


def _frame(ledger_id: int, found: list[tuple[int, bytes]]) -> Frame | None:
    if not found:
        return None
    body = memoryview(b"".join(raw for _, raw in found))
    return Frame(ledger_id, found[0][0], found[-1][0], len(found), _length(found[-1][1]), body)
