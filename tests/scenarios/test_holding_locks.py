"""Locks whose holders or members fail while they are asked for or held (P9.3)."""

from __future__ import annotations

import random

import pytest

from embedbk.client.locking import Hold, Lock
from embedbk.client.waiting import run_blocking
from embedbk.codec.metadata_messages import Compare, Put, Txn, TxnDone
from embedbk.errors import LedgerFenced, LockLost, MetadataUnavailable, OperationTimeout
from embedbk.metadata import watching
from embedbk.metadata.claims import lock_path
from embedbk.testing import Cluster

MEMBERS = ["m1", "m2", "m3"]


def test_a_leader_that_dies_between_asking_and_holding_loses_no_place() -> None:
    """P9.3: in order of asking, whoever leads: the place stands in the log, and the session lives on."""
    with Cluster(seed=1, bookies=1, members=3) as cluster:
        first, second = (
            cluster.client("one").lock("billing"),
            cluster.client("two").lock("billing", value=b"two"),
        )
        before = first.acquire()
        cluster.world.at(cluster.world.now_ns + 10**8, lambda: cluster.crash(cluster.leader()))
        cluster.world.at(cluster.world.now_ns + 4 * 10**9, lambda: run_let_go(first))
        assert second.acquire(timeout_s=60) > before
        assert second.is_held and not first.is_held
        assert first.holder() == (second.epoch, b"two")


def run_let_go(lock: Lock) -> None:
    lock._locking.let_go()


def test_who_cannot_reach_the_members_holds_nothing_before_another_does() -> None:
    """P9.3: "cannot tell" is never "still mine": the lease ends here before it ends there."""
    with Cluster(seed=2, bookies=1, members=3) as cluster:
        mine, theirs = cluster.client("one").lock("billing"), cluster.client("two").lock("billing")
        before = mine.acquire()
        cluster.partition(["one"], MEMBERS)
        assert mine.is_held, "its session stands for the rest of its lease"
        assert theirs.acquire(timeout_s=120) > before
        assert not mine.is_held
        with pytest.raises(LockLost, match=f"held under epoch {before}, is lost"):
            mine.check()
        assert mine.until_lost(1)
        cluster.heal()
        cluster.run_for(30)
        assert theirs.is_held and not mine.is_held, "it is not asked for again by itself"
        with pytest.raises(LockLost):
            mine.release()
        assert theirs.is_held, "a late release gives no later hold away"
        theirs.release()
        assert mine.acquire(timeout_s=60) > before, "asked for again by its owner"


def test_a_holder_that_slept_knows_at_its_first_look() -> None:
    """P9.1, P9.3: the lease is compared with the time of the look, whether the loop has run since or not."""
    with Cluster(seed=3, bookies=1, members=3) as cluster:
        mine, theirs = cluster.client("one").lock("billing"), cluster.client("two").lock("billing")
        epoch = mine.acquire()
        cluster.pause("one")
        assert theirs.acquire(timeout_s=120) > epoch
        assert not mine.is_held, "nothing of it ran since"
        cluster.resume("one")
        runtime = cluster.client("one")._runtime
        assert mine.until_lost(60)
        write = Txn([Compare(lock_path("billing"), epoch)], [Put("/paid", b"twice")])
        done = run_blocking(runtime.ask(write, "pay"), "")
        assert isinstance(done, TxnDone) and not done.is_done, "the epoch protects"


def test_a_holder_that_slept_past_its_lease_appends_to_nothing_that_its_successor_took_over() -> None:
    """Scenario 87, P9.1, P5.1: a lock is advice. Whoever has it next takes the log over, which fences the one before by
    the bookies and not by any clock: what the sleeper sends when it wakes is refused, and stands nowhere."""
    with Cluster(seed=5, bookies=3, members=3) as cluster:
        mine, theirs = cluster.client("one").lock("billing"), cluster.client("two").lock("billing")
        epoch = mine.acquire()
        writer = cluster.log("bills", client="one").writer()
        writer.append(b"mine")
        cluster.pause("one")
        assert theirs.acquire(timeout_s=120) > epoch
        with cluster.log("bills", client="two").writer() as successor:
            successor.append(b"theirs")
            cluster.resume("one")
            with pytest.raises(LedgerFenced):
                writer.append(b"too late")
            successor.append(b"theirs again")
        assert not mine.is_held
        found = [bytes(entry.data) for entry in cluster.log("bills").read()]
        assert found == [b"mine", b"theirs", b"theirs again"]
        writer.release()


def test_who_gives_up_while_nobody_answers_leaves_no_place_behind() -> None:
    """P9.3: what is asked late is given back, in the order of the session."""
    with Cluster(seed=4, bookies=1, members=3) as cluster:
        mine, theirs = cluster.client("one").lock("billing"), cluster.client("two").lock("billing")
        held = theirs.acquire()
        rule = cluster.drop_messages(sender="m1", receiver="one")
        others = [cluster.drop_messages(sender=name, receiver="one") for name in MEMBERS[1:]]
        with pytest.raises(LockLost, match="which this client waited for"):
            mine.acquire(timeout_s=0)
        for end in (rule, *others):
            end()
        cluster.run_for(60)
        with pytest.raises(OperationTimeout):
            mine.acquire(timeout_s=1)
        theirs.release()
        cluster.run_for(5)
        assert theirs.holder() is None
        assert theirs.acquire(timeout_s=0) > held


def test_who_asked_while_no_member_was_linked_holds_nothing_in_the_next_session() -> None:
    """P9.3: a lost lock is not asked for again by itself. What waits to be sent outlives its session, so the hold that
    ended takes it back; else the lock would be held for nobody until the client ends."""
    with Cluster(seed=6, bookies=1, members=3) as cluster:
        mine, theirs = cluster.client("one").lock("billing"), cluster.client("two").lock("billing")
        metadata = cluster.client("one")._runtime.node.metadata
        cluster.partition(["one"], MEMBERS)
        assert cluster.run_until(lambda: not metadata.is_up)
        assert metadata.session, "it stands for the rest of its lease"
        with pytest.raises(LockLost, match="which this client waited for"):
            mine.acquire(timeout_s=60)
        cluster.heal()
        cluster.run_for(60)
        assert theirs.holder() is None
        assert theirs.acquire(timeout_s=0)


def test_a_lock_that_cannot_be_followed_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """P9.3: who cannot follow it would not learn that it is lost, so it is lost at once; and others have their turn."""
    with Cluster(seed=7, bookies=1, members=3) as cluster:
        mine, theirs = cluster.client("one").lock("billing"), cluster.client("two").lock("billing")
        monkeypatch.setattr(watching, "WATCHES_MAX", 0)
        with pytest.raises(LockLost, match="keys and prefixes are followed"):
            mine.acquire()
        monkeypatch.undo()
        cluster.run_for(5)
        assert theirs.holder() is None
        assert theirs.acquire(timeout_s=0)


def test_a_release_that_finds_its_lock_lost_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """P9.3: the host's thread lost it behind the look and before the release: nothing is sent, and no answer comes."""
    with Cluster(seed=8, bookies=1, members=3) as cluster:
        mine = cluster.client("one").lock("billing")
        mine.acquire()
        let_go = Hold.let_go

        def lose_first(hold: Hold) -> None:
            hold._lose("another holds it, or nobody")
            let_go(hold)

        monkeypatch.setattr(Hold, "let_go", lose_first)
        before_ns = cluster.world.now_ns
        with pytest.raises(LockLost, match="another holds it, or nobody"):
            mine.release()
        assert cluster.world.now_ns - before_ns < 10**9


@pytest.mark.parametrize("seed", range(6))
def test_no_two_hold_under_one_epoch_and_epochs_of_a_client_rise(seed: int) -> None:
    """P9.2, P9.3: whatever fails; and a hold that its owner is sure of stands in the metadata."""
    chance = random.Random(seed)
    with Cluster(seed=seed, bookies=1, members=3) as cluster:
        names = ["one", "two", "three"]
        locks = {name: cluster.client(name).lock("billing", value=name.encode()) for name in names}
        holds: dict[int, str] = {}
        last = dict.fromkeys(names, 0)
        for _ in range(40):
            name = chance.choice(names)
            lock = locks[name]
            match chance.choice(["ask", "ask", "ask", "release", "cut", "heal", "leader", "wait"]):
                case "ask" if not lock.is_held:
                    lock._locking.let_go()
                    try:
                        epoch = lock.acquire(timeout_s=chance.choice([0, 1, 20]))
                    except (OperationTimeout, MetadataUnavailable, LockLost):
                        continue
                    assert holds.setdefault(epoch, name) == name and epoch > last[name]
                    last[name] = epoch
                case "release" if lock.is_held:
                    try:
                        lock.release()
                    except (MetadataUnavailable, LockLost):
                        continue
                case "cut":
                    cluster.partition([name], MEMBERS)
                case "heal":
                    cluster.heal()
                case "leader":
                    leader = cluster.leader()
                    cluster.crash(leader)
                    cluster.run_for(chance.choice([0.1, 3]))
                    cluster.restart(leader)
                case _:
                    cluster.run_for(chance.choice([0.01, 1, 15]))
            sure = [name for name in names if locks[name].is_held]
            assert len(sure) <= 1, f"{sure} are sure at one time"
        cluster.heal()
        assert holds
