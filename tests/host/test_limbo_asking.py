"""Limbo in its place: what nobody may be told before it is durable, and what no listing may miss (P7.4, I32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer
from embedbk.codec.bookie_fields import Status
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.metadata_messages import (
    AllocIds,
    Delete,
    List,
    Operation,
    Put,
    Refusal,
    Result,
    Txn,
    TxnDone,
)
from embedbk.codec.tombstone import TOMBSTONE_VERSION, Tombstone, encode_tombstone, tombstone_path
from embedbk.core.bookie_words import LimboListed
from embedbk.core.machine import Event
from embedbk.host.limbo import LIMBO_AGAIN_NS
from embedbk.host.registering import UNANSWERED_NS
from embedbk.storage.memory import Survivors
from embedbk.storage.memory_disk import MemoryDisk
from tests.host.place import MS, DiskStorage, Place, add, frame

LEDGER = 7


@pytest.mark.parametrize("is_native", [False, True])
def test_no_add_of_a_known_ledger_is_taken_while_limbo_is_not_durable(is_native: bool) -> None:
    """P7.4: "First every ledger ... is in durable fence and limbo". The ledger's row is there from before, so that
    nothing but the bookie's state keeps the shortcut in C from taking the add, as the core would not."""
    place = Place(bookies=0)
    disk = MemoryDisk()

    def start(survivors: Survivors | None = None) -> None:
        storage = DiskStorage(disk, flush_bytes=256 << 10) if is_native else None
        place.start_bookie("b1", survivors or Survivors(b"d" * 16), storage)

    start()
    place.until(lambda: place.bookie("b1").is_registered)
    answer = place.peer("b1").ask(*add(b"d" * 16, frame(LEDGER, 0, [b"zero"])))
    assert isinstance(answer, AddAnswer) and answer.status == Status.OK
    place.held.add("metadata")  # It answers nobody from now on: nothing can be listed.
    survivors = None
    if is_native:
        place.nodes.pop("b1").transport.close()
        place.disks.pop("b1")
        disk.crash()
    else:
        survivors = place.crash("b1")
    start(survivors)
    storage, core = place.bookie("b1").storage, place.bookie("b1").core
    storage.note_less("its owner says so")
    core.entering.is_serving = False  # As its owner says at the start.
    place.run_for(
        UNANSWERED_NS + MS, 100 * MS
    )  # It waits for metadata no longer, and has what may be lost to list.
    assert not core.is_waiting
    token = storage.next_token()
    answer = place.peer("b1").ask(*add(b"d" * 16, frame(LEDGER, 1, [b"one"], 4)))
    assert isinstance(answer, ErrorAnswer), answer
    assert storage.next_token() == token, "nothing was taken behind the core either"
    place.held.clear()
    place.until(lambda: place.bookie("b1").is_registered)
    answer = place.peer("b1").ask(*add(b"d" * 16, frame(LEDGER, 1, [b"one"], 4)))
    assert isinstance(answer, AddAnswer) and answer.status in (Status.FENCED, Status.IN_LIMBO)
    place.close()


def _change(place: Place, *changes: Put | Delete) -> None:
    outcome: list[Result] = []
    client = place.nodes["c1"]
    client.metadata.request(place.now_ns, Txn([], list(changes)), lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))
    assert isinstance(outcome[0], TxnDone) and outcome[0].is_done


def _move(place: Place, metadata: bytes, *, away: bool) -> None:
    """Delete the ledger, or bring it back, in one transaction as `embedbk.client.deleting` does."""
    stone = encode_tombstone(Tombstone(TOMBSTONE_VERSION, LEDGER, 0, 1 << 50, metadata))
    there, gone = (ledger_key_path(LEDGER), metadata), (tombstone_path(LEDGER), stone)
    (old, _), (new, value) = (there, gone) if away else (gone, there)
    _change(place, Delete(old), Put(new, value))


def _closed_at(survivors: Survivors, state: LedgerState = LedgerState.CLOSED) -> bytes:
    """Metadata of the ledger, which b1 is seated in."""
    seats = tuple((f"b{number}", survivors.incarnation) for number in (1, 2, 3))
    end = (9, 90) if state is LedgerState.CLOSED else (None, None)
    fragments = (Fragment(0, 0, seats),)
    return encode_ledger_metadata(
        LedgerMetadata(METADATA_VERSION, LEDGER, 3, 3, 2, state, *end, b"", 0, {}, fragments)
    )


