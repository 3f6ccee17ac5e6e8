"""Operators who declare the directories of a bookie gone for good, at the end of a run (P7.2, P11.5).

They use the commands of production. While the bookie is registered each of them is refused. Then it dies; by `gone` its
directories are retired and refused when they come back, by `replace` its id is free as well, and an empty disk joins
under it. In both cases every ledger has all of its copies again within a while (L9). Of a ledger that had some entries
on that bookie alone these are given up, and a reader is told exactly which (`invariants_life.lost_is_lost`).
"""

from __future__ import annotations

import contextlib
import random
from functools import partial

from embedbk.client import deleting
from embedbk.client.batches import entries_of
from embedbk.client.bookie_reports import report_on
from embedbk.client.giving_up import give_up, lost_entries
from embedbk.client.password import Password
from embedbk.client.reading import LedgerReading
from embedbk.client.retiring import retire
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, decode_ledger_metadata, ledger_key_path
from embedbk.codec.registration import BOOKIES_PREFIX, registration_path
from embedbk.config import Quorum
from embedbk.core.creation import Creation
from embedbk.errors import Lost, RecoveryInconclusive, StorageError, UsageError
from embedbk.host.writing import Writing
from embedbk.metadata.levels import LEVEL_OF_DRAINS, LEVEL_OF_LOSSES
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import SECOND
from embedbk.testing.drainers import able_bookies
from embedbk.testing.healers import Healers
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.workload import result_of
from embedbk.testing.world import World
from embedbk.testing.writing_handles import append, close_writing, write_ledger

__all__ = ["Retirers"]

READY_NS = 20 * SECOND
RETIRED_NS = 300 * SECOND
WHY = "its disks burnt"
ENTRIES = 7
NARROW = Quorum(2, 1, 1)  # Each entry is on one bookie alone.
_HARMED = {"copy damaged", "disk harmed", "disk lost"}


async def _read(runtime: Runtime, ledger_id: int) -> tuple[list[int], list[int]]:
    """The entries that are read, and those that are reported lost."""
    given: list[int] = []
    lost: list[int] = []
    reading = await LedgerReading.open(runtime, ledger_id, Password(b""), recover=False)
    place = 0
    while place < ENTRIES:
        try:
            async for located in reading.frames(place, ENTRIES - 1):
                given += [entry.entry_id for entry in entries_of(located)]
            place = ENTRIES
        except Lost as gap:
            lost += range(gap.first_entry, gap.last_entry + 1)
            place = gap.next_offset
    reading.close()
    return given, lost


def _is_written(writing: Writing) -> bool:
    return writing.lac == ENTRIES - 1 or writing.error is not None


