"""When a session was silent for too long, by counted time (METADATA.md, 1; P9.1). Pure.

Time in which no client could be answered does not count: a start, a sleep of this process, a log that makes no
progress.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from embedbk.metadata.session_table import Session

__all__ = ["AWAY_NS", "LOOKED_AT_MAX", "Lifetimes"]

AWAY_NS = 1_000_000_000  # After a Tick so late, or a commit so slow, the member was away and not its clients.
LOOKED_AT_MAX = 1000  # Sessions checked in one step, whose time may be over; most were renewed meanwhile.


class Lifetimes:
    """The times of all sessions of a catalog, as one leading member receives their requests."""

    def __init__(self, sessions: Mapping[int, Session], now_ns: int) -> None:
        """sessions: the catalog's own mapping. Each existing session gets a fresh ttl: this member cannot know
        for how long there was no leader."""
        self._sessions = sessions
        self._uncounted_ns = 0
        self._last_ns = now_ns
        self._stood_since_ns: int | None = None  # Since when something waits and nothing is committed.
        self._heard_ns: dict[int, int] = {}  # When each session was last heard, in counted time.
        self._expiries: list[tuple[int, int]] = []  # Heap of (not before, counted; session), one per session.
        self.grant_all(now_ns)

    def grant_all(self, now_ns: int, grace_ns: int = 0) -> None:
        """Give all sessions their time anew. grace_ns: for so long another leader may have renewed them."""
        self._expiries.clear()
        for session in self._sessions:
            self.grant(session, now_ns, grace_ns)

    def grant(self, session: int, now_ns: int, grace_ns: int = 0) -> None:
        """A session was opened."""
        self._heard_ns[session] = self._counted_ns(now_ns) + grace_ns
        self.look_again(session)

    def hear(self, session: int, now_ns: int) -> None:
        self._heard_ns[session] = max(self._counted_ns(now_ns), self._heard_ns.get(session, 0))

    def look_again(self, session: int) -> None:
        """Its time was over, and it lives all the same: look at it again later."""
        heapq.heappush(self._expiries, (self._expires_ns(session), session))

    def forget(self, session: int) -> None:
        self._heard_ns.pop(session, None)

    def over(self, now_ns: int) -> Iterator[int]:
        """Sessions whose time is over, each given once; if there are many, only some of them."""
        counted_ns = self._counted_ns(now_ns)
        for _ in range(LOOKED_AT_MAX):
            if not self._expiries or self._expiries[0][0] > counted_ns:
                return
            number = heapq.heappop(self._expiries)[1]
            if number not in self._sessions:
                continue
            if self._expires_ns(number) > counted_ns:
                self.look_again(number)
                continue
            yield number

    @property
    def due_ns(self) -> int | None:
        """When a session may have to be ended; None: no time is counted until the log goes on."""
        if not self._expiries:
            return None
        due_ns = self._expiries[0][0] + self._uncounted_ns
        then_ns = max(due_ns, self._last_ns)  # A turn may be late.
        is_still = self._stood_since_ns is not None and then_ns - self._stood_since_ns > AWAY_NS
        return None if is_still else due_ns

    # --- Counted time --------------------------------------------------------------------------------------

    def notice_absence(self, now_ns: int) -> None:
        """A step comes long after one was due: this process was stopped, and received nothing since the last one."""
        if now_ns - self._last_ns > AWAY_NS:
            due_ns = self.due_ns
            if due_ns is not None and now_ns - max(due_ns, self._last_ns) > AWAY_NS:
                self._uncounted_ns += now_ns - self._last_ns
        self._last_ns = now_ns

    def went_on(self, now_ns: int) -> None:
        """Something was committed: the log makes progress."""
        self._uncounted_ns += self._stood_ns(now_ns)
        self._stood_since_ns = None

    def note_waiting(self, now_ns: int, is_waiting: bool) -> None:
        """Note after each step whether something waits to be committed."""
        if not is_waiting:
            self._stood_since_ns = None
        elif self._stood_since_ns is None:
            self._stood_since_ns = now_ns

    def _stood_ns(self, now_ns: int) -> int:
        """For how long nothing could be committed; 0 if that is not long. A client that opened a session meanwhile, or
        came back to one, has no answer yet, so this time counts against no session."""
        if self._stood_since_ns is None or now_ns - self._stood_since_ns <= AWAY_NS:
            return 0
        return now_ns - self._stood_since_ns

    def _counted_ns(self, now_ns: int) -> int:
        return now_ns - self._uncounted_ns - self._stood_ns(now_ns)

    def _expires_ns(self, session: int) -> int:
        """A sixteenth after its ttl; the client gives up a sixteenth before, counted from an earlier moment."""
        return self._heard_ns[session] + self._sessions[session].ttl_ms * 1_000_000 * 17 // 16
