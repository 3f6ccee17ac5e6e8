"""Locks and elections in the catalog: one holder, its epoch, handing over in order of asking (P9.3)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from embedbk.codec.metadata_messages import (
    Acquire,
    Claimed,
    CloseSession,
    Compare,
    Delete,
    Put,
    Refusal,
    Release,
    Result,
    Txn,
    TxnDone,
)
from embedbk.metadata.catalog import Catalog, Limits
from embedbk.metadata.commands import (
    RULES,
    BeginGeneration,
    Changing,
    ExpireSession,
    Run,
    StartSession,
    decode_command,
    encode_command,
)
from embedbk.metadata.loading import load
from embedbk.testing.history import Call, check_history
from embedbk.testing.lock_history import check_locks
from embedbk.testing.violation import Violation


class Session:
    """One client of a catalog, at places of one log."""

    index = 0

    def __init__(self, catalog: Catalog, label: str = "test") -> None:
        self.catalog, self.sequence = catalog, 0
        command = StartSession(0, 10_000, label, b"secret")
        Session.index += 1
        self.number = catalog.number_of(command, Session.index)
        catalog.apply(command, Session.index, 1)

    def run(self, operation: Changing) -> Result:
        self.sequence += 1
        run = decode_command(encode_command(Run(self.number, self.sequence, self.sequence, operation, RULES)))
        return self.catalog.apply(run, 1, 1)

    def acquire(self, name: str = "l", value: bytes = b"") -> Claimed:
        claimed = self.run(Acquire(name, value))
        assert isinstance(claimed, Claimed), claimed
        return claimed


def holder(catalog: Catalog, name: str = "l") -> tuple[int, int, int] | None:
    """(session, epoch, asked)."""
    record = catalog.get(f"/locks/{name}").record
    return (record.session, record.revision, record.created) if record else None


def pieces(catalog: Catalog) -> list[bytes]:
    """Of a snapshot."""
    cut = catalog.cut()
    return list(iter(cut.next_piece, None))


def refused(result: Result, code: str) -> str:
    assert isinstance(result, Refusal)
    assert result.code == code
    return result.text


def test_a_lock_is_handed_over_in_order_of_asking() -> None:
    """P9.3: who asked first of those who wait holds next, in the command that takes it from the holder."""
    catalog = Catalog()
    one, two, three, four = (Session(catalog) for _ in range(4))
    assert one.acquire(value=b"1") == Claimed(1, 1, 1)
    assert two.acquire(value=b"2") == Claimed(0, 2, 2)
    assert three.acquire(value=b"3") == Claimed(0, 3, 3)
    assert four.acquire(value=b"4") == Claimed(0, 4, 4)
    assert two.acquire() == Claimed(0, 2, 4)  # Asked again: its place is its place.
    assert one.run(Release("l", 1)) == TxnDone(True, 5)
    assert (holder(catalog), two.acquire()) == ((two.number, 5, 2), Claimed(5, 2, 5))
    catalog.apply(ExpireSession(two.number), 1, 1)  # three is next, whatever takes the lock from two.
    assert holder(catalog) == (three.number, 6, 3)
    assert three.run(CloseSession()) and holder(catalog) == (four.number, 7, 4)
    record = catalog.get("/locks/l").record
    assert record is not None and record.value == b"4"
    assert four.run(Release("l")) == TxnDone(True, 8)
    assert (holder(catalog), len(catalog.page("/").records)) == (None, 0)


def test_the_end_of_a_session_gives_all_its_locks_and_places_away_at_one_revision() -> None:
    """P9.3, METADATA.md 7: at no revision does a lock lie between two, and a watch is told of each key once."""
    catalog = Catalog()
    one, two, three = (Session(catalog) for _ in range(3))
    for name in ("a", "b", "c"):
        one.acquire(name)
        two.acquire(name)
    three.acquire("d")
    one.acquire("d")
    before = catalog.revision
    catalog.apply(ExpireSession(one.number), 1, 1)
    assert catalog.revision == before + 1
    assert [holder(catalog, name) for name in "abc"] == [
        (two.number, before + 1, asked) for asked in (2, 4, 6)
    ]
    assert [record.key for record in catalog.page("/waiting/").records] == []
    told = catalog.history.at(before + 1)
    keys = [record.key for record in told]
    assert len(keys) == len(set(keys))
    assert {record.key for record in told if record.value is not None} == {"/locks/a", "/locks/b", "/locks/c"}
    assert holder(catalog, "d") == (three.number, 7, 7)


def test_a_thousand_that_wait_are_woken_one_at_a_time() -> None:
    """Story 19, P9.3: each release changes the key of its lock and one place, whoever else waits; nobody races."""
    catalog = Catalog()
    sessions = [Session(catalog) for _ in range(1_000)]
    for each in sessions:
        each.acquire()
    for holding, following in pairwise(sessions):
        before = catalog.revision
        assert holding.run(Release("l")) == TxnDone(True, before + 1)
        told = {
            record.key: record.session
            for record in catalog.history.at(before + 1)
            if record.value is not None
        }
        assert told == {"/locks/l": following.number}
        assert len(catalog.history.at(before + 1)) == 2
    assert sessions[-1].run(Release("l"))
    assert not catalog.page("/").records


def test_whoever_gives_up_is_passed_over() -> None:
    """P9.3: one that waits no longer, or whose session ended, has no turn."""
    catalog = Catalog()
    one, two, three, four = (Session(catalog) for _ in range(4))
    for each in (one, two, three, four):
        each.acquire()
    assert two.run(Release("l")) == TxnDone(True, 5)
    catalog.apply(ExpireSession(three.number), 1, 1)
    assert holder(catalog) == (one.number, 1, 1)
    one.run(Release("l"))
    assert holder(catalog) == (four.number, 7, 4)
    assert two.acquire() == Claimed(0, 8, 8)  # At the end again.


def test_a_late_release_gives_no_later_hold_away() -> None:
    """P9.3: Release names the epoch that it gives away."""
    catalog = Catalog()
    one, two = Session(catalog), Session(catalog)
    first = one.acquire()
    one.run(Release("l", first.epoch))
    again = one.acquire()
    assert one.run(Release("l", first.epoch)) == TxnDone(False, catalog.revision)
    assert two.acquire().epoch == 0
    assert two.run(Release("l", again.epoch)) == TxnDone(False, catalog.revision)  # It holds nothing.
    assert holder(catalog) == (one.number, again.epoch, again.asked)
    assert one.run(Release("other")) == TxnDone(False, catalog.revision)


def test_an_epoch_fences_what_a_transaction_protects() -> None:
    """P9.1, P9.2: who held before changes nothing any more, whatever it believes; epochs rise, over generations too."""
    catalog = Catalog()
    one, two = Session(catalog), Session(catalog)
    first = one.acquire()
    two.acquire()
    mine = Txn([Compare("/locks/l", first.epoch)], [Put("/guarded", b"1")])
    assert one.run(mine) == TxnDone(True, 3)
    one.run(Release("l"))
    assert one.run(mine) == TxnDone(False, 4)
    catalog.apply(BeginGeneration(), 1, 1)
    two.run(Release("l"))
    assert one.acquire().epoch > 1 << 48


@pytest.mark.parametrize("key", ["/locks/l", "/locks/other", "/waiting/l/00000000000000000001", "/waiting/x"])
def test_a_transaction_does_not_change_the_keys_of_locks(key: str) -> None:
    """P9.3: whoever puts or deletes one would hold without having asked, or take it from its holder."""
    catalog = Catalog()
    one, two = Session(catalog), Session(catalog)
    one.acquire()
    for change in (Put(key, b"mine", True), Put(key, b"mine"), Delete(key)):
        assert "Acquire and Release" in refused(two.run(Txn([], [change])), "BAD_REQUEST")
    assert (catalog.revision, holder(catalog)) == (1, (one.number, 1, 1))
    assert len(catalog.page("/").records) == 1


@pytest.mark.parametrize("name", ["", "a/b", "/", "a\0", "n" * 483])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    catalog = Catalog()
    one = Session(catalog)
    for operation in (Acquire("n" * 482), Release("n" * 482)):
        assert not isinstance(one.run(operation), Refusal)
    for operation in (Acquire(name), Release(name)):
        refused(one.run(operation), "BAD_REQUEST")
    refused(one.run(Acquire("l", bytes((1 << 18) + 1))), "BAD_REQUEST")
    assert catalog.page("/").records == []


def test_names_that_begin_alike_are_different_locks() -> None:
    catalog = Catalog()
    one, two = Session(catalog), Session(catalog)
    for each, name in ((one, "a"), (one, "ab"), (two, "ab"), (two, "a")):
        each.acquire(name)
    one.run(Release("a"))
    assert (holder(catalog, "a"), holder(catalog, "ab")) == ((two.number, 5, 4), (one.number, 2, 2))
    one.run(Release("ab"))
    assert holder(catalog, "ab") == (two.number, 6, 3)


def test_only_so_many_wait_for_one_lock() -> None:
    """METADATA.md, 3: lock_waiters_max; whoever is refused has no place, and those who wait keep theirs."""
    catalog = Catalog(Limits(lock_waiters_max=2))
    sessions = [Session(catalog) for _ in range(4)]
    for each in sessions[:3]:
        each.acquire()
    assert "2 sessions wait" in refused(sessions[3].run(Acquire("l")), "UNAVAILABLE")
    assert sessions[2].acquire().epoch == 0
    assert sessions[3].acquire("other").epoch
    sessions[0].run(Release("l"))
    assert sessions[3].acquire().epoch == 0


def test_a_full_session_or_catalog_has_no_room_for_a_lock() -> None:
    """METADATA.md, 3: keys of locks are counted as others are."""
    catalog = Catalog(Limits(ephemeral_keys_max=2))
    one, two = Session(catalog), Session(catalog)
    for name in ("a", "b"):
        one.acquire(name)
    refused(one.run(Acquire("c")), "BAD_REQUEST")
    two.acquire("c")
    refused(one.run(Acquire("c")), "BAD_REQUEST")
    full = Catalog(Limits(catalog_bytes_max=100, catalog_reserve_bytes=0, session_share_bytes=100))
    refused(Session(full).run(Acquire("l", bytes(300))), "UNAVAILABLE")
    assert full.page("/").records == [] and full.revision == 0


@pytest.mark.parametrize("seed", range(30))
def test_locks_come_out_right_whatever_happens(seed: int) -> None:
    """P9.3: against a plain list of who asked, over snapshots too; the answers are a true history, lies are not."""
    chance = random.Random(seed)
    catalog = Catalog(Limits(ephemeral_keys_max=8))
    sessions = [Session(catalog) for _ in range(5)]
    queues: dict[str, list[int]] = {name: [] for name in ("a", "b", "c")}
    calls: list[Call] = []
    for step in range(300):
        one, name = chance.choice(sessions), chance.choice(list(queues))
        queue, drawn = queues[name], chance.random()
        before = {each: holder(catalog, each) for each in queues}
        if drawn < 0.5:
            claimed = one.acquire(name)
            if one.number not in queue:
                queue.append(one.number)
            assert bool(claimed.epoch) == (queue[0] == one.number)
            calls.append(Call(str(one.number), Acquire(name), step, step, claimed))
        elif drawn < 0.85:
            done = one.run(Release(name))
            assert done == TxnDone(one.number in queue, catalog.revision)
            if one.number in queue:
                queue.remove(one.number)
            calls.append(Call(str(one.number), Release(name), step, step, done))
        elif drawn < 0.95:
            catalog.apply(ExpireSession(one.number), 1, 1)
            sessions[sessions.index(one)] = Session(catalog)
            for each in queues.values():
                if one.number in each:
                    each.remove(one.number)
        else:
            catalog = load(pieces(catalog), catalog.limits) if step % 2 else catalog.copy()
            for each in sessions:
                each.catalog = catalog
        for each, waiting in queues.items():
            found = holder(catalog, each)
            assert (found[0] if found else None) == (waiting[0] if waiting else None)
            if found and found != before[each]:
                assert found[1] == catalog.revision  # A new hold has a new epoch.
            places = [record.session for record in catalog.page(f"/waiting/{each}/").records]
            assert places == waiting[1:]
        assert Catalog.restore(catalog.snapshot(), catalog.limits).digest() == catalog.digest()
    assert check_history(calls) == len(calls)
    assert check_locks(calls) > 5
    lies = 0
    for call in calls:
        if isinstance(call.result, Claimed) and call.result.epoch == 0:
            truth, call.result = (
                call.result,
                Claimed(call.result.revision, call.result.asked, call.result.revision),
            )
            try:
                check_locks(calls)
            except Violation:
                lies += 1
            call.result = truth
    assert lies > 10
