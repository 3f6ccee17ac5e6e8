"""P8.5: "one transaction checks that the list's version is unchanged, every ledger now listed is CLOSED, each staged
one is CLOSED and still staging, and the transaction's (application, version) is new; then sets all"."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Begun,
    LedgerState,
    encode_ledger_metadata,
    encode_log_list,
    ledger_key_path,
    log_key_path,
    log_owner_path,
)
from embedbk.codec.log_splices import (
    APPLICATIONS_MAX,
    LogSplices,
    SplicedRecord,
    StagedRecord,
    decode_log_splices,
    encode_log_splices,
    encode_staged,
    log_splices_path,
    staged_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.config import METADATA_VALUE_BYTES_MAX
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.log_splicing import LogHolding, LogSplicing, Splice, Spliced
from embedbk.core.metadata_words import Transact
from embedbk.core.staging_sweeping import StagingSweeping
from embedbk.core.truncation import without
from embedbk.errors import LedgerFenced, MetadataUnavailable, UsageError
from tests.rules.test_p8_logs import LOG, listed, put_list
from tests.rules.test_p8_pages import closed, run, takeover, whole
from tests.rules.test_p8_truncating import held_at, rolled
from tests.rules.world import KEY, THREE, Client, World

JOB = b"job"


def staged(world: World, ledger_id: int, number: int = 1, *, entries: int = 3, job: bytes = JOB) -> int:
    """A closed ledger that waits to be spliced."""
    metadata, _ = world.create(ledger_id=ledger_id)
    ended = metadata.with_changes(state=LedgerState.CLOSED, last_entry=entries - 1, length=10 * entries)
    mark = StagedRecord(METADATA_VERSION, ledger_id, "import", number, job, 1_000)
    puts = [
        Put(ledger_key_path(ledger_id), encode_ledger_metadata(ended)),
        Put(staged_path(LOG, ledger_id), encode_staged(mark)),
    ]
    world.catalog.transact([], list(puts))
    return ledger_id


def hold(world: World, name: str = "h") -> int:
    new = NewLedger(THREE, bytes(16), 0, Begun.TAKEOVER, page_ledgers=4)
    core = LogHolding(LOG, name.encode(), new, KEY, world.bookies, world.chance)
    ended = run(world, world.client(name, core)).ended
    assert ended.error is None
    epoch: int = ended.result
    return epoch


def splicing(world: World, ids: tuple[int, ...], number: int = 1, name: str = "s", **options: Any) -> Client:
    new = NewLedger(THREE, bytes(16), 77, Begun.TAKEOVER, page_ledgers=4)
    splice = Splice("import", number, JOB, ids)
    if not options:
        options["kept_epoch"] = hold(world)
    core = LogSplicing(LOG, name.encode(), new, KEY, world.bookies, world.chance, splice, **options)
    return world.client(name, core)


def spliced_of(client: Client) -> Spliced:
    assert client.ended.error is None
    assert isinstance(client.ended.result, Spliced)
    return client.ended.result


def recorded(world: World) -> LogSplices:
    value, _ = world.catalog.values[log_splices_path(LOG)]
    return decode_log_splices(value, LOG)


def test_one_transaction_compares_all_of_it_and_sets_all() -> None:
    world = World()
    rolled(world, 2)
    ids = (staged(world, 50), staged(world, 40, entries=2))
    client = splicing(world, ids)
    before = listed(world)
    client.start()
    commit = held_at(world, "commit").effect
    assert isinstance(commit, Transact)
    assert {each.key for each in commit.when} == {
        log_key_path(LOG),
        log_owner_path(LOG),
        log_splices_path(LOG),
        *(staged_path(LOG, each) for each in ids),
        *(ledger_key_path(each) for each in ids),
    }
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    done = spliced_of(client)
    end = before.segments[-1].first_offset or 0
    end += (before.segments[-1].last_entry or 0) + 1
    assert done.record == SplicedRecord("import", 1, JOB, end, end + 5, 2, 77) and not done.is_replay
    assert recorded(world).spliced == (done.record,)
    new = whole(world)[-2:]  # Whichever of them went to a page.
    assert [(each.ledger_id, each.first_offset, each.last_entry, each.begun) for each in new] == [
        (50, end, 2, Begun.SPLICE),
        (40, end + 3, 1, Begun.SPLICE),
    ]
    assert not any(key.startswith("/log-staging/") for key in world.catalog.values)


def test_nothing_is_spliced_beside_an_open_ledger() -> None:
    """P8.5: "Never beside an open ledger": whoever holds the log closed it, and another owner's is not touched."""
    world = World()
    ids = (staged(world, 50),)
    run(world, takeover(world))
    client = splicing(world, ids)
    assert all(each.last_entry is not None for each in listed(world).segments)
    run(world, takeover(world, "rival"))
    client.start()
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced) and client.ended.error.definite
    rivals = listed(world).segments[-1]
    assert rivals.last_entry is None
    assert world.catalog.metadata(rivals.ledger_id)[0].state == LedgerState.OPEN  # Nor is its writer fenced.


