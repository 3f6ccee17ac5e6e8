"""The frames of one writing handle that are on their way, and what each seat still owes an answer for.

The one owner of that state: whoever sends, counts or forgets does it by these calls. Decides nothing of the protocol:
which frames have their quorum, who has failed and what follows is `in_flight`'s. Frames stand in entry order; a seat is
known by its slot, of which each seat has two: while an ensemble change is in flight, its holder has one and who is
proposed for it the other (P4.2).

    put ─▶ PENDING ──confirm──▶ BEHIND ──every slot that owes it has answered, or owes nothing more──▶ released
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from embedbk.codec.frame import Frame
from embedbk.core.backlog import FRAME_PRICE, Backlog

__all__ = ["FrameTable", "Pending"]

_NO_FRAMES: dict[int, Pending] = {}  # One for all tables that have none; never changed.


@dataclass(slots=True)
class Pending:
    """A frame on its way. Bits by slot: who has all of its part durable, and who holds it at least in memory (P3.2)."""

    frame: Frame
    residues: tuple[int, ...]
    acked: int = 0
    received: int = 0  # Deferred sync only.


class FrameTable:
    """Frames by first entry.

    Args:
        backlog: counts what is kept behind, for all handles of the process; None: nobody counts.
    """

    __slots__ = ("_behind", "_owed", "_pending", "backlog", "behind_bytes", "pending_bytes")

    def __init__(self, backlog: Backlog | None) -> None:
        self.backlog = backlog
        # Sent, and not done: in entry order, every frame above what is done.
        self._pending = _NO_FRAMES
        self.pending_bytes = 0
        # Done, and not answered by a slot that owes it: kept, because it may say BUSY and be sent it again. Else each
        # wait of one bookie would leave an entry with Qa copies where Qw were asked for.
        self._behind = _NO_FRAMES
        self.behind_bytes = 0  # With the price of each frame.
        # By slot, first entry of each frame that it was sent and has not answered -> when it was sent. In the order of
        # sending. Outlives `pending`, because a seat that never answers must be noticed also where the ack quorum goes
        # on without it.
        self._owed: list[dict[int, int]] = []

    # Frames.

    @property
    def pending(self) -> Mapping[int, Pending]:
        """Frames that are not done, by first entry, in entry order."""
        return self._pending

    @property
    def behind(self) -> Mapping[int, Pending]:
        """Frames that are done and kept for slots that owe an answer, by first entry, in the order of being done."""
        return self._behind

    def put(self, frame: Frame, residues: tuple[int, ...]) -> Pending:
        """The newest frame. Nobody owes an answer for it before `owe`."""
        pending = Pending(frame, residues)
        if self._pending:
            assert frame.first_entry > next(reversed(self._pending))
            self._pending[frame.first_entry] = pending
        else:
            self._pending = {frame.first_entry: pending}
        self.pending_bytes += len(frame.body)
        return pending

    def find(self, first_entry: int) -> Pending | None:
        return self._pending.get(first_entry) or self._behind.get(first_entry)

    def newest(self) -> Frame:
        """The one that was put last, of those that are not done."""
        return next(reversed(self._pending.values())).frame

    def newest_first(self) -> Iterator[int]:
        """First entries of the frames that are not done, the newest first."""
        return reversed(self._pending)

    def oldest(self) -> Pending | None:
        """The first that is not done."""
        return next(iter(self._pending.values()), None)

    def confirm(self) -> None:
        """The oldest is done: it is kept while a slot owes an answer for it."""
        first_entry = next(iter(self._pending))
        pending = self._pending.pop(first_entry)
        self.pending_bytes -= len(pending.frame.body)
        if not self._pending:
            self._pending = _NO_FRAMES  # An empty dict keeps the room of what was in it.
        self.keep(first_entry, pending)

    def keep(self, first_entry: int, pending: Pending) -> None:
        """A frame that is done, while a slot owes an answer for it."""
        if not any(first_entry in owed for owed in self._owed):
            return
        if not self._behind:
            self._behind = {}
        self._behind[first_entry] = pending
        self._count_behind(len(pending.frame.body) + FRAME_PRICE)

    def drop_oldest_behind(self) -> None:
        self._drop(next(iter(self._behind)))

    def give_up(self) -> None:
        """Nothing is on its way any more, and nothing is kept."""
        self._pending = _NO_FRAMES
        self.pending_bytes = 0
        self.let_go()

    def let_go(self) -> None:
        """Nothing is kept for anybody any more."""
        self._count_behind(-self.behind_bytes)
        self._behind = _NO_FRAMES

    # What is owed.

    def owe(self, slot: int, first_entry: int, now_ns: int) -> None:
        """This slot is sent the frame. What it is sent again counts from the first time."""
        while len(self._owed) <= slot:
            self._owed.append({})
        self._owed[slot].setdefault(first_entry, now_ns)

    def owes(self, slot: int, first_entry: int) -> bool:
        return slot < len(self._owed) and first_entry in self._owed[slot]

    def owed(self, slot: int) -> Mapping[int, int]:
        """First entry of each frame that the slot has not answered -> when it was sent; in the order of sending."""
        return self._owed[slot] if slot < len(self._owed) else {}

    def oldest_sent_ns(self, slot: int) -> int | None:
        """When the oldest frame was sent that it has not answered."""
        owed = self.owed(slot)
        return next(iter(owed.values())) if owed else None  # The first was sent first.

    def is_owed(self) -> bool:
        """Whether any slot owes an answer."""
        return any(self._owed)

    def answered(self, slot: int, first_entry: int) -> int | None:
        """The slot has all of its part durable: when it was sent it. None: it owes no answer, and this counts for
        nothing."""
        sent_ns = self._owed[slot].pop(first_entry, None) if slot < len(self._owed) else None
        if sent_ns is None:
            return None
        if not self._owed[slot]:
            self._owed[slot] = {}  # An empty dict keeps the room of what was in it.
        pending = self._pending.get(first_entry)
        if pending is not None:
            pending.acked |= 1 << slot
        elif self._behind:
            self._forget(first_entry)
        return sent_ns

    def took(self, slot: int, first_entry: int) -> bool:
        """The slot holds its part in memory, and still owes its answer (P3.2). False: it owes none, or it is done."""
        pending = self._pending.get(first_entry)
        if pending is None or not self.owes(slot, first_entry):
            return False
        pending.received |= 1 << slot
        return True

    def excuse(self, slot: int) -> None:
        """The slot owes nothing any more."""
        if slot < len(self._owed) and self._owed[slot]:
            self._owed[slot] = {}
            for first_entry in list(self._behind):
                self._forget(first_entry)

    def empty(self, slots: int) -> None:
        """Whoever had these slots, given as bits, lost them: they owe nothing, and no answer of theirs counts."""
        for slot in range(len(self._owed)):
            if slots >> slot & 1:
                self.excuse(slot)
        for pending in self._pending.values():
            pending.acked &= ~slots
            pending.received &= ~slots

    def _forget(self, first_entry: int) -> None:
        """Unless a slot still owes it."""
        if first_entry in self._behind and not any(first_entry in owed for owed in self._owed):
            self._drop(first_entry)

    def _drop(self, first_entry: int) -> None:
        self._count_behind(-len(self._behind.pop(first_entry).frame.body) - FRAME_PRICE)
        if not self._behind:
            self._behind = _NO_FRAMES

    def _count_behind(self, byte_count: int) -> None:
        self.behind_bytes += byte_count
        if self.backlog is not None and byte_count:
            self.backlog.add(byte_count)
