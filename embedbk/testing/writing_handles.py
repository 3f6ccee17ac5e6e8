"""The writing handles of simulated clients: applications below the faces get one and append by it, and observers are
told how far each handle of a client has come."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.log_list import Begun
from embedbk.codec.packer import Packer
from embedbk.codec.packer_twin import TwinPacker
from embedbk.codec.packing import Packing
from embedbk.config import Quorum
from embedbk.core.dropping import Dropping
from embedbk.core.lateness import LateTerms
from embedbk.core.leaving import Leaving
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.writer import Writer
from embedbk.core.writer_options import WriterOptions
from embedbk.host.writing import Writing
from embedbk.ids import NO_ENTRY
from embedbk.metadata.levels import LEVEL_OF_LOGS, LEVEL_OF_PAGES, LEVEL_OF_SUMS
from embedbk.testing.clocks import SECOND

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = [
    "KEY",
    "append",
    "close_writing",
    "delete_left",
    "open_writing",
    "takeover_core",
    "tell_of_appends",
    "write_ledger",
]

KEY = bytes(16)


def takeover_core(world: World, client: str, log: str, quorum: Quorum) -> LogTakeover:
    node = world.nodes[client]
    chance = random.Random(world.chance.getrandbits(63))
    has_level = node.metadata.client.cluster_level >= LEVEL_OF_LOGS
    has_pages = node.metadata.client.cluster_level >= LEVEL_OF_PAGES
    page_ledgers = world.page_ledgers if has_pages else 0
    new = NewLedger(
        quorum, b"", world.wall_ms, Begun.TAKEOVER, has_level=has_level, page_ledgers=page_ledgers
    )
    return LogTakeover(log, client.encode(), new, KEY, node.bookies, chance)


def delete_left(world: World, client: str, log: str, taken: TakenOver) -> None:
    """Delete ledgers that left the list, as after a takeover (P8.3)."""
    listed = frozenset(segment.ledger_id for segment in taken.log_list.segments)
    world.start(client, Leaving(log, taken.list_revision, listed, KEY))
    world.start(client, Dropping(log, world.wall_ms, 1_000))


def open_writing(world: World, client: str, taken: TakenOver, add_timeout_ns: int = 1 * SECOND) -> Writing:
    """The writing handle of a log that was taken over."""
    return write_ledger(world, client, taken.metadata, taken.revision, add_timeout_ns)


def write_ledger(
    world: World,
    client: str,
    metadata: LedgerMetadata,
    revision: int,
    add_timeout_ns: int = 1 * SECOND,
    key: bytes = KEY,
) -> Writing:
    node = world.nodes[client]
    nonce, chance = world.chance.getrandbits(63), random.Random(world.chance.getrandbits(63))
    # A run is short and has few answers: what is late is known sooner than in a long life, and who failed is left
    # alone for less.
    options = WriterOptions(
        add_timeout_ns=add_timeout_ns,
        quorum_wait_ns=add_timeout_ns,
        avoid_ns=2 * add_timeout_ns,
        late=LateTerms(answers_min=6),
        behind_bytes_max=world.behind_bytes_max,
    )
    core = Writer(metadata, revision, key, nonce, node.bookies, chance, options)
    packer: Packing = (
        Packer(metadata.ledger_id)
        if world.network.has_adds or world.has_near
        else TwinPacker(metadata.ledger_id)
    )
    has_sums = node.metadata.client.cluster_level >= LEVEL_OF_SUMS
    writing = Writing(core, packer, node.wake_writing, has_sums=has_sums)
    world.writings[client][writing] = -1
    world.run(client, writing)
    return writing


def append(world: World, client: str, writing: Writing, payload: bytes) -> int | None:
    """Queue one entry as an application would; None when the handle is over."""
    if writing.error is not None:
        return None
    entry_id = writing.try_append(payload)
    if entry_id >= 0:
        world.tell("on_sent", client, writing, writing.core.ledger_id, entry_id, payload)
    return entry_id


def close_writing(world: World, client: str, writing: Writing) -> None:
    world.nodes[client].close_writing(world.now_of(client), writing)
    world.turn_soon(client)


def tell_of_appends(world: World, name: str) -> None:
    """What became of the appends of this client's handles since it was last asked."""
    for writing, told in list(world.writings[name].items()):
        if writing.lac > told >= -1:
            world.writings[name][writing] = writing.lac
            world.tell("on_acked", name, writing, writing.core.ledger_id, writing.lac)
        if writing.behind is not None and told != -2 and writing.packer.last_entry != NO_ENTRY:
            went = "kept behind a failure" if writing.is_handed_over else "kept behind a roll"
            world.sometimes[went] += 1
        if writing.is_handed_over:
            world.writings[name][writing] = -2  # Entries that are not acknowledged there did not fail.
        elif writing.error is not None and told != -2:
            world.writings[name][writing] = -2
            ledger_id = writing.core.ledger_id
            world.tell("on_failed", name, writing, ledger_id, writing.lac + 1, writing.error)
