"""The LACs of this client's own writers, ledger by ledger: its readers show them at once (P6.2).

Bookies learn a LAC from the next frame, or when its writer pauses. The client that wrote knows it sooner, and
acknowledged entries stay acknowledged (P3.3). Decides how long the LAC of a handle that is gone is kept. Leaves to
others how a reader uses it (client/reading.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY

__all__ = ["GONE_HANDLES_MAX", "OwnLac", "OwnLacs"]

# LACs kept of handles that are gone. A closed ledger has its end in its metadata; one that was released and is not
# closed is read up to what bookies know once so many other handles have gone.
GONE_HANDLES_MAX = 1024


class OwnLac(NamedTuple):
    lac: int
    is_newest: bool  # Its writer is here and acknowledges: no bookie knows a newer one.


_NONE = OwnLac(NO_ENTRY, False)


class OwnLacs:
    """The writing handles of one client node by their ledgers. `of` may be asked from any thread."""

    def __init__(self) -> None:
        self._writings: dict[int, Writing] = {}
        self._gone: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._writings)

    def __iter__(self) -> Iterator[Writing]:
        """The writing handles that are not over, as they are now."""
        return iter(list(self._writings.values()))

    def __contains__(self, writing: object) -> bool:
        return isinstance(writing, Writing) and self._writings.get(writing.metadata.ledger_id) is writing

    def add(self, writing: Writing) -> None:
        """Show the LACs of this handle. No other one of this client writes its ledger: only the creator does (P1)."""
        ledger_id = writing.metadata.ledger_id
        assert ledger_id not in self._writings
        self._writings[ledger_id] = writing

    def remove(self, writing: Writing) -> None:
        if writing not in self:
            return
        ledger_id = writing.metadata.ledger_id
        # Before it is removed: a thread that looks meanwhile finds one or the other.
        self.note_end(ledger_id, writing.lac)
        del self._writings[ledger_id]

    def note_end(self, ledger_id: int, last_entry: int) -> None:
        """A ledger whose handle is gone ended there: all up to it counts as acknowledged to this client (P8.2)."""
        if last_entry > self._gone.get(ledger_id, NO_ENTRY):
            self._gone[ledger_id] = last_entry
            if len(self._gone) > GONE_HANDLES_MAX:
                del self._gone[next(iter(self._gone))]

    def of(self, ledger_id: int) -> OwnLac:
        writing = self._writings.get(ledger_id)
        if writing is not None:
            return OwnLac(writing.lac, writing.error is None and writing.failure is None)
        gone = self._gone.get(ledger_id)
        return _NONE if gone is None else OwnLac(gone, False)
