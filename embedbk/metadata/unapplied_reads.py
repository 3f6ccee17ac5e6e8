"""Requests that wait until a member has applied what was committed when they came (METADATA.md, 5; RAFT.md, 6). Pure.

A request is asked for under a token while the log does not know how far that is, then it waits for an index. A change
waits here too, when it came before its session was known: later ones of that session wait behind it, but not behind
one that was run before and only wants its answer. Leaves to `member` which index that is, and the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from embedbk.metadata.pending_requests import PendingRequest

__all__ = ["UnappliedReads"]


class UnappliedReads:
    """The reads of one member, by what they wait for."""

    __slots__ = ("_changes", "_unready", "by_index", "token")

    def __init__(self) -> None:
        self.token = 0  # The last read has it.
        self.by_index: dict[int, list[PendingRequest]] = {}  # By the index that must be applied before.
        self._unready: dict[int, PendingRequest] = {}  # Those whose index the log has not returned, by token.
        self._changes: Counter[int] = Counter()  # How many of them are changes, by session.

    def next_token(self) -> int:
        """The token of one more read."""
        self.token += 1
        return self.token

    def wait_for_log(self, asked: PendingRequest) -> None:
        """Let the read under the last token wait until the log returns its index."""
        self._unready[self.token] = asked
        self._note(asked, 1)

    def wait_for(self, index: int, asked: PendingRequest) -> None:
        self.by_index.setdefault(index, []).append(asked)
        self._note(asked, 1)

    def holds_changes_of(self, session: int) -> bool:
        """Whether a change of this session waits: a later one must not be proposed before it."""
        return session in self._changes

    def take_ready(self, token: int) -> PendingRequest | None:
        """The read whose index the log has returned; None: it was put off."""
        asked = self._unready.pop(token, None)
        if asked is not None:
            self._note(asked, -1)
        return asked

    def take_applied(self, index: int) -> Sequence[PendingRequest]:
        """Those that waited for the index, in the order in which they came."""
        taken = self.by_index.pop(index, ())
        for asked in taken:
            self._note(asked, -1)
        return taken

    def clear(self) -> None:
        for waiting in (self.by_index, self._unready, self._changes):
            waiting.clear()

    def _note(self, asked: PendingRequest, growth: int) -> None:
        if asked.is_unrun:
            session = asked.request.session
            self._changes[session] += growth
            if not self._changes[session]:
                del self._changes[session]
