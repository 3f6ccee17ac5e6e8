"""The holder of a seat, and how long it may leave unanswered what it was sent.

Decides when silence is a failure: later for a bookie that answered BUSY than for a silent one, because it lives (P4.1,
P7.8). Leaves to `InFlight` what is sent and counted, and to `lateness` which seat is slower than the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embedbk.core.frame_table import AnyFrameTable
from embedbk.ids import Member

__all__ = ["BUSY_FIRST_NS", "BUSY_FRAMES_MAX", "BUSY_MOST_NS", "Busy", "Seating"]

# The pause before a busy seat is asked again; doubled each time that it still is busy.
BUSY_FIRST_NS = 5_000_000
BUSY_MOST_NS = 200_000_000
BUSY_FRAMES_MAX = 64  # Sent at once to one that was busy, at most; one at first.


@dataclass(slots=True)
class Busy:
    """The adds that a seat that answered BUSY was not sent yet, and how carefully they are sent (P7.8)."""

    again_ns: int
    delay_ns: int = BUSY_FIRST_NS
    frames_max: int = 1
    is_asked: bool = False  # Something was sent to it since it answered.
    # Since when it owes any answer at all (busy is an answer too); None when nothing is on its way to it.
    silent_ns: int | None = None
    owed: dict[int, None] = field(default_factory=dict)  # First entries of frames that are not on their way.


@dataclass(slots=True)
class Seating:
    """One holder of one seat. The number rises whenever any seat's holder changes, so it names the holding for good."""

    number: int
    seat: int
    slot: int  # Where `frames` counts what it answers.
    member: Member
    frames: AnyFrameTable = field(repr=False)
    failure: str | None = None  # Why nothing more is sent to it; it waits to be replaced.
    stays_away: bool = False  # It failed, and its own answer shows that it stays away (P4.6).
    held_through: int = -1  # It failed, and has all that was done of the fragment by then up to here.
    answered_ns: int = 0  # When the newest of the frames that it has answered was sent (P4.7).
    heard_ns: int = 0  # When it answered last, anything.
    awaited_until_ns: int = 0  # A reader waited there for a newer LAC lately (P6.2).
    busy: Busy | None = None  # It lives, and takes no more at this moment.

    @property
    def owed(self) -> Mapping[int, int]:
        """First entry of each frame that it has not answered -> when it was sent; in the order of sending. Slow:
        for what follows a failure, tests and tools."""
        return self.frames.owed(self.slot)

    def oldest_sent_ns(self) -> int | None:
        """When the oldest frame that it has not answered was sent."""
        return self.frames.oldest_sent_ns(self.slot)

    def silent_ns(self) -> int | None:
        """Since when it has answered nothing of what it owes; None: it owes nothing, or answered that it is busy."""
        oldest = self.oldest_sent_ns()
        return None if oldest is None or self.busy is not None else max(oldest, self.heard_ns)

    def heard(self, now_ns: int) -> None:
        """Note an answer of any kind. While busy, it owes the next answer from now on, if one is to come."""
        self.heard_ns = now_ns
        if self.busy is not None:
            is_more_out = self.frames.owed_count(self.slot) > len(self.busy.owed)
            self.busy.silent_ns = now_ns if is_more_out else None

    def fails_at_ns(self, timeout_ns: int, busy_timeout_ns: int) -> int | None:
        """When it counts as failed because of what it leaves unanswered; None: it owes nothing."""
        oldest = self.oldest_sent_ns()
        if oldest is None or self.busy is None:
            return None if oldest is None else oldest + timeout_ns
        # An add that it refused as busy counts from the first time that it was sent.
        at_ns = oldest + busy_timeout_ns
        return at_ns if self.busy.silent_ns is None else min(at_ns, self.busy.silent_ns + timeout_ns)
