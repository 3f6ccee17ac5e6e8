"""On how many racks the copies of each entry are, at least (AR06): for the sentence about the health of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.quorum import write_set_mask

__all__ = ["fewest_racks"]


def fewest_racks(ledgers: Iterable[LedgerMetadata], racks: Mapping[str, str]) -> int:
    """The least number of racks over which a write set of one of these ledgers lies. racks: where each registered
    bookie is, as it says itself. 0: no ledger was given, or a bookie of one says nothing, or is away."""
    seen: dict[tuple[tuple[str, ...], int], int] = {}
    for metadata in ledgers:
        if metadata.freed is not None:
            continue  # Files have its entries (P8.14).
        for fragment in metadata.fragments:
            where = tuple(racks.get(member.bookie_id, "") for member in fragment.members)
            # Very many ledgers have the same bookies.
            key = (where, metadata.write_quorum)
            if key not in seen:
                seen[key] = 0 if "" in where else _of_fragment(where, metadata)
    return min(seen.values(), default=0)


def _of_fragment(where: tuple[str, ...], metadata: LedgerMetadata) -> int:
    sets = (write_set_mask(residue, metadata.quorum) for residue in range(metadata.ensemble_size))
    return min(len({rack for seat, rack in enumerate(where) if mask >> seat & 1}) for mask in sets)
