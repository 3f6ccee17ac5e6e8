"""Which metadata member a client asks next, how long it pauses before, and how long it bears silence (P10.1). Pure.

Only the leader serves, and any member's address is enough to find it: whoever does not lead names who does, and all
members. A name is followed at once, but not one behind another without end: two that name each other, or a leader that
is gone, cost a pause like everybody who does not answer. The addresses have their turns, so that a wrong name keeps
none of them away. Pauses and patience are shares of the time that was spent in vain, so whoever leads in the end is
found soon, measured by what it took to come to lead; they begin anew behind the first answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["ADDRESSES_MAX", "PATIENCE_NS_MAX", "PAUSE_NS_MAX", "PAUSE_NS_MIN", "Seeker"]

PAUSE_NS_MIN = 50_000_000  # Before the next member is dialled.
PAUSE_NS_MAX = 1_000_000_000
PAUSE_SHARE = 10  # A tenth of the time that was spent in vain.
PATIENCE_SHARE = 2
PATIENCE_NS_MAX = 15_000_000_000
HOPS_MAX = 2  # Names followed one behind another before the next pause.
NAMED_MAX = 4  # Addresses of one leader that are tried.
ADDRESSES_MAX = 64  # Of those that were given, that a leader told, and that others told, each.


class Seeker:
    """Of one client. It has one link at a time, or dials one, or waits until it may dial."""

    def __init__(self, given: Sequence[str]) -> None:
        """given: addresses that are never forgotten; none: its host dials by itself."""
        self.given = _distinct(given)
        self.learnt: tuple[str, ...] = ()  # All members, as the last leader said.
        self.at = ""  # The address that was dialled last, until it is left.
        self.dial_at_ns: int | None = 0 if given else None
        self._told: tuple[
            str, ...
        ] = ()  # All members, as one said last that does not lead, and may be of old.
        self._named: deque[str] = deque()  # Where the leader is said to be.
        self._hops = 0  # Names followed since an address had its turn.
        # Of each known address, when it had its turn last, by count; of one that came to be known, when that was, so
        # that it waits behind those who waited before it, however often others are named.
        self._turns: dict[str, int] = {}
        self._count = 0
        self._left = ""  # Which was left last.
        self._since_ns: int | None = None  # Looked for in vain, since the last answer of a leader.

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that are known, those that a leader told first."""
        return tuple(dict.fromkeys((*self.learnt, *self._told, *self.given)))

    def dial(self, now_ns: int) -> str | None:
        """The address to dial now, if it is time."""
        if self.dial_at_ns is None or now_ns < self.dial_at_ns:
            return None
        self.dial_at_ns = None
        self.at = self._named.popleft() if self._named else self._next()
        return self.at

    def left(self, now_ns: int) -> None:
        """The link ended, or could not be had."""
        self._left, self.at = self.at, ""
        in_vain_ns = self._in_vain_ns(now_ns)
        if not self.given:
            return
        if self._named:
            self.dial_at_ns = now_ns
        else:
            self.dial_at_ns = now_ns + min(max(PAUSE_NS_MIN, in_vain_ns // PAUSE_SHARE), PAUSE_NS_MAX)

    def redirected(self, leader: Sequence[str], members: Sequence[str]) -> None:
        """Who was asked does not lead. leader: where it says that the leader is; members: where all are."""
        if members:
            self._told = _distinct(members)
        self._named.clear()
        if self._hops < HOPS_MAX:
            self._named.extend([each for each in _distinct(leader) if each != self.at][:NAMED_MAX])
            self._hops += bool(self._named)

    def learn(self, members: Sequence[str]) -> None:
        """A leader says where all members are."""
        if members:
            self.learnt, self._told = _distinct(members), ()

    def answered(self) -> None:
        """A leader answered."""
        self._since_ns, self._hops = None, 0
        self._named.clear()

    def patience_ns(self, now_ns: int, first_ns: int) -> int | None:
        """How long to wait for a word of who was dialled or asked. None: for ever, since nobody else is known."""
        if len(self.addresses) < 2:
            return None
        return max(first_ns, min(self._in_vain_ns(now_ns) // PATIENCE_SHARE, PATIENCE_NS_MAX))

    def _next(self) -> str:
        """The address that waits longest for its turn; not the one that was just left, if there is another."""
        self._hops = 0
        known = self.addresses
        self._turns = {each: self._turns.get(each, self._count) for each in known}
        waiting = [each for each in known if each != self._left] or known
        chosen = min(waiting, key=self._turns.__getitem__)
        self._count += 1
        self._turns[chosen] = self._count
        return chosen

    def _in_vain_ns(self, now_ns: int) -> int:
        """Since when nobody answers as a leader does: from the first look at it on."""
        if self._since_ns is None:
            self._since_ns = now_ns
        return now_ns - self._since_ns


def _distinct(endpoints: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(endpoints))[:ADDRESSES_MAX]
