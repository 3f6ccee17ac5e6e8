"""Marks that stand, and records of ledgers that could not be repaired, as one round of the auditor has listed them.

Decides what becomes of a ledger that the round meets: it is marked, its bookies are asked what they hold, or neither.
What is named already is not marked again: a mark may stand for as long as a bookie has no room. A ledger that could not
be repaired is marked again when its circumstances changed, or an operator asks, and never otherwise (P11.1, AR10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedbk.codec.repair_mark import decode_repair_mark
from embedbk.codec.repair_state import Unrepairable, decode_unrepairable
from embedbk.core.client_words import BookieInfo
from embedbk.repair.circumstances import circumstances

__all__ = ["Judged", "StandingMarks"]


class Judged(NamedTuple):
    """missing: bookies that a mark is to name; none: there is to be no mark. named: bookies that are named already,
    where its bookies are to be asked; None: they are not. has_record: it could not be repaired before."""

    missing: set[str]
    named: frozenset[str] | None = None
    has_record: bool = False


class StandingMarks:
    """Of one round. known_max: marks that are remembered; beyond, a ledger may be marked again for nothing."""

    def __init__(self, known_max: int) -> None:
        self._known_max = known_max
        self._known: dict[int, frozenset[str]] = {}  # Ledger -> what its mark names.
        self._unrepairable: dict[int, Unrepairable] = {}
        self._met: set[int] = set()  # Unrepairable ledgers that still exist.

    def note_record(self, ledger_id: int, value: bytes) -> None:
        """Raises StorageError: it cannot be read."""
        self._unrepairable[ledger_id] = decode_unrepairable(value)

    def note_mark(self, ledger_id: int, value: bytes) -> None:
        """Raises StorageError: it cannot be read."""
        if len(self._known) < self._known_max:
            self._known[ledger_id] = frozenset(decode_repair_mark(value).missing)

    def judge(
        self,
        ledger_id: int,
        missing: set[str],
        value: bytes,
        bookies: Sequence[BookieInfo],
        *,
        is_asked_for: bool,
    ) -> Judged:
        """missing: whose copies are lost, or are to move. value: the ledger's metadata. is_asked_for: by an operator:
        then everything is judged again."""
        named = self._known.get(ledger_id, frozenset())
        record = self._unrepairable.get(ledger_id)
        if record is None:
            return Judged(set(), named) if missing <= named else Judged(missing)
        self._met.add(ledger_id)
        if record.judged == circumstances(value, bookies) and not is_asked_for:
            # Nobody could repair that now; what other bookies lack may have a good copy.
            return Judged(set(), named | {*record.missing})
        return Judged(missing | {*record.missing}, has_record=True)

    def next_unmet(self) -> int | None:
        """A ledger with a record that the round did not meet, each of them once; None: there is no other."""
        ledger_id = min(self._unrepairable.keys() - self._met, default=None)
        if ledger_id is not None:
            self._met.add(ledger_id)
        return ledger_id
