"""What the writer of a ledger said of its entries, against what bookies have (P11.4, I56).

Decides which digests are comparable with the published sums, and which bookie's copies are not what was written. So a
copy is found that differs from what its writer made though no other copy is there, or all of them are alike. Where
nothing was published, or entries were given up (P11.5), nothing is compared here. Of a ledger that got other numbers of
copies (P2.6) only that is compared which the old residues tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.ledger_metadata import LedgerMetadata, PublishedSums
from embedbk.ids import Member

__all__ = ["Unlike", "published_digest", "published_total", "unlike_published"]

Told = Mapping[tuple[int, int, int, int], Mapping[Member, int]]  # (first, last, modulus, residue) -> digests.


class Unlike(NamedTuple):
    """Copies of a bookie, entries first to last with id % modulus == residue, that are not what their writer published:
    at least one of them differs, and each is whole by itself."""

    bookie_id: str
    first: int
    last: int
    modulus: int
    residue: int


def published_digest(
    metadata: LedgerMetadata, first: int, last: int, modulus: int, residue: int
) -> int | None:
    """The sum that the writer published of exactly these entries; None: it published none."""
    found = next(
        (each for each in metadata.sums if (each.first_entry, each.last_entry) == (first, last)), None
    )
    return None if found is None or _is_lost(metadata, found) else _sum_of(found, modulus, residue)


def published_total(metadata: LedgerMetadata) -> int | None:
    """The sum that the writer published of all entries of a CLOSED ledger; None: not of all of them, or some were given
    up."""
    if metadata.last_entry is None or metadata.lost:
        return None
    parts = sorted((each.first_entry, each.last_entry, sum(each.digests)) for each in metadata.sums)
    return _total(0, metadata.last_entry, parts)


def _sum_of(published: PublishedSums, modulus: int, residue: int) -> int | None:
    if modulus == len(published.digests):
        return published.digests[residue]
    return sum(published.digests) & DIGEST_MASK if modulus == 1 else None


def _is_lost(metadata: LedgerMetadata, published: PublishedSums) -> bool:
    runs = (run for word in metadata.lost for run in word.runs)
    return any(first <= published.last_entry and last >= published.first_entry for first, last, _ in runs)


def unlike_published(metadata: LedgerMetadata, told: Told) -> list[Unlike]:
    """Bookies whose digests add up to another sum than the published one. One of which not all was told is no party."""
    found: list[Unlike] = []
    for each in metadata.sums:
        parts: dict[tuple[Member, int, int], list[tuple[int, int, int]]] = {}
        for (first, last, modulus, residue), digests in told.items():
            if each.first_entry <= first and last <= each.last_entry:
                for member, digest in digests.items():
                    parts.setdefault((member, modulus, residue), []).append((first, last, digest))
        for (member, modulus, residue), pieces in parts.items():
            wanted = published_digest(metadata, each.first_entry, each.last_entry, modulus, residue)
            found_sum = _total(each.first_entry, each.last_entry, sorted(pieces))
            if wanted is not None and found_sum not in (None, wanted):
                found.append(Unlike(member.bookie_id, each.first_entry, each.last_entry, modulus, residue))
    return sorted(found)


def _total(first_entry: int, last_entry: int, pieces: list[tuple[int, int, int]]) -> int | None:
    """The sum of pieces that follow each other from the first entry to the last; None: there is a gap."""
    wanted, total = first_entry, 0
    for first, last, digest in pieces:
        if first != wanted:
            return None
        wanted, total = last + 1, total + digest & DIGEST_MASK
    return total if wanted == last_entry + 1 else None
