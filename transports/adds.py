"""The adds of a writing handle that are sealed, sent and counted in C: the handle of native/road/link_adds.h.

Decides nothing: what goes this way, and what counts as acknowledged, is decided in C by the rules of core/writer.py,
and said in native/SHORTCUTS.md ("Adds in C"). When a writer's adds go this way is host/courses.py's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from embedbk._native import ffi, lib
from embedbk.codec.answers import Answers
from embedbk.codec.frame import Frame
from embedbk.codec.packer import Packer
from embedbk.errors import StorageError, UsageError
from embedbk.ports.adds import AddSeat, AddTerms, OwedFrame, SentFacts
from embedbk.transports.in_flight import FramesInC
from embedbk.transports.structs import near_struct

__all__ = ["AddsInC", "StoredNear", "Turns"]

AWAIT_MS = 1000  # Without a look for signals that another thread was given.


class Turns:
    """The handles whose adds take turns while a loop waits, and its wake-up by appends (native/road/turns.h)."""

    def __init__(self) -> None:
        made = lib.ebk_turns_new()
        if made == ffi.NULL:
            raise StorageError("no descriptor or no memory for the turns of adds", definite=True)
        self.handle: Any = ffi.gc(made, lib.ebk_turns_free)
        self._adds: dict[AddsInC, None] = {}  # Kept alive.

    @property
    def is_idle(self) -> bool:
        return not self._adds

    def begin(self, adds: AddsInC) -> None:
        if lib.ebk_turns_begin(self.handle, adds.handle) < 0:
            raise StorageError("no memory for the adds of a handle", definite=True)
        self._adds[adds] = None

    def end(self, adds: AddsInC) -> None:
        lib.ebk_turns_end(self.handle, adds.handle)
        self._adds.pop(adds, None)

    def take(self, now_ns: int) -> None:
        """Give each its turn: it seals and sends as far as allowed, and counts what is acknowledged."""
        lib.ebk_turns_take(self.handle, now_ns)

    def fileno(self) -> int:
        """Ready when a packer of these adds has something."""
        return int(lib.ebk_turns_fileno(self.handle))

    def wake(self) -> None:
        """From any thread: a packer of these adds has something."""
        lib.ebk_turns_wake(self.handle)


class StoredNear:
    """A frame that a bookie of the same loop has, for an observer (testing)."""

    __slots__ = ("frame", "lac", "lac_length", "token")

    def __init__(self, frame: Frame, token: int, lac: int, lac_length: int) -> None:
        """token: up to where that bookie has to be durable. lac, lac_length: as sent with the frame."""
        self.frame = frame
        self.token = token
        self.lac = lac
        self.lac_length = lac_length


class AddsInC:
    """`ports.adds.SentAdds`. Keeps the packer, the table, the links, what counts answers and the bookies of its loop
    alive.

    Args:
        turns: among which these adds take theirs.
        links: handle of the links that are sent over; None, with answers: no seat is reached over a link.
        answers: what counts the answers that come over them.
    """

    def __init__(
        self, turns: Turns, links: Any, answers: Answers | None, terms: AddTerms, seats: Sequence[AddSeat]
    ) -> None:
        packer, table = terms.packer, terms.table
        if not isinstance(packer, Packer) or not isinstance(table, FramesInC):
            raise UsageError("only frames that are in C are sealed and counted there")
        if len(seats) > lib.EBK_FLIGHT_SEATS_MAX:
            raise UsageError(f"{len(seats)} seats; at most {lib.EBK_FLIGHT_SEATS_MAX} are asked from C")
        nears = [seat.near for seat in seats]
        self._parts = (packer, table, links, answers, nears)
        self._turns = turns
        self._ledger_id = terms.ledger_id
        self.is_followed = False
        settings = ffi.new("struct ebk_link_settings *")
        settings.packer, settings.table = packer.handle, table.handle
        settings.links = ffi.NULL if links is None else links
        settings.answers = ffi.NULL if answers is None else answers.handle
        settings.ledger_id, settings.key, settings.nonce = terms.ledger_id, terms.ledger_key, terms.nonce
        settings.seat_count, settings.ack_quorum = len(seats), terms.ack_quorum
        for place, seat in zip(settings.seats, seats, strict=False):
            place.near = ffi.NULL if seat.near is None else near_struct(seat.near)
            place.link, place.seating = seat.link, seat.seating
            place.slot = seat.slot
            ffi.buffer(place.control)[: len(seat.control)] = seat.control
            place.control_size = len(seat.control)
        settings.lac, settings.lac_length = terms.lac, terms.lac_length
        settings.bytes_max, settings.behind_max = terms.bytes_max, terms.behind_max
        self.seat_count = len(seats)
        self.begin_place = int(lib.ebk_in_flight_state(table.handle).end)  # Where its frames begin.
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
            tuple(facts.heard_ns[0 : self.seat_count]),
            facts.is_pressed,
            tuple(facts.silent_ns[0 : self.seat_count]) if facts.is_pressed else (),
            tuple(facts.answered_ns[0 : self.seat_count]),
        )

    def fail(self, seat: int) -> None:
        lib.ebk_link_adds_fail(self.handle, seat)

    def end(self) -> list[OwedFrame]:
        self._turns.end(self)
        lib.ebk_link_adds_end(self.handle)
        place, found = ffi.new("uint64_t *"), ffi.new("struct ebk_link_owed *")
        owed: list[OwedFrame] = []
        while lib.ebk_link_adds_next_owed(self.handle, place, found):
            owed.append(OwedFrame(found.first_entry, found.first_request, found.asked, found.unsent))
        return owed

    def close(self) -> None:
        self._turns.end(self)
        lib.ebk_link_adds_close(self.handle)

    def turn(self, now_ns: int) -> None:
        """Do what a wait of the loop does where no seat is reached over a link; for a loop that has no such wait
        (testing)."""
        lib.ebk_link_adds_turn(self.handle, now_ns)

    def stored_from(self, place: int, seat: int) -> Iterator[StoredNear]:
        """What a near seat was sent, from the frame at this place of the table on, for an observer."""
        packed, token = ffi.new("struct ebk_packed *"), ffi.new("uint64_t *")
        lac, length = ffi.new("int64_t *"), ffi.new("uint64_t *")
        while lib.ebk_link_adds_show(self.handle, place, seat, packed, token, lac, length):
            body = memoryview(bytes(ffi.buffer(packed.body, packed.size)))
            frame = Frame(
                self._ledger_id, packed.first_entry, packed.last_entry, packed.count, packed.length, body
            )
            yield StoredNear(frame, token[0], lac[0], length[0])
            place += 1

    # Any thread.

    def lac(self) -> tuple[int, int]:
        return lib.ebk_link_adds_lac(self.handle, self._length), self._length[0]

    def wait(self, entry_id: int, *, is_alone: bool) -> bool:
        may_be_late = is_alone and not self.is_followed
        while not (answer := lib.ebk_link_adds_await(self.handle, entry_id, may_be_late, AWAIT_MS)):
            pass  # A moment for signals.
        return bool(answer > 0)
