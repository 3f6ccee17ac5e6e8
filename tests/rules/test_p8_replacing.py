"""P8.2: a ledger of a log that failed is replaced: where it ended, and the next one listed behind it, by its owner."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import (
    Begun,
    LedgerState,
    LogSegment,
    ledger_key_path,
    log_key_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.core.client_words import AddFailed
from embedbk.core.log_listing import NewLedger, TakenOver
from embedbk.core.log_replacing import LogReplacing
from embedbk.core.metadata_words import Transact
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import LedgerFenced, NoSuchLedger, StorageError
from embedbk.ids import NO_ENTRY
from tests.rules.test_p8_logs import LOG, commit_of, listed, take, taken, write
from tests.rules.test_p8_rolling import ledgers, prepare
from tests.rules.world import KEY, THREE, Client, Pen, World


def replacing(
    world: World, over: TakenOver, ended: int | None, confirmed: int = NO_ENTRY, name: str = "next"
) -> Client:
    new = NewLedger(THREE, bytes(16), 77, Begun.REQUEST)
    ledger_id = over.metadata.ledger_id
    confirmed = confirmed if ended is None else ended
    core = LogReplacing(LOG, over.epoch, ledger_id, confirmed, ended, new, KEY, world.bookies, world.chance)
    return world.client(name, core)


def ended(world: World, client: Client) -> Client:
    client.start()
    world.run(until=lambda: client.has_ended)
    return client


def close(world: World, over: TakenOver, writer: Client) -> int:
    """By the writer itself; its last entry."""
    world.close(writer)
    world.run(until=lambda: writer.has_ended)
    return world.check_end(over.metadata.ledger_id).last_entry or 0


def test_the_next_ledger_is_listed_with_its_place_and_the_end_of_the_one_that_failed() -> None:
    """P8.2, P8.6: in one compare-and-set, under the same epoch; the list says why it was begun."""
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 3)
    last = close(world, over, writer)
    ahead = taken(ended(world, replacing(world, over, last)))
    one, other = listed(world).segments
    assert (one.first_offset, one.last_entry) == (0, 2)
    assert other == LogSegment(ahead.metadata.ledger_id, 3, None, 77, Begun.FAILURE)
    assert (ahead.epoch, ahead.first_offset, listed(world).epoch) == (over.epoch, 3, over.epoch)


def test_its_commit_checks_list_epoch_and_ledger_together() -> None:
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 1)
    client = replacing(world, over, close(world, over, writer))
    client.start()
    commit = commit_of(world).effect
    assert isinstance(commit, Transact)
    keys = [compare.key for compare in commit.when]
    assert keys[:2] == [log_key_path(LOG), f"/logs/{LOG}/owner"] and keys[2].startswith("/ledgers/")


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED])
def test_an_end_that_its_writer_could_not_make_comes_from_metadata_or_a_recovery(state: LedgerState) -> None:
    """P8.2: somebody opened the ledger by its id and recovers it, or did; the epoch is ours still."""
    world = World()
    over = take(world)
    write(world, over, "w", 3)
    if state is not LedgerState.OPEN:
        stray = world.recovery(over.metadata.ledger_id)
        stray.start()
        ledger_id = over.metadata.ledger_id
        world.run(until=lambda: world.catalog.metadata(ledger_id)[0].state == state)
        stray.is_gone = True
    ahead = taken(ended(world, replacing(world, over, None, 2)))
    one, other = listed(world).segments
    assert (one.last_entry, other.first_offset, other.begun) == (2, 3, Begun.FAILURE)
    assert world.check_end(over.metadata.ledger_id).last_entry == 2
    assert ahead.metadata.ledger_id == other.ledger_id


def test_who_lost_the_log_lists_nothing_and_recovers_nothing() -> None:
    """P8.4: by the epoch. A takeover's recovery has closed the ledger as a stray one would."""
    world = World()
    over = take(world)
    write(world, over, "w", 1)
    new = take(world, "rival")
    for end in (None, 0):
        late = ended(world, replacing(world, over, end, 0, f"late {end}"))
        assert isinstance(late.ended.error, LedgerFenced) and late.ended.error.definite
    assert listed(world) == new.log_list
    assert len(ledgers(world)) == 2


def test_who_lost_the_epoch_recovers_nothing_and_lists_nothing() -> None:
    """P8.4: a rival has the epoch, and has touched nothing else yet: what is the log's is the rival's to close."""
    world = World()
    over = take(world)
    write(world, over, "w", 1)
    world.catalog.transact([], [Put(log_owner_path(LOG), b"rival")])
    for end in (None, 0):
        late = ended(world, replacing(world, over, end, 0, f"late {end}"))
        assert isinstance(late.ended.error, LedgerFenced) and late.ended.error.definite
    assert world.catalog.metadata(over.metadata.ledger_id)[0].state == LedgerState.OPEN
    assert listed(world) == over.log_list
    assert len(ledgers(world)) == 1


