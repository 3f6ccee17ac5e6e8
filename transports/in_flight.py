"""The frames in flight of a writing handle, in C, and what all handles of a process keep for bookies that are behind:
native/road/in_flight.h.

Decides nothing: `core.frame_table.AnyFrameTable` is the contract, `core.frame_table.FrameTable` the plain form. That is
used instead where a frame is not in the memory of a packer in C, or where an ensemble has too many seats.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from embedbk import _native
from embedbk._native import ffi, lib
from embedbk.codec.frame import Frame
from embedbk.codec.packer import Packer
from embedbk.codec.packing import Packing
from embedbk.config import BACKLOG_BYTES_MAX
from embedbk.core.backlog import Backlog
from embedbk.core.frame_table import FrameTable, MakeTable, Marks, Newest, Pending, state_of
from embedbk.errors import ensure

__all__ = ["FramesInC", "SharedBacklog", "backlog_of_process", "table_in_c"]

_SLOTS_MAX: int = lib.EBK_FLIGHT_SLOTS_MAX
_NO_MEMORY = "no memory for the frames of a writing handle"


def table_in_c(packer: Packing, ensemble_size: int) -> MakeTable:
    """Make the table of a handle with this packer; in C where possible."""
    if isinstance(packer, Packer) and ensemble_size <= lib.EBK_FLIGHT_SEATS_MAX:
        return FramesInC
    return FrameTable


class SharedBacklog(Backlog):
    """`Backlog` where frames are kept in C as well; any thread."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.handle = ffi.new("struct ebk_backlog *", (0, bytes_max))

    @property
    def kept_bytes(self) -> int:
        return int(lib.ebk_backlog_kept(self.handle))

    def add(self, byte_count: int) -> None:
        lib.ebk_backlog_add(self.handle, byte_count)


_of_process: tuple[int, SharedBacklog] | None = None


