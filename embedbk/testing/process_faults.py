"""Faults of processes: they crash, stop, pause or are slow, and come back."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from embedbk.storage.journal import DamagedJournal, UnreadableJournal
from embedbk.testing.bookie_processes import doubt
from embedbk.testing.plan import MS, SECOND, Step
from embedbk.testing.world import World

__all__ = ["BEGIN", "come_back", "crash", "pause", "pause_for", "restart", "slow"]


def restart(world: World, name: str) -> None:
    """Start a process that is down again, unless its disk is gone for good."""
    if name not in world.nodes:
        if name in world.members:
            world.members.start(name)
        elif name not in world.lost and not world.start_bookie(name) and world.disks[name].is_harmed:
            _go_on_behind(world, name)


def come_back(world: World, name: str) -> None:
    """A fault is over. Once all have stopped every node is back, and one that is down again has another reason."""
    if not world.is_healed:
        restart(world, name)


def _go_on_behind(world: World, name: str) -> None:
    """A harmed disk was refused: it is lost, or its owner gives the word to go on behind a damaged journal (P7.4)."""
    if isinstance(world.refused[name], DamagedJournal | UnreadableJournal) and world.chance.random() < 0.5:
        doubt(world, name)
        if world.start_bookie(name):
            return
    world.lost[name] = None


def crash(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.nodes:
        return False
    world.crash(step.target)
    world.after(step.for_ns, lambda: come_back(world, step.target))
    return True


def _stop(world: World, step: Step, chance: random.Random) -> bool:
    """P1: in good order."""
    if step.target not in world.nodes or step.target in world.paused:
        return False
    world.stop(step.target)

    def again() -> None:
        if not world.is_healed and step.target in world.nodes and world.nodes[step.target].is_leaving:
            world.crash(step.target)  # It stood still meanwhile.
        come_back(world, step.target)

    world.after(2 * SECOND + step.for_ns, again)
    return True


def _crash_loop(world: World, step: Step, chance: random.Random) -> bool:
    """P2: again and again, soon after each start."""
    left = chance.randint(2, 5)

    def again() -> None:
        nonlocal left
        if world.is_healed:
            return
        if step.target in world.nodes:
            world.crash(step.target)
        left -= 1
        world.after(chance.randint(1, 50) * MS, lambda: come_back(world, step.target))
        if left:
            world.after(chance.randint(1, 120) * MS, again)

    again()
    return True


def _power_cut(world: World, step: Step, chance: random.Random) -> bool:
    """P3: all bookies and the metadata at once."""
    down = [name for name in (*world.members.names, *world.disks) if name in world.nodes]
    for name in down:
        world.crash(name)
    for name in down:
        world.after(step.for_ns + chance.randint(0, 20) * MS, lambda name=name: come_back(world, name))  # type: ignore[misc]
    return bool(down)


def _writer_crash(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.nodes:
        return False
    world.crash(step.target)
    return True


def pause(world: World, step: Step, chance: random.Random) -> bool:
    name = step.target
    if name not in world.nodes or name in world.paused:
        return False
    pause_for(world, name, step.for_ns)
    return True


def pause_for(world: World, name: str, for_ns: int) -> None:
    """Once all is healed everybody goes on already; who stands still then is paused by another hand (seed 64000725)."""
    node = world.nodes[name]
    world.pause(name)

    def resume() -> None:
        if world.nodes.get(name) is node and not world.is_healed:
            world.resume(name)

    world.after(for_ns, resume)


def _slow_seat(world: World, step: Step, chance: random.Random) -> bool:
    """P4: a bookie that a writer has seated pauses for 0.2 to 3 s: the adds kept for it reach their bound."""
    seated = [
        member.bookie_id
        for writings in world.writings.values()
        for writing in writings
        for member in writing.metadata.fragments[-1].members
        if member.bookie_id in world.nodes and member.bookie_id not in world.paused
    ]
    if not seated:
        return False
    name, for_ns = chance.choice(seated), chance.randint(200, 3_000) * MS
    return pause(world, dataclasses.replace(step, target=name, for_ns=for_ns), chance)


def slow(world: World, step: Step, chance: random.Random) -> bool:
    world.slow_ns[step.target] = chance.choice([1, 10, 100]) * MS
    world.after(step.for_ns, lambda: world.slow_ns.pop(step.target, None))
    return True


def _give_up(world: World, step: Step, chance: random.Random) -> bool:
    """P9: an application interrupts its own calls while they wait."""
    if step.target not in world.nodes or world.is_healed:
        return False
    world.impatience.begin(step.target, chance, chance.choice([0.02, 0.1, 0.5]))
    world.after(step.for_ns, lambda: world.impatience.end(step.target))
    return True


BEGIN: dict[str, Callable[[World, Step, random.Random], bool]] = {
    "crash": crash, "stop": _stop, "crash-loop": _crash_loop, "power-cut": _power_cut, "writer-crash": _writer_crash,
    "pause": pause, "slow-seat": _slow_seat, "slow": slow, "gives-up": _give_up,
}  # fmt: skip
