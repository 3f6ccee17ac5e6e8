"""Ledgers that are not closed, with a seat of a bookie that is gone or leaves, and that nobody closes (P11.2, AR08).

Decides which of them are orphans, as their last fragment is nobody's: an OPEN ledger whose metadata names its writer,
when that client has shown no life for the grace; one that is IN_RECOVERY, when it was so for the grace. Of an OPEN
ledger that names no writer it cannot be told, so it is none, ever. The auditor writes the word into the ledger's mark,
and takes it back when the writer is seen again. A worker under such a mark closes the ledger (`orphan_closing`).

The grace is counted by the auditor, as for bookies: behind an election it begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState

__all__ = ["Orphans"]

ORPHANS_MAX = 10_000  # Remembered; others wait for the next round.
WRITERS_MAX = 100  # Asked for by one look.
MARKS_MAX = 100  # Read, or written, by one look.


@dataclass(slots=True)
class _Left:
    """writer: its name; empty: it is in recovery. since_ns: from when the grace counts, of one in recovery. told: what
    its mark says; None: not read yet. is_met: by the round that is under way, or was last."""

    writer: str
    since_ns: int
    told: bool | None = None
    is_met: bool = True


class Orphans:
    """As one auditor has seen them."""

    def __init__(self, grace_ns: int) -> None:
        self.grace_ns = grace_ns
        self._ledgers: dict[int, _Left] = {}
        # Writer -> since when it has shown no life; None: it lives, or was not asked for. Who was asked for last comes
        # last.
        self._silent_since: dict[str, int | None] = {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def meet(self, ledger_id: int, metadata: LedgerMetadata, now_ns: int) -> None:
        """It is not closed, and a bookie of its last fragment is gone, or leaves."""
        known = self._ledgers.get(ledger_id)
        if known is not None:
            known.is_met = True
        writer = metadata.writer if metadata.state == LedgerState.OPEN else ""
        is_told = metadata.state == LedgerState.IN_RECOVERY or metadata.writer
        if (known is not None and known.writer == writer) or not is_told or len(self) >= ORPHANS_MAX:
            return
        self._ledgers[ledger_id] = _Left(writer, now_ns, None if known is None else known.told)
        if writer:
            self._silent_since.setdefault(writer, None)

    def begin_round(self) -> None:
        for left in self._ledgers.values():
            left.is_met = False

    def end_round(self) -> None:
        """All ledgers were looked at: what was not met is closed, deleted, or has other bookies by now."""
        self._ledgers = {ledger_id: left for ledger_id, left in self._ledgers.items() if left.is_met}

    def writers(self) -> list[str]:
        """Those whose life is asked for now."""
        wanted = {each.writer for each in self._ledgers.values()}
        for gone in [writer for writer in self._silent_since if writer not in wanted]:
            del self._silent_since[gone]
        return list(self._silent_since)[:WRITERS_MAX]

    def see(self, writer: str, now_ns: int, *, lives: bool) -> None:
        since = self._silent_since.pop(writer, None)
        self._silent_since[writer] = None if lives else now_ns if since is None else since

    def is_orphan(self, ledger_id: int, now_ns: int) -> bool:
        """False: it is none, or was not met."""
        left = self._ledgers.get(ledger_id)
        if left is None:
            return False
        since = self._silent_since.get(left.writer) if left.writer else left.since_ns
        return since is not None and now_ns - since >= self.grace_ns

    def writer_of(self, ledger_id: int) -> str:
        """Empty: it is in recovery."""
        return self._ledgers[ledger_id].writer

    def untold(self, now_ns: int) -> list[int]:
        """Ledgers whose marks may say something else."""
        found = [each for each, left in self._ledgers.items() if left.told != self.is_orphan(each, now_ns)]
        return found[:MARKS_MAX]

    def tell(self, ledger_id: int, is_orphan: bool | None) -> None:
        """Its mark says so; None: perhaps, as it is being written."""
        self._ledgers[ledger_id].told = is_orphan

    def untell(self, ledger_id: int) -> None:
        """It gets a mark now, which says nothing of that."""
        if ledger_id in self._ledgers:
            self._ledgers[ledger_id].told = None
