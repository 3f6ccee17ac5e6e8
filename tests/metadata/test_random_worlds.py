"""Random worlds against a simple model: whatever is lost, doubled or late, the catalog is what its history says.

A failure prints its seed; `pytest -k "seed17"` replays it.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import pytest

from embedbk.codec.metadata_messages import (
    ABSENT,
    Allocated,
    AllocIds,
    Compare,
    Delete,
    Get,
    List,
    Listed,
    Put,
    Refusal,
    Txn,
    TxnDone,
    Value,
)
from embedbk.metadata.catalog import Limits
from embedbk.metadata.client import is_unknown
from tests.metadata.world import MS, SECOND, Peer, World

KEYS = [f"/k/{n}" for n in range(6)]


class Run:
    """One world, and what the clients know: every value is put once, so a value tells which request put it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(
            seed=seed,
            limits=Limits(history_bytes_max=self.chance.choice([600, 1 << 20])),
            snapshot_due_bytes=3000,
        )
        self.world.is_committing = False
        self.is_rough = seed % 3 > 0
        self.asked: dict[tuple[str, int], object] = {}
        self.values = 0
        for name in "abc":
            peer = self.world.peer(name, ttl_ms=self.chance.choice([500, 10_000]), connect=False)
            self.world.watch(peer, "/k/")

    def act(self) -> None:
        peer = self.chance.choice(list(self.world.peers.values()))
        action = self.chance.choices(
            [
                "request",
                "deliver",
                "answer",
                "commit",
                "connect",
                "disconnect",
                "repeat",
                "advance",
                "restart",
            ],
            [20, 25, 25, 12, 6, 2, 3, 4, 0.5],
        )[0]
        if action == "request":
            operation = self.operation()
            self.asked[peer.name, self.world.ask(peer, operation)] = operation
        elif action == "deliver" and peer.to_member:
            self.world.deliver_request(peer)
        elif action == "answer" and peer.to_client:
            self.world.deliver_answer(peer)
        elif action == "commit" and self.world.journal.pending:
            self.world.commit(self.chance.randrange(1, 4))
        elif action == "connect" and peer.link is None:
            self.world.connect(peer)
        elif action == "disconnect":
            self.world.disconnect(peer)
        elif action == "damage":
            self.damage(self.chance.choice([peer.to_member, peer.to_client]), peer)
        elif action == "advance":
            self.pass_time()
        elif action == "restart":
            self.world.restart_member()

    def damage(self, queue: deque[Any], peer: Peer) -> None:
        """What real links never do and the simulated one may: lose, double, reorder, bring back the past."""
        kind = self.chance.randrange(4)
        at = self.chance.randrange(len(queue) + 1)
        if kind == 0 and at < len(queue):
            del queue[at]
        elif kind == 1 and at < len(queue):
            queue.append(queue[at])
        elif kind == 2:
            self.chance.shuffle(queue)
        elif peer.link is not None and peer.sent:
            peer.to_member.insert(
                self.chance.randrange(len(peer.to_member) + 1), self.chance.choice(peer.sent)
            )

    def operation(self) -> Txn | AllocIds | Get | List:
        kind = self.chance.randrange(10)
        if kind == 0:
            return AllocIds(self.chance.randrange(1, 5))
        if kind == 1:
            return Get(self.chance.choice(KEYS))
        if kind == 2:
            return List("/k/")
        key = self.chance.choice(KEYS)
        when = [] if self.chance.random() < 0.5 else [Compare(key, self.guess(key))]
        if self.chance.random() < 0.2:
            return Txn(when, [Delete(key)])
        self.values += 1
        return Txn(when, [Put(key, b"%d" % self.values, self.chance.random() < 0.2)])

    def guess(self, key: str) -> int:
        record = self.world.member.catalog.get(key).record
        return record.revision if record and self.chance.random() < 0.7 else ABSENT

    def pass_time(self) -> None:
        """A little or a lot of it, with what is due."""
        self.world.now_ns += self.chance.choice([10 * MS, 100 * MS, 2 * SECOND])
        self.world.tick_what_is_due()

    def finish(self) -> None:
        """Every link up, every message delivered: a fair world for a while."""
        self.world.is_committing = True
        for peer in self.world.peers.values():
            if peer.link is None:
                self.world.connect(peer)
        self.world.advance(30 * SECOND)

    def check(self) -> None:
        catalog = self.world.member.catalog
        truth = {record.key: record for record in catalog.page("/", "", 1000).records}
        for peer in self.world.peers.values():
            assert peer.views["/k/"] == truth, "a watch shows the catalog"
            self.check_changes(peer)
        self.check_outcomes()
        self.check_values()

    def check_changes(self, peer: Peer) -> None:
        """I82: each key's versions in order, none twice."""
        last: dict[str, int] = defaultdict(int)
        for record in peer.changes["/k/"]:
            assert record.revision > last[record.key]
            last[record.key] = record.revision

    def check_values(self) -> None:
        """What was ever seen was put by a request that is done, at the revision it was told, or is unknown."""
        put_by = {
            change.value: self.world.peers[name].results[token]
            for (name, token), operation in self.asked.items()
            if isinstance(operation, Txn)
            for change in operation.then
            if isinstance(change, Put)
        }
        for peer in self.world.peers.values():
            for record in peer.changes["/k/"]:
                if record.value is not None:
                    result = put_by[record.value]
                    assert is_unknown(result) or result == TxnDone(True, record.revision)

    def check_outcomes(self) -> None:
        """I74, P2.1: each request has one outcome; done is done once; ids are never handed out twice."""
        revisions: list[int] = []
        ids: list[tuple[int, int]] = []
        for (name, token), operation in self.asked.items():
            result = self.world.peers[name].results[token]
            if isinstance(operation, Get):
                assert isinstance(result, Value)
            elif isinstance(operation, List):
                assert isinstance(result, Listed)
            elif isinstance(operation, AllocIds):
                assert isinstance(result, Allocated)
                ids.append((result.first_id, result.first_id + result.count))
            elif isinstance(result, Refusal):
                assert is_unknown(result)
            else:
                assert isinstance(result, TxnDone)
                if result.is_done and any(isinstance(change, Put) for change in operation.then):  # type: ignore[attr-defined]
                    revisions.append(result.revision)
        ids.sort()
        assert all(end <= begin for (_, end), (begin, _) in zip(ids, ids[1:], strict=False))
        assert ids[-1][1] <= self.world.member.catalog.next_id if ids else True
        assert len(revisions) == len(set(revisions))
        assert all(revision <= self.world.member.catalog.revision for revision in revisions)


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"seed{seed}") for seed in range(60)])
def test_a_random_world_comes_out_right(seed: int) -> None:
    """P2.2, P10.1, I74, I82 with messages lost, doubled and late, crashes, expiry, compaction and snapshots."""
    run = Run(seed)
    for _ in range(1500):
        run.act()
    run.finish()
    run.check()


