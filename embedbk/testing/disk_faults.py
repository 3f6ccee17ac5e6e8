"""Faults of disks: slow, full, failing, damaged, lost, or replaced by an older copy of themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from embedbk.testing import scarcity
from embedbk.testing.bookie_processes import doubt, drop_newest, restore
from embedbk.testing.member_names import METADATA
from embedbk.testing.native_disk import OFTEN_FLUSH_BYTES, NativeDisk
from embedbk.testing.plan import MS, SECOND, Step
from embedbk.testing.process_faults import come_back, crash, restart
from embedbk.testing.world import World

__all__ = ["BEGIN", "half_dead"]


def _slow_disk(
    world: World, step: Step, chance: random.Random, sync_ns: tuple[int, int] = (20 * MS, 2 * SECOND)
) -> bool:
    world.sync_ns[step.target] = sync_ns
    world.after(step.for_ns, lambda: world.sync_ns.pop(step.target, None))
    return True


def half_dead(world: World, step: Step, chance: random.Random) -> bool:
    """P6: the thread that syncs stands still, the rest of the process works."""
    return _slow_disk(world, step, chance, (step.for_ns, step.for_ns + 1))


def _sync_fails(world: World, step: Step, chance: random.Random) -> bool:
    """D8: its journal acknowledges nothing more, until the process is started again."""
    if step.target not in world.nodes:
        return False
    world.disks[step.target].fail_sync(chance)
    node = world.nodes[step.target]

    def end() -> None:
        if world.nodes.get(step.target) is node and not world.is_healed:
            world.crash(step.target)
            restart(world, step.target)

    world.after(step.for_ns, end)
    return True


def _full(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.nodes:
        return False
    node = world.nodes[step.target]
    node.core.is_writable = False

    def end() -> None:
        node.core.is_writable = True

    world.after(step.for_ns, end)
    return True


def _no_room(world: World, step: Step, chance: random.Random) -> bool:
    """D9: flushes, compactions and the journal's next files find no room; queued work waits, and continues."""
    disk = world.disks[step.target]
    if step.target not in world.nodes or not isinstance(disk, NativeDisk):
        return False
    disk.fill(True)

    def end() -> None:
        if disk.is_short():
            world.sometimes["waited for room"] += 1
        disk.fill(False)

    world.after(step.for_ns, end)
    return True


def _no_descriptors(world: World, step: Step, chance: random.Random) -> bool:
    """P7: its process opens no file; flushes, compactions and the journal's next files wait, and blame nobody."""
    disk = world.disks[step.target]
    if step.target not in world.nodes or not isinstance(disk, NativeDisk):
        return False
    disk.open_nothing(True)
    disk.flush_often(OFTEN_FLUSH_BYTES)

    def end() -> None:
        if disk.is_short() or disk.failed_flushes():
            world.sometimes["waited for a descriptor"] += 1
        disk.open_nothing(False)

    world.after(step.for_ns, end)
    return True


def _flush_fails(world: World, step: Step, chance: random.Random) -> bool:
    """D8: an entry log cannot be written once; its flush is done again, also behind a compaction (ST32)."""
    disk = world.disks[step.target]
    if step.target not in world.nodes or not isinstance(disk, NativeDisk):
        return False
    disk.fail_flush()
    before = disk.failed_flushes()

    def look() -> None:
        if disk.failed_flushes() > before:
            world.sometimes["flush failed"] += 1

    world.after(step.for_ns + SECOND, look)
    return True


def _busy(world: World, step: Step, chance: random.Random) -> bool:
    """L13: its write cache has no room for normal adds; some wait, the rest is answered BUSY."""
    if step.target not in world.nodes:
        return False
    node = world.nodes[step.target]
    node.waiting.has_room = lambda is_urgent: is_urgent

    def end() -> None:
        node.waiting.has_room = node.has_room
        if world.nodes.get(step.target) is node and step.target not in world.paused:
            world.wake(step.target)

    world.after(step.for_ns, end)
    return True


def _unreadable(world: World, step: Step, chance: random.Random) -> bool:
    hit = world.disks[step.target].damage(chance)
    if hit is not None:
        world.tell("on_damaged", step.target, *hit)
    return hit is not None


