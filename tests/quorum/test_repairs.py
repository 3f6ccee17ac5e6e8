"""An auditor and twenty workers over whole members, while workers and leaders are killed (METADATA.md, 11)."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from embedbk.codec.metadata_messages import Compare, Operation, Put, Refusal, Result, Txn, TxnDone
from embedbk.codec.repair_messages import (
    EndRepairs,
    FailRepairs,
    MarkRepairs,
    RepairsEnded,
    RepairsTaken,
    TakeRepairs,
)
from embedbk.metadata.claims import REPAIRERS_PREFIX, REPAIRING_PREFIX, place_path, repairing_path
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.repairing import NOT_HELD, RETURNED
from tests.quorum.whole_world import Peer, WholeWorld

WORKERS = 20
BOOKIES = tuple(f"b{n}" for n in range(6))
LOOK_MS = 50.0  # How often a process looks whether it was answered.

Steps = Generator["int | float", None, None]  # A token that is waited for, or a pause in milliseconds.


class Process:
    """A peer and what runs in it, until it is killed."""

    def __init__(self, story: Story, peer: Peer, steps: Steps) -> None:
        self.story, self.peer, self.steps = story, peer, steps
        self.waits: int | None = None
        self._go_on()

    def _go_on(self) -> None:
        world = self.story.world
        if self.peer.is_dead:
            return
        if self.waits is not None and self.waits not in self.peer.results:
            world.later(LOOK_MS, self._go_on)
            return
        wanted = next(self.steps, None)
        if wanted is None:
            return
        self.waits = wanted if isinstance(wanted, int) else None
        world.later(LOOK_MS if self.waits is not None else wanted, self._go_on)


class Story:
    def __init__(self, seed: int, marks: int) -> None:
        self.chance = random.Random(seed)
        self.world = WholeWorld(seed, "abc", level=LEVEL)
        self.published: dict[int, list[int]] = {}  # Ledger id -> epochs under which somebody published.
        self.met = dict.fromkeys(("lost", "returned", "failed", "handed", "not held", "merged", "killed"), 0)
        self.to_mark = list(range(marks))
        self.is_ending = False
        self.count = 0
        self.processes: list[Process] = []
        auditor = self.world.peer("auditor", 10_000, "/none")
        Process(self, auditor, self._audit(auditor))
        for _ in range(WORKERS):
            self.start_worker()

    def start_worker(self) -> None:
        self.count += 1
        peer = self.world.peer(
            f"worker-{self.count}", self.chance.choice([1_000, 1_000, 5_000]), REPAIRERS_PREFIX
        )
        self.processes.append(Process(self, peer, self._work(peer)))

    def ask(self, peer: Peer, operation: Operation) -> Generator[int, None, Result]:
        token = peer.ask(operation)
        yield token
        return peer.results[token]

    def _audit(self, peer: Peer) -> Steps:
        while self.to_mark:
            wanted = self.to_mark[: self.chance.randint(1, 40)]
            missing = tuple(self.chance.sample(BOOKIES, self.chance.choice([1, 1, 2])))
            again = self.chance.sample(range(wanted[0]), min(wanted[0], self.chance.choice([0, 0, 1, 3])))
            if len(wanted) + len(again) > 40:
                again = []
            result = yield from self.ask(
                peer, MarkRepairs(tuple((each, missing) for each in (*wanted, *again)))
            )
            if not isinstance(result, Refusal):  # UNKNOWN: to mark it again does no harm.
                del self.to_mark[: len(wanted)]
                self.met["merged"] += len(again)
            yield self.chance.choice([1.0, 50.0, 300.0])

    def _work(self, peer: Peer) -> Steps:
        chance = self.chance
        own = chance.choice(BOOKIES)
        while not self.is_ending:
            taken = yield from self._take(peer, (own,) if chance.random() < 0.3 else ())
            if taken is None:
                yield 100.0
                continue
            yield chance.choice([1.0, 20.0, 200.0, 1_500.0, 4_000.0])
            done: list[tuple[int, int, int]] = []
            for ledger_id, mark, _ in taken.marks:
                published = yield from self._publish(peer, ledger_id, taken.epoch)
                if published:
                    done.append((ledger_id, taken.epoch, mark))
            yield chance.choice([1.0, 1.0, 1.0, 3_000.0])
            failed = [each for each in done if chance.random() < 0.02]
            done = [each for each in done if each not in failed]
            if done:
                result = yield from self.ask(peer, EndRepairs(tuple(done)))
                if isinstance(result, RepairsEnded):
                    self.met["not held"] += result.outcomes.count(NOT_HELD)
                    self.met["returned"] += result.outcomes.count(RETURNED)
            if failed:
                self.met["failed"] += len(failed)
                asked = FailRepairs(tuple((ledger_id, epoch) for ledger_id, epoch, _ in failed))
                yield from self.ask(peer, asked)
        yield from self.ask(peer, TakeRepairs(0))

    def _take(
        self, peer: Peer, not_with: tuple[str, ...]
    ) -> Generator[int | float, None, RepairsTaken | None]:
        """What is repaired next; waits in the queue for it."""
        session = peer.client.session
        result = yield from self.ask(peer, TakeRepairs(self.chance.choice([1, 5, 40]), not_with))
        while isinstance(result, RepairsTaken) and not result.epoch and result.asked and not self.is_ending:
            if place_path(REPAIRERS_PREFIX, result.asked) in peer.view and peer.client.session == session:
                yield LOOK_MS
                continue
            result = yield from self.ask(peer, TakeRepairs(0, (), result.asked))
            self.met["handed"] += isinstance(result, RepairsTaken) and result.epoch > 0
        return result if isinstance(result, RepairsTaken) and result.epoch else None

    def _publish(self, peer: Peer, ledger_id: int, epoch: int) -> Generator[int, None, bool]:
        """As a worker publishes seats: under its epoch, which a transaction compares."""
        put = Put(f"/seats/{ledger_id}", f"{peer.name} {epoch} {ledger_id}".encode())
        result = yield from self.ask(peer, Txn([Compare(repairing_path(ledger_id), epoch)], [put]))
        if isinstance(result, TxnDone) and result.is_done:
            self.published.setdefault(ledger_id, []).append(epoch)
            return True
        self.met["lost"] += 1
        return False

    def disturb(self) -> None:
        world, chance = self.world, self.chance
        node = world.leader() or chance.choice(list(world.nodes.values()))
        drawn = chance.random()
        if drawn < 0.35:
            victim = self._somebody()
            self.processes.remove(victim)
            victim.peer.kill()
            self.met["killed"] += 1
            self.start_worker()
        elif drawn < 0.5 and node.core is not None:
            node.crash()
            world.later(chance.choice([100, 2_000]), lambda: node.start() if node.core is None else None)
        elif drawn < 0.6:
            node.save_snapshot()
        elif drawn < 0.7:
            node.paused_until_ms = world.now_ms + chance.uniform(100, 2_500)
        elif drawn < 0.9:
            name = self._somebody().peer.name
            for each in world.nodes:
                world.cut(name, each)
            world.later(chance.choice([300, 4_000, 6_500]), world.is_cut.clear)

    def _somebody(self) -> Process:
        """One who holds something, where there is one."""
        holders = {record.session for record in self.world.judge.catalog.page(REPAIRING_PREFIX).records}
        busy = [each for each in self.processes if each.peer.client.session in holders]
        return self.chance.choice(busy or self.processes)

    def left(self) -> list[str]:
        return [
            record.key
            for prefix in ("/ur/", "/repair")
            for record in self.world.judge.catalog.page(prefix).records
        ]


@pytest.mark.timeout(7_200)  # With 10,000 marks, by --repair-marks.
@pytest.mark.parametrize("seed", range(1))
def test_every_mark_is_repaired_and_none_by_two_at_once(seed: int, pytestconfig: pytest.Config) -> None:
    """Story 21, P11.1: an auditor and 20 workers, kills of workers and leaders: each ledger is repaired, none is held
    by two at once, the queue empties, and nothing stays locked."""
    marks = pytestconfig.getoption("--repair-marks")
    story = Story(seed, marks)
    world = story.world
    world.run(3_000)
    disturbed = 0
    while story.to_mark or disturbed < 35:
        story.disturb()
        disturbed += 1
        world.run(story.chance.choice([50, 300, 1_000]))
    world.is_cut.clear()
    for node in world.nodes.values():
        node.paused_until_ms = 0
        if node.core is None:
            node.start()
    for _ in range(400):
        world.run(1_000)
        if not [key for key in story.left() if not key.startswith(REPAIRERS_PREFIX)]:
            break
    assert [key for key in story.left() if not key.startswith(REPAIRERS_PREFIX)] == [], "the queue empties"
    assert sorted(story.published) == list(range(marks)), "each is repaired"
    assert all(epochs == sorted(set(epochs)) for epochs in story.published.values()), "by one at a time"
    story.is_ending = True
    world.run(15_000)
    assert story.left() == [], "nobody waits any more, and nothing stays locked"
    world.judge.end(world)
    assert all(story.met.values()), story.met
