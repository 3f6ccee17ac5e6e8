"""Entries of a CLOSED ledger that are lost for good, by an operator's word, as its metadata says (P11.5).

A word stands for ever: who gave it, when, why, and of which bookies, that are gone, it counts the copies as lost. Which
entries these are is a list of runs: first, first + step, ..., last. In a striped ledger the entries of one write set
are every E-th, so a run of them is one of step E, not as many as there are entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from embedbk.ids import INCARNATION_BYTES, LEDGER_ID_MAX, NAME_PATTERN

__all__ = [
    "LOSSES_MAX",
    "LOST_RUNS_MAX",
    "LostRun",
    "Losses",
    "RunBuilder",
    "gap_at",
    "is_lost",
    "lost_count",
    "next_kept",
    "next_lost",
    "runs_of",
    "unlost_parts",
]

LOSSES_MAX = 16  # Operators' decisions about one ledger.
LOST_RUNS_MAX = 512  # Runs in one decision: more scattered losses are refused.
_GONE_MAX = 256
TEXT_CHARS = 300

# Bounds of these fields, which every client may write; msgspec refuses the rest while it decodes.
_EntryId = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX // 2)]
_Step = Annotated[int, msgspec.Meta(ge=1, le=64)]
_Ms = Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)]
_BookieId = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
_Incarnation = Annotated[bytes, msgspec.Meta(min_length=INCARNATION_BYTES, max_length=INCARNATION_BYTES)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS)]

LostRun = tuple[_EntryId, _EntryId, _Step]  # (first, last, step); last - first is a multiple of step.


class Losses(msgspec.Struct, frozen=True, array_like=True):
    """One word: these entries are given up. gone: bookies (id, incarnation) whose copies it counts as lost. lost_ms: by
    the operator's clock, for people, like by and why. is_end_named: the ledger was not closed, and this word closed it.
    """

    runs: Annotated[tuple[LostRun, ...], msgspec.Meta(max_length=LOST_RUNS_MAX)]
    gone: Annotated[tuple[tuple[_BookieId, _Incarnation], ...], msgspec.Meta(max_length=_GONE_MAX)]
    lost_ms: _Ms = 0
    by: _Text = ""
    why: _Text = ""
    is_end_named: bool = False


_Words = tuple[Losses, ...]


def runs_of(words: _Words) -> Iterator[LostRun]:
    for word in words:
        yield from word.runs


def is_lost(words: _Words, entry_id: int) -> bool:
    return any(
        first <= entry_id <= last and (entry_id - first) % step == 0 for first, last, step in runs_of(words)
    )


def next_lost(words: _Words, first: int, last: int, modulus: int = 1, residue: int = 0) -> int | None:
    """The first lost entry of first..last with id % modulus == residue."""
    found: int | None = None
    for begin, end, step in runs_of(words):
        entry_id = begin if begin >= first else begin + -(-(first - begin) // step) * step
        for _ in range(modulus):  # Residues repeat behind so many steps.
            if entry_id > min(end, last) or entry_id % modulus == residue:
                break
            entry_id += step
        if entry_id <= min(end, last) and entry_id % modulus == residue:
            found = entry_id if found is None else min(found, entry_id)
    return found


def gap_at(words: _Words, entry_id: int) -> tuple[int, int] | None:
    """(first, last) of the lost entries without one between that is not, around this one; None: it is not lost."""
    if not is_lost(words, entry_id):
        return None
    return _reach(words, entry_id, -1), _reach(words, entry_id, 1)


def _reach(words: _Words, entry_id: int, direction: int) -> int:
    """How far everything is lost in this direction, around an entry that is."""
    runs = [*runs_of(words)]
    if direction < 0:
        runs = [(-last, -first, step) for first, last, step in runs]
    return direction * (_next_kept(runs, direction * entry_id, 1) - 1)


def next_kept(words: _Words, first: int, modulus: int = 1) -> int:
    """The first entry from this one on that is not lost, of those with its residue; it may be behind the ledger's end.
    modulus: 1, or the ensemble's size."""
    return _next_kept([*runs_of(words)], first, modulus)


def _next_kept(runs: Sequence[LostRun], first: int, modulus: int) -> int:
    """Goes run by run, never entry by entry: several words may give up all residues of millions of entries."""
    size = max(modulus, *(step for _, _, step in runs), 1)  # Every run's step is 1 or this.
    # By residue the first entry that may be kept; behind the runs that begin below it, it is.
    kept = {each % size: each for each in range(first, first + size, modulus)}
    for low, high, step in sorted(runs):
        for residue in kept if step == 1 else kept.keys() & {low % size}:
            if low <= kept[residue] <= high:
                kept[residue] += ((high - kept[residue]) // size + 1) * size
    return min(kept.values())


def lost_count(words: _Words) -> int:
    return sum((last - first) // step + 1 for first, last, step in runs_of(words))


def unlost_parts(
    words: _Words, first: int, last: int, modulus: int, residues: int, size: int
) -> Iterator[tuple[int, int, int, int]]:
    """Cut entries first..last with id % modulus in residues where what is lost begins or ends, and leave that out: each
    part as (first, last, modulus, residues). size: of the ensemble, the step of a striped run."""
    runs = [run for run in runs_of(words) if run[0] <= last and run[1] >= first]
    if not runs:
        yield first, last, modulus, residues
        return
    if modulus == 1 and any(step > 1 for _, _, step in runs):
        modulus, residues = size, (1 << size) - 1
    cuts = {first, last + 1}
    for begin, end, _ in runs:
        cuts |= {each for each in (begin, end + 1) if first < each <= last}
    bounds = sorted(cuts)
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        left = residues
        for low, high, step in runs:
            if low <= begin and end - 1 <= high:
                left &= 0 if step == 1 else ~(1 << low % modulus)
        if left:
            yield begin, end - 1, modulus, left


class RunBuilder:
    """Collects lost entries, ascending, of one fragment after the other, as runs."""

    def __init__(self, size: int) -> None:
        """size: seats of the ensemble."""
        self._size = size
        self._dense: list[LostRun] = []  # Runs of step 1, ...
        self._striped: list[LostRun] = []  # ... or by residue; the same entries.
        self._newest: dict[int, int] = {}  # Residue -> place in the latter.
        self.count = 0

    def add(self, entry_id: int) -> None:
        self.count += 1
        if self._dense and self._dense[-1][1] == entry_id - 1:
            self._dense[-1] = (self._dense[-1][0], entry_id, 1)
        else:
            self._dense.append((entry_id, entry_id, 1))
        if self._size == 1:
            return
        residue = entry_id % self._size
        place = self._newest.get(residue)
        if place is not None and self._striped[place][1] == entry_id - self._size:
            self._striped[place] = (self._striped[place][0], entry_id, self._size)
        else:
            self._newest[residue] = len(self._striped)
            self._striped.append((entry_id, entry_id, self._size))

    @property
    def run_count(self) -> int:
        return len(self._dense) if self._size == 1 else min(len(self._dense), len(self._striped))

    def runs(self) -> tuple[LostRun, ...]:
        """The runs of the form that has fewer of them, ascending by their first entries."""
        dense = len(self._dense) <= len(self._striped) or self._size == 1
        return tuple(sorted(self._dense if dense else self._striped))
