"""The faults by name (TESTING.md, section 5): how each begins in a world, and how all of them end.

Decides nothing of when and whom: that is the plan's (plan.py), or a test's. Every fault ends by itself, or at `heal`.
Faults of one kind of thing stand together: `process_faults`, `network_faults`, `disk_faults`, `member_faults`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from embedbk.testing import disk_faults, member_faults, network_faults, process_faults, scarcity, stranger
from embedbk.testing.plan import Step
from embedbk.testing.process_faults import restart
from embedbk.testing.raising import upgrade_all
from embedbk.testing.world import World
from embedbk.transports.sim_faults import CALM

__all__ = ["BEGIN", "begin", "heal"]


def begin(world: World, step: Step) -> None:
    """One fault of a plan, now; a target that is down or gone already is left alone."""
    world.note(f"fault {step}")
    if BEGIN[step.kind](world, step, random.Random(step.seed)):
        world.faults_done[step.kind] += 1


def heal(world: World) -> None:
    """Bring back everything that can come back: network calm, no node paused or slow, all but lost disks running."""
    world.note("faults stop")
    world.is_healed = True
    world.twins.end_all()
    world.members.copies.end_all()
    network = world.network
    network.faults = CALM
    for rule in list(network._rules):
        network.remove_rule(rule)
    network.heal()
    network.narrow.clear()
    world.slow_ns.clear()
    world.impatience.end_all()
    scarcity.end_client_crowds(world)
    world.sync_ns.clear()
    world.turns.hurry_syncs()
    for name in sorted(world.paused):
        world.resume(name)
    upgrade_all(world)
    world.members.start_all()
    for name in world.members.names:
        world.members.mend_snapshots(name)
    for name, disk in world.disks.items():
        disk.calm()
        if name in world.nodes:
            disk.fill(False)
            world.nodes[name].waiting.has_room = world.nodes[name].has_room
            world.nodes[name].core.is_writable = world.nodes[name].core.failure is None
            world.wake(name)
            is_over = world.nodes[name].failure is not None or world.nodes[name].is_leaving
            if is_over and name not in world.lost:
                world.crash(name)
        if name not in world.nodes and name not in world.lost:
            disk.fill(False)
            restart(world, name)
    world.tell("on_healed")


# Clocks, strangers, and metadata without room.


def _jump(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.clocks:
        return False
    world.clocks[step.target].jump(world.now_ns, step.for_ns)
    if step.target in world.nodes:
        world.wake(step.target)
    return True


def _wall(world: World, step: Step, chance: random.Random) -> bool:
    """C1: no core reads a wall clock; the creation time of what is made from now on is another one."""
    world.wall_ms = chance.randint(0, 1 << 42)
    return True


def _stranger(world: World, step: Step, chance: random.Random) -> bool:
    """T10, P2.5: a stranger sends what no node sends, and puts keys that are none of ours."""
    stranger.call_on(world, f"stranger-{step.number}", chance)
    return True


def _metadata_full(world: World, step: Step, chance: random.Random) -> bool:
    """D9: the catalog has no room, and what would grow it is refused."""
    return scarcity.fill_catalog(world, str(step.number), step.for_ns, chance)


def _metadata_crowd(world: World, step: Step, chance: random.Random) -> bool:
    """L13: the metadata gets more requests at once than it takes: it answers BUSY, and the clients ask again."""
    return scarcity.crowd(world)


def _client_crowd(world: World, step: Step, chance: random.Random) -> bool:
    """L13: a client of the metadata has as many requests under way as it takes, and refuses the next ones at once."""
    return scarcity.crowd_client(world, step.for_ns, chance)


BEGIN: dict[str, Callable[[World, Step, random.Random], bool]] = {
    **process_faults.BEGIN, **network_faults.BEGIN, **disk_faults.BEGIN, **member_faults.BEGIN,
    "wall": _wall, "jump": _jump, "stranger": _stranger,
    "metadata-full": _metadata_full, "metadata-crowd": _metadata_crowd, "client-crowd": _client_crowd,
}  # fmt: skip
