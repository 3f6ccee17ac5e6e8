"""Ledgers that are not closed, with a seat of a bookie that is gone or leaves, and that nobody closes (P11.2, AR08).

Decides which of them are orphans, as their last fragment is nobody's: an OPEN ledger whose metadata names its writer,
when that client has shown no life for the grace; one that is IN_RECOVERY, when it was so for the grace. Of an OPEN
ledger that names no writer it cannot be told, so it is none, ever. The auditor writes the word into the ledger's mark,
and takes it back when the writer is seen again. A worker under such a mark closes the ledger (`orphan_closing`).

At each look of the auditor a few writers are asked for, by the key that says that they live, and then the marks are
read that may say something else. The auditor reads the keys that are named here, and makes the changes.

The grace is counted by the auditor, as for bookies: behind an election it begins anew.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState
from embedbk.codec.living import living_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.repair_mark import (
    decode_repair_mark,
    encode_repair_mark,
    is_orphan,
    repair_mark_path,
    with_orphan,
)
from embedbk.errors import StorageError

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
        # Of the look that goes on: writers whose life is asked for, and then ledgers whose marks are read; None: it is
        # not known yet which.
        self._writers: list[str] = []
        self._untold: list[int] | None = []

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

    # A look.

    def begin_look(self) -> None:
        wanted = {each.writer for each in self._ledgers.values()}
        for gone in [writer for writer in self._silent_since if writer not in wanted]:
            del self._silent_since[gone]
        self._writers, self._untold = list(self._silent_since)[:WRITERS_MAX], None

    def next_key(self, now_ns: int) -> str | None:
        """The key that is read next; None: the look is over."""
        if self._writers:
            return living_path(self._writers[0])
        if self._untold is None:
            found = (
                each for each, left in self._ledgers.items() if left.told != self.is_orphan(each, now_ns)
            )
            self._untold = list(found)[:MARKS_MAX]
        return repair_mark_path(self._untold[0]) if self._untold else None

    def take(self, value: bytes | None, revision: int, now_ns: int) -> tuple[list[Compare], list[Put]] | None:
        """The key that was named last has this value. Returns the change of a mark that is to be made now; whether it
        is refused or not, the next look reads the mark again."""
        if self._writers:
            self._see(self._writers.pop(0), now_ns, lives=value is not None)
            return None
        assert self._untold is not None
        return self._word(self._untold.pop(0), value, revision, now_ns)

    def _word(
        self, ledger_id: int, value: bytes | None, revision: int, now_ns: int
    ) -> tuple[list[Compare], list[Put]] | None:
        """The holder of the mark reads it anew, when the mark is another one by then."""
        left, mark = self._ledgers[ledger_id], None
        if value is not None:
            with contextlib.suppress(StorageError):
                mark = decode_repair_mark(value)
        is_so = self.is_orphan(ledger_id, now_ns)
        if mark is None or is_orphan(mark) == is_so:
            # Without a mark there is nothing to say it in, until a round marks it.
            left.told = is_so
            return None
        left.told = None  # Perhaps: it is being written.
        key = repair_mark_path(ledger_id)
        when = [Compare(key, revision)]
        if is_so and left.writer:
            when.append(Compare(living_path(left.writer), ABSENT))
        return when, [Put(key, encode_repair_mark(with_orphan(mark, is_so=is_so)))]

    def _see(self, writer: str, now_ns: int, *, lives: bool) -> None:
        since = self._silent_since.pop(writer, None)
        self._silent_since[writer] = None if lives else now_ns if since is None else since

    def is_orphan(self, ledger_id: int, now_ns: int) -> bool:
        """False: it is none, or was not met."""
        left = self._ledgers.get(ledger_id)
        if left is None:
            return False
        since = self._silent_since.get(left.writer) if left.writer else left.since_ns
        return since is not None and now_ns - since >= self.grace_ns

    def untell(self, ledger_id: int) -> None:
        """It gets a mark now, which says nothing of that."""
        if ledger_id in self._ledgers:
            self._ledgers[ledger_id].told = None
