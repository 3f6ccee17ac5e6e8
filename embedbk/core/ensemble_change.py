"""Proposing another ensemble when seats have failed (P4.1): which bookies get the seats, and which fragments result.

Decides the proposal only. Publishing it is the writer's compare-and-set (P4.2, P4.3) or, for recovery, part of the
closing one (P5.2d).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from embedbk.codec.ledger_metadata import Fragment
from embedbk.config import ANYWHERE, Placement
from embedbk.core.client_words import BookieInfo
from embedbk.core.in_flight import InFlight
from embedbk.core.placement import Chance, fill_seats
from embedbk.core.seating import Seating
from embedbk.ids import Member

__all__ = ["Proposal", "change_fragments", "propose"]


@dataclass(slots=True)
class Proposal:
    """Seatings in seat order, of which those that replace a failed one are new, for entries from first_entry on."""

    first_entry: int
    length_before: int  # Payload bytes of the ledger before first_entry.
    seatings: list[Seating]
    sums: tuple[
        int, ...
    ] = ()  # They cover all entries before first_entry (P11.4); empty: that cannot be told.


def propose(
    in_flight: InFlight,
    bookies: Sequence[BookieInfo],
    avoid: Sequence[str],
    chance: Chance,
    placement: Placement = ANYWHERE,
    late: Sequence[Seating] = (),
    last: Sequence[str] = (),
    known: Mapping[Member, str] = {},
) -> Proposal | None:
    """New holders, from the first entry not done on, for as many failed seats as bookies can be found for (RP13).

    Bookies outside the ensemble come first. Where there are none, one that lost its disk may take its own seat again in
    its new incarnation: no other seat, or the ensemble would name one bookie twice (P2.4). None when no bookie can be
    found.

    avoid: ids of bookies that failed lately under this handle. last: those of them that are there again, and are taken
    after all others in this order, also for their own seats (P4.5). late: seatings to be replaced though they have not
    failed (P4.7). known: locations of bookies that have seats and are not among these.
    """
    failed = sorted({*in_flight.failed_seats, *(seating.seat for seating in late)})
    seated = [seating.member.bookie_id for seating in in_flight.seatings]
    seatings = list(in_flight.seatings)
    seats = [None if seat in failed else each.member for seat, each in enumerate(seatings)]
    left_out = {*avoid} - {*last}
    filled = fill_seats(
        seats, bookies, {*seated, *left_out}, in_flight.quorum, placement, chance, last, known
    )
    for seat in failed:
        member = filled[seat] or _reborn(seatings[seat].member, bookies, left_out)
        if member is not None:
            seatings[seat] = in_flight.new_seating(seat, member)
    if seatings == in_flight.seatings:
        return None
    done = in_flight.done
    return Proposal(done + 1, in_flight.done_length, seatings, in_flight.sums_through(done))


def _reborn(member: Member, bookies: Sequence[BookieInfo], avoid: Collection[str]) -> Member | None:
    """The same bookie in another incarnation, if it is registered so."""
    for info in bookies:
        is_same = info.member.bookie_id == member.bookie_id and info.member != member
        if is_same and info.is_writable and member.bookie_id not in avoid:
            return info.member
    return None


def change_fragments(fragments: tuple[Fragment, ...], proposal: Proposal) -> tuple[Fragment, ...]:
    """The fragments with the last one's successor added, or the last replaced when it starts there already (P4.1)."""
    last, first_entry = fragments[-1], proposal.first_entry
    # Never below the last fragment: its entries are not ours to move (P2.3).
    assert first_entry >= last.first_entry
    ensemble = tuple((seating.member.bookie_id, seating.member.incarnation) for seating in proposal.seatings)
    if first_entry == last.first_entry:
        return (*fragments[:-1], Fragment(first_entry, last.length_before, ensemble))
    return (*fragments, Fragment(first_entry, proposal.length_before, ensemble))
