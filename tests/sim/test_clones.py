"""Two processes that claim one identity, in worlds that know nodes by place and not by id (P7.9)."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.journal_records import RecordKind
from embedbk.codec.ledger_metadata import METADATA_VERSION, Fragment, LedgerMetadata, LedgerState, Member
from embedbk.codec.registration import decode_registration, registration_path
from embedbk.config import Quorum
from embedbk.host.rival import ANSWER_NS
from embedbk.testing import writing_handles
from embedbk.testing.bookie_processes import drop_newest
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.invariants import Invariants
from embedbk.testing.invariants_fencing import limbo_comes_first
from embedbk.testing.process_names import twin_of
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.testing.writing_handles import open_writing, takeover_core

THREE = Quorum(3, 3, 2)


def world_of_three(*, is_native: bool = False) -> World:
    world = World(5, bookies=3, observers=[Invariants()], is_native=is_native)
    assert world.run_until(lambda: all(world.nodes[name].is_registered for name in ("b1", "b2", "b3")))
    return world


def written(world: World, count: int = 3) -> Any:
    node = world.start_client("w1")
    assert world.run_until(lambda: node.is_ready and len(node.bookies) == 3)
    taking = world.start("w1", takeover_core(world, "w1", "a log", THREE))
    assert world.run_until(taking.future.done)
    writing = open_writing(world, "w1", taking.future.result(), 5 * SECOND)
    append(world, writing, count)
    return writing


def append(world: World, writing: Any, count: int = 1) -> None:
    for _ in range(count):
        last = writing_handles.append(world, "w1", writing, b"an entry")
        assert last is not None
        assert world.run_until(lambda: writing.lac >= last), writing.error  # noqa: B023


def registered(world: World) -> list[str]:
    """Endpoints of b1 in the list of bookies."""
    key = registration_path("b1")
    return decode_registration(world.committed(key)[key], "b1").endpoints


def refused(world: World) -> Any:
    node = world.nodes[twin_of("b1")]
    assert world.run_until(lambda: node.failure is not None, 20 * SECOND)
    return node


@pytest.mark.parametrize("is_native", [False, True], ids=["twin", "native"])
def test_a_copy_beside_the_living_one_is_refused_and_serves_nobody(is_native: bool) -> None:
    """P7.9: "One that says Hello within 2 s with this identity and another number of its start stays, and this one is
    refused, both places named"."""
    world = world_of_three(is_native=is_native)
    writing = written(world)
    world.twins.copy("b1")
    world.twins.start("b1")
    node = refused(world)
    assert "at sim://b1 " in str(node.failure) and "at sim://b1~ " in str(node.failure)
    assert registered(world) == ["sim://b1"]
    append(world, writing)
    assert writing.ensemble_changes == 0
    world.close()


@pytest.mark.parametrize("is_copy_first", [False, True], ids=["original first", "copy first"])
def test_the_second_of_two_that_start_on_one_copy_is_refused(is_copy_first: bool) -> None:
    """P7.9: whichever of them registers first; what was acknowledged before is with both, and what is later with it."""
    world = world_of_three()
    writing = written(world)
    world.crash("b1")
    world.twins.copy("b1")
    if is_copy_first:
        world.twins.start("b1")
        assert world.run_until(lambda: registered(world) == ["sim://b1~"], SECOND), "at once"
        world.twins.start("b1")
    else:
        world.start_bookie("b1")
        assert world.run_until(lambda: world.nodes["b1"].is_registered)
        world.twins.start("b1")
    refused(world)
    assert registered(world) == ["sim://b1~" if is_copy_first else "sim://b1"]
    assert world.run_until(lambda: world.nodes["b1"].is_registered)
    append(world, writing, 3)
    world.close()


def stopped(world: World) -> None:
    """b1 stands still, and a copy of it starts."""
    world.pause("b1")
    world.twins.copy("b1")
    world.twins.start("b1")


def test_a_stopped_process_is_replaced_when_its_two_seconds_are_over() -> None:
    """Story 20, P7.9: it accepts connections, and says nothing. Not before: it may only be slow."""
    world = world_of_three()
    writing = written(world)
    world.network._connect_timeout_ns = 60 * SECOND  # The rule's own time, whatever a transport has besides.
    stopped(world)
    copy = world.nodes[twin_of("b1")]
    assert world.run_until(lambda: copy.rival.deadline_ns is not None, SECOND)
    asked_ns = world.now_ns
    assert copy.rival.deadline_ns == asked_ns + ANSWER_NS
    world.run_for(ANSWER_NS - 1 * MS)
    assert world.nodes[twin_of("b1")] is copy and not copy.is_registered
    assert world.run_until(lambda: copy.is_registered, 100 * MS)
    assert world.nodes["b1"] is copy and registered(world) == ["sim://b1~"]
    append(world, writing)
    world.close()


def test_a_stopped_process_that_goes_on_in_time_stays() -> None:
    """P7.9: within its two seconds it says Hello."""
    world = world_of_three()
    written(world)
    stopped(world)
    copy = world.nodes[twin_of("b1")]
    assert world.run_until(lambda: copy.rival.deadline_ns is not None, SECOND)
    world.run_for(ANSWER_NS - 50 * MS)
    world.resume("b1")
    assert refused(world) is copy
    assert world.run_until(lambda: world.nodes["b1"].is_registered)
    assert registered(world) == ["sim://b1"]
    world.close()


