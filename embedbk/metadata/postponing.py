"""When a mark that could not be repaired may be taken again, by the time of one process that leads (METADATA.md, 11).

Pure. Time enters the log by a command of the leader, so no other node's clock is believed, and no date: the leader
measures how long ago its process applied the failure, to a tenth of a second. A new leader cannot know how long marks
have waited, and begins their waits anew; so a change of the leader costs one more wait at most.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import itemgetter

from embedbk.metadata.repair_index import WAITS_MS, RepairIndex

__all__ = ["RESUMED_MAX", "Postponing"]

RESUMED_MAX = 128  # Marks that one command lets go on; the rest follow in the next one.
SAMPLE_NS = 100_000_000


class Postponing:
    """The waits of marks in the catalog of one leading member."""

    def __init__(self) -> None:
        # (revision, when this process had applied all up to it), rising. No mark was postponed after the last one.
        self._samples: list[tuple[int, int]] = []

    def begin(self, revision: int, now_ns: int) -> None:
        self._samples = [(revision, now_ns)]

    def note(self, index: RepairIndex, revision: int, now_ns: int) -> None:
        """Something was applied."""
        if not index.has_postponed:
            self._samples = []
        elif not self._samples or now_ns - self._samples[-1][1] >= SAMPLE_NS:
            oldest = min(
                failed for wait in range(len(WAITS_MS)) for _, failed in islice(index.postponed(wait), 1)
            )
            del self._samples[: bisect_left(self._samples, oldest, key=itemgetter(0))]
            self._samples.append((revision, now_ns))
        else:
            self._samples[-1] = revision, self._samples[-1][1]

    def _due_ns(self, wait: int, failed: int) -> int:
        place = min(bisect_left(self._samples, failed, key=itemgetter(0)), len(self._samples) - 1)
        return self._samples[place][1] + WAITS_MS[wait] * 1_000_000

    def due_ns(self, index: RepairIndex) -> int | None:
        """When the next mark may go on; None: none is postponed."""
        if not self._samples:
            return None
        return min(
            (
                self._due_ns(wait, failed)
                for wait in range(len(WAITS_MS))
                for _, failed in islice(index.postponed(wait), 1)
            ),
            default=None,
        )

    def over(self, index: RepairIndex, now_ns: int) -> list[tuple[int, int]]:
        """Marks that waited for long enough, (ledger id, revision); if there are many, only some."""
        found: list[tuple[int, int]] = []
        for wait in range(len(WAITS_MS)):
            for ledger_id, failed in index.postponed(wait):
                if len(found) == RESUMED_MAX or not self._samples or self._due_ns(wait, failed) > now_ns:
                    break
                found.append((ledger_id, failed))
        return found
