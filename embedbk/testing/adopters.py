"""Operators who take ledgers of a lost future back into the metadata, and what they must find (P7.7, P10.5).

They take the road of `embedbk ledger adopt`. Now and then a bookie crashes under them, or two adopt one ledger. A
bookie that cannot tell, as it is in limbo, or that lost its disk, is called gone when the first try names it; every
ledger was read before the metadata was put back, so what was acknowledged is there without them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from embedbk.client.adopting import adopt_ledger
from embedbk.client.password import Password
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Quorum
from embedbk.core.adopting import AdoptionOptions
from embedbk.core.adoption_plan import AdoptionPlan
from embedbk.errors import EmbedbkError, MetadataConflict, NoSuchLedger, RecoveryInconclusive, UsageError
from embedbk.testing import workload
from embedbk.testing.actors import Sleep, Steps, Until
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.drawn_terms import keys_of
from embedbk.testing.promises import Promises
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Adopters"]

TRIES = 6
ENDED_NS = 120 * SECOND
READY_NS = 30 * SECOND


class Adopters:
    """The adopters of one world, once no application writes any more."""

    def __init__(self, world: World, names: Sequence[str], promises: Promises, chance: random.Random) -> None:
        """names: the bookies that have their disks."""
        self._world, self._names, self._promises, self._chance = world, names, promises, chance
        self.adopted: dict[int, LedgerMetadata] = {}

    def adopt(self, known: LedgerMetadata) -> None:
        """known: its metadata in the lost future; only its password and its quorum are used.

        Raises Violation: it cannot be adopted, or not all that was acknowledged is readable again.
        """
        world, chance = self._world, self._chance
        count = 2 if chance.random() < 0.3 else 1
        operators = [f"adopter-{known.ledger_id}-{number}" for number in range(count)]
        for name in operators:
            world.start_client(name)
        actors = [world.spawn(name, self._adopt(name, known)) for name in operators]
        if chance.random() < 0.3:
            crashed = chance.choice(list(self._names))
            world.run_for(chance.choice([1, 5, 20]) * MS)
            world.crash(crashed)
            world.run_for(chance.choice([5, 500]) * MS)
            world.start_bookie(crashed)
        if not world.run_until(lambda: all(actor.is_over for actor in actors), ENDED_NS):
            raise Violation("P10.5", f"the adoption of ledger {known.ledger_id} does not end")
        for name, actor in zip(operators, actors, strict=True):
            if isinstance(actor.error, Violation):
                raise actor.error
            if actor.error is not None:
                raise Violation("P10.5", f"{name}: ledger {known.ledger_id}: {actor.error}")
            world.leave(name)

    def read_again(self) -> None:
        """Read every adopted ledger as a client does."""
        world = self._world
        world.start_client("reads-adopted")
        for metadata in self.adopted.values():
            actor = world.spawn("reads-adopted", self._read("reads-adopted", metadata))
            if not world.run_until(lambda actor=actor: actor.is_over, ENDED_NS) or actor.error is not None:  # type: ignore[misc]
                raise Violation("I5", f"ledger {metadata.ledger_id}, adopted, is not read: {actor.error}")
        world.leave("reads-adopted")

    def _adopt(self, client: str, known: LedgerMetadata) -> Steps:
        world, node = self._world, self._world.nodes[client]
        yield Until(lambda: node.is_ready and len(node.bookies) >= len(self._names), READY_NS)
        runtime = SimRuntime(world, client, node)
        options = AdoptionOptions(
            quorum=self._chance.choice([None, known.quorum]),
            is_dry=self._chance.random() < 0.2,
            by=client,
        )
        gone: list[str] = []
        # The metadata never knew these, as its copy is from before: they need no word.
        strange: set[str] = set()
        for _ in range(TRIES):
            steps = adopt_ledger(runtime, known.ledger_id, _password_of(known), gone, options)
            try:
                plan: AdoptionPlan = yield from awaited(runtime, steps)
            except MetadataConflict:
                return  # Another operator was first.
            except NoSuchLedger:
                if self._promises.acked.get(known.ledger_id, -1) >= 0:
                    raise
                return
            except EmbedbkError as refused:
                world.note(f"{client}: {refused}")
                if isinstance(refused, UsageError):
                    strange |= {name for name in gone if f"--gone {name}: " in str(refused)}
                gone = [name for name in self._cannot_tell(known.ledger_id) if name not in strange]
                if not isinstance(refused, RecoveryInconclusive):  # Too few bookies are left for its quorum.
                    quorum = self._fewer_seats(known.quorum, gone) if options.quorum is None else None
                    options = AdoptionOptions(quorum=quorum, by=client)
                yield Sleep(self._chance.choice([50, 2_000]) * MS)
                continue
            if options.is_dry:
                options = AdoptionOptions(by=client)
                continue
            self._judge(plan, known)
            return
        raise Violation("P10.5", f"ledger {known.ledger_id} is not adopted after {TRIES} tries")

    def _fewer_seats(self, quorum: Quorum, gone: list[str]) -> Quorum:
        """A quorum with as many seats as there are bookies not given up, as the refusal asks for where a stale key has
        more."""
        count = max(1, len({*self._names} - {*gone}))
        sizes = (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum)
        return Quorum(*(min(size, count) for size in sizes))

    def _cannot_tell(self, ledger_id: int) -> list[str]:
        """What an operator learns from the output of the command."""
        told = list(self._world.lost)
        for name in self._names:
            node = self._world.nodes.get(name)
            if node is None:
                continue
            row = node.storage.table.get(ledger_id)
            # An entry log without an index may hide any entry (ST38).
            behind = max(self._promises.sent.get(ledger_id, {}), default=-1) + 1
            asked = [node.storage.read(ledger_id, each, each, 1) for each in range(behind + 1)]
            is_dark = any(found.frame is None and not found.absent for found in asked)
            if is_dark or (row is not None and (row.in_limbo or row.is_dropped)):
                told.append(name)
        return told

    def _judge(self, plan: AdoptionPlan, known: LedgerMetadata) -> None:
        metadata, ledger_id = plan.metadata, known.ledger_id
        assert metadata.last_entry is not None
        acked = self._promises.acked.get(ledger_id, -1)
        if metadata.last_entry < acked:
            text = f"ledger {ledger_id} is adopted up to {metadata.last_entry}, and {acked} was acknowledged"
            raise Violation("I3", text)
        if plan.record.lost:
            raise Violation("I4", f"ledger {ledger_id}: {plan.record.lost} were acknowledged, and are lost")
        sent = self._promises.sent.get(ledger_id, {})
        length = sum(len(sent[each]) for each in range(metadata.last_entry + 1))
        if metadata.length != length:
            raise Violation(
                "I37", f"ledger {ledger_id} is adopted with {metadata.length} bytes, not {length}"
            )
        self.adopted[ledger_id] = metadata
        self._world.sometimes["left by a lost future, and adopted"] += 1
        if plan.record.gone:
            self._world.sometimes["adopted without a bookie that is gone"] += 1
        if plan.record.copied:
            self._world.sometimes["adopted with copies that were made for it"] += 1

    def _read(self, client: str, metadata: LedgerMetadata) -> Steps:
        node = self._world.nodes[client]
        yield Until(lambda: node.is_ready and len(node.bookies) >= len(self._names), READY_NS)
        found = yield from workload.metadata_of(self._world, client, metadata.ledger_id)
        # Its copies may have moved since (P11.6).
        if found is None or found[0].with_changes(fragments=metadata.fragments) != metadata:
            raise Violation("I2", f"ledger {metadata.ledger_id} is another one than was adopted: {found}")
        last = metadata.last_entry
        assert last is not None
        entries = yield from workload.read_range(self._world, client, found[0], 0, last)
        sent = self._promises.sent.get(metadata.ledger_id, {})
        wanted = [(each, sent[each]) for each in range(last + 1)]
        if entries != wanted:
            raise Violation("I7", f"ledger {metadata.ledger_id}, adopted, shows other entries than were sent")


def _password_of(known: LedgerMetadata) -> Password:
    """The password of its owner; ledgers of worlds may have a key without a password."""
    keys, password = keys_of(known), Password(b"any")
    password.key, password.mac_key, password.verifier = keys.key, keys.mac_key, known.password_verifier
    return password
