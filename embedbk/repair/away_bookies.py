"""Which bookies count as gone: those that were away for the grace, as one auditor has seen it (P11.1, AR02).

A bookie is away when a ledger names it in an incarnation that is not registered, or when it left the list. Decides when
it is gone, which of them a round has counted as gone, and what is forgotten. Other bookies that are away do not make
its grace shorter. Behind an election the grace begins anew: who was elected cannot know what was before.
"""

from __future__ import annotations

from embedbk.ids import Member

__all__ = ["AwayBookies"]

_NOBODY: frozenset[Member] = frozenset()


class AwayBookies:
    """since: incarnations that are away, and since when; so many at most. gone: when the newest round began."""

    def __init__(self, grace_ns: int, away_max: int) -> None:
        self.grace_ns = grace_ns
        self.since: dict[Member, int] = {}
        self.gone = _NOBODY
        self._away_max = away_max
        self._heard: set[Member] = (
            set()
        )  # Those of `gone` that did not come back, and whose round did not fail.
        self._named: set[Member] = set()  # A ledger that this round met names them.

    def see(self, before: frozenset[Member], there: frozenset[Member], now_ns: int) -> None:
        """A registered bookie is not away. One that the list before had, and this one lacks, is away since now."""
        for member in sorted(before - there):
            self._miss(member, now_ns)
        for member in there:
            self.since.pop(member, None)
        self._heard -= there

    def meet(self, member: Member, now_ns: int) -> None:
        """A ledger names it, and it is not registered."""
        self._miss(member, now_ns)
        self._named.add(member)

    def _miss(self, member: Member, now_ns: int) -> None:
        if len(self.since) < self._away_max:
            self.since.setdefault(member, now_ns)

    def gone_by(self, now_ns: int) -> frozenset[Member]:
        return frozenset(member for member, since in self.since.items() if now_ns - since >= self.grace_ns)

    def is_news(self, gone: frozenset[Member]) -> bool:
        """Whether one of them is gone that no round has counted as gone yet."""
        return not gone <= self._heard

    def next_ns(self, now_ns: int) -> int | None:
        """When the next one counts as gone; None: none is waited for."""
        due = (since + self.grace_ns for since in self.since.values())
        return min((each for each in due if each > now_ns), default=None)

    def begin_round(self, gone: frozenset[Member]) -> None:
        self.gone, self._heard, self._named = gone, set(gone), set()

    def fail_round(self) -> None:
        """The round did not come to its end: bookies that are gone are news again."""
        self._heard = set()

    def end_round(self) -> None:
        """A round has met all ledgers: a bookie that is gone, and that no ledger names, need not be remembered. One
        that is named again is met again. Only where many are remembered: each of them is shown to people until
        then."""
        if 2 * len(self.since) >= self._away_max:
            unnamed = self.gone - self._named
            self.since = {who: since for who, since in self.since.items() if who not in unnamed}
