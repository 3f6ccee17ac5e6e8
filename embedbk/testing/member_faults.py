"""Faults of metadata members, alone, while voters change, and beside what else runs (RAFT.md).

Decides nothing of when and whom: that is the plan's (member_plan.py). Every fault ends by itself, or when all heals.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from embedbk.metadata.levels import LEVEL
from embedbk.metadata.member import Member
from embedbk.metadata.quorum import Policy
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.disk_faults import half_dead
from embedbk.testing.network_faults import between, one_way, with_rule
from embedbk.testing.operator import Operator
from embedbk.testing.plan import Step
from embedbk.testing.process_faults import come_back, crash, pause, pause_for, slow
from embedbk.testing.raising import Raiser
from embedbk.testing.world import World
from embedbk.transports.sim_faults import Treatment

__all__ = ["BEGIN"]

SIZES = {1: (3,), 3: (1, 5, 5), 5: (3,)}  # From so many voters to so many: by two, as is advised.
BEHIND_ENTRIES = 3  # Entries that are forgotten, at least.


def _voters_change(world: World, step: Step, chance: random.Random) -> bool:
    """L7: an operator wants more voters, or fewer, and waits until it is so."""
    operator = _operator(world, step, chance)
    operator.want(chance.choice(SIZES[operator.count]))
    return True


def _operator(world: World, step: Step, chance: random.Random) -> Operator:
    """One in a world: two would take turns for ever, as people do."""
    members = world.members
    if members.operator is None:
        members.operator = Operator(world, step.number, chance)
    return members.operator


def _member_rejoin(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its directory is lost; it joins as somebody else, and takes the vote of who it was (P10.3)."""
    members = world.members
    if not members.may_lose(step.target) or step.target not in members.voters:
        return False
    members.wipe(step.target)
    members.start(step.target)
    operator = _operator(world, step, chance)
    operator.want(operator.count)
    return True


def _joint_wipe(world: World, step: Step, chance: random.Random) -> bool:
    """D13: while both sets of voters count, two members lose their directories, as far as a quorum of each is left."""

    def strike(leader: str) -> None:
        names = list(world.members.names)
        chance.shuffle(names)
        count = 0
        for name in names:
            if count < 2 and not world.is_healed and world.members.may_lose(name):
                world.members.wipe(name)
                world.after(step.for_ns, lambda name=name: come_back(world, name))  # type: ignore[misc]
                count += 1
        if count == 2:
            world.sometimes["two members wiped while voters changed"] += 1

    return _when_joint(world, chance, strike)


def _joint_crash(world: World, step: Step, chance: random.Random) -> bool:
    """P1: the first member to apply the change that makes both sets of voters count cuts a snapshot there, and it or
    the leader is killed soon after."""
    members = world.members

    def look(name: str, core: Member) -> None:
        log = core.log.raft.log  # type: ignore[attr-defined]
        if core.applied_index < log.snapshot_index or not log.configuration_at(core.applied_index).is_joint:
            return
        del members.watchers[look]
        if not world.is_healed:
            members.hasten_snapshot(name)
            target = name if chance.random() < 0.5 else members.leader or name
            world.after(chance.randint(0, 6) * MS, lambda: _kill(world, target, step.for_ns))

    members.watchers[look] = None
    return True


def _kill(world: World, name: str, for_ns: int) -> None:
    if name in world.nodes and not world.is_healed:
        world.crash(name)
        world.after(for_ns, lambda: come_back(world, name))


def _when_joint(world: World, chance: random.Random, strike: Callable[[str], None]) -> bool:
    """Soon after a leader has begun a change: what it sends is on its way."""
    delay_ns = chance.choice([0, 1, 2]) * MS // 2
    world.members.on_joint.append(lambda leader: world.after(delay_ns, lambda: strike(leader)))
    return True


