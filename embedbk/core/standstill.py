"""Adds that stand still for want of bookies: until when, and what the handle fails with then (P4.5).

Decides how long a writer waits while a write set has fewer than Qa usable seats, and what is said in the end. Leaves to
the writer whom to seat and what metadata is asked. Pure: the times come with events.

    whole --a change is in flight, too few seats--> stalled --settled, or enough again--> whole
      \\--nobody can be seated--> short --somebody is--> whole      short --its time is over--> the handle fails
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from embedbk.config import Quorum
from embedbk.core.seating import Seating
from embedbk.errors import NotEnoughBookies

__all__ = ["Standstill", "not_enough_bookies"]


@dataclass(slots=True)
class Standstill:
    """Of one writing handle. As new: adds do not stand still."""

    until_ns: int | None = None  # At most until then adds stand still.
    shortage: NotEnoughBookies | None = None  # What the handle fails with unless metadata tells more.
    # When a shortage began since which nothing was confirmed: its time limit is not begun anew by who comes back
    # and fails again.
    since_ns: int | None = None

    def note(self, now_ns: int, timeout_ns: int, *, is_changing: bool, is_usable: bool) -> None:
        """Without Qa usable seats adds stand still until the change is settled, but not for ever."""
        if self.shortage is not None:
            return
        if not is_changing or is_usable:
            self.until_ns = None
        elif self.until_ns is None:
            self.until_ns = now_ns + timeout_ns

    def begin_shortage(self, shortage: NotEnoughBookies, now_ns: int, timeout_ns: int, retry_ns: int) -> None:
        """Nobody can be seated. It is not over before metadata had time to answer (retry_ns)."""
        self.shortage = shortage
        if self.since_ns is None:
            self.since_ns = now_ns
        self.until_ns = max(self.since_ns + timeout_ns, now_ns + retry_ns)

    def may_take_back(self, now_ns: int, timeout_ns: int) -> bool:
        """Whether who failed, and is there again, may go on where it sits."""
        return self.shortage is not None and self.since_ns is not None and now_ns < self.since_ns + timeout_ns

    def is_over(self, now_ns: int) -> bool:
        return self.until_ns is None or now_ns >= self.until_ns

    def end_shortage(self) -> NotEnoughBookies | None:
        """It has lasted its time. Returns what there was, None: adds stood still for a change only."""
        shortage, self.shortage = self.shortage, None
        return shortage

    def relieve(self, *, has_outstanding: bool) -> None:
        """Every write set has its Qa usable seats again."""
        self.shortage = self.until_ns = None
        if not has_outstanding:
            self.since_ns = None


def not_enough_bookies(
    ledger_id: int, quorum: Quorum, seatings: Iterable[Seating], change_count: int, changes_max: int
) -> NotEnoughBookies:
    """Which seats have failed and why, and why nobody else sits there."""
    reasons = ", ".join(
        f"{each.member.bookie_id}: {each.failure}" for each in seatings if each.failure is not None
    )
    why = "no replacement could be found or published"
    if change_count >= changes_max:
        why = f"this handle has changed its ensemble {change_count} times, which is its limit"
    return NotEnoughBookies(
        f"ledger {ledger_id}: fewer than {quorum.ack_quorum} usable bookies in some write set of "
        f"{quorum.write_quorum} ({reasons}), and {why}",
        hint="bring bookies back or add one, then take the log over",
    )
