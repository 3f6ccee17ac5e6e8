"""Bounds of logs: I106 (an owner begins to queue nothing in a log that has as many bytes as it may have).

What a log has is counted by the metadata of its closed ledgers, and by what applications gave to the open ones. What
the owner follows at that moment is the bound that counts: it looks for changes now and then (P8.7).
"""

from __future__ import annotations

from embedbk.codec.ledger_metadata import LogList
from embedbk.testing.ghost import Ghost
from embedbk.testing.violation import Violation

__all__ = ["BoundWatch"]


class BoundWatch:
    """The newest list of each log, by its id."""

    def __init__(self, ghost: Ghost) -> None:
        self._ghost = ghost
        self._lists: dict[str, LogList] = {}

    def take_list(self, log: str, log_list: LogList | None) -> None:
        """log_list: with the ledgers of its pages; None: it went."""
        if log_list is None:
            self._lists.pop(log, None)
        else:
            self._lists[log] = log_list

    def on_append(self, client: str, log: str, epoch: int, bytes_max: int) -> None:
        """An owner of this epoch is about to queue something."""
        log_list = self._lists.get(log)
        if log_list is None or log_list.epoch != epoch:
            return  # It lost the log, and does not know it.
        count = sum(self._bytes_of(each.ledger_id) for each in log_list.segments)
        if count >= bytes_max:
            raise Violation(
                "I106", f"{client} appends to log {log} of {count} bytes, whose bound is {bytes_max}"
            )

    def _bytes_of(self, ledger_id: int) -> int:
        ledger = self._ghost.ledger(ledger_id)
        metadata = ledger.metadata
        if metadata is not None and metadata.is_closed:
            return metadata.length or 0
        return sum(map(len, ledger.given.values()))
