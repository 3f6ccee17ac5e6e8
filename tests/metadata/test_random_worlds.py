"""Random worlds against a simple model: whatever is lost, doubled or late, the catalog is what its history says.

Some worlds are rough (messages lost, doubled, reordered, brought back), some are crowded (hardly any place to wait, so
that much is put off), some are full (a small catalog that refuses), some list in tiny pages and forget at once; in
all of them strangers ask in the name of sessions that they read of. A failure prints its seed; `pytest -k "seed17"`
replays it.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest

from embedbk.codec.metadata_messages import (
    ABSENT,
    Allocated,
    AllocIds,
    CloseSession,
    Compare,
    Delete,
    Get,
    KeepAlive,
    List,
    Listed,
    MetadataReply,
    MetadataRequest,
    Put,
    Record,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Unwatch,
    Value,
)
from embedbk.metadata import intake as intake_module
from embedbk.metadata import pending_requests
from embedbk.metadata import streams as streams_module
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.client import is_unknown
from embedbk.metadata.vocabulary import RequestReceived
from tests.metadata.world import MS, SECOND, Peer, World

KEYS = [f"/k/{n}" for n in range(6)]


class Watched(World):
    """A world that looks at every answer that leaves the member."""

    def __init__(self, seen: Counter[str], **settings: Any) -> None:
        self.seen = seen
        self.first: dict[tuple[int, int], Result] = {}
        super().__init__(**settings)

    def answered(self, link: int, reply: MetadataReply) -> None:
        """I74: an answer once given to (session, sequence) is the answer for ever, refusals too; BUSY is none."""
        result = reply.result
        if isinstance(result, Refusal):
            self.seen[result.code] += 1
            if result.code in ("BUSY", "SESSION_GONE", "BAD_REQUEST"):
                return  # None yet; of a session that is over; below what the client has.
        if reply.session and isinstance(result, TxnDone | Allocated | Refusal):
            first = self.first.setdefault((reply.session, reply.sequence), result)
            assert first == result, "two answers to one request"
            self.seen["answered again"] += first is not result


class Run:
    """One world, and what the clients know: every value is put once, so a value tells which request put it."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.is_crowded = seed % 4 == 1
        self.is_full = seed % 5 == 2
        if self.is_crowded:
            monkeypatch.setattr(pending_requests, "REPLIES_WAITING_MAX", 12)
            monkeypatch.setattr(pending_requests, "WAITING_LEAST", 2)
            monkeypatch.setattr(streams_module, "WATCHES_MAX", 14)
            monkeypatch.setattr(intake_module, "REQUESTS_WAITING_MAX", 10)
            monkeypatch.setattr(intake_module, "LINK_LEAST", 2)
        self.world = Watched(
            self.seen,
            seed=seed,
            limits=Limits(
                history_bytes_max=self.chance.choice([600, 3000, 1 << 20]),
                history_changes_max=self.chance.choice([2, 20, 1000]),
                list_records_max=self.chance.choice([1, 2, 1000]),
                catalog_bytes_max=330 if self.is_full else 1 << 30,
                catalog_reserve_bytes=4,
                session_share_bytes=self.chance.choice([0, 70, 4096]),
            ),
            has_intake=seed % 2 == 0 or self.is_crowded,
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
                "damage",
                "advance",
                "restart",
                "run",
                "cancel",
                "stranger",
            ],
            [20, 25, 25, 12, 6, 2, 3, 4, 0.5, 25, 1, 2],
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
        elif action == "damage" and self.is_rough:
            self.damage(self.chance.choice([peer.to_member, peer.to_client]), peer)
        elif action == "advance":
            self.pass_time()
        elif action == "restart":
            self.world.restart_member()
        elif action == "run":
            self.world.run_request()
        elif action == "cancel" and peer.request_count:
            self.world.cancel(peer, self.chance.randrange(1, peer.request_count + 1))
        elif action == "stranger":
            self.be_strange()
        waiting = self.world.member._pending.count
        assert waiting <= pending_requests.REPLIES_WAITING_MAX
        self.seen["a crowd"] += self.is_crowded and waiting >= 4

    def be_strange(self) -> None:
        """Somebody over a link of its own who read a session's number: it runs nothing and renews nothing."""
        world = self.world
        sessions = list(world.member.catalog.sessions)
        if not sessions:
            return
        before = world.member.catalog.digest()
        heard = dict(world.member._timed.lifetimes._heard_ns)
        operation = self.chance.choice(
            [Txn([], [Put("/k/strange", b"strange")]), CloseSession(), KeepAlive(), AllocIds(7), Unwatch(1)]
        )
        sequence = self.chance.choice([1, 5, 2**63 - 1])
        secret = self.chance.choice([b"", b"guess"])
        request = MetadataRequest(self.chance.choice(sessions), sequence, sequence, operation, secret)
        world.member_step(RequestReceived(world.now_ns, 1 << 40, request))
        assert (world.member.catalog.digest(), world.member._timed.lifetimes._heard_ns) == (before, heard)
        self.seen["a stranger"] += 1

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
        self.world.advance(60 * SECOND)

    def check(self) -> None:
        catalog = self.world.member.catalog
        assert set(catalog.sessions) == {peer.client.session for peer in self.world.peers.values()}
        assert self.world.member._pending.of_link == {}
        twin = Catalog.restore(catalog.snapshot(), catalog.limits)
        assert (twin.record_table.bytes, twin.session_table.shared_bytes, twin.session_table.bytes) == (
            catalog.record_table.bytes,
            catalog.session_table.shared_bytes,
            catalog.session_table.bytes,
        )
        truth: dict[str, Record] = {}
        while (page := catalog.page("/", max(truth, default=""))).records:
            truth.update((record.key, record) for record in page.records)
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
            if isinstance(result, Refusal):
                self.seen["refused for good"] += not is_unknown(result)
                assert is_unknown(result) or self.may_be_refused(operation, result)
            elif isinstance(operation, Get):
                assert isinstance(result, Value)
            elif isinstance(operation, List):
                assert isinstance(result, Listed)
            elif isinstance(operation, AllocIds):
                assert isinstance(result, Allocated)
                ids.append((result.first_id, result.first_id + result.count))
            else:
                assert isinstance(result, TxnDone)
                if result.is_done and any(isinstance(change, Put) for change in operation.then):  # type: ignore[attr-defined]
                    revisions.append(result.revision)
        ids.sort()
        assert all(end <= begin for (_, end), (begin, _) in zip(ids, ids[1:], strict=False))
        assert ids[-1][1] <= self.world.member.catalog.next_id if ids else True
        assert len(revisions) == len(set(revisions))
        assert all(revision <= self.world.member.catalog.revision for revision in revisions)

    def may_be_refused(self, operation: object, result: Refusal) -> bool:
        """Whoever gave up waiting, and where the catalog is full."""
        return "cancelled" in result.text or (self.is_full and isinstance(operation, Txn))


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"seed{seed}") for seed in range(60)])
def test_a_random_world_comes_out_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """P2.2, P10.1, I74, I82 with messages lost, doubled and late, crashes, expiry, compaction, snapshots, crowds, full
    catalogs, strangers."""
    run = Run(seed, monkeypatch)
    for _ in range(1500):
        run.act()
    run.finish()
    run.check()


def test_these_worlds_meet_what_they_are_for() -> None:
    """What no world meets, none of them shows."""
    seen: Counter[str] = Counter()
    for seed in range(16):
        with pytest.MonkeyPatch.context() as monkeypatch:
            run = Run(seed, monkeypatch)
            for _ in range(800):
                run.act()
            run.finish()
            run.check()
            seen.update(run.seen)
    for what in ("BUSY", "UNAVAILABLE", "answered again", "a crowd", "a stranger", "refused for good"):
        assert seen[what] >= 5, f"{what}: {seen}"


def test_the_same_seed_gives_the_same_world() -> None:
    """ARCHITECTURE 3: same events, same effects."""
    digests = []
    for _ in range(2):
        with pytest.MonkeyPatch.context() as monkeypatch:
            run = Run(5, monkeypatch)
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
