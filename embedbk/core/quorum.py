"""Arithmetic of write sets and quorums (P1, P4.5, P5.2b, P5.2c). Sets of seats are bit masks: bit s is seat s.

Everything here is judged write set by write set, on sets of seats, never on a count of answers: with striping three
answers may cover nothing (scenario 7).
"""

from __future__ import annotations

import enum
from functools import lru_cache

from embedbk.config import Quorum

__all__ = [
    "Verdict",
    "count_ids",
    "has_ack_quorum",
    "has_coverage",
    "recovery_verdict",
    "residues_of",
    "write_set",
    "write_set_mask",
]


class Verdict(enum.Enum):
    """What recovery may conclude about one entry (P5.2c)."""

    RECOVERABLE = "recoverable"
    NOT_THERE = "not there"
    UNDECIDED = "undecided"


def count_ids(first: int, last: int, modulus: int, residues: int) -> int:
    """How many ids of first..last have id % modulus in residues (bit r for residue r)."""
    ids = last - first + 1
    return sum(
        (ids - 1 - step) // modulus + 1
        for step in range(min(modulus, max(ids, 0)))
        if residues >> (first + step) % modulus & 1
    )


def write_set(entry_id: int, quorum: Quorum) -> tuple[int, ...]:
    """Seats that hold the entry: (e + i) mod E for i < Qw (P1)."""
    return tuple((entry_id + i) % quorum.ensemble_size for i in range(quorum.write_quorum))


def write_set_mask(entry_id: int, quorum: Quorum) -> int:
    return _write_set_masks(quorum)[entry_id % quorum.ensemble_size]


def residues_of(first: int, last: int, quorum: Quorum) -> tuple[int, ...]:
    """One entry id modulo E for every distinct write set among entries first..last."""
    size = quorum.ensemble_size
    if size == quorum.write_quorum:
        return (0,)
    if last - first + 1 >= size:
        return tuple(range(size))
    return tuple(entry_id % size for entry_id in range(first, last + 1))


def has_ack_quorum(acked: int, residues: tuple[int, ...], quorum: Quorum) -> bool:
    """Did Qa seats of each of these write sets acknowledge (P3.3)?"""
    if quorum.ensemble_size == quorum.write_quorum:
        return acked.bit_count() >= quorum.ack_quorum  # There is one write set, of all seats.
    masks = _write_set_masks(quorum)
    return all((masks[residue] & acked).bit_count() >= quorum.ack_quorum for residue in residues)


def has_coverage(seats: int, quorum: Quorum) -> bool:
    """Do at least (Qw - Qa) + 1 seats of *every* write set have the property? Then no ack quorum lacks it (P1)."""
    need = quorum.write_quorum - quorum.ack_quorum + 1
    return all((mask & seats).bit_count() >= need for mask in _write_set_masks(quorum))


def recovery_verdict(entry_id: int, positive: int, negative: int, quorum: Quorum) -> Verdict:
    """One valid copy makes the entry recoverable; (Qw - Qa) + 1 explicit negatives of its write set prove that it is
    not there; everything else is unknown and decides nothing (P5.2c)."""
    mask = write_set_mask(entry_id, quorum)
    if positive & mask:
        return Verdict.RECOVERABLE
    if (negative & mask).bit_count() >= quorum.write_quorum - quorum.ack_quorum + 1:
        return Verdict.NOT_THERE
    return Verdict.UNDECIDED


@lru_cache(maxsize=256)
def _write_set_masks(quorum: Quorum) -> tuple[int, ...]:
    """The distinct write sets as masks, one per residue of the entry id modulo E."""
    return tuple(
        sum(1 << seat for seat in write_set(residue, quorum)) for residue in range(quorum.ensemble_size)
    )
