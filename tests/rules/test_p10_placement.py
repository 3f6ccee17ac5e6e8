"""P10.6: who newly names a bookie compares its placement, so that nothing lands on who went read-only."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import ABSENT, Compare
from embedbk.codec.registration import placement_path
from embedbk.core.client_words import BookiesChanged
from embedbk.core.creation import Creation
from embedbk.core.metadata_words import KeyRead, Transact
from embedbk.errors import NotEnoughBookies
from tests.rules.scenes import Scene, scene
from tests.rules.world import THREE, Client, Operation, World


def placed_world(bookies: int) -> World:
    """Each bookie has its placement, as from its first registration on."""
    world = World(bookies)
    for bookie_id in world.nodes:
        world.catalog.raise_placement(bookie_id)
    return world


def placed_scene(bookies: int) -> Scene:
    it = scene(bookies=bookies)
    for bookie_id in it.world.nodes:
        it.world.catalog.raise_placement(bookie_id)
    it.world.tell_bookies()
    it.world.catalog.is_held = True
    return it


def retire(world: World, bookie_id: str) -> None:
    """It goes read-only and raises its placement; who looked before does not know."""
    world.nodes[bookie_id].core.is_writable = False
    world.catalog.raise_placement(bookie_id)


def creation(world: World) -> tuple[Client, Operation]:
    """With its put in flight."""
    world.catalog.is_held = True
    client = world.client("creation", Creation(THREE, bytes(16), 1, {}, world.bookies, random.Random(3)))
    client.start()
    world.catalog.answer(world.catalog.waiting[0])
    (put,) = world.catalog.waiting
    return client, put


def placements(operation: Operation) -> dict[str, int]:
    assert isinstance(operation.effect, Transact)
    _, *others = operation.effect.when
    return {compare.key: compare.revision for compare in others}


def settle(world: World) -> None:
    world.catalog.is_held = False
    world.settle()


def named(world: World, client: Client) -> set[str]:
    metadata, _ = client.ended.result
    assert world.catalog.metadata(metadata.ledger_id)[0] == metadata
    return {each.bookie_id for each in metadata.fragments[-1].members}


def test_a_creation_compares_the_placement_of_each_bookie_that_it_names() -> None:
    """P10.6: every transaction that newly names a bookie compares it; in the one round trip that it takes anyway."""
    world = placed_world(5)
    client, put = creation(world)
    world.catalog.answer(put)
    chosen = {placement_path(bookie_id) for bookie_id in named(world, client)}
    assert placements(put) == {key: world.catalog.values[key][1] for key in chosen}


def test_a_creation_does_not_land_on_a_bookie_that_went_read_only_behind_the_choice() -> None:
    """P10.6: nothing lands there afterwards; the creation chooses anew, though its list shows the bookie as before."""
    world = placed_world(4)
    client, put = creation(world)
    gone = next(iter(placements(put))).rpartition("/")[2]
    retire(world, gone)
    settle(world)
    assert named(world, client) == set(world.nodes) - {gone}


def test_a_creation_whose_put_is_unknown_lands_once_and_not_on_who_went_read_only() -> None:
    """P10.6, P2.2: an unknown put that compared an older placement can come no more; one that came before counts."""
    for lands in (True, False):
        world = placed_world(4)
        client, put = creation(world)
        gone = next(iter(placements(put))).rpartition("/")[2]
        if lands:
            world.catalog.land(put)
        retire(world, gone)
        world.catalog.tell_unknown(put, lands=False)
        settle(world)
        assert (gone in named(world, client)) == lands
        world.catalog.land(put)
        assert named(world, client)  # What stands there is what was told.


def test_a_creation_for_which_too_few_are_left_says_so_and_made_nothing() -> None:
    """P10.6, CL01: within bounds: each that is found to have gone is not chosen again from the same list."""
    world = placed_world(3)
    client, _ = creation(world)
    for bookie_id in world.nodes:
        retire(world, bookie_id)
    settle(world)
    assert isinstance(client.ended.error, NotEnoughBookies)
    assert client.ended.error.definite
    assert not world.catalog.history


def test_of_a_bookie_without_a_placement_nothing_is_compared() -> None:
    """P10.6, P10.8: a bookie of the build before registers none, and takes ledgers as ever."""
    world = World(3)
    client, put = creation(world)
    assert placements(put) == {}
    settle(world)
    assert len(named(world, client)) == 3


def test_an_absent_placement_is_compared_as_absent() -> None:
    """P10.6: the first raise is seen, too."""
    world = placed_world(3)
    infos = tuple(info._replace(placement=ABSENT) for info in world.bookies)
    world.catalog.values.clear()
    world.catalog.is_held = True
    client = world.client("creation", Creation(THREE, bytes(16), 1, {}, infos, random.Random(3)))
    client.start()
    world.catalog.answer(world.catalog.waiting[0])
    (put,) = world.catalog.waiting
    assert set(placements(put).values()) == {ABSENT}
    retire(world, "b2")
    settle(world)
    assert isinstance(client.ended.error, NotEnoughBookies)


# The writer's ensemble change.


def changing(bookies: int) -> tuple[Scene, Operation]:
    """b3 fails, and the change that names another in its place is in flight."""
    it = placed_scene(bookies)
    it.world.add(it.writer, it.pen, b"zero")
    it.world.fail(it.world.packet(to="b3"))
    it.world.settle()
    return it, it.change()


def test_an_ensemble_change_compares_whom_it_newly_names_and_nobody_else() -> None:
    """P10.6: nothing compares a number of the whole cluster."""
    it, change = changing(4)
    assert placements(change) == {placement_path("b4"): it.world.catalog.placement("b4")}


@pytest.mark.parametrize("is_unknown", [False, True])
def test_an_ensemble_change_does_not_land_on_a_bookie_that_went_read_only_behind_the_choice(
    is_unknown: bool,
) -> None:
    """P10.6, P4.2: b4 or b5 is chosen and goes read-only; the other one is named, and the writer goes on."""
    it, change = changing(5)
    (gone,) = (key.rpartition("/")[2] for key in placements(change))
    (other,) = {"b4", "b5"} - {gone}
    retire(it.world, gone)
    if is_unknown:
        it.world.catalog.tell_unknown(change, lands=None)
    settle(it.world)
    assert it.ensembles()[-1][1] == ["b1", "b2", other]
    if is_unknown:
        assert not it.world.catalog.land(change)
    it.world.add(it.writer, it.pen, b"one")
    it.world.settle()
    assert it.writer.failure is None
    assert it.writer.confirmed == 1


def test_a_change_that_landed_before_the_raise_counts_also_where_its_outcome_is_unknown() -> None:
    """P10.6, P2.2: it named the bookie while it might."""
    it, change = changing(4)
    it.world.catalog.land(change)
    retire(it.world, "b4")
    it.world.catalog.tell_unknown(change, lands=False)
    settle(it.world)
    assert it.ensembles()[-1][1] == ["b1", "b2", "b4"]


def test_a_writer_takes_a_bookie_again_that_is_writable_again() -> None:
    """P10.6: outdated is what was listed, not the bookie: a newer list shows it with what it then has."""
    it, _ = changing(4)
    retire(it.world, "b4")
    settle(it.world)
    assert len(it.ensembles()) == 1  # Nobody is left: Qa bookies go on.
    it.world.nodes["b4"].core.is_writable = True
    it.world.tell_bookies()
    it.world.run(seconds=1)
    assert it.ensembles()[-1][1] == ["b1", "b2", "b4"]


def test_a_read_of_a_placement_that_gets_no_answer_is_asked_again() -> None:
    """P10.6, P2.2: nothing hangs."""
    it, change = changing(5)
    (gone,) = (key.rpartition("/")[2] for key in placements(change))
    retire(it.world, gone)
    it.world.catalog.answer(change)
    it.world.catalog.fail(it.change())
    it.world.catalog.is_held = False
    it.world.run(seconds=2)
    assert gone not in it.ensembles()[-1][1]
    assert len(it.ensembles()) == 2
    assert it.writer.failure is None


def test_what_was_read_before_a_change_was_refused_does_not_send_it_again() -> None:
    """P10.6, P2.2: "after a refusal read and decide anew". A writer that was short of bookies asked for its ledger's
    key before it chose; that answer comes behind the refusal, and before the placement that says why."""
    it, change = changing(5)
    (gone,) = (key.rpartition("/")[2] for key in placements(change))
    retire(it.world, gone)
    value, revision = it.world.catalog.values[ledger_key_path(it.writer.core.ledger_id)]
    it.writer.core.changes.publishing.is_reading = True
    it.world.catalog.answer(change)
    asked = it.change()
    it.writer.step(KeyRead(it.world.now_ns, "read", value, revision))
    assert it.change() is asked, "the placement decides"
    settle(it.world)
    assert gone not in it.ensembles()[-1][1]
    assert it.writer.failure is None


@pytest.mark.parametrize("is_listed_anew", [False, True])
def test_a_change_that_never_lands_is_not_sent_again_though_a_newer_list_does_not_show_its_choice(
    is_listed_anew: bool,
) -> None:
    """P10.6: a transaction that compared an older placement never comes to pass. The list that comes behind the read of
    the placement, and does not show b4 or shows it anew, changes nothing about that: others are named."""
    it, change = changing(5)
    (gone,) = (key.rpartition("/")[2] for key in placements(change))
    retire(it.world, gone)
    it.world.catalog.answer(change)
    it.world.catalog.answer(it.change())  # The placement is another.
    if is_listed_anew:
        it.world.tell_bookies()
    else:
        others = tuple(info for info in it.world.bookies if info.member.bookie_id != gone)
        it.writer.step(BookiesChanged(it.world.now_ns, others))
    it.world.catalog.answer(it.change())  # The ledger's key,
    it.world.catalog.answer(it.change())  # and once more.
    named_now = placements(it.change())
    assert len(named_now) == 1
    assert placement_path(gone) not in named_now
    settle(it.world)
    assert gone not in it.ensembles()[-1][1]
    assert it.writer.failure is None


# Recovery's close.


def test_recovery_closes_on_nobody_who_went_read_only_behind_the_choice() -> None:
    """P10.6, P5.2: b4 took what was written back, and goes read-only before the close: it is not named. The recovery
    begins again, and ends where the first would have ended."""
    it = placed_scene(5)
    it.world.add(it.writer, it.pen, b"zero")
    it.world.settle()
    it.writer.is_gone = True
    recovery = it.world.recovery(it.ledger_id)
    it.world.down.add("b3")
    recovery.start()
    it.world.catalog.answer(it.change())  # IN_RECOVERY.
    it.world.run(until=lambda: bool(it.world.catalog.waiting), seconds=9)
    (gone,) = (key.rpartition("/")[2] for key in placements(it.change()))
    retire(it.world, gone)
    settle(it.world)
    it.world.run(until=lambda: recovery.has_ended, seconds=9)
    assert recovery.ended.error is None
    assert it.last_entry == 0
    assert gone not in it.ensembles()[-1][1]


def test_what_was_noted_at_the_choice_is_compared_though_a_newer_list_shows_the_bookie_as_read_only() -> None:
    """P10.6: a number that a read-only bookie shows is of after its raise; with it everything would pass."""
    it, change = changing(4)
    (compare,) = change.effect.when[1:]  # type: ignore[union-attr]
    retire(it.world, "b4")
    it.writer.step(BookiesChanged(it.world.now_ns, it.world.bookies))
    it.world.catalog.tell_unknown(change, lands=False)
    it.world.catalog.answer(it.change())  # The ledger's key is as before: the same is sent again.
    assert isinstance(again := it.change().effect, Transact)
    assert again.when[1:] == [Compare(compare.key, compare.revision)]