def test_a_number_that_is_not_new_is_a_replay() -> None:
    """P8.5: "the transaction's (application, version) is new"; its own answer is given again."""
    world = World()
    done = spliced_of(run(world, splicing(world, (staged(world, 50, 2),), 2)))
    for number in (1, 2):
        again = spliced_of(run(world, splicing(world, (staged(world, 60 + number, number),), number, "t")))
        assert again.is_replay and again.record == done.record
    assert [each.ledger_id for each in listed(world).segments] == [50]
    later = spliced_of(run(world, splicing(world, (staged(world, 70, 3),), 3, "u")))
    assert (later.is_replay, later.record.first_offset) == (False, 3)


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_splice_of_unknown_outcome_is_settled_and_comes_once(lands: bool | None) -> None:
    """P2.2: our list standing there means done, and what was spliced tells where it does not."""
    world = World()
    rolled(world, 2)
    client = splicing(world, (staged(world, 50),))
    client.start()
    first = held_at(world, "commit")
    world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(world, "commit")
        assert world.catalog.land(first)
        world.catalog.answer(again)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert spliced_of(client).record.number == 1
    assert [each.ledger_id for each in listed(world).segments].count(50) == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_splice_that_landed_under_a_list_that_changed_since_is_known_by_its_record(is_lost: bool) -> None:
    """Whoever took the log over behind it changed list and epoch; it is not said that nothing was spliced."""
    world = World()
    rolled(world, 2)
    client = splicing(world, (staged(world, 50),))
    client.start()
    first = held_at(world, "commit")
    world.catalog.land(first)
    now = listed(world)
    cut = encode_log_list(without(now, now.segments, 1))
    world.catalog.transact([], [Put(log_key_path(LOG), cut)])
    if is_lost:
        world.catalog.transact([], [Put(log_owner_path(LOG), b"another")])
    world.catalog.tell_unknown(first, lands=False)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    done = spliced_of(client)
    assert (done.record.number, done.is_replay, bool(done.epoch)) == (1, False, not is_lost)


def test_whoever_lost_the_log_splices_nothing() -> None:
    """P9.1: the transaction compares the epoch."""
    world = World()
    rolled(world, 1)
    client = splicing(world, (staged(world, 50),))
    client.start()
    held_at(world, "commit")
    world.catalog.transact([], [Put(log_owner_path(LOG), b"another")])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced) and client.ended.error.definite
    assert log_splices_path(LOG) not in world.catalog.values
    assert staged_path(LOG, 50) in world.catalog.values


def test_of_a_sweeper_and_a_splice_one_comes_to_pass() -> None:
    """P8.5: "still staging": the mark is what both compare."""
    world = World()
    ids = (staged(world, 50), staged(world, 51))
    client = splicing(world, ids)
    client.start()
    held_at(world, "commit")
    world.catalog.is_held = False
    sweeper = world.client("sweeper", StagingSweeping(LOG, (50,), 0, JOB))
    held = [*world.catalog.waiting]
    sweeper.start()
    while not sweeper.has_ended:
        for operation in [each for each in world.catalog.waiting if each not in held]:
            world.catalog.answer(operation)
    assert sweeper.ended.result == (1, ())
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, UsageError) and "not staged any more" in str(client.ended.error)
    assert log_key_path(LOG) not in world.catalog.values
    assert ledger_key_path(51) in world.catalog.values


