"""Pending polls: long polls for a LAC that a bookie has not answered yet, with what each waits for and until when
(P6.2).

Decides which of them an advancing LAC, a fence, the time or a lost link ends. Leaves the answers to the bookie. The
form in C, which a bookie's fast path for readers shares with its core, is native/road/parked.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["FOLLOWED_NS", "POLLS_PER_LINK_MAX", "Parked", "ParkedPolls", "Poll"]

# One more is answered at once, as if its time were over: its reader pauses by itself.
POLLS_PER_LINK_MAX = 16_384
FOLLOWED_NS = 1_000_000_000  # A reader that asked so lately is expected to ask again.


@dataclass(slots=True)
class Poll:
    link: int
    request_id: int
    ledger_id: int
    after_lac: int
    bytes_max: int  # How many bytes of entries are wanted along with the LAC.
    until_ns: int


class ParkedPolls(Protocol):
    """The one list of pending polls of a bookie: in C, or `Parked`, which documents each of these methods."""

    uncounted: list[int]  # Links of polls that C added and that the core was given, for its host to count.

    @property
    def deadline_ns(self) -> int | None: ...
    @property
    def poll_count(self) -> int: ...
    @property
    def followed_count(self) -> int: ...
    def count_of(self, link: int) -> int: ...
    def is_awaited(self, ledger_id: int) -> bool: ...
    def is_followed(self, ledger_id: int, now_ns: int) -> bool: ...
    def note_asked(self, ledger_id: int, now_ns: int) -> None: ...
    def park(self, poll: Poll) -> bool: ...
    def wake(self, ledger_id: int, lac: int, *, is_fenced: bool) -> list[Poll]: ...
    def expire(self, now_ns: int) -> list[Poll]: ...
    def forget(self, link: int) -> None: ...


class Parked:
    """Plain data; the order in which polls came is the order in which they are answered."""

    def __init__(self) -> None:
        self.by_ledger: dict[int, list[Poll]] = {}
        self.per_link: dict[int, int] = {}
        self.uncounted: list[int] = []  # Only the core adds polls here.
        self.deadline_ns: int | None = None  # No poll ends by its time before this.
        self.asked_ns: dict[int, int] = {}  # Ledger -> when a poll came last; the newest stands last.

    @property
    def poll_count(self) -> int:
        return sum(self.per_link.values())

    @property
    def followed_count(self) -> int:
        return len(self.asked_ns)

    def count_of(self, link: int) -> int:
        return self.per_link.get(link, 0)

    def is_awaited(self, ledger_id: int) -> bool:
        return ledger_id in self.by_ledger

    def is_followed(self, ledger_id: int, now_ns: int) -> bool:
        """Does a reader wait, or process what the last poll brought? (Each add of a steady writer carries the LAC of
        the one before: its reader is always busy when the writer looks for waiting readers.)"""
        asked_ns = self.asked_ns.get(ledger_id)
        return ledger_id in self.by_ledger or (asked_ns is not None and now_ns - asked_ns < FOLLOWED_NS)

    def note_asked(self, ledger_id: int, now_ns: int) -> None:
        self.asked_ns.pop(ledger_id, None)
        self.asked_ns[ledger_id] = now_ns
        for _ in range(2):  # More go than come, so that none of long ago stays.
            oldest = next(iter(self.asked_ns))
            if now_ns - self.asked_ns[oldest] < FOLLOWED_NS:
                break
            del self.asked_ns[oldest]

    def park(self, poll: Poll) -> bool:
        """Park a poll. False: its link has so many that this one must be answered at once."""
        count = self.per_link.get(poll.link, 0)
        if count >= POLLS_PER_LINK_MAX:
            return False
        self.per_link[poll.link] = count + 1
        self.by_ledger.setdefault(poll.ledger_id, []).append(poll)
        if self.deadline_ns is None or poll.until_ns < self.deadline_ns:
            self.deadline_ns = poll.until_ns
        return True

    def wake(self, ledger_id: int, lac: int, *, is_fenced: bool) -> list[Poll]:
        """Remove and return the polls that this LAC, or the fence, ends."""
        polls = self.by_ledger.get(ledger_id)
        if polls is None:
            return []
        return self._take(ledger_id, [p for p in polls if is_fenced or p.after_lac < lac])

    def expire(self, now_ns: int) -> list[Poll]:
        """Remove and return the polls whose time is over. Looks at all pending polls, at most as often as polls end by
        their time."""
        self.deadline_ns = None
        over: list[Poll] = []
        for ledger_id in list(self.by_ledger):
            polls = self.by_ledger[ledger_id]
            over += self._take(ledger_id, [poll for poll in polls if poll.until_ns <= now_ns])
            for poll in self.by_ledger.get(ledger_id, ()):
                if self.deadline_ns is None or poll.until_ns < self.deadline_ns:
                    self.deadline_ns = poll.until_ns
        return over

    def forget(self, link: int) -> None:
        """Forget the polls of a link that is lost."""
        if link in self.per_link:
            for ledger_id in list(self.by_ledger):
                self._take(ledger_id, [poll for poll in self.by_ledger[ledger_id] if poll.link == link])

    def _take(self, ledger_id: int, polls: list[Poll]) -> list[Poll]:
        if not polls:
            return polls
        taken = {id(poll) for poll in polls}
        left = [poll for poll in self.by_ledger[ledger_id] if id(poll) not in taken]
        if left:
            self.by_ledger[ledger_id] = left
        else:
            del self.by_ledger[ledger_id]
        for poll in polls:
            self.per_link[poll.link] -= 1
            if not self.per_link[poll.link]:
                del self.per_link[poll.link]
        return polls
