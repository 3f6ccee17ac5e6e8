"""P8.3: ledgers that closed empty leave their log's list in the takeover's transaction, and are deleted behind it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LedgersLeft,
    LogList,
    LogSegment,
    encode_ledgers_left,
    encode_log_list,
    ledger_key_path,
    log_key_path,
    log_left_path,
)
from embedbk.codec.metadata_messages import Put
from embedbk.config import LEDGERS_LEFT_MAX, METADATA_VALUE_BYTES_MAX
from embedbk.core.leaving import Leaving
from embedbk.core.log_listing import TakenOver
from embedbk.core.metadata_words import Transact
from embedbk.errors import LedgerFenced, LogFull, StorageError
from embedbk.ids import NO_ENTRY
from tests.rules.test_p8_logs import LOG, commit_of, left, listed, put_list, take, taken, takeover, write
from tests.rules.world import KEY, Client, Pen, World


def leaving(world: World, over: TakenOver, name: str = "left") -> Client:
    """What a takeover starts behind itself."""
    named = frozenset(segment.ledger_id for segment in over.log_list.segments)
    return world.client(name, Leaving(LOG, over.list_revision, named, KEY))


def delete_left(world: World, over: TakenOver) -> list[int]:
    client = leaving(world, over)
    client.start()
    world.run(until=lambda: client.has_ended)
    assert client.ended.error is None
    deleted = client.ended.result
    assert isinstance(deleted, list)
    return deleted


def exists(world: World, ledger_id: int) -> bool:
    return ledger_key_path(ledger_id) in world.catalog.values


def put_left(world: World, *ledger_ids: int) -> None:
    value = encode_ledgers_left(LedgersLeft(METADATA_VERSION, ledger_ids))
    world.catalog.transact([], [Put(log_left_path(LOG), value)])


def closed_empty(world: World, count: int) -> TakenOver:
    """So many takeovers that append nothing, and one more."""
    for number in range(count):
        take(world, f"empty {number}")
    return take(world, "last")


# What leaves.


def test_ledgers_that_closed_empty_leave_the_list_and_are_deleted_behind_it() -> None:
    """P8.3: list first; then their keys, when each of their seats is durably fenced. What has entries stays."""
    world = World(4)
    write(world, take(world, "p1"), "w1", 2)
    over = closed_empty(world, 1)
    assert [segment.ledger_id for segment in over.log_list.segments] == [1, 3]
    assert left(world) == (2,)
    assert exists(world, 2)  # Nothing is deleted before the list is published.
    seats = {member.bookie_id for member in world.catalog.metadata(2)[0].fragments[-1].members}
    assert delete_left(world, over) == [2]
    assert not exists(world, 2)
    assert log_left_path(LOG) not in world.catalog.values
    assert all(2 in world.nodes[bookie_id].fences_told for bookie_id in seats)
    assert exists(world, 1)
    assert exists(world, 3)


def test_a_log_that_is_taken_over_often_without_an_append_does_not_grow() -> None:
    """P8.3: one ledger in the list, one in the metadata, however often; offsets go on where they were."""
    world = World()
    write(world, take(world, "p1"), "w1", 3)
    for _ in range(30):
        over = take(world)
        delete_left(world, over)
        assert [s.first_offset for s in over.log_list.segments] == [0, 3]
    assert sum(key.startswith("/ledgers/") for key in world.catalog.values) == 2


def test_what_is_recorded_as_empty_since_long_leaves_too() -> None:
    """P8.3: lists of before have many of them; they leave as far as there is room for them to be named elsewhere."""
    world = World()
    first = take(world, "p1")
    old = [LogSegment(1000 + number, 0, NO_ENTRY) for number in range(LEDGERS_LEFT_MAX + 5)]
    put_list(world, *old, LogSegment(first.metadata.ledger_id, 0, None), epoch=first.epoch)
    put_left(world, 7, 8)
    over = take(world, "p2")
    assert len(left(world)) == LEDGERS_LEFT_MAX
    assert left(world)[:2] == (7, 8)
    staying = [segment.ledger_id for segment in over.log_list.segments]
    assert len(staying) == 5 + 1 + 2 + 1  # The empty ones without room, those of 7 and 8, ours before, ours.
    assert not set(staying) & set(left(world))


def test_a_log_whose_front_was_truncated_keeps_its_offsets_when_what_is_left_was_empty() -> None:
    """P8.3, I93: the only ledger that its list names closed empty and leaves; the next begins where that stood."""
    world = World()
    over = take(world, "p1")
    put_list(world, LogSegment(over.metadata.ledger_id, 1000, None), epoch=over.epoch)
    over = take(world, "p2")
    assert left(world) == (1,)
    assert [(s.ledger_id, s.first_offset) for s in over.log_list.segments] == [(2, 1000)]


# A crash between.


def test_what_a_crash_left_is_deleted_behind_the_next_takeover() -> None:
    """P8.3: the list names it no more, its key is there; who takes the log over next deletes it."""
    world = World()
    closed_empty(world, 1)  # And dies before it has deleted anything.
    assert left(world) == (1,)
    over = take(world, "next")
    assert left(world) == (1, 2)
    assert sorted(delete_left(world, over)) == [1, 2]
    assert left(world) == ()


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_deletion_of_unknown_outcome_is_left_to_the_next_takeover(lands: bool | None) -> None:
    """P2.2: it came to pass, never does, or does when the next owner has begun: each is deleted once."""
    world = World()
    over = closed_empty(world, 1)
    client = leaving(world, over)
    client.start()
    world.catalog.is_held = True
    while True:
        world.run(until=lambda: bool(world.catalog.waiting))
        (operation,) = world.catalog.waiting
        if operation.effect.tag == "drop":
            break
        world.catalog.answer(operation)
    world.catalog.tell_unknown(operation, lands=lands)
    world.catalog.is_held = False
    assert client.has_ended
    over = take(world, "next")
    if lands is None:
        assert not world.catalog.land(operation)  # The list has moved on: what it compared is not there.
    delete_left(world, over)
    assert not exists(world, 1)
    assert left(world) == ()


# What is never deleted.


def test_only_what_metadata_itself_calls_closed_and_empty_is_deleted() -> None:
    """P7.7, P8.3: the key that names what left only says where to look: an open ledger, one with entries, one of
    another log and one that is listed stay, whoever wrote their ids there."""
    world = World()
    over = take(world, "p1")
    write(world, over, "w1", 1)
    foreign, _ = world.create()  # Of no log.
    over = take(world, "p2")
    ours = LogSegment(over.metadata.ledger_id, 1, None)
    put_list(world, ours, epoch=over.epoch)  # As if the log had been truncated by somebody.
    revision = world.catalog.values[log_key_path(LOG)][1]
    over = replace(over, log_list=listed(world), list_revision=revision)
    put_left(world, 1, foreign.ledger_id, over.metadata.ledger_id, 99)
    assert delete_left(world, over) == []
    assert exists(world, 1)
    assert exists(world, foreign.ledger_id)
    assert exists(world, over.metadata.ledger_id)
    assert left(world) == ()  # Nothing of it is asked again.


def test_a_ledger_that_the_list_names_again_is_not_deleted() -> None:
    """P8.3: the transaction checks the list at the version read; somebody who rewrote it meanwhile wins."""
    world = World()
    over = closed_empty(world, 1)
    put_list(
        world,
        LogSegment(1, 0, NO_ENTRY),
        LogSegment(over.metadata.ledger_id, 0, None),
        epoch=over.epoch,
    )
    assert delete_left(world, over) == []
    assert exists(world, 1)


def test_a_ledger_with_a_seat_that_is_not_fenced_waits_for_the_next_takeover() -> None:
    """P8.3, P7.4: without a key nobody puts it into limbo, so each seat must have its fence before."""
    world = World(3)
    over = closed_empty(world, 1)
    world.down.add("b3")
    assert delete_left(world, over) == []
    assert exists(world, 1)
    assert left(world) == (1,)
    world.down.clear()
    over = take(world, "next")
    assert sorted(delete_left(world, over)) == [1, 2]


def test_a_seat_that_says_nothing_holds_up_nothing_else() -> None:
    """P8.3: after 5 s its ledgers are left to the next takeover; others of the same batch go."""
    world = World(4)
    over = closed_empty(world, 8)
    seats = {
        ledger_id: {member.bookie_id for member in world.catalog.metadata(ledger_id)[0].fragments[-1].members}
        for ledger_id in range(1, 9)
    }
    silent = min(seats[1])
    client = leaving(world, over)
    client.start()
    world.run(until=lambda: client.has_ended, hold=lambda packet: packet.bookie_id == silent)
    assert client.ended.error is None
    kept = [ledger_id for ledger_id, named in seats.items() if silent in named]
    assert sorted(client.ended.result) == [ledger_id for ledger_id in seats if ledger_id not in kept]
    assert 0 < len(kept) < 8
    assert sorted(left(world)) == kept
    assert all(exists(world, ledger_id) for ledger_id in kept)


@pytest.mark.parametrize("loser", ["b1", "b2", "b3"])
def test_a_writer_that_was_stopped_is_acknowledged_nothing_behind_the_deletion(loser: str) -> None:
    """P8.3, P7.4, I3: W stands still; its ledger is closed empty by b1 b2, leaves and is deleted; b1 or b2 loses its
    fence, and metadata knows nothing of the ledger any more. W's entry needs another copy than that one's."""
    world = World(3)
    first = take(world, "p1")
    writer, pen = world.writer(first.metadata, first.revision, "w1"), Pen(first.metadata.ledger_id)
    client = takeover(world, "p2")
    client.start()
    # Of the recovery's fences the one for b3 is lost; the new ledger is made without it.
    world.run(until=lambda: client.has_ended, hold=lambda packet: packet.bookie_id == "b3")
    world.wire.clear()
    assert delete_left(world, taken(client)) == [1]
    node = world.nodes[loser]
    node.lose()
    node.fences_told.clear()  # As after a lost disk: it is one of the Qa - 1 that may be lost.
    logs = {key: value for key, value in world.catalog.values.items() if key.startswith("/logs/")}
    for key in logs:
        del world.catalog.values[key]
    node.enter_limbo()
    world.catalog.values.update(logs)
    world.add(writer, pen, b"nobody may be told of it")
    world.settle()
    assert writer.confirmed == NO_ENTRY
    assert isinstance(writer.failure, LedgerFenced)


# What cannot be read, and bounds.


def test_a_key_of_what_left_that_cannot_be_read_is_left_alone() -> None:
    """What a newer version or a stranger wrote there is not written over: nothing leaves, the log can be taken over,
    and who would delete says why not."""
    world = World()
    take(world, "p1")
    world.catalog.transact([], [Put(log_left_path(LOG), b"\x93\x09")])
    over = take(world, "p2")
    assert [segment.last_entry for segment in over.log_list.segments] == [NO_ENTRY, None]
    client = leaving(world, over)
    client.start()
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, StorageError)
    assert world.catalog.values[log_left_path(LOG)][0] == b"\x93\x09"


def test_a_ledger_whose_metadata_cannot_be_read_stays() -> None:
    """What cannot be read is not judged: it stays, and stays named, and the others go."""
    world = World()
    over = closed_empty(world, 2)
    kept = world.catalog.values[ledger_key_path(1)]
    world.catalog.values[ledger_key_path(1)] = (b"\x9e\x09", kept[1])
    assert delete_left(world, over) == [2]
    assert left(world) == (1,)
    world.catalog.values[ledger_key_path(1)] = kept
    assert sorted(delete_left(world, take(world, "next"))) == [1, 3]


def test_more_than_fits_one_transaction_goes_batch_by_batch() -> None:
    world = World()
    over = closed_empty(world, 70)
    assert len(left(world)) == 70
    assert sorted(delete_left(world, over)) == list(range(1, 71))
    assert left(world) == ()


def full_list(world: World) -> int:
    """A list that has no room for one more ledger behind it; how many are closed in it."""
    over = take(world, "p1")
    ours = LogSegment(over.metadata.ledger_id, 1 << 40, None)
    size = len(msgspec.msgpack.encode((1 << 20, 1 << 20, 3, 0, 0)))
    closed = [LogSegment((1 << 20) + n, 1 << 20, 3) for n in range(METADATA_VALUE_BYTES_MAX // size)]
    whole = LogList(METADATA_VERSION, over.epoch, (*closed, ours))
    for _ in range((len(encode_log_list(whole)) - METADATA_VALUE_BYTES_MAX + size - 1) // size):
        closed.pop()
    put_list(world, *closed, ours, epoch=over.epoch)
    return len(closed)


def test_a_full_list_is_an_error_of_its_own_before_anything_is_touched() -> None:
    """P8.1: at once, definite, with log and size; whoever writes goes on, and no ledger is left behind."""
    world = World()
    count = full_list(world)
    writer, pen = world.writer(*world.catalog.metadata(1), "w1"), Pen(1)
    before = dict(world.catalog.values)
    client = takeover(world, "p2")
    client.start()
    world.settle()
    error = client.ended.error
    assert isinstance(error, LogFull)
    assert error.definite
    assert error.hint
    assert f"log '{LOG}' is full: its list of {count + 1} ledgers would have" in str(error)
    assert str(METADATA_VALUE_BYTES_MAX) in str(error)
    assert {key for key in before if world.catalog.values[key] != before[key]} == {f"/logs/{LOG}/owner"}
    assert set(world.catalog.values) == set(before)
    assert not world.packets(kind=FenceRequest)
    world.add(writer, pen, b"goes on")
    world.settle()
    assert writer.confirmed == 0


def test_room_for_empty_ledgers_counts_before_a_new_ledger_is_made() -> None:
    """P8.3: where what closed empty cannot leave, as too many left before, the list may be full after all."""
    world = World()
    count = full_list(world)
    segments = [LogSegment((1 << 20) + number, 1 << 20, NO_ENTRY) for number in range(count)]
    put_list(world, *segments, LogSegment(1, 1 << 40, None))
    put_left(world, *range(1 << 30, (1 << 30) + LEDGERS_LEFT_MAX))
    ledgers = {key for key in world.catalog.values if key.startswith("/ledgers/")}
    client = takeover(world, "p2")
    client.start()
    world.settle()
    assert isinstance(client.ended.error, LogFull)
    assert {key for key in world.catalog.values if key.startswith("/ledgers/")} == ledgers
    put_left(world)
    assert len(take(world, "p3").log_list.segments) == count - LEDGERS_LEFT_MAX + 2


# Against others.


@pytest.mark.parametrize("deletes_first", [True, False])
def test_two_owners_that_delete_at_once_delete_once_and_nothing_that_is_listed(deletes_first: bool) -> None:
    """P8.3, P8.4: the former owner is still at it when the log is taken over: its transaction is refused, or the new
    owner's commit is, and begins again."""
    world = World()
    over = closed_empty(world, 1)
    client = takeover(world, "p2")
    client.start()
    commit = commit_of(world)
    world.catalog.waiting.remove(commit)
    world.catalog.is_held = False
    old = leaving(world, over, "old")
    old.start()
    if not deletes_first:
        assert isinstance(commit.effect, Transact)
        world.catalog.transact(commit.effect.when, commit.effect.then)  # And nobody hears of it yet.
    world.run(until=lambda: old.has_ended)
    assert old.ended.result == ([1] if deletes_first else [])
    world.catalog.waiting.append(commit)
    world.run(until=lambda: client.has_ended)
    new = taken(client)
    delete_left(world, new)
    assert left(world) == ()
    ledgers = [key for key in world.catalog.values if key.startswith("/ledgers/")]
    assert ledgers == [ledger_key_path(new.metadata.ledger_id)]
    assert listed(world) == new.log_list