def test_a_sweeper_is_too_late_for_what_was_spliced() -> None:
    world = World()
    staged(world, 50)
    sweeper = world.client("sweeper", StagingSweeping(LOG, (50,), 5_000))
    sweeper.start()
    drop = held_at(world, "drop")
    held = [*world.catalog.waiting]
    assert drop in held
    done = LogSplices(METADATA_VERSION, (SplicedRecord("import", 1, JOB, 0, 3, 1, 0),))
    world.catalog.transact(
        [], [Delete(staged_path(LOG, 50)), Put(log_splices_path(LOG), encode_log_splices(done))]
    )
    world.catalog.is_held = False
    world.run(until=lambda: sweeper.has_ended)
    assert (sweeper.ended.error, sweeper.ended.result) == (None, (0, ()))
    assert ledger_key_path(50) in world.catalog.values


@pytest.mark.parametrize(
    ("wall_ms", "job", "takes_all", "goes"),
    [
        (999, None, False, (40,)),
        (1_000, None, False, (40, 50)),
        (0, JOB, False, (40, 50)),
        (0, b"other", False, (40,)),
        (0, None, True, (40, 50)),
    ],
)
def test_what_is_given_up(wall_ms: int, job: bytes | None, takes_all: bool, goes: tuple[int, ...]) -> None:
    """What a newer transaction has left behind, what is too old, what was called off; and nothing else."""
    world = World()
    done = LogSplices(METADATA_VERSION, (SplicedRecord("import", 1, b"winner", 0, 3, 1, 0),))
    world.catalog.transact([], [Put(log_splices_path(LOG), encode_log_splices(done))])
    staged(world, 40, 1)
    staged(world, 50, 2)
    core = StagingSweeping(LOG, (40, 50, 60), wall_ms, job, takes_all=takes_all)
    ended = run(world, world.client("sweeper", core)).ended
    assert (ended.error, ended.result) == (None, (len(goes), ()))
    for ledger_id in (40, 50):
        is_there = ledger_id not in goes
        assert (staged_path(LOG, ledger_id) in world.catalog.values) == is_there
        assert (ledger_key_path(ledger_id) in world.catalog.values) == is_there


def test_an_open_ledger_is_not_given_up() -> None:
    """P2.3: only a closed ledger is deleted; whoever sweeps recovers it first."""
    world = World()
    staged(world, 50)
    metadata, _ = world.create(ledger_id=60)
    mark = StagedRecord(METADATA_VERSION, 60, "import", 1, JOB, 1_000)
    world.catalog.transact([], [Put(staged_path(LOG, 60), encode_staged(mark))])
    ended = run(world, world.client("sweeper", StagingSweeping(LOG, (60, 50), 2_000))).ended
    assert (ended.error, ended.result) == (None, (1, (60,)))
    assert not metadata.is_closed and ledger_key_path(60) in world.catalog.values
    assert staged_path(LOG, 60) in world.catalog.values


def test_an_owner_lists_its_next_ledger_behind_what_it_splices() -> None:
    """P8.5: "Only by the owner inside a roll (close, append the staged, append the next)"."""
    world = World()
    over = run(world, takeover(world)).ended.result
    client = splicing(world, (staged(world, 50),), renews=over.epoch, lists_next=True)
    run(world, client)
    taken = client.ended.result
    assert isinstance(taken, TakenOver)
    ids = [each.ledger_id for each in listed(world).segments]
    assert ids == [50, taken.metadata.ledger_id]  # Its own one was empty, and left.
    assert taken.first_offset == 3 and taken.log_list.segments[-1].last_entry is None
    core: Any = client.core
    assert core.spliced.record.end == 3 and core.unspliced is None


