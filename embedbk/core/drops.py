"""Ledgers that a bookie may drop: the ones metadata is asked about, and the ones whose DROP record is queued (P7.7).

Decides whether a ledger changed since the question was put, and whose entries may go: those of a drop that is durable,
so that a crash never finds a ledger without its entries and without its DROP record (P7.3). Leaves to others: when
metadata is asked (`core/collector.py`), and whether a row may be dropped otherwise (`core/bookie.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Drops"]


class Drops:
    """Questions to metadata that are open, and drops that are not durable yet."""

    __slots__ = ("_asked", "_queued")

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}  # Ledgers that metadata is asked about -> their last token then.
        self._queued: dict[int, int] = {}  # Token of a DROP record -> its ledger.

    def __bool__(self) -> bool:
        """Whether a drop waits for the journal."""
        return bool(self._queued)

    def ask(self, last_tokens: Iterable[tuple[int, int]]) -> None:
        """Note that metadata is asked about these (ledger, its last journal token), and no longer about earlier
        ones."""
        self._asked = dict(last_tokens)

    def touch(self, ledger_id: int) -> None:
        """Note an add of this ledger, which metadata's answer will not cover."""
        self._asked.pop(ledger_id, None)

    def answered(self, ledger_id: int) -> int | None:
        """The last token that the ledger had when metadata was asked; None: it is not asked about any more."""
        return self._asked.pop(ledger_id, None)

    def queue(self, token: int, ledger_id: int) -> None:
        """Note that the ledger's DROP record was queued under this token."""
        self._queued[token] = ledger_id

    def durable(self, token: int) -> list[int]:
        """The ledgers whose DROP record is durable by this token, in the order of their records; each once."""
        return [self._queued.pop(each) for each in [each for each in self._queued if each <= token]]
