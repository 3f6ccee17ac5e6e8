"""P2: ledger metadata. One compare-and-set per change, three outcomes, and what a ledger's life may look like."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from embedbk.codec.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Put
from embedbk.config import Quorum
from embedbk.core.creation import NO_PATIENCE, Creation, Patience
from embedbk.core.ensemble_change import Proposal, change_fragments
from embedbk.core.frame_table import FrameTable
from embedbk.core.metadata_words import AllocateIds, Transact
from embedbk.core.seating import Seating
from embedbk.errors import MetadataConflict, MetadataUnavailable, NotEnoughBookies, StorageError
from tests.rules.world import MS, THREE, Client, Operation, World, member


def creation(world: World, quorum: Quorum = THREE, seed: int = 0, patience: Patience = NO_PATIENCE) -> Client:
    core = Creation(
        quorum, bytes(16), 12345, {"log": b"l"}, world.bookies, random.Random(seed), patience=patience
    )
    return world.client("creation", core)


def waiting(world: World, until_ns: int = 30_000 * MS) -> Patience:
    """For the bookies of this world."""
    return Patience(until_ns, tuple(world.nodes))


def held_creation(quorum: Quorum = THREE) -> tuple[World, Client, Operation]:
    """A creation whose put is in flight."""
    world = World(4)
    world.catalog.is_held = True
    client = creation(world, quorum)
    client.start()
    world.catalog.answer(world.catalog.waiting[0])
    (put,) = world.catalog.waiting
    return world, client, put


# P2.1, P2.4: making one.


@pytest.mark.parametrize("quorum", [Quorum(1, 1, 1), THREE, Quorum(5, 3, 2)])
def test_a_new_ledger_is_open_on_e_distinct_bookies_from_entry_0(quorum: Quorum) -> None:
    """P2.1, P2.4, I17."""
    world = World(6)
    ensembles = set()
    for seed in range(20):
        client = creation(world, quorum, seed)
        client.start()
        world.settle()
        metadata, revision = client.ended.result
        assert (metadata, revision) == world.catalog.metadata(metadata.ledger_id)
        assert metadata.state == LedgerState.OPEN
        assert metadata.last_entry is metadata.length is None
        (first,) = metadata.fragments
        assert (first.first_entry, first.length_before) == (0, 0)
        assert len({m.bookie_id for m in first.members}) == quorum.ensemble_size
        assert all(world.nodes[m.bookie_id].member == m for m in first.members)  # (id, incarnation), P7.2.
        ensembles.add(first.ensemble)
    assert len(ensembles) > 3  # Chosen by chance, not always the first.


def test_ids_are_never_used_twice() -> None:
    """P2.1: also when the creation before failed after it took its id."""
    world, client, _ = held_creation()
    client.is_gone = True
    world.catalog.waiting.clear()
    world.catalog.is_held = False
    second = creation(world)
    second.start()
    world.settle()
    assert second.ended.result[0].ledger_id == 2


def test_too_few_bookies_are_refused_before_anything_is_written() -> None:
    """P1, P2.4: definite, and says how many there are; bookies that go while the id is fetched count as gone."""
    world = World(3)
    world.nodes["b2"].core.is_writable = False
    client = creation(world)
    client.start()
    error = client.ended.error
    assert isinstance(error, NotEnoughBookies)
    assert error.definite
    assert "2 writable" in str(error)
    assert error.hint
    assert world.catalog.waiting == []

    world = World(3)
    client = creation(world)
    client.start()
    world.down.add("b3")
    world.tell_bookies()
    world.settle()
    assert isinstance(client.ended.error, NotEnoughBookies)
    assert world.catalog.values == {}


@pytest.mark.parametrize("is_listed", [False, True], ids=["not registered", "read-only"])
@pytest.mark.parametrize("is_late", [False, True], ids=["at the start", "while the id is fetched"])
def test_a_creation_waits_for_bookies_that_are_known(is_listed: bool, is_late: bool) -> None:
    """CL01: too few that are writable just now is no end: a bookie that lost its session or its room for a moment is
    back soon. Nothing is written before there are enough, and no id is taken twice."""
    world = World(3)

    def away(is_away: bool) -> None:
        if is_listed:
            world.nodes["b2"].core.is_writable = not is_away
        else:
            (world.down.add if is_away else world.down.discard)("b2")
        world.tell_bookies()

    away(not is_late)
    world.catalog.is_held = True
    client = creation(world, patience=waiting(world))
    client.start()
    assert len(world.catalog.waiting) == is_late  # No id is asked for that nobody may need.
    if is_late:
        away(True)
    world.catalog.is_held = False
    world.settle()
    assert not client.has_ended
    assert world.catalog.values == {}
    assert client.core.deadline_ns == 30_000 * MS
    world.now_ns = 20_000 * MS
    away(False)
    world.settle()
    metadata, _ = client.ended.result
    assert metadata.ledger_id == 1
    assert sorted(member.bookie_id for member in metadata.fragments[0].members) == ["b1", "b2", "b3"]


def test_a_creation_that_waited_in_vain_says_for_whom() -> None:
    """CL01: how many there are, how many are needed, who is away and why, and what to do; definite, as nothing was
    written."""
    world = World(5)
    world.nodes["b2"].core.is_writable = False
    world.down |= {"b3", "b5"}
    client = creation(world, patience=waiting(world))
    client.start()
    world.now_ns = 29_999 * MS
    world.tell_bookies()
    assert not client.has_ended
    world.now_ns = 30_000 * MS
    world.tick(client)
    error = client.ended.error
    assert isinstance(error, NotEnoughBookies)
    assert error.definite
    assert error.args[0] == (
        "an ensemble of 3 was asked for; 2 writable bookies are registered (b2 is read-only, b3 is not registered, "
        "b5 is not registered), and no more came within 30.0 s"
    )
    assert "logs" in error.hint
    assert world.catalog.waiting == []


def test_nobody_waits_for_bookies_that_the_cluster_never_had() -> None:
    """CL01: an ensemble of four of three bookies is refused at once; waiting would not make it."""
    world = World(3)
    world.down.add("b3")
    client = creation(world, Quorum(4, 3, 2), patience=waiting(world))
    client.start()
    assert isinstance(client.ended.error, NotEnoughBookies)
    assert "b3 is not registered" in str(client.ended.error)


def test_no_id_no_ledger() -> None:
    """P10.4: losing the metadata stops creation; nothing was created, for certain."""
    world = World(3)
    world.catalog.is_held = True
    client = creation(world)
    client.start()
    world.catalog.fail(world.catalog.waiting[0])
    error = client.ended.error
    assert isinstance(error, MetadataUnavailable)
    assert error.definite


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_creation_of_unknown_outcome_is_settled_by_reading(lands: bool | None) -> None:
    """P2.2: the id is ours alone: what stands there is our own; absent proves nothing, so that another id is taken."""
    world, client, put = held_creation()
    world.catalog.tell_unknown(put, lands=lands)
    (read,) = world.catalog.waiting
    world.catalog.fail(read)  # Nor does the read get an answer: it is asked again after a while.
    assert client.core.deadline_ns == 200 * MS
    world.now_ns = 200 * MS
    world.tick(client)
    world.catalog.answer(world.catalog.waiting[0])
    if lands is None:
        assert world.catalog.land(put)
    world.catalog.is_held = False
    world.settle()
    metadata, revision = client.ended.result
    assert (metadata, revision) == world.catalog.metadata(metadata.ledger_id)
    assert metadata.ledger_id == (1 if lands else 2)


def test_a_ledger_that_was_deleted_while_its_creation_was_unknown_does_not_come_back() -> None:
    """P2.1: "an id that may have been put is put no second time". While the client waits, another one deletes it."""
    world, client, put = held_creation()
    world.catalog.tell_unknown(put, lands=True)
    key = ledger_key_path(1)
    assert world.catalog.transact([Compare(key, world.catalog.values[key][1])], [Delete(key)])[0]
    world.catalog.is_held = False
    world.settle()
    metadata, revision = client.ended.result
    assert (metadata, revision) == world.catalog.metadata(2)
    assert key not in world.catalog.values


def test_a_creation_that_ends_behind_an_unknown_outcome_is_not_definite() -> None:
    """P2.2: "definite unless one before is unknown": the first one may still come to pass."""
    world, client, put = held_creation()
    world.catalog.tell_unknown(put)
    world.down.update(world.nodes)
    world.tell_bookies()
    world.catalog.answer(world.catalog.waiting[0])
    assert isinstance(client.ended.error, NotEnoughBookies)
    assert not client.ended.error.definite


def test_another_id_is_asked_for_until_there_is_one() -> None:
    """P2.1, P2.2: nothing ends for a question without an answer, behind an unknown outcome."""
    world, client, put = held_creation()
    world.catalog.tell_unknown(put, lands=False)
    world.catalog.answer(world.catalog.waiting[0])
    (asked,) = world.catalog.waiting
    assert isinstance(asked.effect, AllocateIds)
    world.catalog.fail(asked)
    world.catalog.is_held = False
    world.now_ns = 200 * MS
    world.tick(client)
    world.settle()
    assert client.ended.result[0].ledger_id == 2


def test_an_id_handed_out_twice_is_found() -> None:
    """P2.1: somebody else's ledger stands under our id: an error, never an overwrite."""
    world, client, put = held_creation()
    assert isinstance(put.effect, Transact)
    assert put.effect.when == [Compare(ledger_key_path(1), ABSENT)]
    world.create(Quorum(1, 1, 1), ledger_id=1)
    world.catalog.is_held = False
    world.settle()
    assert isinstance(client.ended.error, MetadataConflict)


