"""P5.2, P5.3: any number of recoverers in any order, their deaths, and what recovery costs."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.config import Quorum
from embedbk.core.metadata_words import Transact
from embedbk.core.recovery import Phase, Recovery, RecoveryOptions
from embedbk.errors import (
    EmbedbkError,
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    RecoveryInconclusive,
    WrongPassword,
)
from tests.rules.scenes import Scene, but, scene
from tests.rules.world import MS, THREE, Client, Packet, World

# P5.2, P5.3: any number of recoverers at once.


def tail(seed: int, quorum: Quorum, bookies: int) -> tuple[Scene, random.Random]:
    """A ledger whose writer stopped somewhere: each copy of its last entries arrived, or did not."""
    chance = random.Random(seed)
    world, writer, pen = it = scene(quorum, bookies)
    for number in range(chance.randrange(2)):
        world.add(writer, pen, b"first %d" % number)
        world.settle()
    for number in range(1 + chance.randrange(3)):
        world.add(writer, pen, b"entry %d" % number)
    for packet in list(world.packets(writer)):
        if chance.random() < 0.5:
            world.deliver(packet)
            if chance.random() < 0.7:
                world.nodes[packet.bookie_id].sync()
    return it, chance


def shuffle(it: Scene, chance: random.Random, clients: list[Client], steps: int = 3000) -> None:
    """Deliver, sync, answer and let time pass in any order until all have ended."""
    world = it.world
    for _ in range(steps):
        if all(client.has_ended or client.is_gone for client in clients):
            return
        choices: list[object] = [*world.wire, *world.catalog.waiting]
        choices += [
            node for node in world.nodes.values() if node.storage.durable() < node.core.records.next_token - 1
        ]
        if not choices or chance.random() < 0.01:
            due = [c for c in clients if not c.has_ended and not c.is_gone and c.core.deadline_ns is not None]
            if not due:
                return
            client = chance.choice(due)
            world.now_ns = max(world.now_ns, client.core.deadline_ns or 0)
            world.tick(client)
            continue
        choice = chance.choice(choices)
        if isinstance(choice, Packet):
            world.deliver(choice)
        elif hasattr(choice, "effect"):
            world.catalog.answer(choice)
        else:
            choice.sync()
    raise AssertionError("no end")


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(2, 2, 1), Quorum(4, 3, 2), Quorum(5, 2, 2)])
@pytest.mark.parametrize("recoverers", [2, 3])
def test_recoverers_converge(quorum: Quorum, recoverers: int) -> None:
    """P5.2, P5.3, I2: any number at once, all converging on the same last entry, in any order of events, while the
    writer's late adds still arrive. One of them may die on its way."""
    closed = 0
    for seed in range(40):
        it, chance = tail(seed, quorum, quorum.ensemble_size)
        clients = []
        for number in range(recoverers):
            clients.append(it.world.recovery(it.ledger_id, f"r{number}"))
            clients[-1].start()
        clients[0].is_gone = seed % 5 == 4
        shuffle(it, chance, clients)
        ends = [client.ended for client in clients if client.has_ended]
        results = {end.result[0].last_entry for end in ends if end.error is None}
        assert results <= {it.last_entry}, seed
        closed += bool(results)
        assert all(end.error is None or isinstance(end.error, RecoveryInconclusive) for end in ends)
        it.recover(name="last")
        it.world.check_end(it.ledger_id)
    assert closed > 30  # Else nothing was tested.


def test_recovery_takes_five_round_trips_however_long_the_tail_is() -> None:
    """The LAC comes with the fence, the whole unconfirmed tail with one read of each bookie, its copies leave at
    once, and one write closes. Of the two to the metadata the first is P5.2a."""
    world, writer, pen = it = scene()
    for number in range(40):
        world.add(writer, pen, b"entry %d" % number)
    world.settle(
        hold=lambda packet: not packet.is_request
    )  # Stored everywhere; the writer hears nothing of it.
    writer.is_gone = True
    world.wire.clear()
    recovery = world.recovery(it.ledger_id)
    recovery.start()
    trips = []
    while not recovery.has_ended:
        asked = world.packets(recovery, is_request=True)
        trips.append(sorted({type(packet.control).__name__ for packet in asked} or {"Transact"}))
        for operation in list(world.catalog.waiting):
            world.catalog.answer(operation)
        for packet in asked:
            world.deliver(packet)
        for node in world.nodes.values():
            node.sync()
        for packet in world.packets(recovery, is_request=False):
            world.deliver(packet)
        assert len(trips) < 10, trips
    assert trips == [["Transact"], ["FenceRequest"], ["ReadRequest"], ["AddRequest"], ["Transact"]]
    assert it.last_entry == 39


