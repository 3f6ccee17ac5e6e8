"""P8.14: a freed ledger comes back to bookies in place, under a mark that keeps its copies, by one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_changed_metadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Delete
from embedbk.codec.registration import placement_path
from embedbk.codec.repair_mark import decode_repair_mark, progress_of, repair_mark_path
from embedbk.config import ANYWHERE, Quorum
from embedbk.core.bookie_words import CollectionBegun, DropAllowed
from embedbk.core.copying_in_place import WRITE_NS, CopyingInPlace, PieceCopied
from embedbk.core.machine import Machine
from embedbk.core.metadata_words import Transact
from embedbk.core.naming import Naming
from embedbk.core.restoring_in_place import (
    RENEW_NS,
    ArchiveHold,
    InPlacePlan,
    NamingInPlace,
    PublishingInPlace,
    RenewingInPlace,
)
from embedbk.errors import (
    LockLost,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    StorageError,
)
from embedbk.ids import Member
from embedbk.metadata.repair_index import WAITS_MS
from tests.rules.test_p8_archives import HASH, LEDGER, LOCK, put, put_ledger
from tests.rules.test_p8_logs import LOG
from tests.rules.test_p8_pages import run
from tests.rules.test_p8_truncating import NOW_MS, held_at
from tests.rules.world import Pen, World, member

KEY, MARK = ledger_key_path(LEDGER), repair_mark_path(LEDGER)
FREED = Freed(b"a" * 16, "/archive", HASH, NOW_MS, "me")


class Scene:
    """A freed ledger, and the job that holds the lock of its archive."""

    def __init__(self, bookies: int = 4) -> None:
        self.world = World(bookies)
        for name in self.world.nodes:
            self.world.catalog.raise_placement(name)
        put_ledger(self.world)
        before, _ = self.world.catalog.metadata(LEDGER)
        (fragment,) = before.fragments
        self.freed = before.with_changes(
            freed=FREED,
            fragments=(fragment.__class__(0, 0, ()), fragment.__class__(4, 40, ())),
        )
        # As if it had had two fragments: the world checks that those of a closed ledger stay as many.
        self.world.catalog.history.pop(KEY)
        put(self.world, KEY, encode_ledger_metadata(self.freed))
        self.hold = ArchiveHold(LOG, LOCK, put(self.world, LOCK, b"me"))
        self.naming = Naming()

    def naming_core(self, *excluded: Member) -> NamingInPlace:
        world = self.world
        return NamingInPlace(
            LEDGER, self.hold, FREED, self.naming, world.bookies, frozenset(excluded), ANYWHERE, world.chance, NOW_MS
        )  # fmt: skip

    def came_to(self, core: Machine) -> Any:
        client = run(self.world, self.world.client(f"job at {self.world.catalog.revision}", core))
        return client.ended.error or client.ended.result

    def plan(self) -> InPlacePlan:
        plan: InPlacePlan = self.came_to(self.naming_core())
        assert isinstance(plan, InPlacePlan), plan
        return plan

    def stands(self) -> LedgerMetadata:
        return decode_ledger_metadata(self.world.catalog.values[KEY][0], LEDGER)


def test_a_mark_names_all_targets_before_the_first_copy_and_no_worker_may_take_it() -> None:
    """P7.7: "no repair is marked"; METADATA.md, 11: marks "that are not postponed" are taken."""
    scene = Scene()
    plan = scene.plan()
    value, revision = scene.world.catalog.values[MARK]
    mark = decode_repair_mark(value)
    assert (value, revision) == (plan.mark, plan.mark_revision) and mark.is_postponed
    assert WAITS_MS[mark.tries - 1] * 1_000_000 > 3 * RENEW_NS  # It is put again before its wait is over.
    assert progress_of(mark).targets == tuple((each.bookie_id, each.incarnation) for each in plan.ensemble)
    assert len(set(plan.ensemble)) == 3 and scene.stands() == scene.freed


def test_the_ledger_comes_back_as_it_was_but_for_its_seats() -> None:
    """ "The same ledger": id, end, password, starts; bookies in all fragments, no files; and the mark is gone."""
    scene = Scene()
    plan = scene.plan()
    back = scene.came_to(PublishingInPlace(plan, scene.hold, scene.naming))
    assert back == scene.stands() == plan.restored and back.freed is None
    assert [(each.first_entry, each.members) for each in back.fragments] == [
        (0, plan.ensemble),
        (4, plan.ensemble),
    ]
    assert back.with_changes(freed=FREED, fragments=scene.freed.fragments) == scene.freed
    assert MARK not in scene.world.catalog.values


def test_publishing_compares_all_that_was_looked_at() -> None:
    """ "One compare-and-set": the ledger, the mark as it was put, the lock's epoch, and each placement (P10.6)."""
    scene = Scene()
    plan = scene.plan()
    scene.world.client("job", PublishingInPlace(plan, scene.hold, scene.naming)).start()
    change = held_at(scene.world, "publish").effect
    assert isinstance(change, Transact)
    keys = [KEY, MARK, LOCK, *(placement_path(each.bookie_id) for each in plan.ensemble)]
    wanted = {key: scene.world.catalog.values[key][1] for key in keys}
    assert {each.key: each.revision for each in change.when} == wanted


