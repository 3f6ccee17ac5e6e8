"""Seats for entries that are there already: which ensembles show a ledger's copies where they are (P2.4, P10.5).

What bookies hold does not show which ensembles a ledger had. A CLOSED ledger does not need them: any fragments will do
in which every entry stands on its whole write set. Decides which fragments need the fewest further copies, and how many
seats the ledger had, as far as a pattern shows. Leaves to others what is there, and the copying (`adopting`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from embedbk.config import ENSEMBLE_SIZE_MAX, Quorum

__all__ = ["FRAGMENTS_MAX", "Seats", "fit", "guess_quorum", "lacking"]

FRAGMENTS_MAX = 256  # Rather than more fragments, copies are made.
MISSED_MAX = 16  # A seat that misses so many of its entries in a row was another's there.
WINDOW = 16  # How many times E entries show which bookie has which seat.
SAMPLE = 4096  # Entries that show how many seats there were.
WIDER_MAX = 8  # Seats beyond Qw that are tried.


class Seats(NamedTuple):
    """Holders, by their bits, of the entries from first on."""

    first: int
    bits: tuple[int, ...]


def guess_quorum(masks: Sequence[int], usable: int, available: int) -> Quorum:
    """masks: for each entry the bits of the bookies that have it, 0 where none has. usable: the bits of those that may
    be seated. available: how many may be seated, including those that have nothing.

    Qw is as many copies as most entries have, as far as so many may be seated. E is the number of seats by which the
    fewest copies are lacking, the smaller one of equals. Qa, which no entry shows, is the majority of Qw.
    """
    sample = masks[:SAMPLE]
    counts = Counter(mask.bit_count() for mask in sample if mask)
    write_quorum = min(counts, key=lambda count: (-counts[count], count)) if counts else 1
    write_quorum = max(1, min(write_quorum, available, ENSEMBLE_SIZE_MAX))
    most = min(usable.bit_count(), write_quorum + WIDER_MAX, ENSEMBLE_SIZE_MAX)
    ack_quorum = write_quorum // 2 + 1
    if most <= write_quorum:
        return Quorum(write_quorum, write_quorum, ack_quorum)

    def costs(size: int) -> int:
        quorum = Quorum(size, write_quorum, ack_quorum)
        seats = fit(sample, quorum, usable, ())
        return sum(1 for _ in lacking(sample, seats, quorum)) + MISSED_MAX * len(seats)

    size = min(range(write_quorum, most + 1), key=lambda size: (costs(size), size))
    return Quorum(size, write_quorum, ack_quorum)


def fit(masks: Sequence[int], quorum: Quorum, usable: int, spare: Sequence[int]) -> list[Seats]:
    """Fragments for all of these entries. usable: the bits that may be seated; spare: bits of those that have nothing,
    in the order in which they are taken where too few others are. There are E of both together."""
    size, copies = quorum.ensemble_size, quorum.write_quorum
    held = [bit for bit in range(usable.bit_length()) if usable >> bit & 1]
    able = held + [bit for bit in spare if not usable >> bit & 1]
    assert len(able) >= size
    fragments: list[Seats] = []
    present = Seats(0, _sit(masks, 0, quorum, able, ()))
    missed, since, limits = [0] * size, [0] * size, [MISSED_MAX] * size
    entry_id = 0
    while entry_id < len(masks):
        mask, cut = masks[entry_id], None
        for number in range(copies if mask else 0):  # No bookie lacks an entry that none has.
            seat = (entry_id + number) % size
            if mask >> present.bits[seat] & 1:
                missed[seat] = 0
                continue
            if missed[seat] == 0:
                since[seat] = entry_id
            missed[seat] += 1
            if missed[seat] == limits[seat]:
                cut = since[seat] if cut is None else min(cut, since[seat])
        entry_id += 1
        if cut is None:
            continue
        seated = _sit(masks, cut, quorum, able, present.bits)
        if cut == present.first or seated == present.bits or len(fragments) + 1 >= FRAGMENTS_MAX:
            # No ensemble does better there: the lacking entries are copied, and the next look comes ever later.
            for seat in range(size):
                if missed[seat] == limits[seat]:
                    missed[seat], limits[seat] = 0, 2 * limits[seat]
            continue
        fragments.append(present)
        present, entry_id = Seats(cut, seated), cut
        missed, limits = [0] * size, [MISSED_MAX] * size
    return [*fragments, present]


def lacking(masks: Sequence[int], fragments: Sequence[Seats], quorum: Quorum) -> Iterator[tuple[int, int]]:
    """(entry id, bit of a bookie that has a seat in its write set and no copy), in entry order; without entries that no
    bookie has."""
    size, copies = quorum.ensemble_size, quorum.write_quorum
    ends = [each.first for each in fragments[1:]] + [len(masks)]
    for (first, bits), end in zip(fragments, ends, strict=True):
        for entry_id in range(first, end):
            mask = masks[entry_id]
            if mask:
                owing = (bits[(entry_id + number) % size] for number in range(copies))
                yield from ((entry_id, bit) for bit in owing if not mask >> bit & 1)


def _sit(
    masks: Sequence[int], first: int, quorum: Quorum, able: Sequence[int], before: Sequence[int]
) -> tuple[int, ...]:
    """The seats for the entries from this one on: each goes to the bookie that has most of what the seat owes there;
    among equals to its holder before."""
    size, copies = quorum.ensemble_size, quorum.write_quorum
    window = range(first, min(first + WINDOW * size, len(masks)))
    scores = {(seat, bit): 0 for seat in range(size) for bit in able}
    for entry_id in window:
        for number in range(copies):
            seat = (entry_id + number) % size
            for bit in able:
                scores[seat, bit] += masks[entry_id] >> bit & 1
    order = {bit: place for place, bit in enumerate(able)}

    def rank(pair: tuple[int, int]) -> tuple[int, bool, int, int]:
        seat, bit = pair
        return -scores[pair], not (before and before[seat] == bit), order[bit], seat

    seated: dict[int, int] = {}
    taken: set[int] = set()  # Asked by key only.
    for seat, bit in sorted(scores, key=rank):
        if seat not in seated and bit not in taken:
            seated[seat] = bit
            taken.add(bit)
    return tuple(seated[seat] for seat in range(size))
