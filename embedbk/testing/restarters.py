"""Operators who restart the nodes of a healed world one after another beside a writer, by the rules of production
(P11.3, repair/restarting.py).

Bookies stop in good order or are killed, members are killed; a command may end before its node serves again. No append
fails or is lost, and none waits for longer than its time limit. Where a node may not stop the run ends there, with the
reason.
"""

from __future__ import annotations

import random

from embedbk.client.restarting import look_at_nodes
from embedbk.codec.quorum_messages import MemberName, TransferLeadership
from embedbk.config import Quorum
from embedbk.core.creation import Creation
from embedbk.errors import EmbedbkError, UsageError
from embedbk.host.operations import Writing
from embedbk.repair.restarting import (
    ClusterLooked,
    CommandEnded,
    Effect,
    HandOver,
    LookAgain,
    LookFailed,
    Restart,
    Restarting,
    RestartOptions,
    RunEnded,
    plan_of,
)
from embedbk.testing import process_faults, workload
from embedbk.testing.drainers import able_bookies
from embedbk.testing.operator import Operator
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import MS, SECOND, Sleep, Steps, Until, World

__all__ = ["Restarters"]

READY_NS = 20 * SECOND
WAIT_NS, BACK_NS = 5 * SECOND, 60 * SECOND
LOOK_NS = 200 * MS
APPEND_NS = 30 * SECOND
RUN_NS = 900 * SECOND
OPERATOR_NUMBER = 1_000  # No plan has so many steps.


class Restarters:
    """The restarters of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"restarters {world.seed}")
        self._is_over = False
        self._effects: list[Effect] = []

    def check(self, quorum: Quorum) -> None:
        """P11.3: no append fails, and none is lost, while node after node is restarted."""
        world = self._world
        for name in ("restarter", "beside-restarts"):
            world.start_client(name)
        run = world.spawn("restarter", self._restart_all("restarter"))
        writer = world.spawn("beside-restarts", self._append("beside-restarts", quorum))
        is_over = world.run_until(lambda: run.is_over and writer.is_over, RUN_NS)
        for actor in (run, writer):
            if not is_over or actor.error is not None:
                raise Violation("P11.3", f"{actor.client} beside rolling restarts: {actor.error}")

    def _restart_all(self, client: str) -> Steps:
        world, node = self._world, self._world.nodes[client]
        try:
            yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
            runtime = SimRuntime(world, client, node)
            there = [name for name in world.members.voters if name in world.nodes]
            names = tuple(able_bookies(world)) + (tuple(there) if len(there) > 1 else ())
            try:
                seen = yield from awaited(runtime, look_at_nodes(runtime, None))
                if names and self._chance.random() < 0.7:  # Else the first that may not stop is the last.
                    not_now = dict(plan_of(seen, RestartOptions(WAIT_NS, BACK_NS, names)).not_now)
                    names = tuple(name for name in names if name not in not_now)
                if not names:
                    return
                machine = Restarting(RestartOptions(WAIT_NS, BACK_NS, names))
                effects = machine.step(ClusterLooked(world.now_ns, seen))
            except UsageError as refused:
                world.note(f"{client}: {refused}")
                return
            while effects:
                now: list[Effect] = []
                for effect in effects:
                    now += yield from self._carry_out(runtime, machine, effect)
                effects = now
        finally:
            self._is_over = True

    def _carry_out(self, runtime: SimRuntime, machine: Restarting, effect: Effect) -> workload.Asking:
        world = self._world
        match effect:
            case LookAgain(asks):
                yield Sleep(LOOK_NS)
                try:
                    seen = yield from awaited(runtime, look_at_nodes(runtime, asks))
                except EmbedbkError as unknown:
                    return machine.step(LookFailed(world.now_ns, str(unknown)))
                return machine.step(ClusterLooked(world.now_ns, seen))
            case HandOver(to):
                yield from self._hand_over(to)
            case Restart(name):
                yield from self._restart(name)
                return machine.step(CommandEnded(world.now_ns, ""))
            case RunEnded(report):
                if report.is_done and len(report.done) > 1:
                    world.sometimes["rolled through"] += 1
                world.note(f"restarted: {report}")
        return []

    def _hand_over(self, to: MemberName) -> Steps:
        world = self._world
        leader = world.members.leader
        if leader is not None:
            operator = Operator(world, OPERATOR_NUMBER, self._chance)
            yield from operator.ask([f"sim://{leader}"], TransferLeadership(to))
            world.sometimes["leader handed over for a restart"] += 1

    def _restart(self, name: str) -> Steps:
        """Its process ends; the command may end before the next one serves."""
        world = self._world
        old = world.nodes.get(name)
        if old is None:
            return
        if name in world.disks and self._chance.random() < 0.5:
            world.stop(name)
            yield Until(lambda: world.nodes.get(name) is not old, READY_NS)
        else:
            world.crash(name)
        down_ns = self._chance.choice([1, 50, 400, 3_000]) * MS
        if self._chance.random() < 0.3:
            world.after(down_ns, lambda: process_faults.restart(world, name))
            return
        yield Sleep(down_ns)
        process_faults.restart(world, name)

    def _append(self, client: str, quorum: Quorum) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready and len(able_bookies(world)) >= quorum.ensemble_size, READY_NS)
        if len(node.bookies) < quorum.ensemble_size:
            return
        chance = random.Random(self._chance.getrandbits(63))
        metadata, revision = yield from workload.result_of(
            world, client, Creation(quorum, b"", 0, {}, node.bookies, chance)
        )
        writing = world.write_ledger(client, metadata, revision, add_timeout_ns=5 * SECOND)
        number = 0
        while not self._is_over:
            entry_id = world.append(client, writing, b"beside restarts %d" % number)
            told = entry_id is not None and (yield _has_ended(writing, entry_id))
            if not told or writing.error is not None:
                raise Violation(
                    "P11.3", f"ledger {metadata.ledger_id}: append {number} beside restarts: {writing.error}"
                )
            number += 1
            yield Sleep(self._chance.choice([1, 20, 200]) * MS)
        world.close_writing(client, writing)
        yield Until(writing.closed.done, 2 * APPEND_NS)
        closed = yield from workload.recover(world, client, metadata.ledger_id)
        if closed is None or closed.last_entry is None:
            raise Violation("P11.3", f"ledger {metadata.ledger_id} is not closed behind restarts")
        found = yield from workload.read_range(world, client, closed, 0, closed.last_entry)
        if len(found) != number:
            raise Violation("P11.3", f"ledger {metadata.ledger_id}: {number} appended, {len(found)} read")


def _has_ended(writing: Writing, entry_id: int) -> Until:
    return Until(lambda: writing.lac >= entry_id or writing.error is not None, APPEND_NS)
