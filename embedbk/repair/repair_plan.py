"""What is repaired next of a marked ledger, and what keeps the rest from being repaired (P11.2, P11.4).

Decides which fragment's seats are given away next, and to whom; which seat of a bookie that is there is filled next;
and how the repair ends when nothing is left. What cannot be done now keeps nothing else from being done. Pure: copying,
publishing and the mark are the repair's own (`ledger_repair`).

    a fragment with lost seats, or moves ─▶ targets ── none left: seats whose bookies are there, which may lack entries
         └── nobody can take them: stopped                └── none left: postponed, deferred, unrepairable, or repaired
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.repair_mark import WHY_CHARS_MAX, RepairMark
from embedbk.codec.repair_state import Unrepairable
from embedbk.ids import NO_ENTRY, Member
from embedbk.repair.circumstances import circumstances
from embedbk.repair.known_bookies import KnownBookies
from embedbk.repair.owed import owed_up_to
from embedbk.repair.target_choice import lost_seats

__all__ = ["RepairPlan", "SeatToFill", "SeatsToGive"]


class SeatsToGive(NamedTuple):
    """Seats of one fragment, each with the bookie that gets it. is_moving: bookies that stay give them away."""

    number: int
    holders: dict[int, Member]
    is_moving: bool


class SeatToFill(NamedTuple):
    """A seat whose bookie is there, and may lack entries of first..last. number: of the fragment."""

    number: int
    first: int
    last: int
    seat: int
    member: Member


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A fragment that cannot be repaired as things stand."""

    first_entry: int
    entry_id: int
    why: str
    bookies: tuple[str, ...]  # Those that the mark names, of the seats that stay as they are.
    under: bytes  # Who was there when that was found.


class RepairPlan:
    """Of one repair."""

    def __init__(self, bookies: KnownBookies) -> None:
        self.stopped: list[_Stopped] = []
        self._bookies = bookies
        # First entry of a fragment that another try may repair -> why. NO_ENTRY: for the ledger's shape.
        self._put_off: dict[int, str] = {}
        # Asked in this repair, and whole, or beyond help: (first entry, last entry, seat, bookie).
        self._looked_into: set[tuple[int, int, int, Member]] = set()
        self._is_deferred = False  # The last fragment has seats to be given away, and is its writer's.

    # What comes next.

    def next_seats(
        self, metadata: LedgerMetadata, mark: RepairMark, *, has_copies: bool
    ) -> SeatsToGive | None:
        """has_copies: this repair has made some. None: there are none, or they are passed over."""
        there, staying, missing = self._bookies.there, self._bookies.staying, frozenset(mark.missing)
        self._is_deferred = False
        passed_over = {each.first_entry for each in self.stopped} | self._put_off.keys()
        for number, fragment in enumerate(metadata.fragments):
            if fragment.first_entry in passed_over:
                continue
            lost = lost_seats(fragment, missing, staying)
            if not lost:
                if holders := self._bookies.choose_moves(metadata, fragment, mark):
                    return SeatsToGive(number, holders, is_moving=True)
                continue
            if number == len(metadata.fragments) - 1 and not metadata.is_closed:
                # A mark of a drained bookie that stands for nothing else waits for the auditor's word (AR08).
                self._is_deferred |= not has_copies or any(
                    fragment.members[seat] not in there for seat in lost
                )
                continue
            if holders := self._bookies.choose(metadata, fragment, lost, mark):
                return SeatsToGive(number, holders, is_moving=False)
            bookies = tuple(fragment.members[seat].bookie_id for seat in lost)
            why = f"no bookie can take the seat of {', '.join(bookies)}"
            # A bookie that another listing shows otherwise may take it then (P10.6).
            if failed := self._bookies.failed:
                self._put_off[fragment.first_entry] = f"{why} ({', '.join(failed)} failed)"
            else:
                self.stop(fragment.first_entry, NO_ENTRY, why, bookies)
        return None

    def next_fill(self, metadata: LedgerMetadata, mark: RepairMark) -> SeatToFill | None:
        """A seat of a bookie that the mark names and that is there, which was not asked yet."""
        if not metadata.is_closed:
            return None
        there, writable, missing = self._bookies.there, self._bookies.writable, frozenset(mark.missing)
        for number, fragment in enumerate(metadata.fragments):
            first, last = fragment.first_entry, owed_up_to(metadata, number)
            for seat, member in enumerate(fragment.members):
                fill = SeatToFill(number, first, last, seat, member)
                is_named = member.bookie_id in missing and member in there and first <= last
                if not is_named or fill[1:] in self._looked_into:
                    continue
                if member in writable:
                    return fill
                # The room that it has left is for fences (P7.8).
                self.put_off_fill(fill, f"{member.bookie_id} may lack entries, and is read-only")
        return None

    # What came of it.

    def end_fill(self, fill: SeatToFill) -> None:
        """Its bookie lacks nothing any more, or what it lacks has no good copy."""
        self._looked_into.add(fill[1:])

    def put_off_fill(self, fill: SeatToFill, why: str) -> None:
        self._looked_into.add(fill[1:])
        self._put_off.setdefault(fill.first, why)

    def put_off(self, first_entry: int, why: str) -> None:
        """Another try may repair the fragment that begins there. NO_ENTRY: give the ledger its shape."""
        self._put_off[first_entry] = why

    def stop(self, first_entry: int, entry_id: int, why: str, bookies: tuple[str, ...]) -> None:
        """The fragment that begins there cannot be repaired as things stand, because of this entry, if of one. bookies:
        of seats that stay as they are."""
        self.stopped.append(_Stopped(first_entry, entry_id, why, bookies, self._bookies.found_under))

    def judge_anew(self) -> None:
        """Others changed the metadata: what was found before is of another one (AR10)."""
        self.stopped.clear()
        self._looked_into.clear()

    # The end.

    def verdict(self) -> tuple[str, str]:
        """How a repair ends that has nothing left to do: "postponed" or "deferred", and why; "unrepairable"; or ""."""
        if self._put_off:
            return "postponed", next(iter(self._put_off.values()))
        if self._is_deferred:
            return "deferred", "its last fragment is its writer's"
        if any(each.under != self._bookies.found_under for each in self.stopped):
            # Else it is judged under these, and never again.
            return "postponed", "other bookies are there by now"
        return ("unrepairable" if self.stopped else ""), ""

    def record(self, value: bytes, created_ms: int) -> Unrepairable:
        """What is written down of a ledger that cannot be repaired. value: its metadata. created_ms: of its mark."""
        # What names an entry tells more than that nobody can take a seat.
        first = min(self.stopped, key=lambda each: each.entry_id == NO_ENTRY)
        return Unrepairable(
            1,
            first.first_entry,
            first.entry_id,
            tuple(sorted({bookie for each in self.stopped for bookie in each.bookies})),
            first.why[:WHY_CHARS_MAX],
            circumstances(value, self._bookies.listed),
            created_ms,
        )
