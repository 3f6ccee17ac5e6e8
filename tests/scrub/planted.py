"""Faults for a scrub to find, planted behind the backs of all nodes of a simulated cluster."""

from __future__ import annotations

from embedbk.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.entry import encode_entry
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.storage.memory import MemoryEntryStore
from embedbk.testing import Cluster

__all__ = ["Planted"]


class Planted:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.client = cluster, cluster.client()

    def closed(self, count: int = 30, **sizes: int) -> int:
        with self.client.create_ledger(**sizes) as writer:
            writer.add_many([b"entry %04d" % number for number in range(count)])
        self.cluster.run_for(1)
        return writer.ledger_id

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return decode_ledger_metadata(
            self.cluster.world.committed("/ledgers/")[ledger_key_path(ledger_id)], ledger_id
        )

    def members(self, ledger_id: int) -> list[str]:
        return [each.bookie_id for each in self.metadata(ledger_id).fragments[0].members]

    def outsider(self, ledger_id: int) -> str:
        return sorted({"b1", "b2", "b3", "b4"} - set(self.members(ledger_id)))[0]

    def store(self, name: str) -> MemoryEntryStore:
        store = self.cluster.world.nodes[name].storage.store
        assert isinstance(store, MemoryEntryStore)
        return store

    def lose(self, name: str, ledger_id: int, entry_id: int) -> None:
        """The bookie has it no more, and knows nothing of that."""
        store = self.store(name)
        del store.entries[ledger_id][entry_id]
        store.ids[ledger_id].remove(entry_id)

    def swap(self, name: str, ledger_id: int, one: int, other: int) -> None:
        held = self.store(name).entries[ledger_id]
        held[one], held[other] = held[other], held[one]

    def flip(self, name: str, ledger_id: int, entry_id: int) -> None:
        held = self.store(name).entries[ledger_id]
        held[entry_id] = held[entry_id][:60] + bytes([held[entry_id][60] ^ 4]) + held[entry_id][61:]

    def replace(self, name: str, ledger_id: int, entry_id: int) -> None:
        """Another whole entry, as of another time."""
        held = self.store(name).entries[ledger_id]
        length = int.from_bytes(held[entry_id][24:32], "little")
        held[entry_id] = encode_entry(ledger_id, entry_id, length, b"other %04d" % entry_id)

    def put(self, metadata: LedgerMetadata) -> None:
        self.transact(Put(ledger_key_path(metadata.ledger_id), encode_ledger_metadata(metadata)))

    def transact(self, *then: Put | Delete) -> None:
        run_blocking(self.runtime_of(self.client).transact([], list(then), "planting"), "planting")

    @staticmethod
    def runtime_of(client: Client):  # type: ignore[no-untyped-def]
        return client._runtime
