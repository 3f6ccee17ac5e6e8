"""Adds of writing handles over dialled ZeroMQ links, sealed and sent in C: the handles of native/link_adds.h.

Decides nothing: what goes this way, and what counts as acknowledged, is decided in C by the rules of core/writer.py,
and said in native/NATIVE.md ("Link adds"). When a writer's adds go this way is host/link_adds.py's. Where the answers
of a transport are not counted in C, there is none of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from embedbk._native import ffi, lib
from embedbk.config import BACKLOG_BYTES_MAX
from embedbk.core.backlog import Backlog
from embedbk.errors import UsageError
from embedbk.ports import AddSeat, AddTerms, SentFacts, SentFrame
from embedbk.transports.zmq_accepted import address_of

__all__ = ["LinkAdds", "LinkSender", "SharedBacklog", "backlog_of_process"]

AWAIT_MS = 1000  # Without a look for signals that another thread was given.


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


class LinkAdds:
    """`ports.SentAdds`: the adds of one writing handle. Keeps the packer and what counts alive."""

    def __init__(self, sender: LinkSender, answers: Any, terms: AddTerms, seats: Sequence[AddSeat]) -> None:
        if len(seats) > lib.EBK_LINK_SEATS_MAX:
            raise UsageError(f"{len(seats)} seats; at most {lib.EBK_LINK_SEATS_MAX} are asked from C")
        self._parts = (terms.packer, answers, terms.backlog)
        self._sender = sender
        self.is_followed = False
        settings = ffi.new("struct ebk_link_settings *")
        settings.packer, settings.answers = terms.packer.handle, answers
        settings.ledger_id, settings.key, settings.nonce = terms.ledger_id, terms.ledger_key, terms.nonce
        settings.seat_count, settings.ack_quorum = len(seats), terms.ack_quorum
        for place, seat in zip(settings.seats, seats, strict=False):
            place.link, place.seating = seat.link, seat.seating
            ffi.buffer(place.control)[: len(seat.control)] = seat.control
            place.control_size = len(seat.control)
        settings.lac, settings.lac_length = terms.lac, terms.lac_length
        settings.bytes_max, settings.behind_max = terms.bytes_max, terms.behind_max
        backlog = None if terms.backlog is None else terms.backlog.handle
        settings.backlog = ffi.NULL if backlog is None else backlog
        self._seat_count = len(seats)
        made = lib.ebk_link_adds_new(settings)
        if made == ffi.NULL:
            raise MemoryError("no memory for the adds of a handle")
        self.handle: Any = ffi.gc(made, lib.ebk_link_adds_free)
        self._length = ffi.new("uint64_t *")
        self._facts = ffi.new("struct ebk_link_facts *")

    def tell(self, now_ns: int) -> SentFacts:
        facts = self._facts
        lib.ebk_link_adds_tell(self.handle, now_ns, facts)
        oldest_sent_ns = facts.oldest_sent_ns or None
        return SentFacts(
            facts.lac,
            facts.lac_length,
            facts.pending,
            facts.is_ending,
            oldest_sent_ns,
            facts.longest_ns,
            facts.followed,
            tuple(facts.heard_ns[0 : self._seat_count]),
            facts.is_pressed,
            tuple(facts.silent_ns[0 : self._seat_count]) if facts.is_pressed else (),
        )

    def fail(self, seat: int) -> None:
        lib.ebk_link_adds_fail(self.handle, seat)

    def give(self) -> Iterator[SentFrame]:
        self._sender.end(self)
        found = ffi.new("struct ebk_link_frame *")
        while lib.ebk_link_adds_give(self.handle, found):
            packed = found.packed
            body = bytes(ffi.buffer(packed.body, packed.size))
            lib.ebk_packer_release(packed.body)
            yield SentFrame(
                packed.first_entry, packed.last_entry, packed.count, packed.length, body,
                found.first_request, found.sent_ns, found.answered, found.unsent,
            )  # fmt: skip

    def close(self) -> None:
        self._sender.end(self)
        lib.ebk_link_adds_close(self.handle)

    # Any thread.

    def lac(self) -> tuple[int, int]:
        return lib.ebk_link_adds_lac(self.handle, self._length), self._length[0]

    def wait(self, entry_id: int, *, is_alone: bool) -> bool:
        may_be_late = is_alone and not self.is_followed
        while not (answer := lib.ebk_link_adds_await(self.handle, entry_id, may_be_late, AWAIT_MS)):
            pass  # A moment for signals.
        return bool(answer > 0)


class LinkSender:
    """The links of one transport that adds go over, and whose they are."""

    def __init__(self) -> None:
        made = lib.ebk_link_sender_new()
        if made == ffi.NULL:
            raise MemoryError("no memory or no descriptor for a sender of adds")
        self.handle: Any = ffi.gc(made, lib.ebk_link_sender_free)
        self._adds: dict[LinkAdds, None] = {}  # Kept alive.

    @property
    def is_idle(self) -> bool:
        return not self._adds

    def fileno(self) -> int:
        """Ready when a packer of these adds has something."""
        return int(lib.ebk_link_sender_fileno(self.handle))

    def wake(self) -> None:
        """From any thread."""
        lib.ebk_link_sender_wake(self.handle)

    def begin(self, adds: LinkAdds) -> None:
        if lib.ebk_link_sender_begin(self.handle, adds.handle) < 0:
            raise MemoryError("no memory for the adds of a handle")
        self._adds[adds] = None

    def end(self, adds: LinkAdds) -> None:
        lib.ebk_link_sender_end(self.handle, adds.handle)
        self._adds.pop(adds, None)

    def show(self, link: int, socket: Any, prefix: bytes, room: int) -> None:
        """This link is up, and takes so many bytes of bodies."""
        if lib.ebk_link_sender_up(self.handle, link, address_of(socket), prefix, room) < 0:
            raise MemoryError("no memory for a link that adds go over")

    def down(self, link: int) -> None:
        lib.ebk_link_sender_down(self.handle, link)

    def turn(self, now_ns: int) -> None:
        lib.ebk_link_sender_turn(self.handle, now_ns)

    def sent(self, link: int) -> int:
        """Bytes of bodies since it was asked last."""
        return int(lib.ebk_link_sender_sent(self.handle, link))
