"""Where appended entries stand when their ledger failed and the next one took what was outstanding (P8.2).

Decides which id an entry has in the next ledger, moves those that are outstanding there in that order, and how a call
returns entries in several ledgers.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from embedbk.codec.frame import Frame
from embedbk.codec.packing import Packing
from embedbk.errors import ensure
from embedbk.host.writing import Writing
from embedbk.ids import Position

if TYPE_CHECKING:
    from embedbk.client.appending import Appending

__all__ = ["Appended", "Heir", "in_parts", "joined", "move_outstanding", "places"]


class Appended(NamedTuple):
    """The entries first_entry..last_entry of one ledger, both included: what one call appended."""

    ledger_id: int
    first_entry: int
    last_entry: int

    @property
    def entry_count(self) -> int:
        return self.last_entry - self.first_entry + 1

    @property
    def first(self) -> Position:
        return Position(self.ledger_id, self.first_entry)

    @property
    def last(self) -> Position:
        return Position(self.ledger_id, self.last_entry)

    @property
    def parts(self) -> tuple[Appended, ...]:
        """One for each ledger, in order. More than one where a log's ledger failed meanwhile, and the rest went to the
        next one (P8.2): the numbers of the whole are those of its last part then, but for `first` and `entry_count`."""
        return (self,)


class _InParts(Appended):
    """What one call appended to several ledgers, with no other call's entries in between."""

    _parts: tuple[Appended, ...]

    @property
    def parts(self) -> tuple[Appended, ...]:
        return self._parts

    @property
    def entry_count(self) -> int:
        return sum(part.entry_count for part in self._parts)

    @property
    def first(self) -> Position:
        return self._parts[0].first


def in_parts(parts: Sequence[Appended]) -> Appended:
    """What one call appended, made of its parts in order."""
    if len(parts) == 1:
        return parts[0]
    whole = _InParts(*parts[-1])
    whole._parts = tuple(parts)
    return whole


class Heir(NamedTuple):
    """Where the entries of a ledger that failed are: up to last_entry there, those behind it in the next one, from
    first_entry on and in order (P8.2). refused: those among them, ascending, that are in neither."""

    appending: Appending
    last_entry: int
    refused: tuple[int, ...]
    first_entry: int = 0

    def moved(self, entry_id: int) -> int | None:
        """The id in the next ledger; None: it is not there."""
        before = bisect.bisect_left(self.refused, entry_id)
        if entry_id <= self.last_entry or self.refused[before : before + 1] == (entry_id,):
            return None
        return self.first_entry + entry_id - self.last_entry - 1 - before


def places(handle: Appending, queued: Appended) -> list[Appended]:
    """The places by now of the entries that one call queued in this handle's ledger."""
    heir, first, last = handle.heir, queued.first_entry, queued.last_entry
    if heir is None or last <= heir.last_entry:
        return [queued]
    stays = [Appended(handle.ledger_id, first, heir.last_entry)] if first <= heir.last_entry else []
    begin, end = heir.moved(max(first, heir.last_entry + 1)), heir.moved(last)
    assert begin is not None and end is not None  # A call that appends many has no condition.
    return stays + places(heir.appending, Appended(heir.appending.ledger_id, begin, end))


def joined(handle: Appending, appended: Appended) -> Appended:
    """The same entries, acknowledged, where their parts stand by now. handle: the one that the call began with."""
    parts: list[Appended] = []
    for part in appended.parts:
        while handle.ledger_id != part.ledger_id:
            assert handle.heir is not None
            handle = handle.heir.appending
        for placed in places(handle, part):
            if parts and parts[-1].ledger_id == placed.ledger_id:
                placed = Appended(placed.ledger_id, parts.pop().first_entry, placed.last_entry)
            parts.append(placed)
    return in_parts(parts)


def move_outstanding(writing: Writing, to: Packing, last_entry: int, refused: Sequence[int]) -> bool:
    """The handle failed, and its ledger ended at last_entry: append what is outstanding behind that, but those refused,
    to the packer of the next one, once and in order. Payloads are copied once more, a frame at a time, so that no more
    memory is held than before. False: the handle was released meanwhile, and nothing was moved."""
    packer, frames = writing.packer, deque(writing.outstanding)
    if writing.error is not None:
        return False  # Read after `outstanding`: the code that sets the error drops the frames then.
    writing.outstanding = ()
    due = last_entry + 1
    while frames or (sealed := packer.seal()) is not None:
        frame = frames.popleft() if frames else sealed
        assert frame is not None
        if due <= frame.last_entry:
            ensure(frame.first_entry <= due, "an outstanding entry was let go of")
            _append_again(to, frame, due, refused)
            due = frame.last_entry + 1
    ensure(due == max(last_entry, packer.last_entry) + 1, "an outstanding entry was let go of")
    return True


def _append_again(packer: Packing, frame: Frame, first: int, refused: Sequence[int]) -> None:
    """The entries of a frame from `first` on but those refused; a packer takes them beyond its bounds."""
    begin = first
    for end in [*(each for each in refused if first <= each <= frame.last_entry), frame.last_entry + 1]:
        count = end - begin
        taken = packer.append_again(frame, begin - frame.first_entry, count) if count else 0
        if taken < count:
            raise MemoryError(f"no memory for {count - taken} appends on their way to a next ledger")
        begin = end + 1
