"""How long answers to adds take, and which seat is late against the others (P4.7).

Decides which seat is late. What follows from that is the writer's. Pure: the times come with events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embedbk.core.seating import Seating

__all__ = ["USUALLY_LATE", "AnswerTimes", "LateTerms", "late_against_others", "late_seatings"]

_MS = 1_000_000
P99_TIMES = 8  # So many times what nearly all answers take is late, ...
LONGEST_TIMES = (
    2  # ... but nothing that takes less than so many times the longest that was answered lately, ...
)
HALF_LIFE_NS = (
    10_000 * _MS
)  # ... which is forgotten by halves: flushes and collections come every few seconds.
_RISE_SHIFT = 2  # The estimate rises by a quarter with an answer above it, ...
_FALL = 4 * 99  # ... and falls so little with one below it that one of a hundred above it holds the balance.


@dataclass(frozen=True, slots=True)
class LateTerms:
    """When a writer looks for late bookies."""

    least_ns: int = 50 * _MS  # No bookie is late before.
    answers_min: int = 100  # Nor before so many answers have told what is usual.
    calm_ns: int = (
        1_000 * _MS
    )  # For so long after an ensemble change no late one is looked for: the new ones have to begin.


USUALLY_LATE = LateTerms()


class AnswerTimes:
    """What 99 of 100 answers to a handle's adds stay below, the longest lately, and when to look for late bookies."""

    __slots__ = (
        "_count",
        "_floor_ns",
        "_halve_at_ns",
        "_longest_ns",
        "_look_at_ns",
        "_p99_ns",
        "late_ns",
        "terms",
    )

    def __init__(self, terms: LateTerms) -> None:
        self.terms = terms
        self.late_ns: int | None = None  # An answer that takes longer is late; None: that is not known yet.
        self._count = 0
        self._floor_ns = terms.least_ns // P99_TIMES  # What is quicker is not told apart.
        self._p99_ns = self._floor_ns
        self._longest_ns = 0
        self._halve_at_ns = 0
        self._look_at_ns = 0  # No look for late bookies before; one is found at the second look only.

    def note(self, took_ns: int, now_ns: int) -> None:
        """Note how long one answer took. As a rule nothing follows from that."""
        if now_ns >= self._halve_at_ns:
            self._forget(now_ns)
        if self.late_ns is None:  # The longest of few stands for what is not known yet.
            self._count += 1
            self._p99_ns = max(self._p99_ns, took_ns)
        elif took_ns > self._p99_ns:
            self._p99_ns = min(took_ns, self._p99_ns + (self._p99_ns >> _RISE_SHIFT))
        elif self._p99_ns > self._floor_ns:
            self._p99_ns = max(self._floor_ns, self._p99_ns - self._p99_ns // _FALL)
        else:
            return
        self.note_longest(took_ns)

    def note_longest(self, took_ns: int) -> None:
        """Note that something took so long, answered or not."""
        self._longest_ns = max(self._longest_ns, took_ns)
        if self._count >= self.terms.answers_min:
            self.late_ns = max(
                self.terms.least_ns, P99_TIMES * self._p99_ns, LONGEST_TIMES * self._longest_ns
            )

    def look_ns(self, oldest_ns: int) -> int | None:
        """When to look for late bookies next, where the oldest add that is not answered was sent at oldest_ns."""
        return None if self.late_ns is None else max(oldest_ns + self.late_ns, self._look_at_ns)

    def look(self, seatings: Sequence[Seating], oldest_ns: int, now_ns: int) -> list[Seating]:
        """Blame at the second look in a row: a client that stood still finds the answers that came meanwhile first.

        Not before `look_ns`.
        """
        assert self.late_ns is not None
        is_second = now_ns <= self._look_at_ns + self.late_ns // 4
        self._look_at_ns = now_ns + (now_ns - oldest_ns) // 4
        return late_against_others(seatings, now_ns - self.late_ns) if is_second else []

    def note_replaced(self) -> None:
        """A late bookie was replaced: with each change it takes longer until one counts as late."""
        assert self.late_ns is not None
        self.note_longest(self.late_ns)

    def be_calm(self, now_ns: int) -> None:
        """The ensemble was changed: no late one is looked for until the new ones have begun."""
        self._look_at_ns = now_ns + self.terms.calm_ns

    def _forget(self, now_ns: int) -> None:
        self._longest_ns >>= 1 + (now_ns - self._halve_at_ns) // HALF_LIFE_NS
        self._halve_at_ns = now_ns + HALF_LIFE_NS
        self.note_longest(0)


def late_seatings(seatings: Sequence[Seating], sent_until_ns: int) -> list[Seating]:
    """Seats that left unanswered what was sent until then, without those that say they are busy and those that
    failed."""
    return [
        each
        for each in seatings
        if each.failure is None
        and each.busy is None
        and (oldest := each.oldest_sent_ns()) is not None
        and oldest <= sent_until_ns
    ]


def late_against_others(seatings: Sequence[Seating], sent_until_ns: int) -> list[Seating]:
    """Those of `late_seatings` that are to blame: half of all seats or more have answered the same add, or a later one.

    Where most are late alike, what they share is slow: a disk, a network, this machine. Then it is no bookie's fault.
    """
    blamed = []
    for late in late_seatings(seatings, sent_until_ns):
        oldest = late.oldest_sent_ns()
        assert oldest is not None
        prompt = sum(each.failure is None and each.answered_ns >= oldest for each in seatings)
        if 2 * prompt >= len(seatings):
            blamed.append(late)
    return blamed
