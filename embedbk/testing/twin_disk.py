"""A simulated bookie's disk as Python values: records and entries, without bytes. What each call does: disks.py."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.testing.disks import NO_START_ID

__all__ = ["TwinDisk"]

TWIN_FLUSH_BYTES = 16 << 10  # Small: a short run passes many flushes.


class TwinDisk:
    """Records and entries as Python values: fast, and every verdict is exact."""

    def __init__(self, incarnation: bytes) -> None:
        self.storage: MemoryBookieStorage | None = None
        self.incarnation = incarnation
        self.is_harmed = self.is_less = False
        self._survivors = Survivors(incarnation)
        self._damaged: dict[tuple[int, int], None] = {}

    def start(self, start_id: bytes = NO_START_ID) -> MemoryBookieStorage:
        self.storage = MemoryBookieStorage(self._survivors, flush_bytes=TWIN_FLUSH_BYTES, start_id=start_id)
        for (
            ledger_id,
            entry_id,
        ) in self._damaged:  # Damage outlives the process, until the entry is stored again.
            self.storage.make_unreadable(ledger_id, entry_id)
        return self.storage

    def survived(self) -> int:
        assert self.storage is not None
        return self.storage.replayed[0]  # One journal, whose tokens go on.

    def is_pending(self) -> bool:
        storage = self.storage  # What a failed sync left is never synced again.
        return storage is not None and storage.failed() is None and bool(storage.pending)

    def sync(self) -> int:
        assert self.storage is not None
        return self.storage.commit()

    def crash(self, chance: random.Random) -> None:
        if self.storage is None:
            return
        pending = len(self.storage.pending)
        if pending and self.storage.failed() is None:
            self.storage.commit(chance.randint(0, pending))  # The power went in the middle of a group commit.
        self._damaged = dict.fromkeys(sorted(self.storage.store.unreadable))
        self._survivors = self.storage.crash()
        self.is_less = self.is_less and not self.storage.may_have_lost
        self.storage = None

    def fail_sync(self, chance: random.Random) -> None:
        if self.storage is not None:
            self.storage.fail_next_sync("input/output error (simulated)")

    def damage(self, chance: random.Random) -> tuple[int, int] | None:
        if self.storage is None:
            return None
        held = [(ledger, ids) for ledger, ids in sorted(self.storage.store.ids.items()) if ids]
        if not held:
            return None
        ledger_id, ids = chance.choice(held)
        entry_id = chance.choice(ids)
        self.storage.make_unreadable(ledger_id, entry_id)
        return ledger_id, entry_id

    def harm(self, kind: str, chance: random.Random, before: Any) -> str:
        return ""  # It has no bytes that could be others.

    def lie(self, kind: str, chance: random.Random) -> bool:
        return False

    def remember(self) -> Survivors:
        return self._survivors if self.storage is None else self.storage.crash()

    def doubt(self, before: Survivors | None) -> None:
        if before is not None:
            self.restore(before)
        self.is_less = False
        self._survivors = dataclasses.replace(self._survivors, may_have_lost=True)

    def restore(self, before: Survivors) -> None:
        self._damaged.clear()
        self._survivors, self.is_less = before, True

    def drop_newest(self) -> bool:
        records = self._survivors.records
        if not records:
            return False
        kept = records[: len(records) * 2 // 3]
        self._survivors = dataclasses.replace(self._survivors, records=kept, is_newest_gone=True)
        self.is_less = True
        return True

    def copy(self) -> TwinDisk:
        other = TwinDisk(self.incarnation)
        other._survivors = self.remember()
        return other

    def fill(self, is_full: bool) -> None:
        if self.storage is not None:
            self.storage.is_read_only = is_full

    def fail_flush(self) -> None: ...

    def is_short(self) -> bool:
        return False

    def failed_flushes(self) -> int:
        return 0

    def calm(self) -> None:
        if self.storage is not None:
            self.storage.fail_next_sync(None)

    def lose(self, incarnation: bytes) -> None:
        self.storage = None
        self.incarnation = incarnation
        self._survivors = Survivors(incarnation)
        self._damaged.clear()
        self.is_less = False

    def close(self) -> None:
        self.storage = None
