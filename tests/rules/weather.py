"""Chance over a world: which message moves next, who crashes, what metadata tells; one seed, one story.

A seed chooses which faults it has, since a world with all of them at once sees little of each. Subclasses add what
people do (`act`) and what must be so at the end.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter

from embedbk.config import Quorum
from embedbk.core.metadata_words import Transact
from tests.rules.world import MS, Node, Operation, Packet, World

__all__ = ["FAULTS", "Weather"]

FAULTS = ("lose", "fail", "double", "crash", "unknown", "late", "disk", "bad copy")


class Weather(ABC):
    """One seed's world and what it does to it."""

    def __init__(self, seed: int, quorums: list[Quorum]) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.quorum = self.chance.choice(quorums)
        self.faults = {fault for fault in FAULTS if self.chance.random() < 0.5}
        self.away_max = self.chance.choice([1, 1, 2, 5])  # Bookies that are away at the same time.
        self.world = World(self.quorum.ensemble_size + self.chance.randrange(3), seed)
        self.landing: list[Operation] = []  # Told unknown, still in flight.
        self.seen: Counter[str] = Counter()  # Which interesting things came to pass.

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.quorum}, faults {sorted(self.faults)}"

    @abstractmethod
    def act(self) -> bool:
        """Something that people do; False when it is not the time for it."""

    def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.14 and self.act():
            return
        if dice < 0.17:
            self.hurt_a_bookie()
        elif dice < 0.22:
            self.pass_time()
        else:
            self.move()

    def move(self) -> None:
        """One message, one sync, one outcome of metadata."""
        world = self.world
        owing = [node for node in world.nodes.values() if node.is_up and node.storage.pending]
        choices: list[object] = [*world.wire, *world.catalog.waiting, *owing, *self.landing]
        if not choices:
            return
        choice = self.chance.choice(choices)
        if isinstance(choice, Packet):
            self.move_packet(choice)
        elif isinstance(choice, Node):
            choice.sync(self.chance.choice([None, 1, 2]))
        elif choice in self.landing:
            self.landing.remove(choice)
            assert isinstance(choice, Operation)
            self.seen["landed late"] += self.world.catalog.land(choice)
        else:
            assert isinstance(choice, Operation)
            self.settle_operation(choice)

    def move_packet(self, packet: Packet) -> None:
        dice = self.chance.random()
        if dice < 0.04 and "lose" in self.faults:
            self.world.lose(packet)
        elif dice < 0.08 and "fail" in self.faults:
            self.world.fail(packet)
        elif dice < 0.14 and "double" in self.faults and packet.is_request:
            self.world.deliver(packet, is_kept=True)
        else:
            self.world.deliver(packet)

    def settle_operation(self, operation: Operation) -> None:
        dice = self.chance.random()
        is_transact = isinstance(operation.effect, Transact)
        if dice < 0.25 and "unknown" in self.faults:
            if is_transact:
                self.seen["unknown"] += 1
                self.world.catalog.tell_unknown(operation, lands=self.chance.choice([True, False]))
            else:
                self.world.catalog.fail(operation)
        elif dice < 0.5 and "late" in self.faults and is_transact:
            self.landing.append(operation)
            self.world.catalog.tell_unknown(operation)
        else:
            self.world.catalog.answer(operation)

    def hurt_a_bookie(self) -> None:
        nodes = list(self.world.nodes.values())
        away = [node for node in nodes if not node.is_up or node.bookie_id in self.world.down]
        if away and (len(away) >= self.away_max or self.chance.random() < 0.5):
            back = self.chance.choice(away)
            back.restart()
            self.world.down.discard(back.bookie_id)
            return
        node = self.chance.choice(nodes)
        dice = self.chance.random()
        may_lose = (
            self.world.disks_lost < self.quorum.ack_quorum - 1
        )  # What a ledger survives by its promise.
        if not node.is_up:
            return
        if dice < 0.3 and "crash" in self.faults:
            self.seen["crash"] += 1
            node.crash()
        elif dice < 0.5 and "crash" in self.faults:
            self.world.down.add(node.bookie_id)
        elif dice < 0.55 and "bad copy" in self.faults and may_lose:
            self.damage(node)
        elif dice < 0.6 and "disk" in self.faults and may_lose:
            self.seen["disk lost"] += 1
            self.world.disks_lost += 1
            node.lose_disk()

    def damage(self, node: Node) -> None:
        held = [(ledger_id, e) for ledger_id in node.storage.table for e in node.holds(ledger_id)]
        if held:
            self.seen["bad copy"] += 1
            self.world.disks_lost += 1
            ledger_id, entry_id = self.chance.choice(held)
            node.storage.make_unreadable(ledger_id, entry_id)
            node.durable_frames.pop((ledger_id, entry_id), None)

    def pass_time(self) -> None:
        """Mostly a little; now and then to the next deadline, so that what is lost or slow runs out of time."""
        self.world.now_ns += self.chance.randrange(20 * MS)
        clients = [c for c in self.world.clients if not c.is_over and c.core.deadline_ns is not None]
        if clients and self.chance.random() < 0.06:
            self.world.now_ns = max(self.world.now_ns, min(c.core.deadline_ns for c in clients))
        for client in clients:
            if client.core.deadline_ns <= self.world.now_ns:
                self.world.tick(client)

    def clear_up(self) -> None:
        """Everybody is back, and what was still in flight lands."""
        world = self.world
        world.down.clear()
        for node in world.nodes.values():
            node.restart()
        for operation in self.landing:
            world.catalog.land(operation)
        self.landing.clear()
        world.tell_bookies()