def test_an_owner_that_lost_the_log_leaves_no_ledger_behind_its_splice() -> None:
    """P8.1, P8.3: its next ledger is made before the splice, which compares too much beside it; nobody ever writes to
    one that was made and not listed."""
    world = World()
    over = rolled(world, 1)
    client = splicing(world, (staged(world, 50),), renews=over.epoch, lists_next=True)
    client.start()
    commit = held_at(world, "commit")
    made = ledger_key_path(world.catalog.next_id - 1)
    assert made in world.catalog.values
    world.catalog.waiting.remove(commit)
    world.catalog.is_held = False
    run(world, takeover(world, "rival"))
    world.catalog.waiting.append(commit)
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced)
    assert made not in world.catalog.values


def test_an_owner_that_cannot_splice_gets_its_next_ledger_all_the_same() -> None:
    world = World()
    over = run(world, takeover(world)).ended.result
    client = splicing(world, (50,), renews=over.epoch, lists_next=True)
    run(world, client)
    assert isinstance(client.ended.result, TakenOver)
    core: Any = client.core
    assert isinstance(core.unspliced, UsageError) and core.spliced is None
    assert log_splices_path(LOG) not in world.catalog.values


def test_what_is_spliced_at_a_later_look_is_not_said_to_be_refused() -> None:
    """The list has changed under the commit, so that all is looked at again; by then the ledger is ready."""
    world = World()
    over = run(world, takeover(world)).ended.result
    client = splicing(world, (50,), renews=over.epoch, lists_next=True)
    client.start()
    held_at(world, "commit")
    staged(world, 50)
    value, _ = world.catalog.values[log_key_path(LOG)]
    world.catalog.transact([], [Put(log_key_path(LOG), value)])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.result, TakenOver)
    core: Any = client.core
    assert core.spliced.record == recorded(world).spliced[0] and core.unspliced is None


def test_what_is_full_is_said_before_anything_is_changed() -> None:
    world = World()
    put_list(world, *closed(2))
    client = splicing(world, (staged(world, 50),))
    client.start()
    held_at(world, "commit")
    world.catalog.refuses = "it is full"
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    error = client.ended.error
    assert (
        isinstance(error, MetadataUnavailable) and error.definite and "cannot be spliced into" in str(error)
    )


def test_transactions_that_nobody_runs_again_are_kept_for_a_while_only() -> None:
    """Of one that is tried once the record tells the outcome, no more; those of applications stay."""
    world = World()
    once = [SplicedRecord(f"once {n}", 0, JOB, 0, 1, 1, 0, True) for n in range(100)]
    named = [SplicedRecord("named", 9, JOB, 0, 1, 1, 0)]
    value = encode_log_splices(LogSplices(METADATA_VERSION, (*named, *once)))
    world.catalog.transact([], [Put(log_splices_path(LOG), value)])
    new = NewLedger(THREE, bytes(16), 77, Begun.TAKEOVER, page_ledgers=4)
    staged(world, 50)
    splice = Splice("import", 1, JOB, (50,), is_once=True)
    core = LogSplicing(LOG, b"s", new, KEY, world.bookies, world.chance, splice, kept_epoch=hold(world))
    assert run(world, world.client("s", core)).ended.error is None
    kept = [each.application for each in recorded(world).spliced]
    assert kept == ["named", *(f"once {n}" for n in range(1, 100)), "import"]


def test_a_log_knows_a_bounded_number_of_applications() -> None:
    """Nothing of one that is known is forgotten by itself: it would come to pass twice."""
    world = World()
    named = tuple(SplicedRecord(f"named {n}", 0, JOB, 0, 1, 1, 0) for n in range(APPLICATIONS_MAX))
    value = encode_log_splices(LogSplices(METADATA_VERSION, named))
    assert len(value) < METADATA_VALUE_BYTES_MAX // 4
    world.catalog.transact([], [Put(log_splices_path(LOG), value)])
    refused = run(world, splicing(world, (staged(world, 50),))).ended.error
    assert isinstance(refused, UsageError) and "may know 400" in str(refused)
    left = encode_log_splices(LogSplices(METADATA_VERSION, named[1:]))
    world.catalog.transact([], [Put(log_splices_path(LOG), left)])
    assert not spliced_of(run(world, splicing(world, (50,), 1, "again"))).is_replay
