"""How many entries of a range a bookie holds: those in its index that its scrubber did not find damaged (P11.4).

Decides which entries count. The index has the ids without reading entries; rotten bytes are known once the scrubber has
read them. Its findings remain when a good copy was stored again, since the file with the bad copy remains; so the few
entries that they name are read once more, each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.ports import EntriesHeld, EntryStore, ScrubDamage

__all__ = ["DAMAGED_MAX", "LACKING_MAX", "without_damaged"]

LACKING_MAX = 64  # Ranges in one answer; with more, the count says so.
DAMAGED_MAX = 1_024  # Entries that one question has read again.


def without_damaged(
    store: EntryStore,
    damages: Sequence[ScrubDamage],
    ledger_id: int,
    first: int,
    last: int,
    modulus: int,
    residues: int,
) -> EntriesHeld | None:
    """As `DurableBookie.held`."""
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
