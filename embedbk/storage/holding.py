"""How many entries of a range a bookie holds, and their digests: those in its index, without what is damaged (P11.4).
Also one number for many ledgers, which is the same as long as nothing of that changes (STORAGE.md, section 9).

Decides which entries count. The index has the ids without reading entries; rotten bytes are known once the scrubber has
read them, or when a digest made it necessary to read them. Such findings remain when a good copy was stored again,
since the file with the bad copy remains; so the few entries that they name are read once more, each time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.holdings_messages import Digests
from embedbk.core.ledger_table import AnyLedgerTable
from embedbk.ports.entry_store import EntriesHeld, EntryStore
from embedbk.ports.upkeep import ScrubDamage

__all__ = ["DAMAGED_MAX", "LACKING_MAX", "HoldingCount", "without_damaged"]

LACKING_MAX = 64  # Ranges in one answer; with more, the count says so.
DAMAGED_MAX = 1_024  # Entries that one question has read again.
MET_MAX = 512
SUM_BYTES_MAX = (
    2 << 20
)  # Read for the digests of one question, in the loop's thread: a part of a run of 1 KiB entries.


def without_damaged(
    store: EntryStore,
    damages: Sequence[ScrubDamage],
    ledger_id: int,
    first: int,
    last: int,
    modulus: int,
    residues: int,
) -> EntriesHeld | None:
    """As `EntryStore.held`, without these damaged entries; None: they are too many."""
    held = store.held(ledger_id, first, last, modulus, residues)
    suspects: set[int] = set()
    for damage in damages:
        if damage.ledger_id != ledger_id or damage.first_entry is None or damage.last_entry is None:
            continue
        low, high = max(first, damage.first_entry), min(last, damage.last_entry)
        if high - low >= DAMAGED_MAX:
            return None
        suspects.update(each for each in range(low, high + 1) if residues >> each % modulus & 1)
        if len(suspects) > DAMAGED_MAX:
            return None
    bad: list[int] = []
    for entry_id in sorted(suspects):
        found = store.read(ledger_id, entry_id, entry_id, 1)
        if found.frame is None and not found.absent:
            bad.append(entry_id)
    if bad:
        held.count -= len(bad)
        held.lacking = sorted([*held.lacking, *((each, each) for each in bad)])[:LACKING_MAX]
    return held


class HoldingCount:
    """What one bookie holds. Damage that it met, beside the scrubber, it remembers until its process ends."""

    def __init__(self) -> None:
        self._met: dict[tuple[int, int], ScrubDamage] = {}
        self._forgotten = 0  # How often damage was met, and is not remembered any more.

    def numbers(
        self,
        table: AnyLedgerTable,
        damages: Sequence[ScrubDamage],
        seed: int,
        blocks: Sequence[tuple[int, bytes]],
        unsure: Sequence[tuple[int, int]] = (),
    ) -> tuple[list[int | None], int]:
        """As `DurableBookie.block_numbers`. seed: of this start. unsure: ranges (first, last) of ledgers of which more
        may be found."""
        damaged = sorted(
            {each.ledger_id for each in (*damages, *self._met.values()) if each.ledger_id is not None}
        )
        numbers: list[int | None] = []
        last_token = 0
        for first, mask in blocks:
            # Damage that is forgotten must not give a number back that was told before it was met.
            number, token = table.number(first, mask, seed + self._forgotten & DIGEST_MASK)
            last_token = max(last_token, token)
            are_sound = not any(_is_chosen(ledger_id, first, mask) for ledger_id in damaged) and not any(
                _has_chosen(low, high, first, mask) for low, high in unsure
            )
            numbers.append(number if are_sound else None)
        return numbers, last_token

    def held(
        self,
        store: EntryStore,
        damages: Sequence[ScrubDamage],
        ledger_id: int,
        first: int,
        last: int,
        modulus: int,
        residues: int,
        cuts: Sequence[int],
        wants: int,
    ) -> EntriesHeld | None:
        """As `DurableBookie.held`."""
        asked = (ledger_id, first, last, modulus, residues)
        held = without_damaged(store, (*damages, *self._met.values()), *asked)
        if held is None or not wants or not held.count:
            return held
        had_met = set(self._met)
        if not held.lacking:  # Else they are not compared yet.
            held.digests = self._digests(store, ledger_id, (first, *cuts, last + 1), modulus, residues, wants)
        if had_met.issuperset(self._met):
            return held
        return without_damaged(store, (*damages, *self._met.values()), *asked)

    def _digests(
        self,
        store: EntryStore,
        ledger_id: int,
        bounds: Sequence[int],
        modulus: int,
        residues: int,
        wants: int,
    ) -> list[int | None]:
        left, found = SUM_BYTES_MAX, list[int | None]()
        for first, end in itertools.pairwise(bounds):
            if left <= 0:
                found += [None] * residues.bit_count()
                continue
            by_bytes = wants == Digests.BY_BYTES
            sums = store.sums(ledger_id, first, end - 1, modulus, residues, left, by_bytes=by_bytes)
            left -= sums.bytes_read
            found += sums.digests if sums.digests is not None else [None] * residues.bit_count()
            for entry_id in sums.bad:
                place = f"entry {entry_id} of ledger {ledger_id}"
                damage = ScrubDamage(place, 0, "it was read and is bad", ledger_id, entry_id, entry_id)
                self._met[ledger_id, entry_id] = damage
                if len(self._met) > MET_MAX:
                    del self._met[next(iter(self._met))]  # It is met again.
                    self._forgotten += 1
        return found


def _is_chosen(ledger_id: int, first: int, mask: bytes) -> bool:
    place = ledger_id - first
    return 0 <= place < 8 * len(mask) and bool(mask[place // 8] >> place % 8 & 1)


def _has_chosen(low: int, high: int, first: int, mask: bytes) -> bool:
    """Whether one of the ledgers low..high is chosen."""
    begin, end = max(low - first, 0), min(high - first + 1, 8 * len(mask))
    return begin < end and int.from_bytes(mask, "little") >> begin & (1 << end - begin) - 1 != 0
