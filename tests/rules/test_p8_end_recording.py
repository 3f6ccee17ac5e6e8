"""P8.2 (iii, iv): the transaction that closes a ledger of a log records its end in the list, where that is as its owner
knows it. Else the ledger is closed all the same, and its end is recorded behind that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from embedbk.codec.ledger_metadata import (
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
    log_key_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import Put
from embedbk.core.end_recording import EndRecord
from embedbk.core.log_listing import TakenOver
from embedbk.core.metadata_words import KeyRead, Transact, TransactRefused
from embedbk.core.publishing import Publishing, Settlement
from embedbk.core.vocabulary import CloseRequested
from embedbk.core.writer import Writer
from tests.rules.scenes import overwrite
from tests.rules.test_p8_logs import LOG, listed, put_list, take, write
from tests.rules.test_p8_rolling import prepare, recorded
from tests.rules.world import Client, Operation, World


def leaving(world: World) -> tuple[TakenOver, TakenOver, Client, EndRecord]:
    """A log whose writer has appended three entries, and has its next ledger listed."""
    over = take(world)
    writer, _ = write(world, over, "w", 3)
    ahead = prepare(world, over)
    end = EndRecord(LOG, over.epoch, over.metadata.ledger_id, ahead.log_list, ahead.list_revision, True)
    return over, ahead, writer, end


def closing(world: World, writer: Client, end: EndRecord) -> Operation:
    """The transaction by which the writer closes its ledger, not carried out yet."""
    world.catalog.is_held = True
    writer.step(CloseRequested(world.now_ns, end))
    (operation,) = world.catalog.waiting
    return operation


def has_recorded(writer: Client) -> bool:
    assert isinstance(writer.core, Writer)
    return writer.core.changes.has_recorded


def check_both_ends(world: World, over: TakenOver, ahead: TakenOver) -> None:
    assert world.check_end(over.metadata.ledger_id).last_entry == 2
    one, other = listed(world).segments
    assert (one.ledger_id, one.first_offset, one.last_entry) == (over.metadata.ledger_id, 0, 2)
    assert (other.ledger_id, other.first_offset) == (ahead.metadata.ledger_id, 3)


def test_a_ledger_is_closed_and_its_end_recorded_at_once() -> None:
    """P8.2 (iii, iv), P5.1: in one transaction that compares ledger, list and epoch."""
    world = World()
    over, ahead, writer, end = leaving(world)
    operation = closing(world, writer, end)
    assert isinstance(operation.effect, Transact)
    compared = [each.key for each in operation.effect.when]
    ledger = ledger_key_path(over.metadata.ledger_id)
    assert compared == [ledger, log_key_path(LOG), log_owner_path(LOG)]
    assert [each.key for each in operation.effect.then] == [ledger, log_key_path(LOG)]
    world.catalog.answer(operation)
    assert writer.ended.error is None and has_recorded(writer)
    check_both_ends(world, over, ahead)
    _, length = writer.ended.result
    assert listed(world) == end.recorded(2, length)
    assert listed(world).segments[0].length == length
    assert world.catalog.values[log_key_path(LOG)][1] == world.catalog.values[ledger][1]


@pytest.mark.parametrize("other", ["list", "epoch"])
def test_another_list_or_epoch_keeps_no_ledger_from_being_closed(other: str) -> None:
    """P8.2 (iv), P5.1: what others wrote into the list stays. Who has another's epoch records nothing."""
    world = World()
    over, ahead, writer, end = leaving(world)
    operation = closing(world, writer, end)
    if other == "list":
        one, two = listed(world).segments
        put_list(world, one, replace(two, created_ms=99), epoch=over.epoch)
    else:
        world.catalog.transact([], [Put(log_owner_path(LOG), b"rival")])
    before = listed(world)
    world.catalog.answer(operation)
    world.catalog.is_held = False
    world.settle()
    assert writer.ended.error is None and not has_recorded(writer)
    assert world.check_end(over.metadata.ledger_id).last_entry == 2
    assert listed(world) == before
    if other == "list":
        assert recorded(world, over, 2).ended.error is None
        check_both_ends(world, over, ahead)
        assert listed(world).segments[1].created_ms == 99


