"""The snapshots of a metadata member: cut a slice in each turn, written beside the commands (METADATA.md, 2).

Decides when the next slice is taken and when one that could not be written is tried again. The catalog decides what a
slice holds (metadata/cutting.py), the store which snapshots count, stay and go (storage/snapshots.py).
"""

from __future__ import annotations

import logging

from embedbk.member_ports import MemberStore
from embedbk.metadata.cutting import CatalogCut
from embedbk.metadata.member import Member
from embedbk.metadata.raft_log import RaftLog

__all__ = ["Snapshotting"]

logger = logging.getLogger(__name__)

RETRY_NS_MIN = 10_000_000_000  # After a snapshot that could not be written, doubled each time.
RETRY_NS_MAX = 600_000_000_000


class Snapshotting:
    """One turn is one slice: the loop serves its links between two of them."""

    def __init__(self, store: MemberStore, log: RaftLog) -> None:
        self._store = store
        self._log = log
        self._cut: CatalogCut | None = None
        self._not_before_ns = 0
        self._retry_ns = RETRY_NS_MIN
        self._has_failed = False  # The last one that was begun.
        self.failure = ""  # Why the last one could not be written; empty: it could, or is being written.
        self.damage = ""  # Why the state that was cut must not be served.

    def step(self, core: Member, now_ns: int, wanted_index: int = 0) -> None:
        """Between two steps of the core; everything that it asked for was carried out. wanted_index: a backup waits
        for a snapshot up to there, though none is due."""
        snapshots = self._store.snapshots
        if snapshots is None:
            return
        if self._cut is not None and not snapshots.is_under_way:
            self._cut = None  # A snapshot of another member took the place of what it was cut from.
        if failure := snapshots.failure():
            self._give_up(core, now_ns, failure)
        elif self._cut is not None:
            self._go_on(core)
        elif self._is_due(core, now_ns, wanted_index):
            self._retry_ns = self._retry_ns if self._has_failed else RETRY_NS_MIN
            self._has_failed, self.failure = False, ""
            self._cut = cut = core.catalog.cut()
            head, index, log = cut.head, core.applied_index, self._log
            term = log.term_at(index)
            assert term is not None, f"entry {index} is applied and not in the log"
            configuration = log.configuration_at(index)
            counts = head.revision, head.records, head.sessions
            self._store.begin_snapshot(index, term, configuration, log.configuration_index_at(index), *counts)
            self._go_on(core)

    def _is_due(self, core: Member, now_ns: int, wanted_index: int) -> bool:
        """Whether a snapshot is due. A log that grew only by entries not applied yet has nothing new to cut. One that
        is cut and not named durably yet is still under way, also where a caller waits for a newer one: there is one at
        a time. A caller that asks for a copy may have made room, so it need not wait for the time behind a failure."""
        snapshots = self._store.snapshots
        assert snapshots is not None
        if snapshots.is_under_way:
            return False
        is_wanted = wanted_index > snapshots.newest_index
        is_due = now_ns >= self._not_before_ns and self._store.is_snapshot_due()
        if not (is_wanted or is_due):
            return False
        return core.applied_index > snapshots.newest_index

    def deadline_ns(self) -> int | None:
        """When the next slice is due; 0: at once."""
        snapshots = self._store.snapshots
        return 0 if self._cut is not None and snapshots is not None and snapshots.has_room() else None

    def let_go(self, core: Member) -> None:
        """Drop the cut: another member's snapshot replaces its state; the store removes the file."""
        if self._cut is not None:
            self._cut = None
            core.catalog.end_cut()

    def _go_on(self, core: Member) -> None:
        snapshots = self._store.snapshots
        assert snapshots is not None
        assert self._cut is not None
        if not snapshots.has_room():
            return  # The writer wakes us.
        piece = self._cut.next_piece()
        if piece is not None:
            snapshots.add(piece)
            return
        is_true, self._cut = self._cut.is_true, None
        core.catalog.end_cut()
        if is_true:
            snapshots.end()
        else:
            self._store.abandon_snapshot()
            self.damage = (
                "a record of the catalog is not as it was put: it changed in memory. Start this member again: it reads "
                "its state from the disk; if this is said again, look after the memory of this machine"
            )

    def _give_up(self, core: Member, now_ns: int, failure: str) -> None:
        """Give up a snapshot that finds no room: everything continues, and the log grows meanwhile (I53)."""
        self._cut, self._has_failed, self.failure = None, True, failure
        core.catalog.end_cut()
        self._store.abandon_snapshot()
        self._not_before_ns = now_ns + self._retry_ns
        logger.warning(
            "metadata snapshot not written: %s; the log is kept, and it is tried again in %d s (make room, or mend the "
            "disk)",
            failure,
            self._retry_ns // 1_000_000_000,
        )
        self._retry_ns = min(2 * self._retry_ns, RETRY_NS_MAX)
