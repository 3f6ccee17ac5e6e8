"""Operators who drain bookies, cancel drains under all faults, and remove one bookie at the end (P11.3).

They use the commands of production. While faults act, drains begin, are refused, are cancelled and overlap, as writers,
creators, recoverers and repair continue. When everything was read, a bookie is drained whole while a client makes one
ledger after another, and is decommissioned: within a while no ledger names it (L9), and its process ends.
`invariants_placement` judges which bookies no ledger may newly name. Before that an operator asks which nodes may stop,
stops them, and reads everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from embedbk.client import creating
from embedbk.client.bookie_reports import report_on
from embedbk.client.creating import traits_of
from embedbk.client.draining import cancel_drain, drain
from embedbk.client.password import Password
from embedbk.client.read_only import put_to_read_only
from embedbk.client.retiring import decommission
from embedbk.client.stopping import may_stop
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, ledger_of_key
from embedbk.codec.registration import (
    BOOKIES_PREFIX,
    PLACEMENTS_PREFIX,
    PlacementNote,
    decode_placement,
    decode_registration,
)
from embedbk.config import Quorum
from embedbk.errors import EmbedbkError, NotEnoughBookies, StorageError, UsageError
from embedbk.metadata.levels import LEVEL_OF_DRAINS
from embedbk.testing import process_faults, workload
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Drainers", "able_bookies"]

READY_NS = 20 * SECOND
CANCELLED_NS = 120 * SECOND
MEANWHILE_NS = 300 * SECOND
# Grace, rounds, and a mark that may be postponed for five minutes, again behind a leader.
EMPTY_NS = 1_500 * SECOND
WHY = "another place"
_STAY = ("DELETED", "unreadable")


class Drainers:
    """The drainers of one world."""

    def __init__(self, world: World, for_ns: int) -> None:
        self._world = world
        self._chance = random.Random(f"drainers {world.seed}")
        self._until_ns = world.now_ns + for_ns
        self._is_over = False
        self._may_stop: list[str] = []  # Bookies, as a client saw them.
        self._left = ""  # The reasons why a bookie cannot go yet.
        self.is_active = self._chance.random() < 0.5
        if self.is_active:
            world.start_client("drainer")
            world.spawn("drainer", self._operate("drainer"))

    def _operate(self, client: str) -> Steps:
        world, chance, node = self._world, self._chance, self._world.nodes[client]
        yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
        runtime = SimRuntime(world, client, node)
        # In half of the worlds, by draws of their own: the others stay as they were.
        words = random.Random(f"read-only words {world.seed}")
        is_wordy = words.random() < 0.5
        while world.now_ns < self._until_ns and not world.is_healed:
            bookie_id = chance.choice(sorted(world.disks))
            if words.random() < 0.8 * is_wordy:
                yield from self._put_to_read_only(runtime, bookie_id, is_over=words.random() < 0.4)
            try:
                yield from awaited(runtime, drain(runtime, bookie_id, why=WHY))
            except NotEnoughBookies:
                world.sometimes["drain refused"] += 1
            except EmbedbkError as error:
                world.note(f"{client}: {error}")
            yield Sleep(chance.choice([1, 50, 400, 1_500]) * MS)
            # A drain that was on its way when faults stopped is seen by nobody who cancels them then.
            if world.is_healed or chance.random() < 0.6:
                try:
                    yield from awaited(runtime, cancel_drain(runtime, bookie_id))
                except EmbedbkError as error:
                    world.note(f"{client}: {error}")
            while world.is_healed and bookie_id in self._read_only():  # Likewise.
                yield from self._put_to_read_only(runtime, bookie_id, is_over=True)
                yield Sleep(50 * MS)

    def _put_to_read_only(self, runtime: SimRuntime, bookie_id: str, *, is_over: bool) -> Steps:
        try:
            yield from awaited(runtime, put_to_read_only(runtime, bookie_id, why=WHY, is_over=is_over))
        except EmbedbkError as error:
            self._world.note(f"{bookie_id} read-only: {error}")

    # Once faults have stopped.

    def settle(self) -> None:
        """Cancel every drain: clients that need bookies find all of them."""
        if not self.is_active:
            return
        world = self._world
        world.start_client("undrainer")
        actor = world.spawn("undrainer", self._cancel_all("undrainer"))
        if not world.run_until(lambda: actor.is_over, CANCELLED_NS) or actor.error is not None:
            raise Violation("P11.3", f"drains are not cancelled: {actor.error}")

    def _cancel_all(self, client: str) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready, READY_NS)
        runtime = SimRuntime(world, client, node)
        while drained := self._drained():
            try:
                yield from awaited(runtime, cancel_drain(runtime, drained[0]))
            except EmbedbkError as error:
                world.note(f"{client}: {error}")
            yield Sleep(50 * MS)
        while closed := self._read_only():
            yield from self._put_to_read_only(runtime, closed[0], is_over=True)
            yield Sleep(50 * MS)
        yield Until(lambda: not any(each.is_leaving for each in node.bookies), READY_NS)

    def _drained(self) -> list[str]:
        return self._put_away(lambda note: note.is_draining)

    def _read_only(self) -> list[str]:
        return self._put_away(lambda note: note.read_only is not None)

    def _put_away(self, is_meant: Callable[[PlacementNote], bool]) -> list[str]:
        found: list[str] = []
        for key, value in self._world.committed(PLACEMENTS_PREFIX).items():
            try:
                if is_meant(decode_placement(value)):
                    found.append(key.removeprefix(PLACEMENTS_PREFIX))
            except StorageError:
                found.append(key.removeprefix(PLACEMENTS_PREFIX))
        return found

    def check(self, quorum: Quorum) -> None:
        """L9, P11.3: a bookie is emptied and goes, whatever is made meanwhile."""
        world = self._world
        if self.is_active and not {"copy damaged", "disk harmed", "disk lost"} & {*+world.sometimes}:
            self._stop_some()
        able = able_bookies(self._world)
        if not self.is_active or not able:
            return
        victim = self._chance.choice(able)
        world.start_client("remover-of-bookies")
        if len(able) > quorum.ensemble_size:
            world.start_client("maker")
            world.spawn("maker", self._make("maker", quorum))
        actor = world.spawn("remover-of-bookies", self._remove("remover-of-bookies", victim))
        is_over = world.run_until(lambda: actor.is_over, EMPTY_NS)
        self._is_over = True
        if not is_over or actor.error is not None:
            raise Violation("L9", f"{victim} is not emptied and removed: {actor.error}; {self._left}")
        world.run_for(2 * SECOND)  # The maker comes to its end.

    def _stop_some(self) -> None:
        """The nodes that may stop do so: meanwhile every ledger is recovered and read (P11.3)."""
        world = self._world
        able = able_bookies(self._world)
        tries = [
            self._chance.sample(able, min(len(able), 2)),
            *([each] for each in self._chance.sample(able, len(able))),
        ]
        world.start_client("planner")
        actor = world.spawn("planner", self._ask("planner", tries))
        if not world.run_until(lambda: actor.is_over, READY_NS) or actor.error is not None:
            raise Violation("P11.3", f"whether {able} may stop is not told: {actor.error}")
        asked = self._may_stop
        if not asked:
            return
        for name in asked:
            world.crash(name)
        world.start_client("meanwhile")
        actor = world.spawn("meanwhile", self._read_all("meanwhile"))
        if not world.run_until(lambda: actor.is_over, MEANWHILE_NS) or actor.error is not None:
            raise Violation("P11.3", f"{asked} might stop, and meanwhile: {actor.error}")
        world.sometimes["stopped by leave"] += 1
        for name in asked:
            process_faults.restart(world, name)
        world.run_until(lambda: set(able) <= set(able_bookies(self._world)), READY_NS)

    def _ask(self, client: str, tries: list[list[str]]) -> Steps:
        node = self._world.nodes[client]
        yield Until(lambda: node.is_ready, READY_NS)
        runtime = SimRuntime(self._world, client, node)
        for asked in tries:
            verdict = yield from awaited(runtime, may_stop(runtime, asked, is_for_good=False))
            if verdict.is_safe:
                self._may_stop = asked
                return
            self._world.sometimes["not to be stopped"] += 1

    def _read_all(self, client: str) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
        for key in sorted(world.committed(LEDGERS_PREFIX)):
            ledger_id = ledger_of_key(key)
            closed = None if ledger_id is None else (yield from workload.recover(world, client, ledger_id))
            if closed is not None and closed.last_entry is not None:
                found = yield from workload.read_range(world, client, closed, 0, closed.last_entry)
                if len(found) != closed.last_entry + 1:
                    raise Violation("I5", f"ledger {ledger_id}: {len(found)} entries are read")

    def _remove(self, client: str, victim: str) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready, READY_NS)
        runtime = SimRuntime(world, client, node)
        yield from awaited(runtime, runtime.get("/nothing", "the level"))
        if not runtime.has_level(LEVEL_OF_DRAINS):
            return
        # One that registered while the metadata was full has its placement soon (P10.6).
        yield Until(
            lambda: any(each.member.bookie_id == victim and each.placement for each in node.bookies), READY_NS
        )
        try:
            report = yield from awaited(runtime, drain(runtime, victim, why=WHY))
        except NotEnoughBookies:
            world.sometimes["drain refused"] += 1
            return
        while not report.is_empty:
            self._left = "; ".join(f"{each.ledger_id}: {each.waits_for}" for each in report.ledgers[:3])
            if all(each.state in _STAY or "cannot be copied" in each.waits_for for each in report.ledgers):
                yield from awaited(runtime, cancel_drain(runtime, victim))
                return  # A deleted ledger's grace is longer than a run; a ledger that cannot be read or repaired stays.
            yield Sleep(SECOND)
            report = yield from awaited(runtime, report_on(runtime, victim))
        world.sometimes["drained bookie empty"] += 1
        try:
            yield from awaited(runtime, decommission(runtime, victim))
        except UsageError as refused:
            world.note(f"{client}: {refused}")
            return  # An id is spared, say.
        world.sometimes["bookie decommissioned"] += 1
        gone = world.nodes[victim]
        yield Until(lambda: gone.failure is not None, READY_NS)
        if gone.failure is None:
            raise Violation("P11.3", f"{victim} was decommissioned, and serves on")

    def _make(self, client: str, quorum: Quorum) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
        runtime = SimRuntime(world, client, node)
        traits = traits_of(runtime, "synced", None, delays_change=False, digest="crc32c")
        while not self._is_over:
            try:
                made = yield from awaited(
                    runtime, creating.create(runtime, quorum, Password(b""), {}, traits)
                )
                yield from awaited(runtime, made.close())
            except EmbedbkError as error:
                world.note(f"{client}: {error}")
            yield Sleep(self._chance.choice([1, 30, 300]) * MS)


def able_bookies(world: World) -> list[str]:
    """Bookies that run and are listed as writable."""
    found = list[str]()
    for key, value in world.committed(BOOKIES_PREFIX).items():
        name = key.removeprefix(BOOKIES_PREFIX)
        try:
            if name in world.nodes and decode_registration(value, name).is_writable:
                found.append(name)
        except StorageError:
            continue
    return found
