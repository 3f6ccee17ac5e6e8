"""Which sessions were opened over which link of a metadata member, and the one that each link is opening
(METADATA.md, 7). Pure.

A client that gets no answer asks again, under the same attempt: it gets the session of the first request, as each of
its requests would otherwise leave an unused session behind. Knows what each link has asked for last, and what it was
given; decides how many sessions a link may open, and how long they live. Leaves to `member` the answers, and to the
catalog whether there is room for one more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embedbk.codec.metadata_messages import OpenSession, Refusal
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import CommandLog
from embedbk.metadata.commands import StartSession
from embedbk.metadata.levels import left_out
from embedbk.metadata.pending_requests import PendingRequest
from embedbk.metadata.proposals import Proposals, ProposedCommand
from embedbk.metadata.session_table import Session
from embedbk.metadata.vocabulary import RandomBits

__all__ = ["SESSION_TTL_MS_MAX", "SESSION_TTL_MS_MIN", "LinkOpening", "Openings"]

SESSION_TTL_MS_MIN = 200
SESSION_TTL_MS_MAX = 600_000
SESSIONS_PER_LINK_MAX = 128  # Living sessions opened over one link. A client has one.


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

    __slots__ = ("_chance", "_last", "_log", "_opened", "_proposals", "_under_way")

    def __init__(self, log: CommandLog, proposals: Proposals, chance: RandomBits) -> None:
        self._log = log
        self._proposals = proposals
        self._chance = chance
        self._last: dict[int, LinkOpening] = {}
        self._opened: dict[int, dict[int, None]] = {}  # Sessions opened on it.
        self._under_way: dict[int, int] = {}  # How many are being opened.

    def last(self, link: int) -> LinkOpening | None:
        return self._last.get(link)

    def is_opened_on(self, link: int, session: int) -> bool:
        return session in self._opened.get(link, ())

    def is_new(self, link: int, operation: OpenSession) -> bool:
        """Whether a request opens a session which its link has not been given under the same attempt."""
        opening = self._last.get(link)
        return opening is None or not opening.is_of(operation.attempt) or opening.proposed is not None

    def open(
        self, asked: PendingRequest, operation: OpenSession, catalog: Catalog, effects: list[Any]
    ) -> Session | Refusal | None:
        """Open a session, or return the one that was opened on this link under the same attempt: a client asks again
        while the answer is late, and otherwise each of its requests would leave an unused session behind. None: the
        request waits for the outcome, or was put off."""
        link = asked.link
        if operation.level < catalog.level:
            return left_out(operation.label, operation.level, catalog.level)
        opening = self._last.get(link)
        if opening is not None and opening.is_of(operation.attempt):
            session = catalog.sessions.get(opening.session)
            if opening.proposed is not None:
                self._proposals.join(asked, opening.proposed, effects)
                return None
            if session is not None:
                return session
        living = {each: None for each in self._opened.get(link, ()) if each in catalog.sessions}
        count = len(living) + self._under_way.get(link, 0)
        if count >= SESSIONS_PER_LINK_MAX:
            return Refusal(
                "UNAVAILABLE",
                f"{count} sessions that were opened over this link live, allowed are {SESSIONS_PER_LINK_MAX}: "
                "close some, or wait until they expire",
            )
        secret = self._chance.getrandbits(128).to_bytes(16, "little")
        least_ms = max(SESSION_TTL_MS_MIN, self._log.session_ns_min // 1_000_000)
        ttl_ms = min(max(operation.ttl_ms, least_ms), SESSION_TTL_MS_MAX)
        start = StartSession(0, ttl_ms, operation.label, secret, operation.level)
        proposed = self._proposals.propose_for(asked, start, effects)
        if proposed is not None:
            self._last[link] = LinkOpening(operation.attempt, proposed)
            self._opened[link] = living
            self._under_way[link] = self._under_way.get(link, 0) + 1
        return None

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
