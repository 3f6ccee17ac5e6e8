"""The ledger directories of one bookie: which of them take new entry logs (P7.8, I53, scenario 44).

Decides, from the failures that flushes met and from the free room, where the next flush writes; its callers report
both. Leaves to others: which ledger goes into which directory (native/store/store_flush.c), and what a failed flush
means for the journal (flushing.py). Reads do not use it: the index has the directory of each entry log.

    takes part ── no room ──▶ rests for FULL_RESTS flushes ──▶ takes part
               ── any other failure ──▶ put aside until the bookie starts again
               ── little room, while another has more ──▶ passed over

A process without a descriptor or memory for the flush says nothing of a directory: it is not reported here.
When all would be passed over, the best that is left takes part: one device that may work is better than none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "FULL_RESTS",
    "LEDGER_DIRECTORIES_MAX",
    "RESERVE_BYTES",
    "Directories",
    "Directory",
    "free_bytes_at",
]

LEDGER_DIRECTORIES_MAX = 16  # As EBK_DIRECTORIES_MAX; a test holds them together.
FULL_RESTS = 16  # Flushes that go past a full directory before it is tried again.
RESERVE_BYTES = 256 << 20  # A directory with less room is passed over while another has more.


@dataclass(slots=True)
class Directory:
    path: str
    rests: int = 0  # Flushes that still go past it, because it was full.
    failure: str = ""  # Why it is put aside.
    free_bytes: int | None = None  # As last measured; None: it cannot be measured.

    @property
    def is_low(self) -> bool:
        return self.free_bytes is not None and self.free_bytes < RESERVE_BYTES


class Directories:
    """paths: in the order of the bookie's identity."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.all = [Directory(path) for path in paths]
        self._has_met = False  # A failure, since the last choice.

    def choose(self) -> list[int]:
        """Numbers of the directories that the next flush writes to, ascending; at least one."""
        chosen = self._best()
        self._has_met = False
        for directory in self.all:
            directory.rests = max(0, directory.rests - 1)
        return chosen

    def choose_one(self, wished: int) -> int:
        """The directory for the log of a compaction: the wished one if it takes part, else the roomiest of those that
        do."""
        usable = self._best()
        if wished in usable:
            return wished
        return max(usable, key=lambda number: (self.all[number].free_bytes or 0, -number))

    def saw_full(self, number: int) -> None:
        self.all[number].rests = FULL_RESTS
        self._has_met = True

    def saw_failure(self, number: int, why: str) -> None:
        self.all[number].failure = why
        self._has_met = True

    def has_others(self) -> bool:
        """Whether a flush that failed can be done in other directories at once: it failed in some of them, and others
        have met nothing. What fails elsewhere (for want of memory) would fail there too."""
        return self._has_met and any(not each.rests and not each.failure for each in self.all)

    def free_bytes(self) -> int | None:
        """Free bytes of the roomiest directory that takes entries; None where no file system answers."""
        known = [self.all[number].free_bytes for number in self._best()]
        return max((each for each in known if each is not None), default=None)

    def _best(self) -> list[int]:
        numbered = list(enumerate(self.all))
        for kept in (
            [number for number, each in numbered if not each.failure and not each.rests and not each.is_low],
            [number for number, each in numbered if not each.failure and not each.rests],
            [number for number, each in numbered if not each.failure],
        ):
            if kept:
                return kept
        return [number for number, _ in numbered]


def free_bytes_at(path: str | os.PathLike[str]) -> int:
    """Room on the device of a path, as far as a user other than root may use it.

    Raises:
        OSError: the file system cannot be asked.
    """
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize
