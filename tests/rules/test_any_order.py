"""The promises under chance: a writer, recoverers and readers, bookies that crash, messages lost, doubled and late.

Each seed chooses which faults it has (a world with all of them at once sees little of each), then steps at random;
the world checks its promises after every step. At the end everything is healed, the ledger is closed by one more
recovery, and a reader that knows nothing gets every acknowledged entry, byte for byte (P5.3, I2, I3, I5).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from embedbk.config import Quorum
from embedbk.core.reader import LacRead, RangeRead
from embedbk.core.vocabulary import Transact
from embedbk.errors import EmbedbkError, LedgerClosed, LedgerFenced, NotEnoughBookies, RecoveryInconclusive
from embedbk.ids import NO_ENTRY
from tests.rules.world import MS, Client, Node, Operation, Packet, Pen, World

QUORUMS = [
    Quorum(3, 3, 2),
    Quorum(2, 2, 1),
    Quorum(3, 2, 2),
    Quorum(4, 3, 2),
    Quorum(5, 3, 2),
    Quorum(3, 3, 3),
]
FAULTS = ("lose", "fail", "double", "crash", "unknown", "late", "disk", "bad copy")
ENTRIES = 14
SEEDS = 600
STEPS = 900


@dataclass
class Storm:
    """One seed's world and what it does to it."""

    seed: int
    seen: Counter[str] = field(default_factory=Counter)  # Which interesting things came to pass.

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.quorum = self.chance.choice(QUORUMS)
        self.faults = {fault for fault in FAULTS if self.chance.random() < 0.5}
        self.world = World(self.quorum.ensemble_size + self.chance.randrange(3), self.seed)
        metadata, revision = self.world.create(self.quorum)
        self.ledger_id = metadata.ledger_id
        self.writer = self.world.writer(metadata, revision)
        self.pen = Pen(self.ledger_id)
        self.recoveries: list[Client] = []
        self.readers: list[Client] = []
        self.landing: list[Operation] = []  # Told unknown, still in flight.
        self.away_max = self.chance.choice([1, 1, 2, 5])  # Bookies that are away at the same time.
        self.start_at = sorted(self.chance.randrange(STEPS) for _ in range(self.chance.randrange(3)))

    def run(self) -> None:
        for step in range(STEPS):
            if self.start_at and step >= self.start_at[0]:
                self.start_at.pop(0)
                self.recover()
            self.step()
            if step % 50 == 0:
                self.world.tell_bookies()
        self.heal()
        self.check()

    def recover(self) -> Client:
        recovery = self.world.recovery(self.ledger_id, f"r{len(self.recoveries)}")
        self.recoveries.append(recovery)
        recovery.start()
        return recovery

    # One step.

    def step(self) -> None:
        dice = self.chance.random()
        if dice < 0.12 and self.writer.core.wants_frame(is_full=True) and self.pen.next_entry < ENTRIES:
            count = 1 + self.chance.randrange(3)
            self.world.add(
                self.writer, self.pen, *[b"%d" % self.chance.getrandbits(30) for _ in range(count)]
            )
        elif dice < 0.125 and self.pen.next_entry >= ENTRIES:
            self.world.close(self.writer)
        elif dice < 0.14:
            self.read_up_to_the_lac()
        elif dice < 0.17:
            self.hurt_a_bookie()
        elif dice < 0.22:
            self.pass_time()
        else:
            self.move()

    def move(self) -> None:
        world = self.world
        up = [node for node in world.nodes.values() if node.is_up and self.owes_sync(node)]
        choices: list[object] = [*world.wire, *world.catalog.waiting, *up, *self.landing]
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

    @staticmethod
    def owes_sync(node: Node) -> bool:
        return bool(node.storage.pending)

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
        if not node.is_up:
            return
        if dice < 0.3 and "crash" in self.faults:
            self.seen["crash"] += 1
            node.crash()
        elif dice < 0.5 and "crash" in self.faults:
            self.world.down.add(node.bookie_id)
        elif dice < 0.55 and "bad copy" in self.faults and self.world.disks_lost < self.quorum.ack_quorum - 1:
            held = node.holds(self.ledger_id)
            if held:
                self.seen["bad copy"] += 1
                self.world.disks_lost += 1
                entry_id = self.chance.choice(held)
                node.storage.make_unreadable(self.ledger_id, entry_id)
                node.durable_frames.pop((self.ledger_id, entry_id), None)
        elif dice < 0.6 and "disk" in self.faults and self.world.disks_lost < self.quorum.ack_quorum - 1:
            self.seen["disk lost"] += 1
            self.world.disks_lost += 1
            node.lose_disk()

    def pass_time(self) -> None:
        """Mostly a little; now and then to the next deadline, so that what is lost or slow runs out of time."""
        self.world.now_ns += self.chance.randrange(20 * MS)
        clients = [c for c in self.world.clients if not c.has_ended and c.core.deadline_ns is not None]
        if clients and self.chance.random() < 0.06:
            self.world.now_ns = max(self.world.now_ns, min(c.core.deadline_ns for c in clients))
        for client in clients:
            if client.core.deadline_ns <= self.world.now_ns:
                self.world.tick(client)

    def read_up_to_the_lac(self) -> None:
        """A reader without recovery: learns the LAC, then reads up to it; I9: nothing above what was acknowledged."""
        for reader in self.readers:
            if reader.has_ended and isinstance(reader.core, LacRead) and reader.ended.error is None:
                lac = reader.ended.result[0]
                self.readers.remove(reader)
                closed_at = self.world.catalog.metadata(self.ledger_id)[0].last_entry
                assert lac <= max(self.world.acked.get(self.ledger_id, NO_ENTRY), closed_at or NO_ENTRY)
                if lac >= 0:
                    self.readers.append(self.world.reader(self.ledger_id, 0, lac))
                    self.readers[-1].start()
                return
        if len(self.readers) < 3:
            metadata, _ = self.world.catalog.metadata(self.ledger_id)
            self.readers.append(self.world.client("lac", LacRead(metadata)))
            self.readers[-1].start()

    # The end.

    def heal(self) -> None:
        world = self.world
        world.down.clear()
        for node in world.nodes.values():
            node.restart()
        for operation in self.landing:
            world.catalog.land(operation)
        world.tell_bookies()
        clients = [*self.recoveries, *self.readers]
        world.run(until=lambda: all(client.has_ended for client in clients))
        assert all(client.has_ended for client in clients), "somebody waits for ever"
        if not world.catalog.metadata(self.ledger_id)[0].is_closed:
            last = self.recover()
            world.run(until=lambda: last.has_ended)
            assert last.ended.error is None, last.ended.error

    def check(self) -> None:
        world = self.world
        closed = world.check_end(self.ledger_id)
        world.run(seconds=30)
        world.close(self.writer)
        world.run(until=lambda: self.writer.has_ended)
        assert world.check_end(self.ledger_id) == closed
        for recovery in self.recoveries:
            error = recovery.ended.error
            assert error is None or isinstance(error, RecoveryInconclusive)
            assert (
                error is not None or recovery.ended.result[0] == closed
            )  # One end, told to everybody alike.
        for reader in self.readers:
            if isinstance(reader.core, RangeRead):
                entries = [self.world.sent[self.ledger_id, entry_id] for entry_id, _ in reader.read]
                assert all(payload in entry for entry, (_, payload) in zip(entries, reader.read, strict=True))
                self.seen["read"] += 1
        self.check_what_the_writer_was_told(closed.last_entry)
        self.seen["recovered"] += any(r.ended.error is None for r in self.recoveries)
        self.seen["inconclusive"] += any(r.ended.error is not None for r in self.recoveries)
        self.seen["changed"] += len(closed.fragments) > 1
        self.seen["two fragments closed by recovery"] += len(closed.fragments) > 1 and bool(self.recoveries)

    def check_what_the_writer_was_told(self, last_entry: int) -> None:
        """P3.6, I39: a failed add may survive or not; a close that succeeded names the true end."""
        ended = self.writer.ended
        if ended.error is None:
            assert ended.result[0] == last_entry
        else:
            assert isinstance(ended.error, EmbedbkError)
        if self.writer.failure is not None:
            assert isinstance(self.writer.failure, LedgerFenced | LedgerClosed | NotEnoughBookies)
            assert not self.writer.failure.definite
            self.seen[type(self.writer.failure).__name__] += 1


@pytest.mark.parametrize("part", range(12))
def test_every_seed_keeps_its_promises(part: int) -> None:
    """P5.3: *the* property, with I2 I3 I4 I5 I9 I11 I12 I19 I21 I28 at every step."""
    seen: Counter[str] = Counter()
    for seed in range(part, SEEDS, 12):
        storm = Storm(seed)
        try:
            storm.run()
        except BaseException as broken:
            broken.add_note(f"seed {seed}, {storm.quorum}, faults {sorted(storm.faults)}")
            raise
        seen += storm.seen
    # Else the part was blind to something (S2).
    for what in ("crash", "unknown", "landed late", "disk lost", "bad copy", "read", "recovered", "changed"):
        assert seen[what], f"never seen: {what}"


def test_the_same_seed_gives_the_same_story() -> None:
    """S1: same events, same effects: two runs of one seed end in equal states, core by core."""
    digests = []
    for _ in range(2):
        storm = Storm(7)
        storm.run()
        digests.append([client.core.digest() for client in storm.world.clients])
        digests[-1] += [node.core.digest() for node in storm.world.nodes.values()]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) > 3


def test_a_copied_core_goes_its_own_way() -> None:
    """Machine.copy and digest: at any moment of any core, the copy is equal, and then independent."""
    storm = Storm(11)
    for _ in range(400):
        storm.step()
        for client in storm.world.clients:
            if client.core.digest() != client.core.copy().digest():
                raise AssertionError(client.name)
    twin = storm.writer.core.copy()
    before = twin.digest()
    storm.run()
    assert twin.digest() == before
