"""A copy that differs from the others and is whole by itself, planted when all is healed (I56).

No protocol makes one, no bookie can find it, and no reader may meet it: so it is planted behind everything that a run
checks, and taken away again. Whoever audits must name it within a round, and nothing may be copied over it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from embedbk.codec.entry import ENTRY_OVERHEAD_BYTES
from embedbk.codec.kernels import crc32c
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, decode_ledger_metadata
from embedbk.core.quorum import write_set
from embedbk.errors import StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.repairing import RepairService
from embedbk.ids import Member
from embedbk.repair.copy_comparison import cuts_of
from embedbk.storage.memory import MemoryBookieStorage
from embedbk.testing.violation import Violation
from embedbk.testing.world import SECOND, World

__all__ = ["differing_copy_is_found"]

FOUND_NS = 120 * SECOND  # A round begins each 30 seconds.
CHANCE = 0.3


def differing_copy_is_found(
    world: World, services: Mapping[str, RepairService], chance: random.Random
) -> None:
    """I56: all copies of a closed ledger have one digest, or those that have not are named."""
    places = sorted(_places(world), key=lambda place: (place[0], place[1], place[2]))
    if not places or chance.random() >= CHANCE:
        return
    ledger_id, entry_id, name = chance.choice(places)
    storage = world.nodes[name].storage
    entries = storage.store.entries[ledger_id]
    held = entries[entry_id]
    other = entries[entry_id] = _other(held)
    give_up_ns = world.now_ns + FOUND_NS
    while not _is_named(world, services, ledger_id, entry_id) and world.now_ns < give_up_ns:
        world.run_for(SECOND)
    if not _is_named(world, services, ledger_id, entry_id):
        raise Violation(
            "I56", f"nobody names entry {entry_id} of ledger {ledger_id}, which differs on {name}"
        )
    if entries[entry_id] != other:
        raise Violation("I56", f"a copy of entry {entry_id} of ledger {ledger_id} was overwritten by a guess")
    world.sometimes["differing copy named"] += 1
    entries[entry_id] = held


def _is_named(world: World, services: Mapping[str, RepairService], ledger_id: int, entry_id: int) -> bool:
    return any(
        conflict.entry_id == entry_id
        for name, service in services.items()
        if name in world.nodes
        for conflict in service.auditor.conflicts.get(ledger_id, ())
    )


def _other(raw: bytes) -> bytes:
    """A whole entry of the same size and place, with another payload."""
    body = raw[:-5] + bytes([raw[-5] ^ 1])
    return body + crc32c(body).to_bytes(4, "little")


def _places(world: World) -> Iterator[tuple[int, int, str]]:
    """(ledger, entry, bookie) of what can differ from another copy that is there."""
    nodes = {
        Member(name, node.storage.incarnation): node.storage
        for name, node in world.nodes.items()
        if isinstance(node, BookieNode) and isinstance(node.storage, MemoryBookieStorage)
    }
    for value in world.committed(LEDGERS_PREFIX).values():
        try:
            metadata = decode_ledger_metadata(value)
        except StorageError:
            continue  # A stranger's.
        if metadata.is_closed:
            yield from _places_of(metadata, nodes)


def _places_of(
    metadata: LedgerMetadata, nodes: Mapping[Member, MemoryBookieStorage]
) -> Iterator[tuple[int, int, str]]:
    assert metadata.last_entry is not None
    ends = [*cuts_of(metadata, 0, metadata.last_entry), metadata.last_entry + 1]
    for fragment, end in zip(metadata.fragments, ends, strict=False):
        for entry_id in range(fragment.first_entry, end):
            members = [fragment.members[seat] for seat in write_set(entry_id, metadata.quorum)]
            held = [
                member.bookie_id
                for member in members
                if member in nodes
                and len(nodes[member].store.entries.get(metadata.ledger_id, {}).get(entry_id, b""))
                > ENTRY_OVERHEAD_BYTES
                and (metadata.ledger_id, entry_id) not in nodes[member].store.unreadable
            ]
            if len(held) == len(members) > 1:
                yield metadata.ledger_id, entry_id, held[0]
