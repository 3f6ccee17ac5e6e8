"""Ledgers that an auditor is about to mark (P11.1), and how many of them one request marks.

A request marks all of its ledgers or none of them. In metadata that is nearly full a few may have room, until they are
repaired: so fewer are asked for behind a refusal, and more again behind a success. Behind the mark goes the record of a
ledger that could not be repaired before: one of both keys must keep the copies on bookies at every moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from embedbk.codec.repair_mark import is_missing_set
from embedbk.codec.repair_messages import REPAIRS_MAX

__all__ = ["MarkQueue"]


def _nameable(missing: Iterable[str]) -> tuple[str, ...]:
    """As many of these bookies as one mark can name; the rest is found when these are repaired."""
    named = tuple(sorted(missing))
    while named and not is_missing_set(named):
        named = named[:-1]
    return named


class MarkQueue:
    """In the order in which they were found."""

    def __init__(self) -> None:
        self._missing: dict[int, tuple[str, ...]] = {}  # Ledger -> what its mark is to name.
        self._records: list[int] = []  # Of ledgers of this queue; they go behind the marks.
        self._at_once = REPAIRS_MAX  # Fewer while there is no room for as many in the metadata.

    def add(self, ledger_id: int, missing: Iterable[str], *, has_record: bool = False) -> bool:
        """Returns whether it is to be marked: the mark names somebody."""
        nameable = _nameable(missing)
        if nameable:
            self._missing[ledger_id] = nameable
            self._records += [ledger_id] if has_record else []
        return bool(nameable)

    def next_marks(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """What the next request marks; empty: nothing is left."""
        return tuple(list(self._missing.items())[: self._at_once])

    def take_marked(self, left: Collection[int]) -> int:
        """They are marked, but for `left`. Returns how many."""
        asked = list(self._missing)[: self._at_once]
        for ledger_id in asked:
            del self._missing[ledger_id]
        self._at_once = min(2 * self._at_once, REPAIRS_MAX)
        return sum(ledger_id not in left for ledger_id in asked)

    def take_refusal(self) -> bool:
        """None of them is marked. Returns whether fewer at once may have room."""
        count = min(self._at_once, len(self._missing))
        if count > 1:
            self._at_once = count // 2
        return count > 1

    def taken_records(self) -> list[int]:
        records, self._records = self._records, []
        return records

    def clear(self) -> None:
        """All ledgers are looked at anew."""
        self._missing, self._records = {}, []
