"""P8.14: one step of a ledger's archive, what it compares, and what a refused or unknown one means."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    first_fragments,
    ledger_key_path,
)
from embedbk.codec.log_archives import (
    ArchiveRecord,
    ArchiveState,
    archive_path,
    decode_archive_record,
    encode_archive_record,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.core.archiving import ArchiveChange, ArchiveStep, Claim, Copied, Doubted, Verified
from embedbk.core.metadata_words import Transact
from embedbk.errors import LockLost, MetadataConflict, MetadataUnavailable, NoSuchLedger, StorageError
from tests.rules.test_p8_logs import LOG
from tests.rules.test_p8_pages import run
from tests.rules.test_p8_truncating import NOW_MS, held_at
from tests.rules.world import Client, World, member

LEDGER = 7
PATH, LOCK = archive_path(LOG, LEDGER), "/locks/archive"
HASH, OTHER_HASH = b"h" * 32, b"o" * 32


def put(world: World, key: str, value: bytes) -> int:
    return world.catalog.transact([], [Put(key, value)])[1]


def put_ledger(
    world: World, state: LedgerState = LedgerState.CLOSED, of: bytes = LOG.encode(), last: int = 9
) -> int:
    is_closed = state == LedgerState.CLOSED
    seats = first_fragments((member("b1"), member("b2"), member("b3")))
    end = (last, 100) if is_closed else (None, None)
    metadata = LedgerMetadata(
        METADATA_VERSION, LEDGER, 3, 3, 2, state, *end, bytes(16), 0, {"log": of}, seats
    )
    return put(world, ledger_key_path(LEDGER), encode_ledger_metadata(metadata))


def put_record(world: World, state: ArchiveState, epoch: int, verified_epoch: int = 0) -> int:
    manifest = b"" if state == ArchiveState.COPYING else HASH
    record = ArchiveRecord(METADATA_VERSION, LEDGER, state, epoch, 4, 9, manifest, verified_epoch, 1)
    return put(world, PATH, encode_archive_record(record))


def stands(world: World) -> ArchiveRecord:
    return decode_archive_record(world.catalog.values[PATH][0], LEDGER)


def changing(world: World, step: ArchiveStep, epoch: int, name: str = "job") -> Client:
    return world.client(name, ArchiveChange(LOG, LEDGER, step, LOCK, epoch, NOW_MS))


def outcome(world: World, step: ArchiveStep, epoch: int) -> Any:
    """The record behind the step, or the error."""
    client = run(world, changing(world, step, epoch, f"job at {world.catalog.revision}"))
    return client.ended.error or client.ended.result


def test_a_ledger_goes_from_claim_to_verified() -> None:
    """ "COPYING -> COPIED -> VERIFIED", each by a transaction of its own."""
    world = World()
    put_ledger(world)
    writer = put(world, LOCK, b"writer")
    assert outcome(world, Claim(4), writer) == stands(world)
    assert (stands(world).state, stands(world).epoch, stands(world).last_entry) == (
        ArchiveState.COPYING,
        writer,
        9,
    )
    assert outcome(world, Copied(HASH), writer) == stands(world)
    assert (stands(world).state, stands(world).manifest) == (ArchiveState.COPIED, HASH)
    reader = put(world, LOCK, b"reader")
    assert outcome(world, Verified(HASH), reader) == stands(world)
    assert (stands(world).state, stands(world).verified_epoch) == (ArchiveState.VERIFIED, reader)


@pytest.mark.parametrize("step", [Claim(4), Copied(HASH), Verified(HASH), Doubted(HASH)])
def test_each_step_compares_record_ledger_and_lock(step: ArchiveStep) -> None:
    """ "Each transaction compares the record as it was read, the ledger's metadata ..., and the epoch of the lock"."""
    world = World()
    ledger_at, epoch = put_ledger(world), put(world, LOCK, b"me")
    before = {
        Claim: lambda: 0,
        Copied: lambda: put_record(world, ArchiveState.COPYING, epoch),
        Verified: lambda: put_record(world, ArchiveState.COPIED, epoch - 1),
        Doubted: lambda: put_record(world, ArchiveState.VERIFIED, 0, epoch - 1),
    }[type(step)]()
    client = changing(world, step, epoch)
    client.start()
    change = held_at(world, "change").effect
    assert isinstance(change, Transact)
    assert {(each.key, each.revision) for each in change.when} == {
        (PATH, before),
        (ledger_key_path(LEDGER), ledger_at),
        (LOCK, epoch),
    }


def test_a_job_that_lost_the_lock_records_nothing() -> None:
    """P9.1: "what is protected checks the epoch"."""
    world = World()
    put_ledger(world)
    epoch = put(world, LOCK, b"me")
    put_record(world, ArchiveState.COPYING, epoch)
    put(world, LOCK, b"another")
    error = outcome(world, Copied(HASH), epoch)
    assert isinstance(error, LockLost)
    assert stands(world).state == ArchiveState.COPYING


def test_whoever_wrote_it_does_not_verify_it() -> None:
    """ "Verified by a job of a later epoch than its writer's"."""
    world = World()
    put_ledger(world)
    epoch = put(world, LOCK, b"me")
    put_record(world, ArchiveState.COPIED, epoch)
    error = outcome(world, Verified(HASH), epoch)
    assert isinstance(error, MetadataConflict) and error.definite
    assert stands(world).state == ArchiveState.COPIED


def test_what_was_copied_is_claimed_only_anew() -> None:
    world = World()
    put_ledger(world)
    put_record(world, ArchiveState.COPIED, 1)
    epoch = put(world, LOCK, b"me")
    assert outcome(world, Claim(4), epoch).state == ArchiveState.COPIED
    assert stands(world).epoch == 1
    assert outcome(world, Claim(8, anew=True), epoch) == stands(world)
    assert (stands(world).state, stands(world).manifest, stands(world).slice_entries) == (
        ArchiveState.COPYING,
        b"",
        8,
    )


def test_whoever_goes_on_with_copying_cuts_the_same_slices() -> None:
    world = World()
    put_ledger(world)
    put_record(world, ArchiveState.COPYING, 1)
    epoch = put(world, LOCK, b"me")
    assert outcome(world, Claim(100), epoch).slice_entries == 4
    assert stands(world).epoch == epoch


def test_only_the_job_that_claimed_a_ledger_says_that_it_is_copied() -> None:
    world = World()
    put_ledger(world)
    put_record(world, ArchiveState.COPYING, 1)
    epoch = put(world, LOCK, b"me")
    assert isinstance(outcome(world, Copied(HASH), epoch), MetadataConflict)
    assert stands(world).state == ArchiveState.COPYING


@pytest.mark.parametrize("step", [Verified(OTHER_HASH), Doubted(OTHER_HASH)])
def test_a_manifest_that_was_replaced_is_not_judged(step: ArchiveStep) -> None:
    world = World()
    put_ledger(world)
    put_record(world, ArchiveState.COPIED, 1)
    epoch = put(world, LOCK, b"me")
    assert isinstance(outcome(world, step, epoch), MetadataConflict)
    assert stands(world).manifest == HASH


def test_what_is_doubted_is_not_verified_any_more() -> None:
    world = World()
    put_ledger(world)
    put_record(world, ArchiveState.VERIFIED, 1, 2)
    epoch = put(world, LOCK, b"me")
    assert outcome(world, Doubted(HASH), epoch).state == ArchiveState.COPIED
    assert (stands(world).state, stands(world).verified_epoch) == (ArchiveState.COPIED, 0)


def test_nothing_is_recorded_of_a_ledger_that_is_gone() -> None:
    world = World()
    epoch = put(world, LOCK, b"me")
    assert isinstance(outcome(world, Claim(4), epoch), NoSuchLedger)
    assert PATH not in world.catalog.values


def test_a_ledger_that_goes_while_it_is_recorded_stays_unrecorded() -> None:
    world = World()
    put_ledger(world)
    epoch = put(world, LOCK, b"me")
    client = changing(world, Claim(4), epoch)
    client.start()
    held_at(world, "change")
    world.catalog.transact([], [Delete(ledger_key_path(LEDGER))])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, NoSuchLedger)
    assert PATH not in world.catalog.values


@pytest.mark.parametrize(
    ("state", "of", "last"),
    [
        (LedgerState.OPEN, b"orders", 9),
        (LedgerState.CLOSED, b"other", 9),
        (LedgerState.CLOSED, b"orders", -1),
    ],
)
def test_only_closed_ledgers_of_the_log_that_have_entries_are_archived(
    state: LedgerState, of: bytes, last: int
) -> None:
    world = World()
    put_ledger(world, state, of, last)
    epoch = put(world, LOCK, b"me")
    assert isinstance(outcome(world, Claim(4), epoch), MetadataConflict)
    assert PATH not in world.catalog.values


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_change_of_unknown_outcome_is_settled_by_what_stands_there(lands: bool | None) -> None:
    """P2.2: "settled by reading a newer version, or by winning another compare-and-set from the same version"."""
    world = World()
    put_ledger(world)
    epoch = put(world, LOCK, b"me")
    put_record(world, ArchiveState.COPYING, epoch)
    client = changing(world, Copied(HASH), epoch)
    client.start()
    first = held_at(world, "change")
    world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(world, "change")
        assert world.catalog.land(first)
        world.catalog.answer(again)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert client.ended.error is None and client.ended.result == stands(world)
    assert stands(world).state == ArchiveState.COPIED


def test_a_change_that_may_have_landed_is_no_definite_no() -> None:
    """ "Cannot tell" is never "no": the lock is lost behind a change of unknown outcome."""
    world = World()
    put_ledger(world)
    put_record(world, ArchiveState.COPIED, 1)
    epoch = put(world, LOCK, b"me")
    client = changing(world, Claim(4, anew=True), epoch)
    client.start()
    world.catalog.tell_unknown(held_at(world, "change"), lands=True)
    later = put(world, LOCK, b"another")
    record = ArchiveRecord(METADATA_VERSION, LEDGER, ArchiveState.COPYING, later, 4, 9, b"", 0, 2)
    put(world, PATH, encode_archive_record(record))
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LockLost) and not client.ended.error.definite


def test_what_metadata_does_not_run_ends_it() -> None:
    world = World()
    put_ledger(world)
    epoch = put(world, LOCK, b"me")
    world.catalog.refuses = "it is full"
    error = outcome(world, Claim(4), epoch)
    assert isinstance(error, MetadataUnavailable) and error.definite and "it is full" in str(error)


def test_a_record_that_cannot_be_read_is_not_written_over() -> None:
    """P2.5: what stands there is somebody's word."""
    world = World()
    put_ledger(world)
    put(world, PATH, b"what is this")
    epoch = put(world, LOCK, b"me")
    assert isinstance(outcome(world, Claim(4), epoch), StorageError)
    assert world.catalog.values[PATH][0] == b"what is this"
