"""What limbo needs of ledger metadata: the ledgers of which a bookie may have lost entries, and its share of each
(P7.4).

Leaves to others: what a bookie in limbo answers (core/ledger_standing.py), and where the metadata comes from
(host/limbo.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.metadata_messages import Told
from embedbk.core.bookie_words import SharePart
from embedbk.core.quorum import write_set_mask
from embedbk.ids import Member

__all__ = ["gone_of", "is_named", "share_of"]


def gone_of(
    told: Told, known: Iterable[int], dropped: Iterable[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """Ranges of ids (first, last), ascending, that metadata had given out and that are neither known nor dropped. A
    writer that still has entries for one of them was taken over, or makes it just now. Ids that a lost future may have
    used are among them: an adoption must not get "no" from a bookie that forgot the ledger (P10.5)."""
    singles = ((ledger_id, ledger_id + 1) for ledger_id in known)
    taken = sorted([*singles, *((first, last + 1) for first, last in dropped)])
    found, first = list[tuple[int, int]](), 1  # The first id that is given out.
    for begin, end in [*taken, (told.ids_end, told.ids_end)]:
        if first < min(begin, told.ids_end):
            found.append((first, min(begin, told.ids_end) - 1))
        first = max(first, end)
    return found


def is_named(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Whether a fragment names the bookie, so that it may have lost something of this ledger.

    By id, whatever the incarnation: to be in limbo without need costs an ensemble change, the contrary costs entries.
    """
    return any(bookie_id == seat[0] for fragment in metadata.fragments for seat in fragment.ensemble)


def share_of(metadata: LedgerMetadata, member: Member) -> list[SharePart]:
    """The entries of a closed ledger that stand in a write set with a seat of this bookie."""
    assert metadata.last_entry is not None
    quorum, parts = metadata.quorum, []
    starts = [fragment.first_entry for fragment in metadata.fragments]
    for fragment, behind in zip(metadata.fragments, [*starts[1:], metadata.last_entry + 1], strict=True):
        last = min(behind - 1, metadata.last_entry)
        if member not in fragment.members or last < fragment.first_entry:
            continue
        seat = fragment.members.index(member)
        residues = sum(
            1 << residue
            for residue in range(quorum.ensemble_size)
            if write_set_mask(residue, quorum) >> seat & 1
        )
        parts.append(SharePart(fragment.first_entry, last, quorum.ensemble_size, residues))
    return parts
