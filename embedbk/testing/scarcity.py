"""Metadata that has no room: a catalog filled by a client's key, and more requests at once than a member takes.

Decides how much room is left and which nodes ask. The plan decides whether a world has so little of it (`World`):
bounds of a catalog decide outcomes, so all starts of a member have the same. The key is deleted again.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from embedbk.codec.metadata_messages import Delete, Get, Operation, Put, Result, Txn
from embedbk.host.metadata_link import MetadataLink
from embedbk.metadata.client import REQUESTS_MAX
from embedbk.metadata.limits import DEFAULT_LIMITS, RECORD_OVERHEAD_BYTES
from embedbk.testing.clocks import MS
from embedbk.testing.world import World

__all__ = [
    "FEW_REQUESTS",
    "LITTLE_ROOM",
    "RESERVED_ROOM",
    "crowd",
    "crowd_client",
    "end_client_crowds",
    "fill_catalog",
    "has_room",
    "has_room_for_marks",
]

LITTLE_ROOM = dataclasses.replace(DEFAULT_LIMITS, catalog_bytes_max=240 << 10, catalog_reserve_bytes=0)
RESERVED_ROOM = dataclasses.replace(LITTLE_ROOM, catalog_reserve_bytes=4 << 10)
FEW_REQUESTS = 16  # Requests that wait for a member: a link may have two at once.

_PREFIX = "/ballast/"
_MARK_BYTES = 1_000  # Several marks with their targets, and what says that a ledger cannot be repaired.
_CROWD = 12  # Requests of each node at once.
_LOOK_NS = 250 * MS
_LOOKS = 20  # Looks in a row that must not find it: a delayed put may still arrive.


def fill_catalog(world: World, name: str, for_ns: int, chance: random.Random) -> bool:
    """A key takes up what room is left; when the time is over it goes. False: there is room without end."""
    catalog = world.members.catalog
    if catalog is None or world.metadata_limits.catalog_bytes_max != LITTLE_ROOM.catalog_bytes_max:
        return False
    room = world.metadata_limits.catalog_bytes_max - catalog.key_space.held_bytes
    key = _PREFIX + name
    size = room - chance.choice([0, 0, 60, 400]) - RECORD_OVERHEAD_BYTES - len(key)
    if size < 0:
        return False
    looks, until_ns = 0, world.now_ns + for_ns

    def empty() -> None:
        nonlocal looks
        if not world.is_healed and world.now_ns < until_ns:
            world.after(_LOOK_NS, empty)
            return
        if key in world.committed(_PREFIX):
            looks = 0
            _ask(world, chance, Txn([], [Delete(key)]))
        elif not _is_disk_behind(world):
            looks += 1
        if looks < _LOOKS:
            world.after(_LOOK_NS, empty)
        else:
            world.ballast_on_its_way -= 1

    world.ballast_on_its_way += 1
    _ask(world, chance, Txn([], [Put(key, bytes(size))]))
    world.after(min(for_ns, _LOOK_NS), empty)
    return True


def _is_disk_behind(world: World) -> bool:
    """The put may stand in a voter's log, and be committed when its disk goes on."""
    nodes = [world.nodes.get(name) for name in world.members.voters]
    return any(node is None or node.store.index > node.core.applied_index for node in nodes)


def has_room(world: World) -> bool:
    """Nothing that was put to fill it stands in the catalog, or may still come."""
    return not world.ballast_on_its_way and not world.committed(_PREFIX)


def has_room_for_marks(world: World) -> bool:
    """Where there is no reserve, what everybody put may leave none; then nobody can say what is to be repaired."""
    limits, catalog = world.metadata_limits, world.members.catalog
    held = 0 if catalog is None else catalog.key_space.held_bytes
    return limits.catalog_reserve_bytes > 0 or held + _MARK_BYTES < limits.catalog_bytes_max


def crowd(world: World) -> bool:
    """Every node asks for more at once than its link may have waiting. False: no node is put off in this world."""
    if world.requests_waiting_max != FEW_REQUESTS:
        return False
    asked = 0

    def answered(now_ns: int, result: Result) -> None:
        nonlocal asked
        asked -= 1
        if asked == 0:
            world.sometimes["crowd answered"] += 1

    def look(times: int) -> None:
        if any(link.client.put_off for _, link in _links(world)):
            world.sometimes["metadata put off"] += 1
        elif times:
            world.after(MS, lambda: look(times - 1))

    for name, link in _links(world):
        for number in range(_CROWD):
            asked += 1
            link.request(world.now_of(name), Get(f"/crowd/{number}"), answered)
        world.wake(name)
    look(50)
    return True


def crowd_client(world: World, for_ns: int, chance: random.Random) -> bool:
    """A node's client of the metadata takes so few requests at once that it refuses some of its node's own. False: no
    node has a session."""
    links = _links(world)
    if not links:
        return False
    client = chance.choice(links)[1].client
    client.requests_max = chance.choice([0, 0, 1, 2, 4])

    def end() -> None:
        client.requests_max = REQUESTS_MAX

    world.after(for_ns, end)
    return True


def end_client_crowds(world: World) -> None:
    for _, link in _links(world):
        link.client.requests_max = REQUESTS_MAX


def _links(world: World) -> list[tuple[str, MetadataLink]]:
    """The metadata links of all nodes that run and have a session."""
    found: list[tuple[str, Any]] = [
        (name, getattr(node, "metadata", None)) for name, node in world.nodes.items()
    ]
    return [
        (name, link)
        for name, link in found
        if isinstance(link, MetadataLink) and link.session and name not in world.paused
    ]


def _ask(world: World, chance: random.Random, operation: Operation) -> None:
    links = _links(world)
    if links:
        name, link = chance.choice(links)
        link.request(world.now_of(name), operation, lambda now_ns, result: None)
        world.wake(name)
