"""The faults by name (TESTING.md, section 5): how each begins in a world, and how it ends.

Decides nothing of when and whom: that is the plan's (plan.py), or a test's. Every fault ends by itself, or at `heal`.
Targeted rules stand beside: `lose(world, kind="AddAnswer", node="b2", nth=3)` hits exactly one message.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from embedbk.codec.messages import AddAnswers, Message, decode_message, split_bundle
from embedbk.errors import PeerError
from embedbk.storage.journal import DamagedJournal, UnreadableJournal
from embedbk.testing import member_faults, scarcity, stranger
from embedbk.testing.disks import NativeDisk
from embedbk.testing.member_names import METADATA
from embedbk.testing.plan import MS, SECOND, Step
from embedbk.testing.raising import upgrade_all
from embedbk.testing.world import World
from embedbk.transports.sim import CALM, DROP, Rule, Treatment

__all__ = ["begin", "heal", "restart", "rule_for"]


def rule_for(
    verdict: Treatment,
    *,
    kind: str = "",
    sender: str = "",
    receiver: str = "",
    ledger_id: int | None = None,
    nth: int = 0,
) -> Rule:
    """A rule for `SimNetwork.add_rule`: the verdict for messages of this kind (the control's class name: AddRequest,
    FenceAnswer ...), from, to, of this ledger; nth: only the nth of them (1 is the first), 0: all."""
    seen = 0

    def is_meant(message: Message) -> bool:
        names = (type(message.control).__name__, _SINGLE.get(type(message.control)))
        return (not kind or kind in names) and (ledger_id is None or ledger_id in _ledgers(message))

    def judge(come_from: str, go_to: str, body: bytes) -> Treatment | None:
        nonlocal seen
        if (sender and sender != come_from) or (receiver and receiver != go_to):
            return None
        if kind or ledger_id is not None:
            try:
                messages = [decode_message(part) for part in split_bundle(memoryview(body))]
                if not any(is_meant(message) for message in messages):
                    return None
            except PeerError:  # Whole, or the answers in it.
                return None
        seen += 1
        return verdict if nth in (0, seen) else None

    return judge


_SINGLE: dict[type, str] = {
    AddAnswers: "AddAnswer"
}  # A message with several of a kind is also one of that kind.


def _ledgers(message: Any) -> list[int]:
    if isinstance(message.control, AddAnswers):
        return [answer.ledger_id for _, answer in message.control.unpack()]
    named = getattr(message.control, "ledger_id", None)
    return [header.ledger_id for header, _ in message.frames] + ([named] if named is not None else [])


def begin(world: World, step: Step) -> None:
    """One fault of a plan, now; a target that is down or gone already is left alone."""
    world.note(f"fault {step}")
    if _BEGIN[step.kind](world, step, random.Random(step.seed)):
        world.faults_done[step.kind] += 1


def heal(world: World) -> None:
    """Everything that can come back comes back: network calm, nobody paused or slow, all but lost disks running."""
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
    world.sync_ns.clear()
    world.hurry_syncs()
    for name in sorted(world.paused):
        world.resume(name)
    upgrade_all(world)
    world.members.start_all()
    for name, disk in world.disks.items():
        disk.calm()
        if name in world.nodes:
            disk.fill(False)
            world.nodes[name].waiting.has_room = world.nodes[name].has_room
            world.nodes[name].core.is_writable = world.nodes[name].core.failure is None
            world._wake(name)
            is_over = world.nodes[name].failure is not None or world.nodes[name].is_leaving
            if is_over and name not in world.lost:
                world.crash(name)
        if name not in world.nodes and name not in world.lost:
            disk.fill(False)
            restart(world, name)
    world.tell("on_healed")


# --- Processes ---------------------------------------------------------------------------------------------


def restart(world: World, name: str) -> None:
    """Start a process that is down again, unless its disk is gone for good."""
    if name not in world.nodes:
        if name in world.members:
            world.members.start(name)
        elif name not in world.lost and not world.start_bookie(name) and world.disks[name].is_harmed:
            _go_on_behind(world, name)


def _come_back(world: World, name: str) -> None:
    """A fault is over. Once all have stopped everybody is back, and whoever is down again has another reason."""
    if not world.is_healed:
        restart(world, name)


def _go_on_behind(world: World, name: str) -> None:
    """A harmed disk was refused: it is lost, or its owner gives the word to go on behind a damaged journal (P7.4)."""
    if isinstance(world.refused[name], DamagedJournal | UnreadableJournal) and world.chance.random() < 0.5:
        world.doubt(name)
        if world.start_bookie(name):
            return
    world.lost[name] = None


def _crash(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.nodes:
        return False
    world.crash(step.target)
    world.after(step.for_ns, lambda: _come_back(world, step.target))
    return True


def _stop(world: World, step: Step, chance: random.Random) -> bool:
    """P1: in good order."""
    if step.target not in world.nodes or step.target in world.paused:
        return False
    world.stop(step.target)

    def again() -> None:
        if step.target in world.nodes and world.nodes[step.target].is_leaving:
            world.crash(step.target)  # It stood still meanwhile.
        restart(world, step.target)

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
        world.after(chance.randint(1, 50) * MS, lambda: _come_back(world, step.target))
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
        world.after(step.for_ns + chance.randint(0, 20) * MS, lambda name=name: _come_back(world, name))  # type: ignore[misc]
    return bool(down)


def _metadata_crash(world: World, step: Step, chance: random.Random) -> bool:
    return _crash(world, _at_member(world, step), chance)


def _at_member(world: World, step: Step) -> Step:
    """A fault of metadata whose plan names no member strikes the first."""
    return step if step.target else dataclasses.replace(step, target=world.members.names[0])


def _writer_crash(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.nodes:
        return False
    world.crash(step.target)
    return True


def _pause(world: World, step: Step, chance: random.Random) -> bool:
    name = step.target
    if name not in world.nodes or name in world.paused:
        return False
    node = world.nodes[name]
    world.pause(name)
    world.after(step.for_ns, lambda: world.resume(name) if world.nodes.get(name) is node else None)
    return True


def _slow_seat(world: World, step: Step, chance: random.Random) -> bool:
    """P4: a bookie that a writer has seated stands still for 0.2 to 3 s: what is kept for it comes to its bound."""
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
    return _pause(world, dataclasses.replace(step, target=name, for_ns=for_ns), chance)


def _slow(world: World, step: Step, chance: random.Random) -> bool:
    world.slow_ns[step.target] = chance.choice([1, 10, 100]) * MS
    world.after(step.for_ns, lambda: world.slow_ns.pop(step.target, None))
    return True


def _half_dead(world: World, step: Step, chance: random.Random) -> bool:
    """P6: the thread that syncs stands still, the rest of the process works."""
    return _slow_disk(world, step, chance, (step.for_ns, step.for_ns + 1))


# --- Network -----------------------------------------------------------------------------------------------


def _between(world: World, step: Step, *pairs: tuple[str, str]) -> bool:
    for sender, receiver in pairs:
        world.network.block(sender, receiver)

    def end() -> None:
        if world.is_healed:
            return  # This has ended, and what is blocked now, somebody else has blocked.
        for sender, receiver in pairs:
            world.network.unblock(sender, receiver)

    world.after(step.for_ns, end)
    return True


def _partition(world: World, step: Step, chance: random.Random) -> bool:
    """N5: the target and perhaps others on one side, the rest on the other."""
    names = [*world.members.names, *world.disks, *world.writings]
    some = {step.target, *(name for name in names if chance.random() < 0.3)}
    others = [name for name in names if name not in some]
    pairs = [pair for one in sorted(some) for other in others for pair in ((one, other), (other, one))]
    return _between(world, step, *pairs)


def _clog(world: World, step: Step, chance: random.Random) -> bool:
    return _between(world, step, (step.target, step.other), (step.other, step.target))


def _one_way(world: World, step: Step, chance: random.Random) -> bool:
    return _between(world, step, (step.target, step.other))


def _silence(world: World, step: Step, chance: random.Random) -> bool:
    """N8: nothing leaves or reaches it, and nobody is told."""
    others = [name for name in (*world.members.names, *world.disks, *world.writings) if name != step.target]
    return _between(world, step, *[(step.target, o) for o in others], *[(o, step.target) for o in others])


def _chain(world: World, step: Step, chance: random.Random) -> bool:
    """N7: every client reaches only some bookies."""
    pairs = []
    for client in world.writings:
        for bookie in world.disks:
            if chance.random() < 0.4:
                pairs += [(client, bookie), (bookie, client)]
    return _between(world, step, *pairs)


def _with_rule(world: World, step: Step, rule: Rule) -> bool:
    world.network.add_rule(rule)
    world.after(step.for_ns, lambda: world.network.remove_rule(rule))
    return True


def _lose_nth(world: World, step: Step, chance: random.Random) -> bool:
    """N1, targeted: exactly one message of a kind, to or from one bookie."""
    kind = chance.choice(
        ["AddRequest", "AddAnswer", "FenceRequest", "FenceAnswer", "ReadRequest", "ReadAnswer", "LacAnswer"]
    )
    to_bookie = kind.endswith("Request")
    return _with_rule(
        world,
        step,
        rule_for(
            DROP,
            kind=kind,
            sender="" if to_bookie else step.target,
            receiver=step.target if to_bookie else "",
            nth=chance.randint(1, 4),
        ),
    )


def _misroute(world: World, step: Step, chance: random.Random) -> bool:
    """N12: an answer of another request comes in the place of the right one."""
    before: list[bytes] = []

    def swap(sender: str, receiver: str, body: bytes) -> Treatment | None:
        if sender != step.target or chance.random() > 0.1:
            return None
        other = before.pop() if before else None
        before.append(body)
        return Treatment(body=other) if other is not None else None

    return _with_rule(world, step, swap)


def _slow_receiver(world: World, step: Step, chance: random.Random) -> bool:
    """N10: it takes in so slowly that windows fill."""
    world.network.narrow[step.target] = chance.choice([2_000, 20_000])
    world.slow_ns[step.target] = 100 * MS

    def end() -> None:
        world.network.narrow.pop(step.target, None)
        world.slow_ns.pop(step.target, None)

    world.after(step.for_ns, end)
    return True


# --- Disks -------------------------------------------------------------------------------------------------


def _slow_disk(
    world: World, step: Step, chance: random.Random, sync_ns: tuple[int, int] = (20 * MS, 2 * SECOND)
) -> bool:
    world.sync_ns[step.target] = sync_ns
    world.after(step.for_ns, lambda: world.sync_ns.pop(step.target, None))
    return True


def _metadata_stall(world: World, step: Step, chance: random.Random) -> bool:
    """D11: the metadata member's disk makes nothing durable for a while, at times longer than any ttl."""
    return _half_dead(world, _at_member(world, step), chance)


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
    """D9: flushes, compactions and the journal's next files find no room; what is queued waits, and goes on."""
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
            world._wake(step.target)

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
        world.after(step.for_ns, lambda: _crash(world, step, chance) if not world.is_healed else None)
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
        world.after(chance.randint(1, 500) * MS, lambda: _come_back(world, name))

    world.after(step.for_ns, strike)
    return True