def test_naming_compares_ledger_lock_and_mark() -> None:
    scene = Scene()
    old = put(scene.world, MARK, scene.plan().mark)
    scene.world.client("job", scene.naming_core()).start()
    change = held_at(scene.world, "mark").effect
    assert isinstance(change, Transact)
    catalog = scene.world.catalog.values
    assert {each.key: each.revision for each in change.when} == {
        KEY: catalog[KEY][1],
        LOCK: scene.hold.epoch,
        MARK: old,
    }


MEANWHILE: dict[str, tuple[type[Exception], Callable[[Scene], object]]] = {
    "the mark was taken away": (MetadataConflict, lambda it: it.world.catalog.transact([], [Delete(MARK)])),
    "the mark was there anew": (
        MetadataConflict,
        lambda it: put(it.world, MARK, it.world.catalog.values[MARK][0]),
    ),
    "another has the lock": (LockLost, lambda it: put(it.world, LOCK, b"another")),
    "the ledger is gone": (NoSuchLedger, lambda it: it.world.catalog.transact([], [Delete(KEY)])),
    "a bookie went read-only": (
        MetadataConflict,
        lambda it: [it.world.catalog.raise_placement(name) for name in it.world.nodes],
    ),
}


@pytest.mark.parametrize("case", MEANWHILE)
def test_what_came_in_between_publishes_nothing(case: str) -> None:
    """A mark that was gone for a moment let collectors drop copies; a job without its lock is another's (P9.1)."""
    kind, make = MEANWHILE[case]
    scene = Scene()
    plan = scene.plan()
    make(scene)
    error = scene.came_to(PublishingInPlace(plan, scene.hold, scene.naming))
    assert isinstance(error, kind) and (error.definite or kind is LockLost), error
    assert KEY not in scene.world.catalog.values or scene.stands() == scene.freed


def test_a_bookie_whose_placement_was_raised_is_chosen_again_only_as_a_newer_list_shows_it() -> None:
    """P10.6: "the choice is made anew, without that bookie until a newer list shows it"."""
    scene = Scene()
    plan, listed = scene.plan(), scene.world.bookies
    scene.world.catalog.raise_placement(plan.ensemble[0].bookie_id)
    scene.came_to(PublishingInPlace(plan, scene.hold, scene.naming))
    core = scene.naming_core()
    core.bookies = listed
    again = scene.came_to(core)
    assert plan.ensemble[0] not in again.ensemble and len(again.ensemble) == 3
    assert scene.came_to(PublishingInPlace(again, scene.hold, scene.naming)) == scene.stands()


@pytest.mark.parametrize("lands", [True, False, None])
def test_publishing_of_unknown_outcome_is_settled_by_what_stands_there(lands: bool | None) -> None:
    """P2.2: it is looked at again, and never assumed."""
    scene = Scene()
    plan = scene.plan()
    client = scene.world.client("job", PublishingInPlace(plan, scene.hold, scene.naming))
    client.start()
    first = held_at(scene.world, "publish")
    scene.world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(scene.world, "publish")
        assert scene.world.catalog.land(first)
        scene.world.catalog.answer(again)
    scene.world.catalog.is_held = False
    scene.world.run(until=lambda: client.has_ended)
    assert client.ended.error is None and client.ended.result == scene.stands() == plan.restored


def test_publishing_that_may_have_landed_is_no_definite_no() -> None:
    """The metadata is full by the second try, and the first may still take effect."""
    scene = Scene()
    plan = scene.plan()
    client = scene.world.client("job", PublishingInPlace(plan, scene.hold, scene.naming))
    client.start()
    scene.world.catalog.tell_unknown(held_at(scene.world, "publish"), lands=None)
    scene.world.catalog.refuses, scene.world.catalog.is_held = "it is full", False
    scene.world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, MetadataUnavailable) and not client.ended.error.definite


