"""The copies that one repair of a ledger makes: the copying that is under way, what is copied and not published yet,
and how much all of it was."""

from __future__ import annotations

from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata
from embedbk.core.machine import Effect
from embedbk.ids import Member
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.fragment_copy import CopyOptions, CopyResult, FragmentCopy, Shape
from embedbk.repair.owed import owed_up_to
from embedbk.repair.repair_plan import SeatToFill
from embedbk.repair.seat_fill import SeatFill

__all__ = ["RepairCopying"]


class RepairCopying:
    """Of one repair: one copying after the other."""

    def __init__(self, nonce: int, pace: CopyPace, options: CopyOptions) -> None:
        self._nonce = nonce
        self._pace = pace
        self._options = options
        self.running: FragmentCopy | SeatFill | None = None
        self._numbers = 0  # The number of the last question of a copying.
        self.number = 0  # The fragment that is repaired now.
        self.holders: dict[int, Member] = {}
        self._is_moving = False  # The seats that are filled now are given away by bookies that stay.
        # Copied, durable and not published yet: (first entry, last entry, seat, target).
        self.copied: set[tuple[int, int, int, Member]] = set()
        self.copies = self.copied_bytes = self.filled = self.moved = 0

    @property
    def deadline_ns(self) -> int | None:
        return self.running.deadline_ns if self.running is not None else None

    def take_seats(self, number: int, holders: dict[int, Member], is_moving: bool) -> None:
        """These seats of this fragment get these holders."""
        self.number, self.holders, self._is_moving = number, holders, is_moving

    def is_copied(self, metadata: LedgerMetadata) -> bool:
        """Whether the new holders have all that they owe."""
        fragment = metadata.fragments[self.number]
        end = owed_up_to(metadata, self.number)
        return all((fragment.first_entry, end, *each) in self.copied for each in self.holders.items())

    def begin(self, now_ns: int, metadata: LedgerMetadata, there: frozenset[Member]) -> list[Effect]:
        """Copy what the new holders owe. there: the bookies that can be read from."""
        return self._begin(now_ns, metadata, self.holders, there, None)

    def begin_reshaped(
        self, now_ns: int, metadata: LedgerMetadata, number: int, shape: Shape, there: frozenset[Member]
    ) -> list[Effect]:
        """Copy what the bookies of another shape owe of this fragment (P2.6)."""
        self.number = number
        return self._begin(now_ns, metadata, {}, there, shape)

    def _begin(
        self,
        now_ns: int,
        metadata: LedgerMetadata,
        holders: dict[int, Member],
        there: frozenset[Member],
        shape: Shape | None,
    ) -> list[Effect]:
        self.running = FragmentCopy(
            metadata,
            self.number,
            holders,
            _away(metadata.fragments[self.number], there),
            self._nonce,
            self._pace,
            self._options,
            self._numbers,
            shape=shape,
        )
        return self.running.begin(now_ns)

    def begin_fill(
        self, now_ns: int, metadata: LedgerMetadata, fill: SeatToFill, there: frozenset[Member]
    ) -> list[Effect]:
        """Ask a bookie that keeps its seat, and copy what it lacks (P11.4)."""
        self.running = SeatFill(
            metadata,
            fill.number,
            fill.seat,
            _away(metadata.fragments[fill.number], there),
            self._nonce,
            self._pace,
            self._options,
            self._numbers,
        )
        return self.running.begin(now_ns)

    def take_over(self) -> tuple[FragmentCopy | SeatFill, CopyResult] | None:
        """A copying that is over, and its result: once."""
        over = self.running
        if over is None or over.result is None:
            return None
        self.running, self._numbers = None, over.numbers
        self.copies += over.copies
        self.copied_bytes += over.copied_bytes
        if isinstance(over, SeatFill):
            self.filled += over.copies
        return over, over.result

    def note_copied(self, copying: FragmentCopy) -> None:
        first = copying.fragment.first_entry
        self.copied |= {(first, copying.last, *each) for each in self.holders.items()}

    def published(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """With the new holders in their seats. Nothing else of the ledger changes."""
        old = metadata.fragments[self.number]
        ensemble = tuple(
            (member.bookie_id, member.incarnation)
            for member in (self.holders.get(seat, member) for seat, member in enumerate(old.members))
        )
        new = Fragment(old.first_entry, old.length_before, ensemble)
        fragments = (*metadata.fragments[: self.number], new, *metadata.fragments[self.number + 1 :])
        return metadata.with_changes(fragments=fragments)

    def note_published(self) -> None:
        self.moved += len(self.holders) if self._is_moving else 0


def _away(fragment: Fragment, there: frozenset[Member]) -> frozenset[int]:
    """Seats whose bookies cannot be read from."""
    return frozenset(seat for seat, member in enumerate(fragment.members) if member not in there)
