"""Users who give a log of a healed world other numbers of copies, up and down, and what becomes of its closed ledgers
(P2.6, L17).

Healers find and copy them, as in production, while one of these, or a bookie, is killed now and then. A client that
knew a ledger before reads it afterwards, by the metadata it knew. That every copy is there when it is published is
I36's.
"""

from __future__ import annotations

import contextlib
import random

from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import change
from embedbk.client.password import Password
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, decode_ledger_metadata
from embedbk.codec.log_identity import NAMES_PREFIX, decode_log_pointer
from embedbk.config import Quorum
from embedbk.errors import EmbedbkError, StorageError
from embedbk.ids import NO_ENTRY
from embedbk.metadata.levels import LEVEL_OF_SHAPES
from embedbk.repair.reshaping import is_misfit, log_of
from embedbk.testing import process_faults, workload
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.drainers import able_bookies
from embedbk.testing.healers import HEALED_NS, Healers
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Reshapers"]

READY_NS = 30 * SECOND
CHANGED_NS = 60 * SECOND
LATE_NS = 60 * SECOND  # Until then a bookie that was killed serves again.


class Reshapers:
    """The reshapers of one world."""

    def __init__(self, world: World, healers: Healers) -> None:
        self._world, self._healers = world, healers
        self._chance = random.Random(f"reshapers {world.seed}")
        self._changed = False

    def check(self, quorum: Quorum) -> None:
        """L17: closed ledgers of a log get the numbers of copies that its settings name."""
        world, chance = self._world, self._chance
        logs = sorted(
            {log for each in self._closed() if (log := log_of(each)) is not None} & {*self._names()}
        )
        able = able_bookies(world)
        if not logs or len(able) < quorum.ensemble_size:
            return
        log = chance.choice(logs)
        for number in range(chance.choice([1, 1, 2])):
            before = [each for each in self._closed() if log_of(each) == log and each.freed is None]
            wanted = self._drawn(quorum, len(able))
            client = f"reshaper-{number}"
            world.start_client(client)
            actor = world.spawn(client, self._change(client, self._names()[log], wanted))
            if not world.run_until(lambda actor=actor: actor.is_over, CHANGED_NS) or actor.error is not None:  # type: ignore[misc]
                raise Violation("P8.7", f"the settings of log {log} are not changed: {actor.error}")
            if not self._changed:
                return
            self._disturb()
            self._wait(log, wanted)
            self._read(client, before)

    def _names(self) -> dict[str, str]:
        """Names of logs by their ids."""
        found = {}
        for key, value in self._world.committed(NAMES_PREFIX).items():
            with contextlib.suppress(StorageError):  # A stranger's.
                name = key.removeprefix(NAMES_PREFIX)
                found[decode_log_pointer(value, name).log_id] = name
        return found

    def _closed(self) -> list[LedgerMetadata]:
        found = []
        for value in self._world.committed(LEDGERS_PREFIX).values():
            with contextlib.suppress(StorageError):
                metadata = decode_ledger_metadata(value)
                if metadata.is_closed:
                    found.append(metadata)
        return found

    def _drawn(self, quorum: Quorum, able: int) -> Quorum:
        """No fewer copies than what a world may lose allows."""
        chance = self._chance
        write = chance.randint(quorum.write_quorum, able)
        ack = chance.randint(quorum.ack_quorum, write)
        return Quorum(chance.randint(write, able), write, ack)

    def _change(self, client: str, name: str, wanted: Quorum) -> Steps:
        node = self._world.nodes[client]
        yield Until(lambda: node.is_ready, READY_NS)
        runtime = SimRuntime(self._world, client, node)
        yield from awaited(runtime, runtime.get("/nothing", "the level"))
        if not runtime.has_level(LEVEL_OF_SHAPES):
            return
        sizes = {
            "ensemble_size": wanted.ensemble_size,
            "write_quorum": wanted.write_quorum,
            "ack_quorum": wanted.ack_quorum,
        }
        try:
            yield from awaited(runtime, change(LogReading(runtime, name, Password(b"")), None, sizes))
        except EmbedbkError as error:
            self._world.note(f"{client}: {error}")
            return
        self._changed = True

    def _disturb(self) -> None:
        world, chance = self._world, self._chance
        if chance.random() < 0.5:
            return
        world.run_for(chance.choice([1, 30, 300, 3_000]) * MS)
        healers = [name for name in self._healers.services if name in world.nodes]
        name = chance.choice([*able_bookies(world), *healers])
        world.crash(name)
        world.run_for(chance.choice([1, 500, 3_000]) * MS)
        if name in healers:
            self._healers.begin()
        else:
            process_faults.restart(world, name)

    def _wait(self, log: str, wanted: Quorum) -> None:
        world = self._world
        give_up_ns = world.now_ns + HEALED_NS
        while left := [each for each in self._closed() if log_of(each) == log and is_misfit(each, wanted)]:
            if (
                len(able_bookies(world)) < wanted.ensemble_size
                and world.now_ns >= give_up_ns - HEALED_NS + LATE_NS
            ):
                return  # One that was killed does not serve again: its disk was harmed before, say.
            if world.now_ns >= give_up_ns:
                names = [f"{each.ledger_id} has {each.quorum}" for each in left[:3]]
                raise Violation("L17", f"log {log} is to have {wanted}, and {', '.join(names)}")
            world.run_for(SECOND)
        unhealed = self._healers.heal()
        if unhealed:
            raise Violation("L9", f"log {log} has other numbers of copies, and {'; '.join(unhealed[:3])}")

    def _read(self, client: str, before: list[LedgerMetadata]) -> None:
        """Read the ledger by the metadata that was known before."""
        world = self._world
        there = {each.ledger_id: each for each in self._closed()}
        for known in before:
            now = there.get(known.ledger_id)
            if now is None or now.freed is not None or known.last_entry in (None, NO_ENTRY):
                continue
            if now.quorum != known.quorum:
                world.sometimes["ledger got other numbers of copies"] += 1
            actor = world.spawn(client, self._read_one(client, known))
            if not world.run_until(lambda actor=actor: actor.is_over) or actor.error is not None:  # type: ignore[misc]
                raise Violation("I5", f"ledger {known.ledger_id} has {now.quorum} by now, and: {actor.error}")

    def _read_one(self, client: str, known: LedgerMetadata) -> Steps:
        assert known.last_entry is not None
        found = yield from workload.read_range(self._world, client, known, 0, known.last_entry)
        if len(found) != known.last_entry + 1:
            raise Violation(
                "I5", f"ledger {known.ledger_id}: {len(found)} of {known.last_entry + 1} are read"
            )
        yield Sleep(0)