def _old_copy(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its disk is lost, and an older copy of it starts in its place, which is told so (P7.4)."""
    name = step.target
    if name in world.lost or name not in world.nodes:
        return False
    before, incarnation = world.disks[name].remember(), world.disks[name].incarnation

    def strike() -> None:
        if world.is_healed or name in world.lost or world.disks[name].incarnation != incarnation:
            return
        if name in world.nodes:
            world.crash(name)
        world.doubt(name, before)
        world.after(chance.randint(1, 500) * MS, lambda: _come_back(world, name))

    world.after(step.for_ns, strike)
    return True


def _older_metadata(world: World, step: Step, chance: random.Random) -> bool:
    """D13: a copy of the member's directory, which takes its place when the run is over (aftermath.py). Of several one
    older copy is a follower that is behind; all of them at once are no other case than the only one."""
    if len(world.members.names) > 1 or not scarcity.has_room(world):
        return False  # Nobody would make room in it again.
    world.metadata_copy = world.members.copy(METADATA)
    return True


def _older_disk(world: World, step: Step, chance: random.Random) -> bool:
    """D13: an older copy of its disk starts in its place, and nobody told it. The cluster knows of a later start: what
    a copy of the same start lacks is known only as far as it was told (P7.9)."""
    name = step.target
    if name in world.lost or name not in world.nodes:
        return False
    before, incarnation = world.disks[name].remember(), world.disks[name].incarnation
    world.crash(name)
    world.after(chance.randint(1, 100) * MS, lambda: _come_back(world, name))

    def strike() -> None:
        if world.is_healed or name in world.lost or world.disks[name].incarnation != incarnation:
            return
        if name not in world.nodes or not world.nodes[name].is_registered:
            return  # The cluster does not know yet that it started behind the copy.
        world.crash(name)
        world.restore(name, before)
        world.after(chance.randint(1, 500) * MS, lambda: _come_back(world, name))

    world.after(step.for_ns + 200 * MS, strike)
    return True


def _newest_gone(world: World, step: Step, chance: random.Random) -> bool:
    """D12: the newest file of its journal is gone, which the journal's own note tells (P7.9)."""
    name = step.target
    if name in world.lost or name not in world.nodes:
        return False
    world.crash(name)
    is_done = world.drop_newest(name)
    world.after(step.for_ns, lambda: _come_back(world, name))
    return is_done


def _clone(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its directories are copied, and both are started, in either order; or one beside it while it lives, or while
    it stands still, longer or shorter than it has to answer (P7.9)."""
    name, twins = step.target, world.twins
    if world.has_near:
        return False  # A loop stands still as a whole, and who stores there goes with it.
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
            _crash(world, step, chance)
        elif world.now_ns < give_up:
            world.after(MS // 4, look)

    look()
    return True


# --- Clocks ------------------------------------------------------------------------------------------------


def _jump(world: World, step: Step, chance: random.Random) -> bool:
    if step.target not in world.clocks:
        return False
    world.clocks[step.target].jump(world.now_ns, step.for_ns)
    if step.target in world.nodes:
        world._wake(step.target)
    return True


def _wall(world: World, step: Step, chance: random.Random) -> bool:
    """C1: no core reads a wall clock; the creation time of what is made from now on is another one."""
    world.wall_ms = chance.randint(0, 1 << 42)
    return True


def _stranger(world: World, step: Step, chance: random.Random) -> bool:
    """T10, P2.5: somebody says what no node says, and puts keys that are none of ours."""
    stranger.call_on(world, f"stranger-{step.number}", chance)
    return True


def _metadata_full(world: World, step: Step, chance: random.Random) -> bool:
    """D9: the catalog has no room, and what would grow it is refused."""
    return scarcity.fill_catalog(world, str(step.number), step.for_ns, chance)


def _metadata_crowd(world: World, step: Step, chance: random.Random) -> bool:
    """L13: more is asked of the metadata at once than it takes in: it says BUSY, and is asked again."""
    return scarcity.crowd(world)


# --- Metadata members --------------------------------------------------------------------------------------


def _at_leader(world: World, step: Step) -> Step:
    """Whoever leads now; the member of the plan when nobody does."""
    return dataclasses.replace(step, target=world.members.leader or step.target)


def _leader_crash(world: World, step: Step, chance: random.Random) -> bool:
    return _crash(world, _at_leader(world, step), chance)


def _leader_pause(world: World, step: Step, chance: random.Random) -> bool:
    """P4: also an application that holds the GIL beside it, for 2 s."""
    return _pause(world, _at_leader(world, step), chance)


def _leader_stall(world: World, step: Step, chance: random.Random) -> bool:
    """D11: its disk alone stands still."""
    return _half_dead(world, _at_leader(world, step), chance)


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
    return _between(world, step, *pairs)


def _member_wipe(world: World, step: Step, chance: random.Random) -> bool:
    """D13: its directory is empty when it starts again, so it is nobody whom the others know (P10.3)."""
    if not world.members.may_lose(step.target):
        return False
    world.members.wipe(step.target)
    world.after(step.for_ns, lambda: _come_back(world, step.target))
    return True


def _member_old_disk(world: World, step: Step, chance: random.Random) -> bool:
    """D13: an older image of its whole directory takes its place, which nothing in it tells."""
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


_BEGIN: dict[str, Callable[[World, Step, random.Random], bool]] = {
    "lose-nth": _lose_nth, "clog": _clog, "partition": _partition, "one-way": _one_way, "chain": _chain,
    "silence": _silence, "slow-receiver": _slow_receiver, "wipe": _wipe, "misroute": _misroute,
    "crash": _crash, "crash-loop": _crash_loop, "power-cut": _power_cut, "pause": _pause, "slow": _slow,
    "half-dead": _half_dead, "writer-crash": _writer_crash, "metadata-crash": _metadata_crash,
    "torn": _torn, "unreadable": _unreadable, "sync-fails": _sync_fails, "full": _full, "busy": _busy,
    "no-room": _no_room, "flush-fails": _flush_fails,
    "slow-disk": _slow_disk, "lost-disk": _lost_disk, "wall": _wall, "jump": _jump,
    "rot": _harm, "misdirected": _harm, "lost-write": _harm, "stale": _harm, "file-harm": _harm,
    "old-copy": _old_copy, "older-metadata": _older_metadata, "metadata-stall": _metadata_stall,
    "slow-seat": _slow_seat, "stranger": _stranger,
    "stop": _stop, "metadata-full": _metadata_full, "metadata-crowd": _metadata_crowd,
    "leader-crash": _leader_crash, "leader-pause": _leader_pause, "leader-stall": _leader_stall,
    "member-crash": _crash, "member-pause": _pause, "member-slow": _slow, "member-slow-disk": _slow_disk,
    "members-apart": _members_apart, "member-one-way": _one_way,
    "member-wipe": _member_wipe, "member-old-disk": _member_old_disk,
    "older-disk": _older_disk, "newest-gone": _newest_gone, "clone": _clone,
    **member_faults.BEGIN,
}  # fmt: skip
