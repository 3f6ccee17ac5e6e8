"""The bookies as one repair knows them: who is there, who may get seats, and who failed (P11.2).

Decides which bookies seats are offered to: those that are listed, that did not fail in this repair, and whose placement
was not found to be another one than listed. Remembers the revision of the placement of each that was chosen, as it was
then: the transaction that names a bookie compares it (P10.6). Where that is refused, the placements are read, and what
the list said of a bookie counts no more where it was outdated. Leaves to others: the choice itself (`target_choice`).
"""

from __future__ import annotations

from collections.abc import Iterable

from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata
from embedbk.codec.metadata_messages import Compare
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import RepairMark, moves_of
from embedbk.config import Placement, Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.placement import Chance, fill_seats
from embedbk.ids import Member
from embedbk.repair.circumstances import circumstances
from embedbk.repair.target_choice import choose_holders, moved_seats, placement_with_racks

__all__ = ["KnownBookies"]


class KnownBookies:
    """listed: as they were told last."""

    def __init__(self, listed: tuple[BookieInfo, ...], placement: Placement, chance: Chance) -> None:
        self.listed = listed
        self._placement = placement
        self._chance = chance
        self._chosen: dict[Member, int | None] = {}  # Chosen target -> revision of its placement then.
        self._refused: set[Member] = set()  # Targets that failed in this repair.
        self._outdated: set[tuple[str, int]] = set()  # Placements that were listed, and are others.
        self._compared: dict[str, int] = {}  # Placements, by the transaction that publishes.
        self._unread: set[str] = set()  # Those of them that are not read yet, behind a refusal.

    @property
    def there(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.listed)

    @property
    def writable(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.listed if info.is_writable)

    @property
    def staying(self) -> frozenset[Member]:
        return frozenset(info.member for info in self.listed if not info.is_leaving)

    @property
    def found_under(self) -> bytes:
        """Of what is found now: the circumstances, whatever the ledger."""
        return circumstances(b"", self.listed)

    @property
    def placement(self) -> Placement:
        return placement_with_racks(self._placement, self.listed)

    # Who failed.

    def refuse(self, member: Member) -> None:
        """It failed, and gets no seat in this repair."""
        self._refused.add(member)

    @property
    def failed(self) -> list[str]:
        """Bookies that another listing may show otherwise."""
        return sorted({each.bookie_id for each in self._refused} | {bookie for bookie, _ in self._outdated})

    @property
    def failed_targets(self) -> set[Member]:
        """Those of the chosen ones that are not chosen again."""
        return self._refused | {
            member for member, revision in self._chosen.items() if self._is_outdated(member, revision)
        }

    def _is_outdated(self, member: Member, placement: int | None) -> bool:
        return (member.bookie_id, placement) in self._outdated

    # The choice.

    def _usable(self) -> list[BookieInfo]:
        return [
            info
            for info in self.listed
            if info.member not in self._refused and not self._is_outdated(info.member, info.placement)
        ]

    def _note(self, usable: Iterable[BookieInfo], chosen: Iterable[Member]) -> None:
        placements = {info.member: info.placement for info in usable}
        self._chosen.update((member, placements[member]) for member in chosen)

    def choose(
        self, metadata: LedgerMetadata, fragment: Fragment, lost: list[int], mark: RepairMark
    ) -> dict[int, Member]:
        """Who gets the lost seats of the fragment; a seat for which there is nobody is left out."""
        usable = self._usable()
        holders = choose_holders(metadata, fragment, lost, mark, usable, self.placement, self._chance)
        self._note(usable, holders.values())
        return holders

    def choose_all(self, quorum: Quorum) -> tuple[Member, ...] | None:
        """A whole ensemble; None: too few bookies may get seats."""
        usable = self._usable()
        seats = fill_seats([None] * quorum.ensemble_size, usable, (), quorum, self.placement, self._chance)
        ensemble = tuple(member for member in seats if member is not None)
        if len(ensemble) < quorum.ensemble_size:
            return None
        self._note(usable, ensemble)
        return ensemble

    def choose_moves(
        self, metadata: LedgerMetadata, fragment: Fragment, mark: RepairMark
    ) -> dict[int, Member]:
        """Seats of this fragment that bookies give away though they stay, by the mark's word (P11.6)."""
        moves = moves_of(mark) if metadata.is_closed else {}
        if not moves:
            return {}
        usable = [info for info in self._usable() if info.is_writable]
        names = {info.member.bookie_id for info in usable}
        moves = {gives: takes for gives, takes in moves.items() if takes in names}
        holders = moved_seats(fragment, moves, self.listed, metadata.quorum, self.placement)
        self._note(usable, holders.values())
        return holders

    # Placements.

    def compare_placements(self, targets: Iterable[Member]) -> list[Compare]:
        """As they were when these were chosen: the ones that are listed by now may have been raised since."""
        noted = {member.bookie_id: self._chosen[member] for member in targets}
        self._compared = {
            bookie_id: number for bookie_id, number in sorted(noted.items()) if number is not None
        }
        return [Compare(placement_path(bookie_id), number) for bookie_id, number in self._compared.items()]

    def placements_to_read(self) -> list[str]:
        """The bookies whose placements were compared last, by a transaction that was refused."""
        self._unread = set(self._compared)
        return list(self._compared)

    def take_placement(self, bookie_id: str, revision: int) -> bool:
        """It has this revision, or is absent. Returns whether all of them are read."""
        if self._compared[bookie_id] != revision:
            self._outdated.add((bookie_id, self._compared[bookie_id]))
        self._unread.discard(bookie_id)
        return not self._unread
