"""The wait of a host's thread in C: the handle of native/road/loop_wait.h.

Decides nothing: what a turn does, and what ends the wait, is said in native/SHORTCUTS.md. A bookie over ZeroMQ and a
client wait here in their loop's place (`zmq_turns`), an embedded cluster's loop by `near.NearPoll`.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

from embedbk._native import ffi, lib
from embedbk.errors import StorageError
from embedbk.ports.add_path import WaitTerms
from embedbk.transports.structs import path_struct

__all__ = ["NEVER_NS", "LoopWait", "WaitEnded"]

NEVER_NS = sys.maxsize


class WaitEnded(IntEnum):
    """Why a wait ended, as far as callers need to know."""

    HELD_ACCEPTED = lib.EBK_LOOP_HELD_ACCEPTED
    HELD_DIALLED = lib.EBK_LOOP_HELD_DIALLED
    UNSENT = lib.EBK_LOOP_UNSENT


class LoopWait:
    """What a loop waits for. Sockets and descriptors are numbered as they are added.

    Args:
        accepted: handle of what receives accepted links; None: there are none here.
        dialled: handles of what receives dialled links, of what counts their answers, and of the links that adds are
            sent over; None: there are none here.
        turns: handle of the adds that take their turns meanwhile; None: there are none.

    Raises:
        StorageError: definite; the system gives no descriptor or no memory. Also by each of the calls that add one.
    """

    def __init__(
        self, *, accepted: Any = None, dialled: tuple[Any, Any, Any] | None = None, turns: Any = None
    ) -> None:
        self._parts = (accepted, dialled, turns)  # Kept alive.
        parts = ffi.new("struct ebk_loop_parts *")
        parts.accepted = ffi.NULL if accepted is None else accepted
        parts.turns = ffi.NULL if turns is None else turns
        if dialled is not None:
            parts.dialled, parts.answers, parts.links = dialled
        made = lib.ebk_loop_wait_new(parts)
        if made == ffi.NULL:
            raise StorageError("no descriptor or no memory for a loop", definite=True)
        self._handle: Any = ffi.gc(made, lib.ebk_loop_wait_free)
        self._terms = ffi.new("struct ebk_loop_terms *")
        self._outcome = ffi.new("struct ebk_loop_outcome *")

    def accept(self, socket: Any, fileno: int) -> int:
        """Receive the accepted links of this ROUTER."""
        return self._added(lib.ebk_loop_wait_accept(self._handle, socket, fileno), fileno)

    def dial(self, socket: Any, fileno: int, link: int, prefix: bytes) -> int:
        """Receive the one link of this DEALER."""
        return self._added(lib.ebk_loop_wait_dial(self._handle, socket, fileno, link, prefix), fileno)

    def journal(self, fileno: int) -> None:
        """A journal of the add path that the terms will name."""
        self._added(lib.ebk_loop_wait_journal(self._handle, fileno), fileno)

    def other(self, fileno: int, near: Any = None) -> None:
        """A descriptor that ends the wait. near: handle of the bookie of this loop whose journal's it is: then it ends
        the wait only where that bookie's node has to be stepped."""
        self._added(lib.ebk_loop_wait_other(self._handle, fileno, ffi.NULL if near is None else near), fileno)

    def _added(self, number: int, fileno: int) -> int:
        if number < 0:
            raise StorageError(f"descriptor {fileno} cannot be waited for", definite=True)
        return number

    def run(self, until_ns: int, late_ns: int, credit_bytes: int, adds: WaitTerms | None = None) -> int:
        """Take turns until something ends that; returns the reason, and the properties have the rest.

        until_ns: of CLOCK_BOOTTIME; what is over already is one turn. late_ns: once Python owes something that nobody
        waits for, the wait ends so much later at most. credit_bytes: received on a link before its peer gets credit.
        adds: of the bookie whose accepted links are received.
        """
        given = self._terms
        given.until_ns, given.late_ns, given.credit_bytes = until_ns, late_ns, credit_bytes
        if adds is not None:
            given.path = path_struct(adds.add_path)
            given.durable, given.awaits_journal = adds.durable, adds.awaits_journal
            given.bytes_max = adds.bytes_max
        return int(lib.ebk_loop_wait_run(self._handle, given, self._outcome))

    @property
    def now_ns(self) -> int:
        """When the last turn was taken."""
        return int(self._outcome.now_ns)

    @property
    def is_dry(self) -> bool:
        """Whether no socket has more, so that their descriptors show when one has."""
        return bool(self._outcome.is_dry)

    @property
    def has_news(self) -> bool:
        """Whether adds that were sent here have something for their cores."""
        return bool(self._outcome.has_news)

    @property
    def ready(self) -> list[int]:
        """Descriptors that ended the wait."""
        return list(self._outcome.ready[0 : self._outcome.ready_count])

    @property
    def socket(self) -> int:
        """Number of the socket to which the held part belongs."""
        return int(self._outcome.socket)

    @property
    def unsent(self) -> tuple[int, bytes]:
        """The link and body of the answer that could not be sent."""
        return int(self._outcome.link), bytes(ffi.buffer(self._outcome.message, self._outcome.size))

    def taken(self, socket: int) -> int:
        """Bytes of bodies that were counted in the last wait, of the dialled link with this number."""
        return int(lib.ebk_loop_wait_taken(self._handle, socket))
