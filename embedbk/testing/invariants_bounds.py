"""Bounds of logs: I106 (an owner begins to queue nothing in a log that has as many bytes as it may have).

What a log has is counted by the metadata of its closed ledgers, and by what applications gave to the open ones. A
ledger from before the owner's time whose length the list does not record, as a build before wrote it, is not counted.
What the owner follows at that moment is the bound that counts: it looks for changes now and then (P8.7). Truncated
ledgers that somebody else put back in front of the log count once the owner has heard of its next roll (P8.15): at the
latest when it records the end of the ledger that it left, in which it may append while the roll's answer is on its way.
"""

from __future__ import annotations

from collections.abc import Iterator

from embedbk.codec.log_list import LogList
from embedbk.ids import NO_ENTRY
from embedbk.testing.ghost import Ghost
from embedbk.testing.violation import Violation

__all__ = ["BoundWatch"]


class BoundWatch:
    """The newest list of each log, by its id."""

    def __init__(self, ghost: Ghost) -> None:
        self._ghost = ghost
        self._lists: dict[str, LogList] = {}
        self._unseen: dict[str, set[int]] = {}  # Ledgers that came back, which the owner may not know of.
        # The ledger to which the owner appended when the first of them came.
        self._written: dict[str, int] = {}
        self._first: dict[str, int] = {}  # The first ledger of the epoch.

    def take_list(self, log: str, log_list: LogList | None) -> None:
        """log_list: with the ledgers of its pages; None: it went."""
        before = self._lists.pop(log, None)
        if log_list is None:
            return
        self._lists[log] = log_list
        unseen = self._unseen.setdefault(log, set())
        if before is None or log_list.epoch != before.epoch:
            self._first[log] = _last(log_list)
            unseen.clear()
        elif unseen and self._is_left(log, log_list):
            unseen.clear()
        elif log_list.first_offset < before.first_offset:
            if not unseen:
                self._written[log] = _last(before)
            named = {each.ledger_id for each in before.segments}
            unseen.update(each.ledger_id for each in log_list.segments if each.ledger_id not in named)

    def _is_left(self, log: str, log_list: LogList) -> bool:
        """Whether the ledger to which was appended when ledgers came back is recorded as ended, or went."""
        written = self._written.get(log)
        return all(each.ledger_id != written or each.last_entry is not None for each in log_list.segments)

    def on_append(self, client: str, log: str, epoch: int, bytes_max: int) -> None:
        """An owner of this epoch is about to queue something."""
        log_list = self._lists.get(log)
        if log_list is None or log_list.epoch != epoch:
            return  # It lost the log, and does not know it.
        unseen = self._unseen.get(log, ())
        count = sum(self._bytes_of(each) for each in self._counted(log, log_list) if each not in unseen)
        if count >= bytes_max:
            raise Violation(
                "I106", f"{client} appends to log {log} of {count} bytes, whose bound is {bytes_max}"
            )

    def _counted(self, log: str, log_list: LogList) -> Iterator[int]:
        """The ledgers whose bytes the owner knows: by the list, or as it queued them itself."""
        ids = [each.ledger_id for each in log_list.segments]
        first = self._first[log]
        own = ids.index(first) if first in ids else 0  # It went, and all that stood before it.
        for place, segment in enumerate(log_list.segments):
            if place >= own or segment.length is not None:
                yield segment.ledger_id

    def _bytes_of(self, ledger_id: int) -> int:
        ledger = self._ghost.ledger(ledger_id)
        metadata = ledger.metadata
        if metadata is not None and metadata.is_closed:
            return metadata.length or 0
        return sum(map(len, ledger.given.values()))


def _last(log_list: LogList) -> int:
    """Its newest ledger, which only the owner changes."""
    return log_list.segments[-1].ledger_id if log_list.segments else NO_ENTRY
