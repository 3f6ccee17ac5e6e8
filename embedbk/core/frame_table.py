"""The frames of one writing handle that are on their way, and what each seat still owes an answer for.

The one owner of that state: all sending, counting and forgetting goes through these calls. Decides nothing of the
protocol: which frames have their quorum, which seats have failed and what follows is `in_flight`'s. Frames stand in
entry order; a seat is known by its slot, of which each seat has two: while an ensemble change is in flight, its holder
has one and the bookie proposed for it the other (P4.2).

    put ─▶ PENDING ──confirm──▶ BEHIND ──every slot that owes it has answered, or owes nothing more──▶ released

`AnyFrameTable` is the contract. `FrameTable` is the plain form, for recoveries and for writers whose frames are not in
the memory of C; `transports/in_flight.py` is the form in C. Both pass the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from embedbk.codec.frame import Frame
from embedbk.core.backlog import FRAME_PRICE, Backlog

__all__ = [
    "AnyFrameTable",
    "FrameTable",
    "MakeTable",
    "Marks",
    "Newest",
    "Pending",
    "plain_table",
    "state_of",
]

_NO_FRAMES: dict[int, Pending] = {}  # One for all tables that have none; never changed.


class Marks(NamedTuple):
    """The fields of a frame that decide whether it is done. Bits by slot, as in `Pending`."""

    first_entry: int
    last_entry: int
    length: int
    acked: int
    received: int


class Newest(NamedTuple):
    """The frame that was put last, which is not done."""

    last_entry: int
    entry_count: int
    byte_count: int


@dataclass(slots=True)
class Pending:
    """A frame on its way. Bits by slot: which have all of their part durable, and which at least in memory (P3.2)."""

    frame: Frame
    acked: int = 0
    received: int = 0  # Deferred sync only.


class AnyFrameTable(Protocol):
    """The contract, of one thread."""

    # Counts what is kept behind, for all handles of the process; None: nobody counts.
    backlog: Backlog | None

    @property
    def is_lendable(self) -> bool:
        """Whether C code can send and count by it while its core lends it (`InFlight.lend`)."""
        ...

    # Frames.

    @property
    def pending_count(self) -> int:
        """Frames that are not done."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes of their bodies."""
        ...

    @property
    def behind_bytes(self) -> int:
        """Bytes of the frames that are done and kept for slots that owe an answer, each with its price."""
        ...

    @property
    def pending(self) -> Mapping[int, Pending]:
        """Frames that are not done, by first entry, in entry order. For tests and tools: it may be made for this
        call."""
        ...

    @property
    def behind(self) -> Mapping[int, Pending]:
        """The same of those that are done and kept."""
        ...

    def put(self, frame: Frame) -> None:
        """Put the newest frame. No slot owes an answer for it before `owe`."""
        ...

    def find(self, first_entry: int) -> Frame | None:
        """Find a frame that is not done, or done and kept."""
        ...

    def newest(self) -> Newest:
        """The newest frame that is not done; there must be one."""
        ...

    def newest_first(self) -> Iterator[int]:
        """First entries of the frames that are not done, the newest first."""
        ...

    def oldest(self) -> Marks | None:
        """The marks of the first frame that is not done."""
        ...

    def marks(self) -> Iterator[Marks]:
        """The marks of each frame that is not done, in entry order."""
        ...

    def confirm(self) -> None:
        """Note that the oldest frame is done: it is kept while a slot owes an answer for it."""
        ...

    def drop_oldest_behind(self) -> None:
        """Release the oldest of the frames that are kept, though answers for it are owed."""
        ...

    def give_up(self) -> None:
        """Forget all frames: nothing is on its way any more, and nothing is kept."""
        ...

    def let_go(self) -> None:
        """Release every kept frame."""
        ...

    # What is owed.

    def owe(self, slot: int, first_entry: int, now_ns: int) -> None:
        """Note that this slot is sent the frame. If it is sent again, the first time counts."""
        ...

    def owes(self, slot: int, first_entry: int) -> bool: ...

    def owed_count(self, slot: int) -> int:
        """How many frames the slot has not answered."""
        ...

    def owed(self, slot: int) -> Mapping[int, int]:
        """First entry of each of them -> when it was sent; in the order of sending. For tests and tools."""
        ...

    def oldest_sent_ns(self, slot: int) -> int | None:
        """When the oldest frame that the slot has not answered was sent."""
        ...

    def is_owed(self) -> bool:
        """Whether any slot owes an answer."""
        ...

    def answered(self, slot: int, first_entry: int) -> int | None:
        """The slot has all of its part durable; returns when the part was sent. None: the slot owes no answer, and
        this one counts for nothing."""
        ...

    def took(self, slot: int, first_entry: int) -> bool:
        """Note that the slot holds its part in memory; it still owes its answer (P3.2). False: it owes none, or it is
        done."""
        ...

    def excuse(self, slot: int) -> None:
        """Note that the slot owes nothing any more."""
        ...

    def empty(self, slots: int) -> None:
        """The bookies in these slots, given as bits, lost them: the slots owe nothing, and no answer for them
        counts."""
        ...