def test_who_goes_on_behind_its_time_finds_its_place_taken() -> None:
    """P7.9: it asks whoever stands in the list, who is alive."""
    world = world_of_three()
    writing = written(world)
    stopped(world)
    before = world.nodes["b1"]
    assert world.run_until(lambda: registered(world) == ["sim://b1~"], 5 * SECOND)
    world.resume(twin_of("b1"))
    assert refused(world) is before
    append(world, writing, 3)
    world.close()


def test_a_copy_that_serves_beside_the_living_one_is_found() -> None:
    """The checks above see what they are there for."""
    world = world_of_three()
    writing = written(world)
    world.twins.copy("b1")
    world.twins.start("b1")
    copy = world.nodes[twin_of("b1")]
    copy.rival.ask = lambda now_ns, endpoints, done: done(now_ns, False)  # type: ignore[method-assign]
    assert world.run_until(lambda: world.nodes["b1"] is copy)
    world.pause("b3")  # What b1 says counts from now on, and w1 has a link to the process before.
    with pytest.raises(Violation):
        append(world, writing)
    world.close()


def test_what_a_process_lost_says_nothing_of_the_copy_that_takes_its_place() -> None:
    """P7.9, I32 (seed 17019591): nothing was taken behind the copy; the process before loses its newest file, which
    the copy has: the copy owes no limbo."""
    world = world_of_three()
    writing = written(world)
    stopped(world)
    copy = world.nodes[twin_of("b1")]
    assert world.run_until(lambda: copy.rival.deadline_ns is not None, SECOND)
    world.run_for(ANSWER_NS - 20 * MS)
    world.crash("b1")
    assert drop_newest(world, "b1")
    assert world.start_bookie("b1")
    assert world.nodes["b1"].storage.may_have_lost
    assert world.run_until(lambda: world.nodes["b1"] is copy, SECOND)
    assert not copy.storage.may_have_lost
    world.run_for(SECOND)
    world.pause("b3")  # So that what is acknowledged, the copy has acknowledged.
    append(world, writing, 3)
    assert writing.ensemble_changes == 0
    world.close()


def test_what_was_owed_when_the_disk_was_copied_is_owed_by_the_copy() -> None:
    """P7.4, P7.9, I32: whoever copies the disk of a bookie that is not in limbo yet copies its doubt."""
    judge = Invariants()
    seats = Fragment(0, 0, tuple(Member(each, each.encode() * 8) for each in ("b1", "b2", "b3")))
    open_ledger = LedgerMetadata(
        METADATA_VERSION, 1, 3, 3, 2, LedgerState.OPEN, None, None, bytes(16), 0, {}, (seats,)
    )
    judge.on_started("b1", "bookie", b"b1" * 8, 0, False)
    judge.ghost.take_metadata(judge.ghost.ledger(1), 5, open_ledger)
    judge.on_started("b1", "bookie", b"b1" * 8, 0, True)
    judge.on_disk_copied("b1")
    bookie = judge.ghost.bookies["b1"]
    bookie.owed_limbo = None  # The process before serves: its limbo is durable, on its disk.
    judge.on_places_changed("b1")
    judge.on_started("b1", "bookie", b"b1" * 8, 0, False)
    assert bookie.owed_limbo == [1]
    with pytest.raises(Violation, match="I32"):
        limbo_comes_first(judge.ghost, bookie, {})
    judge.on_places_changed("b1")
    assert bookie.owed_limbo is None, "and the process before has it behind itself"


def test_what_comes_to_be_while_the_copy_lists_is_not_owed_by_it() -> None:
    """P7.4, P7.9, I32 (seed 70669691): it found out that it lacks something, and listed what had to be in limbo; nobody
    can have given it what came to be behind that."""
    judge = Invariants()
    seats = Fragment(0, 0, tuple(Member(each, each.encode() * 8) for each in ("b1", "b2", "b3")))

    def made(ledger_id: int) -> None:
        metadata = LedgerMetadata(
            METADATA_VERSION, ledger_id, 3, 3, 2, LedgerState.OPEN, None, None, bytes(16), 0, {}, (seats,)
        )
        judge.ghost.take_metadata(judge.ghost.ledger(ledger_id), 4 + ledger_id, metadata)

    judge.on_started("b1", "bookie", b"b1" * 8, 0, False)
    judge.on_disk_copied("b1")
    made(1)
    judge.on_copy_doubted("b1")
    made(2)
    judge.on_places_changed("b1")
    judge.on_started("b1", "bookie", b"b1" * 8, 0, True)
    bookie = judge.ghost.bookies["b1"]
    assert bookie.owed_limbo == [1]
    judge.on_started("b1", "bookie", b"b1" * 8, 0, True)
    assert bookie.owed_limbo == [1, 2], "the next start lists all of them"


@pytest.mark.parametrize("stops", [True, False])
def test_a_copy_that_may_lack_what_a_power_cut_leaves_takes_nobodys_place(stops: bool) -> None:
    """P7.9, I31 (seed 70664463): what was written and not synced when the disk was copied is on the one that was cut
    off, in part, and nobody can tell the copy. Of a process that stands still it is not on the disk."""
    world = world_of_three()
    writing = written(world)
    world.twins.copy("b1")
    disk = world.disks["b1"]
    assert disk.storage is not None and not disk.is_pending()
    disk.storage.append(RecordKind.FENCE, 77, b"")
    assert disk.is_pending() and writing.error is None
    if stops:
        world.crash("b1")
    else:
        world.pause("b1")
    assert ("b1" in world.twins) is not stops
    world.close()
