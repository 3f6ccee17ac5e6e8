"""P8.2: an owner's next ledger is listed beside the one it writes to, and where that one ended is recorded behind."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import Begun, LogList, LogSegment, ledger_key_path, log_key_path
from embedbk.codec.metadata_messages import Delete
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.log_rolling import LogPreparing, LogRecording
from embedbk.core.metadata_words import AllocateIds, MetadataFailed, ReadKey, Transact
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import LedgerFenced, MetadataUnavailable, NotEnoughBookies
from embedbk.ids import NO_ENTRY
from tests.rules.test_p8_logs import LOG, commit_of, listed, put_list, take, taken, write
from tests.rules.world import THREE, Client, Operation, World


def preparing(
    world: World, over: TakenOver, name: str = "next", known: tuple[LogList, int] | None = None
) -> Client:
    new = NewLedger(THREE, bytes(16), 77, Begun.BYTES)
    ledger_id = over.metadata.ledger_id
    core = LogPreparing(LOG, over.epoch, ledger_id, new, world.bookies, world.chance, known)
    return world.client(name, core)


def prepare(world: World, over: TakenOver, name: str = "next") -> TakenOver:
    client = preparing(world, over, name)
    client.start()
    world.run(until=lambda: client.has_ended)
    return taken(client)


def recorded(world: World, over: TakenOver, last_entry: int, name: str = "behind") -> Client:
    client = world.client(name, LogRecording(LOG, over.epoch, over.metadata.ledger_id, last_entry))
    client.start()
    world.run(until=lambda: client.has_ended)
    return client


def ledgers(world: World) -> list[str]:
    return [key for key in world.catalog.values if key.startswith("/ledgers/")]


def test_the_next_ledger_is_the_last_of_the_list_and_has_no_place() -> None:
    """P8.2 (i), P8.6: listed from the moment it counts, under the owner's epoch, with why it was begun."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    ahead = prepare(world, over)
    one, other = listed(world).segments
    assert one == over.log_list.segments[0]
    assert other == LogSegment(ahead.metadata.ledger_id, None, None, 77, Begun.BYTES)
    assert (ahead.epoch, listed(world).epoch) == (over.epoch, over.epoch)
    assert ledger_key_path(other.ledger_id) in world.catalog.values
    assert ahead.placed(3).first_offset == 3


def test_its_commit_checks_list_epoch_and_ledger_together() -> None:
    """P8.2 (i): "in one transaction that checks list, epoch and ledger"."""
    world = World()
    client = preparing(world, take(world))
    client.start()
    commit = commit_of(world).effect
    assert isinstance(commit, Transact)
    keys = [compare.key for compare in commit.when]
    assert keys[:2] == [log_key_path(LOG), f"/logs/{LOG}/owner"] and keys[2].startswith("/ledgers/")


def test_who_was_taken_over_lists_nothing_and_leaves_nothing() -> None:
    """P8.2: "own ledger still last and epoch still ours: again; else the log is lost". The ledger made for it goes."""
    world = World()
    over = take(world)
    write(world, over, "w", 1)
    late = preparing(world, over)
    late.start()
    commit = commit_of(world)
    world.catalog.waiting.remove(commit)
    world.catalog.is_held = False
    new = take(world, "rival")
    world.catalog.waiting.append(commit)
    world.run(until=lambda: late.has_ended)
    assert isinstance(late.ended.error, LedgerFenced) and late.ended.error.definite
    assert listed(world) == new.log_list
    assert len(ledgers(world)) == 2
    again = preparing(world, over, "again")
    again.start()
    world.run(until=lambda: again.has_ended)
    assert isinstance(again.ended.error, LedgerFenced)
    assert len(ledgers(world)) == 2


def test_a_list_that_changed_under_its_owner_is_read_again() -> None:
    """P8.2: the end of the ledger before is recorded between reading and commit; the ledger made is used."""
    world = World()
    over = take(world)
    client = preparing(world, over)
    client.start()
    commit_of(world)
    segment = over.log_list.segments[0]
    put_list(world, LogSegment(segment.ledger_id, 5, None), epoch=over.epoch)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert taken(client).log_list.segments[0].first_offset == 5
    assert len(ledgers(world)) == 2