def _lost_disk(world: World, step: Step, chance: random.Random) -> bool:
    """D13: for good."""
    if step.target in world.lost:
        return False
    world.lose_disk(step.target)
    return True


def _wipe(world: World, step: Step, chance: random.Random) -> bool:
    """N11, D13: it comes back empty under its old name and address, and must not serve."""
    if step.target in world.lost:
        return False
    world.lose_disk(step.target)
    world.start_bookie(step.target)
    return True


def _harm(world: World, step: Step, chance: random.Random) -> bool:
    """D4 to D7, D12: its files are not what it wrote, from some call on or from its next start on."""
    name, disk = step.target, world.disks[step.target]
    if name in world.lost or name not in world.nodes or not world.is_native:
        return False
    if chance.random() < 0.5 and disk.lie(step.kind, chance):
        world.tell("on_disk_harmed", name)
        world.after(step.for_ns, lambda: crash(world, step, chance) if not world.is_healed else None)
        return True
    before = disk.remember()

    def strike() -> None:
        if world.is_healed or name in world.lost:
            return
        if name in world.nodes:
            world.crash(name)
        world.note(disk.harm(step.kind, chance, before))
        if disk.is_harmed:
            world.tell("on_disk_harmed", name)
        world.after(chance.randint(1, 500) * MS, lambda: come_back(world, name))

    world.after(step.for_ns, strike)
    return True


