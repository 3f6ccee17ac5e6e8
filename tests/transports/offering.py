"""Transports whose host offers an add path at every turn: of no ledger that anybody adds to, or of ledger 7."""

from __future__ import annotations

from typing import Any

from embedbk.ports.links import TransportEvent
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.transports.local import LocalTransport
from embedbk.transports.zmq import ZmqTransport

INCARNATION, KEY = b"I" * 16, bytes(16)


def storage_with(*ledger_ids: int) -> BookieStorage:
    """A bookie's storage in memory that knows these ledgers."""
    storage = BookieStorage(
        "/b", "b", b"T" * 16, io=MemoryDisk(), incarnation=INCARNATION, threaded=False, flush_bytes=1 << 20,
        cache_bytes_max=4 << 20, journal_file_bytes=4 << 20,
    )  # fmt: skip
    for ledger_id in ledger_ids:
        storage.table.set_key(storage.table.create(ledger_id), KEY)
    return storage


class Offering:
    """What it offers to is `storage`, which a test may have prepared."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.storage = storage_with()
        self._before: list[BookieStorage] = []

    def know(self, *ledger_ids: int) -> BookieStorage:
        """Offer to a bookie that knows these ledgers."""
        self._before.append(self.storage)
        self.storage = storage_with(*ledger_ids)
        return self.storage

    def close(self) -> None:
        super().close()  # type: ignore[misc]
        for storage in [*self._before, self.storage]:
            storage.close()

    def receive(self, now_ns: int) -> list[TransportEvent]:
        self.offer(self.storage.add_path)  # type: ignore[attr-defined]
        return super().receive(now_ns)  # type: ignore[misc, no-any-return]


class OfferingLocal(Offering, LocalTransport):
    pass


class OfferingZmq(Offering, ZmqTransport):
    pass
