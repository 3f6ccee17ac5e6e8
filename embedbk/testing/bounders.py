"""An operator who bounds what bookies read for each class of reads, again and again, under all faults (P6.7).

In a third of the worlds; some clients of all worlds read as jobs do. `bookie_watch` judges which reads may be told to
wait; that every reader and every repair comes to its end is judged as ever.
"""

from __future__ import annotations

import random

from embedbk.client.read_bounds import bound_reads
from embedbk.config import READ_BYTES_PER_S_MIN, Settings
from embedbk.errors import EmbedbkError
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.world import World

__all__ = ["begin_bounding", "settings_drawn"]

CLIENT = "bounder"
READY_NS = 20 * SECOND
JOB = Settings(reads_as="batch")


def begin_bounding(world: World, for_ns: int) -> None:
    chance = random.Random(f"bounds of reads {world.seed}")
    if chance.random() < 0.3:
        world.start_client(CLIENT)
        world.spawn(CLIENT, _bounds(world, chance, world.now_ns + for_ns))


def settings_drawn(world: World, client: str) -> Settings | None:
    """Settings with which a client reads as a job does; None: the usual ones."""
    return JOB if random.Random(f"reads as {client} {world.seed}").random() < 0.4 else None


def _bounds(world: World, chance: random.Random, until_ns: int) -> Steps:
    node = world.nodes[CLIENT]
    yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
    runtime = SimRuntime(world, CLIENT, node)
    while world.now_ns < until_ns and not world.is_healed:
        bookie_id = chance.choice(sorted(world.disks))
        wanted = {
            name: chance.choice([None, 0, READ_BYTES_PER_S_MIN, 1_000_000])
            for name in ("catch_up", "batch", "upkeep")
        }
        try:
            yield from awaited(runtime, bound_reads(runtime, bookie_id, **wanted))
        except EmbedbkError as error:
            world.note(f"{CLIENT}: {error}")
        yield Sleep(chance.choice([1, 50, 400]) * MS)