def test_a_ledger_that_somebody_closed_at_the_same_entry_is_not_recorded_by_us() -> None:
    """P5.1, P2.2: that is success for who closes it, and says nothing of the list."""
    world = World()
    over, ahead, writer, end = leaving(world)
    operation = closing(world, writer, end)
    overwrite(
        world,
        over.metadata.ledger_id,
        state=LedgerState.CLOSED,
        last_entry=2,
        length=9,
        custom={"by": b"another"},
    )
    world.catalog.answer(operation)
    world.catalog.is_held = False
    world.settle()
    assert writer.ended.error is None and not has_recorded(writer)
    assert listed(world).segments[0].last_entry is None
    assert recorded(world, over, 2).ended.error is None
    check_both_ends(world, over, ahead)


@pytest.mark.parametrize("lands", [True, False, None])
def test_an_end_of_which_nothing_is_known_counts_as_not_recorded(lands: bool | None) -> None:
    """P2.2: that the ledger is closed alike says nothing of the list: the end is recorded again, which changes nothing
    where it is there."""
    world = World()
    over, ahead, writer, end = leaving(world)
    operation = closing(world, writer, end)
    world.catalog.tell_unknown(operation, lands=lands)
    world.catalog.answer(world.catalog.waiting[0])
    if lands is None:
        assert world.catalog.land(operation)
    world.catalog.is_held = False
    world.settle()
    assert writer.ended.error is None and not has_recorded(writer)
    assert (listed(world).segments[0].last_entry is None) == (lands is False)
    assert recorded(world, over, 2).ended.error is None
    check_both_ends(world, over, ahead)


def test_a_list_without_room_keeps_no_ledger_from_being_closed() -> None:
    """P2.2, P5.1: metadata does not run the transaction; the ledger by itself it may still close."""
    world = World()
    over, _, writer, end = leaving(world)
    operation = closing(world, writer, end)
    world.catalog.waiting.remove(operation)
    assert isinstance(operation.effect, Transact)
    writer.step(TransactRefused(world.now_ns, operation.effect.tag, "the list is too large"))
    (again,) = world.catalog.waiting
    assert isinstance(again.effect, Transact)
    assert [each.key for each in again.effect.then] == [ledger_key_path(over.metadata.ledger_id)]
    world.catalog.answer(again)
    assert writer.ended.error is None and not has_recorded(writer)
    assert world.check_end(over.metadata.ledger_id).last_entry == 2


def test_an_end_that_the_list_has_already_is_not_put_again() -> None:
    """P8.2 (iv): nor is one of a ledger that left the list."""
    world = World()
    over, _, writer, end = leaving(world)
    known = end.recorded(2, 9)
    assert known is not None
    operation = closing(world, writer, replace(end, log_list=known))
    assert isinstance(operation.effect, Transact)
    assert [each.key for each in operation.effect.then] == [ledger_key_path(over.metadata.ledger_id)]
    world.catalog.answer(operation)
    assert writer.ended.error is None and not has_recorded(writer)


def test_a_ledger_that_somebody_closed_alike_says_nothing_of_the_list() -> None:
    """P2.2: a read, behind the transaction or before it, shows the ledger's key alone."""
    world = World()
    over, _, _, end = leaving(world)
    closed = over.metadata.with_changes(state=LedgerState.CLOSED, last_entry=2, length=9)
    publishing = Publishing()
    publishing.put(over.metadata, over.revision, closed, end.beside(2, 9))
    assert publishing.has_beside
    heard = publishing.hear(KeyRead(0, "read", encode_ledger_metadata(closed), over.revision + 9))
    assert heard.verdict is Settlement.PUBLISHED
    assert not publishing.has_beside
