"""Ranges of ledger ids as messages and the catalog hold them: pairs (first, end), the end not included."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["is_within", "without"]


def is_within(ranges: Iterable[tuple[int, int]], ledger_id: int) -> bool:
    return any(first <= ledger_id < end for first, end in ranges)


def without(ranges: Iterable[tuple[int, int]], gone: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of the ranges that are left, in their order."""
    left = list(ranges)
    for first, end in gone:
        if first >= end:
            continue
        parts = [((begin, min(stop, first)), (max(begin, end), stop)) for begin, stop in left]
        left = [(begin, stop) for pair in parts for begin, stop in pair if begin < stop]
    return left