def _beside_pause(world: World, step: Step, chance: random.Random) -> bool:
    """P4: an application that runs in the leader's process holds the GIL for 2 s: both stand still."""
    leader = world.members.leader
    clients = [name for name in world.writings if name in world.nodes and name not in world.paused]
    if leader is None or leader in world.paused or not clients:
        return False
    for name in (leader, chance.choice(clients)):
        pause_for(world, name, 2 * SECOND)
    return True


_PROBED = "slow follower whose log was not known"
_AHEAD = "slow follower sent ahead of its answers"
_OFFERED = "slow follower offered a snapshot"
_STATES: dict[str, Callable[[Any], bool]] = {
    _PROBED: lambda progress: progress.is_probing and progress.offered_round is None,
    _AHEAD: lambda progress: not progress.is_probing,
    _OFFERED: lambda progress: progress.offered_round is not None,
}


def _slow_follower(world: World, step: Step, chance: random.Random) -> bool:
    """P5: when its leader has it in one of three states (RAFT.md, 5), its turns take long and little reaches it."""
    members, name, mark = world.members, step.target, chance.choice(list(_STATES))
    slow_ns, narrow = chance.choice([10, 100, 400]) * MS, chance.choice([2_000, 20_000])
    if name not in world.nodes or members.leader in (None, name):
        return False
    if mark != _AHEAD:  # It comes back to a leader that knows nothing of it, or has no entries for it.
        if mark == _OFFERED:
            members.hasten_snapshot(members.leader)
        _kill(world, name, 300 * MS)

    def look(leader: str, core: Member) -> None:
        progress = _progress_of(core, name)
        if name not in world.nodes or progress is None or not _STATES[mark](progress):
            return
        end_looking()
        if not world.is_healed:
            world.sometimes[mark] += 1
            world.slow_ns[name], world.network.narrow[name] = slow_ns, narrow
            world.after(step.for_ns, end)

    def end_looking() -> None:
        members.watchers.pop(look, None)

    def end() -> None:
        world.slow_ns.pop(name, None)
        world.network.narrow.pop(name, None)

    members.watchers[look] = None
    world.after(2 * SECOND, end_looking)
    return True


def _progress_of(core: Member, name: str) -> Any:
    """The progress of another member, as this one has it; None: it does not lead, or has none."""
    leading = core.log.raft._leading  # type: ignore[attr-defined]
    found = [each for member, each in leading.progress.items() if member.name == name] if leading else []
    return found[0] if found else None


def _follower_old_disk(world: World, step: Step, chance: random.Random) -> bool:
    """D13: a follower comes back on an image from before some of what it acknowledged to the leader that still leads,
    under a policy that bears it."""
    members, leader = world.members, world.members.leader
    names = [name for name in members.running if name != leader and members.may_forget(name)]
    if leader is None or not names or members.applied(leader) == 0:
        return False
    name = step.target if step.target in names else names[0]
    before, incarnation = members.copy(name), members.incarnation(name)
    last = world.nodes[name].log.raft.log.last_index

    def look(who: str, core: Member) -> None:
        if who != name or core.applied_index < last + BEHIND_ENTRIES:
            return
        del members.watchers[look]
        world.after(0, strike)

    def strike() -> None:
        if world.is_healed or members.incarnation(name) != incarnation or not members.may_forget(name):
            return
        if name in world.nodes:
            world.crash(name)
        members.put(name, before)

    members.watchers[look] = None
    return True


def _member_duplication(world: World, step: Step, chance: random.Random) -> bool:
    """N2: messages between members come twice, the second time late now and then."""
    names = world.members.names

    def double(sender: str, receiver: str, body: bytes) -> Treatment | None:
        if sender not in names or receiver not in names or chance.random() > 0.3:
            return None
        return Treatment(copies=2, delay_ns=chance.choice([0, 0, 5, 100]) * MS)

    return with_rule(world, step, double)


