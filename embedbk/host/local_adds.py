"""Adds of this client's writers to bookies on the same loop, without messages (native/NATIVE.md, "Local adds").

Decides which writers' adds can go that way, and which bookie is silent. When they do is `courses`'; what goes, and
what is acknowledged by it, is decided in C by the rules of both cores. What is not acknowledged at the end of a course
the core seals for itself: a bookie that has it finds the same bytes there (P3.4b).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from embedbk.codec.frame import Frame
from embedbk.codec.packer import Packer
from embedbk.core.vocabulary import Event, FrameSealed, SendFailed
from embedbk.host.courses import Course, Courses
from embedbk.host.operations import Operation, Writing
from embedbk.ids import Member
from embedbk.storage.local_adds import LOCAL_SEATS_MAX, LocalFacts, NativeLocalAdds, NativeNear, NativeWaiter

__all__ = ["LocalAdds"]

LOOK_NS = 500_000_000  # Between two looks for a bookie that stores and does not get durable.


class LocalAdds(Courses):
    """As `Courses`.

    Args:
        waiter: of the loop.
        nears: the bookies on it.
    """

    def __init__(
        self,
        waiter: NativeWaiter,
        nears: Mapping[Member, NativeNear],
        queue: Callable[[Operation, Event], None],
        hear: Callable[[int], None],
        look_again: Callable[[Writing], None],
    ) -> None:
        super().__init__(queue, hear, look_again)
        self._waiter = waiter
        self._nears = dict(nears)

    def wake_adds(self) -> None:
        self._waiter.wake()

    def filenos(self) -> list[int]:
        return [self._waiter.fileno()]

    def is_open_to(self, writing: Writing) -> bool:
        core = writing.core
        if not core.is_plain or type(writing.packer) is not Packer:
            return False
        members = core.in_flight.members
        return len(members) <= LOCAL_SEATS_MAX and all(member in self._nears for member in members)

    def open(self, writing: Writing) -> NativeLocalAdds:
        core, in_flight = writing.core, writing.core.in_flight
        adds = NativeLocalAdds(
            writing.packer,  # type: ignore[arg-type]  # `is_open_to` has looked.
            in_flight.ledger_key,
            [self._nears[member] for member in in_flight.members],
            core.quorum.ack_quorum,
            lac=core.lac,
            lac_length=in_flight.done_length,
            bytes_max=core.options.inflight_bytes_max,
        )
        self._waiter.begin(adds)
        return adds

    def leave(self, course: Course) -> None:
        self._waiter.end(course.adds)
        course.adds.end()

    def give_back(self, now_ns: int, writing: Writing, course: Course, facts: LocalFacts) -> None:
        for first, last, count, length, body in course.adds.give():
            frame = Frame(writing.core.ledger_id, first, last, count, length, memoryview(body))
            self._queue(writing, FrameSealed(now_ns, frame))

    def look(self, now_ns: int, writing: Writing, course: Course, facts: LocalFacts) -> None:
        """A bookie that stores and never gets durable has failed, also where the ack quorum goes on without it."""
        stood = course.stood or [(-1, now_ns)] * len(facts.durable)
        course.stood = [
            (mark, since) if is_behind and mark == before else (mark, now_ns)
            for (before, since), mark, is_behind in zip(stood, facts.durable, facts.is_behind, strict=True)
        ]
        course.look_ns = now_ns + LOOK_NS if any(facts.is_behind) else 0
        timeout_ns = writing.core.options.add_timeout_ns
        for seat, (_, since) in enumerate(course.stood):
            if now_ns - since >= timeout_ns:
                number = writing.core.in_flight.seatings[seat].number
                reason = f"nothing became durable within {timeout_ns / 1e9:g} s"
                self.end(now_ns, writing)
                self._queue(
                    writing, SendFailed(now_ns, ("add", number, course.lac + 1), course.members[seat], reason)
                )
                return
