"""The checks of a healed world, each failing where its promise is broken."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    log_key_path,
)
from embedbk.codec.metadata_messages import Put, Txn
from embedbk.config import Quorum
from embedbk.core.lac_reader import LacRead
from embedbk.core.vocabulary import Started
from embedbk.testing import faults, network_faults, process_faults
from embedbk.testing.checkers import disks_are_whole, logs_fit
from embedbk.testing.clocks import SECOND
from embedbk.testing.liveness import (
    AT_BOUND_NS,
    BELOW_BOUND_NS,
    QuietReaders,
    keeps_acknowledging,
    lists_are_fresh,
    nothing_is_held,
    tells_its_last,
    waits_for_no_slow_seat,
)
from embedbk.testing.plan import Step
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from embedbk.transports.sim_faults import DROP, Treatment


def begun(world: World, quorum: Quorum) -> Any:
    world.start_client("l3")
    return world.spawn("l3", keeps_acknowledging(world, "l3", quorum, process_faults.restart))


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(4, 2, 1), Quorum(5, 5, 3), Quorum(1, 1, 1)])
@pytest.mark.parametrize("spares", [0, 2])
def test_a_writer_goes_on_without_those_it_can_do_without(quorum: Quorum, spares: int) -> None:
    """L3: with and without others who could replace them."""
    world = World(7, bookies=quorum.ensemble_size + spares)
    actor = begun(world, quorum)
    assert world.run_until(lambda: actor.is_over, 400 * SECOND)
    assert actor.error is None
    world.close()


def test_a_writer_that_stands_still_is_found() -> None:
    """L3: one bookie more says nothing, and nobody can replace it."""
    world = World(7, bookies=3)
    world.network.add_rule(network_faults.rule_for(DROP, kind="AddAnswer", receiver="l3"))
    begun(world, Quorum(3, 3, 2))
    with pytest.raises(Violation, match="L3"):
        world.run_for(400 * SECOND)
    world.close()


@pytest.mark.parametrize("kind", ["partition", "clog", "one-way"])
def test_a_fault_that_ended_with_all_others_ends_nothing_later(kind: str) -> None:
    """What a check of the healed world blocks stays blocked (seed 17013528: a partition that would have ended later
    gave members, which a check had cut off, their quorum back)."""
    world = World(7, bookies=2)
    faults.begin(world, Step(0, 0, kind, target="b1", other="b2", for_ns=SECOND))
    faults.heal(world)
    world.network.block("b1", "b2")
    world.network.block("b2", "b1")
    world.run_for(2 * SECOND)
    assert world.network._is_blocked("b1", "b2") and world.network._is_blocked("b2", "b1")
    world.close()


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(5, 3, 1), Quorum(4, 3, 2)], ids=str)
@pytest.mark.parametrize("has_courses", [False, True])
@pytest.mark.parametrize("kept_frames", [0, 4])
def test_a_writer_waits_for_no_seat_beyond_its_ack_quorum(
    quorum: Quorum, has_courses: bool, kept_frames: int
) -> None:
    """L15, P4.5: some stand still, below the bound of what is kept for them and at it."""
    world = World(7, bookies=5, has_courses=has_courses, kept_frames=kept_frames)
    world.start_client("l15")
    actor = world.spawn("l15", waits_for_no_slow_seat(world, "l15", quorum))
    assert world.run_until(lambda: actor.is_over, 400 * SECOND)
    assert actor.error is None and world.sometimes["slow seat waited for by nobody"] == 1
    world.close()


@pytest.mark.parametrize("kept_frames", [0, 4])
def test_a_writer_that_waits_for_a_slow_seat_is_found(kept_frames: int) -> None:
    """L15: who makes the quorum answers late as well, which is as if an append waited for the slow."""
    world = World(7, bookies=3, kept_frames=kept_frames)
    late_ns = AT_BOUND_NS if kept_frames else BELOW_BOUND_NS
    world.network.add_rule(
        network_faults.rule_for(Treatment(delay_ns=late_ns), kind="AddAnswer", receiver="l15")
    )
    world.start_client("l15")
    world.spawn("l15", waits_for_no_slow_seat(world, "l15", Quorum(3, 3, 2)))
    with pytest.raises(Violation, match="L15"):
        world.run_for(400 * SECOND)
    world.close()


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(5, 3, 1), Quorum(1, 1, 1)], ids=str)
@pytest.mark.parametrize("is_native", [False, True])
def test_the_bookies_of_an_idle_writer_know_its_lac(quorum: Quorum, is_native: bool) -> None:
    """L18, P6.2: power went at all of them."""
    for seed in range(4):
        world = World(seed, bookies=quorum.ensemble_size, is_native=is_native)
        world.start_client("l18")
        actor = world.spawn("l18", tells_its_last(world, "l18", quorum, process_faults.restart))
        assert world.run_until(lambda actor=actor: actor.is_over, 400 * SECOND)  # type: ignore[misc]
        assert actor.error is None and world.sometimes["LAC known behind a power cut"] == 1
        world.close()


def test_who_has_another_disk_since_is_back_behind_the_checks_that_stop_it() -> None:
    """L3, L18 (seed 70661720): it lost its disk, and runs on a new one. Nobody else would start it again, and what is
    checked next wants it there."""
    for check, name in ((keeps_acknowledging, "l3"), (tells_its_last, "l18")):
        world = World(7, bookies=3)
        for bookie in ("b1", "b2", "b3"):
            world.lose_disk(bookie)
            assert world.start_bookie(bookie)
        world.start_client(name)
        actor = world.spawn(name, check(world, name, Quorum(3, 3, 2), process_faults.restart))
        assert world.run_until(lambda actor=actor: actor.is_over, 400 * SECOND)  # type: ignore[misc]
        assert actor.error is None
        assert all(bookie in world.nodes for bookie in ("b1", "b2", "b3"))
        world.close()


def test_a_lac_that_is_never_known_is_found() -> None:
    """L18: no bookie gets it, by whatever message."""
    world = World(7, bookies=3)
    for kind in ("ExplicitLacRequest", "ExplicitLacs", "LacHints"):
        world.network.add_rule(network_faults.rule_for(DROP, kind=kind, sender="l18"))
    world.start_client("l18")
    world.spawn("l18", tells_its_last(world, "l18", Quorum(3, 3, 2), process_faults.restart))
    with pytest.raises(Violation, match=r"L18: ledger 1: .*b2.* not told of entry 2"):
        world.run_for(400 * SECOND)
    world.close()


def test_a_list_of_bookies_that_stays_as_it_was_is_found() -> None:
    """L19: a client closes, and is asked nothing more."""
    world = World(7, bookies=3)
    world.start_client("c1")
    node = world.nodes["c1"]
    assert world.run_until(lambda: len(node.listed.registrations) == 3, 2 * SECOND)
    lists_are_fresh(world)
    node.listed.registrations.pop("b2")
    with pytest.raises(Violation, match=r"L19: .*c1 lists b1 b3"):
        lists_are_fresh(world)
    node.metadata.close(world.now_of("c1"))
    lists_are_fresh(world)
    world.close()


def test_a_log_that_does_not_fit_is_found() -> None:
    """L20: what an operator's check would say."""
    world = World(7, bookies=3)
    world.start_client("c1")
    assert world.run_until(lambda: world.nodes["c1"].is_ready, SECOND)
    logs_fit(world)
    world.crash("l20")
    world.nodes["c1"].metadata.request(
        world.now_of("c1"), Txn([], [Put(log_key_path("odd"), b"no list")]), lambda now_ns, result: None
    )
    world.wake("c1")
    world.run_for(SECOND)
    with pytest.raises(Violation, match="L20: log odd: "):
        logs_fit(world)
    world.close()


