"""Requests that wait until a member has applied what was committed when they came (METADATA.md, 5; RAFT.md, 6). Pure.

A request is asked for under a token while the log does not know how far that is, then it waits for an index. Leaves to
`member` which index that is, and the answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.metadata.pending_requests import PendingRequest

__all__ = ["UnappliedReads"]


class UnappliedReads:
    """The reads of one member, by what they wait for."""

    __slots__ = ("_unready", "by_index", "token")

    def __init__(self) -> None:
        self.token = 0  # The last read has it.
        self.by_index: dict[int, list[PendingRequest]] = {}  # By the index that must be applied before.
        self._unready: dict[int, PendingRequest] = {}  # Those whose index the log has not returned, by token.

    def next_token(self) -> int:
        """The token of one more read."""
        self.token += 1
        return self.token

    def wait_for_log(self, asked: PendingRequest) -> None:
        """Let the read under the last token wait until the log returns its index."""
        self._unready[self.token] = asked

    def wait_for(self, index: int, asked: PendingRequest) -> None:
        self.by_index.setdefault(index, []).append(asked)

    def take_ready(self, token: int) -> PendingRequest | None:
        """The read whose index the log has returned; None: it was put off."""
        return self._unready.pop(token, None)

    def take_applied(self, index: int) -> Sequence[PendingRequest]:
        """Those that waited for the index, in the order in which they came."""
        return self.by_index.pop(index, ())

    def clear(self) -> None:
        self.by_index.clear()
        self._unready.clear()