def test_a_creation_asks_for_one_id() -> None:
    world = World(3)
    world.catalog.is_held = True
    creation(world).start()
    assert [op.effect for op in world.catalog.waiting] == [AllocateIds("id", 1)]


# P2.3, P2.4: what may change.


def seatings(*names: str) -> list[Seating]:
    return [Seating(seat, seat, seat, member(name), FrameTable(None)) for seat, name in enumerate(names)]


def fragment(first: int, length: int, *names: str) -> Fragment:
    return Fragment(first, length, tuple((m.bookie_id, m.incarnation) for m in map(member, names)))


def test_a_change_appends_a_fragment_or_replaces_the_last() -> None:
    """P2.3, P2.4, P4.1, I15: first entries strictly increase and are never moved; earlier fragments stay."""
    old = (fragment(0, 0, "b1", "b2", "b3"), fragment(5, 50, "b1", "b2", "b4"))
    later = change_fragments(old, Proposal(8, 80, seatings("b1", "b5", "b4")))
    assert later == (*old, fragment(8, 80, "b1", "b5", "b4"))
    same = change_fragments(old, Proposal(5, 999, seatings("b1", "b5", "b4")))
    assert same == (old[0], fragment(5, 50, "b1", "b5", "b4"))
    with pytest.raises(AssertionError):
        change_fragments(old, Proposal(4, 40, seatings("b1", "b5", "b4")))