@pytest.mark.parametrize("begins_deleted", [False, True])
@pytest.mark.parametrize("moved_before", [1, 2, 3, 4])
def test_a_ledger_that_moves_while_they_are_listed_is_not_missed(
    moved_before: int, begins_deleted: bool
) -> None:
    """P7.4: every ledger that names the bookie is listed: one that is deleted, or brought back, between two of the
    listings stands in another place in each, and in limbo or fenced all the same."""
    place = Place(bookies=3)
    place.start_client("c1")
    survivors = place.crash("b1")
    value = _closed_at(survivors)
    _change(place, Put(ledger_key_path(LEDGER), value))
    if begins_deleted:
        _move(place, value, away=True)
    node = place.start_bookie("b1", survivors)
    node.storage.note_less("its owner says so")
    node.core.entering.is_serving = False
    told: list[Event] = []
    node.on_step = lambda core, event, effects: told.append(event)
    held: list[tuple[Operation, Callable[[int, Result], None]]] = []
    asked, request = 0, node.metadata.request

    def hold(now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> Any:
        nonlocal asked
        if isinstance(operation, List):
            asked += 1
            if asked == moved_before:
                held.append((operation, done))
                return 0
        return request(now_ns, operation, done)

    node.metadata.request = hold  # type: ignore[method-assign]
    place.until(lambda: bool(held) or node.is_registered)
    _move(place, value, away=not begins_deleted)
    for operation, done in held:
        request(place.now_ns, operation, done)
    place.until(lambda: node.is_registered)
    (listed,) = [event for event in told if isinstance(event, LimboListed)]
    assert LEDGER in listed.closed, (asked, listed)
    row = node.storage.table.get(LEDGER)
    assert row is not None and row.is_fenced
    place.close()


def test_how_far_metadata_was_is_asked_before_the_listing() -> None:
    """P7.4: a ledger that is made meanwhile may be in the listing or not; its id is none that is gone."""
    place = Place(bookies=3)
    client = place.start_client("c1")
    outcome: list[Result] = []
    client.metadata.request(place.now_ns, AllocIds(7), lambda _, result: outcome.append(result))
    place.until(lambda: bool(outcome))
    survivors = place.crash("b1")
    _change(place, Put(ledger_key_path(3), _closed_at(survivors)))
    node = place.start_bookie("b1", survivors)
    node.storage.note_less("its owner says so")
    node.core.entering.is_serving = False
    told: list[Event] = []
    node.on_step = lambda core, event, effects: told.append(event)
    asked, request = list[Operation](), node.metadata.request

    def watch(now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> Any:
        if isinstance(operation, List) and not any(isinstance(each, List) for each in asked):
            client.metadata.request(now_ns, AllocIds(50), lambda _, result: outcome.append(result))
            place.until(lambda: len(outcome) == 2)
        asked.append(operation)
        return request(now_ns, operation, done)

    node.metadata.request = watch  # type: ignore[method-assign]
    place.until(lambda: node.is_registered)
    (listed,) = [event for event in told if isinstance(event, LimboListed)]
    assert listed.told is not None and listed.told.ids_end == 8
    assert max(end for _, end in node.storage.table.ranges()) == 7
    place.close()


def test_a_listing_that_ends_early_begins_anew() -> None:
    """P7.4: "a partial listing is none". The last page does not come: what stood on the pages before says nothing of
    the ledgers behind them, and nothing is served until all were listed."""
    place = Place(bookies=3)
    place.start_client("c1")
    survivors = place.crash("b1")
    _change(place, Put(ledger_key_path(LEDGER), _closed_at(survivors)))
    node = place.start_bookie("b1", survivors)
    node.storage.note_less("its owner says so")
    node.core.entering.is_serving = False
    told: list[Event] = []
    node.on_step = lambda core, event, effects: told.append(event)
    asked, request = 0, node.metadata.request

    def refuse(now_ns: int, operation: Operation, done: Callable[[int, Result], None]) -> Any:
        nonlocal asked
        asked += isinstance(operation, List)
        if isinstance(operation, List) and asked == 2:  # Of the ledgers that are there.
            done(now_ns, Refusal("UNAVAILABLE", "nobody answered"))
            return 0
        return request(now_ns, operation, done)

    node.metadata.request = refuse  # type: ignore[method-assign]
    place.until(lambda: asked == 2)
    assert not node.core.is_serving
    place.until(lambda: node.is_registered)
    (listed,) = [event for event in told if isinstance(event, LimboListed)]
    assert LEDGER in listed.closed and asked > 3
    place.close()


def test_a_ledger_in_limbo_stays_there_when_it_is_deleted() -> None:
    """P7.4, CL32: limbo ends by a share that was found again. A ledger whose key is gone has none that anybody could
    tell, and it may be brought back."""
    place = Place(bookies=3)
    place.start_client("c1")
    survivors = place.crash("b1")
    value = _closed_at(survivors, state=LedgerState.IN_RECOVERY)
    _change(place, Put(ledger_key_path(LEDGER), value))
    node = place.start_bookie("b1", survivors)
    node.storage.note_less("its owner says so")
    node.core.entering.is_serving = False
    place.until(lambda: node.is_registered)
    assert list(node.core.limbo.ledgers) == [LEDGER]
    _change(place, Delete(ledger_key_path(LEDGER)))
    place.run_for(2 * LIMBO_AGAIN_NS + MS, 100 * MS)
    assert list(node.core.limbo.ledgers) == [LEDGER]
    _change(place, Put(ledger_key_path(LEDGER), value))
    place.run_for(2 * LIMBO_AGAIN_NS + MS, 100 * MS)
    row = node.storage.table.get(LEDGER)
    assert row is not None and row.in_limbo and row.is_fenced
    place.close()


@pytest.mark.parametrize("is_stale", [True, False])
def test_behind_a_loss_a_ledger_whose_key_is_stale_is_in_limbo_whomever_it_names(is_stale: bool) -> None:
    """P7.4, P10.5: a lost future may have seated b1 behind the copy: whoever adopts the ledger must not hear "no"."""
    place = Place(bookies=3)
    place.start_client("c1")
    survivors = place.crash("b1")
    value = decode_ledger_metadata(_closed_at(survivors, state=LedgerState.OPEN))
    seats = tuple((f"b{number}", survivors.incarnation) for number in (7, 8, 9))
    value = value.with_changes(fragments=(Fragment(0, 0, seats),))
    _change(place, Put(ledger_key_path(LEDGER), encode_ledger_metadata(value)))
    catalog = place.metadata.core.catalog
    catalog.next_id, catalog.descent.stale = LEDGER + 2, [(1, LEDGER + is_stale)]
    node = place.start_bookie("b1", survivors)
    node.storage.note_less("its owner says so")
    node.core.entering.is_serving = False
    place.until(lambda: node.is_registered)
    assert (LEDGER in node.core.limbo.ledgers) is is_stale
    place.close()
