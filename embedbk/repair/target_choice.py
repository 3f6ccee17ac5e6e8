"""Who gets the lost seats of a fragment: the choice, as every repair makes it (P11.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata
from embedbk.codec.repair_mark import MarkProgress, RepairMark, progress_of, with_progress
from embedbk.config import ANYWHERE, Placement, Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.placement import Chance, fill_seats, span_of
from embedbk.ids import Member

__all__ = ["choose_holders", "lost_seats", "mark_with_targets", "moved_seats", "placement_with_racks"]


def lost_seats(fragment: Fragment, missing: frozenset[str], staying: frozenset[Member]) -> list[int]:
    """Seats whose bookies the mark names and which are not registered, to stay, in the incarnation that has the
    copies."""
    return [
        seat
        for seat, member in enumerate(fragment.members)
        if member.bookie_id in missing and member not in staying
    ]


def moved_seats(
    fragment: Fragment,
    moves: Mapping[str, str],
    bookies: Sequence[BookieInfo],
    quorum: Quorum,
    placement: Placement,
) -> dict[int, Member]:
    """Seats that bookies give away though they stay, each with the member that gets it (P11.6). Left out is a move
    where either is not there, the other one takes no entries or has a seat here already, and one behind which the write
    sets span fewer racks than before."""
    seats: list[Member | None] = list(fragment.members)
    there = {info.member for info in bookies}
    takers = {
        info.member.bookie_id: info.member for info in bookies if info.is_writable and not info.is_leaving
    }
    moved: dict[int, Member] = {}
    for seat, member in enumerate(fragment.members):
        target = takers.get(moves.get(member.bookie_id, ""))
        seated = {each.bookie_id for each in seats if each is not None}
        if member not in there or target is None or target.bookie_id in seated:
            continue
        with_target: list[Member | None] = [*seats[:seat], target, *seats[seat + 1 :]]
        if span_of(with_target, bookies, quorum, placement) >= span_of(seats, bookies, quorum, placement):
            seats, moved[seat] = with_target, target
    return moved


def placement_with_racks(placement: Placement, bookies: Sequence[BookieInfo]) -> Placement:
    """By racks where bookies say theirs: the ledger's creator may have asked for it, and it costs nothing."""
    has_racks = placement == ANYWHERE and any(info.location for info in bookies)
    return Placement("rack") if has_racks else placement


def choose_holders(
    metadata: LedgerMetadata,
    fragment: Fragment,
    lost: list[int],
    mark: RepairMark,
    usable: Sequence[BookieInfo],
    placement: Placement,
    chance: Chance,
) -> dict[int, Member]:
    """Choose the bookies that get the lost seats; a seat for which there is none is left out. Targets that the mark
    names come first: they may have copies."""
    seats = [None if seat in lost else member for seat, member in enumerate(fragment.members)]
    taken = {member.bookie_id for member in seats if member is not None}
    named = set(progress_of(mark).targets)
    others = sorted(
        info.member.bookie_id
        for info in usable
        if (info.member.bookie_id, info.member.incarnation) not in named
    )
    filled = fill_seats(seats, usable, taken, metadata.quorum, placement, chance, others if named else [])
    return {seat: member for seat in lost if (member := filled[seat]) is not None}


def mark_with_targets(mark: RepairMark, targets: Sequence[Member]) -> RepairMark:
    """The mark that names these as the newest targets. It is the same mark where it names all of them already."""
    chosen = [(each.bookie_id, each.incarnation) for each in targets]
    known = progress_of(mark)
    if all(each in known.targets for each in chosen):
        return mark
    kept = [each for each in known.targets if each not in chosen]
    return with_progress(mark, MarkProgress((*kept, *chosen), known.why))