def test_an_entry_belongs_to_exactly_one_fragment() -> None:
    """P1, P2.4."""
    metadata, _ = World(3).create()
    parts = (
        fragment(0, 0, "b1", "b2", "b3"),
        fragment(5, 5, "b1", "b2", "b4"),
        fragment(9, 9, "b1", "b2", "b3"),
    )
    metadata = metadata.with_changes(fragments=parts)
    assert [metadata.fragment_of(e).first_entry for e in (0, 4, 5, 8, 9, 1000)] == [0, 0, 5, 5, 9, 9]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda m: m.with_changes(fragments=()),
        lambda m: m.with_changes(fragments=(fragment(1, 0, "b1", "b2", "b3"),)),
        lambda m: m.with_changes(fragments=(m.fragments[0], fragment(0, 0, "b1", "b2", "b4"))),
        lambda m: m.with_changes(fragments=(fragment(0, 0, "b1", "b2"),)),
        lambda m: m.with_changes(fragments=(fragment(0, 0, "b1", "b2", "b2"),)),
        lambda m: m.with_changes(version=99),
    ],
)
def test_metadata_of_an_impossible_shape_is_refused(
    break_it: Callable[[LedgerMetadata], LedgerMetadata],
) -> None:
    """P2.4: E distinct bookies, the first fragment at 0, first entries rising; and no version from the future."""
    metadata, _ = World(3).create()
    assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata
    with pytest.raises(StorageError):
        decode_ledger_metadata(encode_ledger_metadata(break_it(metadata)))


# P2.2: the store, as the cores count on it (here: the world's own).


def test_a_compare_with_an_old_revision_changes_nothing() -> None:
    """P2.2, I18: revisions rise with every change and never come back."""
    catalog = World(1).catalog
    assert catalog.transact([Compare("a", ABSENT)], [Put("a", b"1")]) == (True, 1)
    assert catalog.transact([Compare("a", ABSENT)], [Put("a", b"2")]) == (False, 1)
    assert catalog.transact([Compare("a", 1)], [Put("a", b"2"), Put("b", b"x")]) == (True, 2)
    assert catalog.transact([Compare("a", 1)], [Put("a", b"3")]) == (False, 2)
    assert catalog.values == {"a": (b"2", 2), "b": (b"x", 2)}
