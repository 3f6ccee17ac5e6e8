"""Which reads a leader may answer: those for which it led after they came (ReadIndex; RAFT.md, section 6; I75)."""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_vocabulary import ReadReady, Token

__all__ = ["ReadRounds"]


class ReadRounds:
    """One round at a time asks all voters whether they know a newer leader. A read that comes meanwhile waits for the
    next round: an answer that may have been on its way before the read came proves nothing for it."""

    def __init__(self) -> None:
        self._queue: list[Token] = []
        self._asked: tuple[Token, ...] = ()
        self._round = 0
        self._index = 0
        self._answered: dict[MemberId, None] = {}

    @property
    def is_due(self) -> bool:
        return bool(self._queue) and not self._asked

    def put(self, tokens: Sequence[Token]) -> None:
        self._queue += tokens

    def begin(self, round_: int, commit_index: int, own: MemberId) -> None:
        """All that wait go into this round: what is committed now is what they must see at least."""
        self._asked, self._queue = tuple(self._queue), []
        self._round, self._index = round_, commit_index
        self._answered = {own: None}

    def answer(self, member: MemberId, round_: int) -> None:
        if round_ >= self._round:
            self._answered[member] = None

    def take_ready(self, configuration: Configuration) -> ReadReady | None:
        if not self._asked or not configuration.has_confirmed(self._answered):
            return None
        ready, self._asked = ReadReady(self._asked, self._index), ()
        return ready
