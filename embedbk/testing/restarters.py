"""Operators who restart the nodes of a healed world one after another beside a writer, by the rules of production
(P11.3, repair/restarting.py).

Bookies stop in good order or are killed, members are killed; a command may end before its node serves again. No append
fails or is lost, and none waits for longer than its time limit. Where a node may not stop the run ends there, with the
reason. In some runs the writer closes its ledger now and then and goes on in another: whoever was away then lacks its
entries, and while it does no other node may stop whose copies are needed. That is looked up in the bookies' storage
whenever a bookie is stopped.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from embedbk.client.restarting import look_at_nodes
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.lost_entries import is_lost
from embedbk.codec.quorum_messages import MemberName, TransferLeadership
from embedbk.config import Quorum
from embedbk.core.creation import Creation
from embedbk.errors import EmbedbkError, MetadataUnavailable, NotEnoughBookies, UsageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.writing import Writing
from embedbk.ids import Member
from embedbk.metadata.levels import LEVEL_OF_HOLDINGS
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
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.differing_copies import closed_ledgers, copies_owed
from embedbk.testing.drainers import able_bookies
from embedbk.testing.healers import has_copy
from embedbk.testing.operator import Operator
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, close_writing, write_ledger

__all__ = ["Restarters"]

READY_NS = 20 * SECOND
WAITS_NS, BACK_NS = (5 * SECOND, 60 * SECOND), 60 * SECOND
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
        own = random.Random(f"restarters that wait {world.seed}")
        self._wait_ns = own.choice(WAITS_NS)
        self._entries_max = own.choice([1_000_000, 3, 20])  # Of one ledger of the writer.
        self._closed: frozenset[int] = frozenset()  # Ledgers that were CLOSED when the last look began.

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
            # One that runs on an empty disk instead of its own does not start again, in these worlds.
            bookies = tuple(name for name in able_bookies(world) if name not in world.lost)
            names = bookies + (tuple(there) if len(there) > 1 else ())
            try:
                self._note_closed(runtime)
                seen = yield from awaited(runtime, look_at_nodes(runtime, None))
                if names and self._chance.random() < 0.7:  # Else the first that may not stop is the last.
                    not_now = dict(plan_of(seen, RestartOptions(self._wait_ns, BACK_NS, names)).not_now)
                    names = tuple(name for name in names if name not in not_now)
                if not names:
                    return
                machine = Restarting(RestartOptions(self._wait_ns, BACK_NS, names))
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
                self._note_closed(runtime)
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
        self._check_copies(name)
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

    def _note_closed(self, runtime: SimRuntime) -> None:
        """Bookies are asked what they hold of these; below the level of that question only metadata tells (P10.8)."""
        closed = closed_ledgers(self._world) if runtime.has_level(LEVEL_OF_HOLDINGS) else ()
        self._closed = frozenset(each.ledger_id for each in closed)

    def _check_copies(self, name: str) -> None:
        """P11.3: of each entry of a CLOSED ledger that this node owes, Qa other bookies that are there hold a copy."""
        world = self._world
        nodes = {
            Member(each, node.storage.incarnation): node.storage
            for each, node in world.nodes.items()
            if isinstance(node, BookieNode) and each != name
        }
        for metadata in closed_ledgers(world):
            if metadata.ledger_id not in self._closed:
                continue
            for entry_id, members in copies_owed(metadata):
                if all(member.bookie_id != name for member in members) or is_lost(metadata.lost, entry_id):
                    continue
                copies = sum(
                    member in nodes and has_copy(nodes[member], metadata.ledger_id, entry_id)
                    for member in members
                )
                if copies < metadata.quorum.ack_quorum:
                    told = f"entry {entry_id} of ledger {metadata.ledger_id} has {copies} copies left"
                    raise Violation("P11.3", f"{name} was allowed to stop, and {told}")

    def _append(self, client: str, quorum: Quorum) -> Steps:
        """To one ledger after another, while nodes are restarted; then all of it is read."""
        world, node = self._world, self._world.nodes[client]
        made: list[tuple[int, int]] = []
        while not self._is_over:
            yield Until(lambda: node.is_ready and len(able_bookies(world)) >= quorum.ensemble_size, READY_NS)
            if len(node.bookies) < quorum.ensemble_size and not made:
                return
            chance = random.Random(self._chance.getrandbits(63))
            try:
                metadata, revision = yield from workload.result_of(
                    world, client, Creation(quorum, b"", 0, {}, node.bookies, chance)
                )
            except (MetadataUnavailable, NotEnoughBookies):
                if not made:
                    raise
                yield Sleep(SECOND)  # A node that is restarted just now.
                continue
            made.append((metadata.ledger_id, (yield from self._append_to(client, metadata, revision))))
        for ledger_id, number in made:
            closed = yield from workload.recover(world, client, ledger_id)
            if closed is None or closed.last_entry is None:
                raise Violation("P11.3", f"ledger {ledger_id} is not closed behind restarts")
            found = yield from workload.read_range(world, client, closed, 0, closed.last_entry)
            if len(found) != number:
                raise Violation("P11.3", f"ledger {ledger_id}: {number} appended, {len(found)} read")

    def _append_to(self, client: str, metadata: LedgerMetadata, revision: int) -> Generator[Any, Any, int]:
        """As many entries as one ledger gets; how many."""
        world = self._world
        writing = write_ledger(world, client, metadata, revision, add_timeout_ns=5 * SECOND)
        number = 0
        while not self._is_over and number < self._entries_max:
            entry_id = append(world, client, writing, b"beside restarts %d" % number)
            told = entry_id is not None and (yield _has_ended(writing, entry_id))
            if not told or writing.error is not None:
                raise Violation(
                    "P11.3", f"ledger {metadata.ledger_id}: append {number} beside restarts: {writing.error}"
                )
            number += 1
            yield Sleep(self._chance.choice([1, 20, 200]) * MS)
        close_writing(world, client, writing)
        yield Until(writing.closed.done, 2 * APPEND_NS)
        return number


def _has_ended(writing: Writing, entry_id: int) -> Until:
    return Until(lambda: writing.lac >= entry_id or writing.error is not None, APPEND_NS)