def test_the_same_seed_gives_the_same_world() -> None:
    """ARCHITECTURE 3: same events, same effects."""
    digests = []
    for _ in range(2):
        run = Run(5)
        for _ in range(800):
            run.act()
        digests.append(
            (run.world.member.catalog.digest(), [peer.changes for peer in run.world.peers.values()])
        )
    assert digests[0] == digests[1]


@pytest.mark.parametrize("seed", range(10))
def test_what_was_acknowledged_is_still_there(seed: int) -> None:
    """P10.4: losing the metadata quorum never loses state: after any crash, every put that was acknowledged last
    under its key is there, or was replaced by one whose outcome is unknown or that is newer."""
    chance = random.Random(seed)
    world = World(seed=seed, snapshot_due_bytes=1000)
    peer = world.peer("a")
    model: dict[str, bytes] = {}
    for n in range(200):
        key, value = chance.choice(KEYS), b"%d" % n
        token = world.ask(peer, Txn([], [Put(key, value)]))
        if chance.random() < 0.2:
            while peer.to_member:
                world.deliver_request(peer)
            world.journal.commit(chance.randrange(3))
            world.restart_member()
            world.connect(peer)
        world.settle()
        result = peer.results[token]
        assert isinstance(result, TxnDone), "no session was lost, so no outcome is unknown"
        assert result.is_done
        model[key] = value
    found = world.member.catalog.page("/", "", 1000).records
    assert {record.key: record.value for record in found} == model
    assert world.member.catalog.revision == 200, "each was done once"