@pytest.mark.parametrize("lands", [True, False, None])
def test_a_renewal_of_unknown_outcome_gives_the_revision_at_which_the_mark_stands(lands: bool | None) -> None:
    scene = Scene()
    plan = scene.plan()
    client = scene.world.client("job", RenewingInPlace(plan, scene.hold))
    client.start()
    first = held_at(scene.world, "renew")
    scene.world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(scene.world, "renew")
        assert scene.world.catalog.land(first)
        scene.world.catalog.answer(again)
    scene.world.catalog.is_held = False
    scene.world.run(until=lambda: client.has_ended)
    assert client.ended.result == scene.world.catalog.values[MARK][1] > plan.mark_revision
    renewed = plan._replace(mark_revision=client.ended.result)
    assert scene.came_to(PublishingInPlace(renewed, scene.hold, scene.naming)) == scene.stands()


@pytest.mark.parametrize("case", ["the mark was taken away", "another has the lock"])
def test_a_mark_that_is_another_is_not_renewed(case: str) -> None:
    """It was gone, or may be: what was copied is not sure to be there."""
    scene = Scene()
    plan = scene.plan()
    MEANWHILE[case][1](scene)
    before = scene.world.catalog.values.get(MARK)
    found = scene.came_to(RenewingInPlace(plan, scene.hold))
    assert isinstance(found, MEANWHILE[case][0])
    assert scene.world.catalog.values.get(MARK) == before


def test_one_that_bookies_have_stays_as_it_is() -> None:
    scene = Scene()
    scene.came_to(PublishingInPlace(scene.plan(), scene.hold, scene.naming))
    revision = scene.world.catalog.revision
    assert scene.came_to(scene.naming_core()) is None and scene.world.catalog.revision == revision


REFUSED: dict[str, tuple[type[Exception], Callable[[Scene], object]]] = {
    "it is gone": (NoSuchLedger, lambda it: it.world.catalog.transact([], [Delete(KEY)])),
    "another job": (LockLost, lambda it: put(it.world, LOCK, b"another")),
    "other files": (
        MetadataConflict,
        lambda it: put(
            it.world,
            KEY,
            encode_ledger_metadata(it.freed.with_changes(freed=Freed(b"z" * 16, "/other", HASH))),
        ),
    ),
    "a mark of a build to come": (StorageError, lambda it: put(it.world, MARK, b"\x92\x07\xa0")),
    "two bookies only": (NotEnoughBookies, lambda it: it.world.down.update(("b1", "b2"))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_forbids_it_is_said_before_anything_is_copied(case: str) -> None:
    kind, make = REFUSED[case]
    scene = Scene()
    make(scene)
    before = scene.world.catalog.revision
    error = scene.came_to(scene.naming_core())
    assert isinstance(error, kind), error
    assert scene.world.catalog.revision == before


def test_one_that_failed_is_not_chosen_again() -> None:
    scene = Scene()
    failed = scene.plan().ensemble[1]
    again = scene.came_to(scene.naming_core(failed))
    assert failed not in again.ensemble
    error = scene.came_to(scene.naming_core(failed, again.ensemble[0]))
    assert isinstance(error, NotEnoughBookies) and failed.bookie_id in str(error)


def test_a_handle_that_knew_the_files_takes_metadata_that_names_bookies_again() -> None:
    """P2.3: nothing else of it changed."""
    scene = Scene()
    back = scene.plan().restored
    assert decode_changed_metadata(encode_ledger_metadata(back), scene.freed) == back
    assert decode_changed_metadata(encode_ledger_metadata(scene.freed), back) == scene.freed


# --- Copies ---------------------------------------------------------------------------------------------------


def copying(world: World, quorum: Quorum, count: int = 12) -> CopyingInPlace:
    pen = Pen(LEDGER)
    frames = [
        pen.frame(*(b"%d" % number for number in range(first, first + 4))) for first in range(0, count, 4)
    ]
    return CopyingInPlace(
        quorum, [member(f"b{n + 1}") for n in range(quorum.ensemble_size)], frames, world.nonce()
    )


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(5, 3, 2), Quorum(1, 1, 1)])
def test_each_member_of_a_write_set_holds_the_entry_durably_and_nobody_else(quorum: Quorum) -> None:
    """P3.7, I30: seats (e + i) mod E for i < Qw."""
    world = World(quorum.ensemble_size)
    client = run(world, world.client("job", copying(world, quorum)))
    owed = {
        seat: [e for e in range(12) if (seat - e) % quorum.ensemble_size < quorum.write_quorum]
        for seat in range(quorum.ensemble_size)
    }
    assert client.ended.result == PieceCopied(None, "", 12 * quorum.write_quorum)
    for seat, entries in owed.items():
        held = {entry for ledger, entry in world.nodes[f"b{seat + 1}"].durable_entries() if ledger == LEDGER}
        assert sorted(held) == entries


