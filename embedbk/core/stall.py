"""A stall: adds wait because bookies are missing. Until when, and with which error the handle fails then (P4.5).

Decides how long adds wait while a write set has fewer than Qa usable seats, and what is said in the end. While none
waits no time is counted: a handle that only rests fails for no bookie, and for no metadata that is away (P10.4). Leaves
to the writer which bookies to seat and what metadata is asked. Pure: the times come with events.

    whole --a change is in flight, too few seats--> stalled --settled, or enough again--> whole
      \\--nobody can be seated--> short --somebody is--> whole      short --its time is over--> the handle fails
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.avoided import Failed, Failures
from embedbk.core.client_words import BookieInfo
from embedbk.core.seating import Seating
from embedbk.errors import NotEnoughBookies

__all__ = ["Stall", "not_enough_bookies"]

REASONS_MAX = 20  # Bookies that an error names one by one.


@dataclass(slots=True)
class Stall:
    """The stall of one writing handle; a new one says that there is none."""

    until_ns: int | None = None  # Adds wait until then at most; None: none waits.
    is_short: bool = (
        False  # No bookie can be seated: the handle fails when the time is over, unless metadata tells more.
    )
    # Since when adds wait in a shortage, kept until one is confirmed: a bookie that returns and fails again does not
    # restart the limit. None: none waits.
    since_ns: int | None = None

    def note(
        self, now_ns: int, timeout_ns: int, *, is_changing: bool, is_usable: bool, is_waited_for: bool
    ) -> None:
        """Without Qa usable seats adds wait until the change is settled, but not for ever."""
        if self.is_short:
            return
        if not is_changing or is_usable or not is_waited_for:
            self.until_ns = None
        elif self.until_ns is None:
            self.until_ns = now_ns + timeout_ns

    def begin_shortage(self, now_ns: int, timeout_ns: int, retry_ns: int, *, is_waited_for: bool) -> None:
        """No bookie can be seated. It is not over before metadata had time to answer (retry_ns)."""
        self.is_short = True
        if is_waited_for:
            self._count(now_ns, timeout_ns, retry_ns)

    def note_sent(self, now_ns: int, timeout_ns: int, retry_ns: int) -> None:
        """An add waits from now on, if there is a shortage."""
        if self.is_short and self.until_ns is None:
            self._count(now_ns, timeout_ns, retry_ns)

    def _count(self, now_ns: int, timeout_ns: int, retry_ns: int) -> None:
        if self.since_ns is None:
            self.since_ns = now_ns
        self.until_ns = max(self.since_ns + timeout_ns, now_ns + retry_ns)

    def note_confirmed(self, now_ns: int, timeout_ns: int, *, is_waited_for: bool) -> None:
        """Note that an entry was confirmed; an add from before a stall may be, while it lasts. is_waited_for: others
        are outstanding. Those have the whole time again."""
        self.since_ns = now_ns if self.is_short and is_waited_for else None
        if not is_waited_for:
            self.until_ns = None
        if self.until_ns is not None:
            self.until_ns = max(self.until_ns, now_ns + timeout_ns)

    def may_take_back(self, now_ns: int, timeout_ns: int) -> bool:
        """Whether a bookie that failed, and is there again, may go on in its seat."""
        return self.is_short and (self.since_ns is None or now_ns < self.since_ns + timeout_ns)

    def is_over(self, now_ns: int) -> bool:
        return self.until_ns is not None and now_ns >= self.until_ns

    def end_shortage(self) -> bool:
        """The time is over: end the shortage. False: there was none, and adds stood still for a change only."""
        was_short, self.is_short = self.is_short, False
        return was_short

    def relieve(self, *, has_outstanding: bool) -> None:
        """Note that every write set has its Qa usable seats again."""
        self.is_short, self.until_ns = False, None
        if not has_outstanding:
            self.since_ns = None


def not_enough_bookies(
    metadata: LedgerMetadata,
    seatings: Sequence[Seating],
    bookies: Sequence[BookieInfo],
    failures: Failures,
    now_ns: int,
    *,
    change_count: int | None = None,
    is_published: bool = True,
    refusal: str = "",
) -> NotEnoughBookies:
    """Why each bookie cannot take part: those that sit and have failed, and those that do not sit.

    Args:
        change_count: how often the handle has changed its ensemble, if that is as often as it may.
        is_published: False: a change is in flight, and metadata does not say what became of it.
        refusal: why metadata would not take a change; empty: it did not refuse one.
    """
    listed = {info.member.bookie_id: info for info in bookies}
    reasons = []
    for seating in seatings:
        if seating.failure is not None:
            info = listed.pop(seating.member.bookie_id, None)
            reasons.append(f"{seating.member.bookie_id}: {seating.failure}{_since_then(seating, info)}")
        else:
            listed.pop(seating.member.bookie_id, None)
    may_publish = is_published and not refusal
    reasons += [
        f"{name}: {_why_not(info, failures.get(name), now_ns, may_publish=may_publish)}"
        for name, info in listed.items()
    ]
    if len(reasons) > REASONS_MAX:
        reasons = [*reasons[:REASONS_MAX], f"and {len(reasons) - REASONS_MAX} more"]
    why = "nobody could take a seat"
    hint = "bring bookies back or add one"
    if refusal:
        why = f"metadata refuses another ensemble: {refusal}"
        hint = "make room in the metadata, or bring bookies back"
    elif not is_published:
        why = "another ensemble could not be published, as metadata did not answer"
    elif change_count is not None:
        why = f"this handle has changed its ensemble {change_count} times, which is its limit"
    quorum = metadata.quorum
    return NotEnoughBookies(
        f"ledger {metadata.ledger_id}: fewer than {quorum.ack_quorum} usable bookies in some write set of "
        f"{quorum.write_quorum}, and {why} ({'; '.join(reasons)})",
        hint=f"{hint}, then take the log over; Settings.quorum_wait_s says how long a writer waits for that",
    )


def _since_then(seating: Seating, info: BookieInfo | None) -> str:
    """What the list of bookies says about a seated bookie that failed."""
    if info is None:
        return ", not registered"
    if info.member != seating.member:
        return ", registered with another disk"
    return "" if info.is_writable else ", read-only"


def _why_not(info: BookieInfo, failed: Failed | None, now_ns: int, *, may_publish: bool) -> str:
    if not info.is_writable:
        return "read-only"
    if failed is None and not may_publish:
        return "there, and has no seat, as none could be published"
    if failed is None:
        return "not taken, as the placement does not allow it or no change is left to take it by"
    ago = f"failed {max(0, now_ns - failed.failed_ns) / 1e9:.1f} s ago"
    return ago if failed.is_heard else f"{ago}, and gave no answer since"
