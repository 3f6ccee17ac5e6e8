"""P10.5: a ledger whose key a copy of the metadata has, and which a lost future may have changed, is adopted."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.adopted import adopted_path
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Put
from embedbk.codec.tombstone import tombstone_path
from embedbk.config import Quorum
from embedbk.core.adopting import AdoptionOptions, LedgerAdoption
from embedbk.core.adoption_plan import StaleKey
from embedbk.errors import MetadataConflict, NoSuchLedger, RecoveryInconclusive, StorageError
from embedbk.ids import NO_ENTRY
from tests.rules.scenes import Scene, scene
from tests.rules.test_p10_adopting import VERIFIER, plan_of, reads_all, seats_of, written
from tests.rules.world import KEY, THREE, Client

STATES = [LedgerState.OPEN, LedgerState.IN_RECOVERY]


def put_back(it: Scene, older: LedgerMetadata) -> None:
    """Metadata is brought back as it was before; the ledger's writer is gone."""
    it.world.catalog.history.clear()
    it.world.catalog.stale.add(it.ledger_id)
    it.world.catalog.transact([], [Put(ledger_key_path(it.ledger_id), encode_ledger_metadata(older))])
    it.writer.is_gone = True
    it.world.wire.clear()


def changed(state: LedgerState = LedgerState.OPEN) -> Scene:
    """b1 and b2 were replaced behind the copy: entries 5 to 8 are acknowledged by b4 and b5, which it does not name."""
    it = written(bookies=5)
    older, _ = it.world.catalog.metadata(it.ledger_id)
    it.world.down |= {"b1", "b2"}
    for number in range(4):
        it.world.add(it.writer, it.pen, b"later %d" % number)
        it.world.settle()
    assert it.world.acked[it.ledger_id] == 8
    it.world.down.clear()
    store = it.world.nodes["b3"].storage.store
    for entry_id in (5, 6, 7, 8):  # It has a seat in both, and lacks these: Qa is 2.
        store.entries[it.ledger_id].pop(entry_id)
        store.ids[it.ledger_id].remove(entry_id)
    put_back(it, older.with_changes(state=state))
    return it


def adopting(it: Scene, gone: tuple[str, ...] = (), **options: object) -> Client:
    """Of what stands in the metadata; not started."""
    metadata, revision = it.world.catalog.metadata(it.ledger_id)
    asked = [(node.member, name not in gone) for name, node in it.world.nodes.items()]
    core = LedgerAdoption(
        it.ledger_id, KEY, b"", VERIFIER, asked, it.world.nonce(), it.world.bookies, it.world.chance,
        AdoptionOptions(by="somebody", **options),  # type: ignore[arg-type]
        StaleKey(metadata, revision),
    )  # fmt: skip
    return it.world.client("a", core)


def adopt(it: Scene, gone: tuple[str, ...] = (), **options: object) -> Client:
    client = adopting(it, gone, **options)
    client.start()
    it.world.run(until=lambda: client.has_ended)
    return client


@pytest.mark.parametrize("state", STATES)
def test_what_later_ensembles_acknowledged_is_kept(state: LedgerState) -> None:
    """P5.3: "An acknowledged entry is never beyond the last entry of its closed ledger", though whoever the copy names
    says of it that it is not there."""
    it = changed(state)
    older, _ = it.world.catalog.metadata(it.ledger_id)
    plan = plan_of(adopt(it))
    metadata, _ = it.world.catalog.metadata(it.ledger_id)
    assert metadata == plan.metadata
    assert (metadata.last_entry, metadata.state, metadata.quorum) == (8, LedgerState.CLOSED, THREE)
    assert [payload for _, payload in reads_all(it)][5:] == [b"later %d" % number for number in range(4)]
    kept = ("password_verifier", "created_ms", "custom", "durability", "digest")
    assert [getattr(metadata, each) for each in kept] == [getattr(older, each) for each in kept]
    assert adopted_path(it.ledger_id) in it.world.catalog.values


@pytest.mark.parametrize("away", ["b1", "b4"])
def test_who_is_away_and_may_have_a_seat_is_waited_for(away: str) -> None:
    it = changed()
    it.world.down.add(away)
    before = it.world.catalog.metadata(it.ledger_id)
    client = adopt(it)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert it.world.catalog.metadata(it.ledger_id) == before


def test_everything_before_the_copys_last_fragment_was_acknowledged() -> None:
    """P4.6: a fragment begins behind what was acknowledged; so what nobody has of it is lost, not behind the end."""
    it = written(bookies=5)
    it.world.down.add("b1")
    it.world.add(it.writer, it.pen, b"later")
    it.world.settle()
    older, _ = it.world.catalog.metadata(it.ledger_id)
    assert seats_of(older)[-1][0] == 5
    it.world.down.clear()
    for node in it.world.nodes.values():
        node.storage.store.entries.pop(it.ledger_id, None)
        node.storage.store.ids.pop(it.ledger_id, None)
        row = node.storage.table.get(it.ledger_id)
        if row is not None:  # And nobody was told.
            row.lac, row.lac_length = NO_ENTRY, 0
            node.lacs.clear()
    put_back(it, older)
    client = adopt(it)
    assert "everything up to entry 4 was acknowledged, and nobody has 0 to 4" in str(client.ended.error)