def test_copies_count_when_the_last_of_them_is_durable() -> None:
    """P3.2: nothing leaves before it is durable."""
    world = World(3)
    world.nodes["b2"].holds_syncs = True
    client = world.client("job", copying(world, Quorum(3, 3, 2)))
    client.start()
    world.settle()
    assert not client.has_ended
    world.nodes["b2"].sync()
    world.settle()
    assert client.ended.result.failed is None


@pytest.mark.parametrize(
    "status", [Status.UNKNOWN, Status.CONFLICT, Status.WRONG_INCARNATION, Status.RECEIVED]
)
def test_any_answer_but_ok_is_a_bookie_that_failed(status: Status) -> None:
    """ "Cannot tell" is never "yes"."""
    world = World(3)
    client = world.client("job", copying(world, Quorum(3, 3, 2), 4))
    client.start()
    packet = world.packet(client, to="b2")
    request = packet.control
    assert isinstance(request, AddRequest) and request.is_copy and request.recovery
    packet.control = AddAnswer(status, request.nonce, request.seating, True, LEDGER, 0, 3)
    packet.is_request = False
    world.settle()
    assert client.ended.result.failed == member("b2") and status.name in client.ended.result.why


def test_an_answer_to_another_copy_counts_for_nothing() -> None:
    """P3.8: nonce, number and range are those of this add."""
    world = World(3)
    client = world.client("job", copying(world, Quorum(3, 3, 2), 4))
    client.start()
    packet = world.packet(client, to="b3")
    request = packet.control
    assert isinstance(request, AddRequest)
    packet.control = AddAnswer(Status.OK, request.nonce + 1, request.seating, True, LEDGER, 0, 3)
    packet.is_request = False
    world.settle()
    assert client.ended.result.failed == member("b3")


def test_a_busy_bookie_is_asked_again_and_a_silent_one_has_failed() -> None:
    """P7.8: "of which nothing follows but a later try, until a time limit"."""
    world = World(3)
    client = world.client("job", copying(world, Quorum(3, 3, 2), 4))
    client.start()
    packet = world.packet(client, to="b1")
    request = packet.control
    assert isinstance(request, AddRequest)
    packet.control = AddAnswer(Status.BUSY, request.nonce, request.seating, True, LEDGER, 0, 3)
    packet.is_request = False
    world.lose(world.packet(client, to="b2"))
    world.settle()
    assert not client.has_ended
    world.run(until=lambda: len(world.nodes["b1"].holds(LEDGER)) == 4)
    assert not client.has_ended
    world.run(until=lambda: client.has_ended, seconds=WRITE_NS / 1e9 + 1)
    assert client.ended.result.failed == member("b2") and "in time" in client.ended.result.why


def test_a_bookie_that_dropped_the_ledger_takes_its_copies_again() -> None:
    """P7.3: "recovery brings one back into limbo", which ends when its share is there (P7.4)."""
    scene = Scene()
    world, pen = scene.world, Pen(LEDGER)
    frames = [pen.frame(*(b"%d" % number for number in range(10)))]
    plan = scene.plan()
    first = CopyingInPlace(plan.ledger.quorum, plan.ensemble, frames, world.nonce())
    assert scene.came_to(first).failed is None
    node = world.nodes[plan.ensemble[0].bookie_id]
    node.perform(node.core.step(CollectionBegun(world.now_ns, [LEDGER])))
    node.perform(node.core.step(DropAllowed(world.now_ns, LEDGER)))
    world.settle()
    assert node.holds(LEDGER) == []
    again = CopyingInPlace(plan.ledger.quorum, plan.ensemble, frames, world.nonce())
    assert scene.came_to(again).failed is None
    assert node.holds(LEDGER) == list(range(10))
    row = node.storage.table.get(LEDGER)
    assert row is not None and row.in_limbo and row.is_fenced and not row.is_dropped
    scene.came_to(PublishingInPlace(plan, scene.hold, scene.naming))
    node.look_for_share(LEDGER)
    assert not row.in_limbo and row.is_fenced
