"""Answers of a bookie that say "no" to a recovery, held until it knows which metadata there is (P10.5).

A recovery goes by the metadata that its client read. Where that is older than what the bookie met, the bookie must not
deny an entry; but it may not have heard of it yet. So such an answer is held until metadata is asked, behind the coming
of the request, which one it is. Decides what a question covers, and how long an answer is held. Leaves to others: what
metadata says of itself (`core/witness.py`), and what is answered then (`read_answering`).

    held   held   held ──▶ one question at a time ──▶ answers to those held before it was sent; the others: the next one
"""

from __future__ import annotations

from typing import NamedTuple

from embedbk.codec.frame import Frame
from embedbk.core.lookups import Lookup
from embedbk.core.machine import Effect, earliest
from embedbk.core.upkeep_words import AskMetadata

__all__ = ["DENIAL", "HELD_NS", "Denial", "Denials"]

DENIAL = "denial"  # The tag of its questions.
# A bookie that metadata does not answer for so long says neither yes nor no: others may end the recovery, which asks
# a silent one again after a second.
HELD_NS = 500_000_000


class Denial(NamedTuple):
    """The answer to a fenced read that did not find everything."""

    look: Lookup
    frame: Frame | None
    absent: list[tuple[int, int]]
    until_ns: int


class Denials:
    """The answers that are held, in the order of their coming."""

    __slots__ = ("_asked", "_is_asking", "_later", "due_ns")

    def __init__(self) -> None:
        self.due_ns: int | None = None  # When the first one is held for too long.
        self._asked: list[Denial] = []  # The question that is under way was sent behind these.
        self._later: list[Denial] = []  # These came behind it, and need another one.
        self._is_asking = False

    def hold(self, denial: Denial) -> list[Effect]:
        self._later.append(denial)
        self._note_due()
        return self.ask()

    def ask(self) -> list[Effect]:
        """Ask which metadata it is, unless a question is under way: its answer may be of before these came."""
        if self._is_asking or not self._later:
            return []
        self._asked, self._later, self._is_asking = self._later, [], True
        return [AskMetadata(DENIAL)]

    def take_answered(self) -> list[Denial]:
        """The question is over: take the answers that waited for it."""
        answered, self._asked, self._is_asking = self._asked, [], False
        self._note_due()
        return answered

    def take_late(self, now_ns: int) -> list[Denial]:
        """Take the answers that were held for too long."""
        if self.due_ns is None or now_ns < self.due_ns:
            return []
        late = [each for each in (*self._asked, *self._later) if each.until_ns <= now_ns]
        self._asked = [each for each in self._asked if each.until_ns > now_ns]
        self._later = [each for each in self._later if each.until_ns > now_ns]
        self._note_due()
        return late

    def _note_due(self) -> None:
        self.due_ns = earliest(*(held[0].until_ns for held in (self._asked, self._later) if held))