class Retirers:
    """The retirers of one world."""

    def __init__(self, world: World, healers: Healers) -> None:
        self._world, self._healers = world, healers
        self._chance = random.Random(f"retirers {world.seed}")
        self._retired = False
        self._narrow: int | None = None  # A ledger with entries that only the bookie has.

    def check(self, quorum: Quorum) -> None:
        """P11.5, L9: a bookie is lost for good, by a word, and nothing else is."""
        world = self._world
        able = able_bookies(self._world)
        if len(able) <= quorum.ensemble_size or self._healers.is_rotten_unseen():
            return
        victim = self._chance.choice(able)
        is_replaced = self._chance.random() < 0.5
        # Else accepting a loss would be one of other ledgers, too: visitors stage some of one copy.
        self._may_lose = self._has_copies() and not _HARMED & {*world.sometimes}
        world.start_client("retirer")
        actor = world.spawn("retirer", self._retire("retirer", victim, is_replaced=is_replaced))
        if not world.run_until(lambda: actor.is_over, RETIRED_NS) or actor.error is not None:
            raise Violation("P11.5", f"{victim} is not given up: {actor.error}")
        if not self._retired:
            return
        self._come_back(victim, is_replaced=is_replaced)
        left = self._healers.heal()
        if left:
            raise Violation("L9", f"{victim} is given up, and {'; '.join(left[:3])}")

    def _has_copies(self) -> bool:
        """Whether every entry has more than one."""
        for value in self._world.committed(LEDGERS_PREFIX).values():
            with contextlib.suppress(StorageError):  # A stranger's.
                if decode_ledger_metadata(value).quorum.write_quorum == 1:
                    return False
        return True

    def _retire(self, client: str, victim: str, *, is_replaced: bool) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready and bool(node.bookies), READY_NS)
        runtime = SimRuntime(world, client, node)
        yield from awaited(runtime, runtime.get("/nothing", "the level"))
        if not runtime.has_level(LEVEL_OF_DRAINS):
            return
        report = yield from awaited(runtime, report_on(runtime, victim))
        named = "" if is_replaced else report.incarnation
        if self._may_lose and runtime.has_level(LEVEL_OF_LOSSES):
            yield from self._make_narrow(runtime, client, victim)
        world.crash(victim)
        if self._narrow is not None:
            try:
                yield from awaited(runtime, lost_entries(runtime, self._narrow, Password(b"")))
            except RecoveryInconclusive:
                world.sometimes["not given up while it may come back"] += 1
        while not self._retired:
            try:
                yield from awaited(
                    runtime, retire(runtime, victim, named, why=WHY, accepts_loss=self._narrow is not None)
                )
            except UsageError as refused:
                if registration_path(victim) not in world.committed(BOOKIES_PREFIX):
                    world.note(f"{client}: {refused}")  # Some ledger has no other copy there.
                    world.start_bookie(victim)
                    return
                if victim in world.nodes:  # The world has started it again.
                    world.crash(victim)
                world.sometimes["registered bookie not given up"] += 1
                yield Sleep(SECOND)
            else:
                self._retired = True
        if self._narrow is not None:
            shown = yield from awaited(runtime, lost_entries(runtime, self._narrow, Password(b"")))
            yield from awaited(runtime, give_up(runtime, shown, why=WHY))
            given, lost = yield from awaited(runtime, _read(runtime, self._narrow))
            if sorted([*given, *lost]) != list(range(ENTRIES)) or len(lost) != shown.entry_count:
                raise Violation("P11.5", f"ledger {self._narrow}: {given} are read, {lost} are lost")
            world.sometimes["lost entries passed over"] += 1

    def _make_narrow(self, runtime: SimRuntime, client: str, victim: str) -> Steps:
        """A closed ledger of which the bookie has some entries alone."""
        world, node = self._world, self._world.nodes[client]
        for _ in range(20):
            chance = random.Random(self._chance.getrandbits(63))
            metadata, revision = yield from result_of(
                world, client, Creation(NARROW, Password(b"").verifier, 0, {}, node.bookies, chance)
            )
            writing = write_ledger(world, client, metadata, revision)
            for number in range(ENTRIES):
                append(world, client, writing, b"narrow %d" % number)
            yield Until(partial(_is_written, writing), READY_NS)
            close_writing(world, client, writing)
            yield Until(writing.closed.done, READY_NS)
            # Its seats are as they were made, or it is left alone.
            value = world.committed(LEDGERS_PREFIX)[ledger_key_path(metadata.ledger_id)]
            found = decode_ledger_metadata(value, metadata.ledger_id)
            seats = [member.bookie_id for each in found.fragments for member in each.members]
            if found.last_entry == ENTRIES - 1 and len(found.fragments) == 1 and victim in seats:
                self._narrow = metadata.ledger_id
                return
            yield from awaited(
                runtime, deleting.delete(runtime, metadata.ledger_id, Password(b""), force=True)
            )

    def _come_back(self, victim: str, *, is_replaced: bool) -> None:
        """Its old directories are refused; under the id that is free again empty ones are not."""
        world = self._world
        if victim not in world.nodes:
            world.start_bookie(victim)
        back = world.nodes[victim]
        if not world.run_until(lambda: back.failure is not None, READY_NS):
            raise Violation("P11.5", f"{victim} serves in directories that were given up")
        world.sometimes["given up directories refused"] += 1
        if not is_replaced:
            return
        world.lose_disk(victim)
        world.start_bookie(victim)
        if not world.run_until(lambda: victim in able_bookies(self._world), READY_NS):
            raise Violation("P7.2", f"{victim} was replaced, and its empty directories do not join")
        world.sometimes["bookie replaced"] += 1