def backlog_of_process() -> SharedBacklog:
    """One for all clients of this process. The child of a fork has none of its parent's handles, and one of its own."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        _of_process = os.getpid(), SharedBacklog(BACKLOG_BYTES_MAX)
    return _of_process[1]


class FramesInC:
    """`AnyFrameTable`. Frames come from a `Packer`, and share its memory."""

    __slots__ = ("_backlog", "_state", "handle")

    is_lendable = True

    def __init__(self, backlog: Backlog | None) -> None:
        made = lib.ebk_in_flight_new()
        if made == ffi.NULL:
            raise MemoryError(_NO_MEMORY)
        self.handle: Any = ffi.gc(made, lib.ebk_in_flight_free)
        self._state: Any = lib.ebk_in_flight_state(made)
        self._backlog: Backlog | None = None
        if backlog is not None:
            self.backlog = backlog

    @property
    def backlog(self) -> Backlog | None:
        return self._backlog

    @backlog.setter
    def backlog(self, backlog: Backlog | None) -> None:
        shared = backlog.handle if isinstance(backlog, SharedBacklog) else None
        ensure(backlog is None or shared is not None, "what is kept in C counts in C")
        lib.ebk_in_flight_count_in(self.handle, ffi.NULL if shared is None else shared)
        self._backlog = backlog

    # Frames.

    @property
    def pending_count(self) -> int:
        return int(self._state.end - self._state.head)

    @property
    def pending_bytes(self) -> int:
        return int(self._state.pending_bytes)

    @property
    def behind_bytes(self) -> int:
        return int(self._state.behind_bytes)

    @property
    def pending(self) -> Mapping[int, Pending]:
        return self._shown(self._state.head, self._state.end)

    @property
    def behind(self) -> Mapping[int, Pending]:
        return self._shown(self._state.tail, self._state.head)

    def put(self, frame: Frame) -> None:
        address = _native.frame_address(frame.body)
        ensure(address != 0, "a frame of a handle is one that its packer sealed")
        packed = ffi.new("struct ebk_packed *")
        packed.body, packed.size = ffi.cast("uint8_t *", address), len(frame.body)
        packed.count, packed.length = frame.entry_count, frame.length
        packed.first_entry, packed.last_entry = frame.first_entry, frame.last_entry
        lib.ebk_packer_retain(packed.body)
        if lib.ebk_in_flight_put(self.handle, packed) < 0:
            lib.ebk_packer_release(packed.body)
            raise MemoryError(_NO_MEMORY)

    def find(self, first_entry: int) -> Frame | None:
        place = lib.ebk_in_flight_find(self.handle, first_entry)
        if place < 0:
            return None
        flying = self._look(place)
        return None if flying.packed.body == ffi.NULL else self._frame(flying.packed)

    def newest(self) -> Newest:
        packed = self._look(self._state.end - 1).packed
        return Newest(packed.last_entry, packed.count, packed.size)

    def newest_first(self) -> Iterator[int]:
        for place in range(self._state.end - 1, self._state.head - 1, -1):
            yield self._look(place).packed.first_entry

    def oldest(self) -> Marks | None:
        return next(self.marks(), None)

    def marks(self) -> Iterator[Marks]:
        for place in range(self._state.head, self._state.end):
            flying = self._look(place)
            packed = flying.packed
            yield Marks(packed.first_entry, packed.last_entry, packed.length, flying.acked, flying.received)

    def confirm(self) -> None:
        lib.ebk_in_flight_confirm(self.handle)

    def drop_oldest_behind(self) -> None:
        lib.ebk_in_flight_drop_oldest_behind(self.handle)

    def give_up(self) -> None:
        lib.ebk_in_flight_give_up(self.handle)

    def let_go(self) -> None:
        lib.ebk_in_flight_let_go(self.handle)

    # What is owed.

    def owe(self, slot: int, first_entry: int, now_ns: int) -> None:
        place = lib.ebk_in_flight_find(self.handle, first_entry)
        ensure(place >= 0, "what is sent is in the table")
        lib.ebk_in_flight_owe(self.handle, slot, place, now_ns)

    def owes(self, slot: int, first_entry: int) -> bool:
        place = lib.ebk_in_flight_find(self.handle, first_entry)
        return place >= 0 and bool(self._look(place).owed >> slot & 1)

    def owed_count(self, slot: int) -> int:
        return int(self._state.owed_count[slot])

    def owed(self, slot: int) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for place in range(self._state.tail, self._state.end):
            flying = self._look(place)
            if flying.owed >> slot & 1:
                found[flying.packed.first_entry] = lib.ebk_in_flight_sent_ns(self.handle, slot, place)
        return found

    def oldest_sent_ns(self, slot: int) -> int | None:
        return int(self._state.oldest_sent_ns[slot]) if self._state.owed_count[slot] else None

    def is_owed(self) -> bool:
        return bool(self._state.owed_sum)

    def answered(self, slot: int, first_entry: int) -> int | None:
        place = lib.ebk_in_flight_find(self.handle, first_entry)
        sent_ns = ffi.new("int64_t *")  # One per call: another loop's thread may come in before it is read.
        if place < 0 or not lib.ebk_in_flight_answered(self.handle, slot, place, sent_ns):
            return None
        return int(sent_ns[0])

    def took(self, slot: int, first_entry: int) -> bool:
        place = lib.ebk_in_flight_find(self.handle, first_entry)
        return place >= 0 and bool(lib.ebk_in_flight_took(self.handle, slot, place))

    def excuse(self, slot: int) -> None:
        lib.ebk_in_flight_excuse(self.handle, slot)

    def empty(self, slots: int) -> None:
        lib.ebk_in_flight_empty(self.handle, slots)

    def getstate(self) -> Any:
        return state_of(self, _SLOTS_MAX)

    # As Python sees a frame.

    def _look(self, place: int) -> Any:
        """Valid until another frame is put."""
        return lib.ebk_in_flight_at(self.handle, place)

    def _frame(self, packed: Any) -> Frame:
        """The frame; its bytes stay where they are as long as anything refers to them."""
        body = _native.frame_view(int(ffi.cast("uintptr_t", packed.body)), packed.size)
        ledger_id = lib.ebk_packer_ledger_of(packed.body)
        return Frame(ledger_id, packed.first_entry, packed.last_entry, packed.count, packed.length, body)

    def _shown(self, begin: int, end: int) -> dict[int, Pending]:
        shown: dict[int, Pending] = {}
        for place in range(begin, end):
            flying = self._look(place)
            if flying.packed.body != ffi.NULL:
                frame = self._frame(flying.packed)
                shown[frame.first_entry] = Pending(frame, flying.acked, flying.received)
        return shown
