"""The ledgers that a bookie has in limbo, and the search for the entries it owes, by which limbo ends (P7.4).

Decides which entries are looked for next, and when a share was found whole. One ledger is searched at a time, with a
pause between two lookups, because requests of clients come first. Leaves to others: rows and journal records
(`core/bookie.py`), and what the share of a bookie is (`core/limbo.py`).

    add(share) --> part --lookup finds its next entries--> part, after a pause --> ... --> no part: the share is whole
                     '--the next entry is missing or unreadable--> end: limbo stays, until the share is added again
"""

from __future__ import annotations

from collections.abc import Iterable

from embedbk.codec.frame import Frame, split
from embedbk.core.bookie_words import SharePart

__all__ = ["LimboSearch"]

_PAUSE_NS = 2_000_000  # Between two lookups.


class LimboSearch:
    """Which ledgers are in limbo, and how far the search for their entries is."""

    __slots__ = ("due_ns", "ledgers", "shares")

    def __init__(self, ledger_ids: Iterable[int]) -> None:
        """ledger_ids: in limbo, ascending, without dropped ones, which stay in limbo for ever (P7.3)."""
        self.ledgers: dict[int, None] = dict.fromkeys(ledger_ids)
        # By ledger, what is still to be found; the first is searched.
        self.shares: dict[int, list[SharePart]] = {}
        self.due_ns: int | None = None  # When the next lookup is due.

    @property
    def current(self) -> int | None:
        """The ledger that is searched; None: no share is known."""
        return next(iter(self.shares), None)

    @property
    def part(self) -> SharePart | None:
        """The part to look up next for the current ledger; None: its share was found whole."""
        assert self.current is not None
        return next(iter(self.shares[self.current]), None)

    def enter(self, ledger_id: int) -> None:
        self.ledgers[ledger_id] = None

    def leave(self, ledger_id: int) -> None:
        self.ledgers.pop(ledger_id, None)

    def add(self, ledger_id: int, parts: Iterable[SharePart]) -> bool:
        """Search for this share, behind those that were added before. True: it is the only one, so search at once."""
        if ledger_id not in self.ledgers or ledger_id in self.shares:
            return False
        self.shares[ledger_id] = [part for part in parts if _first_of(part) is not None]
        return len(self.shares) == 1

    def found(self, frame: Frame | None, now_ns: int) -> None:
        """Take what the lookup of `part` returned. Limbo needs every entry read, and not only indexed."""
        ledger_id = self.current
        assert ledger_id is not None
        part, *others = self.shares[ledger_id]
        ids = [] if frame is None else [entry_id for entry_id, _ in split(frame)]
        for entry_id in ids:
            if entry_id != _first_of(part):
                ids = []
                break
            part = part._replace(first_entry=entry_id + 1)
        if not ids:
            self.end(now_ns)  # One is missing, or unreadable: limbo stays.
            return
        self.shares[ledger_id] = [part, *others] if _first_of(part) is not None else others
        self.due_ns = now_ns + _PAUSE_NS

    def end(self, now_ns: int) -> None:
        """Search no longer for the current ledger's share; the next ledger's is due after a pause."""
        assert self.current is not None
        del self.shares[self.current]
        self.due_ns = now_ns + _PAUSE_NS if self.shares else None


def _first_of(part: SharePart) -> int | None:
    """The first entry id of a part, None when it has none."""
    for entry_id in range(part.first_entry, min(part.last_entry, part.first_entry + part.modulus - 1) + 1):
        if part.residues >> entry_id % part.modulus & 1:
            return entry_id
    return None
