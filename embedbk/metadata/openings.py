"""Which sessions were opened over which link of a metadata member, and the one that each link is opening
(METADATA.md, 7). Pure.

A client that gets no answer asks again, under the same attempt: it gets the session of the first request, as each of
its requests would otherwise leave an unused session behind. Knows what each link has asked for last, and what it was
given. Leaves to `member` whether a session may be opened, and the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from embedbk.metadata.proposals import ProposedCommand

__all__ = ["LinkOpening", "Openings"]


@dataclass(slots=True)
class LinkOpening:
    """The last session that was opened on a link, or will be."""

    attempt: int
    proposed: ProposedCommand | None  # The command that opens it; None: it was applied.
    session: int = 0

    def is_of(self, attempt: int) -> bool:
        """Whether it was asked for under this attempt; 0 is none."""
        return bool(attempt) and attempt == self.attempt


class Openings:
    """By link: the last opening, and the sessions that were opened."""

    __slots__ = ("_last", "_opened", "_under_way")

    def __init__(self) -> None:
        self._last: dict[int, LinkOpening] = {}
        self._opened: dict[int, dict[int, None]] = {}  # Sessions opened on it.
        self._under_way: dict[int, int] = {}  # How many are being opened.

    def last(self, link: int) -> LinkOpening | None:
        return self._last.get(link)

    def is_opened_on(self, link: int, session: int) -> bool:
        return session in self._opened.get(link, ())

    def opened_on(self, link: int) -> Iterable[int]:
        """The sessions that were opened over this link, those that have ended since among them."""
        return self._opened.get(link, ())

    def under_way(self, link: int) -> int:
        return self._under_way.get(link, 0)

    def begin(self, link: int, attempt: int, proposed: ProposedCommand, living: dict[int, None]) -> None:
        """A session is being opened by this command. living: those sessions of the link that have not ended."""
        self._last[link] = LinkOpening(attempt, proposed)
        self._opened[link] = living
        self._under_way[link] = self._under_way.get(link, 0) + 1

    def end(self, link: int, proposed: ProposedCommand, session: int) -> None:
        """The command was applied. session: the one that it opened; 0: it was refused."""
        self._under_way[link] -= 1
        opening = self._last[link]
        if session:
            self._opened[link][session] = None
        if opening.proposed is proposed:
            opening.proposed = None
            opening.session = session

    def lose_proposals(self) -> None:
        """What is being opened may be opened by another leader or not: no answer is sent."""
        self._last = {link: known for link, known in self._last.items() if known.proposed is None}
        self._under_way.clear()

    def lose_link(self, link: int) -> None:
        for of_link in (self._last, self._opened, self._under_way):
            of_link.pop(link, None)