def _member_copy(world: World, step: Step, chance: random.Random) -> bool:
    """D13: two processes on one member's directory, the second on a copy; or both from when it was down (P7.9)."""
    members, name = world.members, step.target
    is_borne = members.may_forget(name) and members.configuration.policy is Policy.ROLLBACK_1
    if name not in world.nodes or members.copies.any() or not _votes_among_several(world, name):
        return False
    if chance.random() < 0.3:
        world.crash(name)
        first, second = (0, 1) if chance.random() < 0.5 else (1, 0)
        world.after(first * 200 * MS, lambda: come_back(world, name))
        world.after(second * 200 * MS, lambda: _copy(world, name, is_borne))
    else:
        _copy(world, name, is_borne)
    world.after(step.for_ns, lambda: members.copies.end(name))
    return True


def _copy(world: World, name: str, is_borne: bool) -> None:
    members = world.members
    if not world.is_healed and name in members.voters and not members.copies.any():
        members.copies.start(name, is_borne=is_borne and members.may_forget(name))


def _votes_among_several(world: World, name: str) -> bool:
    """By its own log, and by what of that is on its disk, which is what is copied: a member that is alone there is
    linked to no other, and would continue alone."""
    log = world.nodes[name].log.raft.log
    is_alone = any(
        len(each.voters) == 1 for each in (log.configuration, log.configuration_at(log.durable_index))
    )
    return not is_alone and name in world.members.voters


def _member_torn(world: World, step: Step, chance: random.Random) -> bool:
    """D2: power goes while a member writes entries that were not acknowledged."""
    members, name = world.members, step.target

    def look(who: str, core: Member) -> None:
        if who == name and members.is_pending(name):
            members.watchers.pop(look, None)
            world.after(0, strike)

    def strike() -> None:
        if world.is_healed or name not in world.nodes or not members.is_pending(name):
            return
        if world.level_of(name) == LEVEL:
            members.tear(name, chance)
            world.sometimes["metadata log torn"] += 1
            world.after(step.for_ns, lambda: come_back(world, name))

    members.watchers[look] = None
    world.after(2 * SECOND, lambda: members.watchers.pop(look, None))
    return True


def _member_flip(world: World, step: Step, chance: random.Random) -> bool:
    """D4: a bit in the middle of its log flips. A member that refuses it leaves: its owner empties the directory, and a
    new member starts there, which may take its vote."""
    members, name = world.members, step.target
    if not members.may_lose(name) or world.level_of(name) != LEVEL:
        return False
    refusal = members.flip(name, chance)
    if refusal is None:
        world.after(step.for_ns, lambda: come_back(world, name))
        return True
    members.wipe(name)
    world.after(step.for_ns, lambda: come_back(world, name))
    if members.configuration.policy is Policy.MAJORITY and chance.random() < 0.5:
        operator = _operator(world, step, chance)
        operator.want(operator.count)
    return True


def _member_slow_apply(world: World, step: Step, chance: random.Random) -> bool:
    """P5: a member makes entries durable at once, and its state follows late: turns that apply take 20 or 200 ms."""
    if step.target not in world.nodes:
        return False
    world.members.slow_apply[step.target] = chance.choice([20, 200]) * MS
    world.after(step.for_ns, lambda: world.members.slow_apply.pop(step.target, None))
    return True


def _snapshot_fails(world: World, step: Step, chance: random.Random) -> bool:
    """D8, D9: a member cannot write a snapshot, of its own state or another's, and goes on with the log that it has."""
    name = step.target
    if name not in world.nodes:
        return False
    world.members.fail_snapshots(name, chance)
    world.members.hasten_snapshot(name)

    def mend() -> None:
        node = world.nodes.get(name)
        world.sometimes["metadata snapshot not written"] += (
            node is not None and node._snapshotting.failure != ""
        )
        world.members.mend_snapshots(name)

    world.after(step.for_ns, mend)
    return True


def _level_raise(world: World, step: Step, chance: random.Random) -> bool:
    """L7: some go back to the build before; an operator raises the level, and upgrades the nodes that refuse it."""
    Raiser(world, step.number, chance).begin()
    return True


# Faults of the leader, and of any members.


def _metadata_crash(world: World, step: Step, chance: random.Random) -> bool:
    return crash(world, _at_member(world, step), chance)


