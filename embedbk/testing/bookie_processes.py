"""A bookie's process in the simulator: it starts on the disk that it has, observers learn what it found there, and
faults change that disk while it is down."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from embedbk.codec.frame import iter_entries
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.compactor import CompactorOptions
from embedbk.errors import StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.rebuild_pace import RebuildPace
from embedbk.host.scrub_pace import ScrubPace
from embedbk.ids import LEDGER_ID_MAX
from embedbk.metadata.client import Client
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.links import Identity
from embedbk.testing.clocks import SECOND
from embedbk.testing.disks import BookieDisk
from embedbk.testing.process_names import bookie_of

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["SESSION_MS", "doubt", "drop_newest", "restore", "run_bookie", "tell_found", "tell_started"]

SESSION_MS = 2_000
WAITING_BYTES_MAX = 2 << 10  # The bound of a bookie that has no room: little, so that it soon answers BUSY.
COMPACTION = CompactorOptions(
    look_ns=2 * SECOND,
    minor_ns=4 * SECOND,
    major_ns=9 * SECOND,
    major_share=0.9,
    gain_bytes_min=4096,
    slice_bytes=64 << 10,
)  # Often, and in several slices: a short run passes a few (native disks).
# The scrubbing of each bookie: a run sees a few passes over its small store (I55).
SCRUB_BYTES_PER_S, SCRUB_START_NS, SCRUB_PAUSE_NS = 1 << 20, SECOND, 3 * SECOND
# Lost indexes are made again so slowly that requests meet what is dark until then (ST38).
REBUILD_BYTES_PER_S, REBUILD_SLICE_BYTES = 8 << 10, 1 << 10


def run_bookie(world: World, name: str, disk: BookieDisk) -> bool:
    """False: it refused to start on this disk; `World.refused` has the reason."""
    try:
        storage = disk.start(world.start_id())
    except StorageError as refusal:
        if bookie_of(name) == name:
            world.refused[name] = refusal
        if disk.is_harmed:
            world.sometimes["damaged disk refused"] += 1
        world.note(f"{name} refuses to start: {refusal}")
        return False
    identity = Identity("bookie", bookie_of(name), storage.incarnation, b"", storage.starts.id)
    transport = world.network.transport(identity, place=name)
    client = Client(ttl_ms=SESSION_MS, label=name, level=world.level_of(name))
    node = BookieNode(
        bookie_of(name),
        storage,
        transport,
        [world.endpoints.get(name, f"sim://{name}")],
        world.members.endpoints,
        client,
        free_bytes=partial(world.rooms.__getitem__, bookie_of(name))
        if bookie_of(name) in world.rooms
        else None,
        location=world.racks.get(bookie_of(name), ""),
        scrub=ScrubPace(
            name, storage, SCRUB_BYTES_PER_S, start_ns=SCRUB_START_NS, pass_pause_ns=SCRUB_PAUSE_NS
        ),
        rebuild=RebuildPace(name, storage, bytes_per_s=REBUILD_BYTES_PER_S, slice_bytes=REBUILD_SLICE_BYTES),
        collector=world.collector,
        compactor=COMPACTION,
        waiting_bytes_max=WAITING_BYTES_MAX,
    )
    if disk.is_less and storage.may_have_lost:
        world.sometimes["newest file missed"] += 1
    node.registering.may_go_alone = not disk.is_less and bookie_of(name) not in world.twins
    if storage.may_have_lost:
        # It found out by itself, and keeps its word of that until its limbo is durable.
        disk.is_less = False
    if world.has_near and bookie_of(name) == name:
        world.near.let_near(node)
    world.enter(name, "bookie", node)
    return True


def tell_started(world: World, name: str, *, may_have_lost: bool) -> None:
    """The bookie of this name is a process that started on what its disk has now."""
    disk = world.disks[name]
    storage = disk.storage
    assert storage is not None
    world.tell("on_started", name, "bookie", storage.incarnation, disk.survived(), may_have_lost)
    tell_found(world, name, storage, "on_found")
    world.tell("on_found_dropped", name, storage.table.ranges())


def tell_found(world: World, name: str, storage: DurableBookie, event: str) -> None:
    """event: `on_found` behind a start, `on_found_late` when an index that was lost is made again."""
    if event not in world.hooks:
        return
    for ledger_id in sorted(storage.table):
        row = storage.table.get(ledger_id)
        entry_ids: list[int] = []
        next_entry, has_more = 0, row is not None
        while has_more:
            found = storage.read(ledger_id, next_entry, LEDGER_ID_MAX, FRAME_BYTES_MAX).frame
            has_more = found is not None
            if found is not None:
                entry_ids += [entry.entry_id for entry in iter_entries(found)]
                next_entry = found.last_entry + 1
        if row is not None:
            world.tell(event, name, ledger_id, row.is_fenced, entry_ids)


def doubt(world: World, name: str, before: Any = None) -> None:
    """While it is down: its owner declares that something may be lost (P7.4), as when its disk is the older copy
    `before` (D13), or to continue behind damage."""
    world.note(f"{name} may have lost something")
    world.disks[name].doubt(before)
    world.tell("on_disk_doubted", name)


def restore(world: World, name: str, before: Any) -> None:
    """While it is down: the older copy `before` replaces its disk, undeclared (D13, P7.9)."""
    world.note(f"{name} has an older disk")
    world.disks[name].restore(before)
    world.tell("on_disk_doubted", name)


def drop_newest(world: World, name: str) -> bool:
    """While it is down: the newest file of its journal is gone, undeclared (D12, P7.9)."""
    if not world.disks[name].drop_newest():
        return False
    world.note(f"{name} lost the newest file of its journal")
    world.tell("on_disk_doubted", name)
    return True
