"""Bookies of this loop as its writers reach them, and the wait of such a loop: the handles of native/local_adds.h.

Decides nothing: what goes this way, and what counts as acknowledged, is decided in C by the rules of core/writer.py
and core/bookie.py, and said in native/NATIVE.md. When a writer's adds go this way is host/local_adds.py's.
"""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from embedbk.codec.frame import Frame
from embedbk.codec.packer import Packer
from embedbk.errors import StorageError
from embedbk.storage.add_path import NativeAddPath
from embedbk.storage.native import ffi, lib, raise_code

__all__ = ["LOCAL_SEATS_MAX", "LocalFacts", "NativeLocalAdds", "NativeNear", "NativeWaiter"]

LOCAL_SEATS_MAX: int = lib.EBK_LOCAL_SEATS_MAX
AWAIT_MS = 1000  # Without a look for signals that another thread was given.
READY_MAX = 64  # Descriptors told by one wait; others are told by the next.


@dataclass(slots=True)
class LocalFacts:
    """What became of the adds of one handle."""

    lac: int
    lac_length: int
    pending: int  # Frames on their way.
    has_held: bool  # One was sealed that cannot go this way.
    is_ending: bool  # Nothing more goes this way.
    is_behind: list[bool]  # By seat: something is stored there that is not durable yet.
    durable: list[int]  # By seat.
    followed: int = 0  # A bit for each seat where a reader waits (P6.2).
    longest_ns: int = 0  # No answer takes any time: there are none.


class NativeNear:
    """One bookie of this loop. Its node shows after each step what it takes, and leaves before its storage closes."""

    def __init__(self, path: NativeAddPath) -> None:
        made = lib.ebk_near_new(path.handle)
        if made == ffi.NULL:
            raise StorageError("no memory for a near bookie", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_near_free)
        self._path: NativeAddPath | None = path  # Kept alive.

    def show(self, *, is_open: bool, is_told: bool) -> None:
        """is_open: common adds are taken. is_told: the node wants to hear of every rise of `durable`."""
        lib.ebk_near_show(self.handle, is_open, is_told)

    def leave(self) -> None:
        lib.ebk_near_leave(self.handle)
        self._path = None

    def filenos(self) -> list[int]:
        """Of its journals."""
        found = (int(lib.ebk_near_event(self.handle, part)) for part in range(lib.EBK_JOURNALS_MAX))
        return [fileno for fileno in found if fileno >= 0]


