"""P8.9: a log is sealed behind closed ledgers, by one transaction; what a refused or unknown one means."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import (
    Begun,
    LogSeal,
    decode_log_list,
    encode_log_list,
    log_key_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import Put
from embedbk.core.log_listing import NewLedger
from embedbk.core.log_sealing import LogSealing
from embedbk.core.metadata_words import Transact
from embedbk.core.truncation import without
from embedbk.errors import LedgerFenced, LogSealed, MetadataUnavailable, NoSuchLedger
from tests.rules.test_p8_logs import LOG, listed
from tests.rules.test_p8_pages import run, takeover
from tests.rules.test_p8_truncating import held_at, rolled
from tests.rules.world import KEY, THREE, Client, World

SEAL = LogSeal("enough", 12, "me")


def sealing(world: World, name: str = "s", seal: LogSeal = SEAL) -> Client:
    new = NewLedger(THREE, bytes(16), 0, Begun.TAKEOVER, page_ledgers=4)
    return world.client(name, LogSealing(LOG, name.encode(), new, KEY, world.bookies, world.chance, seal))


def test_the_seal_stands_behind_closed_ledgers_and_compares_list_and_epoch() -> None:
    world = World()
    rolled(world, 2)
    before = listed(world)
    client = sealing(world)
    client.start()
    commit = held_at(world, "commit").effect
    assert isinstance(commit, Transact)
    epoch = world.catalog.values[log_owner_path(LOG)][1]
    assert [each.key for each in commit.when] == [log_key_path(LOG), log_owner_path(LOG)]
    assert commit.when[1].revision == epoch
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert (client.ended.error, client.ended.result) == (None, SEAL)
    after = listed(world)
    assert [each.ledger_id for each in after.segments] == [each.ledger_id for each in before.segments]
    assert after.seal == SEAL and after.epoch == epoch
    for segment in after.segments:
        metadata, _ = world.catalog.metadata(segment.ledger_id)
        assert metadata.is_closed and segment.last_entry == metadata.last_entry
    assert isinstance(run(world, takeover(world, "q")).ended.error, LogSealed)
    again = run(world, sealing(world, "u", LogSeal("another", 1, "u"))).ended.error
    assert isinstance(again, LogSealed) and again.reason == "enough"


def test_a_list_that_changed_meanwhile_is_not_written_over() -> None:
    """Truncation needs no epoch: what it took off the list is not listed anew."""
    world = World()
    rolled(world, 3)
    client = sealing(world)
    client.start()
    held_at(world, "commit")
    now = listed(world)
    cut = without(now, now.segments, 2)
    world.catalog.transact([], [Put(log_key_path(LOG), encode_log_list(cut))])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert client.ended.error is None
    assert listed(world).seal == SEAL and listed(world).first_offset == 4


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_seal_of_unknown_outcome_is_settled_by_the_list(lands: bool | None) -> None:
    """P2.2."""
    world = World()
    rolled(world, 2)
    client = sealing(world)
    client.start()
    first = held_at(world, "commit")
    world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(world, "commit")
        assert world.catalog.land(first)
        world.catalog.answer(again)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert (client.ended.error, client.ended.result) == (None, SEAL)
    assert listed(world).seal == SEAL


def test_of_a_takeover_and_a_seal_one_is_first() -> None:
    """ "One is first, and the other sees that": whose epoch is gone changes nothing."""
    world = World()
    rolled(world, 2)
    client = sealing(world)
    client.start()
    held_at(world, "commit")
    world.catalog.transact([], [Put(log_owner_path(LOG), b"another")])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, LedgerFenced)
    assert listed(world).seal is None


def test_a_log_that_nobody_wrote_to_is_not_sealed() -> None:
    world = World()
    assert isinstance(run(world, sealing(world)).ended.error, NoSuchLedger)
    assert log_key_path(LOG) not in world.catalog.values


def test_what_metadata_does_not_run_ends_it() -> None:
    world = World()
    rolled(world, 1)
    client = sealing(world)
    client.start()
    held_at(world, "commit")
    world.catalog.refuses = "it is full"
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    error = client.ended.error
    assert isinstance(error, MetadataUnavailable) and error.definite and "cannot be sealed" in str(error)
    assert decode_log_list(world.catalog.values[log_key_path(LOG)][0]).seal is None
