"""What the bookie of a seat owes, and what its answer says of that (P3, P11.4).

A seat owes the entries of its write sets, but for those that were given up (P11.5). Its bookie counts, by its index
alone, how many of those it holds durably. If it counts as many as it owes, it has all of them; if fewer, it lacks some,
and names the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HeldRange
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.lost_entries import unlost_parts
from embedbk.config import Quorum
from embedbk.core.quorum import count_ids, write_set_mask
from embedbk.errors import PeerError
from embedbk.ids import Member

__all__ = ["Owed", "held_by", "owed_by_seat", "owed_parts", "owed_up_to"]


class Owed(NamedTuple):
    """Entries first..last with id % modulus in residues: so many."""

    first: int
    last: int
    modulus: int
    residues: int
    entries: int


def owed_up_to(metadata: LedgerMetadata, number: int) -> int:
    """The last entry of a fragment that is not written to any more; below its first one: it is empty."""
    if number + 1 < len(metadata.fragments):
        end = metadata.fragments[number + 1].first_entry - 1
        return end if metadata.last_entry is None else min(end, metadata.last_entry)
    assert metadata.last_entry is not None
    return metadata.last_entry


def _seat_residues(quorum: Quorum, seat: int) -> tuple[int, int]:
    """(modulus, residues) of the entries whose write set has the seat."""
    size = quorum.ensemble_size
    if size == quorum.write_quorum:
        return 1, 1
    return size, sum(1 << each for each in range(size) if write_set_mask(each, quorum) >> seat & 1)


def _cut(first: int, last: int, modulus: int, residues: int, ids_max: int) -> Iterator[Owed]:
    """Cut at the same ids, wherever it begins: what two bookies owe alike is comparable."""
    while first <= last:
        end = min(last, first - first % ids_max + ids_max - 1)
        count = count_ids(first, end, modulus, residues)
        if count:
            yield Owed(first, end, modulus, residues, count)
        first = end + 1


def _cut_unlost(
    metadata: LedgerMetadata, first: int, last: int, modulus: int, residues: int, ids_max: int
) -> Iterator[Owed]:
    """Nobody owes what was given up (P11.5). The parts are the same for all bookies that owe alike."""
    if not metadata.lost:
        yield from _cut(first, last, modulus, residues, ids_max)
        return
    for part in unlost_parts(metadata.lost, first, last, modulus, residues, metadata.ensemble_size):
        yield from _cut(*part, ids_max)


def owed_by_seat(metadata: LedgerMetadata, number: int, seat: int, ids_max: int) -> Iterator[Owed]:
    """The entries that the seat owes of a fragment which is not written to, in parts of at most so many ids."""
    first, last = metadata.fragments[number].first_entry, owed_up_to(metadata, number)
    return _cut_unlost(metadata, first, last, *_seat_residues(metadata.quorum, seat), ids_max)


def owed_parts(metadata: LedgerMetadata, member: Member, ids_max: int) -> Iterator[Owed]:
    """The entries that this bookie owes of a CLOSED ledger; adjacent fragments of which it owes the same share are
    one."""
    runs: list[tuple[int, int, int, int]] = []
    for number, fragment in enumerate(metadata.fragments):
        if member not in fragment.members:
            continue
        first, last = fragment.first_entry, owed_up_to(metadata, number)
        residues = _seat_residues(metadata.quorum, fragment.members.index(member))
        if runs and runs[-1][1] == first - 1 and runs[-1][2:] == residues:
            first = runs.pop()[0]
        runs.append((first, last, *residues))
    for run in runs:
        yield from _cut_unlost(metadata, *run, ids_max)


def held_by(answer: object, ledger_id: int, owed: Owed) -> tuple[int, list[tuple[int, int]]]:
    """How many of these entries the bookie holds, and ranges of the question with entries that it does not hold.

    Raises:
        PeerError: the answer does not fit the question; the text says why.
    """
    if not isinstance(answer, HeldRange) or answer.ledger_id != ledger_id:
        raise PeerError(getattr(answer, "text", "it answered something else"))
    if answer.status == Status.NO_SUCH_LEDGER:
        return 0, [(owed.first, owed.last)]
    if answer.status != Status.OK:
        raise PeerError(Status(answer.status).name)
    lacking = [(max(first, owed.first), min(last, owed.last)) for first, last in answer.lacking]
    lacking = [(first, last) for first, last in lacking if count_ids(first, last, *owed[2:4])]
    named = sum(count_ids(first, last, *owed[2:4]) for first, last in lacking)
    if answer.count > owed.entries or (answer.count < owed.entries) != bool(named):
        raise PeerError(f"it counts {answer.count} of {owed.entries} entries and names {named} that it lacks")
    return answer.count, lacking
