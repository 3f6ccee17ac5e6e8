"""Which metadata member a client asks next, how long it pauses before, and how long it bears silence (P10.1). Pure.

Only the leader serves, and any member's address is enough to find it: a member that does not lead answers with the
leader's address and with all members'. The client dials a named leader at once, but a chain of names is bounded: two
members that name each other, or a leader that is gone, cost a pause like a member that does not answer. The addresses
have their turns, so that a wrong name keeps none of them away. Pauses and patience are shares of the time that was
spent without success, so the next leader is found soon, relative to how long its election took; they begin anew after
the first answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["ADDRESSES_MAX", "PATIENCE_NS_MAX", "PAUSE_NS_MAX", "PAUSE_NS_MIN", "Seeker"]

PAUSE_NS_MIN = 50_000_000  # Before the next member is dialled.
PAUSE_NS_MAX = 1_000_000_000
PAUSE_SHARE = 10  # A tenth of the time spent without success.
PATIENCE_SHARE = 2
PATIENCE_NS_MAX = 15_000_000_000
HOPS_MAX = 2  # Names followed one behind another before the next pause.
NAMED_MAX = 4  # Addresses of one leader that are tried.
ADDRESSES_MAX = 64  # Addresses that were given, that a leader sent, and that others sent, each.


class Seeker:
    """The search of one client. It has one link at a time, or dials one, or waits until it may dial."""

    def __init__(self, given: Sequence[str]) -> None:
        """given: addresses that are never forgotten; none: its host dials by itself."""
        self.given = _distinct(given)
        self.learnt: tuple[str, ...] = ()  # All members, as the last leader sent them.
        self.at = ""  # The address that was dialled last, until it is left.
        self.dial_at_ns: int | None = 0 if given else None
        self._told: tuple[
            str, ...
        ] = ()  # All members, as sent last by a member that does not lead, and may be out of date.
        self._named: deque[str] = deque()  # The leader's address, as a member sent it.
        self._hops = 0  # Names followed since an address had its turn.
        # For each known address, when it had its turn last, by count; for a new one, when it became known, so
        # that it waits behind those who waited before it, however often others are named.
        self._turns: dict[str, int] = {}
        self._count = 0
        self._left = ""  # Which was left last.
        self._since_ns: int | None = None  # Start of the search for a leader; None: a leader answered last.

    @property
    def addresses(self) -> tuple[str, ...]:
        """All known addresses, those that a leader sent first."""
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
        """The asked member does not lead. leader: the leader's addresses in its answer; members: those of all
        members."""
        if members:
            self._told = _distinct(members)
        self._named.clear()
        if self._hops < HOPS_MAX:
            self._named.extend([each for each in _distinct(leader) if each != self.at][:NAMED_MAX])
            self._hops += bool(self._named)

    def learn(self, members: Sequence[str]) -> None:
        """A leader sent the addresses of all members."""
        if members:
            self.learnt, self._told = _distinct(members), ()

    def answered(self) -> None:
        """A leader answered."""
        self._since_ns, self._hops = None, 0
        self._named.clear()

    def patience_ns(self, now_ns: int, first_ns: int) -> int | None:
        """How long to wait for an answer of the member that was dialled or asked. None: for ever, since no other is
        known."""
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
        """For how long no leader has answered, counted from the first call on."""
        if self._since_ns is None:
            self._since_ns = now_ns
        return now_ns - self._since_ns


def _distinct(endpoints: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(endpoints))[:ADDRESSES_MAX]