class NativeLocalAdds:
    """The adds of one writing handle to near bookies. Keeps the packer and the bookies alive.

    Args:
        nears: by seat.
        lac, lac_length: nothing above is on its way.
        bytes_max: of frames on their way.
    """

    def __init__(
        self,
        packer: Packer,
        ledger_key: bytes,
        nears: Sequence[NativeNear],
        ack_quorum: int,
        *,
        lac: int,
        lac_length: int,
        bytes_max: int,
    ) -> None:
        self._parts = (packer, tuple(nears))
        self._seat_count = len(nears)
        settings = ffi.new("struct ebk_local_settings *")
        settings.packer, settings.ledger_id, settings.key = packer.handle, packer.ledger_id, ledger_key
        settings.seat_count, settings.ack_quorum = len(nears), ack_quorum
        for seat, near in enumerate(nears):
            settings.nears[seat] = near.handle
        settings.lac, settings.lac_length, settings.bytes_max = lac, lac_length, bytes_max
        made = lib.ebk_local_adds_new(settings)
        if made == ffi.NULL:
            raise StorageError("no memory for the adds of a handle", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_local_adds_free)
        self._length = ffi.new("uint64_t *")
        self._facts = ffi.new("struct ebk_local_facts *")
        self._packed = ffi.new("struct ebk_packed *")

    def end(self) -> None:
        """Nothing more goes this way; what is on its way goes on."""
        lib.ebk_local_adds_end(self.handle)

    def tell(self, _now_ns: int = 0) -> LocalFacts:
        lib.ebk_local_adds_tell(self.handle, self._facts)
        facts = self._facts
        durable = list(facts.durable[0 : self._seat_count])
        tokens = facts.tokens[0 : self._seat_count]
        return LocalFacts(
            facts.lac,
            facts.lac_length,
            facts.pending,
            facts.has_held,
            facts.is_ending,
            [mark < token for mark, token in zip(durable, tokens, strict=True)],
            durable,
            facts.followed,
        )

    def give(self) -> list[tuple[int, int, int, int, bytes]]:
        """(first entry, last entry, count, length, body) of every frame that is not acknowledged, in entry order."""
        left: list[tuple[int, int, int, int, bytes]] = []
        packed = self._packed
        while lib.ebk_local_adds_give(self.handle, packed):
            body = bytes(ffi.buffer(packed.body, packed.size))
            lib.ebk_packer_release(packed.body)
            left.append((packed.first_entry, packed.last_entry, packed.count, packed.length, body))
        return left

    def turn(self) -> None:
        """What a wait of the loop does, for a loop that has none (testing)."""
        lib.ebk_local_adds_turn(self.handle)

    def frames_from(self, place: int) -> Iterator[tuple[Frame, list[int]]]:
        """What is on its way, from the frame at this place on (0: the first one ever), each with its tokens by seat:
        for who watches (testing)."""
        tokens = ffi.new("uint64_t[]", LOCAL_SEATS_MAX)
        packed = self._packed
        while lib.ebk_local_adds_show(self.handle, place, packed, tokens):
            body = memoryview(bytes(ffi.buffer(packed.body, packed.size)))
            frame = Frame(
                self._parts[0].ledger_id,
                packed.first_entry,
                packed.last_entry,
                packed.count,
                packed.length,
                body,
            )
            yield frame, list(tokens[0 : self._seat_count])
            place += 1

    def close(self) -> None:
        """Release what was not given back; who waits hears that nothing comes this way. Threads may still ask."""
        lib.ebk_local_adds_close(self.handle)

    # Any thread.

    def lac(self) -> tuple[int, int]:
        """What is acknowledged, told or not, and the length of the ledger up to there at least."""
        return lib.ebk_local_adds_lac(self.handle, self._length), self._length[0]

    def wait(self, entry_id: int, *, is_alone: bool) -> bool:
        """Block until the entry is acknowledged. False: it will not be this way. is_alone: nobody waits for what is
        told, so it may be told a little later."""
        while not (answer := lib.ebk_local_adds_await(self.handle, entry_id, is_alone, AWAIT_MS)):
            pass  # A moment for signals.
        return bool(answer > 0)


class NativeWaiter:
    """As `select.poll()`, for readability; takes the turns of adds while it waits, without the GIL."""

    def __init__(self, nears: Sequence[NativeNear] = ()) -> None:
        made = lib.ebk_waiter_new()
        if made == ffi.NULL:
            raise StorageError("no descriptor or no memory for a loop", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_waiter_free)
        self._nears = {fileno: near for near in nears for fileno in near.filenos()}
        self._adds: dict[NativeLocalAdds, None] = {}  # Kept alive.
        self._fileno = int(lib.ebk_waiter_fileno(self.handle))
        self._ready = ffi.new("int[]", READY_MAX)

    def fileno(self) -> int:
        """Told as ready when adds have something to tell; waited for from the beginning."""
        return self._fileno

    def register(self, fileno: int, _events: int = select.POLLIN) -> None:
        if fileno == self._fileno:
            return
        near = self._nears.get(fileno)
        code = lib.ebk_waiter_add(self.handle, fileno, ffi.NULL if near is None else near.handle)
        if code < 0:
            raise_code(code, f"descriptor {fileno} cannot be waited for")

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        count = lib.ebk_waiter_wait(self.handle, timeout_ms, self._ready, READY_MAX)
        return [(fileno, select.POLLIN) for fileno in self._ready[0:count]]

    def begin(self, adds: NativeLocalAdds) -> None:
        if lib.ebk_waiter_begin(self.handle, adds.handle) < 0:
            raise StorageError("no memory for the adds of a handle", definite=True)
        self._adds[adds] = None

    def end(self, adds: NativeLocalAdds) -> None:
        lib.ebk_waiter_end(self.handle, adds.handle)
        self._adds.pop(adds, None)

    def wake(self) -> None:
        """From any thread: adds have something to seal."""
        lib.ebk_waiter_wake(self.handle)
