"""What the writer of a ledger publishes of a fragment that ends: digests by residue of all of its entries (P11.4, I56).

Decides which sums a change or a close carries. They are of entries that are acknowledged, and of no other: the packer
adds each entry up once, when it makes it, and tells the sum up to a place at which a frame ended. How many entries
there are follows from their ids, which are dense (P3.1). Where anything cannot be told nothing is published, and audits
compare the copies with each other.
"""

from __future__ import annotations

from collections.abc import Callable

from embedbk.codec.entry_digest import DIGEST_MASK
from embedbk.codec.ledger_metadata import LedgerMetadata, PublishedSums
from embedbk.config import Quorum

__all__ = ["SumsThrough", "modulus_of", "no_sums", "sums_with"]

# A packer's answer: by residue the sum of all entries up to this one; empty: that cannot be told.
SumsThrough = Callable[[int], tuple[int, ...]]


def no_sums(entry_id: int) -> tuple[int, ...]:
    """What a handle says that knows none."""
    return ()


def modulus_of(quorum: Quorum) -> int:
    """How many residues the copies of a ledger lie by: one where each bookie has all entries."""
    return 1 if quorum.ensemble_size == quorum.write_quorum else quorum.ensemble_size


def sums_with(metadata: LedgerMetadata, last: int, total: tuple[int, ...]) -> tuple[PublishedSums, ...]:
    """What is published when the last fragment ends with the entry `last`. total: the sums of entries 0 to last."""
    published, first = metadata.sums, metadata.fragments[-1].first_entry
    begin = published[-1].last_entry + 1 if published else 0
    if not total or last < first or begin != first:
        return published
    for each in published:
        if len(each.digests) != len(total):
            return published
        total = tuple((a - b) & DIGEST_MASK for a, b in zip(total, each.digests, strict=True))
    return (*published, PublishedSums(first, last, total))