def test_a_list_that_cannot_be_read_is_not_said_to_have_changed() -> None:
    """P2.2: neither yes nor no. Metadata that refuses its owner for good says why; nobody changed the list."""
    world = World()
    core = preparing(world, take(world)).core
    now_ns, effects = world.now_ns, core.step(Started(world.now_ns))
    while not isinstance(effects[0], Ended):
        assert effects == [ReadKey("list", log_key_path(LOG))]
        assert core.step(MetadataFailed(now_ns, "list", "this build is too old")) == []
        assert core.deadline_ns is not None
        now_ns = core.deadline_ns
        effects = core.step(Tick(now_ns))
    error = effects[0].error
    assert isinstance(error, MetadataUnavailable) and error.definite
    assert "gets no further ledger: this build is too old" in str(error)


@pytest.mark.parametrize("lands", [True, None])
def test_a_ledger_that_was_listed_unheard_is_taken_the_next_time(lands: bool | None) -> None:
    """P8.2: its commit had no outcome, and its owner gave up; nobody else lists a ledger without a place."""
    world = World()
    over = take(world)
    client = preparing(world, over)
    client.start()
    commit: Operation = commit_of(world)
    world.catalog.tell_unknown(commit, lands=lands)
    client.is_gone = True
    if lands is None:
        world.catalog.land(commit)
    world.catalog.is_held = False
    world.settle()
    assert len(listed(world).segments) == 2
    ahead = prepare(world, over, "again")
    assert ahead.metadata.ledger_id == listed(world).segments[1].ledger_id
    assert len(ledgers(world)) == 2


def test_one_that_is_listed_late_beside_another_is_taken() -> None:
    """P8.2: two preparations of one owner; the first one's commit lands before the second one's, which makes none."""
    world = World()
    over = take(world)
    first, second = preparing(world, over, "first"), preparing(world, over, "second")
    first.start()
    commit = commit_of(world)
    world.catalog.waiting.remove(commit)
    first.is_gone = True
    second.start()
    commit_of(world)
    world.catalog.transact(commit.effect.when, commit.effect.then)  # type: ignore[union-attr]
    world.catalog.is_held = False
    world.run(until=lambda: second.has_ended)
    assert taken(second).metadata.ledger_id == listed(world).segments[1].ledger_id
    assert len(listed(world).segments) == len(ledgers(world)) == 2


@pytest.mark.parametrize("harm", ["gone", "recovered"])
def test_a_listed_ledger_that_somebody_has_is_not_taken(harm: str) -> None:
    """P8.4: whoever recovers or deletes it has the log."""
    world = World()
    over = take(world)
    ahead = prepare(world, over)
    if harm == "gone":
        world.catalog.transact([], [Delete(ledger_key_path(ahead.metadata.ledger_id))])
    else:
        recovery = world.recovery(ahead.metadata.ledger_id)
        recovery.start()
        world.run(until=lambda: recovery.has_ended)
    again = preparing(world, over, "again")
    again.start()
    world.run(until=lambda: again.has_ended)
    assert isinstance(again.ended.error, LedgerFenced)


def test_an_end_is_recorded_with_the_place_of_the_next_one() -> None:
    """P8.2 (iv), I93: in one compare-and-set; once more changes nothing."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    ahead = prepare(world, over)
    assert recorded(world, over, 2).ended.error is None
    one, other = listed(world).segments
    assert (one.first_offset, one.last_entry) == (0, 2)
    assert (other.ledger_id, other.first_offset, other.begun) == (ahead.metadata.ledger_id, 3, Begun.BYTES)
    revision = world.catalog.values[log_key_path(LOG)][1]
    assert recorded(world, over, 2, "again").ended.error is None
    assert world.catalog.values[log_key_path(LOG)][1] == revision


def asked_by(world: World, client: Client) -> list[object]:
    """What a core asks of the metadata until it ends: keys that it reads, and kinds."""
    world.catalog.is_held = True
    client.start()
    asked: list[object] = []
    while not client.has_ended:
        (operation,) = world.catalog.waiting
        effect = operation.effect
        asked.append(effect.key if isinstance(effect, ReadKey) else type(effect))
        world.catalog.answer(operation)
    world.catalog.is_held = False
    return asked


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_next_ledger_is_listed_behind_the_list_that_its_owner_knows(is_changed: bool) -> None:
    """P8.2 (i, iv): the list as the owner recorded it last is read only where it has changed since, and what others
    wrote into it stays. Else: a truncation of that time is undone, and names ledgers that are gone."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    ahead = prepare(world, over)
    known = recorded(world, over, 2).ended.result
    assert known == (listed(world), world.catalog.values[log_key_path(LOG)][1])
    before = listed(world).segments
    if is_changed:
        before = before[1:]
        put_list(world, *before, epoch=over.epoch)
    client = preparing(world, ahead, "third", known)
    asked = asked_by(world, client)
    if not is_changed:
        assert asked == [AllocateIds, Transact]
    else:
        made, read = asked[2:4]
        assert str(made).startswith("/ledgers/") and read == log_key_path(LOG)
        assert asked == [AllocateIds, Transact, made, read, AllocateIds, Transact]
    assert listed(world).segments[:-1] == before
    assert taken(client).metadata.ledger_id == listed(world).segments[-1].ledger_id
    assert len(ledgers(world)) == 3