def test_a_ledger_ends_once() -> None:
    """I2: it was closed at entry 4 before the copy; b3 has one behind it that no close counted. b1 and b2 have none any
    more, as copies were moved since."""
    it = written(bookies=5)
    older, _ = it.world.catalog.metadata(it.ledger_id)
    closed = older.with_changes(state=LedgerState.CLOSED, last_entry=4, length=5 * len(b"entry 0"))
    it.world.add(it.writer, it.pen, b"behind the end")
    it.world.deliver(it.world.packets(to="b3", kind=AddRequest)[0])
    it.world.settle(hold=lambda packet: packet.client is it.writer)
    for name in ("b1", "b2"):
        it.world.nodes[name].storage.store.entries.pop(it.ledger_id, None)
        it.world.nodes[name].storage.store.ids.pop(it.ledger_id, None)
    put_back(it, closed)
    client = adopt(it)
    plan = plan_of(client)
    assert (plan.metadata.last_entry, plan.metadata.length) == (4, closed.length)
    assert 5 in it.world.nodes["b3"].holds(it.ledger_id)
    assert len(reads_all(it)) == 5


def test_an_end_that_is_not_of_this_ledger_is_believed_by_nobody() -> None:
    it = written()
    older, _ = it.world.catalog.metadata(it.ledger_id)
    put_back(it, older.with_changes(state=LedgerState.CLOSED, last_entry=2, length=3 * len(b"entry 0")))
    it.world.catalog.history.clear()
    client = adopt(it)
    assert isinstance(client.ended.error, StorageError)
    assert "was closed at entry 2, and entry 3 was acknowledged" in str(client.ended.error)


def test_a_ledger_without_an_entry_is_closed_empty() -> None:
    """Nobody has one, and nobody was told of one: there is a key that has to be closed."""
    it = scene(THREE, 4)
    older, _ = it.world.catalog.metadata(it.ledger_id)
    put_back(it, older)
    plan = plan_of(adopt(it))
    assert (plan.metadata.last_entry, plan.metadata.length) == (NO_ENTRY, 0)
    assert it.world.catalog.metadata(it.ledger_id)[0] == plan.metadata


@pytest.mark.parametrize("lands", [True, False, None])
def test_an_unknown_outcome_is_settled_by_reading(lands: bool | None) -> None:
    """P2.2: "unknown is not refused"; that the key is as before proves nothing: the same again wins, or is refused."""
    it = changed()
    it.world.catalog.is_held = True
    client = adopting(it)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    (operation,) = it.world.catalog.waiting
    it.world.catalog.tell_unknown(operation, lands=lands)
    if lands is None:
        (read,) = it.world.catalog.waiting
        it.world.catalog.answer(read)
        assert it.world.catalog.land(operation)
    it.world.catalog.is_held = False
    for waiting in list(it.world.catalog.waiting):
        it.world.catalog.answer(waiting)
    it.world.run(until=lambda: client.has_ended)
    assert plan_of(client).metadata == it.world.catalog.metadata(it.ledger_id)[0]


def test_who_changed_the_key_meanwhile_was_first() -> None:
    it = changed()
    it.world.catalog.is_held = True
    client = adopting(it)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    metadata, _ = it.world.catalog.metadata(it.ledger_id)
    other = metadata.with_changes(state=LedgerState.CLOSED, last_entry=8, length=1)
    it.world.catalog.transact([], [Put(ledger_key_path(it.ledger_id), encode_ledger_metadata(other))])
    it.world.catalog.is_held = False
    for waiting in list(it.world.catalog.waiting):
        it.world.catalog.answer(waiting)
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, MetadataConflict)
    assert it.world.catalog.metadata(it.ledger_id)[0] == other


@pytest.mark.parametrize("has_tombstone", [True, False])
def test_who_deleted_it_meanwhile_was_first(has_tombstone: bool) -> None:
    it = changed()
    it.world.catalog.is_held = True
    client = adopting(it)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    it.world.catalog.values.pop(ledger_key_path(it.ledger_id))
    if has_tombstone:
        it.world.catalog.transact([], [Put(tombstone_path(it.ledger_id), b"")])
    it.world.catalog.is_held = False
    for waiting in list(it.world.catalog.waiting):
        it.world.catalog.answer(waiting)
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, MetadataConflict if has_tombstone else NoSuchLedger)
    assert ledger_key_path(it.ledger_id) not in it.world.catalog.values


def test_a_placement_that_was_raised_meanwhile_is_no_change_of_the_key() -> None:
    """P10.6: the bookie may not be newly named; the ledger is as it was, and may be adopted again."""
    it = changed()
    for name in it.world.nodes:
        it.world.catalog.raise_placement(name)
    it.world.catalog.is_held = True
    client = adopting(it)
    client.start()
    it.world.run(until=lambda: bool(it.world.catalog.waiting))
    revision = it.world.catalog.metadata(it.ledger_id)[1]
    for name in it.world.nodes:
        it.world.catalog.raise_placement(name)
    it.world.catalog.is_held = False
    it.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, RecoveryInconclusive)
    assert "went read-only since it was asked" in str(client.ended.error)
    assert it.world.catalog.metadata(it.ledger_id)[1] == revision


def test_fewer_seats_are_an_operators_word() -> None:
    """P11.5: b1, b2 and b4 are gone for good, and three seats are no more to be had, unless fewer are asked for."""
    it = changed()
    gone = ("b1", "b2", "b4")
    it.world.down |= set(gone)
    client = adopt(it, gone)
    assert "is to have 3 seats" in str(client.ended.error)
    plan = plan_of(adopt(it, gone, quorum=Quorum(2, 2, 2)))
    assert (plan.metadata.last_entry, plan.metadata.quorum) == (8, Quorum(2, 2, 2))