def _index_rot(world: World, step: Step, chance: random.Random) -> bool:
    """D4, ST38: both copies of an index; the bookie serves beside the search for what they located."""
    name, disk = step.target, world.disks[step.target]
    if name in world.lost or name not in world.nodes or not isinstance(disk, NativeDisk):
        return False

    def wait(times_left: int) -> None:
        """Until there is an entry log with entries."""
        if world.is_healed or name in world.lost or not times_left:
            return
        disk.flush_often(1)
        storage = disk.storage
        if storage is not None and any(log.entries_bytes for log in storage.log_facts()):
            strike()
        else:
            world.after(SECOND // 20, lambda: wait(times_left - 1))

    def strike() -> None:
        if name in world.nodes:
            world.crash(name)
        world.note(disk.harm(step.kind, chance, disk.remember()))
        if disk.is_harmed:
            world.tell("on_disk_harmed", name)
        come_back(world, name)
        for number in range(1, 9):
            world.after(number * SECOND, look)

    def look() -> None:
        node = world.nodes.get(name)
        if node is None or not node.rebuild.left.logs:
            return
        is_copied = not any(log.is_rescued for log in node.storage.log_facts())
        for what, is_so in (
            ("looked for", node.storage.rebuild_left().logs > 0),
            ("made again", node.rebuild.whole_logs > 0),
            ("left dark", node.rebuild.dark_logs > 0),
            ("put right on disk", node.rebuild.whole_logs > 0 and is_copied),
        ):
            world.sometimes[f"lost index {what}"] += is_so

    world.after(step.for_ns, lambda: wait(100))
    return True


def _old_copy(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its disk is lost, and an older copy of it starts in its place, by an operator who declares the loss
    (P7.4)."""
    name = step.target
    if name in world.lost or name not in world.nodes:
        return False
    before, incarnation = world.disks[name].remember(), world.disks[name].incarnation

    def strike() -> None:
        if world.is_healed or name in world.lost or world.disks[name].incarnation != incarnation:
            return
        if name in world.nodes:
            world.crash(name)
        doubt(world, name, before)
        world.after(chance.randint(1, 500) * MS, lambda: come_back(world, name))

    world.after(step.for_ns, strike)
    return True


def _older_metadata(world: World, step: Step, chance: random.Random) -> bool:
    """D13: a copy of the member's directory, which takes its place when the run is over (aftermath.py). An older copy
    of one of several is a follower that is behind; copies of all of them are the same case as of the only one."""
    if len(world.members.names) > 1 or not scarcity.has_room(world):
        return False  # No operator would make room in it again.
    world.metadata_copy = world.members.copy(METADATA)
    return True


def _older_disk(world: World, step: Step, chance: random.Random) -> bool:
    """D13: an older copy of its disk starts in its place, undeclared. The cluster knows of a later start: what a copy
    of the same start lacks is known only as far as it was reported (P7.9)."""
    name = step.target
    if name in world.lost or name not in world.nodes:
        return False
    before, incarnation = world.disks[name].remember(), world.disks[name].incarnation
    world.crash(name)
    world.after(chance.randint(1, 100) * MS, lambda: come_back(world, name))

    def strike() -> None:
        if world.is_healed or name in world.lost or world.disks[name].incarnation != incarnation:
            return
        if name not in world.nodes or not world.nodes[name].is_registered:
            return  # The cluster does not know yet that it started behind the copy.
        world.crash(name)
        restore(world, name, before)
        world.after(chance.randint(1, 500) * MS, lambda: come_back(world, name))

    world.after(step.for_ns + 200 * MS, strike)
    return True


def _newest_gone(world: World, step: Step, chance: random.Random) -> bool:
    """D12: the newest file of its journal is gone, which the journal's own note reveals (P7.9)."""
    name = step.target
    if name in world.lost or name not in world.nodes:
        return False
    world.crash(name)
    is_done = drop_newest(world, name)
    world.after(step.for_ns, lambda: come_back(world, name))
    return is_done


def _clone(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its directories are copied, and both are started, in either order; or one beside it while it lives, or while
    it stands still, longer or shorter than it has to answer (P7.9)."""
    name, twins = step.target, world.twins
    if world.has_near:
        return False  # A loop stands still as a whole, with the clients that store there.
    if name in twins or name in world.lost or name in world.paused or name not in world.nodes:
        return False
    node = world.nodes[name]
    if not node.is_registered:
        return False
    how = chance.choice(["beside", "stopped", "stopped", "crashed"])
    if how == "stopped":
        world.pause(name)
        _resume_at(world, node, world.now_ns + chance.choice([500, 2_500, 3_000, 6_000]) * MS)
    elif how == "crashed":
        world.crash(name)
        world.after(chance.randint(0, 300) * MS, lambda: _start_both(world, name))
    twins.copy(name)
    world.after(chance.randint(0, 300) * MS, lambda: twins.start(name))
    world.after(8 * SECOND, lambda: twins.end(name))
    return True


def _start_both(world: World, name: str) -> None:
    if not world.is_healed:
        restart(world, name)
        world.twins.start(name)  # If that is whose place was taken.


def _resume_at(world: World, node: Any, when_ns: int) -> None:
    """By whatever name it goes then."""

    def resume() -> None:
        if world.is_healed:  # Then everybody goes on already, and who is paused is so by another hand.
            return
        for name in [name for name, each in world.nodes.items() if each is node and name in world.paused]:
            world.resume(name)

    world.at(when_ns, resume)


def _torn(world: World, step: Step, chance: random.Random) -> bool:
    """D2, D14: power goes in the middle of the next group commit, if one comes in time."""
    give_up = world.now_ns + step.for_ns

    def look() -> None:
        if world.is_healed:
            return
        if step.target in world.nodes and world.disks[step.target].is_pending():
            world.sometimes["journal torn"] += 1
            crash(world, step, chance)
        elif world.now_ns < give_up:
            world.after(MS // 4, look)

    look()
    return True


BEGIN: dict[str, Callable[[World, Step, random.Random], bool]] = {
    "slow-disk": _slow_disk, "half-dead": half_dead, "sync-fails": _sync_fails, "full": _full, "no-room": _no_room,
    "no-descriptors": _no_descriptors, "flush-fails": _flush_fails, "busy": _busy, "unreadable": _unreadable,
    "lost-disk": _lost_disk, "wipe": _wipe,
    "rot": _harm, "misdirected": _harm, "lost-write": _harm, "stale": _harm, "file-harm": _harm,
    "old-copy": _old_copy, "older-metadata": _older_metadata, "older-disk": _older_disk,
    "newest-gone": _newest_gone, "clone": _clone, "index-rot": _index_rot, "torn": _torn,
    "member-slow-disk": _slow_disk,
}  # fmt: skip