def test_a_list_from_before_the_ledger_of_now_is_not_gone_by() -> None:
    """P8.2, P8.4: the ledger that it names last failed, and was replaced since: that is no other owner's log."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    ahead = prepare(world, over)
    known = recorded(world, over, 2).ended.result
    write(world, ahead, "w2", 2)
    later = prepare(world, ahead, "third")
    client = preparing(world, later, "fourth", known)
    assert asked_by(world, client) == [log_key_path(LOG), AllocateIds, Transact]
    assert listed(world).segments[-1].ledger_id == taken(client).metadata.ledger_id
    assert len(listed(world).segments) == 4


def test_an_owner_that_knows_its_list_is_fenced_all_the_same() -> None:
    """P8.4: whoever has the epoch by now has the log, and the one before lists nothing and leaves nothing."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    ahead = prepare(world, over)
    known = recorded(world, over, 2).ended.result
    new = take(world, "rival")
    left = len(ledgers(world))
    client = preparing(world, ahead, "third", known)
    client.start()
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced)
    assert listed(world) == new.log_list and len(ledgers(world)) == left


def test_nobody_records_an_end_in_a_log_that_is_another_s() -> None:
    """P8.2, P8.4: who took the log over has recorded it; a rival that only took the epoch will."""
    world = World()
    over = take(world)
    write(world, over, "w", 1)
    prepare(world, over)
    late = world.client("behind", LogRecording(LOG, over.epoch, over.metadata.ledger_id, 0))
    world.catalog.is_held = True
    late.start()
    world.run(until=lambda: bool(world.catalog.waiting))
    world.catalog.answer(world.catalog.waiting[0])  # The list.
    world.run(until=lambda: bool(world.catalog.waiting))
    (held,) = world.catalog.waiting
    assert isinstance(held.effect, Transact)
    world.catalog.waiting.remove(held)
    world.catalog.is_held = False
    new = take(world, "rival")
    world.catalog.waiting.append(held)
    world.run(until=lambda: late.has_ended)
    assert isinstance(late.ended.error, LedgerFenced)
    assert listed(world) == new.log_list
    segments = new.log_list.segments
    assert [each.last_entry for each in segments[:-1]] == [0], (
        "the prepared one closed empty, and left the list"
    )
    assert segments[-1].first_offset == 1


def test_a_takeover_closes_two_and_gives_both_their_places() -> None:
    """P8.1, P8.2, I91: the owner used its next ledger, and died before it closed the one before."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    ahead = prepare(world, over)
    write(world, ahead.placed(3), "w2", 2)
    new = take(world, "rival")
    assert [(each.first_offset, each.last_entry) for each in new.log_list.segments] == [
        (0, 2),
        (3, 1),
        (5, None),
    ]
    for segment in new.log_list.segments[:-1]:
        assert world.check_end(segment.ledger_id).last_entry == segment.last_entry


def test_a_next_ledger_that_cannot_be_made_leaves_the_log_as_it_is() -> None:
    """P8.2, CL01: too few bookies."""
    world = World()
    over = take(world)
    world.down.add("b3")
    client = preparing(world, over)
    client.start()
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, NotEnoughBookies)
    assert listed(world) == over.log_list and len(ledgers(world)) == 1


def test_what_is_asked_to_be_recorded_of_no_list_is_over() -> None:
    """P8.3: the log was deleted, or the ledger left its list."""
    world = World()
    over = take(world)
    put_list(world, epoch=over.epoch)
    assert recorded(world, over, NO_ENTRY).ended.error is None
    world.catalog.transact([], [Delete(log_key_path(LOG))])
    assert recorded(world, over, 4, "again").ended.error is None
    assert log_key_path(LOG) not in world.catalog.values
