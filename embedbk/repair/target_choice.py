"""Who gets the lost seats of a fragment: the choice, as every repair makes it (P11.2)."""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata
from embedbk.codec.repair_mark import MarkProgress, RepairMark, progress_of, with_progress
from embedbk.config import ANYWHERE, Placement
from embedbk.core.client_words import BookieInfo
from embedbk.core.placement import Chance, fill_seats
from embedbk.ids import Member

__all__ = ["choose_holders", "lost_seats", "mark_with_targets", "placement_with_racks"]


def lost_seats(fragment: Fragment, missing: frozenset[str], staying: frozenset[Member]) -> list[int]:
    """Seats whose bookies the mark names and which are not registered, to stay, in the incarnation that has the
    copies."""
    return [
        seat
        for seat, member in enumerate(fragment.members)
        if member.bookie_id in missing and member not in staying
    ]


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