def test_damage_that_nobody_did_is_found() -> None:
    """I42: a byte of a disk changes, and no fault of the world changed it."""
    world = World(7, bookies=1, is_native=True)
    actor = begun(world, Quorum(1, 1, 1))
    assert world.run_until(lambda: actor.is_over, 400 * SECOND) and actor.error is None
    world.run_for(SECOND)
    disks_are_whole(world)
    disk = world.disks["b1"]._disk
    (path,) = [path for path in disk.files() if "/journal-" in path]
    content = bytearray(disk.read(path))
    content[4096 + 100] ^= 1
    disk.put(path, bytes(content))
    with pytest.raises(Violation, match="I42: a check of b1 finds damage"):
        disks_are_whole(world)
    world.close()


def test_a_bookie_that_never_serves_again_is_found() -> None:
    """L3, P7.4: it started, and the list of bookies still shows the process before: waited for, not for ever."""
    world = World(7, bookies=4)
    world.run_for(SECOND)
    world.nodes["b2"].core.entering.is_serving = False
    begun(world, Quorum(3, 3, 2))
    with pytest.raises(Violation, match="L3: b2: started, and never serves"):
        world.run_for(400 * SECOND)
    world.close()


def test_what_is_held_at_rest_is_found() -> None:
    """L13: a lookup that nobody answered, a request that nobody answered."""
    world = World(7, bookies=3)
    world.run_for(SECOND)
    nothing_is_held(world)
    world.nodes["b2"].core.looks.open[99] = None
    with pytest.raises(Violation, match="held at rest: 1 lookups by b2"):
        nothing_is_held(world)
    world.nodes["b2"].core.looks.open.clear()
    world.nodes["b1"].clients.unanswered[99] = 3
    with pytest.raises(Violation, match="3 requests without an answer by b1"):
        nothing_is_held(world)
    world.close()


def test_a_reader_that_asks_without_end_is_found() -> None:
    """L12: poll after poll within one second, each by a core of its own."""
    seat = ("b1", bytes(16))
    metadata = LedgerMetadata(
        METADATA_VERSION, 5, 1, 1, 1, LedgerState.OPEN, None, None, b"", 0, {}, (Fragment(0, 0, (seat,)),)
    )
    readers = QuietReaders()

    def ask(times: int, now_ns: int) -> None:
        for _ in range(times):
            core, event = LacRead(metadata), Started(now_ns)
            readers.on_step("c1", core, event, core.step(event))

    ask(300, 0)
    ask(300, SECOND)
    with pytest.raises(Violation, match="L12"):
        ask(300, SECOND)


def test_time_that_stands_still_is_found() -> None:
    """L14: a timer that begins itself again at the same moment."""
    world = World(7, bookies=1)

    def again() -> None:
        world.after(0, again)

    again()
    with pytest.raises(Violation, match="time stands still"):
        world.run_for(SECOND)
    world.close()