def test_who_loses_the_log_meanwhile_leaves_nothing() -> None:
    """P8.2, P8.4: the epoch is compared by the commit, too; the ledger made for it goes."""
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 1)
    late = replacing(world, over, close(world, over, writer))
    late.start()
    commit = commit_of(world)
    world.catalog.waiting.remove(commit)
    world.catalog.is_held = False
    new = take(world, "rival")
    world.catalog.waiting.append(commit)
    world.run(until=lambda: late.has_ended)
    assert isinstance(late.ended.error, LedgerFenced)
    assert listed(world) == new.log_list
    assert len(ledgers(world)) == 2


def test_what_was_prepared_for_a_roll_is_the_next_ledger() -> None:
    """P8.2: it is the last of the list already; it gets its place with the end of the one that failed."""
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 2)
    ahead = prepare(world, over, "prepared")
    last = close(world, over, writer)
    over_there = taken(ended(world, replacing(world, over, last)))
    assert over_there.metadata.ledger_id == ahead.metadata.ledger_id
    one, other = listed(world).segments
    assert (one.last_entry, other.first_offset, other.begun) == (1, 2, Begun.FAILURE)
    assert len(ledgers(world)) == 2


def test_a_prepared_ledger_is_taken_as_it_was_read() -> None:
    """P8.3, I90: one that is deleted or recovered between that and the commit is not given a place in the list."""
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 2)
    ahead = prepare(world, over, "prepared")
    client = replacing(world, over, close(world, over, writer))
    client.start()
    commit = commit_of(world).effect
    assert isinstance(commit, Transact)
    assert Compare(ledger_key_path(ahead.metadata.ledger_id), ahead.revision) in commit.when
    world.catalog.transact([], [Delete(ledger_key_path(ahead.metadata.ledger_id))])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced)
    assert [each.first_offset for each in listed(world).segments] == [0, None]


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_commit_without_an_outcome_is_settled_or_found_the_next_time(lands: bool | None) -> None:
    """P2.2: the owner gave up waiting; another attempt takes what that one had listed."""
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 2)
    last = close(world, over, writer)
    first = replacing(world, over, last, name="first")
    first.start()
    commit = commit_of(world)
    world.catalog.tell_unknown(commit, lands=lands)
    first.is_gone = True
    if lands is None:
        world.catalog.land(commit)
    world.catalog.is_held = False
    world.settle()
    ahead = taken(ended(world, replacing(world, over, last, name="again")))
    assert [each.last_entry for each in listed(world).segments] == [1, None]
    assert listed(world).segments[1].ledger_id == ahead.metadata.ledger_id
    assert ahead.first_offset == 2


def test_one_that_is_listed_late_beside_another_is_taken() -> None:
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 2)
    last = close(world, over, writer)
    first, second = (replacing(world, over, last, name=name) for name in ("first", "second"))
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


def test_a_ledger_that_was_deleted_under_its_writer_has_no_end() -> None:
    """P2.2: "a key that is gone counts as closed", and says not where: nothing is sent again."""
    world = World()
    over = take(world)
    write(world, over, "w", 1)
    world.catalog.transact([], [Delete(ledger_key_path(over.metadata.ledger_id))])
    gone = ended(world, replacing(world, over, None, 0))
    assert isinstance(gone.ended.error, NoSuchLedger) and not gone.ended.error.definite
    assert listed(world) == over.log_list


def test_an_end_below_what_was_acknowledged_is_nobody_s_word() -> None:
    """P2.5, P5.3: every client may write any key."""
    world = World()
    over = take(world)
    writer, _ = write(world, over, "w", 3)
    close(world, over, writer)
    ledger = ended(world, replacing(world, over, None, 7))
    assert isinstance(ledger.ended.error, StorageError)
    assert listed(world) == over.log_list


def test_a_handle_that_fails_gives_out_what_is_outstanding_if_it_is_asked_to() -> None:
    """P8.2, P3.6: in order, without what is acknowledged; a ledger of its own gives out nothing."""

    def outstanding(*, hands_over: bool) -> list[tuple[int, int]]:
        world = World()
        over = take(world)
        options = WriterOptions(hands_over=hands_over)
        writer = world.writer(over.metadata, over.revision, "w", options=options)
        entries = Pen(over.metadata.ledger_id)
        world.add(writer, entries, b"acknowledged")
        world.settle()
        world.down.update(("b1", "b2", "b3"))
        world.add(writer, entries, b"one", b"two")
        world.add(writer, entries, b"three")
        world.run(until=lambda: writer.failure is not None)
        (failed,) = [told for told in writer.told if isinstance(told, AddFailed)]
        return [(frame.first_entry, frame.last_entry) for frame in failed.outstanding]

    assert outstanding(hands_over=True) == [(1, 2), (3, 3)]
    assert outstanding(hands_over=False) == []