class FrameTable:
    """`AnyFrameTable` in plain Python. Frames by first entry.

    Args:
        backlog: counts what is kept behind, for all handles of the process; None: nobody counts.
    """

    __slots__ = ("_behind", "_owed", "_pending", "backlog", "behind_bytes", "pending_bytes")

    is_lendable = False

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
        return self._pending

    @property
    def behind(self) -> Mapping[int, Pending]:
        """In the order of being done."""
        return self._behind

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def put(self, frame: Frame) -> None:
        pending = Pending(frame)
        if self._pending:
            assert frame.first_entry > next(reversed(self._pending))
            self._pending[frame.first_entry] = pending
        else:
            self._pending = {frame.first_entry: pending}
        self.pending_bytes += len(frame.body)

    def find(self, first_entry: int) -> Frame | None:
        found = self._pending.get(first_entry) or self._behind.get(first_entry)
        return None if found is None else found.frame

    def newest(self) -> Newest:
        frame = next(reversed(self._pending.values())).frame
        return Newest(frame.last_entry, frame.entry_count, len(frame.body))

    def newest_first(self) -> Iterator[int]:
        return reversed(self._pending)

    def oldest(self) -> Marks | None:
        return next(self.marks(), None)

    def marks(self) -> Iterator[Marks]:
        for first_entry, pending in self._pending.items():
            frame = pending.frame
            yield Marks(first_entry, frame.last_entry, frame.length, pending.acked, pending.received)

    def confirm(self) -> None:
        first_entry = next(iter(self._pending))
        pending = self._pending.pop(first_entry)
        self.pending_bytes -= len(pending.frame.body)
        if not self._pending:
            self._pending = _NO_FRAMES  # An empty dict keeps the room of what was in it.
        if not any(first_entry in owed for owed in self._owed):
            return
        if not self._behind:
            self._behind = {}
        self._behind[first_entry] = pending
        self._count_behind(len(pending.frame.body) + FRAME_PRICE)

    def drop_oldest_behind(self) -> None:
        self._drop(next(iter(self._behind)))

    def give_up(self) -> None:
        self._pending = _NO_FRAMES
        self.pending_bytes = 0
        self.let_go()

    def let_go(self) -> None:
        self._count_behind(-self.behind_bytes)
        self._behind = _NO_FRAMES

    # What is owed.

    def owe(self, slot: int, first_entry: int, now_ns: int) -> None:
        while len(self._owed) <= slot:
            self._owed.append({})
        self._owed[slot].setdefault(first_entry, now_ns)

    def owes(self, slot: int, first_entry: int) -> bool:
        return slot < len(self._owed) and first_entry in self._owed[slot]

    def owed_count(self, slot: int) -> int:
        return len(self._owed[slot]) if slot < len(self._owed) else 0

    def owed(self, slot: int) -> Mapping[int, int]:
        return self._owed[slot] if slot < len(self._owed) else {}

    def oldest_sent_ns(self, slot: int) -> int | None:
        owed = self.owed(slot)
        return next(iter(owed.values())) if owed else None  # The first was sent first.

    def is_owed(self) -> bool:
        return any(self._owed)

    def answered(self, slot: int, first_entry: int) -> int | None:
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
        pending = self._pending.get(first_entry)
        if pending is None or not self.owes(slot, first_entry):
            return False
        pending.received |= 1 << slot
        return True

    def excuse(self, slot: int) -> None:
        if slot < len(self._owed) and self._owed[slot]:
            self._owed[slot] = {}
            for first_entry in list(self._behind):
                self._forget(first_entry)

    def getstate(self) -> Any:
        return state_of(self, len(self._owed))

    def empty(self, slots: int) -> None:
        for slot in range(len(self._owed)):
            if slots >> slot & 1:
                self.excuse(slot)
        for pending in self._pending.values():
            pending.acked &= ~slots
            pending.received &= ~slots

    def _forget(self, first_entry: int) -> None:
        """Forget the frame, unless a slot still owes an answer for it."""
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


def state_of(table: AnyFrameTable, slot_count: int) -> Any:
    """The table's state for digests: the same for both forms of the table."""
    pending = [(each.frame, each.acked, each.received) for each in table.pending.values()]
    owed = {slot: list(table.owed(slot).items()) for slot in range(slot_count) if table.owed(slot)}
    return pending, list(table.behind), owed


MakeTable = Callable[[Backlog | None], AnyFrameTable]


def plain_table(packer: object, ensemble_size: int) -> MakeTable:
    """Make the plain form, whatever the packer and the number of seats."""
    return FrameTable