def test_recovery_asks_nothing_more_once_it_is_over() -> None:
    """A tick, the watch, a late answer: silence. The world checks it for every client at every step. And nothing was
    given before the end, which names the closed ledger (P6.5)."""
    world, writer, pen = it = scene(bookies=4)
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    world.wire.clear()
    recovery = it.recover(hold=lambda p: p.bookie_id == "b3" and p.tag[0] == "add")
    assert recovery.ended.error is None
    assert recovery.core.deadline_ns is None
    world.settle()
    world.tell_bookies()
    assert world.wire == []
    assert world.catalog.waiting == []


def test_an_unanswered_third_copy_does_not_make_the_closing_recovery_spin() -> None:
    """Bounded work: the close is in flight, one write-back was never answered: no deadline in the past."""
    world, writer, pen = it = scene()
    world.add(writer, pen, b"zero")
    world.settle(hold=but("b3"))
    world.wire.clear()
    recovery = world.recovery(it.ledger_id, options=RecoveryOptions(write_timeout_ns=100 * MS))
    recovery.start()
    world.settle(hold=lambda p: isinstance(p.control, AddRequest) or p.client is writer)
    world.catalog.is_held = True
    world.settle(hold=lambda p: p.bookie_id == "b3" and isinstance(p.control, AddRequest))
    assert recovery.core.phase is Phase.CLOSING
    world.now_ns += 500 * MS
    world.tick(recovery)  # Asserts that the next deadline lies ahead.
    assert len([op for op in world.catalog.waiting if isinstance(op.effect, Transact)]) == 1


def test_what_recovery_remembers_of_negatives_is_bounded() -> None:
    """Cost: a striped tail gives a negative for every gap; those below the next entry are forgotten."""
    world, writer, pen = it = scene(Quorum(5, 2, 2), 5)
    for _ in range(40):
        world.add(writer, pen, *[b"x"] * 5)
    world.settle(hold=lambda packet: not packet.is_request)
    world.wire.clear()
    recovery = world.recovery(it.ledger_id, options=RecoveryOptions(read_entries=10))
    core = recovery.core
    assert isinstance(core, Recovery)
    recovery.start()
    worst = 0
    for _ in range(20_000):
        if recovery.has_ended:
            break
        if world.wire:
            world.deliver(world.wire[0])
        for node in world.nodes.values():
            node.sync()
        while world.catalog.waiting:
            world.catalog.answer(world.catalog.waiting[0])
        worst = max(worst, sum(map(len, core.forward.absent.values())))
    assert it.last_entry == 199
    assert worst <= 60


def test_every_error_of_closing_says_whether_it_is_final() -> None:
    """P3.6: LedgerFenced, LedgerClosed say "unknown"; RecoveryInconclusive may be tried again."""
    wanted: dict[type[EmbedbkError], bool] = {
        LedgerFenced: False, LedgerClosed: False, RecoveryInconclusive: False, NoSuchLedger: True,
        WrongPassword: True,
    }  # fmt: skip
    assert {error: error("x").definite for error in wanted} == wanted


def advance(world: World, steps: int) -> None:
    """So many single steps of the world: a message, a metadata operation, or a sync."""
    for _ in range(steps):
        if world.wire:
            world.deliver(world.wire[0])
        elif world.catalog.waiting:
            world.catalog.answer(world.catalog.waiting[0])
        elif not any(node.sync() for node in world.nodes.values()):
            return


@pytest.mark.parametrize("quorum", [THREE, Quorum(5, 3, 2)])
@pytest.mark.parametrize("loses_bookie", [False, True])
def test_a_recovery_that_dies_after_any_step_leaves_what_the_next_one_finishes(
    quorum: Quorum, loses_bookie: bool
) -> None:
    """P5.2, P5.2d, RP23, RP25: also where it had replaced a bookie in fragments that nobody else ever sees. What it
    had sent still arrives; the next recovery finds every acknowledged entry."""
    for steps in range(1000):
        it = scene(quorum, quorum.ensemble_size + 1)
        for number in range(4):
            it.world.add(it.writer, it.pen, b"entry %d" % number)
            it.world.settle()
        for number in range(4, 7):  # On their first seat only, or not even there: acknowledged to nobody.
            it.world.add(it.writer, it.pen, b"entry %d" % number)
        for packet in it.world.packets(it.writer):
            if packet.bookie_id == "b2":
                it.world.deliver(packet)
            else:
                it.world.lose(packet)
        it.world.nodes["b2"].sync()
        it.writer.is_gone = True
        it.world.wire.clear()
        first = it.world.recovery(it.ledger_id, "first")
        first.start()
        advance(it.world, min(steps, 12))
        if loses_bookie:
            it.world.down.add("b3")
        advance(it.world, max(0, steps - 12))
        has_ended = first.has_ended
        first.is_gone = True
        it.world.settle()
        it.world.down.clear()
        assert it.recover(name="second").ended.error is None
        assert it.world.check_end(it.ledger_id).last_entry in range(3, 7)
        if has_ended:
            break
    assert 15 < steps < 999  # Else nothing was tested, or nothing ended.
