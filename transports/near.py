"""Bookies of this loop as its writers reach them, and the wait of such a loop: native/road/near.h.

Decides nothing: what is stored there, and what counts as acknowledged, is decided in C by the rules of core/writer.py
and core/add_storing.py, and said in native/SHORTCUTS.md ("Near seats"). When a writer's adds go this way is
host/local_adds.py's.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

from embedbk._native import ffi, lib
from embedbk.errors import StorageError
from embedbk.ports.add_path import AddPath
from embedbk.ports.adds import AddSeat, AddTerms
from embedbk.transports.adds import AddsInC, Turns
from embedbk.transports.loop_wait import NEVER_NS, LoopWait
from embedbk.transports.structs import path_struct

__all__ = ["NativeNear", "NearPoll"]


class NativeNear:
    """`ports.adds.Near`: a bookie of this loop. Its node shows after each step what it takes, and leaves before its
    storage closes.

    Args:
        path: what takes common adds there (`storage.add_path.NativeAddPath`).
    """

    def __init__(self, path: AddPath) -> None:
        made = lib.ebk_near_new(path_struct(path))
        if made == ffi.NULL:
            raise StorageError("no memory for a near bookie", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_near_free)
        self._path: AddPath | None = path  # Kept alive.

    def show(self, *, is_open: bool, is_told: bool) -> None:
        """is_open: common adds are taken. is_told: the node wants every rise of `durable`."""
        lib.ebk_near_show(self.handle, is_open, is_told)

    def leave(self) -> None:
        lib.ebk_near_leave(self.handle)
        self._path = None

    def filenos(self) -> list[int]:
        """Descriptors of its journals."""
        found = (int(lib.ebk_near_event(self.handle, part)) for part in range(lib.EBK_JOURNALS_MAX))
        return [fileno for fileno in found if fileno >= 0]


class NearPoll:
    """`ports.adds.NearWait`. As `select.poll()`, for readability; gives adds their turns while it waits, without the
    GIL."""

    def __init__(self, nears: Sequence[NativeNear] = ()) -> None:
        self.turns = Turns()
        self._wait = LoopWait(turns=self.turns.handle)
        self._nears = {fileno: near for near in nears for fileno in near.filenos()}
        self._fileno = self.turns.fileno()

    def fileno(self) -> int:
        """Reported as ready when adds have news for their cores; waited for from the beginning."""
        return self._fileno

    def register(self, fileno: int, _events: int = select.POLLIN) -> None:
        if fileno != self._fileno:
            near = self._nears.get(fileno)
            self._wait.other(fileno, None if near is None else near.handle)

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """timeout_ms: below 0, never."""
        until_ns = (
            NEVER_NS
            if timeout_ms < 0
            else time.clock_gettime_ns(time.CLOCK_BOOTTIME) + timeout_ms * 1_000_000
        )
        self._wait.run(until_ns, NEVER_NS, NEVER_NS)
        ready = self._wait.ready
        if self._wait.has_news:
            ready.append(self._fileno)
        return [(fileno, select.POLLIN) for fileno in ready]

    def open_adds(self, terms: AddTerms, seats: Sequence[AddSeat]) -> AddsInC:
        adds = AddsInC(self.turns, None, None, terms, seats)
        self.turns.begin(adds)
        return adds

    def send_adds(self, now_ns: int) -> None:
        """Nothing to do: each wait gives these adds their turns."""

    def wake_adds(self) -> None:
        """From any thread: adds have something to seal."""
        self.turns.wake()