def _metadata_stall(world: World, step: Step, chance: random.Random) -> bool:
    """D11: the metadata member's disk makes nothing durable for a while, at times longer than any ttl."""
    return half_dead(world, _at_member(world, step), chance)


def _at_member(world: World, step: Step) -> Step:
    """A fault of metadata whose plan names no member strikes the first."""
    return step if step.target else dataclasses.replace(step, target=world.members.names[0])


def _at_leader(world: World, step: Step) -> Step:
    """The step aimed at the present leader; at the member of the plan when there is none."""
    return dataclasses.replace(step, target=world.members.leader or step.target)


def _leader_crash(world: World, step: Step, chance: random.Random) -> bool:
    return crash(world, _at_leader(world, step), chance)


def _leader_pause(world: World, step: Step, chance: random.Random) -> bool:
    """P4: also an application that holds the GIL beside it, for 2 s."""
    return pause(world, _at_leader(world, step), chance)


def _leader_stall(world: World, step: Step, chance: random.Random) -> bool:
    """D11: its disk alone stands still."""
    return half_dead(world, _at_leader(world, step), chance)


def _members_apart(world: World, step: Step, chance: random.Random) -> bool:
    """N5, N7: not every member reaches every other, in one of many shapes; clients and bookies reach all, or some."""
    names = list(world.members.names)
    chance.shuffle(names)
    shape, size = chance.choice(["split", "chain", "star", "alone", "any"]), len(names)
    cut = chance.randint(1, size - 1)

    def is_linked(one: int, other: int) -> bool:
        if shape == "split":
            return (one < cut) == (other < cut)
        if shape == "chain":
            return abs(one - other) == 1
        if shape == "star":
            return 0 in (one, other)
        return (0 not in (one, other)) if shape == "alone" else chance.random() < 0.6

    pairs = []
    for one in range(size):
        for other in range(one + 1, size):
            if not is_linked(one, other):
                pairs += [(names[one], names[other]), (names[other], names[one])]
    if chance.random() < 0.5:
        for name in (*world.disks, *world.writings):
            for member in names:
                if chance.random() < 0.4:
                    pairs += [(name, member), (member, name)]
    return between(world, step, *pairs)


def _member_wipe(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its directory is empty when it starts again, so it is a member that the others do not know (P10.3)."""
    if not world.members.may_lose(step.target):
        return False
    world.members.wipe(step.target)
    world.after(step.for_ns, lambda: come_back(world, step.target))
    return True


def _member_old_disk(world: World, step: Step, chance: random.Random) -> bool:
    """D13: an older image of its whole directory takes its place, which nothing in it reveals."""
    name, members = step.target, world.members
    if name not in world.nodes or not members.may_forget(name):
        return False
    before, incarnation = members.copy(name), members.incarnation(name)

    def strike() -> None:
        if world.is_healed or members.incarnation(name) != incarnation or not members.may_forget(name):
            return
        if name in world.nodes:
            world.crash(name)
        members.put(name, before)

    world.after(step.for_ns, strike)
    return True


BEGIN: dict[str, Callable[[World, Step, random.Random], bool]] = {
    "metadata-crash": _metadata_crash, "metadata-stall": _metadata_stall,
    "leader-crash": _leader_crash, "leader-pause": _leader_pause, "leader-stall": _leader_stall,
    "member-crash": crash, "member-pause": pause, "member-slow": slow,
    "members-apart": _members_apart, "member-one-way": one_way,
    "member-wipe": _member_wipe, "member-old-disk": _member_old_disk,
    "voters-change": _voters_change, "member-rejoin": _member_rejoin, "joint-wipe": _joint_wipe,
    "joint-crash": _joint_crash, "beside-pause": _beside_pause, "slow-follower": _slow_follower,
    "follower-old-disk": _follower_old_disk, "member-duplication": _member_duplication,
    "member-slow-apply": _member_slow_apply, "level-raise": _level_raise,
    "snapshot-fails": _snapshot_fails,
    "member-copy": _member_copy, "member-torn": _member_torn, "member-flip": _member_flip,
}  # fmt: skip
